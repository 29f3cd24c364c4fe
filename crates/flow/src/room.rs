//! Making room: growing bucket by bucket, and moving entries to their other bucket (cuckoo hashing, breadth first).

use std::hint::select_unpredictable;

use crate::bucket::Bucket;
use crate::engine::{Engine, Task};
use crate::entry::{FIRST, PLACE_MASK, SECOND};
use crate::key::FlowKey;
use crate::probe::Hashes;
use crate::table::FlowTable;

/// The table grows when more than this share of its slots is in use: 27.3 bytes per IPv4 entry.
pub(crate) const COMFORTABLE: (usize, usize) = (25, 32);
/// Buckets that a search for a free slot may visit, at most and at least. Every search that fails at the bound
/// halves the effort and every one that succeeds doubles it, so that refusing a flood of new connections is cheap.
pub(crate) const SEARCH: usize = 512;
const LEAST_SEARCH: usize = 16;
/// Buckets to add at once when a search failed below the bound, and how often.
const RELIEF: (u32, usize) = (64, 8);
/// How far ahead of the split the next ones are fetched.
const SPLIT_AHEAD: u32 = 8;

/// A bucket reached by a search: what must leave which bucket to come here.
#[derive(Clone, Copy)]
pub(crate) struct Reached {
    bucket: u32,
    /// Index of the bucket it was reached from; itself for the two buckets of the new key.
    from: u16,
    /// Slot there.
    slot: u8,
    place: u8,
}

struct Split<'a, K: FlowKey>(&'a mut FlowTable<K>);

impl<K: FlowKey> Task for Split<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<E: Engine>(self, engine: E) {
        self.0.split(engine);
    }
}

struct Search<'a, K: FlowKey> {
    table: &'a mut FlowTable<K>,
    hashes: Hashes,
    reached: &'a mut Vec<Reached>,
}

impl<K: FlowKey> Task for Search<'_, K> {
    type Output = Option<(u32, usize, u64)>;

    #[inline(always)]
    fn run<E: Engine>(self, engine: E) -> Self::Output {
        self.table.search(engine, self.hashes, self.reached)
    }
}

impl<K: FlowKey> FlowTable<K> {
    /// Adds a bucket if the table is fuller than is comfortable and the bound allows.
    #[inline(always)]
    pub(crate) fn grow_if_loaded<E: Engine>(&mut self, engine: E) {
        let comfortable =
            self.shape.buckets() as usize * K::Bucket::SLOTS / COMFORTABLE.1 * COMFORTABLE.0;
        if self.entries >= comfortable && self.shape.buckets() < self.limit {
            self.split(engine);
        }
    }

    /// Adds one bucket, and moves there those entries of the bucket it splits that now belong there.
    ///
    /// They are copied first, then the table has grown, then they leave the old bucket: a table in a file loses none of them
    /// when its process ends in between. [`FlowTable::reopen`] removes the copies that stay behind then.
    #[inline(always)]
    fn split<E: Engine>(&mut self, engine: E) {
        let (old, new) = (self.shape.next_split(), self.shape.buckets());
        if new >= self.limit {
            return;
        }
        if !self.memory.ensure(new + 1) {
            self.limit = new;
            return;
        }
        self.memory.prefetch(old + SPLIT_AHEAD);
        self.memory.prefetch(new + SPLIT_AHEAD);
        // Which entries go is a coin toss for each: all are copied, and what comes next is written over those that stay.
        let (mut arrived, mut gone) = (0, 0u8);
        for slot in 0..K::Bucket::SLOTS {
            let entry = self.memory.buckets()[old as usize].load(slot);
            let place = entry.head & PLACE_MASK;
            let (hashes, _) = self.rehash(engine, old, &entry);
            let hash = select_unpredictable(place == FIRST, hashes[0], hashes[1]);
            let goes = place != 0 && self.shape.moves(hash);
            self.memory.buckets_mut()[new as usize].store(arrived, &entry);
            gone |= u8::from(goes) << slot;
            arrived += usize::from(goes);
        }
        // Also what a process that ended within a split may have left.
        for slot in 0..K::Bucket::SLOTS {
            self.memory.buckets_mut()[new as usize].clear_if(slot, slot >= arrived);
        }
        self.shape.grow();
        self.memory.note_buckets(self.shape.buckets());
        for slot in 0..K::Bucket::SLOTS {
            self.memory.buckets_mut()[old as usize].clear_if(slot, gone >> slot & 1 == 1);
        }
        self.counters.splits += 1;
        self.moves += arrived as u64;
    }

    /// Frees a slot in one of the key's two full buckets; returns bucket, slot and the place it stands for.
    #[cold]
    pub(crate) fn make_room(&mut self, hashes: Hashes) -> Option<(u32, usize, u64)> {
        let (buckets, times) = RELIEF;
        for _ in 0..times {
            let room = self.displace(hashes);
            let below_bound = self.limit - self.shape.buckets();
            match room {
                Some(_) => self.effort = (self.effort * 2).min(SEARCH),
                None if below_bound == 0 => self.effort = (self.effort / 2).max(LEAST_SEARCH),
                None => {
                    for _ in 0..buckets.min(below_bound) {
                        self.engine.run(Split(self));
                    }
                    continue;
                }
            }
            return room;
        }
        None
    }

