//! The whole pipeline over ever more connections, with testpmd and with `rte_hash` in turns; new connections; memory.

use super::{Bench, LARGE, MEMORY_LIMIT, resident_bytes};
use crate::clock::median;
use crate::frames::Writer;
use crate::results::{Better, Results};
use crate::rte_hash::RteHash;
use crate::rules;
use crate::subject::{BURST, Load, Subject, nanoseconds};
use crate::substitutes::key_of;
use crate::testpmd::Testpmd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const SIZES: [(u32, &str); 4] = [(1, "1"), (1_000, "1k"), (512_000, "512k"), (LARGE, "30m")];
/// Connections opened per repetition, as a share of those there are.
const NEW: u32 = 300_000;

/// Measures every size.
pub fn measure(bench: &Bench, testpmd: &mut Option<Testpmd>, results: &mut Results) {
    for (flows, label) in SIZES {
        if flows < LARGE || bench.large {
            measure_size(bench, testpmd, flows, label, results);
        } else {
            for name in [
                "mpps_30m",
                "of_testpmd_30m",
                "vs_rte_hash_30m",
                "vs_rte_hash_spared_30m",
            ] {
                results.leave_out(name, "the short form stops at 512 K connections");
            }
        }
    }
}

/// A pipeline with the same connections in `rte_hash`, and what says whether it notes packets of each in an entry of its own.
fn peer(bench: &Bench, load: &mut Load, flows: u32) -> (Subject, Arc<AtomicBool>) {
    let mut subject = Subject::new(bench, MEMORY_LIMIT);
    subject.open(load, 0, flows);
    let mut hash = RteHash::new(&bench.environment, (flows + flows / 8).max(1024));
    let writer = Writer::new(rules::VNF_EGRESS_MAC, rules::PORT_MAC);
    for connection in 0..flows {
        let key = key_of(&subject.rules, &writer.frame(connection));
        let entry = subject.pipeline.entry_of(&key);
        hash.insert(&key, entry.expect("it was opened"));
    }
    let notes = hash.notes();
    subject.pipeline.substitute(Some(Box::new(hash)));
    (subject, notes)
}

fn measure_size(
    bench: &Bench,
    testpmd: &mut Option<Testpmd>,
    flows: u32,
    label: &str,
    results: &mut Results,
) {
    let mut load = Load::new(&bench.pool);
    let mut subject = Subject::new(bench, MEMORY_LIMIT);
    subject.open(&mut load, 0, flows.max(BURST as u32));
    subject.live(&mut load, flows.max(BURST as u32));
    let resident = resident_bytes();
    let mut peer = (flows >= 512_000).then(|| peer(bench, &mut load, flows));
    let (mut whole, mut forwarded) = (Vec::new(), Vec::new());
    let (mut with_peer, mut with_spared) = (Vec::new(), Vec::new());
    for seed in 0..bench.repetitions {
        whole.push(nanoseconds(&mut load, flows, seed, bench.round, |burst| {
            subject.take(burst);
        }));
        if let Some((peer, notes)) = &mut peer {
            for (times, has_notes) in [(&mut with_peer, true), (&mut with_spared, false)] {
                notes.store(has_notes, Relaxed);
                times.push(nanoseconds(&mut load, flows, seed, bench.round, |burst| {
                    peer.take(burst);
                }));
            }
        }
        if let Some(running) = testpmd {
            match running.nanoseconds(bench.round) {
                Ok(ns) => forwarded.push(ns),
                Err(problem) => {
                    results.leave_out(&format!("of_testpmd_{label}"), &problem);
                    *testpmd = None;
                }
            }
        }
    }
    let whole = median(whole);
    results.figure(&format!("mpps_{label}"), 1e3 / whole, "Mpps");
    results.figure(&format!("ns_{label}"), whole, "ns");
    if !forwarded.is_empty() {
        let peer = ("testpmd mac-forward", 1e3 / median(forwarded));
        results.against(
            &format!("of_testpmd_{label}"),
            1e3 / whole,
            "Mpps",
            peer,
            Better::Larger,
        );
    }
    for (name, peer, times) in [
        ("vs_rte_hash", "rte_hash in the pipeline", with_peer),
        ("vs_rte_hash_spared", "rte_hash without notes", with_spared),
    ] {
        if !times.is_empty() {
            let name = format!("{name}_{label}");
            results.against(&name, whole, "ns", (peer, median(times)), Better::Smaller);
        }
    }
    drop(peer);
    if flows >= 512_000 {
        let cost = median((0..5).map(|_| subject.keep_house()).collect());
        results.figure(&format!("housekeeping_{label}"), cost, "%");
    }
    if flows == LARGE {
        results.figure("rss_30m_mb", resident as f64 / 1e6, "MB");
        results.figure(
            "new_flows_30m",
            new_flows(bench, &mut subject, &mut load, flows),
            "M/s",
        );
    }
}

/// New connections a second of the processor's time, in millions, through the whole pipeline.
fn new_flows(bench: &Bench, subject: &mut Subject, load: &mut Load, flows: u32) -> f64 {
    let mut rates = Vec::new();
    let mut next = flows + load.len() as u32;
    for _ in 0..bench.repetitions.min(3) {
        let spent = subject.open(load, next, NEW);
        rates.push(f64::from(NEW) / spent.as_secs_f64() / 1e6);
        next += NEW + load.len() as u32;
    }
    assert!(
        subject.pipeline.flow_entries() >= u64::from(flows + NEW),
        "the table took them in"
    );
    median(rates)
}

/// New connections beside a million.
pub fn new_flows_1m(bench: &Bench, results: &mut Results) {
    let mut load = Load::new(&bench.pool);
    let mut subject = Subject::new(bench, MEMORY_LIMIT);
    subject.open(&mut load, 0, 1_000_000);
    let rate = new_flows(bench, &mut subject, &mut load, 1_000_000);
    results.figure("new_flows_1m", rate, "M/s");
}
