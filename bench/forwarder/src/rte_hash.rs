//! DPDK's `rte_hash`, through `peers/rte_hash.c`.

use flow::{Hops, Ipv4Key};
use std::ffi::{c_int, c_void};

unsafe extern "C" {
    fn peer_new(entries: u32) -> *mut c_void;
    fn peer_free(hash: *mut c_void);
    fn peer_insert(hash: *mut c_void, key: *const Ipv4Key, data: u64) -> c_int;
    fn peer_lookup(hash: *const c_void, keys: *const Ipv4Key, count: u32, data: *mut u64) -> u64;
}

/// A table of connections.
pub struct RteHash(*mut c_void);

// SAFETY: any one thread at a time may use an `rte_hash`, and this value is its only owner.
unsafe impl Send for RteHash {}

impl RteHash {
    /// An empty table for this many entries.
    pub fn new(_: &dpdk::Environment, entries: u32) -> RteHash {
        // SAFETY: DPDK has started.
        let hash = unsafe { peer_new(entries) };
        assert!(!hash.is_null(), "there is no memory for rte_hash");
        RteHash(hash)
    }

    /// Adds a connection.
    pub fn insert(&mut self, key: &Ipv4Key, hops: Hops) {
        let data = u64::from(hops.upstream) | u64::from(hops.downstream) << 16;
        // SAFETY: a live table and a key of 16 bytes.
        let result = unsafe { peer_insert(self.0, key, data) };
        assert_eq!(result, 0, "rte_hash has room");
    }

    /// Looks up at most 64 connections.
    #[inline]
    pub fn look_up(&self, keys: &[Ipv4Key], results: &mut [Option<Hops>]) {
        let mut data = [0u64; 64];
        // SAFETY: at most 64 keys of 16 bytes without padding, and room for 64 values.
        let hits = unsafe {
            peer_lookup(
                self.0,
                keys.as_ptr(),
                keys.len().min(64) as u32,
                data.as_mut_ptr(),
            )
        };
        for (index, result) in results.iter_mut().enumerate() {
            *result = (hits >> index & 1 == 1).then(|| Hops {
                upstream: data[index] as u16,
                downstream: (data[index] >> 16) as u16,
                tag: 0,
            });
        }
    }
}

impl Drop for RteHash {
    fn drop(&mut self) {
        // SAFETY: made by `peer_new`.
        unsafe { peer_free(self.0) }
    }
}
