//! The processor's counter of cycles: the quickest clock there is, and as steady as the system's on processors of this century.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the counter is compared with the system's clock.
const COMPARED: Duration = Duration::from_millis(10);

/// The counter.
#[inline(always)]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and the system lets programs use it.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// How fast it counts. The first call takes some milliseconds.
pub fn cycles_per_second() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (start, first) = (Instant::now(), cycles());
        while start.elapsed() < COMPARED {
            std::hint::spin_loop();
        }
        let (took, counted) = (start.elapsed(), cycles().saturating_sub(first));
        ((counted as f64 / took.as_secs_f64()) as u64).max(1_000_000)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_keeps_up_with_the_systems_clock() {
        let rate = cycles_per_second();
        let (start, first) = (Instant::now(), cycles());
        std::thread::sleep(Duration::from_millis(50));
        let seconds = (cycles() - first) as f64 / rate as f64;
        let share = seconds / start.elapsed().as_secs_f64();
        assert!((0.8..1.2).contains(&share), "{share}");
    }
}
