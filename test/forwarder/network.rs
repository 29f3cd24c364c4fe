//! A small wide area in network namespaces of its own: two forwarders, a host behind each, and a VNF beside the second.
//!
//! ```text
//!  office (10.1.0.2) ── lan │ east │ wan ═════════ wan │ west │ net ── internet (203.0.113.2)
//!                                                      │ vnf  │
//!                                                        ║ one link, two macvlan interfaces per service path
//!                                                     firewall
//! ```
//! Every veth keeps its offloads: checksums unfilled, super-packets of 64 KB.

#[path = "../needs.rs"]
pub mod needs;

use std::env;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const INSIDE: &str = "SWITCHBOARD_TEST_INSIDE";

/// Runs a test again inside namespaces of its own, whose processes end with it. False in the process that ran
/// (or skipped) it, true inside.
pub fn isolated(test: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    if output("id", &["-u"]).trim() != "0" {
        needs::missing("root, to make network namespaces");
        return false;
    }
    let program = env::current_exe().expect("this program has a path");
    let status = Command::new("unshare")
        .args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--",
        ])
        .arg(program)
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(INSIDE, "1")
        .status()
        .expect("unshare starts");
    assert!(status.success(), "{test} failed inside its namespaces");
    false
}

/// Runs a program and returns what it wrote.
pub fn output(program: &str, arguments: &[&str]) -> String {
    let output = attempt(program, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn attempt(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; run scripts/install-dependencies.sh"))
}

/// Runs the words of `line` as a command.
pub fn run(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    output(words[0], &words[1..])
}

/// Runs the words of `line` as a command inside a namespace.
pub fn inside(namespace: &str, line: &str) -> String {
    run(&format!("ip netns exec {namespace} {line}"))
}

/// Whether a command inside a namespace succeeds, and what it wrote.
pub fn succeeds(namespace: &str, line: &str) -> (bool, String) {
    let line = format!("netns exec {namespace} {line}");
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = attempt("ip", &words);
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// A program that runs inside a namespace until it is dropped.
pub struct Background(Child);

impl Background {
    /// Starts it.
    pub fn start(namespace: &str, line: &str) -> Background {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", namespace])
            .args(line.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Background(command.spawn().expect("ip starts"))
    }
}

impl Background {
    /// Its process number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something holds; fails after a while.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "waited 20 s in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn veth(namespace: &str, name: &str, peer_namespace: &str, peer: &str) {
    run(&format!(
        "ip link add {name} netns {namespace} type veth peer name {peer} netns {peer_namespace}"
    ));
    for (namespace, name) in [(namespace, name), (peer_namespace, peer)] {
        run(&format!("ip -n {namespace} link set {name} up"));
    }
}

fn host(name: &str, site: &str, port: &str, v4: &str, v6: &str) {
    veth(site, port, name, "eth0");
    for (address, gateway) in [
        (v4, v4.replace(".2/24", ".1")),
        (v6, v6.replace("::2/64", "::1")),
    ] {
        let nodad = if address.contains(':') { "nodad" } else { "" };
        run(&format!(
            "ip -n {name} address add {address} dev eth0 {nodad}"
        ));
        let family = if address.contains(':') { "-6" } else { "-4" };
        run(&format!(
            "ip {family} -n {name} route add default via {gateway}"
        ));
    }
}

fn namespaces(names: &[&str]) {
    run("mount -t tmpfs none /run");
    std::fs::create_dir("/run/netns").expect("/run is empty");
    for name in names {
        run(&format!("ip netns add {name}"));
        run(&format!("ip -n {name} link set lo up"));
    }
}

/// Makes one forwarder's part alone: `office` and `internet` are behind its ports `lan` and `net`.
#[allow(dead_code, reason = "most tests want two forwarders")]
pub fn build_one() {
    namespaces(&["office", "internet", "east"]);
    inside(
        "east",
        "sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1",
    );
    for name in ["office", "internet"] {
        inside(
            name,
            "sysctl -q -w net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0",
        );
    }
    host("office", "east", "lan", "10.1.0.2/24", "2001:db8:1::2/64");
    host(
        "internet",
        "east",
        "net",
        "203.0.113.2/24",
        "2001:db8:2::2/64",
    );
}

/// Makes everything of the picture. `wan_mtu` is the underlay's.
#[allow(dead_code, reason = "some tests do with one forwarder")]
pub fn build(wan_mtu: u32) {
    namespaces(&["office", "internet", "east", "west", "firewall"]);
    for forwarder in ["east", "west"] {
        // The kernel beside a forwarder stays silent.
        inside(
            forwarder,
            "sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1",
        );
    }
    for name in ["office", "internet", "firewall"] {
        inside(
            name,
            "sysctl -q -w net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0",
        );
    }
    host("office", "east", "lan", "10.1.0.2/24", "2001:db8:1::2/64");
    host(
        "internet",
        "west",
        "net",
        "203.0.113.2/24",
        "2001:db8:2::2/64",
    );
    join_wan(wan_mtu);
    veth("west", "vnf", "firewall", "up0");
    firewall("firewall", FIREWALL_MACS);
}

/// Adds a second firewall, and has both drop TCP packets of connections whose beginning they have not seen.
#[allow(dead_code, reason = "some tests do with one")]
pub fn add_stateful_second() {
    run("ip netns add second");
    run("ip -n second link set lo up");
    inside(
        "second",
        "sysctl -q -w net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0",
    );
    veth("west", "vnf2", "second", "up0");
    firewall("second", SECOND_MACS);
    let rules = "table inet strict {\n chain forward {\n type filter hook forward priority 0;\n \
                 ct state invalid counter drop\n }\n}\n";
    std::fs::write("/run/strict.nft", rules).expect("/run is writable");
    for name in ["firewall", "second"] {
        inside(name, "nft -f /run/strict.nft");
        inside(name, "sysctl -q -w net.netfilter.nf_conntrack_tcp_loose=0");
    }
}

fn join_wan(mtu: u32) {
    veth("east", "wan", "west", "wan");
    for forwarder in ["east", "west"] {
        run(&format!("ip -n {forwarder} link set wan mtu {mtu}"));
    }
}

/// Removes the link between the forwarders and makes another of the same names.
pub fn rejoin_wan() {
    run("ip -n east link delete wan");
    join_wan(1500);
}

/// Ethernet addresses of the firewall's ingress and egress interfaces.
pub const FIREWALL_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 1, 2]];
/// The same of the second one.
pub const SECOND_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 2, 1], [2, 0, 0, 0, 2, 2]];

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

