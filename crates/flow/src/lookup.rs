//! Bursts: compute where all keys may lie and ask the cache for it, then look.

use crate::bucket::{Bucket, Match};
use crate::engine::{Engine, Task};
use crate::entry::{FIRST, Found, Position, SECOND};
use crate::key::FlowKey;
use crate::probe::Wanted;
use crate::table::FlowTable;

/// Keys that one burst may hold; longer slices are looked up in bursts of this size.
pub const BURST: usize = 64;
/// Keys between two rounds of fetching the second buckets of those that were not in their first.
const CHUNK: usize = 16;

struct LookUp<'a, K: FlowKey> {
    table: &'a FlowTable<K>,
    keys: &'a [K],
    results: &'a mut [Option<Found>],
}

impl<K: FlowKey> Task for LookUp<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<E: Engine>(self, engine: E) {
        self.table.lookup_burst(engine, self.keys, self.results);
    }
}

impl<K: FlowKey> FlowTable<K> {
    /// Looks up a burst. `results[i]` is the connection of `keys[i]`, or nothing.
    ///
    /// # Panics
    /// The slices differ in length.
    pub fn lookup_batch(&self, keys: &[K], results: &mut [Option<Found>]) {
        assert_eq!(keys.len(), results.len(), "one result per key");
        for (keys, results) in keys.chunks(BURST).zip(results.chunks_mut(BURST)) {
            self.engine.run(LookUp {
                table: self,
                keys,
                results,
            });
        }
    }

    #[inline(always)]
    fn lookup_burst<E: Engine>(&self, engine: E, keys: &[K], results: &mut [Option<Found>]) {
        let lines = self.memory.buckets();
        let mut wanted = [Wanted {
            addresses: keys[0].addresses(),
            head: 0,
        }; BURST];
        let mut buckets = [[0; 2]; BURST];
        let parts = keys
            .chunks(CHUNK)
            .zip(wanted.chunks_mut(CHUNK))
            .zip(buckets.chunks_mut(CHUNK));
        for ((keys, wanted), buckets) in parts {
            let (wanted, buckets) = (&mut wanted[..keys.len()], &mut buckets[..keys.len()]);
            K::probe_each(engine, self.mixer, self.shape, keys, wanted, buckets);
            for [first, _] in buckets {
                self.memory.prefetch(*first);
            }
        }
        // One in five is in its second bucket, unpredictably: the list grows without a branch, and is dealt with a
        // few keys at a time.
        let mut missed = [0u8; BURST];
        let (mut misses, mut prefetched) = (0, 0);
        for (chunk, results) in results.chunks_mut(CHUNK).enumerate() {
            for (i, result) in results.iter_mut().enumerate() {
                let i = (chunk * CHUNK + i) % BURST;
                *result = look(engine, lines, &wanted[i], buckets[i][0], FIRST);
                missed[misses % BURST] = i as u8;
                misses += usize::from(result.is_none());
            }
            while prefetched < misses {
                self.memory
                    .prefetch(buckets[usize::from(missed[prefetched % BURST]) % BURST][1]);
                prefetched += 1;
            }
        }
        for &i in &missed[..misses] {
            let i = usize::from(i) % BURST;
            results[i] = look(engine, lines, &wanted[i], buckets[i][1], SECOND);
        }
    }
}

/// Looks in one bucket, without a branch.
#[inline(always)]
pub(crate) fn look<E: Engine, B: Bucket>(
    engine: E,
    buckets: &[B],
    wanted: &Wanted<B::Addresses>,
    number: u32,
    place: u64,
) -> Option<Found> {
    let bucket = &buckets[number as usize];
    let Match { found, slot } = bucket.find(engine, wanted.addresses, wanted.head | place);
    let hops = bucket.hops(slot);
    Position::if_found(found, number, slot).map(|position| Found { position, hops })
}
