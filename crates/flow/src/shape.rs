//! How many buckets there are and which one a hash means: linear hashing (Litwin, 1980).
//!
//! With `mask` + 1 ≤ `buckets` < 2 (`mask` + 1), buckets below `buckets` − (`mask` + 1) have been split: their hashes
//! count one bit more. Growing by one bucket splits the next one; nothing else moves.

use crate::key::QUOTIENT_BITS;

/// A table has at least this many buckets, so that a bucket's number tells the key's quotient.
pub(crate) const MIN_BUCKETS: u32 = 1 << QUOTIENT_BITS;
/// A table has at most this many buckets, so that positions fit in 32 bits.
pub(crate) const MAX_BUCKETS: u32 = 1 << 29;

/// Number of buckets, and the number of hash bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    buckets: u32,
    mask: u32,
}

impl Shape {
    /// A table of `buckets`, between [`MIN_BUCKETS`] and [`MAX_BUCKETS`].
    pub(crate) fn new(buckets: u32) -> Self {
        let buckets = buckets.clamp(MIN_BUCKETS, MAX_BUCKETS);
        Self {
            buckets,
            mask: (1 << buckets.ilog2()) - 1,
        }
    }

    #[inline(always)]
    pub(crate) fn buckets(self) -> u32 {
        self.buckets
    }

    /// The bits of a hash that count everywhere; one more counts in buckets that have been split.
    #[inline(always)]
    pub(crate) fn mask(self) -> u32 {
        self.mask
    }

    /// The bucket that a hash means.
    #[inline(always)]
    pub(crate) fn bucket(self, hash: u32) -> u32 {
        let wide = hash & (self.mask << 1 | 1);
        if wide < self.buckets {
            wide
        } else {
            wide & self.mask
        }
    }

    /// The bucket that the next split empties in part; the other half goes to bucket number [`Shape::buckets`].
    pub(crate) fn next_split(self) -> u32 {
        self.buckets & self.mask
    }

    /// The bucket whose other half is the last one, the table having grown.
    pub(crate) fn last_split(self) -> u32 {
        let last = self.buckets - 1;
        last & !(1 << last.ilog2())
    }

    /// Whether a hash that means bucket [`Shape::next_split`] now will mean the new bucket after the split.
    pub(crate) fn moves(self, hash: u32) -> bool {
        hash & (self.mask + 1) != 0
    }

    /// One bucket more.
    pub(crate) fn grow(&mut self) {
        self.buckets += 1;
        if self.buckets == (self.mask + 1) << 1 {
            self.mask = self.mask << 1 | 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_moves_hashes_out_of_the_split_bucket_only() {
        let mut shape = Shape::new(MIN_BUCKETS);
        let hashes: Vec<u32> = (0..40_000u32)
            .map(|i| i.wrapping_mul(0x9e37_79b9))
            .collect();
        for _ in 0..3 * MIN_BUCKETS {
            let (before, split) = (shape, shape.next_split());
            shape.grow();
            assert_eq!(Shape::new(shape.buckets()), shape);
            for &hash in hashes.iter().step_by(97) {
                let (old, new) = (before.bucket(hash), shape.bucket(hash));
                assert!(new < shape.buckets());
                assert_eq!(new & (MIN_BUCKETS - 1), hash & (MIN_BUCKETS - 1));
                if old == split && before.moves(hash) {
                    assert_eq!(new, before.buckets());
                } else {
                    assert_eq!(new, old);
                }
            }
        }
    }
}
