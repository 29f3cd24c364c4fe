//! Buckets: whole cache lines of entries, as bytes.
//!
//! ```text
//! Bucket4, one line of 64 bytes                     entry, 21 bytes
//!  +---------+---------+---------+---+               0        8        15   17   19   21
//!  | entry 0 | entry 1 | entry 2 | - |               +--------+--------+----+----+----+
//!  +---------+---------+---------+---+               | addr.  |  head  | up |down|from|
//!  0         21        42        63  64              +--------+--------+----+----+----+
//! Bucket6, three lines of 64 bytes                  entry, 45 bytes
//!  +---------+-----+---------+----------+            0        32       39   41   43   45
//!  | entry 0 | ... | entry 3 | 12 spare |            +--------+--------+----+----+----+
//!  +---------+-----+---------+----------+            | addr.  |  head  | up |down|from|
//!  0         45    135       180        192          +--------+--------+----+----+----+
//! ```
//!
//! *From* says who opened the connection: the forward side (0) or the reverse side (1). All numbers are little-endian. The head is the key's, with its twelve quotient bits replaced by the entry's
//! place, state and age ([`crate::entry`]). A bucket of zeroes is empty, so fresh memory needs no set-up.
//!
//! A table in a file may lose its process between any two instructions. So the place, which says that a slot is in use, is
//! written last and cleared first: whoever opens the file next finds whole entries only.

use std::hint::select_unpredictable;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::engine::Engine;
use crate::entry::{Hops, MATCH_MASK, PLACE_MASK, Said};
use crate::key::PROTOCOL_SHIFT;
use crate::memory::Plain;
use crate::probe::Wanted;

/// An entry as stored: key without its quotient, place, state, age, and hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored<A> {
    /// The addresses, mixed with the quotient.
    pub addresses: A,
    /// Head with place, state and age in its lowest twelve bits.
    pub head: u64,
    /// The choice made for the connection.
    pub hops: Hops,
}

/// The outcome of a comparison with all slots of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Match {
    /// What tells the slot in a position: its number, doubled, and one; 0 if none is equal.
    pub mark: u8,
    /// Where its entry begins, in bytes; if none is equal, where some entry does.
    pub start: u8,
}

impl Match {
    /// That of a slot that is equal, of a bucket with entries of so many bytes.
    #[inline(always)]
    pub(crate) const fn of(slot: usize, entry: usize) -> Match {
        Match {
            mark: (slot as u8) << 1 | 1,
            start: (slot * entry) as u8,
        }
    }

    /// The same if one is equal, chosen without a branch.
    #[inline(always)]
    pub(crate) fn of_if(found: bool, slot: usize, entry: usize) -> Match {
        let Match { mark, start } = Match::of(slot, entry);
        let mark = select_unpredictable(found, mark, 0);
        Match { mark, start }
    }

    /// Whether a slot is equal.
    #[inline(always)]
    pub(crate) fn is_found(self) -> bool {
        self.mark & 1 == 1
    }
}

/// A fixed-size group of entry slots.
pub trait Bucket: Plain {
    /// The key's address words.
    type Addresses: Copy + Eq;
    /// Entries per bucket; at most 4.
    const SLOTS: usize;

    /// Looks for the slot whose key and place equal those given ([`MATCH_MASK`]).
    fn find<E: Engine>(&self, engine: E, wanted: &Wanted<Self::Addresses>, place: u64) -> Match;
    /// The head of a slot.
    fn head(&self, slot: usize) -> u64;
    /// Replaces the lowest 16 bits of a head.
    fn set_low(&mut self, slot: usize, low: u16);
    /// The hops of a slot.
    fn hops(&self, slot: usize) -> Hops;
    /// What the entry of a slot says of its connection.
    fn said(&self, slot: usize) -> Said;
    /// The same of a slot that was looked for.
    fn said_of(&self, found: &Match) -> Said;
    /// Replaces the hops of a slot, and says who opened its connection.
    fn set_hops(&mut self, slot: usize, hops: Hops);
    /// The whole entry of a slot.
    fn load(&self, slot: usize) -> Stored<Self::Addresses>;
    /// Replaces the whole entry of a slot.
    fn store(&mut self, slot: usize, entry: &Stored<Self::Addresses>);
    /// Marks a slot empty.
    fn clear(&mut self, slot: usize) {
        self.clear_if(slot, true);
    }
    /// The same if a condition holds, without a branch.
    fn clear_if(&mut self, slot: usize, is_gone: bool);

