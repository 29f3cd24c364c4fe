//! Bursts: compute where all keys may lie and ask the cache for it, then look.

use crate::bucket::Bucket;
use crate::entry::{FIRST, Found, Position, SECOND};
use crate::hash::{Hasher, Prf};
use crate::key::FlowKey;
use crate::table::{FlowTable, Probe};

/// Keys that one burst may hold; longer slices are looked up in bursts of this size.
pub const BURST: usize = 64;

impl<K: FlowKey> FlowTable<K> {
    /// Looks up a burst. `results[i]` is the connection of `keys[i]`, or nothing.
    ///
    /// # Panics
    /// The slices differ in length.
    pub fn lookup_batch(&self, keys: &[K], results: &mut [Option<Found>]) {
        assert_eq!(keys.len(), results.len(), "one result per key");
        for (keys, results) in keys.chunks(BURST).zip(results.chunks_mut(BURST)) {
            match self.hasher {
                #[cfg(target_arch = "x86_64")]
                Hasher::Aes(hash) => hash.run(|hash| self.lookup_burst(hash, keys, results)),
                Hasher::Portable(hash) => self.lookup_burst(hash, keys, results),
            }
        }
    }

    #[inline(always)]
    fn lookup_burst<H: Prf>(&self, hash: H, keys: &[K], results: &mut [Option<Found>]) {
        let mut probes = [Probe {
            addresses: keys[0].addresses(),
            head: 0,
            first: 0,
            second: 0,
        }; BURST];
        for (probe, key) in probes.iter_mut().zip(keys) {
            *probe = Self::probe_with(key, self.multiplier, |blocks| hash.hash(blocks));
            probe.first = self.shape.bucket(probe.first);
            self.memory.prefetch(probe.first);
        }
        let mut missed = [0u8; BURST];
        let mut misses = 0;
        for (i, (probe, result)) in probes.iter().zip(results.iter_mut()).enumerate() {
            *result = self.look(probe, probe.first, FIRST);
            if result.is_none() {
                missed[misses] = i as u8;
                misses += 1;
                self.memory.prefetch(self.shape.bucket(probe.second));
            }
        }
        for &i in &missed[..misses] {
            let probe = &probes[i as usize];
            results[i as usize] = self.look(probe, self.shape.bucket(probe.second), SECOND);
        }
    }

    #[inline(always)]
    fn look(&self, probe: &Probe<K::Addresses>, number: u32, place: u64) -> Option<Found> {
        let bucket = &self.memory.buckets()[number as usize];
        let slot = bucket.find(probe.addresses, probe.head | place)?;
        Some(Found {
            position: Position::new(number, slot),
            hops: bucket.hops(slot),
        })
    }
}
