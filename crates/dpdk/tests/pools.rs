//! Buffers lie one behind the other: AF_XDP's driver shows the kernel as many bytes as they have without gaps.

mod support;

use dpdk::{Mbuf, Pool};
use std::thread;

const COUNT: u32 = 2_047;
const ROOM: u16 = 2_176;
/// Bytes of a buffer beside its room: what a pool writes before it, and `struct rte_mbuf`.
const BESIDE: usize = 64 + 128;

#[test]
fn buffers_of_a_pool_have_no_gaps_between_them() {
    let environment = support::start();
    let pool = Pool::new(&environment, "packets", COUNT, ROOM, 1).expect("there is memory");
    assert_eq!(pool.available(), COUNT);
    assert_eq!(pool.common(), COUNT);
    // Whoever makes the pool keeps none of them from others.
    let all = || std::iter::from_fn(|| pool.allocate()).collect();
    let held: Vec<Mbuf> = thread::scope(|scope| scope.spawn(all).join()).expect("a thread");
    assert_eq!(held.len(), COUNT as usize);
    let mut at: Vec<usize> = held
        .iter()
        .map(|mbuf| mbuf.data().as_ptr().addr())
        .collect();
    at.sort_unstable();
    let distances: Vec<usize> = at.windows(2).map(|two| two[1] - two[0]).collect();
    let bytes = usize::from(ROOM) + BESIDE;
    // The distance may be larger, for the sake of memory channels, but is the same everywhere.
    assert!(
        (bytes..bytes + 512).contains(&distances[0]),
        "{}",
        distances[0]
    );
    assert!(distances.iter().all(|distance| *distance == distances[0]));
}
