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

/// Memory of this process that is backed by pages, in bytes: its resident set, and the huge pages that Linux does not count there.
pub fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let kilobytes = |name: &str| -> usize {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        let number = value.and_then(|value| value.trim().strip_suffix(" kB"));
        let number = number.and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("Linux tells {name}"))
    };
    (kilobytes("VmRSS:") + kilobytes("HugetlbPages:")) * 1024
}

/// Binds this thread to a core.
pub fn stay_on(core: usize) {
    let mut set = CpuSet::new();
    set.set(core).expect("the core exists");
    sched_setaffinity(Pid::from_raw(0), &set).expect("the core is ours");
}
