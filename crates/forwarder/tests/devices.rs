//! Ports by DPDK's device arguments carry packets, and a port that does not open says what is wrong and what to give.
//!
//! Needs root (network namespaces); says so and passes where that is missing.

mod hosts;

use contracts::forwarder as contract;
use contracts::forwarder::port::Device;
use hosts::{Bench, ip, port, straight};
use prost::Message;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

fn by_devargs(name: &str, devargs: &str) -> contract::Port {
    port(name, Device::Devargs(devargs.into()))
}

/// A chain without VNFs between two devices by their arguments, and ports that do not open.
fn rules(directory: &Path) -> contract::RuleSet {
    let no_socket = directory.join("rules").to_string_lossy().into_owned();
    straight(vec![
        by_devargs("office", "net_af_packet0,iface=office"),
        by_devargs("server", "net_af_packet1,iface=server"),
        by_devargs("bogus", "net_bogus0"),
        port("nowhere", Device::AfXdp("nowhere0".into())),
        port("file", Device::VhostUser(no_socket)),
        port("later", Device::AfPacket("later0".into())),
    ])
}

/// A forwarder with such rules between an office and a server.
fn start(bench: &mut Bench, rules: &contract::RuleSet) {
    ip(&["netns", "add", &bench.namespace("forwarder")]);
    bench.host("office", "10.1.0.2/24", "10.1.0.1");
    bench.host("server", "203.0.113.2/24", "203.0.113.1");
    std::fs::write(bench.directory.join("rules"), rules.encode_to_vec()).unwrap();
    bench.start_forwarder();
    let limit = Instant::now() + Duration::from_secs(20);
    while !bench.directory.join("status").exists() || bench.status().ports.len() < rules.ports.len()
    {
        assert!(Instant::now() < limit, "no status\n{}", bench.logs());
        thread::sleep(Duration::from_millis(50));
    }
    bench.start("server", "iperf3", &["-s"]);
}

/// DPDK's tap has an interface of the kernel's, as a machine's bridge may have it.
#[test]
fn a_tap_by_devargs_carries_tcp() {
    let Some(mut bench) = Bench::new("sbdevtap") else {
        return;
    };
    let rules = straight(vec![
        by_devargs("office", "net_tap0,iface=tap0"),
        port("server", Device::AfPacket("server".into())),
    ]);
    start(&mut bench, &rules);
    let forwarder = bench.namespace("forwarder");
    let link = |arguments: &[&str]| ip(&[&["-n", &forwarder, "link"], arguments].concat());
    // It has the address of the port, which a bridge would take for its own.
    link(&["set", "tap0", "address", "02:00:00:00:00:01"]);
    link(&["add", "br0", "type", "bridge"]);
    link(&["set", "br0", "up"]);
    link(&["set", "tap0", "master", "br0"]);
    link(&["set", "office", "master", "br0"]);
    bench.wait_for_answers("through a tap");
    bench.transfers("4M", &[]);
}

#[test]
fn devices_by_devargs_carry_packets_and_those_that_do_not_open_say_what_to_give() {
    let Some(mut bench) = Bench::new("sbdev") else {
        return;
    };
    let rules = rules(&bench.directory);
    start(&mut bench, &rules);
    bench.wait_for_answers("through devices by their arguments");
    assert!(bench.answers(20), "lost packets\n{}", bench.logs());
    // Checksums are left to the device, which the driver does not say. It has no room for packets of several segments.
    bench.transfers("20K", &["-l", "500", "-b", "1M", "-N"]);

    let status = bench.status();
    for (name, words) in [
        ("office", &[][..]),
        ("server", &[]),
        (
            "bogus",
            &["net_bogus0", "no such device", "net_tap0,iface="],
        ),
        ("nowhere", &["af_xdp", "nowhere0", "no such interface"]),
        ("file", &["vhost_user", "rules", "no socket"]),
        ("later", &["af_packet", "later0", "no such interface"]),
    ] {
        let port = status.ports.iter().find(|port| port.name == name).unwrap();
        assert_eq!(port.up, words.is_empty(), "{port:?}");
        for word in words {
            assert!(port.error.contains(word), "{name}: {word:?} in {port:?}");
        }
    }

    let link = [
        "link", "add", "later0", "type", "veth", "peer", "name", "other0",
    ];
    let forwarder = bench.namespace("forwarder");
    ip(&[&["-n", &forwarder][..], &link].concat());
    let limit = Instant::now() + Duration::from_secs(20);
    let is_up = || {
        bench
            .status()
            .ports
            .iter()
            .any(|port| port.name == "later" && port.up)
    };
    while !is_up() {
        assert!(Instant::now() < limit, "it does not open\n{}", bench.logs());
        thread::sleep(Duration::from_millis(100));
    }
}
