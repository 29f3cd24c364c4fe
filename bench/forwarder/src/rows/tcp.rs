//! One TCP connection between two network namespaces: through the forwarder, by either kind of port, and through the kernel's
//! bridge.
//!
//! All links are left as they come, with all offloads.

use super::Bench;
use crate::clock::median;
use crate::peers::{Process, run};
use crate::results::{Better, Results};
use crate::rules::{self, TcpPort};
use prost::Message;
use std::process::Command;
use std::time::{Duration, Instant};

const PORTS: [TcpPort; 2] = [TcpPort::AfPacket, TcpPort::AfXdp];
/// Where the bridge leads.
const BRIDGED: &str = "10.3.0.2";

/// Measures all in turns. The forwarder's best port is the figure; each has one of its own besides.
pub fn measure(bench: &Bench, results: &mut Results) {
    if let Err(problem) = build().and_then(|()| compare(bench, results)) {
        results.leave_out("tcp_vs_bridge", &problem);
    }
}

/// Namespaces `a` and `b`, joined by a bridge and, by links for each kind of port, through this namespace.
fn build() -> Result<(), String> {
    let mut commands = "netns add a
        netns add b
        link add bridge type bridge
        link add bridge-a type veth peer name bridge0 netns a
        link add bridge-b type veth peer name bridge0 netns b
        link set bridge-a master bridge up
        link set bridge-b master bridge up
        link set bridge up
        -n a address add 10.3.0.1/24 dev bridge0
        -n b address add 10.3.0.2/24 dev bridge0
        -n a link set bridge0 up
        -n b link set bridge0 up"
        .to_string();
    for port in PORTS {
        let ([lan, net], [a, b]) = (port.interfaces(), port.networks());
        for (namespace, interface, own, other) in [("a", lan, a, b), ("b", net, b, a)] {
            commands += &format!(
                "
                link add {interface} type veth peer name {interface}0 netns {namespace}
                link set {interface} up
                -n {namespace} address add {own}.2/24 dev {interface}0
                -n {namespace} link set {interface}0 up
                -n {namespace} route add {other}.0/24 via {own}.1"
            );
        }
    }
    for command in commands.lines() {
        let words: Vec<&str> = command.split_whitespace().collect();
        run("ip", &words)?;
    }
    Ok(())
}

/// A forwarder of one kind of ports. It has no processor but in its turn.
struct Forwarder {
    port: TcpPort,
    process: Process,
    gbits: Vec<f64>,
    /// Shares of a core: the program's, and the kernel's on its behalf.
    shares: [Vec<f64>; 2],
}

impl Forwarder {
    fn start(bench: &Bench, port: TcpPort) -> Result<Forwarder, String> {
        let name = port.name();
        let file = |kind: &str| format!("/run/tcp-{name}.{kind}");
        std::fs::write(file("pb"), rules::tcp(port).encode_to_vec())
            .map_err(|error| error.to_string())?;
        let mut command = Command::new(&bench.forwarder);
        command
            .args(["--site", "bench", "--name", "f1", "--rules", &file("pb")])
            .args(["--status", &file("status"), "--metrics", "off"]);
        let forwarder = Forwarder {
            port,
            process: Process::start(&mut command, &file("log"))?,
            gbits: Vec::new(),
            shares: [const { Vec::new() }; 2],
        };
        forwarder
            .wait()
            .map_err(|problem| format!("through the forwarder's {name} ports: {problem}"))?;
        forwarder.process.pause(true);
        Ok(forwarder)
    }

