//! Time that a thread has had a core: what others on the machine take does not count.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Processor time of this thread so far.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    Duration::new(time.tv_sec() as u64, time.tv_nsec() as u32)
}

/// Processor time of another process, all its threads together.
pub fn processor_time_of(process: u32) -> Option<Duration> {
    let process = nix::unistd::Pid::from_raw(process as i32);
    let clock = nix::time::clock_getcpuclockid(process).ok()?;
    let time = clock_gettime(clock).ok()?;
    Some(Duration::new(time.tv_sec() as u64, time.tv_nsec() as u32))
}

/// The middle of some measurements.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The least of some measurements: for times by the wall clock, to which whatever else happens only adds.
pub fn least(values: Vec<f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// What it takes to ask for the time twice in a row.
pub fn reading_cost() -> Duration {
    let pair = || {
        let start = processor_time();
        processor_time() - start
    };
    let mut pairs: Vec<Duration> = (0..1_001).map(|_| pair()).collect();
    pairs.sort_unstable();
    pairs[pairs.len() / 2]
}
