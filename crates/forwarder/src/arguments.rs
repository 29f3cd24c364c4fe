//! The command line of `switchboard-forwarder`.

use forwarder::cores;
use forwarder::home::WORKERS_LIMIT;
use std::path::PathBuf;
use std::thread;

/// What `--help` shows.
pub const USAGE: &str = "usage: switchboard-forwarder --site SITE --name FORWARDER
  --credentials FILE       of the site's message bus, for rules and reports
  --rules FILE             a RuleSet (protocol buffers) instead of the bus; read again when it changes
  --status FILE            where the Status goes instead of the bus, each second
  --state-directory DIR    keeps the last rules over a restart
  --flow-directory DIR     on tmpfs or hugetlbfs: keeps connections' choices over a restart, also after a crash
  --workers N              threads that forward, at most one for each processor (default 1)
  --cores LIST             processors that they are bound to, such as 2,4-6: one for each worker (default: none is bound)
  --spare                  wait until another process of this forwarder has ended (needs --flow-directory), then take over
  --metrics ADDRESS        where metrics are served over HTTP (default 127.0.0.1:9470; off: nowhere)
  --capture-socket FILE    where captures are served (default: capture.sock in the state directory)
  --memory-mb N            DPDK's memory without huge pages (default 64, or 32 for each worker if that is more)
  --huge-pages             take DPDK's memory from huge pages, which network cards need (ports by devargs such as 0000:03:00.0)
  --buffers N              packet buffers, which workers share evenly, at least 512 each (default 8192 each)
  --flow-memory-mb N       limit of the flow tables (default 1024)";

/// Flow tables of a worker, in files, take so much when they are empty.
const LEAST_FLOW_MEMORY_MB: usize = 8;
/// A burst of a worker, and what waits in rings meanwhile.
const LEAST_BUFFERS: u32 = 512;
/// For each worker: three ports of AF_XDP take most of them.
const BUFFERS: u32 = 8_192;
/// For buffers, short and long: of a forwarder, and for each worker.
const MEMORY_MB: u32 = 64;
const MEMORY_MB_OF_ONE: u32 = 32;

/// What the command line says.
pub struct Arguments {
    pub site: String,
    pub name: String,
    pub credentials: Option<PathBuf>,
    pub rules: Option<PathBuf>,
    pub status: Option<PathBuf>,
    pub state_directory: Option<PathBuf>,
    pub flow_directory: Option<PathBuf>,
    pub metrics: Option<String>,
    pub capture_socket: Option<PathBuf>,
    /// DPDK's memory without huge pages, if it is given.
    memory_mb: Option<u32>,
    pub huge_pages: bool,
    /// Packet buffers, if their number is given.
    buffers: Option<u32>,
    pub flow_memory_mb: usize,
    pub workers: usize,
    pub cores: Vec<usize>,
    pub spare: bool,
}

impl Arguments {
    /// Packet buffers.
    pub fn buffers(&self) -> u32 {
        self.buffers.unwrap_or(BUFFERS * self.workers as u32)
    }

    /// Megabytes of DPDK's memory without huge pages.
    pub fn memory_mb(&self) -> u32 {
        let default = MEMORY_MB.max(MEMORY_MB_OF_ONE * self.workers as u32);
        self.memory_mb.unwrap_or(default)
    }

    fn least_buffers(&self) -> u32 {
        LEAST_BUFFERS * self.workers as u32
    }
}

