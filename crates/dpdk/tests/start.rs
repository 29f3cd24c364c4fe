//! What DPDK finds out as it starts.

use dpdk::{Environment, cycles_per_second};

#[test]
#[cfg(target_arch = "x86_64")]
fn dpdk_knows_how_fast_the_counter_runs() {
    let words = [
        "--no-huge",
        "--no-shconf",
        "--no-telemetry",
        "--no-pci",
        "-m",
        "32",
    ];
    let words: Vec<String> = words.map(String::from).to_vec();
    let environment = Environment::start(&words).expect("DPDK starts");
    let share = environment.counter_hz() as f64 / cycles_per_second() as f64;
    assert!((0.5..2.0).contains(&share), "{share}");
    environment.clean_up();
}
