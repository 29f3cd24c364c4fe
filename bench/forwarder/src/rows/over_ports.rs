//! What is measured with packets that come and go over ports in shared memory: the forwarder against Open vSwitch, and
//! the cost of labels and affinity over a plain bridge (figure 7 of the paper).

use super::Bench;
use crate::clock::{least, median};
use crate::nearness::Nearness;
use crate::peers::Process;
use crate::peers::open_vswitch::OpenVswitch;
use crate::ports::Wires;
use crate::ports::generator::Generator;
use crate::ports::sink::Sink;
use crate::ports::worker::{Mode, Worker};
use crate::results::{Better, Results};
use crate::rules;
use contracts::forwarder as contract;
use prost::Message;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Open vSwitch sends by as many queues as it has threads, whatever these are for.
const SWITCH_QUEUES: u16 = 2;
const RULES: &str = "/run/forwarder.pb";
/// In the benchmark's own network namespace.
const METRICS: &str = "127.0.0.1:9470";

/// The forwarder's program with its rules, between a generator and a sink.
struct Forwarder {
    process: Process,
    generator: Generator,
    _sink: Sink,
}

impl Forwarder {
    /// Starts the generator first: its ports are the servers.
    fn start(bench: &Bench) -> Result<Forwarder, String> {
        let wires = Wires::new("forwarder")?;
        let generator = Generator::start(&wires, bench.other_core, 1)?;
        let sink = Sink::new("sink-ours")?;
        let mut set = rules::set();
        let devices = [sink.devargs(), wires.client(rules::VNF_PORT)];
        for (port, device) in set.ports.iter_mut().zip(devices) {
            port.device = Some(contract::port::Device::Devargs(device));
        }
        (set.site, set.forwarder) = ("bench".into(), "f1".into());
        std::fs::write(RULES, set.encode_to_vec()).map_err(|error| format!("{RULES}: {error}"))?;
        let mut command = Command::new("taskset");
        command
            .args(["--cpu-list", &bench.core.to_string()])
            .arg(&bench.forwarder)
            .args(["--site", "bench", "--name", "f1", "--rules", RULES])
            .args(["--huge-pages", "--status", "/run/forwarder.status"])
            .args(["--metrics", METRICS]);
        Ok(Forwarder {
            process: Process::start(&mut command, "/run/forwarder.log")?,
            generator,
            _sink: sink,
        })
    }

    /// Packets that it has sent towards the wide area, as of a second ago.
    fn sent(&self) -> Result<u64, String> {
        std::thread::sleep(Duration::from_millis(1_500));
        let failed = |error: std::io::Error| format!("{METRICS}: {error}");
        let mut connection = TcpStream::connect(METRICS).map_err(failed)?;
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: {METRICS}\r\nConnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).map_err(failed)?;
        let mut text = String::new();
        connection.read_to_string(&mut text).map_err(failed)?;
        let name = "switchboard_forwarder_port_sent_packets_total{port=\"wan\"} ";
        let sent = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.parse().ok());
        sent.ok_or_else(|| format!("{METRICS} does not say {name}"))
    }
}

/// The forwarder against Open vSwitch, in turns.
pub fn against_open_vswitch(bench: &Bench, results: &mut Results) {
    let outcome = Forwarder::start(bench).and_then(|forwarder| {
        let wires = Wires::new("open-vswitch")?;
        let generator = Generator::start(&wires, bench.other_core, SWITCH_QUEUES)?;
        let sink = Sink::new("sink-theirs")?;
        let switch = OpenVswitch::start(&wires, &sink, bench.other_core, bench.core)?;
        compare(bench, forwarder, (switch, generator), results)
    });
    if let Err(problem) = outcome {
        for log in ["/run/forwarder.log", "/run/open-vswitch/switch.log"] {
            let text = std::fs::read_to_string(Path::new(log)).unwrap_or_default();
            let last: Vec<&str> = text.lines().rev().take(12).collect();
            eprintln!("{log}:\n{}", last.join("\n"));
        }
        results.leave_out("vs_ovs_ct_1k", &problem);
        results.leave_out("vs_ovs_ct_512k", &problem);
    }
}

/// Refuses a measurement of which not everything came out that went in.
fn all_came_out(who: &str, taken: f64, sent: u64) -> Result<(), String> {
    if (sent as f64) < 0.999 * taken {
        return Err(format!("{who} took {taken} packets and sent {sent}"));
    }
    Ok(())
}