fn firewall(namespace: &str, macs: [[u8; 6]; 2]) {
    inside(
        namespace,
        "sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 \
         net.ipv4.conf.default.rp_filter=0 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0",
    );
    for (name, mac) in ["in0", "out0"].into_iter().zip(macs.map(mac)) {
        run(&format!(
            "ip -n {namespace} link add {name} link up0 address {mac} type macvlan mode private"
        ));
        run(&format!("ip -n {namespace} link set {name} up"));
        run(&format!(
            "ip -n {namespace} address add 169.254.0.2/32 dev {name}"
        ));
    }
    for (from, to, table) in [("in0", "out0", 101), ("out0", "in0", 102)] {
        run(&format!(
            "ip -n {namespace} route add default via 169.254.0.1 dev {to} onlink table {table}"
        ));
        run(&format!(
            "ip -6 -n {namespace} route add default via fe80::1 dev {to} table {table}"
        ));
        run(&format!(
            "ip -n {namespace} rule add iif {from} lookup {table} priority 100"
        ));
        run(&format!(
            "ip -6 -n {namespace} rule add iif {from} lookup {table} priority 100"
        ));
    }
}

/// Packets that the firewall's interface has received.
pub fn firewall_received(interface: &str) -> u64 {
    inside(
        "firewall",
        &format!("cat /sys/class/net/{interface}/statistics/rx_packets"),
    )
    .trim()
    .parse()
    .expect("a number")
}
