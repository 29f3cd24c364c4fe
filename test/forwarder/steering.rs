//! Real traffic through two forwarders and a VNF that knows nothing of them, in network namespaces.

mod network;
mod rules;

use contracts::forwarder as contract;
use network::{Background, eventually, firewall_received, inside, isolated, succeeds};
use prost::Message;
use rules::Variant;
use std::fs;

const PROGRAM: &str = env!("CARGO_BIN_EXE_switchboard-forwarder");

/// How many workers forwarders have here: one, unless SWITCHBOARD_TEST_WORKERS says otherwise.
fn workers() -> String {
    std::env::var("SWITCHBOARD_TEST_WORKERS").unwrap_or_else(|_| "1".into())
}

/// Both forwarders, following rules files.
struct Site {
    forwarders: Vec<Background>,
    variant: Variant,
}

impl Site {
    fn start(variant: Variant) -> Site {
        network::build(variant.mtu);
        let mut site = Site {
            forwarders: Vec::new(),
            variant,
        };
        site.write_rules();
        for name in ["east", "west"] {
            site.forwarders.push(Background::start(
                name,
                &format!(
                    "{PROGRAM} --site {name} --name f1 --rules /run/{name}.pb --status /run/{name}.status.pb \
                     --workers {}",
                    workers()
                ),
            ));
        }
        site.await_applied();
        site
    }

    fn write_rules(&self) {
        for (name, rules) in [
            ("east", rules::east(self.variant)),
            ("west", rules::west(self.variant)),
        ] {
            let written = format!("/run/{name}.new");
            fs::write(&written, rules.encode_to_vec()).expect("/run is writable");
            fs::rename(&written, format!("/run/{name}.pb")).expect("/run is writable");
        }
    }

    fn await_applied(&self) {
        for name in ["east", "west"] {
            eventually(
                &format!("{name} applies generation {}", self.variant.generation),
                || {
                    let status = status(name);
                    assert_eq!(status.refused, "", "{name} refuses its rules");
                    status.applied_generation == self.variant.generation
                },
            );
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Variant)) {
        change(&mut self.variant);
        self.variant.generation += 1;
        self.write_rules();
        self.await_applied();
    }
}

impl Drop for Site {
    /// Says what the forwarders saw when a test fails.
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::thread::sleep(std::time::Duration::from_millis(1100));
            for name in ["east", "west"] {
                let status = status(name);
                eprintln!(
                    "{name}: drops {:?}, events {:?}",
                    status.drops, status.events
                );
                for port in status.ports {
                    eprintln!("{name}: {port:?}");
                }
            }
        }
    }
}

fn status(name: &str) -> contract::Status {
    let bytes = fs::read(format!("/run/{name}.status.pb")).unwrap_or_default();
    contract::Status::decode(&bytes[..]).unwrap_or_default()
}

fn usual() -> Variant {
    Variant {
        generation: 1,
        mtu: 1500,
        state: contract::AttachmentState::Active,
        encapsulation: contract::Encapsulation::VxlanMpls,
        weights: None,
    }
}

fn ping(namespace: &str, arguments: &str) -> bool {
    succeeds(namespace, &format!("ping -q -i 0.05 -W 2 {arguments}")).0
}

/// Mbit/s that iperf3 reports as received.
fn iperf(arguments: &str) -> f64 {
    let text = inside(
        "office",
        &format!("iperf3 --json -c 203.0.113.2 -t 2 {arguments}"),
    );
    let report: serde_json::Value = serde_json::from_str(&text).expect("iperf3 writes JSON");
    let end = &report["end"];
    let sum = if end["sum_received"].is_null() {
        &end["sum"]
    } else {
        &end["sum_received"]
    };
    let rate = sum["bits_per_second"].as_f64();
    rate.unwrap_or_else(|| panic!("iperf3 tells no rate: {text}")) / 1e6
}

