//! A forwarder with two workers, in network namespaces: 200 connections through two stateful firewalls keep theirs.

#[allow(dead_code, reason = "other tests use the rest")]
mod network;
mod rules;

use contracts::forwarder as contract;
use network::{Background, eventually, inside, isolated};
use prost::Message;
use rules::Variant;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_switchboard-forwarder");
const ROLE: &str = "SWITCHBOARD_TEST_ROLE";
const CONNECTIONS: usize = 200;
const PORT: u16 = 7000;
/// How long a connection may take for one question and its answer before it counts as broken.
const PATIENCE: Duration = Duration::from_secs(10);

/// This program once more, inside a namespace, in a role.
struct Actor(Child);

impl Actor {
    fn start(namespace: &str, role: &str) -> Actor {
        let program = std::env::current_exe().expect("this program has a path");
        let child = Command::new("ip")
            .args(["netns", "exec", namespace])
            .arg(program)
            .args(["--exact", "plays_its_role", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Actor(child.expect("ip starts"))
    }

    /// Has it do something; returns the line that says what came of it.
    fn ask(&mut self, what: &str) -> String {
        let input = self.0.stdin.as_mut().expect("it is piped");
        writeln!(input, "{what}").expect("it listens");
        let output = self.0.stdout.as_mut().expect("it is piped");
        let (mut line, mut byte) = (Vec::new(), [0]);
        loop {
            assert_eq!(
                output.read(&mut byte).expect("it answers"),
                1,
                "it has ended"
            );
            if byte[0] != b'\n' {
                line.push(byte[0]);
                continue;
            }
            // The test harness speaks too.
            let said = String::from_utf8_lossy(&line).into_owned();
            if let Some(answer) = said.strip_prefix("answer: ") {
                return answer.to_string();
            }
            line.clear();
        }
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn plays_its_role() {
    match std::env::var(ROLE).as_deref() {
        Ok("server") => serve(),
        Ok("client") => connect_and_ask(),
        _ => {}
    }
}

/// Returns to every connection what it sends.
fn serve() {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).expect("the port is free");
    println!("answer: ready");
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            let (mut stream, mut bytes) = (stream, [0; 64]);
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                if stream.write_all(&bytes[..count]).is_err() {
                    return;
                }
            }
        });
    }
}

/// `open N` opens more connections, `ask` sends something on each and waits for it to return.
fn connect_and_ask() {
    let mut streams: Vec<TcpStream> = Vec::new();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        if let Some(count) = line.strip_prefix("open ") {
            for _ in 0..count.parse().expect("a number") {
                let address = ([203, 0, 113, 2], PORT).into();
                let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("it connects");
                stream.set_read_timeout(Some(PATIENCE)).expect("a time");
                streams.push(stream);
            }
        }
        let mut ports = Vec::new();
        for stream in &mut streams {
            let mut bytes = [0; 6];
            let passed = stream
                .write_all(b"hello\n")
                .and_then(|()| stream.read_exact(&mut bytes));
            if passed.is_ok() {
                ports.push(stream.local_addr().expect("it is bound").port().to_string());
            }
        }
        println!("answer: {}", ports.join(" "));
    }
}

/// Source ports of the established connections that a firewall sees in both directions.
fn seen_by(firewall: &str) -> BTreeSet<u16> {
    let list = inside(firewall, "conntrack -L -p tcp --state ESTABLISHED");
    let port = |line: &str| {
        let mut words = line.split_whitespace();
        let port = words.find_map(|word| word.strip_prefix("sport="))?;
        (!line.contains("[UNREPLIED]")).then(|| port.parse().expect("a number"))
    };
    list.lines().filter_map(port).collect()
}

fn status(name: &str) -> contract::Status {
    let bytes = fs::read(format!("/run/{name}.status.pb")).unwrap_or_default();
    contract::Status::decode(&bytes[..]).unwrap_or_default()
}

fn apply(variant: Variant) {
    apply_with_seed(variant, None);
}

