//! What labels and affinity cost over a plain bridge, ports left out (figure 7 of the paper, the processor's part).

use super::{Bench, MEMORY_LIMIT};
use crate::clock::median;
use crate::composed::{self, Always, Bridge};
use crate::results::Results;
use crate::rules;
use crate::subject::{Load, Subject, nanoseconds};

/// Nanoseconds per packet of the three, in process.
pub fn in_process(bench: &Bench, results: &mut Results) {
    const FLOWS: u32 = 50;
    let mut load = Load::new(&bench.pool);
    let mut subject = Subject::new(&bench.pool, MEMORY_LIMIT);
    subject.open(&mut load, 0, FLOWS);
    let bridge = Bridge::new(&[rules::PORT_MAC]);
    let mut always = Always(composed::peer_hop(&subject.rules));
    let (mut plain, mut labels, mut affinity) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 0..bench.repetitions {
        plain.push(nanoseconds(&mut load, FLOWS, seed, bench.round, |burst| {
            bridge.bridge(burst);
        }));
        let rules = &subject.rules;
        labels.push(nanoseconds(&mut load, FLOWS, seed, bench.round, |burst| {
            composed::encapsulate(rules, &mut always, burst);
        }));
        affinity.push(nanoseconds(&mut load, FLOWS, seed, bench.round, |burst| {
            subject.take(burst)
        }));
    }
    results.figure("bridge_ns", median(plain), "ns");
    results.figure("labels_ns", median(labels), "ns");
    results.figure("labels_affinity_ns", median(affinity), "ns");
}
