//! One TCP connection between two network namespaces: through the forwarder, and through the kernel's bridge.

use super::Bench;
use crate::clock::median;
use crate::peers::{Process, run};
use crate::results::{Better, Results};
use crate::rules::{self, TcpPort};
use prost::Message;
use std::process::Command;

const RULES: &str = "/run/tcp.pb";

/// Measures both in turns.
pub fn measure(bench: &Bench, results: &mut Results) {
    if let Err(problem) = build().and_then(|()| compare(bench, results)) {
        results.leave_out("tcp_vs_bridge", &problem);
    }
}

/// Namespaces `a` and `b`, joined by a bridge and, by other links, through this namespace.
fn build() -> Result<(), String> {
    let commands = "netns add a
        netns add b
        link add lan type veth peer name lan0 netns a
        link add net type veth peer name net0 netns b
        link add bridge type bridge
        link add bridge-a type veth peer name bridge0 netns a
        link add bridge-b type veth peer name bridge0 netns b
        link set bridge-a master bridge up
        link set bridge-b master bridge up
        link set bridge up
        link set lan up
        link set net up
        -n a address add 10.1.0.2/24 dev lan0
        -n b address add 10.2.0.2/24 dev net0
        -n a address add 10.3.0.1/24 dev bridge0
        -n b address add 10.3.0.2/24 dev bridge0
        -n a link set lan0 up
        -n b link set net0 up
        -n a link set bridge0 up
        -n b link set bridge0 up
        -n a route add 10.2.0.0/24 via 10.1.0.1
        -n b route add 10.1.0.0/24 via 10.2.0.1";
    for command in commands.lines() {
        let words: Vec<&str> = command.split_whitespace().collect();
        run("ip", &words)?;
    }
    Ok(())
}

fn start_forwarder(bench: &Bench, port: TcpPort) -> Result<Process, String> {
    std::fs::write(RULES, rules::tcp(port).encode_to_vec()).map_err(|error| error.to_string())?;
    let mut command = Command::new(&bench.forwarder);
    command
        .args(["--site", "bench", "--name", "f1", "--rules", RULES])
        .args(["--status", "/run/tcp.status"]);
    Process::start(&mut command, "/run/tcp.log")
}

fn compare(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let mut server = Command::new("ip");
    server.args(["netns", "exec", "b", "iperf3", "--server"]);
    let _server = Process::start(&mut server, "/run/iperf3.log")?;
    let _forwarder = start_forwarder(bench, TcpPort::AfPacket)?;
    let seconds = if bench.large { "4" } else { "2" };
    let mut reached = Err("never tried".to_string());
    for _ in 0..50 {
        std::thread::sleep(std::time::Duration::from_millis(200));
        reached = run(
            "ip",
            &["netns", "exec", "a", "ping", "-c1", "-W1", "10.2.0.2"],
        );
        if reached.is_ok() {
            break;
        }
    }
    reached.map_err(|problem| format!("through the forwarder: {problem}"))?;
    let (mut ours, mut bridges) = (Vec::new(), Vec::new());
    for _ in 0..bench.repetitions.min(5) {
        ours.push(throughput("10.2.0.2", seconds)?);
        bridges.push(throughput("10.3.0.2", seconds)?);
    }
    let peer = ("kernel veth + bridge", median(bridges));
    results.against(
        "tcp_vs_bridge",
        median(ours),
        "Gbit/s",
        peer,
        Better::Larger,
    );
    Ok(())
}

/// Gbit/s that arrive.
fn throughput(address: &str, seconds: &str) -> Result<f64, String> {
    let client = ["netns", "exec", "a", "iperf3", "--client", address];
    let text = run(
        "ip",
        &[&client[..], &["--time", seconds, "--omit", "1", "--json"]].concat(),
    )?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let bits = value["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.map(|bits| bits / 1e9)
        .ok_or("iperf3 tells no throughput".into())
}