/// Reads the command line.
///
/// # Errors
/// An argument is unknown, wrong or missing; the text names it and says what to give.
pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        site: String::new(),
        name: String::new(),
        credentials: None,
        rules: None,
        status: None,
        state_directory: None,
        flow_directory: None,
        metrics: None,
        capture_socket: None,
        memory_mb: None,
        huge_pages: false,
        buffers: None,
        flow_memory_mb: 1024,
        workers: 1,
        cores: Vec::new(),
        spare: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--huge-pages" => arguments.huge_pages = true,
            "--spare" => arguments.spare = true,
            "--site" => arguments.site = value()?,
            "--name" => arguments.name = value()?,
            "--credentials" => arguments.credentials = Some(value()?.into()),
            "--rules" => arguments.rules = Some(value()?.into()),
            "--status" => arguments.status = Some(value()?.into()),
            "--state-directory" => arguments.state_directory = Some(value()?.into()),
            "--flow-directory" => arguments.flow_directory = Some(value()?.into()),
            "--metrics" => arguments.metrics = Some(address(&word, value()?)?),
            "--capture-socket" => arguments.capture_socket = Some(value()?.into()),
            "--memory-mb" => arguments.memory_mb = Some(number(&word, &value()?)?),
            "--buffers" => arguments.buffers = Some(number(&word, &value()?)?),
            "--flow-memory-mb" => arguments.flow_memory_mb = number(&word, &value()?)? as usize,
            "--workers" => arguments.workers = number(&word, &value()?)? as usize,
            "--cores" => {
                let cores = cores::parse(&value()?);
                arguments.cores = cores.map_err(|problem| format!("--cores: {problem}"))?;
            }
            _ => return Err(format!("unknown argument {word:?}; --help lists all")),
        }
    }
    if arguments.site.is_empty() || arguments.name.is_empty() {
        return Err("--site and --name are needed".to_string());
    }
    if arguments.credentials.is_none() == arguments.rules.is_none() {
        return Err("give either --credentials or --rules".to_string());
    }
    check_name("--site", &arguments.site)?;
    check_name("--name", &arguments.name)?;
    check_workers(arguments.workers)?;
    check_memory(&arguments)?;
    cores::check(&arguments.cores, arguments.workers)
        .map_err(|problem| format!("--cores: {problem}"))?;
    if arguments.spare && arguments.flow_directory.is_none() {
        return Err(
            "--spare needs --flow-directory: its lock tells that the other has ended".to_string(),
        );
    }
    Ok(arguments)
}

fn number(flag: &str, value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| {
        format!(
            "{flag}: {value:?} is no whole number from 0 to {}",
            u32::MAX
        )
    })
}

/// Where metrics are served, or "off": a host and a port. Whether there is that host is seen when they are to be served.
fn address(flag: &str, value: String) -> Result<String, String> {
    let port = value.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match value == "off" || port.is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        true => Ok(value),
        false => Err(format!(
            "{flag}: {value:?} is no address; give one with its port, such as 127.0.0.1:9470, or off"
        )),
    }
}

/// A worker polls: two on one processor would only be in each other's way.
fn check_workers(workers: usize) -> Result<(), String> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let limit = processors.min(WORKERS_LIMIT);
    match workers {
        0 => Err("--workers: 0 forward nothing; give 1 or more".to_string()),
        _ if workers > limit => Err(format!(
            "--workers: {workers} are more than the {processors} processors this process may run on; give at most {limit}"
        )),
        _ => Ok(()),
    }
}

/// A name is part of names of directories.
fn check_name(flag: &str, name: &str) -> Result<(), String> {
    match name.contains('/') {
        true => Err(format!("{flag}: {name:?} is no name: leave out the slash")),
        false => Ok(()),
    }
}

/// Tables and buffers need so much to begin with.
fn check_memory(arguments: &Arguments) -> Result<(), String> {
    let least = LEAST_FLOW_MEMORY_MB * arguments.workers;
    if arguments.flow_memory_mb < least {
        let given = arguments.flow_memory_mb;
        return Err(format!(
            "--flow-memory-mb: {given} hold no flow tables; give at least {least}"
        ));
    }
    let least = arguments.least_buffers();
    if let Some(given) = arguments.buffers.filter(|&given| given < least) {
        return Err(format!(
            "--buffers: {given} are too few for a burst of each worker and for rings; give at least {least}"
        ));
    }
    if arguments.memory_mb() == 0 {
        return Err("--memory-mb: 0 hold no packet; give 16 or more".to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of so many workers, which this machine may have no processors for.
    fn memory(workers: usize, given: &str) -> (u32, u32) {
        let words = format!("--site s --name f --rules r --status s {given}");
        let words = words.split_whitespace().map(String::from);
        let arguments = Arguments {
            workers,
            ..parse(words).expect("they are right")
        };
        (arguments.buffers(), arguments.memory_mb())
    }

    #[test]
    fn memory_grows_with_workers_unless_it_is_given() {
        assert_eq!(memory(1, ""), (8_192, 64));
        assert_eq!(memory(2, ""), (16_384, 64));
        assert_eq!(memory(8, ""), (65_536, 256));
        assert_eq!(memory(8, "--buffers 4096 --memory-mb 50"), (4_096, 50));
    }
}