    /// The empty slots, a bit for each. Which ones are empty is a coin toss, so nothing asks slot by slot.
    #[inline(always)]
    fn free(&self) -> u32 {
        (0..Self::SLOTS).fold(0, |free, slot| {
            free | u32::from(self.head(slot) & PLACE_MASK == 0) << slot
        })
    }

    /// Whether a slot holds an entry.
    #[inline(always)]
    fn is_used(&self, slot: usize) -> bool {
        self.head(slot) & PLACE_MASK != 0
    }
}

#[inline(always)]
pub(crate) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[inline(always)]
fn read_u128(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

#[inline(always)]
fn read_hops(bytes: &[u8], at: usize) -> Hops {
    // One load for three numbers; the two bytes before them belong to the entry's head.
    let word = read_u64(bytes, at - 2) >> 16;
    Hops {
        upstream: word as u16,
        downstream: (word >> 16) as u16,
        opener: (word >> 32) as u16,
    }
}

/// What an entry says whose head is at a place: all but the first bits of that, and the hops behind it, in one piece.
#[inline(always)]
fn read_said(bytes: &[u8], head: usize) -> Said {
    Said {
        word: read_u64(bytes, head + PROTOCOL_SHIFT as usize / 8),
        low: u16::from_le_bytes([bytes[head], bytes[head + 1]]),
    }
}

#[inline(always)]
fn write_hops(bytes: &mut [u8], at: usize, hops: Hops) {
    bytes[at..at + 2].copy_from_slice(&hops.upstream.to_le_bytes());
    bytes[at + 2..at + 4].copy_from_slice(&hops.downstream.to_le_bytes());
    bytes[at + 4..at + 6].copy_from_slice(&hops.opener.to_le_bytes());
}

/// Three IPv4 entries in one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Bucket4([u8; 64]);

pub(crate) const ENTRY4: usize = 21;
pub(crate) const HEAD4: usize = 8;
const HOPS4: usize = 15;

/// The bytes of a [`Bucket4`].
pub type Line = [u8; 64];

impl Bucket4 {
    #[cfg(test)]
    pub(crate) fn line(&self) -> &Line {
        &self.0
    }
}

#[cfg(test)]
impl Default for Bucket4 {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Bucket for Bucket4 {
    type Addresses = u64;
    const SLOTS: usize = 3;

    #[inline(always)]
    fn find<E: Engine>(&self, engine: E, wanted: &Wanted<u64>, place: u64) -> Match {
        engine.find4(&self.0, wanted, place)
    }

    #[inline(always)]
    fn head(&self, slot: usize) -> u64 {
        read_u64(&self.0, slot * ENTRY4 + HEAD4) & ((1 << 56) - 1)
    }

    #[inline(always)]
    fn set_low(&mut self, slot: usize, low: u16) {
        let at = slot * ENTRY4 + HEAD4;
        self.0[at..at + 2].copy_from_slice(&low.to_le_bytes());
    }

    #[inline(always)]
    fn hops(&self, slot: usize) -> Hops {
        read_hops(&self.0, slot * ENTRY4 + HOPS4)
    }

    #[inline(always)]
    fn said(&self, slot: usize) -> Said {
        read_said(&self.0, slot * ENTRY4 + HEAD4)
    }

    #[inline(always)]
    fn said_of(&self, found: &Match) -> Said {
        read_said(&self.0, usize::from(found.start) + HEAD4)
    }

    #[inline(always)]
    fn set_hops(&mut self, slot: usize, hops: Hops) {
        write_hops(&mut self.0, slot * ENTRY4 + HOPS4, hops);
    }

    #[inline(always)]
    fn load(&self, slot: usize) -> Stored<u64> {
        Stored {
            addresses: read_u64(&self.0, slot * ENTRY4),
            head: self.head(slot),
            hops: self.hops(slot),
        }
    }

    #[inline(always)]
    fn store(&mut self, slot: usize, entry: &Stored<u64>) {
        let at = slot * ENTRY4;
        self.0[at..at + 8].copy_from_slice(&entry.addresses.to_le_bytes());
        self.0[at + HEAD4 + 2..at + HOPS4].copy_from_slice(&entry.head.to_le_bytes()[2..7]);
        self.set_hops(slot, entry.hops);
        compiler_fence(Ordering::Release);
        self.set_low(slot, entry.head as u16);
    }

    #[inline(always)]
    fn clear_if(&mut self, slot: usize, is_gone: bool) {
        let keep = if is_gone { 0 } else { u8::MAX };
        let low = self.head(slot) as u16 & u16::from_le_bytes([keep; 2]);
        self.set_low(slot, low);
        compiler_fence(Ordering::Release);
        for byte in &mut self.0[slot * ENTRY4..(slot + 1) * ENTRY4] {
            *byte &= keep;
        }
    }
}

/// Four IPv6 entries in three cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Bucket6([u8; 192]);

const ENTRY6: usize = 45;
const HEAD6: usize = 32;
const HOPS6: usize = 39;

impl Bucket for Bucket6 {
    type Addresses = [u128; 2];
    const SLOTS: usize = 4;

    #[inline(always)]
    fn find<E: Engine>(&self, _: E, wanted: &Wanted<[u128; 2]>, place: u64) -> Match {
        let (addresses, head) = (wanted.addresses, wanted.head | place);
        let equal = |slot: usize| {
            let at = slot * ENTRY6;
            let differs = (read_u128(&self.0, at) ^ addresses[0])
                | (read_u128(&self.0, at + 16) ^ addresses[1])
                | u128::from((read_u64(&self.0, at + HEAD6) ^ head) & MATCH_MASK);
            u32::from(differs == 0) << slot
        };
        let found = equal(0) | equal(1) | equal(2) | equal(3);
        let slot = (found | 8).trailing_zeros() as usize;
        Match::of_if(found != 0, slot, ENTRY6)
    }

    #[inline(always)]
    fn head(&self, slot: usize) -> u64 {
        read_u64(&self.0, slot * ENTRY6 + HEAD6) & ((1 << 56) - 1)
    }

    #[inline(always)]
    fn set_low(&mut self, slot: usize, low: u16) {
        let at = slot * ENTRY6 + HEAD6;
        self.0[at..at + 2].copy_from_slice(&low.to_le_bytes());
    }

    #[inline(always)]
    fn hops(&self, slot: usize) -> Hops {
        read_hops(&self.0, slot * ENTRY6 + HOPS6)
    }

    #[inline(always)]
    fn said(&self, slot: usize) -> Said {
        read_said(&self.0, slot * ENTRY6 + HEAD6)
    }

    #[inline(always)]
    fn said_of(&self, found: &Match) -> Said {
        read_said(&self.0, usize::from(found.start) + HEAD6)
    }

    #[inline(always)]
    fn set_hops(&mut self, slot: usize, hops: Hops) {
        write_hops(&mut self.0, slot * ENTRY6 + HOPS6, hops);
    }

    #[inline(always)]
    fn load(&self, slot: usize) -> Stored<[u128; 2]> {
        let at = slot * ENTRY6;
        Stored {
            addresses: [read_u128(&self.0, at), read_u128(&self.0, at + 16)],
            head: self.head(slot),
            hops: self.hops(slot),
        }
    }

    #[inline(always)]
    fn store(&mut self, slot: usize, entry: &Stored<[u128; 2]>) {
        let at = slot * ENTRY6;
        self.0[at..at + 16].copy_from_slice(&entry.addresses[0].to_le_bytes());
        self.0[at + 16..at + 32].copy_from_slice(&entry.addresses[1].to_le_bytes());
        self.0[at + HEAD6 + 2..at + HOPS6].copy_from_slice(&entry.head.to_le_bytes()[2..7]);
        self.set_hops(slot, entry.hops);
        compiler_fence(Ordering::Release);
        self.set_low(slot, entry.head as u16);
    }

    #[inline(always)]
    fn clear_if(&mut self, slot: usize, is_gone: bool) {
        let keep = if is_gone { 0 } else { u8::MAX };
        let low = self.head(slot) as u16 & u16::from_le_bytes([keep; 2]);
        self.set_low(slot, low);
        compiler_fence(Ordering::Release);
        for byte in &mut self.0[slot * ENTRY6..(slot + 1) * ENTRY6] {
            *byte &= keep;
        }
    }
}
