//! A virtual machine as a transparent VNF: vhost-user here, virtio in the guest, for which DPDK's testpmd stands in.
//!
//! Needs root (network namespaces) and `dpdk-testpmd`; says so and passes where one is missing.

mod hosts;

use contracts::forwarder as contract;
use contracts::forwarder::local_target::Target;
use contracts::forwarder::port::Device;
use hosts::{Bench, CHAIN, EGRESS, edge, end, ip, port};
use prost::Message;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

impl Bench {
    /// The guest: two virtio interfaces, and what enters one leaves by the other.
    fn start_guest(&mut self) -> usize {
        let device = |number: u32, name: &str| {
            let path = self.directory.join(name);
            // A guest that was killed leaves its socket.
            let _ = std::fs::remove_file(&path);
            format!(
                "net_virtio_user{number},path={},server=1,queues=1",
                path.display()
            )
        };
        let (first, second) = (device(0, "ingress"), device(1, "egress"));
        let prefix = format!("--file-prefix={}", self.prefix);
        let arguments = [
            "--no-huge",
            "--no-shconf",
            "--no-telemetry",
            "-m",
            "128",
            "-l",
            "0,1",
            "--no-pci",
            &prefix,
            "--vdev",
            &first,
            "--vdev",
            &second,
            "--",
            "--forward-mode=io",
            "--auto-start",
            "--total-num-mbufs=4096",
            "--no-mlockall",
        ];
        self.start("guest", "dpdk-testpmd", &arguments)
    }
}

fn rules(directory: &Path) -> contract::RuleSet {
    let socket =
        |name: &str| Device::VhostUser(directory.join(name).to_string_lossy().into_owned());
    let guest = || Target::Attachment("guest".into());
    let stage = |number, upstream, downstream| contract::Stage {
        number,
        upstream: end(upstream),
        downstream: end(downstream),
    };
    contract::RuleSet {
        generation: 1,
        site: "s".into(),
        forwarder: "f".into(),
        ports: vec![
            port("office", Device::AfPacket("office".into())),
            port("server", Device::AfPacket("server".into())),
            port("ingress", socket("ingress")),
            port("egress", socket("egress")),
        ],
        edges: vec![
            edge("office", "10.1.0.1/24", contract::Direction::Forward),
            edge("server", "203.0.113.1/24", contract::Direction::Reverse),
        ],
        attachments: vec![contract::Attachment {
            id: "guest".into(),
            vnf: "wire".into(),
            instance: "guest".into(),
            kind: contract::AttachmentKind::Transparent.into(),
            state: contract::AttachmentState::Active.into(),
            ingress_port: "ingress".into(),
            egress_port: "egress".into(),
            chain_label: CHAIN,
            egress_label: EGRESS,
            stage: 1,
            ..Default::default()
        }],
        paths: vec![contract::ServicePath {
            chain_label: CHAIN,
            egress_label: EGRESS,
            customer: "acme".into(),
            chain: "web".into(),
            vnf_count: 1,
            stages: vec![
                stage(1, Target::Edge("office".into()), guest()),
                stage(2, guest(), Target::Edge("server".into())),
            ],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn has_guest() -> bool {
    let runs = |program: &str, argument: &str| {
        Command::new(program)
            .arg(argument)
            .output()
            .is_ok_and(|done| done.status.success())
    };
    runs("dpdk-testpmd", "--version") || Path::new("/usr/bin/dpdk-testpmd").exists()
}

#[test]
fn a_guest_on_vhost_user_is_passed_both_ways_and_found_again_after_either_side_was_away() {
    if !has_guest() {
        hosts::needs::missing("dpdk-testpmd, of the package dpdk");
        return;
    }
    let Some(mut bench) = Bench::new("sbvhu") else {
        return;
    };
    ip(&["netns", "add", &bench.namespace("forwarder")]);
    ip(&["netns", "add", &bench.namespace("guest")]);
    bench.host("office", "10.1.0.2/24", "10.1.0.1");
    bench.host("server", "203.0.113.2/24", "203.0.113.1");
    std::fs::write(
        bench.directory.join("rules"),
        rules(&bench.directory).encode_to_vec(),
    )
    .unwrap();

    let forwarder = bench.start_forwarder();
    let guest = bench.start_guest();
    bench.wait_for_answers("through the guest");
    assert!(bench.answers(20), "lost packets");
    std::thread::sleep(Duration::from_millis(2100));
    let status = bench.status();
    assert!(
        status.ports.iter().all(|port| port.up),
        "{:?}",
        status.ports
    );
    let through = status.attachment_packets.get("guest").copied().unwrap_or(0);
    assert!(through >= 42, "{through} packets through the guest");

    bench.end(guest);
    assert!(!bench.answers(1), "answered without the guest");
    bench.start_guest();
    bench.wait_for_answers("after the guest was away");

    bench.end(forwarder);
    bench.start_forwarder();
    bench.wait_for_answers("after the forwarder was away");
    assert!(
        bench.answers(20),
        "lost packets after the forwarder was away"
    );
}
