//! Devices that can spread packets over queues get several, others one.

mod support;

use dpdk::{Mbuf, Pool, Port};

#[test]
fn a_device_that_can_spread_packets_gets_a_queue_for_each_worker() {
    let environment = support::start();
    let pools = ["first", "second", "third"]
        .map(|name| Pool::new(&environment, name, 1_023, 2176, 3).expect("there is memory"));
    // The null device claims to spread, and delivers on every queue.
    let (port, mut queues) = Port::open_spread("net_null0", &pools, 0, 64).expect("it opens");
    assert_eq!(queues.len(), 3);
    for (queue, pool) in queues.iter_mut().zip(pools) {
        let mut packets: Vec<Mbuf> = Vec::new();
        let before = pool.available();
        assert!(queue.receive(&mut packets) > 0);
        let count = packets.len();
        assert!(
            pool.available() < before,
            "they are in buffers of its own pool"
        );
        assert_eq!(queue.send(&mut packets), count);
    }
    // It has a key and a table that can be set, of the usual lengths.
    let spreading = port.spreading().expect("it tells");
    assert_eq!((spreading.key_length, spreading.entries), (40, 128));
    assert!(spreading.udp_v4 && spreading.udp_v6);
    let table: Vec<u16> = (0..128).map(|entry| entry % 3).collect();
    port.spread_by(vec![1; 40], &table)
        .expect("it takes key and table");
    for (key, table) in [(vec![1; 39], &table[..]), (vec![1; 40], &table[1..])] {
        assert_eq!(port.spread_by(key, table).unwrap_err().number, 22);
    }
    assert!(
        port.spread_by(vec![1; 40], &[9; 128]).is_err(),
        "it has three queues"
    );
    port.close(queues).expect("it closes");
    let opened = support::with_capture(&[60; 8], |device| Port::open_spread(device, &pools, 2, 64));
    let (port, mut queues) = opened.expect("it opens");
    assert_eq!(queues.len(), 1, "a capture cannot spread");
    assert_eq!(port.spreading(), None);
    let before = pools.map(|pool| pool.available());
    let mut packets: Vec<Mbuf> = Vec::new();
    assert_eq!(queues[0].receive(&mut packets), 8);
    let after = pools.map(|pool| pool.available());
    assert_eq!(after, [before[0], before[1], before[2] - 8]);
    packets.clear();
    port.close(queues).expect("it closes");
    for alone in [3, usize::from(u16::MAX) + 1] {
        let refused = Port::open_spread("net_null1", &pools, alone, 64);
        assert_eq!(refused.unwrap_err().number, 22, "there is no such pool");
    }
}
