//! Measures the flow table and its peers in turns. Usage: `bench-flow [results.json [largest number of flows]]`.
//!
//! Keys are uniformly random among the connections in the table, in bursts of 256; they are drawn before the clock
//! starts, a few thousand at a time, so that they lie in the cache as a burst's parsed headers do.

mod measure;
mod results;
mod subject;

#[cfg(rte_hash)]
mod dpdk;

use measure::{Repetitions, connection, fill, insert_rate, lookup_ns};
use results::Results;
use subject::{Hashbrown, Subject, Switchboard};

const SIZES: [(u32, &str); 6] = [
    (1, "1"),
    (1_000, "1k"),
    (512_000, "512k"),
    (1_000_000, "1m"),
    (4_000_000, "4m"),
    (30_000_000, "30m"),
];

/// Room for 31 million connections.
const MEMORY_LIMIT: usize = 800 << 20;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "flow.json".into());
    let largest: u32 = arguments
        .next()
        .map_or(30_000_000, |text| text.parse().expect("a number of flows"));
    #[cfg(rte_hash)]
    dpdk::start(6144);
    let mut results = Results::new("flow");
    for (flows, label) in SIZES.into_iter().filter(|(flows, _)| *flows <= largest) {
        measure_size(flows, label, &mut results);
    }
    results.write(&path);
}

fn measure_size(flows: u32, label: &str, results: &mut Results) {
    let before = measure::resident_bytes();
    let mut ours = Switchboard::new(MEMORY_LIMIT);
    let fill_rate = fill(&mut ours, flows);
    let resident = measure::resident_bytes() - before;
    if flows >= 1_000_000 {
        results.figure(
            &format!("fill_{label}"),
            fill_rate / 1e6,
            "M inserts/s, from empty, growth included",
        );
        let stats = ours.table.stats();
        let bytes = stats.memory as f64 / stats.entries as f64;
        results.figure(&format!("bytes_per_entry_{label}"), bytes, "B");
        results.figure(&format!("resident_{label}"), resident as f64 / 1e6, "MB");
        let moves = stats.counters.displaced as f64 / f64::from(flows);
        results.figure(&format!("moves_per_insert_{label}"), moves, "entries");
    }
    let mut subjects: Vec<Box<dyn Subject>> = vec![Box::new(ours)];
    let mut map = Hashbrown::default();
    fill(&mut map, flows);
    subjects.push(Box::new(map));
    #[cfg(rte_hash)]
    {
        let mut hash = dpdk::RteHash::new((flows + 1_000_000).max(1024));
        fill(&mut hash, flows);
        subjects.push(Box::new(hash));
    }

    let ns = Repetitions::in_turns(&mut subjects, |subject, seed| {
        lookup_ns(subject, flows, seed)
    });
    results.against_peers(&format!("lookup_{label}"), "ns", &subjects, &ns, |median| {
        median
    });
    results.against_peers(
        &format!("mpps_{label}"),
        "M look-ups/s",
        &subjects,
        &ns,
        |median| 1e3 / median,
    );
    if flows >= 512_000 {
        let rates = Repetitions::in_turns(&mut subjects, |subject, seed| {
            insert_rate(subject, flows, seed)
        });
        results.against_peers(
            &format!("inserts_{label}"),
            "M/s",
            &subjects,
            &rates,
            |median| median / 1e6,
        );
    }
    assert!(
        subjects
            .iter_mut()
            .all(|subject| subject.lookup(&[connection(0)]) == connection_value(0))
    );
}

fn connection_value(index: u32) -> u64 {
    u64::from(subject::value(&connection(index)))
}
