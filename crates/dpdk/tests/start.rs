//! What DPDK finds out as it starts.

mod support;

use dpdk::cycles_per_second;

#[test]
#[cfg(target_arch = "x86_64")]
fn dpdk_knows_how_fast_the_counter_runs() {
    let environment = support::start();
    let share = environment.counter_hz() as f64 / cycles_per_second() as f64;
    assert!((0.5..2.0).contains(&share), "{share}");
    environment.clean_up();
}