    /// Searches breadth first for the shortest chain of moves that frees a slot, and makes them.
    ///
    /// The shortest chain meets no bucket twice: what follows the second meeting would follow the first as well.
    fn displace(&mut self, hashes: Hashes) -> Option<(u32, usize, u64)> {
        let mut reached = std::mem::take(&mut self.reached);
        let room = self.engine.run(Search {
            table: self,
            hashes,
            reached: &mut reached,
        });
        reached.clear();
        self.reached = reached;
        room
    }

    #[inline(always)]
    fn search<E: Engine>(
        &mut self,
        engine: E,
        hashes: Hashes,
        reached: &mut Vec<Reached>,
    ) -> Option<(u32, usize, u64)> {
        for (root, hash, place) in [(0, hashes[0], FIRST), (1, hashes[1], SECOND)] {
            reached.push(Reached {
                bucket: self.shape.bucket(hash),
                from: root,
                slot: 0,
                place: place as u8,
            });
        }
        // Look at what was reached, then expand two buckets at a time, all of whose slots are in use: six lines on
        // their way from memory together, and seldom more needed.
        let (mut seen, mut expanded) = (0, 0);
        while seen < reached.len() {
            let free = |at: usize| self.memory.buckets()[reached[at].bucket as usize].free();
            if let Some(last) = (seen..reached.len()).find(|&at| free(at) != 0) {
                let slot = free(last).trailing_zeros() as usize;
                return Some(self.shift(reached, last, slot));
            }
            seen = reached.len();
            while expanded < seen
                && reached.len() < seen + 2 * K::Bucket::SLOTS
                && reached.len() < self.effort
            {
                self.expand(engine, reached, expanded);
                expanded += 1;
            }
        }
        None
    }

    /// Adds the other buckets of all entries of a full bucket to those reached, and fetches them.
    #[inline(always)]
    fn expand<E: Engine>(&self, engine: E, reached: &mut Vec<Reached>, from: usize) {
        for slot in 0..K::Bucket::SLOTS {
            let (bucket, place) = self.other_bucket(engine, reached[from].bucket, slot);
            self.memory.prefetch(bucket);
            reached.push(Reached {
                bucket,
                from: from as u16,
                slot: slot as u8,
                place: place as u8,
            });
        }
    }

    /// Asks the cache for the buckets where a search for room begins that a key's insertion needs, if it does: they come
    /// while other keys of the burst have their turns. The key's own two are there already.
    #[inline(always)]
    pub(crate) fn expect<E: Engine>(&self, engine: E, buckets: [u32; 2]) {
        let lines = self.memory.buckets();
        let [first, second] = buckets.map(|bucket| lines[bucket as usize].free());
        if first | second != 0 {
            return;
        }
        for bucket in buckets {
            for slot in 0..K::Bucket::SLOTS {
                let (other, _) = self.other_bucket(engine, bucket, slot);
                self.memory.prefetch(other);
            }
        }
    }

    /// The other bucket of an entry, and the place it would have there.
    #[inline(always)]
    fn other_bucket<E: Engine>(&self, engine: E, bucket: u32, slot: usize) -> (u32, u64) {
        let entry = self.memory.buckets()[bucket as usize].load(slot);
        let (hashes, _) = self.rehash(engine, bucket, &entry);
        if entry.head & PLACE_MASK == FIRST {
            (self.shape.bucket(hashes[1]), SECOND)
        } else {
            (self.shape.bucket(hashes[0]), FIRST)
        }
    }

    /// Moves entries along the chain that ends at `reached[last]`, whose `slot` is free, back to a root.
    fn shift(
        &mut self,
        reached: &[Reached],
        mut last: usize,
        mut slot: usize,
    ) -> (u32, usize, u64) {
        loop {
            let here = reached[last];
            if here.from as usize == last {
                return (here.bucket, slot, u64::from(here.place));
            }
            let (from, from_slot) = (reached[here.from as usize].bucket, here.slot as usize);
            let place = u64::from(here.place);
            self.relocate((from, from_slot), (here.bucket, slot), place);
            self.counters.displaced += 1;
            (last, slot) = (here.from as usize, from_slot);
        }
    }

    /// Moves an entry from its slot of a bucket to a free one of its other bucket, for which `place` stands. It is copied first: see
    /// [`FlowTable::split`].
    #[inline(always)]
    pub(crate) fn relocate(&mut self, from: (u32, usize), to: (u32, usize), place: u64) {
        let mut entry = self.memory.buckets()[from.0 as usize].load(from.1);
        self.note_move(from.0, to.0, &entry);
        entry.head = entry.head & !PLACE_MASK | place;
        let buckets = self.memory.buckets_mut();
        buckets[to.0 as usize].store(to.1, &entry);
        buckets[from.0 as usize].clear(from.1);
        self.moves += 1;
    }
}
