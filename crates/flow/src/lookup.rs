//! Bursts: compute where all keys may lie and ask the cache for it, then look.

use crate::bucket::{Bucket, Match};
use crate::engine::{Engine, with_engine};
use crate::entry::{FIRST, Found, Position, SECOND};
use crate::key::FlowKey;
use crate::table::{FlowTable, Probe};

/// Keys that one burst may hold; longer slices are looked up in bursts of this size.
pub const BURST: usize = 64;
/// Keys between two rounds of fetching the second buckets of those that were not in their first.
const CHUNK: usize = 16;

impl<K: FlowKey> FlowTable<K> {
    /// Looks up a burst. `results[i]` is the connection of `keys[i]`, or nothing.
    ///
    /// # Panics
    /// The slices differ in length.
    pub fn lookup_batch(&self, keys: &[K], results: &mut [Option<Found>]) {
        assert_eq!(keys.len(), results.len(), "one result per key");
        for (keys, results) in keys.chunks(BURST).zip(results.chunks_mut(BURST)) {
            with_engine!(self.engine, |engine| self
                .lookup_burst(engine, keys, results));
        }
    }

    #[inline(always)]
    fn lookup_burst<E: Engine>(&self, engine: E, keys: &[K], results: &mut [Option<Found>]) {
        let (buckets, shape) = (self.memory.buckets(), self.shape);
        let mut probes = [Probe {
            addresses: keys[0].addresses(),
            head: 0,
            first: 0,
            second: 0,
        }; BURST];
        for (probe, key) in probes.iter_mut().zip(keys) {
            *probe = self.probe(engine, key);
            probe.first = shape.bucket(probe.first);
            self.memory.prefetch(probe.first);
        }
        // One in five is in its second bucket, unpredictably: the list grows without a branch, and is dealt with a
        // few keys at a time.
        let mut missed = [0u8; BURST];
        let (mut misses, mut prefetched) = (0, 0);
        for (chunk, results) in results.chunks_mut(CHUNK).enumerate() {
            for (i, result) in results.iter_mut().enumerate() {
                let i = (chunk * CHUNK + i) & (BURST - 1);
                *result = look(engine, buckets, &probes[i], probes[i].first, FIRST);
                missed[misses & (BURST - 1)] = i as u8;
                misses += usize::from(result.is_none());
            }
            while prefetched < misses {
                let probe =
                    &mut probes[usize::from(missed[prefetched & (BURST - 1)]) & (BURST - 1)];
                probe.second = shape.bucket(probe.second);
                self.memory.prefetch(probe.second);
                prefetched += 1;
            }
        }
        for &i in &missed[..misses] {
            let i = usize::from(i) & (BURST - 1);
            results[i] = look(engine, buckets, &probes[i], probes[i].second, SECOND);
        }
    }
}

/// Looks in one bucket, without a branch.
#[inline(always)]
pub(crate) fn look<E: Engine, B: Bucket>(
    engine: E,
    buckets: &[B],
    probe: &Probe<B::Addresses>,
    number: u32,
    place: u64,
) -> Option<Found> {
    let bucket = &buckets[number as usize];
    let Match { found, slot } = bucket.find(engine, probe.addresses, probe.head | place);
    let hops = bucket.hops(slot);
    Position::if_found(found, number, slot).map(|position| Found { position, hops })
}
