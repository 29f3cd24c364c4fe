//! Walking over the table a little at a time: ageing, export, and removal by what an entry says.

use crate::bucket::{Bucket, Stored};
use crate::entry::{FlowEntry, Hops, PLACE_MASK, age_of, state_of};
use crate::key::{FlowKey, PATH_SHIFT, PROTOCOL_SHIFT};
use crate::state::State;
use crate::table::FlowTable;

/// How far ahead of a walk buckets are fetched.
const AHEAD: u32 = 8;

/// Connections that one walk keeps note of; one that is left alone for so long that more cross starts over.
const CROSSED: usize = 8192;

/// What a step of ageing did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgeStep {
    /// Buckets looked at.
    pub visited: usize,
    /// Entries removed.
    pub expired: usize,
    /// Whether the step passed the table's end: every entry that has not moved has been looked at since this was last true.
    pub wrapped: bool,
}

/// A walk over all entries, made in steps. See [`FlowTable::begin_scan`].
#[derive(Debug)]
#[must_use = "an unfinished scan costs memory until `end_scan`"]
pub struct Scan(u64);

/// The table's side of a [`Scan`].
pub(crate) struct OpenScan<K> {
    id: u64,
    /// Buckets below this one have been visited.
    cursor: u32,
    /// Connections that moved from where the walk had not been to where it will not come again.
    crossed: Vec<K>,
}

impl<K> OpenScan<K> {
    /// Whether it has been at bucket `to` and not yet at `from`.
    fn is_between(&self, from: u32, to: u32) -> bool {
        to < self.cursor && from >= self.cursor
    }
}

/// An entry met by a scan. The key is reconstructed only if asked for.
pub struct Visited<'a, K: FlowKey> {
    table: &'a FlowTable<K>,
    bucket: u32,
    slot: usize,
    stored: Stored<K::Addresses>,
}

impl<K: FlowKey> Visited<'_, K> {
    /// The path or edge of the entry's key.
    pub fn path(&self) -> u16 {
        (self.stored.head >> PATH_SHIFT) as u16
    }

    /// The protocol of the entry's key.
    pub fn protocol(&self) -> u8 {
        (self.stored.head >> PROTOCOL_SHIFT) as u8
    }

    /// The choice made for the connection.
    pub fn hops(&self) -> Hops {
        self.stored.hops
    }

    /// The connection's state.
    pub fn state(&self) -> State {
        state_of(self.stored.head)
    }

    /// The entry's key.
    pub fn key(&self) -> K {
        self.table.key_of(self.bucket, &self.stored)
    }

    /// Everything the entry says, for [`FlowTable::import`] elsewhere. `now` is in seconds.
    pub fn entry(&self, now: u32) -> FlowEntry<K> {
        self.table.export(self.bucket, self.slot, now)
    }
}

/// What to do with an entry that a scan met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Leave it.
    Keep,
    /// Replace its hops.
    Update(Hops),
    /// Remove it.
    Remove,
}

