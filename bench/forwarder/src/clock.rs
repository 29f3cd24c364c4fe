//! Time that a thread has had a core: what others on the machine take does not count.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Processor time of this thread so far.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    Duration::new(time.tv_sec() as u64, time.tv_nsec() as u32)
}

/// Processor time of another process's first thread whose name ends so.
pub fn processor_time_of(process: u32, ending: &str) -> Option<Duration> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    for task in tasks.flatten() {
        let path = task.path();
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.trim_end().ends_with(ending) {
            let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
            return text
                .split(' ')
                .next()?
                .parse()
                .ok()
                .map(Duration::from_nanos);
        }
    }
    None
}

/// The middle of some measurements.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
