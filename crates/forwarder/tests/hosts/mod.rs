//! A forwarder and hosts in namespaces of their own, and rules for them.

#[path = "../../../../test/needs.rs"]
pub mod needs;

use contracts::forwarder as contract;
use contracts::forwarder::local_target::Target;
use contracts::forwarder::port::Device;
use prost::Message;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub const CHAIN: u32 = 70_000;
pub const EGRESS: u32 = 20;

/// Namespaces, processes and files, all gone at the end.
pub struct Bench {
    pub prefix: String,
    pub directory: PathBuf,
    processes: Vec<Child>,
}

impl Bench {
    /// `prefix` is what names begin with. Nothing, said aloud, where the test lacks root.
    pub fn new(prefix: &str) -> Option<Bench> {
        if lacks_root() {
            needs::missing("root, to make network namespaces");
            return None;
        }
        let prefix = format!("{prefix}{}", std::process::id());
        let directory = std::env::temp_dir().join(&prefix);
        std::fs::create_dir_all(&directory).unwrap();
        Some(Bench {
            prefix,
            directory,
            processes: Vec::new(),
        })
    }

    pub fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// A host behind a veth whose other end is the forwarder's.
    pub fn host(&self, name: &str, address: &str, gateway: &str) {
        let (host, forwarder) = (self.namespace(name), self.namespace("forwarder"));
        ip(&["netns", "add", &host]);
        let veth = [
            "link", "add", name, "netns", &forwarder, "type", "veth", "peer", "name", "eth0",
            "netns", &host,
        ];
        ip(&veth);
        ip(&["-n", &forwarder, "link", "set", name, "up"]);
        self.address(name, address, gateway);
    }

    /// Sets a host's interface up.
    pub fn address(&self, name: &str, address: &str, gateway: &str) {
        let host = self.namespace(name);
        ip(&["-n", &host, "link", "set", "eth0", "up"]);
        ip(&["-n", &host, "address", "add", address, "dev", "eth0"]);
        ip(&["-n", &host, "route", "add", "default", "via", gateway]);
    }

    pub fn start(&mut self, namespace: &str, program: &str, arguments: &[&str]) -> usize {
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

    pub fn start_forwarder(&mut self) -> usize {
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
            "16",
        ];
        self.start(
            "forwarder",
            env!("CARGO_BIN_EXE_switchboard-forwarder"),
            &arguments,
        )
    }

    pub fn end(&mut self, process: usize) {
        let child = &mut self.processes[process];
        // The process is `ip netns exec`'s own: it has become the program.
        let _ = child.kill();
        let _ = child.wait();
    }

    pub fn answers(&self, count: u32) -> bool {
        let count = count.to_string();
        let ping = ["-c", &count, "-i", "0.05", "-W", "1", "203.0.113.2"];
        Command::new("ip")
            .args(["netns", "exec", &self.namespace("office"), "ping"])
            .args(ping)
            .output()
            .is_ok_and(|done| done.status.success())
    }

    pub fn wait_for_answers(&self, what: &str) {
        let limit = Instant::now() + Duration::from_secs(20);
        while !self.answers(1) {
            assert!(Instant::now() < limit, "no answer {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The office sends TCP to `iperf3` at the server, and receives as much: so many bytes, in such a manner.
    #[allow(dead_code, reason = "not every test does")]
    pub fn transfers(&self, amount: &str, manner: &[&str]) {
        for way in [&[][..], &["-R"]] {
            let office = self.namespace("office");
            let done = Command::new("ip")
                .args(["netns", "exec", &office, "timeout", "60"])
                .args(["iperf3", "-c", "203.0.113.2", "-n", amount])
                .args(manner)
                .args(way)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success(), "{way:?}: {said}\n{}", self.logs());
        }
    }

    /// What the processes wrote.
    pub fn logs(&self) -> String {
        (0..self.processes.len())
            .filter_map(|process| {
                std::fs::read_to_string(self.directory.join(format!("log-{process}"))).ok()
            })
            .collect()
    }

    #[allow(dead_code, reason = "not every test looks at it")]
    pub fn status(&self) -> contract::Status {
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
            // Not every test has a guest.
            let _ = Command::new("ip")
                .args(["netns", "delete", &self.namespace(name)])
                .output();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).output().unwrap();
    assert!(
        done.status.success(),
        "ip {arguments:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

pub fn port(name: &str, device: Device) -> contract::Port {
    contract::Port {
        name: name.into(),
        device: Some(device),
    }
}

pub fn edge(name: &str, gateway: &str, direction: contract::Direction) -> contract::Edge {
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

pub fn end(target: Target) -> Option<contract::StageEnd> {
    Some(contract::StageEnd {
        local: vec![contract::LocalTarget {
            target: Some(target),
            weight: 1,
            prefixes: vec![],
        }],
        remote: vec![],
    })
}

/// A chain without VNFs between the edges behind two ports, `office` and `server`.
#[allow(dead_code, reason = "not every test has one")]
pub fn straight(ports: Vec<contract::Port>) -> contract::RuleSet {
    contract::RuleSet {
        generation: 1,
        site: "s".into(),
        forwarder: "f".into(),
        ports,
        edges: vec![
            edge("office", "10.1.0.1/24", contract::Direction::Forward),
            edge("server", "203.0.113.1/24", contract::Direction::Reverse),
        ],
        paths: vec![contract::ServicePath {
            chain_label: CHAIN,
            egress_label: EGRESS,
            customer: "acme".into(),
            chain: "web".into(),
            vnf_count: 0,
            stages: vec![contract::Stage {
                number: 1,
                upstream: end(Target::Edge("office".into())),
                downstream: end(Target::Edge("server".into())),
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn lacks_root() -> bool {
    // Once for all tests of this process, which would be in each other's way.
    static LACKS: OnceLock<bool> = OnceLock::new();
    *LACKS.get_or_init(|| {
        let probe = format!("sbneedsprobe{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &probe]).output();
        if !made.is_ok_and(|done| done.status.success()) {
            return true;
        }
        ip(&["netns", "delete", &probe]);
        false
    })
}
