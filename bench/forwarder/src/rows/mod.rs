//! Rows of the table of figures.

pub mod latency;
pub mod observability;
pub mod over_ports;
pub mod overheads;
pub mod speed;
pub mod tcp;
pub mod two_cores;

use dpdk::{Environment, Pool};
use flow::PagesAhead;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::time::Duration;

/// What every row is measured with.
pub struct Bench {
    /// DPDK, in this process.
    pub environment: Environment,
    /// Buffers.
    pub pool: Pool,
    /// Repetitions of which the median counts.
    pub repetitions: u64,
    /// Processor time of one repetition.
    pub round: Duration,
    /// The core that is measured.
    pub core: usize,
    /// Another core, for whatever drives the measurement.
    pub other_core: usize,
    /// What brings in the memory that flow tables grow into, on the other core.
    pub ahead: PagesAhead,
    /// Whether the rows of 30 million connections are measured.
    pub large: bool,
    /// The forwarder's program.
    pub forwarder: std::path::PathBuf,
}

/// Bytes for 31 million connections and some more.
pub const MEMORY_LIMIT: usize = 860 << 20;
/// Connections of the largest rows.
pub const LARGE: u32 = 30_000_000;

/// Memory of this process that is backed by pages, in bytes.
pub fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1);
    pages
        .and_then(|pages| pages.parse::<usize>().ok())
        .unwrap_or(0)
        * 4096
}

/// Binds this thread to a core.
pub fn stay_on(core: usize) {
    let mut set = CpuSet::new();
    set.set(core).expect("the core exists");
    sched_setaffinity(Pid::from_raw(0), &set).expect("the core is ours");
}
