//! The command `switchboard-underlay`: runs a laboratory's wide area in this network namespace.

mod status;

use status::StatusFile;
use std::process::ExitCode;
use std::{fs, io};
use underlay::config::Config;
use underlay::network::Network;
use underlay::socket::{
    PacketSocket, hung_up, monotonic_now, notice_hang_up, wait, wake_precisely,
};

const USAGE: &str = "usage: switchboard-underlay --config FILE [--status FILE]

Carries frames between the ports of FILE with each pair of sites' latency and rate.
--status FILE is rewritten at most once a second while something changes.
SIGHUP makes it read FILE again and open ports that are new there; those it has stay.";

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match arguments(std::env::args().skip(1)).and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("switchboard-underlay: {problem}");
            ExitCode::from(2)
        }
    }
}

struct Arguments {
    config: String,
    status: Option<String>,
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let (mut config, mut status) = (None, None);
    while let Some(word) = words.next() {
        let target = match word.as_str() {
            "--config" => &mut config,
            "--status" => &mut status,
            other => return Err(format!("unknown argument {other:?}\n{USAGE}")),
        };
        *target = Some(
            words
                .next()
                .ok_or(format!("{word} wants a file\n{USAGE}"))?,
        );
    }
    let config = config.ok_or(format!("--config is missing\n{USAGE}"))?;
    Ok(Arguments { config, status })
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let file = &arguments.config;
    let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let config = Config::parse(&text).map_err(|error| format!("{file}: {error}"))?;
    notice_hang_up();
    let mut ports = Ports::default();
    for index in 0..config.ports.len() {
        ports.open(file, &config, index)?;
    }
    wake_precisely();
    let mut network = Network::new(&config);
    let mut status = arguments.status.clone().map(StatusFile::open);
    loop {
        let ended = carry(&mut ports.sockets, &mut network, &mut status);
        ended.map_err(|error| error.to_string())?;
        if let Err(problem) = ports.follow(file, &mut network) {
            eprintln!("switchboard-underlay: {problem}");
        }
    }
}

/// The ports that are open, in the order in which they were opened.
#[derive(Default)]
struct Ports {
    interfaces: Vec<String>,
    sockets: Vec<PacketSocket>,
}

impl Ports {
    fn open(&mut self, file: &str, config: &Config, index: usize) -> Result<(), String> {
        let interface = &config.ports[index].interface;
        let socket = PacketSocket::open(interface)
            .map_err(|error| format!("{file}: ports[{index}].interface {interface:?}: {error}"))?;
        self.interfaces.push(interface.clone());
        self.sockets.push(socket);
        Ok(())
    }

    /// Opens ports that are new in the file.
    fn follow(&mut self, file: &str, network: &mut Network) -> Result<(), String> {
        let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        let config = Config::parse(&text).map_err(|error| format!("{file}: {error}"))?;
        for (index, port) in config.ports.iter().enumerate() {
            if self.interfaces.contains(&port.interface) {
                continue;
            }
            self.open(file, &config, index)?;
            if network.add_port(&port.site).is_none() {
                self.interfaces.pop();
                self.sockets.pop();
                return Err(format!(
                    "{file}: ports[{index}].site: {:?} is a new site; start anew for it",
                    port.site
                ));
            }
        }
        Ok(())
    }
}

/// Carries frames until the process is told to read its configuration again, or a system call fails.
fn carry(
    sockets: &mut [PacketSocket],
    network: &mut Network,
    status: &mut Option<StatusFile>,
) -> io::Result<()> {
    let mut leaving: Vec<Vec<Vec<u8>>> = sockets.iter().map(|_| Vec::new()).collect();
    loop {
        if hung_up() {
            return Ok(());
        }
        let mut received = 0;
        for (port, socket) in sockets.iter_mut().enumerate() {
            received += socket.receive(|bytes| network.receive(monotonic_now(), port, bytes))?;
        }
        network.deliver(monotonic_now(), |port, bytes| {
            leaving[port].push(bytes);
            None
        });
        for (socket, frames) in sockets.iter_mut().zip(&mut leaving) {
            socket.send(frames);
            for buffer in frames.drain(..) {
                network.recycle(buffer);
            }
        }
        let now = monotonic_now();
        if let Some(status) = status {
            status.follow(now, received > 0, network, sockets)?;
        }
        if received == 0 {
            let due = status.as_ref().and_then(StatusFile::due);
            let next = [network.next_arrival(), due].into_iter().flatten().min();
            wait(sockets, next.map(|at| at.saturating_sub(now)))?;
        }
    }
}