fn compare(
    bench: &Bench,
    mut forwarder: Forwarder,
    (switch, mut generator): (OpenVswitch, Generator),
    results: &mut Results,
) -> Result<(), String> {
    let round = bench.round.max(Duration::from_millis(200)) * 3;
    for (flows, label) in [(1_000, "1k"), (512_000, "512k")] {
        switch.pause(true);
        forwarder
            .generator
            .fill(flows, false)
            .map_err(|problem| format!("forwarder: {problem}"))?;
        let before = forwarder.sent()?;
        forwarder.process.pause(true);
        switch.pause(false);
        generator
            .fill(flows, true)
            .map_err(|problem| format!("Open vSwitch: {problem}"))?;
        let theirs_before = switch.sent()?;
        let (mut ours, mut peers, mut taken) = (Vec::new(), Vec::new(), [0.0; 2]);
        let mut nearness = Nearness::new(bench.core, bench.other_core);
        while ours.len() < bench.repetitions as usize {
            switch.pause(true);
            nearness.wait();
            forwarder.process.pause(false);
            let our = forwarder.generator.offer(flows, round)?;
            forwarder.process.pause(true);
            switch.pause(false);
            let their = generator.offer(flows, round)?;
            switch.pause(true);
            for (taken, rate) in taken.iter_mut().zip([our, their]) {
                *taken += rate * 1e6 * round.as_secs_f64();
            }
            if nearness.counts() {
                ours.push(our);
                peers.push(their);
            }
        }
        switch.pause(false);
        all_came_out("Open vSwitch", taken[1], switch.sent()? - theirs_before)?;
        switch.pause(true);
        forwarder.process.pause(false);
        all_came_out("the forwarder", taken[0], forwarder.sent()? - before)?;
        switch.pause(false);
        results.note(&format!("vs_ovs_ct_{label}"), nearness.note());
        results.against(
            &format!("vs_ovs_ct_{label}"),
            median(ours),
            "Mpps",
            ("Open vSwitch-DPDK", median(peers)),
            Better::Larger,
        );
    }
    results.note("open_vswitch", OpenVswitch::version()?);
    Ok(())
}

/// Labels, and labels with affinity, against a plain bridge over the same ports.
pub fn overheads(bench: &Bench, results: &mut Results) {
    if let Err(problem) = measure_overheads(bench, results) {
        results.leave_out("labels_overhead", &problem);
        results.leave_out("affinity_overhead", &problem);
    }
}

fn measure_overheads(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let wires = Wires::new("overheads")?;
    let mut generator = Generator::start(&wires, bench.other_core, 1)?;
    let mut worker = Worker::start(&wires, bench.core)?;
    for flows in [1, 50, 1_000] {
        let (mut ns, mut mpps) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
        worker.switch(Mode::Affinity)?;
        generator.open(flows.max(64))?;
        let mut nearness = Nearness::new(bench.core, bench.other_core);
        while ns[0].len() < bench.repetitions as usize {
            worker.pause(true);
            nearness.wait();
            worker.pause(false);
            let mut round = [(0.0, 0.0); 3];
            for mode in Mode::ALL {
                worker.switch(mode)?;
                let rate = generator.measure(flows, bench.round * 2)?;
                round[mode as usize] = (worker.nanoseconds()?, rate);
            }
            worker.pause(true);
            if nearness.counts() {
                for (mode, (time, rate)) in round.into_iter().enumerate() {
                    ns[mode].push(time);
                    mpps[mode].push(rate);
                }
            }
            worker.pause(false);
        }
        results.note(&format!("figure7_{flows}"), nearness.note());
        let ns = ns.map(least);
        let mpps = mpps.map(median);
        for mode in Mode::ALL {
            let name = format!("figure7_{}_{flows}", format!("{mode:?}").to_lowercase());
            results.figure(&format!("{name}_ns"), ns[mode as usize], "ns");
            results.figure(&format!("{name}_mpps"), mpps[mode as usize], "Mpps");
        }
        if flows == 50 && !nearness.was_near() {
            let problem = "the processors shared no cache in any round";
            results.leave_out("labels_overhead", problem);
            results.leave_out("affinity_overhead", problem);
        } else if flows == 50 {
            let overhead = |mode: Mode| 100.0 * (1.0 - ns[0] / ns[mode as usize]);
            results.figure("labels_overhead", overhead(Mode::Labels), "%");
            results.figure("affinity_overhead", overhead(Mode::Affinity), "%");
        }
    }
    Ok(())
}
