//! How long a packet takes through the forwarder when it is half loaded.
//!
//! Packets arrive at fixed times, at half the rate that the pipeline can keep up with. The forwarder takes what has
//! arrived, a burst at most, and processes it; a packet's latency is from its arrival to the end of its burst. A stretch in
//! which the system took the core away is left out: it says nothing about the forwarder.

use super::{Bench, MEMORY_LIMIT};
use crate::clock::processor_time;
use crate::frames::{Draw, Writer};
use crate::results::Results;
use crate::rules;
use crate::subject::{BURST, Load, Subject, nanoseconds};
use dpdk::Mbuf;
use std::time::{Duration, Instant};

const FLOWS: u32 = 1_000;
const STRETCH: Duration = Duration::from_millis(2);
/// Wall time that a stretch may take beyond its processor time before it counts as interrupted.
const TOLERANCE: Duration = Duration::from_micros(5);
const STRETCHES: usize = 1_000;

/// Measures p50 and p99.
pub fn measure(bench: &Bench, results: &mut Results) {
    let mut load = Load::new(&bench.pool);
    let mut subject = Subject::new(bench, MEMORY_LIMIT);
    subject.open(&mut load, 0, FLOWS);
    let busy = nanoseconds(&mut load, FLOWS, 1, bench.round, |burst| {
        subject.take(burst)
    });
    // Writing the frame, which a device would do, is part of the load here.
    let mut open = OpenLoop::new(bench, 2.0 * busy);
    let (mut kept, mut whole, mut interrupted) = (Vec::new(), 0, 0);
    while whole < STRETCHES && interrupted < 20 * STRETCHES {
        match open.stretch(&mut subject) {
            Some(mut latencies) => {
                kept.append(&mut latencies);
                whole += 1;
            }
            None => interrupted += 1,
        }
    }
    if kept.is_empty() {
        let reason = "every stretch was interrupted: the machine is too busy";
        results.leave_out("latency_p50_us", reason);
        return results.leave_out("latency_p99_us", reason);
    }
    kept.sort_unstable();
    let at = |share: f64| kept[((kept.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    results.figure("latency_p50_us", at(0.5), "us");
    results.figure("latency_p99_us", at(0.99), "us");
    let text = format!(
        "{} packets of {whole} stretches; {interrupted} others were interrupted",
        kept.len()
    );
    results.note("latency", text);
}

/// Arrivals at fixed times.
struct OpenLoop {
    /// Nanoseconds between two arrivals.
    gap: f64,
    buffers: Vec<Mbuf>,
    writer: Writer,
    draw: Draw,
}

impl OpenLoop {
    fn new(bench: &Bench, gap: f64) -> OpenLoop {
        let buffer = || bench.pool.allocate().expect("the pool is large enough");
        OpenLoop {
            gap,
            buffers: (0..BURST).map(|_| buffer()).collect(),
            writer: Writer::new(rules::VNF_EGRESS_MAC, rules::PORT_MAC),
            draw: Draw::new(3),
        }
    }

    /// Nanoseconds of every packet of a stretch; nothing when it was interrupted.
    fn stretch(&mut self, subject: &mut Subject) -> Option<Vec<u32>> {
        let mut latencies =
            Vec::with_capacity((STRETCH.as_nanos() as f64 / self.gap) as usize + 64);
        let mut burst = Vec::with_capacity(BURST);
        let (processor, start) = (processor_time(), Instant::now());
        let mut taken = 0u64;
        // Time spent on writing frames is no time of the forwarder: its clock stands still meanwhile.
        let mut elsewhere = Duration::ZERO;
        loop {
            let now = start.elapsed() - elsewhere;
            if now > STRETCH {
                break;
            }
            let arrived = (now.as_nanos() as f64 / self.gap) as u64;
            let count = (arrived - taken).min(BURST as u64) as usize;
            if count == 0 {
                std::hint::spin_loop();
                continue;
            }
            let began = Instant::now();
            for mut frame in self.buffers.drain(BURST - count..) {
                frame.set(&self.writer.frame(self.draw.below(FLOWS)));
                burst.push(frame);
            }
            elsewhere += began.elapsed();
            subject.take(&mut burst);
            let done = (start.elapsed() - elsewhere).as_nanos() as f64;
            for number in taken..taken + count as u64 {
                latencies.push((done - number as f64 * self.gap) as u32);
            }
            taken += count as u64;
            self.buffers.append(&mut burst);
        }
        let took = start.elapsed();
        (took <= processor_time() - processor + TOLERANCE).then_some(latencies)
    }
}
