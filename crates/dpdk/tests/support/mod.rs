//! DPDK for one test, without anything of the machine's.

use dpdk::Environment;

/// Starts DPDK with memory of the process alone, and no device.
pub fn start() -> Environment {
    let words = [
        "--no-huge",
        "--no-shconf",
        "--no-telemetry",
        "--no-pci",
        "--log-level=error",
        "-m",
        "32",
    ];
    Environment::start(&words.map(String::from)).expect("DPDK starts")
}
