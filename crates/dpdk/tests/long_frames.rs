//! Frames that a device delivers in several buffers: one buffer holds them, or they are counted.

mod support;

use dpdk::{Mbuf, Pool, Port};

/// Bytes of the largest frame that a buffer of the pool holds behind its headroom.
const ROOM: usize = 2048;

#[test]
fn frames_that_fit_no_buffer_are_counted() {
    let environment = support::start();
    let room = (ROOM + 128) as u16;
    let pool = Pool::new(&environment, "packets", 1_023, room, 1).expect("there is memory");
    let opened = support::with_capture(&[1_500, 3_000, ROOM, 9_000, 60], |device| {
        Port::open(device, &[pool], 64)
    });
    let (port, mut queues) = opened.expect("it opens");
    let mut packets: Vec<Mbuf> = Vec::new();
    while queues[0].receive(&mut packets) > 0 {}
    let lengths: Vec<usize> = packets.iter().map(|packet| packet.data().len()).collect();
    assert_eq!(lengths, [1_500, ROOM, 60]);
    assert_eq!(queues[0].too_long(), 2);
    assert_eq!(queues[0].too_long(), 0, "each is told once");
    packets.clear();
    port.close(queues).expect("it closes");
}
