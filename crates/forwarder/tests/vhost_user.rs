//! A virtual machine as a transparent VNF: vhost-user here, virtio in the guest, for which DPDK's testpmd stands in.
//!
//! Needs root (network namespaces) and `dpdk-testpmd`; says so and passes where one is missing.

#[path = "../../../test/needs.rs"]
mod needs;

use contracts::forwarder as contract;
use contracts::forwarder::local_target::Target;
use contracts::forwarder::port::Device;
use prost::Message;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CHAIN: u32 = 70_000;
const EGRESS: u32 = 20;

/// Namespaces, processes and files, all gone at the end.
struct Bench {
    prefix: String,
    directory: PathBuf,
    processes: Vec<Child>,
}

impl Bench {
    fn new() -> Bench {
        let prefix = format!("sbvhu{}", std::process::id());
        let directory = std::env::temp_dir().join(&prefix);
        std::fs::create_dir_all(&directory).unwrap();
        Bench {
            prefix,
            directory,
            processes: Vec::new(),
        }
    }

    fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// A host behind a veth whose other end is the forwarder's.
    fn host(&self, name: &str, address: &str, gateway: &str) {
        let (host, forwarder) = (self.namespace(name), self.namespace("forwarder"));
        ip(&["netns", "add", &host]);
        let veth = [
            "link", "add", name, "netns", &forwarder, "type", "veth", "peer", "name", "eth0",
            "netns", &host,
        ];
        ip(&veth);
        ip(&["-n", &forwarder, "link", "set", name, "up"]);
        ip(&["-n", &host, "link", "set", "eth0", "up"]);
        ip(&["-n", &host, "address", "add", address, "dev", "eth0"]);
        ip(&["-n", &host, "route", "add", "default", "via", gateway]);
    }

    fn start(&mut self, namespace: &str, program: &str, arguments: &[&str]) -> usize {
        let log = self.directory.join(format!("log-{}", self.processes.len()));
        let (output, errors) = (
            File::create(&log).unwrap(),
            File::options().append(true).open(&log).unwrap(),
        );
        let child = Command::new("ip")
            .args(["netns", "exec", &self.namespace(namespace), program])
            .args(arguments)
            // DPDK makes a directory there that it never removes.
            .env("RUNTIME_DIRECTORY", &self.directory)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap();
        self.processes.push(child);
        self.processes.len() - 1
    }

    fn start_forwarder(&mut self) -> usize {
        let file = |name: &str| self.directory.join(name).to_string_lossy().into_owned();
        let (rules, status) = (file("rules"), file("status"));
        // Each of the guest's ports has one queue: where there are several workers, most hand over what leaves there.
        let workers = std::env::var("SWITCHBOARD_TEST_WORKERS").unwrap_or_else(|_| "1".into());
        let arguments = [
            "--site",
            "s",
            "--name",
            "f",
            "--workers",
            &workers,
            "--rules",
            &rules,
            "--status",
            &status,
            "--flow-memory-mb",
            "8",
        ];
        self.start(
            "forwarder",
            env!("CARGO_BIN_EXE_switchboard-forwarder"),
            &arguments,
        )
    }

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

    fn end(&mut self, process: usize) {
        let child = &mut self.processes[process];
        // The process is `ip netns exec`'s own: it has become the program.
        let _ = child.kill();
        let _ = child.wait();
    }

    fn answers(&self, count: u32) -> bool {
        let count = count.to_string();
        let ping = ["-c", &count, "-i", "0.05", "-W", "1", "203.0.113.2"];
        Command::new("ip")
            .args(["netns", "exec", &self.namespace("office"), "ping"])
            .args(ping)
            .output()
            .is_ok_and(|done| done.status.success())
    }

    fn wait_for_answers(&self, what: &str) {
        let limit = Instant::now() + Duration::from_secs(20);
        while !self.answers(1) {
            assert!(Instant::now() < limit, "no answer {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What the processes wrote.
    fn logs(&self) -> String {
        (0..self.processes.len())
            .filter_map(|process| {
                std::fs::read_to_string(self.directory.join(format!("log-{process}"))).ok()
            })
            .collect()
    }

    fn status(&self) -> contract::Status {
        let bytes = std::fs::read(self.directory.join("status")).unwrap();
        contract::Status::decode(bytes.as_slice()).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for process in 0..self.processes.len() {
            self.end(process);
        }
        for name in ["office", "server", "guest", "forwarder"] {
            let _ = Command::new("ip")
                .args(["netns", "delete", &self.namespace(name)])
                .status();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).output().unwrap();
    assert!(
        done.status.success(),
        "ip {arguments:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

fn port(name: &str, device: Device) -> contract::Port {
    contract::Port {
        name: name.into(),
        device: Some(device),
    }
}

fn edge(name: &str, gateway: &str, direction: contract::Direction) -> contract::Edge {
    contract::Edge {
        id: name.into(),
        kind: contract::EdgeKind::Lan.into(),
        port: name.into(),
        gateway_addresses: vec![gateway.into()],
        classifiers: vec![contract::Classifier {
            chain_label: CHAIN,
            direction: direction.into(),
            egress_routes: vec![contract::EgressRoute {
                destination: "0.0.0.0/0".into(),
                egress_label: EGRESS,
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn end(target: Target) -> Option<contract::StageEnd> {
    Some(contract::StageEnd {
        local: vec![contract::LocalTarget {
            target: Some(target),
            weight: 1,
            prefixes: vec![],
        }],
        remote: vec![],
    })
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

fn is_missing() -> Option<&'static str> {
    let runs = |program: &str, argument: &str| {
        Command::new(program)
            .arg(argument)
            .output()
            .is_ok_and(|done| done.status.success())
    };
    if !runs("dpdk-testpmd", "--version") && !Path::new("/usr/bin/dpdk-testpmd").exists() {
        return Some("dpdk-testpmd, of the package dpdk");
    }
    let probe = format!("sbvhuprobe{}", std::process::id());
    let made = Command::new("ip").args(["netns", "add", &probe]).output();
    if !made.is_ok_and(|done| done.status.success()) {
        return Some("root, to make network namespaces");
    }
    ip(&["netns", "delete", &probe]);
    None
}

#[test]
fn a_guest_on_vhost_user_is_passed_both_ways_and_found_again_after_either_side_was_away() {
    if let Some(missing) = is_missing() {
        needs::missing(missing);
        return;
    }
    let mut bench = Bench::new();
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
