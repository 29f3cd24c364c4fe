//! Frames that a device delivers in several buffers: one buffer holds them, or they are counted.

mod support;

use dpdk::{Mbuf, Pool, Port};
use std::{env, fs, process};

/// Bytes of the largest frame that a buffer of the pool holds behind its headroom.
const ROOM: usize = 2048;

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

#[test]
fn frames_that_fit_no_buffer_are_counted() {
    let environment = support::start();
    let room = (ROOM + 128) as u16;
    let pool = Pool::new(&environment, "packets", 1_023, room, 1).expect("there is memory");
    let file = env::temp_dir().join(format!("switchboard-long-frames-{}.pcap", process::id()));
    fs::write(&file, capture(&[1_500, 3_000, ROOM, 9_000, 60])).expect("the capture is written");
    let device = format!("net_pcap0,rx_pcap={}", file.display());
    let opened = Port::open(&device, &[pool], 64);
    fs::remove_file(&file).expect("the capture is removed");
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
