//! DPDK's `rte_hash`, through `peers/rte_hash.c`.

use flow::{Found, Hit, Hops, Ipv4Key, Position};
use std::ffi::{c_int, c_void};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

unsafe extern "C" {
    fn peer_new(entries: u32) -> *mut c_void;
    fn peer_free(hash: *mut c_void);
    fn peer_insert(hash: *mut c_void, key: *const Ipv4Key, data: u64) -> c_int;
    fn peer_lookup(hash: *const c_void, keys: *const Ipv4Key, count: u32, data: *mut u64) -> u64;
}

/// Connections it looks up together at most.
pub const MOST: usize = 64;

/// A table of connections: their hops, and where packets of each are noted.
pub struct RteHash {
    hash: *mut c_void,
    /// Whether packets of each connection are noted in its own entry; all in one if not.
    notes: Arc<AtomicBool>,
}

// SAFETY: any one thread at a time may use an `rte_hash`, and this value is its only owner.
unsafe impl Send for RteHash {}

impl RteHash {
    /// An empty table for this many entries.
    pub fn new(_: &dpdk::Environment, entries: u32) -> RteHash {
        // SAFETY: DPDK has started.
        let hash = unsafe { peer_new(entries) };
        assert!(!hash.is_null(), "there is no memory for rte_hash");
        RteHash {
            hash,
            notes: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Whether packets of each connection are noted in its own entry. If not, all notes go to one entry, and wait for no memory.
    pub fn notes(&self) -> Arc<AtomicBool> {
        self.notes.clone()
    }

    /// Adds a connection.
    pub fn insert(&mut self, key: &Ipv4Key, found: Found) {
        let (position, hops) = (found.position, found.hops());
        let ends = u64::from(hops.upstream) | u64::from(hops.downstream) << 16;
        let data = ends | u64::from(position.number().get()) << 32;
        // SAFETY: a live table and a key of 16 bytes.
        let result = unsafe { peer_insert(self.hash, key, data) };
        assert_eq!(result, 0, "rte_hash has room");
    }

    /// Looks up at most [`MOST`] connections.
    #[inline]
    pub fn look_up(&self, keys: &[Ipv4Key], results: &mut [Hit]) {
        let mut data = [0u64; MOST];
        // SAFETY: at most as many keys, of 16 bytes without padding, and room for their values.
        let hits = unsafe {
            peer_lookup(
                self.hash,
                keys.as_ptr(),
                keys.len().min(MOST) as u32,
                data.as_mut_ptr(),
            )
        };
        let each = match self.notes.load(Relaxed) {
            true => u32::MAX,
            false => 0,
        };
        for (index, result) in results.iter_mut().enumerate() {
            let hops = Hops {
                upstream: data[index] as u16,
                downstream: (data[index] >> 16) as u16,
                opener: 0,
            };
            // The number of any entry is odd.
            let number = NonZeroU32::MIN | (data[index] >> 32) as u32 & each;
            let position = Position::of_number(number);
            let found = Found::elsewhere(position, hops);
            *result = (hits >> index & 1 == 1).then_some(found).into();
        }
    }
}

impl Drop for RteHash {
    fn drop(&mut self) {
        // SAFETY: made by `peer_new`.
        unsafe { peer_free(self.hash) }
    }
}