#[test]
fn packets_pass_the_vnf_in_both_directions() {
    if !isolated("packets_pass_the_vnf_in_both_directions") {
        return;
    }
    let _site = Site::start(usual());
    assert!(ping("office", "-c 3 10.1.0.1"), "the gateway answers");
    assert!(
        ping("office", "-c 3 2001:db8:1::1"),
        "the gateway answers over IPv6"
    );
    assert!(
        ping("office", "-c 20 203.0.113.2"),
        "office reaches the internet"
    );
    assert!(
        ping("office", "-c 20 2001:db8:2::2"),
        "office reaches the internet over IPv6"
    );
    assert!(
        ping("internet", "-c 5 10.1.0.2"),
        "the internet reaches the office"
    );
    let (forward, reverse) = (firewall_received("in0"), firewall_received("out0"));
    assert!(
        forward >= 45 && reverse >= 45,
        "the firewall saw {forward} and {reverse} packets"
    );
    let (_, text) = succeeds("office", "ping -c 1 -W 1 -t 1 203.0.113.2");
    assert!(
        text.contains("From 10.1.0.1") && text.contains("Time to live exceeded"),
        "{text}"
    );
}

#[test]
fn tcp_and_udp_pass_with_the_offloads_of_veth() {
    if !isolated("tcp_and_udp_pass_with_the_offloads_of_veth") {
        return;
    }
    let _site = Site::start(usual());
    let _server = Background::start("internet", "iperf3 -s");
    eventually("iperf3 listens", || {
        succeeds("office", "iperf3 -c 203.0.113.2 -n 1K").0
    });
    let rates = [
        ("TCP", iperf("")),
        ("TCP in reverse", iperf("-R")),
        ("UDP", iperf("-u -b 20M -l 1400")),
    ];
    eprintln!("Mbit/s through two forwarders and a firewall: {rates:?}");
    // Without checksums nothing would arrive at all; how fast is for benches to say.
    for (kind, rate) in rates {
        assert!(rate > 2.0, "{kind}: {rate} Mbit/s");
    }
}

#[test]
fn packets_that_do_not_fit_are_cut_or_answered() {
    if !isolated("packets_that_do_not_fit_are_cut_or_answered") {
        return;
    }
    let _site = Site::start(usual());
    assert!(ping("office", "-c 3 203.0.113.2"), "small ones pass");
    assert!(
        ping("office", "-c 3 -s 1472 -M dont 203.0.113.2"),
        "they are cut in fragments"
    );
    assert!(
        ping("office", "-c 3 -s 4000 -M dont 203.0.113.2"),
        "and fragments follow the first"
    );
    let (passed, text) = succeeds("office", "ping -c 1 -W 1 -s 1472 -M do 203.0.113.2");
    assert!(!passed, "{text}");
    let route = inside("office", "ip route get 203.0.113.2");
    assert!(
        route.contains("mtu 14"),
        "the host has learnt the path's MTU: {route}"
    );
    assert!(!ping("office", "-c 1 -s 1452 -M do 2001:db8:2::2"));
    let route = inside("office", "ip route get 2001:db8:2::2");
    assert!(route.contains("mtu 14"), "over IPv6 too: {route}");
}

#[test]
fn a_draining_attachment_keeps_its_flows_and_gets_no_new_ones() {
    if !isolated("a_draining_attachment_keeps_its_flows_and_gets_no_new_ones") {
        return;
    }
    let mut site = Site::start(usual());
    let _flow = Background::start("office", "ping -q -i 0.05 -e 77 203.0.113.2");
    eventually("the flow runs", || firewall_received("out0") > 5);
    site.change(|variant| variant.state = contract::AttachmentState::Draining);
    let before = firewall_received("out0");
    eventually("the flow goes on", || {
        firewall_received("out0") > before + 20
    });
    assert!(
        !ping("office", "-c 2 -e 78 203.0.113.2"),
        "a new flow finds nobody"
    );
    // The other forwarder gives it back to the one where it entered.
    assert!(
        status("east")
            .drops
            .get("hop_gone")
            .is_some_and(|&count| count >= 2)
    );
    site.change(|variant| variant.state = contract::AttachmentState::Active);
    assert!(ping("office", "-c 5 -e 79 203.0.113.2"));
}

