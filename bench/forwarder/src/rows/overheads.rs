//! What labels and affinity cost over a plain bridge, ports left out (figure 7 of the paper, the processor's part).

use super::{Bench, MEMORY_LIMIT};
use crate::bridge::Bridge;
use crate::clock::median;
use crate::results::Results;
use crate::rules::{PORT_MAC, VNF_PORT, WAN_PORT};
use crate::subject::{Load, Subject, nanoseconds};
use crate::substitutes::{self, Always};
use std::hint::black_box;

/// Nanoseconds per packet of the three, in process.
pub fn in_process(bench: &Bench, results: &mut Results) {
    const FLOWS: u32 = 50;
    let mut load = Load::new(&bench.pool);
    let mut subject = Subject::new(bench, MEMORY_LIMIT);
    subject.open(&mut load, 0, FLOWS);
    let mut bridge = Bridge::new(&[PORT_MAC], WAN_PORT);
    let hops = substitutes::hops(&subject.rules);
    let (mut plain, mut labels, mut affinity) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 0..bench.repetitions {
        plain.push(nanoseconds(&mut load, FLOWS, seed, bench.round, |burst| {
            for frame in burst {
                black_box(bridge.port_of(frame.data(), VNF_PORT));
            }
        }));
        for (times, only_labels) in [(&mut labels, true), (&mut affinity, false)] {
            let always = || Box::new(Always(hops)) as Box<_>;
            subject.pipeline.substitute(only_labels.then(always));
            times.push(nanoseconds(&mut load, FLOWS, seed, bench.round, |burst| {
                subject.take(burst);
            }));
        }
    }
    results.figure("bridge_ns", median(plain), "ns");
    results.figure("labels_ns", median(labels), "ns");
    results.figure("labels_affinity_ns", median(affinity), "ns");
}