    /// Waits until packets come through.
    fn wait(&self) -> Result<(), String> {
        let address = self.port.server();
        let mut reached = Err("never tried".to_string());
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(200));
            let ping = ["netns", "exec", "a", "ping", "-c1", "-W1", &address];
            reached = run("ip", &ping).map(drop);
            if reached.is_ok() {
                break;
            }
        }
        reached
    }

    fn turn(&mut self, seconds: &str) -> Result<(), String> {
        self.process.pause(false);
        let (before, start) = (times(self.process.0.id())?, Instant::now());
        let gbits = throughput(&self.port.server(), seconds)?;
        let (after, took) = (times(self.process.0.id())?, start.elapsed());
        // The server takes no other client before it has seen the end of this one's connections.
        std::thread::sleep(Duration::from_millis(500));
        self.process.pause(true);
        self.gbits.push(gbits);
        for (share, (after, before)) in self.shares.iter_mut().zip(after.iter().zip(before)) {
            share.push((after - before) / took.as_secs_f64());
        }
        Ok(())
    }
}

fn compare(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let mut server = Command::new("ip");
    server.args(["netns", "exec", "b", "iperf3", "--server"]);
    let _server = Process::start(&mut server, "/run/iperf3.log")?;
    let mut forwarders = Vec::new();
    for port in PORTS {
        match Forwarder::start(bench, port) {
            Ok(forwarder) => forwarders.push(forwarder),
            Err(problem) => {
                results.leave_out(&format!("tcp_{}_vs_bridge", port.name()), &problem);
            }
        }
    }
    let seconds = if bench.large { "4" } else { "2" };
    let mut bridges = Vec::new();
    for _ in 0..bench.repetitions.min(5) {
        forwarders.retain_mut(|forwarder| match forwarder.turn(seconds) {
            Ok(()) => true,
            Err(problem) => {
                let figure = format!("tcp_{}_vs_bridge", forwarder.port.name());
                results.leave_out(&figure, &problem);
                false
            }
        });
        bridges.push(throughput(BRIDGED, seconds)?);
    }
    let peer = ("kernel veth + bridge", median(bridges));
    let mut best: Option<(f64, TcpPort)> = None;
    for forwarder in forwarders {
        let (gbits, name) = (median(forwarder.gbits), forwarder.port.name());
        let figure = format!("tcp_{name}_vs_bridge");
        results.against(&figure, gbits, "Gbit/s", peer, Better::Larger);
        let [own, kernel] = forwarder.shares.map(|share| 100.0 * median(share));
        let text = format!(
            "of one core the forwarder's program took {own:.0} %, and the kernel on its behalf {kernel:.0} %"
        );
        results.note(&figure, text);
        if best.is_none_or(|(most, _)| gbits > most) {
            best = Some((gbits, forwarder.port));
        }
    }
    let (gbits, port) = best.ok_or("no port came up")?;
    results.against("tcp_vs_bridge", gbits, "Gbit/s", peer, Better::Larger);
    results.note("tcp_vs_bridge", format!("the best port: {}", port.name()));
    Ok(())
}

/// Seconds of processor time of a process: its own, and the kernel's on its behalf.
fn times(process: u32) -> Result<[f64; 2], String> {
    let ended = || "the forwarder has ended".to_string();
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))
        .map_err(|error| error.to_string())?;
    // Fields 14 and 15 of proc(5), counted from behind the program's name, in hundredths.
    let (_, fields) = text.rsplit_once(") ").ok_or_else(ended)?;
    let mut fields = fields.split(' ').skip(11).map(str::parse::<f64>);
    let mut time = || fields.next().and_then(Result::ok).ok_or_else(ended);
    Ok([time()? / 100.0, time()? / 100.0])
}

/// Gbit/s that arrive.
fn throughput(address: &str, seconds: &str) -> Result<f64, String> {
    let client = ["netns", "exec", "a", "iperf3", "--client", address];
    let text = run(
        "ip",
        &[
            &client[..],
            &[
                "--time",
                seconds,
                "--omit",
                "1",
                "--connect-timeout",
                "3000",
                "--json",
            ],
        ]
        .concat(),
    )?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let bits = value["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.map(|bits| bits / 1e9)
        .ok_or_else(|| format!("iperf3 tells no throughput: {}", value["error"]))
}