#[test]
fn packets_that_nobody_takes_in_time_are_counted() {
    if !isolated("packets_that_nobody_takes_in_time_are_counted") {
        return;
    }
    let site = Site::start(usual());
    assert!(ping("office", "-c 3 203.0.113.2"));
    let east = site.forwarders[0].id();
    network::run(&format!("kill -STOP {east}"));
    // More than the kernel keeps for a port.
    let lost = ping("office", "-q -c 20000 -l 20000 -s 1400 -W 1 203.0.113.2");
    network::run(&format!("kill -CONT {east}"));
    assert!(!lost, "nobody forwards");
    eventually("the loss is counted", || {
        let lost = status("east").drops.get("port_overrun").copied();
        lost.is_some_and(|count| (1_000..20_000).contains(&count))
    });
    assert!(ping("office", "-c 3 203.0.113.2"));
}

#[test]
fn a_forwarder_that_is_killed_forwards_again_at_once_while_the_bus_is_away() {
    if !isolated("a_forwarder_that_is_killed_forwards_again_at_once_while_the_bus_is_away") {
        return;
    }
    let mut site = Site::start(usual());
    assert!(ping("office", "-c 3 203.0.113.2"));
    // From now on the west follows a bus that does not answer, and has its last rules in a directory.
    fs::create_dir("/run/state").expect("/run is writable");
    fs::rename("/run/west.pb", "/run/state/rules.pb").expect("the west has rules");
    let credentials = r#"{"site": "west", "url": "nats://127.0.0.1:4", "user": "forwarder.f1", "password": "x",
        "inbox_prefix": "_INBOX.forwarder.f1"}"#;
    fs::write("/run/credentials.json", credentials).expect("/run is writable");
    for _ in 0..2 {
        site.forwarders.pop();
        assert!(!ping("office", "-c 1 -W 1 203.0.113.2"), "nobody forwards");
        site.forwarders.push(Background::start(
            "west",
            &format!(
                "{PROGRAM} --site west --name f1 --credentials /run/credentials.json --state-directory /run/state \
                 --workers {}",
                workers()
            ),
        ));
        eventually("the west forwards again", || {
            ping("office", "-c 1 -W 1 203.0.113.2")
        });
        // An interface that goes and comes back is found again.
        network::rejoin_wan();
        eventually("the west finds its interface", || {
            ping("office", "-c 1 -W 1 203.0.113.2")
        });
    }
}

/// Clock ticks (of 10 ms) that a process has used, and its resident memory in kB.
fn cost(process: u32) -> (u64, u64) {
    let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}")).expect("it runs");
    let stat = read("stat");
    let after_name = stat.rsplit_once(") ").expect("a name in parentheses").1;
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
    let status = read("status");
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("a line of it");
    let kilobytes = resident
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number");
    (ticks(11) + ticks(12), kilobytes)
}

#[test]
fn an_idle_forwarder_sleeps_and_is_small() {
    if !isolated("an_idle_forwarder_sleeps_and_is_small") {
        return;
    }
    let site = Site::start(usual());
    assert!(ping("office", "-c 3 203.0.113.2"));
    let processes: Vec<u32> = site.forwarders.iter().map(Background::id).collect();
    let before: Vec<_> = processes.iter().map(|&process| cost(process)).collect();
    std::thread::sleep(std::time::Duration::from_secs(5));
    for (&process, (ticks, _)) in processes.iter().zip(before) {
        let (now, resident) = cost(process);
        let percent = (now - ticks) as f64 / 5.0;
        eprintln!("idle: {percent} % of a core, {resident} kB");
        assert!(percent <= 3.0, "{percent} % of a core while idle");
        assert!(resident <= 120_000, "{resident} kB resident");
    }
}