/// Applies rules, with another secret of the platform if one is given.
fn apply_with_seed(variant: Variant, seed: Option<&[u8; 16]>) {
    for (name, mut rules) in [
        ("east", rules::east(variant)),
        ("west", rules::west(variant)),
    ] {
        if let Some(seed) = seed {
            rules.selection_seed = seed.to_vec();
        }
        let written = format!("/run/{name}.new");
        fs::write(&written, rules.encode_to_vec()).expect("/run is writable");
        fs::rename(&written, format!("/run/{name}.pb")).expect("/run is writable");
    }
}

fn await_applied(generation: u64) {
    for name in ["east", "west"] {
        eventually(&format!("{name} applies generation {generation}"), || {
            let status = status(name);
            assert_eq!(status.refused, "", "{name} refuses its rules");
            status.applied_generation == generation
        });
    }
}

fn forwarder(name: &str, workers: usize) -> Background {
    forwarder_with(name, workers, "")
}

/// Where each forwarder serves metrics, in its own namespace.
const METRICS: &str = "127.0.0.1:9470";

fn forwarder_with(name: &str, workers: usize, more: &str) -> Background {
    let line = format!(
        "{PROGRAM} {more} --site {name} --name f1 --rules /run/{name}.pb --status /run/{name}.status.pb --metrics {METRICS} \
         --flow-directory /run/{name}.flows --workers {workers}"
    );
    Background::start(name, &line)
}

/// The processors that this process may run on.
fn allowed_cores() -> Vec<String> {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).expect("it is told");
    let is_set = |&core: &usize| allowed.is_set(core).unwrap_or(false);
    let cores = (0..nix::sched::CpuSet::count()).filter(is_set);
    cores.map(|core| core.to_string()).collect()
}

/// Whether a process waits for a lock.
fn waits_for_lock(process: u32) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let process = process.to_string();
    locks
        .lines()
        .any(|line| line.contains("->") && line.split_whitespace().any(|word| word == process))
}

/// The processors that a process's workers may run on, in their order.
fn bound_to(process: u32) -> Vec<String> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{process}/task")).expect("it runs") {
        let task = task.expect("it can be read").path();
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        let status = fs::read_to_string(task.join("status")).unwrap_or_default();
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        if let (Some(number), Some(allowed)) = (name.trim().strip_prefix("worker-"), allowed) {
            found.push((number.to_string(), allowed.trim().to_string()));
        }
    }
    found.sort();
    found.into_iter().map(|(_, allowed)| allowed).collect()
}

fn ports(answer: &str) -> BTreeSet<u16> {
    answer
        .split_whitespace()
        .map(|word| word.parse().expect("a port"))
        .collect()
}

/// Packets received at all ports.
fn received(status: &contract::Status) -> u64 {
    let ports = status.ports.iter();
    ports.map(|port| port.received_packets).sum()
}

/// Both workers of a forwarder took part, and the kernel gave each what is at home with it: in tunnels, at edges and from VNFs.
fn assert_dealt(name: &str) {
    let status = status(name);
    let handed = status.events.get("handed_over").copied().unwrap_or(0);
    let all = received(&status);
    let worked = status.latencies.iter().map(|latency| {
        let buckets = latency.buckets.iter();
        buckets.map(|bucket| bucket.packets).sum()
    });
    let worked: Vec<u64> = worked.collect();
    let told = format!(
        "{name}: {handed} of {all} handed over, {worked:?} by worker, {:?}",
        status.drops
    );
    eprintln!("{told}");
    assert!(all > 0 && handed * 100 <= all, "{told}");
    assert!(
        worked.len() == 2 && worked.iter().all(|&count| count > 0),
        "{told}"
    );
}

