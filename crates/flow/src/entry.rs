//! What an entry says, and how place, state and age share the twelve bits that the key's quotient left free.
//!
//! ```text
//!   11            5 4     2 1     0
//!  +---------------+-------+-------+
//!  |      age      | state | place |
//!  +---------------+-------+-------+
//! ```
//! *Place* is 0 in an empty slot, 1 in the bucket of the key's first choice, 2 in that of its second. *State* is a
//! [`State`]. *Age* is when the connection was last seen, in units that depend on the state's idle time
//! ([`crate::timers`]), modulo 128.

use std::num::NonZeroU32;

use crate::bucket::Match;
use crate::key::QUOTIENT_MASK;
use crate::state::State;

pub(crate) const PLACE_MASK: u64 = 0b11;
pub(crate) const FIRST: u64 = 1;
pub(crate) const SECOND: u64 = 2;
pub(crate) const STATE_SHIFT: u32 = 2;
pub(crate) const AGE_SHIFT: u32 = 5;
pub(crate) const AGE_MASK: u32 = 0x7f;

/// The bits of a head that tell entries apart: key and place, not state and age, nor the byte above the head.
pub(crate) const MATCH_MASK: u64 = ((1 << 56) - 1) & !QUOTIENT_MASK | PLACE_MASK;

/// The choice made for a connection, as interned ids that only the caller can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hops {
    /// Where packets of the reverse direction go: the previous hop.
    pub upstream: u16,
    /// Where packets of the forward direction go: the next hop.
    pub downstream: u16,
    /// Which way the packets of the connection's opener go: 0 forward, 1 reverse. The table knows it from the first packet: what
    /// [`crate::FlowTable::insert`] and [`crate::FlowTable::update`] are given does not count.
    pub opener: u16,
}

/// Where an entry lies. Valid until the next call that inserts, removes, ages, settles or scans: entries may move then, which
/// [`crate::FlowTable::moves`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position(NonZeroU32);

impl Position {
    /// Slots are numbered from 0 to 3, buckets from 0 to 2^29 − 1 ([`crate::shape::MAX_BUCKETS`]).
    #[inline(always)]
    pub(crate) fn new(bucket: u32, slot: usize) -> Self {
        let number = bucket << 3 | (slot as u32) << 1 | 1;
        Self(NonZeroU32::new(number).expect("the last bit is set"))
    }

    /// That of a number, if it is a position's: the last bit of each is set.
    #[inline(always)]
    fn of_odd(number: u32) -> Option<Self> {
        NonZeroU32::new(number)
            .filter(|number| number.get() & 1 == 1)
            .map(Self)
    }

    /// As a number, for whoever keeps it elsewhere.
    #[cfg(feature = "substitute")]
    #[inline(always)]
    pub fn number(self) -> NonZeroU32 {
        self.0
    }

    /// The inverse of [`Position::number`].
    #[cfg(feature = "substitute")]
    #[inline(always)]
    pub fn of_number(number: NonZeroU32) -> Self {
        debug_assert!(number.get() & 1 == 1, "the last bit of a position is set");
        Self(number)
    }

    #[inline(always)]
    pub(crate) fn bucket(self) -> u32 {
        self.0.get() >> 3
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> usize {
        (self.0.get() >> 1) as usize & 3
    }
}

/// What an entry says of its connection, as it lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Protocol, path, hops and opener.
    ///
    /// ```text
    ///   63    56 55         40 39       24 23          8 7        0
    ///  +--------+-------------+-----------+-------------+----------+
    ///  | opener | downstream  | upstream  |    path     | protocol |
    ///  +--------+-------------+-----------+-------------+----------+
    /// ```
    pub word: u64,
    /// The lowest bits of the head: place, state and age.
    pub low: u16,
}

impl Said {
    #[inline(always)]
    pub(crate) fn protocol(self) -> u8 {
        self.word as u8
    }

    #[inline(always)]
    pub(crate) fn opener(self) -> u16 {
        (self.word >> 56) as u16
    }
}

const ENDS_SHIFT: u32 = 24;

/// A connection found in the table, and what its entry said then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    word: u64,
    /// For [`crate::FlowTable::on_packet`] and [`crate::FlowTable::update`].
    pub position: Position,
    low: u16,
}

impl Found {
    /// The choice made for the connection.
    #[inline(always)]
    pub fn hops(&self) -> Hops {
        Hops {
            upstream: (self.word >> 24) as u16,
            downstream: (self.word >> 40) as u16,
            opener: self.said().opener(),
        }
    }

    /// Both hops in one number, which is equal where they are.
    #[inline(always)]
    pub fn ends(&self) -> u32 {
        (self.word >> ENDS_SHIFT) as u32
    }

    #[inline(always)]
    pub(crate) fn said(&self) -> Said {
        Said {
            word: self.word,
            low: self.low,
        }
    }

