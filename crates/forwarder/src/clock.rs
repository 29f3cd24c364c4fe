//! The workers' clock.

use nix::time::{ClockId, clock_gettime};

/// Seconds since the machine was started: every process reads the same, so that a kept flow table goes on ageing.
#[inline]
pub fn seconds() -> u32 {
    // Without a clock nothing would age; Linux always has this one.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| time.tv_sec() as u32)
}
