//! Other idle times for a table in use, without a stop.
//!
//! Where an idle time keeps its unit ([`crate::timers`]), nothing about an entry changes. Where it gets another one, the entry's
//! age says nothing any more: a walk over the table, a step whenever ageing is due, stamps such entries as if their
//! connections had been seen just then. Until the walk is over no entry is removed for its age, and nobody asks how old one is.
//! So a connection is never forgotten early; one that is silent stays for one idle time more at most.

use crate::bucket::Bucket;
use crate::entry::{low_with, state_of};
use crate::key::{FlowKey, PROTOCOL_SHIFT};
use crate::notes::Notes;
use crate::scan::{AgeStep, Scan};
use crate::table::FlowTable;
use crate::timers::{Ages, InvalidTimeout, Timeouts, Units};

/// A walk that gives entries ages in other units.
#[derive(Debug)]
pub(crate) struct Retiming {
    scan: Scan,
    /// Which entries it is about.
    other: Units,
}

impl<K: FlowKey> FlowTable<K> {
    /// Gives the table other idle times, which hold at once. Connections keep how long they have been silent where the times
    /// are so alike that they have the same unit; elsewhere their silence begins anew. The work is done by [`FlowTable::age_step`]. `now` is in seconds.
    ///
    /// # Errors
    /// An idle time is zero or too long; nothing has changed then.
    pub fn set_timeouts(&mut self, timeouts: &Timeouts, now: u32) -> Result<(), InvalidTimeout> {
        let ages = Ages::new(timeouts)?;
        let other = ages.other_units(&self.ages);
        self.begin_retiming(other);
        self.ages = ages;
        self.config.timeouts = *timeouts;
        self.notes = Notes::new(&self.ages, now);
        if let Some(page) = self.memory.description() {
            crate::description::write_times(page, timeouts);
        }
        Ok(())
    }

    /// Whether ages are being changed: what they say is not known.
    #[inline]
    pub(crate) fn is_retiming(&self) -> bool {
        self.retiming.is_some()
    }

    /// Begins to stamp entries whose units are others, those of a walk under way among them.
    pub(crate) fn begin_retiming(&mut self, mut other: Units) {
        if let Some(under_way) = self.retiming.take() {
            self.end_scan(under_way.scan);
            other.join(&under_way.other);
        }
        if other.none() {
            return;
        }
        // Should the process end before the walk does, whoever goes on with the file begins it again.
        if let Some(page) = self.memory.description() {
            crate::description::write_mixed(page, true);
        }
        let scan = self.begin_scan();
        self.retiming = Some(Retiming { scan, other });
    }

    /// A step of the walk, instead of one of ageing.
    #[cold]
    pub(crate) fn retime_step(&mut self, now: u32, budget: usize) -> AgeStep {
        let Some(retiming) = self.retiming.take() else {
            return AgeStep::default();
        };
        let more = self.walk(&retiming.scan, budget, |table, bucket, slot| {
            let head = table.memory.buckets()[bucket as usize].head(slot);
            let (protocol, state) = ((head >> PROTOCOL_SHIFT) as u8, state_of(head));
            if retiming.other.has(protocol, state) {
                let age = table.ages.stamp(protocol, state, now);
                table.memory.buckets_mut()[bucket as usize]
                    .set_low(slot, low_with(head, state, age));
            }
        });
        if more {
            self.retiming = Some(retiming);
        } else if let Some(page) = self.memory.description() {
            crate::description::write_mixed(page, false);
        }
        AgeStep {
            visited: budget.min(self.shape.buckets() as usize),
            ..AgeStep::default()
        }
    }
}
