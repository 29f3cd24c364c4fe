//! DPDK's `rte_hash`, through `rte_hash.c`.

use std::ffi::{c_int, c_void};

use flow::Ipv4Key;

use crate::subject::{Subject, value};

unsafe extern "C" {
    fn peer_start(megabytes: u32) -> c_int;
    fn peer_new(entries: u32) -> *mut c_void;
    fn peer_free(hash: *mut c_void);
    fn peer_insert(hash: *mut c_void, key: *const Ipv4Key, data: u64) -> c_int;
    fn peer_remove(hash: *mut c_void, key: *const Ipv4Key) -> c_int;
    fn peer_lookup(hash: *const c_void, keys: *const Ipv4Key, count: u32) -> u64;
}

/// Keys that it looks up together at most.
const MOST: usize = 64;

/// Starts DPDK with this much memory, in small or transparent huge pages.
pub fn start(megabytes: u32) {
    // SAFETY: called once, before anything else of DPDK.
    assert_eq!(unsafe { peer_start(megabytes) }, 0, "DPDK does not start");
}

/// One `rte_hash`.
pub struct RteHash(*mut c_void);

impl RteHash {
    /// An empty table for this many entries.
    pub fn new(entries: u32) -> Self {
        // SAFETY: DPDK was started.
        let hash = unsafe { peer_new(entries) };
        assert!(!hash.is_null(), "rte_hash_create failed");
        Self(hash)
    }
}

impl Drop for RteHash {
    fn drop(&mut self) {
        // SAFETY: made by `peer_new`.
        unsafe { peer_free(self.0) }
    }
}

impl Subject for RteHash {
    fn name(&self) -> &'static str {
        "rte_hash"
    }

    fn lookup(&mut self, keys: &[Ipv4Key]) -> u64 {
        let parts = keys.chunks(MOST);
        // SAFETY: keys are 16 bytes without padding, and at most as many of them.
        parts
            .map(|keys| unsafe { peer_lookup(self.0, keys.as_ptr(), keys.len() as u32) })
            .sum()
    }

    fn insert(&mut self, keys: &[Ipv4Key]) {
        for key in keys {
            // SAFETY: a live table and a key of 16 bytes.
            assert_eq!(
                unsafe { peer_insert(self.0, key, u64::from(value(key))) },
                0,
                "rte_hash is full"
            );
        }
    }

    fn remove(&mut self, key: &Ipv4Key) {
        // SAFETY: a live table and a key of 16 bytes.
        assert_eq!(unsafe { peer_remove(self.0, key) }, 0, "was inserted");
    }
}
