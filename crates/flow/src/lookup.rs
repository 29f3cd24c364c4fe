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

/// Keys that may be fetched for before the next ones are known.
pub const FETCH: usize = CHUNK;

/// A burst of look-ups under way: where its keys may lie, on its way from memory while its owner does something else.
pub struct Lookups<K: FlowKey> {
    pub(crate) wanted: [Wanted<K::Addresses>; BURST],
    buckets: [[u32; 2]; BURST],
    pub(crate) count: usize,
}

impl<K: FlowKey> Lookups<K> {
    /// No keys yet. `any` is a key of no meaning.
    pub fn new(any: &K) -> Lookups<K> {
        let none = Wanted {
            addresses: any.addresses(),
            head: 0,
        };
        Lookups {
            wanted: [none; BURST],
            buckets: [[0; 2]; BURST],
            count: 0,
        }
    }

    /// Keys fetched for.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Begins a new burst.
    #[inline]
    pub fn clear(&mut self) {
        self.count = 0;
    }
}

struct Fetch<'a, K: FlowKey> {
    table: &'a FlowTable<K>,
    keys: &'a [K],
    lookups: &'a mut Lookups<K>,
}

impl<K: FlowKey> Task for Fetch<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<E: Engine>(self, engine: E) {
        self.table.fetch_with(engine, self.keys, self.lookups);
    }
}

struct Answer<'a, K: FlowKey> {
    table: &'a FlowTable<K>,
    lookups: &'a Lookups<K>,
    results: &'a mut [Option<Found>],
}

impl<K: FlowKey> Task for Answer<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<E: Engine>(self, engine: E) {
        self.table.answer_with(engine, self.lookups, self.results);
    }
}

impl<K: FlowKey> FlowTable<K> {
    /// Looks up a burst. `results[i]` is the connection of `keys[i]`, or nothing.
    ///
    /// # Panics
    /// The slices differ in length.
    pub fn lookup_batch(&self, keys: &[K], results: &mut [Option<Found>]) {
        assert_eq!(keys.len(), results.len(), "one result per key");
        let Some(first) = keys.first() else {
            return;
        };
        let mut lookups = Lookups::new(first);
        for (keys, results) in keys.chunks(BURST).zip(results.chunks_mut(BURST)) {
            lookups.clear();
            self.fetch(keys, &mut lookups);
            self.answer(&lookups, results);
        }
    }

    /// Asks the cache for where some keys may lie, behind those asked for already: as many as fit in a burst of
    /// [`BURST`]. It is best done [`FETCH`] at a time, as soon as they are known.
    #[inline]
    pub fn fetch(&self, keys: &[K], lookups: &mut Lookups<K>) {
        #[cfg(feature = "substitute")]
        if self.substitute.is_some() {
            return self.keep(keys, lookups);
        }
        self.engine.run(Fetch {
            table: self,
            keys,
            lookups,
        });
    }

    /// Looks up what was asked for, all of it by this table and since it last changed. `results[i]` is the connection of
    /// the `i`-th key, or nothing; those behind the last key are left alone.
    #[inline]
    pub fn answer(&self, lookups: &Lookups<K>, results: &mut [Option<Found>]) {
        #[cfg(feature = "substitute")]
        if let Some(other) = &self.substitute {
            return self.answer_by(&**other, lookups, results);
        }
        self.engine.run(Answer {
            table: self,
            lookups,
            results,
        });
    }

    #[inline(always)]
    fn fetch_with<E: Engine>(&self, engine: E, keys: &[K], lookups: &mut Lookups<K>) {
        let start = lookups.count.min(BURST);
        let keys = &keys[..keys.len().min(BURST - start)];
        let wanted = &mut lookups.wanted[start..start + keys.len()];
        let buckets = &mut lookups.buckets[start..start + keys.len()];
        lookups.count = start + keys.len();
        let parts = keys
            .chunks(CHUNK)
            .zip(wanted.chunks_mut(CHUNK))
            .zip(buckets.chunks_mut(CHUNK));
        for ((keys, wanted), buckets) in parts {
            K::probe_each(engine, self.mixer, self.shape, keys, wanted, buckets);
            for [first, _] in buckets {
                self.memory.prefetch(*first);
            }
        }
    }

    #[inline(always)]
    fn answer_with<E: Engine>(
        &self,
        engine: E,
        lookups: &Lookups<K>,
        results: &mut [Option<Found>],
    ) {
        let Lookups {
            wanted,
            buckets,
            count,
        } = lookups;
        let count = (*count).min(BURST).min(results.len());
        let results = &mut results[..count];
        let lines = self.memory.buckets();
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
            if results[i].is_none() {
                self.expect(engine, buckets[i]);
            }
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