impl<K: FlowKey> FlowTable<K> {
    /// Looks at the next `budget` buckets and removes entries that were idle for too long. `now` is in seconds. Each
    /// removed entry is shown to `expired` first. While [`FlowTable::set_timeouts`] is being carried out, this does that instead.
    pub fn age_step(
        &mut self,
        now: u32,
        budget: usize,
        mut expired: impl FnMut(Visited<'_, K>),
    ) -> AgeStep {
        if self.is_retiming() {
            return self.retime_step(now, budget);
        }
        let mut step = AgeStep::default();
        for _ in 0..budget.min(self.shape.buckets() as usize) {
            let bucket = self.age_cursor;
            self.memory.prefetch(bucket + AHEAD);
            for slot in 0..K::Bucket::SLOTS {
                let head = self.memory.buckets()[bucket as usize].head(slot);
                let protocol = (head >> PROTOCOL_SHIFT) as u8;
                if head & PLACE_MASK == 0
                    || !self
                        .ages
                        .is_expired(protocol, state_of(head), age_of(head), now)
                {
                    continue;
                }
                expired(self.visited(bucket, slot));
                self.clear(bucket, slot);
                step.expired += 1;
            }
            step.visited += 1;
            self.age_cursor += 1;
            if self.age_cursor >= self.shape.buckets() {
                self.age_cursor = 0;
                step.wrapped = true;
            }
        }
        self.counters.expired += step.expired as u64;
        step
    }

    /// Starts a walk over all entries, to be made with [`FlowTable::scan_step`] while the table stays in use.
    ///
    /// Every connection that is in the table from here to the walk's end is met at least once, whatever moves in
    /// between. One that comes or goes meanwhile may be met or not; one that moves may be met twice.
    pub fn begin_scan(&mut self) -> Scan {
        self.scans_opened += 1;
        self.scans.push(OpenScan {
            id: self.scans_opened,
            cursor: 0,
            crossed: Vec::new(),
        });
        Scan(self.scans_opened)
    }

    /// Walks over the next `budget` buckets, and does with each entry what `judge` says. Returns whether there is
    /// more to walk over; when there is not, the scan is over.
    pub fn scan_step(
        &mut self,
        scan: &Scan,
        budget: usize,
        mut judge: impl FnMut(Visited<'_, K>) -> Verdict,
    ) -> bool {
        self.walk(scan, budget, |table, bucket, slot| {
            table.judge(bucket, slot, &mut judge);
        })
    }

    /// Goes over the next `budget` buckets and visits each entry; whether there is more.
    pub(crate) fn walk(
        &mut self,
        scan: &Scan,
        budget: usize,
        mut visit: impl FnMut(&mut Self, u32, usize),
    ) -> bool {
        let Some(index) = self.scans.iter().position(|open| open.id == scan.0) else {
            return false;
        };
        for key in std::mem::take(&mut self.scans[index].crossed) {
            if let Some(found) = self.get(&key) {
                visit(self, found.position.bucket(), found.position.slot());
            }
        }
        let start = self.scans[index].cursor;
        let budget = u32::try_from(budget).unwrap_or(u32::MAX);
        let end = start.saturating_add(budget).min(self.shape.buckets());
        for bucket in start..end {
            self.memory.prefetch(bucket + AHEAD);
            for slot in 0..K::Bucket::SLOTS {
                if self.memory.buckets()[bucket as usize].is_used(slot) {
                    visit(self, bucket, slot);
                }
            }
        }
        self.scans[index].cursor = end;
        if end < self.shape.buckets() {
            return true;
        }
        self.scans.swap_remove(index);
        false
    }

    /// [`FlowTable::scan_step`] that only removes: every entry for which `keep` says no, as when a hop has died.
    pub fn retain_step(
        &mut self,
        scan: &Scan,
        budget: usize,
        mut keep: impl FnMut(&Visited<'_, K>) -> bool,
    ) -> bool {
        self.scan_step(scan, budget, |visited| {
            if keep(&visited) {
                Verdict::Keep
            } else {
                Verdict::Remove
            }
        })
    }

    /// Gives up a walk before its end.
    pub fn end_scan(&mut self, scan: Scan) {
        self.scans.retain(|open| open.id != scan.0);
    }

    fn judge(
        &mut self,
        bucket: u32,
        slot: usize,
        judge: &mut impl FnMut(Visited<'_, K>) -> Verdict,
    ) {
        match judge(self.visited(bucket, slot)) {
            Verdict::Keep => {}
            Verdict::Update(hops) => {
                self.memory.buckets_mut()[bucket as usize].set_hops(slot, hops)
            }
            Verdict::Remove => {
                self.clear(bucket, slot);
                self.counters.removed += 1;
            }
        }
    }

    fn visited(&self, bucket: u32, slot: usize) -> Visited<'_, K> {
        let stored = self.memory.buckets()[bucket as usize].load(slot);
        Visited {
            table: self,
            bucket,
            slot,
            stored,
        }
    }

    /// Buckets below this one have been visited by all walks under way.
    #[inline]
    pub(crate) fn scanned(&self) -> u32 {
        let cursors = self.scans.iter().map(|open| open.cursor);
        cursors.fold(self.shape.buckets(), u32::min)
    }

    /// Called before an entry moves to its other bucket.
    #[inline]
    pub(crate) fn note_move(&mut self, from: u32, to: u32, entry: &Stored<K::Addresses>) {
        if self.scans.iter().any(|open| open.is_between(from, to)) {
            let key = self.key_of(from, entry);
            for open in &mut self.scans {
                if open.is_between(from, to) {
                    open.crossed.push(key);
                }
                if open.crossed.len() > CROSSED {
                    (open.cursor, open.crossed) = (0, Vec::new());
                }
            }
        }
    }
}
