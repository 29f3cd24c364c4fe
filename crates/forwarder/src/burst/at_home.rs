//! Which packets of a burst are at home with this worker, and parting them from the others.
//!
//! Which of them a packet is, is a coin toss, so nothing here asks: a branch that is foretold wrongly every second time costs more than all the
//! rest.

use super::positions::Positions;
use crate::pipeline::{AwayFrames, Errand};
use flow::BURST;

/// What was found out about the homes of a burst's plain packets. Of use only where there are several workers.
pub(super) struct AtHome {
    /// Whether some are at home elsewhere.
    some_away: bool,
    /// The worker each of the frames received is at home with, as far as is known; this one if not.
    workers: [u8; BURST],
    /// Positions, among the frames that stay, of those known to be at home here.
    here: Positions,
}

impl Default for AtHome {
    fn default() -> Self {
        AtHome {
            some_away: false,
            workers: [0; BURST],
            here: Positions::NONE,
        }
    }
}

impl AtHome {
    /// Begins a burst of the worker `own`.
    pub(super) fn clear(&mut self, own: u8) {
        self.workers = [own; BURST];
        (self.some_away, self.here) = (false, Positions::NONE);
    }

    /// Whether some are at home elsewhere.
    pub(super) fn some_away(&self) -> bool {
        self.some_away
    }

    /// Whether the packet at a position among those that stay is known to be at home here.
    pub(super) fn is_here(&self, at: usize) -> bool {
        self.here.has(at)
    }

    /// Notes a packet that stays, and is at home here.
    #[inline(always)]
    pub(super) fn stays(&mut self, at: usize) {
        self.here.add(at);
    }

    /// Notes the worker that a packet is at home with, and whether that is another one.
    #[inline(always)]
    pub(super) fn note(&mut self, position: usize, worker: u32, is_away: bool) {
        self.workers[position % BURST] = worker as u8;
        self.some_away |= is_away;
    }

    /// Parts the frames of a burst into lists of the workers they are at home with. Those of the worker `own` are left in its list.
    #[inline(never)]
    pub(super) fn part<F>(
        &self,
        port: usize,
        received: impl Iterator<Item = F>,
        own: usize,
        lists: &mut [Vec<F>],
        away: &mut AwayFrames<F>,
    ) {
        lists.iter_mut().for_each(|list| list.reserve(BURST));
        for (frame, worker) in received.zip(self.workers) {
            lists[usize::from(worker)].push(frame);
        }
        for (worker, list) in lists.iter_mut().enumerate() {
            if worker != own && !list.is_empty() {
                away.append(worker, Errand::Steer, port, list);
            }
        }
    }
}
