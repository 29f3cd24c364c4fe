//! The command `switchboard-underlay`: runs a laboratory's wide area in this network namespace.

use serde::Serialize;
use std::process::ExitCode;
use std::{fs, io};
use underlay::config::Config;
use underlay::line::Counters;
use underlay::network::Network;
use underlay::socket::{PacketSocket, monotonic_now, wait, wake_precisely};

const USAGE: &str = "usage: switchboard-underlay --config FILE [--status FILE]

Carries frames between the ports of FILE with each pair of sites' latency and rate.
--status FILE is rewritten at most once a second while something changes.";

const STATUS_INTERVAL: u64 = 1_000_000_000;

fn main() -> ExitCode {
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
    let mut sockets = Vec::new();
    for (index, port) in config.ports.iter().enumerate() {
        let socket = PacketSocket::open(&port.interface).map_err(|error| {
            format!(
                "{file}: ports[{index}].interface {:?}: {error}",
                port.interface
            )
        })?;
        sockets.push(socket);
    }
    wake_precisely();
    let mut network = Network::new(&config);
    let mut status = StatusFile::new(arguments.status.clone());
    carry(&mut sockets, &mut network, &mut status).map_err(|error| error.to_string())
}

/// Carries frames until a system call fails.
fn carry(
    sockets: &mut [PacketSocket],
    network: &mut Network,
    status: &mut StatusFile,
) -> io::Result<()> {
    let mut leaving: Vec<Vec<Vec<u8>>> = sockets.iter().map(|_| Vec::new()).collect();
    loop {
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
        if received > 0 {
            status.changed();
        }
        status.write(now, network, sockets)?;
        if received == 0 {
            let next = [network.next_arrival(), status.due()];
            let next = next.into_iter().flatten().min();
            wait(sockets, next.map(|at| at.saturating_sub(now)))?;
        }
    }
}

#[derive(Serialize)]
struct LineStatus<'a> {
    from: &'a str,
    to: &'a str,
    #[serde(flatten)]
    counters: Counters,
}

#[derive(Serialize)]
struct Status<'a> {
    lines: Vec<LineStatus<'a>>,
    dropped_truncated: u64,
    dropped_no_link: u64,
    send_failures: u64,
    dropped_overrun: u64,
}

/// The file the counters are written to.
struct StatusFile {
    path: Option<String>,
    written_at: u64,
    pending: bool,
}

impl StatusFile {
    fn new(path: Option<String>) -> StatusFile {
        StatusFile {
            pending: path.is_some(),
            path,
            written_at: 0,
        }
    }

    fn changed(&mut self) {
        self.pending = self.path.is_some();
    }

    fn due(&self) -> Option<u64> {
        self.pending.then_some(self.written_at + STATUS_INTERVAL)
    }

    fn write(
        &mut self,
        now: u64,
        network: &Network,
        sockets: &mut [PacketSocket],
    ) -> io::Result<()> {
        let (Some(path), Some(due)) = (&self.path, self.due()) else {
            return Ok(());
        };
        if now < due {
            return Ok(());
        }
        let status = Status {
            lines: network
                .counters()
                .map(|(from, to, counters)| LineStatus { from, to, counters })
                .collect(),
            dropped_truncated: network.dropped_truncated,
            dropped_no_link: network.dropped_no_link,
            send_failures: sockets.iter().map(|socket| socket.send_failures).sum(),
            dropped_overrun: sockets.iter_mut().map(PacketSocket::overruns).sum(),
        };
        let unfinished = format!("{path}.new");
        fs::write(&unfinished, serde_json::to_vec(&status)?)?;
        fs::rename(&unfinished, path)?;
        self.written_at = now;
        self.pending = false;
        Ok(())
    }
}
