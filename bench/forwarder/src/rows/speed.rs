//! The whole pipeline over ever more connections, with testpmd and with `rte_hash` in turns; new connections; memory.

use super::{Bench, LARGE, MEMORY_LIMIT, resident_bytes};
use crate::clock::median;
use crate::composed::{self, Own};
use crate::frames::Writer;
use crate::results::{Better, Results};
use crate::rte_hash::RteHash;
use crate::rules;
use crate::subject::{BURST, Load, Subject, nanoseconds};
use crate::testpmd::Testpmd;
use flow::{Direction, Insertion, Ipv4Key};

const SIZES: [(u32, &str); 4] = [(1, "1"), (1_000, "1k"), (512_000, "512k"), (LARGE, "30m")];
/// Connections opened per repetition, as a share of those there are.
const NEW: u32 = 300_000;

/// Measures every size.
pub fn measure(bench: &Bench, testpmd: &mut Option<Testpmd>, results: &mut Results) {
    for (flows, label) in SIZES {
        if flows < LARGE || bench.large {
            measure_size(bench, testpmd, flows, label, results);
        } else {
            for name in ["mpps_30m", "of_testpmd_30m", "vs_rte_hash_30m"] {
                results.leave_out(name, "the short form stops at 512 K connections");
            }
        }
    }
}

struct Peer {
    own: Own,
    peer: RteHash,
}

/// Both tables with the same connections.
fn tables(bench: &Bench, subject: &Subject, flows: u32) -> Peer {
    let config = flow::Config::new(MEMORY_LIMIT, [5; 16]);
    let mut table = flow::Ipv4Table::new(&config).expect("there is memory");
    let mut peer = RteHash::new(&bench.environment, (flows + flows / 8).max(1024));
    let writer = Writer::new(rules::VNF_EGRESS_MAC, rules::PORT_MAC);
    let hops = composed::peer_hop(&subject.rules);
    for connection in 0..flows {
        let key: Ipv4Key = composed::key_of(&subject.rules, &writer.frame(connection));
        let inserted = table.insert(&key, hops, 0, Direction::Forward, 0);
        assert!(matches!(inserted, Insertion::New(_)), "{inserted:?}");
        peer.insert(&key, hops);
    }
    Peer {
        own: Own::new(table),
        peer,
    }
}

fn measure_size(
    bench: &Bench,
    testpmd: &mut Option<Testpmd>,
    flows: u32,
    label: &str,
    results: &mut Results,
) {
    let mut load = Load::new(&bench.pool);
    let before = resident_bytes();
    let mut subject = Subject::new(&bench.pool, MEMORY_LIMIT);
    subject.open(&mut load, 0, flows.max(BURST as u32));
    let resident = resident_bytes() - before;
    let mut tables = (flows >= 512_000).then(|| tables(bench, &subject, flows));
    let (mut whole, mut forwarded) = (Vec::new(), Vec::new());
    let (mut with_own, mut with_peer) = (Vec::new(), Vec::new());
    for seed in 0..bench.repetitions {
        whole.push(nanoseconds(&mut load, flows, seed, bench.round, |burst| {
            subject.take(burst);
        }));
        if let Some(Peer { own, peer }) = &mut tables {
            let rules = &subject.rules;
            with_own.push(nanoseconds(&mut load, flows, seed, bench.round, |burst| {
                composed::encapsulate(rules, own, burst);
            }));
            with_peer.push(nanoseconds(&mut load, flows, seed, bench.round, |burst| {
                composed::encapsulate(rules, peer, burst);
            }));
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
    if !with_own.is_empty() {
        let peer = ("rte_hash", median(with_peer));
        let own = median(with_own);
        results.against(
            &format!("vs_rte_hash_{label}"),
            own,
            "ns",
            peer,
            Better::Smaller,
        );
    }
    drop(tables);
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
    let mut subject = Subject::new(&bench.pool, MEMORY_LIMIT);
    subject.open(&mut load, 0, 1_000_000);
    let rate = new_flows(bench, &mut subject, &mut load, 1_000_000);
    results.figure("new_flows_1m", rate, "M/s");
}
