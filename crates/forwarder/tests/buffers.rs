//! Frames that no buffer holds are dropped by name. A test of its own process: DPDK starts once in each.

use dpdk::Environment;
use forwarder::buffers::Buffers;
use forwarder::counters::Drop;

#[test]
fn a_frame_that_is_too_long_and_one_that_finds_no_buffer_have_their_names() {
    let words = [
        "--no-huge",
        "--no-shconf",
        "--no-telemetry",
        "--no-pci",
        "--log-level=error",
        "-m",
        "64",
    ];
    let environment = Environment::start(&words.map(String::from)).expect("DPDK starts");
    let of_two = Buffers::of_workers(&environment, 126, 2).expect("there is memory");
    let [buffers, others] = of_two.as_slice() else {
        panic!("not those of two workers");
    };
    let refused = buffers.hold(&[0; 2_305]).map(drop);
    assert_eq!(refused, Err(Drop::FrameTooLong));
    let mut held = Vec::new();
    let refused = loop {
        match buffers.hold(&[0; 60]) {
            Ok(buffer) => held.push(buffer),
            Err(reason) => break reason,
        }
    };
    assert_eq!((held.len(), refused), (63, Drop::NoBuffer));
    assert!(
        others.hold(&[0; 60]).is_ok(),
        "the other worker has its own"
    );
    held.clear();
    assert!(buffers.hold(&[0; 60]).is_ok(), "they are free again");
}
