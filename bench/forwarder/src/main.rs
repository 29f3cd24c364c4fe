//! The forwarder's figures: `make bench-forwarder`. Usage: `bench-forwarder [--quick] [--only ROWS]
//! [--forwarder PROGRAM] -o FILE`.
//!
//! Times are of the processor where one thread is measured: programs that take turns on the core do not count, what
//! they do to caches and memory does. Figures are medians over repetitions made in turns with the peer.

mod bridge;
mod clock;
mod figures;
mod frames;
mod nearness;
mod peers;
mod ports;
mod profile;
mod results;
mod rows;
mod rte_hash;
mod rules;
mod subject;
mod substitutes;
mod testpmd;

use dpdk::{Environment, Pool};
use flow::PagesAhead;
use results::Results;
use rows::Bench;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use testpmd::Testpmd;

/// Buffers of this process: what is measured lies in the cache, so there are few.
const BUFFERS: u32 = 8_191;
const DATA_ROOM: u16 = 2048 + 128;

struct Arguments {
    quick: bool,
    only: Option<Vec<String>>,
    output: String,
    forwarder: PathBuf,
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        quick: false,
        only: None,
        output: "forwarder.json".into(),
        forwarder: "switchboard-forwarder".into(),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match word.as_str() {
            "--quick" => arguments.quick = true,
            "--only" => arguments.only = Some(value()?.split(',').map(String::from).collect()),
            "-o" => arguments.output = value()?,
            "--forwarder" => arguments.forwarder = value()?.into(),
            _ => return Err(format!("unknown argument {word:?}")),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words_are: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words_are[..] {
        [ports::generator::ROLE, wires, core, queues] => ports::generator::run(wires, core, queues),
        [ports::worker::ROLE, wires, core] => ports::worker::run(wires, core),
        [profile::ROLE, ..] => profile_pipeline(&words_are[1..]),
        _ => arguments(words.into_iter()).and_then(run),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench-forwarder: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn cores() -> Result<(usize, usize), String> {
    let cores = nix::sched::sched_getaffinity(nix::unistd::Pid::this())
        .map_err(|error| format!("sched_getaffinity: {error}"))?;
    let mut cores = (0..nix::sched::CpuSet::count()).filter(|&core| cores.is_set(core) == Ok(true));
    let other_core = cores.next().ok_or("no core")?;
    Ok((other_core, cores.next().unwrap_or(other_core)))
}

fn profile_pipeline(words: &[&str]) -> Result<(), String> {
    let (other_core, core) = cores()?;
    let bench = start(&arguments(std::iter::empty())?, core, other_core)?;
    profile::run(&bench, words)
}

fn run(arguments: Arguments) -> Result<(), String> {
    let (other_core, core) = cores()?;
    let testpmd = Testpmd::start(other_core, core);
    let bench = start(&arguments, core, other_core)?;
    let mut results = Results::new();
    let mut testpmd = testpmd
        .map_err(|problem| results.leave_out("of_testpmd", &problem))
        .ok();
    let wanted = |row: &str| {
        let only = arguments.only.as_ref();
        only.is_none_or(|only| only.iter().any(|wanted| wanted == row))
    };
    if wanted("speed") {
        rows::speed::measure(&bench, &mut testpmd, &mut results);
    }
    if wanted("new_flows") {
        rows::speed::new_flows_1m(&bench, &mut results);
    }
    if wanted("overheads") {
        rows::overheads::in_process(&bench, &mut results);
        rows::over_ports::overheads(&bench, &mut results);
    }
    if wanted("observability") {
        rows::observability::measure(&bench, &mut results);
    }
    if wanted("ovs") {
        rows::over_ports::against_open_vswitch(&bench, &mut results);
    }
    if wanted("tcp") {
        rows::tcp::measure(&bench, &mut results);
    }
    if wanted("latency") {
        rows::latency::measure(&bench, &mut results);
    }
    if wanted("two_cores") {
        rows::two_cores::measure(&bench, &mut results);
    }
    results.write(&arguments.output, arguments.only.as_deref());
    figures::draw(&results, &arguments.output);
    Ok(())
}

fn start(arguments: &Arguments, core: usize, other_core: usize) -> Result<Bench, String> {
    let own_core = core.to_string();
    // Pages are taken as they are needed: most of them for `rte_hash` with 30 million connections.
    let words = [
        "--in-memory",
        "--no-telemetry",
        "--no-pci",
        "--log-level=error",
    ];
    let words = words.into_iter().chain(["-l", &own_core]);
    let words: Vec<String> = words.map(String::from).collect();
    let environment = Environment::start(&words).map_err(|error| error.to_string())?;
    let pool = Pool::new(&environment, "packets", BUFFERS, DATA_ROOM, 1).ok_or("no memory")?;
    let (repetitions, round) = match arguments.quick {
        true => (3, Duration::from_millis(100)),
        false => (9, Duration::from_millis(250)),
    };
    let ahead = std::thread::spawn(move || {
        rows::stay_on(other_core);
        PagesAhead::start()
    });
    let ahead = ahead.join().expect("the core is ours");
    Ok(Bench {
        environment,
        pool,
        ahead: ahead.map_err(|error| error.to_string())?,
        repetitions,
        round,
        core,
        other_core,
        forwarder: arguments.forwarder.clone(),
        large: !arguments.quick,
    })
}
