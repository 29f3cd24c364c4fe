//! DPDK for one test, without anything of the machine's.

use dpdk::Environment;
use std::{env, fs, process};

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

/// Lets something be done with a device, by its devargs, that delivers frames of these lengths.
#[allow(dead_code, reason = "not every test has one")]
pub fn with_capture<T>(lengths: &[usize], open: impl FnOnce(&str) -> T) -> T {
    let file = env::temp_dir().join(format!("switchboard-dpdk-{}.pcap", process::id()));
    fs::write(&file, capture(lengths)).expect("the capture is written");
    let opened = open(&format!("net_pcap0,rx_pcap={}", file.display()));
    fs::remove_file(&file).expect("the capture is removed");
    opened
}

/// A capture of Ethernet frames of these lengths, as pcap files have it.
fn capture(lengths: &[usize]) -> Vec<u8> {
    let words = [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 65_535, 1];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for &length in lengths {
        let words = [0, 0, length as u32, length as u32];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(std::iter::repeat_n(0xa5, length));
    }
    bytes
}
