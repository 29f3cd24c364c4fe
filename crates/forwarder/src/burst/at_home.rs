//! Which packets of a burst are at home with this worker, and parting them from the others.

use crate::pipeline::{AwayFrames, Errand};
use flow::BURST;

/// What was found out about the homes of a burst's plain packets. Of use only where there are several workers.
pub(super) struct AtHome {
    /// Positions, among the frames received, of those that are at home elsewhere.
    away: u64,
    /// Their workers.
    workers: [u8; BURST],
    /// Positions, among the frames that stay, of those known to be at home here.
    here: u64,
}

impl Default for AtHome {
    fn default() -> Self {
        AtHome {
            away: 0,
            workers: [0; BURST],
            here: 0,
        }
    }
}

impl AtHome {
    pub(super) fn clear(&mut self) {
        (self.away, self.here) = (0, 0);
    }

    /// Whether some are at home elsewhere.
    pub(super) fn some_away(&self) -> bool {
        self.away != 0
    }

    /// Whether the packet at a position among those that stay is known to be at home here.
    pub(super) fn is_here(&self, at: usize) -> bool {
        self.here >> at & 1 == 1
    }

    /// Notes a packet that stays, and is at home here.
    #[inline(always)]
    pub(super) fn stays(&mut self, at: usize) {
        self.here |= 1 << at;
    }

    /// Notes the worker that a packet goes to.
    #[inline(always)]
    pub(super) fn goes(&mut self, position: usize, worker: u8) {
        self.away |= 1 << position;
        self.workers[position % BURST] = worker;
    }

    /// Parts the frames of a burst: those at home elsewhere, and those that stay.
    #[inline(never)]
    pub(super) fn part<F>(
        &self,
        port: usize,
        received: impl Iterator<Item = F>,
        staying: &mut Vec<F>,
        away: &mut AwayFrames<F>,
    ) {
        for (position, frame) in received.enumerate() {
            if self.away >> position & 1 == 0 {
                staying.push(frame);
                continue;
            }
            let worker = usize::from(self.workers[position % BURST]);
            away.push(worker, Errand::Steer, port, frame);
        }
    }
}
