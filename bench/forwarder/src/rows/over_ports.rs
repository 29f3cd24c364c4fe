//! What is measured with packets that come and go over ports in shared memory: the forwarder against Open vSwitch, and
//! the cost of labels and affinity over a plain bridge (figure 7 of the paper).

use super::Bench;
use crate::clock::{least, median};
use crate::peers::Process;
use crate::peers::open_vswitch::OpenVswitch;
use crate::ports::Wires;
use crate::ports::generator::Generator;
use crate::ports::worker::{Mode, Worker};
use crate::results::{Better, Results};
use crate::rules;
use contracts::forwarder as contract;
use prost::Message;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Open vSwitch sends by as many queues as it has threads, whatever these are for.
const SWITCH_QUEUES: u16 = 2;
const RULES: &str = "/run/forwarder.pb";

/// The forwarder's program with its rules, its ports being wires.
struct Forwarder {
    process: Process,
    generator: Generator,
}

/// Starts the generator first: its ports are the servers.
fn start_forwarder(bench: &Bench) -> Result<Forwarder, String> {
    let wires = Wires::new("forwarder")?;
    let generator = Generator::start(&wires, bench.other_core, 1)?;
    let mut set = rules::set();
    for (number, port) in set.ports.iter_mut().enumerate() {
        port.device = Some(contract::port::Device::Devargs(wires.client(number)));
    }
    (set.site, set.forwarder) = ("bench".into(), "f1".into());
    std::fs::write(RULES, set.encode_to_vec()).map_err(|error| format!("{RULES}: {error}"))?;
    let mut command = Command::new("taskset");
    command
        .args(["--cpu-list", &bench.core.to_string()])
        .arg(&bench.forwarder)
        .args([
            "--site",
            "bench",
            "--name",
            "f1",
            "--rules",
            RULES,
            "--huge-pages",
        ])
        .args(["--status", "/run/forwarder.status"]);
    let process = Process::start(&mut command, "/run/forwarder.log")?;
    Ok(Forwarder { process, generator })
}

/// The forwarder against Open vSwitch, in turns.
pub fn against_open_vswitch(bench: &Bench, results: &mut Results) {
    let outcome = start_forwarder(bench).and_then(|forwarder| {
        let wires = Wires::new("open-vswitch")?;
        let generator = Generator::start(&wires, bench.other_core, SWITCH_QUEUES)?;
        let switch = OpenVswitch::start(&wires, bench.other_core, bench.core)?;
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
            .open(flows, false)
            .map_err(|problem| format!("forwarder: {problem}"))?;
        forwarder.process.pause(true);
        switch.pause(false);
        generator
            .open(flows, true)
            .map_err(|problem| format!("Open vSwitch: {problem}"))?;
        let (mut ours, mut peers, mut offered) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..bench.repetitions {
            switch.pause(true);
            forwarder.process.pause(false);
            let rate = forwarder.generator.measure(flows, round)?;
            ours.push(rate.received);
            offered.push(rate.sent);
            forwarder.process.pause(true);
            switch.pause(false);
            peers.push(generator.measure(flows, round)?.received);
        }
        forwarder.process.pause(false);
        let (ours, offered) = (median(ours), median(offered));
        let name = format!("vs_ovs_ct_{label}");
        results.against(
            &name,
            ours,
            "Mpps",
            ("Open vSwitch-DPDK", median(peers)),
            Better::Larger,
        );
        if (0.97..1.03).contains(&(ours / offered)) {
            let text =
                format!("the forwarder sent all of the {offered:.2} Mpps the generator could make");
            results.note(&name, text);
        }
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
        generator.open(flows.max(64), false)?;
        for _ in 0..bench.repetitions {
            for mode in Mode::ALL {
                worker.switch(mode)?;
                mpps[mode as usize].push(generator.measure(flows, bench.round * 2)?.received);
                ns[mode as usize].push(worker.nanoseconds()?);
            }
        }
        let ns = ns.map(least);
        let mpps = mpps.map(median);
        for mode in Mode::ALL {
            let name = format!("figure7_{}_{flows}", format!("{mode:?}").to_lowercase());
            results.figure(&format!("{name}_ns"), ns[mode as usize], "ns");
            results.figure(&format!("{name}_mpps"), mpps[mode as usize], "Mpps");
        }
        if flows == 50 {
            let overhead = |mode: Mode| 100.0 * (1.0 - ns[0] / ns[mode as usize]);
            results.figure("labels_overhead", overhead(Mode::Labels), "%");
            results.figure("affinity_overhead", overhead(Mode::Affinity), "%");
        }
    }
    Ok(())
}
