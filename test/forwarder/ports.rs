//! Real TCP and UDP through one forwarder between two veth links that keep their offloads, by each kind of port.

#[allow(dead_code, reason = "other tests want two forwarders")]
mod network;

use contract::{local_target::Target, port::Device};
use contracts::forwarder as contract;
use network::{Background, eventually, inside, isolated, succeeds};
use prost::Message;
use std::fs;

const PROGRAM: &str = env!("CARGO_BIN_EXE_switchboard-forwarder");
/// Bytes of the link's largest packet.
const MTU: u64 = 1500;

fn edge(port: &str, gateways: [&str; 2], direction: contract::Direction) -> contract::Edge {
    contract::Edge {
        id: port.into(),
        kind: contract::EdgeKind::Lan.into(),
        port: port.into(),
        gateway_addresses: gateways.map(String::from).to_vec(),
        classifiers: vec![contract::Classifier {
            r#match: Some(contract::Match::default()),
            chain_label: 1000,
            direction: direction.into(),
            egress_routes: ["0.0.0.0/0", "::/0"]
                .map(|destination| contract::EgressRoute {
                    destination: destination.into(),
                    egress_label: 500,
                })
                .to_vec(),
        }],
        ..Default::default()
    }
}

/// The end of a stage where there is but one to choose.
fn end(target: Target) -> Option<contract::StageEnd> {
    Some(contract::StageEnd {
        local: vec![contract::LocalTarget {
            target: Some(target),
            weight: 100,
            prefixes: Vec::new(),
        }],
        remote: Vec::new(),
    })
}