    /// A connection that another table found, whose entry is at a position of this one.
    #[cfg(feature = "substitute")]
    #[inline(always)]
    pub fn elsewhere(position: Position, hops: Hops) -> Found {
        let ends = u64::from(hops.upstream) << 24 | u64::from(hops.downstream) << 40;
        Found {
            word: ends | u64::from(hops.opener) << 56,
            position,
            low: 0,
        }
    }
}

/// What came of the look-up of a key of a burst: [`Found`], or nothing. Both are written by the same instructions, as which
/// it is may be a coin toss. Two words, so that several can be compared at once.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Hit {
    /// What [`Said::word`] is.
    word: u64,
    /// ```text
    ///   63     48 47          32 31                     0
    ///  +---------+--------------+------------------------+
    ///  |    0    |  Said::low   | position, even if none |
    ///  +---------+--------------+------------------------+
    /// ```
    rest: u64,
}

const LOW_SHIFT: u32 = 32;
// Engines that look at several hits at once know where the position lies.
const _: () = assert!(std::mem::offset_of!(Hit, rest) == 8 && size_of::<Hit>() == 16);

impl Hit {
    /// Nothing was found.
    pub const NONE: Hit = Hit { word: 0, rest: 0 };

    /// What came of a comparison with a bucket, and what the slot says that is equal.
    #[inline(always)]
    pub(crate) fn new(bucket: u32, found: Match, Said { word, low }: Said) -> Hit {
        // A sum, as the processor has one for numbers times eight.
        let position = (bucket << 3) + u32::from(found.mark);
        Hit {
            word,
            rest: u64::from(position) | u64::from(low) << LOW_SHIFT,
        }
    }

    /// The connection, if it was found.
    #[inline(always)]
    pub fn found(self) -> Option<Found> {
        Some(Found {
            word: self.word,
            position: Position::of_odd(self.rest as u32)?,
            low: (self.rest >> LOW_SHIFT) as u16,
        })
    }

    #[inline(always)]
    pub(crate) fn is_found(&self) -> bool {
        self.rest & 1 == 1
    }

    /// Not 0 where the connection was not found while another was, or has other hops, or a packet like one of the other's may change something
    /// else in its entry: where a protocol, an opener, a state or an age differs.
    #[inline(always)]
    pub fn differs_from(self, other: Hit) -> u64 {
        const WORD: u64 = !0 << ENDS_SHIFT | 0xff;
        // The last bit of every position is set.
        const REST: u64 = (0xfff & !PLACE_MASK) << LOW_SHIFT | 1;
        (self.word ^ other.word) & WORD | (self.rest ^ other.rest) & REST
    }
}

impl From<Option<Found>> for Hit {
    #[inline(always)]
    fn from(found: Option<Found>) -> Hit {
        found.map_or(Hit::NONE, |found| Hit {
            word: found.word,
            rest: u64::from(found.position.0.get()) | u64::from(found.low) << LOW_SHIFT,
        })
    }
}

/// A whole entry, as exported to and imported from another table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowEntry<K> {
    /// The connection.
    pub key: K,
    /// The choice made for it.
    pub hops: Hops,
    /// What its packets showed so far.
    pub state: State,
    /// Seconds since its last packet, rounded up by at most one part in 31 of the state's idle time.
    pub idle: u32,
}

#[inline(always)]
pub(crate) fn state_of(head: u64) -> State {
    State::from_bits((head >> STATE_SHIFT) as u8)
}

#[inline(always)]
pub(crate) fn age_of(head: u64) -> u32 {
    (head >> AGE_SHIFT) as u32 & AGE_MASK
}

/// The lowest 16 bits of `head` with state and age replaced.
#[inline(always)]
pub(crate) fn low_with(head: u64, state: State, age: u32) -> u16 {
    let keep = 0xf000 | PLACE_MASK as u16;
    (head as u16 & keep) | (state as u16) << STATE_SHIFT | (age as u16) << AGE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_give_back_bucket_and_slot() {
        for bucket in [0, 1, 77, (1 << 29) - 1] {
            for slot in 0..4 {
                let position = Position::new(bucket, slot);
                assert_eq!((position.bucket(), position.slot()), (bucket, slot));
            }
        }
        assert_eq!((size_of::<Option<Found>>(), size_of::<Hit>()), (16, 16));
    }

    #[test]
    fn state_and_age_leave_key_and_place_alone() {
        let head = 0x00ab_cdef_1234_a002;
        for state in State::ALL {
            for age in 0..128 {
                let new = head & !0xffff | u64::from(low_with(head, state, age));
                assert_eq!((state_of(new), age_of(new)), (state, age));
                assert_eq!(new & MATCH_MASK, head & MATCH_MASK);
            }
        }
    }
}