#[test]
fn connections_keep_their_instance_with_two_workers() {
    if !isolated("connections_keep_their_instance_with_two_workers") {
        return;
    }
    let workers = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(2);
    if workers < 2 {
        eprintln!("skipped: two workers need two processors");
        return;
    }
    network::build(1500);
    network::add_stateful_second();
    let mut variant = Variant {
        generation: 1,
        mtu: 1500,
        state: contract::AttachmentState::Active,
        encapsulation: contract::Encapsulation::VxlanMpls,
        weights: Some([100, 100]),
    };
    apply(variant);
    let (_east, mut west) = (forwarder("east", 2), forwarder("west", 2));
    await_applied(1);
    let mut server = Actor::start("internet", "server");
    server.ask("");
    let mut client = Actor::start("office", "client");

    let opened = ports(&client.ask(&format!("open {CONNECTIONS}")));
    assert_eq!(opened.len(), CONNECTIONS, "all connections are up");
    let before = ["firewall", "second"].map(seen_by);
    let [first, second] = &before;
    assert!(
        first.len() > 50 && second.len() > 50,
        "{} and {}",
        first.len(),
        second.len()
    );
    assert!(
        first.is_disjoint(second),
        "both directions pass the same instance"
    );
    assert_eq!(first.len() + second.len(), CONNECTIONS);

    // Nobody new gets the first firewall: no connection of it could choose it again.
    variant.generation = 2;
    variant.weights = Some([0, 100]);
    apply(variant);
    await_applied(2);
    assert_eq!(ports(&client.ask("ask")), opened, "no connection is broken");
    assert_eq!(["firewall", "second"].map(seen_by), before);
    let more = ports(&client.ask("open 40"));
    assert_eq!(more.len(), CONNECTIONS + 40);
    assert_eq!(&seen_by("firewall"), first, "new connections go elsewhere");
    assert_eq!(seen_by("second").len(), second.len() + 40);

    for name in ["east", "west"] {
        assert_dealt(name);
    }

    // A forwarder with another number of workers finds what each connection chose.
    for workers in [1, 2] {
        drop(west);
        fs::remove_file("/run/west.status.pb").expect("it has reported");
        west = forwarder("west", workers);
        await_applied(2);
        assert_eq!(
            ports(&client.ask("ask")),
            more,
            "{workers} workers after a kill"
        );
        assert_eq!(&seen_by("firewall"), first);
    }
    // One that waits takes over when the other is killed, and binds its workers to processors.
    let cores = allowed_cores();
    let list = format!("--spare --cores {},{}", cores[1], cores[0]);
    let spare = forwarder_with("west", 2, &list);
    eventually("the spare waits for the lock", || {
        waits_for_lock(spare.id())
    });
    fs::remove_file("/run/west.status.pb").expect("it has reported");
    drop(west);
    west = spare;
    await_applied(2);
    assert_eq!(ports(&client.ask("ask")), more, "the spare took over");
    assert_eq!(&seen_by("firewall"), first);
    assert_eq!(bound_to(west.id()), [cores[1].clone(), cores[0].clone()]);
    // The address of the metrics is free only when the first has gone for good.
    let ask =
        format!("curl --silent --fail --max-time 5 --output /dev/null http://{METRICS}/metrics");
    eventually("the spare serves metrics", || {
        network::succeeds("west", &ask).0
    });
    eventually("the spare reports", || {
        let status = status("west");
        received(&status) > 4 * CONNECTIONS as u64
    });
    for name in ["east", "west"] {
        assert_dealt(name);
    }

    // Homes stay where connections have them when the platform's secret is another one, and follow it with the next start.
    variant.generation = 3;
    apply_with_seed(variant, Some(b"another for all!"));
    await_applied(3);
    assert_eq!(ports(&client.ask("ask")), more, "with another secret");
    drop(west);
    fs::remove_file("/run/west.status.pb").expect("it has reported");
    west = forwarder("west", 2);
    await_applied(3);
    for _ in 0..3 {
        assert_eq!(ports(&client.ask("ask")), more, "dealt out anew");
    }
    assert_eq!(&seen_by("firewall"), first);
    eventually("it reports", || {
        received(&status("west")) > 8 * CONNECTIONS as u64
    });
    assert_dealt("west");
    drop(west);
}
