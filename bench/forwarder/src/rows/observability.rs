//! What it costs to be watched: the same packets with nothing on, and with all on that a careful operator has on at once.

use super::{Bench, MEMORY_LIMIT};
use crate::clock::processor_time;
use crate::results::Results;
use crate::rules::WAN_PORT;
use crate::subject::{Load, Subject, samples};
use contracts::forwarder as contract;
use forwarder::capture::{Capture, Captures, Filter};
use forwarder::latency::{Latency, Timer};
use forwarder::trace::Trace;
use std::hint::black_box;
use std::time::Duration;

const FLOWS: u32 = 1_000;
/// How often the counters are read: each second of the processor's time, as the forwarder reports and metrics are scraped.
const REPORT: Duration = Duration::from_secs(1);

/// Nothing on.
const OFF: usize = 0;
/// The latency histogram, a trace of one connection, a capture of another port, and reports.
const ALL: usize = 1;
/// A trace alone.
const TRACE: usize = 2;
/// A capture of everything.
const CAPTURE: usize = 3;
/// The latency histogram alone.
const HISTOGRAM: usize = 4;
/// A capture of one connection that sends nothing, at every port.
const CAPTURE_ONE: usize = 5;

/// Measures each of them in turns.
pub fn measure(bench: &Bench, results: &mut Results) {
    let mut load = Load::new(&bench.pool);
    let mut subject = Subject::new(bench, MEMORY_LIMIT);
    subject.open(&mut load, 0, FLOWS);
    let mut ns = [const { Vec::new() }; 6];
    let (mut timer, mut latency) = (Timer::new(), Latency::default());
    let (mut unreported, mut reports) = (Duration::ZERO, 0u32);
    for seed in 0..bench.repetitions {
        for (mode, ns) in ns.iter_mut().enumerate() {
            subject.pipeline.trace = (mode == ALL || mode == TRACE).then(trace);
            let (capture, mut captures) = match mode {
                ALL => watch(at("another")),
                CAPTURE => watch(at("vnf")),
                CAPTURE_ONE => watch(of_one_connection()),
                _ => (None, None),
            };
            subject.pipeline.capture = capture;
            let mut looked = processor_time();
            let mut bursts = 0u32;
            let timed = mode == ALL || mode == HISTOGRAM;
            ns.extend(samples(&mut load, FLOWS, seed, bench.round, |burst| {
                if timed {
                    timer.receive(burst.len());
                }
                subject.take(burst);
                let Subject {
                    pipeline, rules, ..
                } = &mut subject;
                pipeline.show_leaving(rules, WAN_PORT, burst);
                pipeline.end_round();
                if timed {
                    timer.sent(&mut latency);
                }
                bursts += 1;
                if mode == ALL && bursts.is_multiple_of(4_096) {
                    let now = processor_time();
                    unreported += now - looked;
                    looked = now;
                    if unreported > REPORT {
                        unreported = Duration::ZERO;
                        reports += 1;
                        black_box((subject.pipeline.counters.clone(), latency.clone()));
                    }
                }
                if let Some(captures) = captures.as_mut().filter(|_| mode == CAPTURE) {
                    while let Ok(captured) = captures.try_next() {
                        black_box(captured);
                    }
                }
            }));
        }
    }
    (subject.pipeline.trace, subject.pipeline.capture) = (None, None);
    let ns = ns.map(|all| all.iter().sum::<f64>() / all.len() as f64);
    let off = ns[OFF];
    let cost = |ns: f64| 100.0 * (ns / off - 1.0);
    results.figure("observability_cost", cost(ns[ALL]), "%");
    let text =
        format!("{reports} reports among it; means of all packets, so that what is rare counts");
    results.note("observability_cost", text);
    results.figure("trace_cost", cost(ns[TRACE]), "%");
    results.figure("latency_histogram_ns", ns[HISTOGRAM] - off, "ns");
    results.figure("capture_everything_cost", cost(ns[CAPTURE]), "%");
    results.figure("capture_other_cost", cost(ns[CAPTURE_ONE]), "%");
}

fn at(port: &str) -> Filter {
    Filter {
        port: Some(port.into()),
        ..Filter::default()
    }
}

fn of_one_connection() -> Filter {
    let request = request();
    let connections = forwarder::trace::Filter::new(request.r#match.as_ref(), true);
    Filter {
        connections: connections.expect("the request is right"),
        ..Filter::default()
    }
}

fn watch(filter: Filter) -> (Option<Capture>, Option<Captures>) {
    let (capture, captures) = Capture::new(filter, 128);
    (Some(capture), Some(captures))
}

/// A trace of a connection that sends nothing.
fn trace() -> Trace {
    Trace::new(&request()).expect("the request is right")
}

fn request() -> contract::TraceRequest {
    let port = |number| contract::PortRange {
        first: number,
        last: number,
    };
    contract::TraceRequest {
        r#match: Some(contract::Match {
            source_prefixes: vec!["10.200.0.1/32".into()],
            destination_prefixes: vec!["203.0.113.9/32".into()],
            protocols: vec![17],
            source_ports: vec![port(4_000)],
            destination_ports: vec![port(53)],
        }),
        both_directions: true,
        limit: 10_000,
        duration_ms: 60_000,
        ..Default::default()
    }
}
