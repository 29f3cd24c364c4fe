//! Sets of positions in a burst.

use flow::BURST;

/// Positions below [`BURST`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Positions([u64; BURST.div_ceil(64)]);

impl Positions {
    pub(super) const NONE: Positions = Positions([0; BURST.div_ceil(64)]);

    #[inline(always)]
    pub(super) fn add(&mut self, at: usize) {
        self.0[at % BURST / 64] |= 1 << (at % 64);
    }

    #[inline(always)]
    pub(super) fn has(&self, at: usize) -> bool {
        self.0[at % BURST / 64] >> (at % 64) & 1 == 1
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        *self == Positions::NONE
    }
}
