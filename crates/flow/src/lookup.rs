//! Bursts: compute where all keys may lie and ask the cache for it, then look.

use crate::bucket::Bucket;
use crate::engine::{Engine, Task};
use crate::entry::{FIRST, Hit, SECOND};
use crate::fetching::Fetching;
use crate::key::FlowKey;
use crate::probe::Wanted;
use crate::table::FlowTable;

/// Keys that one burst may hold, a power of two; longer slices are looked up in bursts of this size.
pub const BURST: usize = 256;
// Positions in a burst are kept in bytes, and made to fit without a branch.
const _: () = assert!(BURST <= 1 + u8::MAX as usize && BURST.is_power_of_two());

/// A burst of look-ups under way: where its keys may lie, on its way from memory while its owner does something else.
pub struct Lookups<K: FlowKey> {
    pub(crate) wanted: [Wanted<K::Addresses>; BURST],
    buckets: [[u32; 2]; BURST],
    pub(crate) count: usize,
    /// What the table had noted when they were looked up ([`FlowTable::noting_found`]).
    pub(crate) noted: u64,
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
            noted: 0,
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

/// Keys of a burst that were not in their first buckets.
pub struct Missed {
    keys: [u8; BURST],
    count: usize,
}

impl Missed {
    /// No keys.
    pub const NONE: Missed = Missed {
        keys: [0; BURST],
        count: 0,
    };
}

struct Look<'a, K: FlowKey> {
    table: &'a FlowTable<K>,
    lookups: &'a Lookups<K>,
    results: &'a mut [Hit],
    missed: &'a mut Missed,
}

impl<K: FlowKey> Task for Look<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<E: Engine>(self, engine: E) {
        self.table
            .look_with(engine, self.lookups, self.results, self.missed);
    }
}

struct LookAgain<'a, K: FlowKey> {
    table: &'a FlowTable<K>,
    lookups: &'a Lookups<K>,
    results: &'a mut [Hit],
    missed: &'a Missed,
}

impl<K: FlowKey> Task for LookAgain<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<E: Engine>(self, engine: E) {
        self.table
            .look_again_with(engine, self.lookups, self.results, self.missed);
    }
}

impl<K: FlowKey> FlowTable<K> {
    /// Looks up a burst. `results[i]` is what came of `keys[i]`.
    ///
    /// # Panics
    /// The slices differ in length.
    pub fn lookup_batch(&self, keys: &[K], results: &mut [Hit]) {
        assert_eq!(keys.len(), results.len(), "one result per key");
        let Some(first) = keys.first() else {
            return;
        };
        let (mut lookups, mut missed) = (Lookups::new(first), Missed::NONE);
        for (keys, results) in keys.chunks(BURST).zip(results.chunks_mut(BURST)) {
            lookups.clear();
            self.fetch(keys, &mut lookups);
            self.look(&mut lookups, results, &mut missed);
            self.look_again(&lookups, results, &missed);
        }
    }

    /// Asks the cache for where some keys may lie, behind those asked for already: as many as fit in a burst of
    /// [`BURST`]. It is best done [`FlowTable::fetch_at_once`] at a time, as soon as they are known.
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

    /// How many keys are best asked for at once ([`Fetching`]), [`crate::FETCH`] at most.
    #[inline]
    pub fn fetch_at_once(&self) -> usize {
        self.fetching.at_once()
    }

    /// Looks up what was asked for, all of it by this table and since it last changed: the first half, which looks into first
    /// buckets, and asks the cache for the second ones of those in `missed` then. Whoever has other work does it before the
    /// second half. `results[i]` is what came of the `i`-th key; those behind the last key are left alone.
    #[inline]
    pub fn look(&self, lookups: &mut Lookups<K>, results: &mut [Hit], missed: &mut Missed) {
        lookups.noted = self.noted;
        #[cfg(feature = "substitute")]
        if let Some(other) = &self.substitute {
            // What it says is not what entries say.
            (missed.count, lookups.noted) = (0, u64::MAX);
            return self.look_by(&**other, lookups, results);
        }
        self.engine.run(Look {
            table: self,
            lookups,
            results,
            missed,
        });
    }

    /// The second half of a look-up, with what [`FlowTable::look`] left; the table has not changed since.
    #[inline]
    pub fn look_again(&self, lookups: &Lookups<K>, results: &mut [Hit], missed: &Missed) {
        if missed.count > 0 {
            self.engine.run(LookAgain {
                table: self,
                lookups,
                results,
                missed,
            });
        }
    }

    #[inline(always)]
    fn fetch_with<E: Engine>(&self, engine: E, keys: &[K], lookups: &mut Lookups<K>) {
        let start = lookups.count.min(BURST);
        let keys = &keys[..keys.len().min(BURST - start)];
        let wanted = &mut lookups.wanted[start..start + keys.len()];
        let buckets = &mut lookups.buckets[start..start + keys.len()];
        lookups.count = start + keys.len();
        let at_once = self.fetching.at_once();
        let parts = keys
            .chunks(at_once)
            .zip(wanted.chunks_mut(at_once))
            .zip(buckets.chunks_mut(at_once));
        for ((keys, wanted), buckets) in parts {
            K::probe_each(engine, self.mixer, self.shape, keys, wanted, buckets);
            for [first, _] in buckets {
                self.memory.prefetch(*first);
            }
        }
    }

    #[inline(always)]
    fn look_with<E: Engine>(
        &self,
        engine: E,
        lookups: &Lookups<K>,
        results: &mut [Hit],
        missed: &mut Missed,
    ) {
        if self.fetching != Fetching::Dense {
            return self.look_first::<E, true>(engine, lookups, results, missed);
        }
        self.look_first::<E, false>(engine, lookups, results, missed);
        for &at in &missed.keys[..missed.count.min(BURST)] {
            self.memory.prefetch(lookups.buckets[usize::from(at)][1]);
        }
    }

    /// Looks into first buckets. `SPREAD`: asks for the second one of each key at once. Of one that was found this asks for the
    /// first one again, which is there.
    #[inline(always)]
    fn look_first<E: Engine, const SPREAD: bool>(
        &self,
        engine: E,
        lookups: &Lookups<K>,
        results: &mut [Hit],
        missed: &mut Missed,
    ) {
        let lines = self.memory.buckets();
        let count = lookups.count.min(BURST);
        let keys = lookups.wanted[..count].iter().zip(&lookups.buckets);
        for ((wanted, buckets), result) in keys.zip(&mut *results) {
            *result = look(engine, lines, wanted, buckets[0], FIRST);
            if SPREAD {
                let is_missed = usize::from(!result.is_found());
                self.memory.prefetch(buckets[is_missed]);
            }
        }
        let count = count.min(results.len());
        missed.count = engine.missed(&results[..count], &mut missed.keys);
    }

    #[inline(always)]
    fn look_again_with<E: Engine>(
        &self,
        engine: E,
        lookups: &Lookups<K>,
        results: &mut [Hit],
        missed: &Missed,
    ) {
        let lines = self.memory.buckets();
        for &at in &missed.keys[..missed.count.min(BURST)] {
            let at = usize::from(at);
            let (wanted, buckets) = (&lookups.wanted[at], lookups.buckets[at]);
            let found = look(engine, lines, wanted, buckets[1], SECOND);
            if !found.is_found() {
                self.expect(engine, buckets);
            }
            if let Some(result) = results.get_mut(at) {
                *result = found;
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
) -> Hit {
    let bucket = &buckets[number as usize];
    let found = bucket.find(engine, wanted, place);
    Hit::new(number, found, bucket.said_of(&found))
}