/// A chain of no VNFs between two edges.
fn rules(device: fn(String) -> Device) -> contract::RuleSet {
    use contract::Direction::{Forward, Reverse};
    contract::RuleSet {
        generation: 1,
        site: "east".into(),
        forwarder: "f1".into(),
        ports: ["lan", "net"]
            .map(|name| contract::Port {
                name: name.into(),
                device: Some(device(name.into())),
            })
            .to_vec(),
        edges: vec![
            edge("lan", ["10.1.0.1/24", "2001:db8:1::1/64"], Forward),
            edge("net", ["203.0.113.1/24", "2001:db8:2::1/64"], Reverse),
        ],
        paths: vec![contract::ServicePath {
            chain_label: 1000,
            egress_label: 500,
            customer: "acme".into(),
            chain: "web".into(),
            vnf_count: 0,
            stages: vec![contract::Stage {
                number: 1,
                upstream: end(Target::Edge("lan".into())),
                downstream: end(Target::Edge("net".into())),
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// The same chain with a native filter in it, which passes everything but new UDP.
fn filtered_rules() -> contract::RuleSet {
    let mut set = rules(Device::AfPacket);
    for name in ["filter-in", "filter-out"] {
        set.ports.push(contract::Port {
            name: name.into(),
            device: Some(Device::Native(contract::NativePort {})),
        });
    }
    let no_udp = contract::FilterRule {
        r#match: Some(contract::Match {
            protocols: vec![17],
            ..Default::default()
        }),
        direction: contract::Direction::Forward.into(),
        accept: false,
    };
    set.attachments.push(contract::Attachment {
        id: "filter".into(),
        vnf: "filter".into(),
        instance: "filter-1".into(),
        kind: contract::AttachmentKind::Native.into(),
        state: contract::AttachmentState::Active.into(),
        ingress_port: "filter-in".into(),
        egress_port: "filter-out".into(),
        ingress_vlan: 2,
        egress_vlan: 2,
        chain_label: 1000,
        egress_label: 500,
        stage: 1,
        function: Some(contract::attachment::Function::Filter(
            contract::PacketFilter {
                rules: vec![no_udp],
                accept_forward: true,
                accept_reverse: true,
            },
        )),
        ..Default::default()
    });
    let path = &mut set.paths[0];
    path.vnf_count = 1;
    let filter = || end(Target::Attachment("filter".into()));
    let exit = std::mem::replace(&mut path.stages[0].downstream, filter());
    path.stages.push(contract::Stage {
        number: 2,
        upstream: filter(),
        downstream: exit,
    });
    set
}

fn start_forwarder(rules: &contract::RuleSet, more: &str) -> Background {
    network::build_one();
    fs::write("/run/rules.pb", rules.encode_to_vec()).expect("/run is writable");
    let forwarder = format!(
        "{PROGRAM} --site east --name f1 --rules /run/rules.pb --status /run/status.pb --metrics off {more}"
    );
    Background::start("east", &forwarder)
}

/// Starts the forwarder, and a server in `internet`; returns when it answers. Nothing where the kernel has no such sockets.
fn start(rules: &contract::RuleSet, more: &str) -> Option<[Background; 2]> {
    let processes = [
        start_forwarder(rules, more),
        Background::start("internet", "iperf3 -s"),
    ];
    let mut unsupported = false;
    eventually("the ports are up", || {
        let status = status();
        assert_eq!(status.refused, "");
        let without = |port: &contract::PortStatus| port.error.contains("not supported");
        unsupported = status.ports.iter().any(without);
        unsupported
            || status.ports.len() == rules.ports.len() && status.ports.iter().all(|port| port.up)
    });
    if unsupported {
        network::needs::missing("a kernel with such sockets");
        return None;
    }
    eventually("the server listens", || {
        inside("internet", "ss -Hltn sport = :5201").contains("5201")
    });
    eventually("the other side answers", || {
        ["203.0.113.2", "2001:db8:2::2"]
            .iter()
            .all(|host| succeeds("office", &format!("ping -q -c 1 -W 2 {host}")).0)
    });
    Some(processes)
}

fn status() -> contract::Status {
    let bytes = fs::read("/run/status.pb").unwrap_or_default();
    contract::Status::decode(&bytes[..]).unwrap_or_default()
}

/// Sends bytes by iperf3 with some arguments, over IPv4 and IPv6; how many arrived.
fn transfer(arguments: &str) -> [u64; 2] {
    ["203.0.113.2", "2001:db8:2::2"].map(|server| {
        let line =
            format!("timeout 60 iperf3 --json --connect-timeout 10000 -c {server} {arguments}");
        let text = inside("office", &line);
        let report: serde_json::Value = serde_json::from_str(&text).expect("iperf3 writes JSON");
        let end = &report["end"];
        let sums = [&end["sum_received"], &end["sum"]];
        let bytes = sums.iter().find_map(|sum| sum["bytes"].as_u64());
        bytes.unwrap_or_else(|| panic!("no bytes: {text}"))
    })
}

/// iperf3 checks nothing of what it gets: the kernel's own checksum checks are what counts here.
fn checksum_errors(namespace: &str) -> u64 {
    let text = inside(
        namespace,
        "nstat -asz TcpInCsumErrors UdpInCsumErrors Udp6InCsumErrors",
    );
    let counts = text.lines().filter(|line| line.contains("Csum"));
    counts
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum()
}

/// TCP in both directions. iperf3 ends when all is sent, and what is in its buffers then is not counted.
fn assert_tcp_transfers() {
    const MOST: u64 = 1 << 20;
    for arguments in ["-n 4M -w 256K", "-n 4M -w 256K -R"] {
        for arrived in transfer(arguments) {
            assert!(arrived > MOST, "{arguments}: {arrived} bytes");
        }
    }
}

fn assert_transfers() {
    assert_tcp_transfers();
    for arrived in transfer("-u -b 5M -l 1200 -t 1") {
        assert!(arrived > 0, "UDP");
    }
    for namespace in ["office", "internet"] {
        assert_eq!(checksum_errors(namespace), 0, "{namespace}");
    }
}

#[test]
fn packet_sockets_pass_packets_of_several_segments_whole() {
    if !isolated("packet_sockets_pass_packets_of_several_segments_whole") {
        return;
    }
    let Some(_processes) = start(&rules(Device::AfPacket), "") else {
        panic!("packet sockets are everywhere");
    };
    assert_transfers();
    let sent = |status: &contract::Status| {
        let net = status.ports.iter().find(|port| port.name == "net");
        net.map_or((0, 0), |port| (port.sent_packets, port.sent_bytes))
    };
    let mut last = status();
    // Systems send shorter packets than they could where little is under way.
    eventually("what is sent is longer than the link's packets", || {
        let (packets, bytes) = sent(&last);
        transfer("-n 16M");
        eventually("the next report", || {
            status().time_unix_ms > last.time_unix_ms + 1_000
        });
        last = status();
        let (more_packets, more_bytes) = sent(&last);
        more_bytes - bytes > 2 * MTU * (more_packets - packets)
    });
    assert!(
        !last.drops.contains_key("offload_unknown"),
        "{:?}",
        last.drops
    );
    assert!(!last.events.contains_key("segmented"), "{:?}", last.events);
}

/// Frames that both interfaces of the forwarder took in, and those they gave out, as the kernel counts them: super-packets are one.
fn frames() -> [u64; 2] {
    ["rx_packets", "tx_packets"].map(|count| {
        let of = |port: &str| {
            let line = format!("cat /sys/class/net/{port}/statistics/{count}");
            let text = inside("east", &line);
            text.trim().parse::<u64>().expect("a number")
        };
        of("lan") + of("net")
    })
}

#[test]
fn packet_sockets_cut_nothing_when_many_long_frames_wait() {
    if !isolated("packet_sockets_cut_nothing_when_many_long_frames_wait") {
        return;
    }
    let Some(_processes) = start(&rules(Device::AfPacket), "") else {
        panic!("packet sockets are everywhere");
    };
    let [received, sent] = frames();
    // Several connections have more than one round's long frames under way.
    for arrived in transfer("-P 8 -n 64M") {
        assert!(arrived > 16 << 20, "{arrived} bytes");
    }
    let [more_received, more_sent] = frames();
    let (received, sent) = (more_received - received, more_sent - sent);
    // What the forwarder sends on its own account: it asks for neighbours, and answers.
    assert!(sent < received + 50, "{sent} of {received} frames");
}

#[test]
fn af_xdp_finishes_the_checksums_that_veth_leaves() {
    if !isolated("af_xdp_finishes_the_checksums_that_veth_leaves") {
        return;
    }
    let Some(_processes) = start(&rules(Device::AfXdp), "") else {
        return;
    };
    assert_transfers();
}

/// Whether there are no two processors for two workers.
fn lacks_a_processor() -> bool {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors < 2 {
        network::needs::missing("two processors");
    }
    processors < 2
}

/// Each port has one queue, of one worker: much is handed over, and leaves from buffers of the other's.
#[test]
fn af_xdp_carries_tcp_between_two_workers() {
    if lacks_a_processor() || !isolated("af_xdp_carries_tcp_between_two_workers") {
        return;
    }
    let Some(_processes) = start(&rules(Device::AfXdp), "--workers 2") else {
        return;
    };
    assert_transfers();
}

#[test]
fn an_af_xdp_port_that_finds_too_few_buffers_says_what_to_give() {
    if !isolated("an_af_xdp_port_that_finds_too_few_buffers_says_what_to_give") {
        return;
    }
    let _forwarder = start_forwarder(&rules(Device::AfXdp), "--buffers 1024");
    eventually("the ports do not open", || {
        let ports = status().ports;
        let told = |port: &contract::PortStatus| {
            let needed = ["af_xdp: it takes 2048", "--buffers"];
            !port.up && needed.iter().all(|word| port.error.contains(word))
        };
        assert!(ports.iter().all(told), "{ports:?}");
        !ports.is_empty()
    });
}

#[test]
fn a_native_filter_passes_what_it_may() {
    if isolated("a_native_filter_passes_what_it_may") {
        filters("");
    }
}

#[test]
fn a_native_filter_is_with_every_worker() {
    if !lacks_a_processor() && isolated("a_native_filter_is_with_every_worker") {
        filters("--workers 2");
    }
}

fn filters(more: &str) {
    let Some(_processes) = start(&filtered_rules(), more) else {
        panic!("packet sockets are everywhere");
    };
    assert!(!status().drops.contains_key("filter_refused"));
    assert_tcp_transfers();
    let (passes, _) = succeeds(
        "office",
        "timeout 5 iperf3 --connect-timeout 2000 -c 203.0.113.2 -u -b 1M -t 1",
    );
    assert!(!passes, "UDP is not to pass");
    eventually("what the filter drops is counted", || {
        status().drops.get("filter_refused").is_some_and(|&n| n > 0)
    });
    let last = status();
    for name in ["filter-in", "filter-out"] {
        let port = last.ports.iter().find(|port| port.name == name);
        let port = port.expect("it is listed");
        assert!(port.received_packets > 100 && port.sent_packets > 100);
        assert_eq!(port.send_failures, 0, "{name}");
    }
}

/// Tunnels as hosts make them. A kernel may lack some.
const TUNNELS: [&str; 5] = [
    "vxlan id 5 dstport 4789 local LOCAL remote REMOTE",
    "vxlan id 5 dstport 8472 local LOCAL remote REMOTE udpcsum",
    "geneve id 5 remote REMOTE",
    "gre local LOCAL remote REMOTE",
    "ipip local LOCAL remote REMOTE",
];

/// Makes a tunnel between the two hosts, if their kernel has such.
fn make_tunnel(kind: &str) -> bool {
    let ends = [
        ("office", "10.1.0.2", "203.0.113.2", "172.31.0.1"),
        ("internet", "203.0.113.2", "10.1.0.2", "172.31.0.2"),
    ];
    ends.into_iter().all(|(namespace, local, remote, address)| {
        let kind = kind.replace("LOCAL", local).replace("REMOTE", remote);
        let line = format!("ip link add tunnel0 mtu 1400 type {kind}");
        let made = succeeds(namespace, &line).0;
        if made {
            inside(namespace, &format!("ip addr add {address}/24 dev tunnel0"));
            inside(namespace, "ip link set tunnel0 up");
        }
        made
    })
}

/// What the hosts leave to a device is inside their own tunnels.
fn assert_tunnels_transfer() {
    let mut made = 0;
    for kind in TUNNELS {
        if make_tunnel(kind) {
            made += 1;
            // A connection that loses its long packets takes minutes.
            for arguments in ["", "-R"] {
                let line = format!("timeout 20 iperf3 -c 172.31.0.2 -n 8M {arguments}");
                let (transferred, text) = succeeds("office", &line);
                assert!(transferred, "{kind} {arguments}: {text}");
            }
        }
        for namespace in ["office", "internet"] {
            assert_eq!(checksum_errors(namespace), 0, "{kind}: {namespace}");
            succeeds(namespace, "ip link del tunnel0");
        }
    }
    if made == 0 {
        eprintln!("skipped: this kernel has no tunnels");
    }
    let last = status();
    eventually("the next report", || {
        status().time_unix_ms > last.time_unix_ms + 1_000
    });
    let drops = status().drops;
    assert!(!drops.contains_key("offload_unknown"), "{drops:?}");
}

#[test]
fn packet_sockets_pass_the_tunnels_of_hosts() {
    if !isolated("packet_sockets_pass_the_tunnels_of_hosts") {
        return;
    }
    let Some(_processes) = start(&rules(Device::AfPacket), "") else {
        panic!("packet sockets are everywhere");
    };
    assert_tunnels_transfer();
}

#[test]
fn af_xdp_passes_the_tunnels_of_hosts() {
    if !isolated("af_xdp_passes_the_tunnels_of_hosts") {
        return;
    }
    let Some(_processes) = start(&rules(Device::AfXdp), "") else {
        return;
    };
    assert_tunnels_transfer();
}
