//! What is known of a packet of a burst.

use crate::plain::Way;
use flow::BURST;
use wire::tcp;

/// Which way a packet of a burst goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Lane {
    /// Not plain, or the first of its connection at an edge.
    Long,
    V4,
    V6,
}

/// A packet of a burst, in two words: few instructions for whoever looks at several of its parts at once.
#[derive(Clone, Copy)]
pub(super) struct Packet {
    pub(super) way: Way,
    word: Word,
}

/// ```text
///   63   56 55   48 47      40 39    32 31                 0
///  +-------+-------+----------+--------+--------------------+
///  | slot  | lane  |  flags   | offset |       length       |
///  +-------+-------+----------+--------+--------------------+
/// ```
/// slot: position of its key among those of its family. Offset: bytes in front of the IP packet, which has so many bytes.
#[derive(Clone, Copy)]
struct Word(u64);

const OFFSET: u32 = 32;
const FLAGS: u32 = 40;
const LANE: u32 = 48;
const SLOT: u32 = 56;

/// A packet of which nothing is known.
pub(super) const LONG: Packet = Packet {
    way: Way(0),
    word: Word(0),
};

impl Packet {
    /// One with a header of so many bytes in front of so many bytes.
    #[inline(always)]
    pub(super) fn new(way: Way, offset: u8, length: u32, tcp_flags: u8) -> Packet {
        let word = u64::from(length) | u64::from(offset) << OFFSET | u64::from(tcp_flags) << FLAGS;
        let word = Word(word);
        Packet { way, word }
    }

    /// The same in a lane, with its key's position there.
    #[inline(always)]
    pub(super) fn at(self, lane: Lane, slot: u8) -> Packet {
        let rest = self.word.0 & ((1 << LANE) - 1);
        let word = Word(rest | (lane as u64) << LANE | u64::from(slot) << SLOT);
        Packet { word, ..self }
    }

    /// The lane it is in.
    #[inline(always)]
    pub(super) fn lane(self) -> Lane {
        match (self.word.0 >> LANE) as u8 {
            0 => Lane::Long,
            1 => Lane::V4,
            _ => Lane::V6,
        }
    }

    /// Position of its key among those of its family, below [`BURST`].
    #[inline(always)]
    pub(super) fn slot(self) -> usize {
        (self.word.0 >> SLOT) as usize % BURST
    }

    /// Bytes of the IP packet.
    #[inline(always)]
    pub(super) fn length(self) -> u32 {
        self.word.0 as u32
    }

    /// Bytes in front of it.
    #[inline(always)]
    pub(super) fn offset(self) -> usize {
        usize::from((self.word.0 >> OFFSET) as u8)
    }

    /// Byte 13 of its TCP header; 0 for other protocols.
    #[inline(always)]
    pub(super) fn tcp_flags(self) -> u8 {
        (self.word.0 >> FLAGS) as u8
    }

    /// Not 0 where a packet is not like one `distance` before it in its family's lane: goes by another way, shows TCP flags that
    /// mean something else to its connection's entry, or has a key elsewhere than so far behind the other's.
    #[inline(always)]
    pub(super) fn is_unlike(self, other: Packet, distance: usize) -> u64 {
        const FLAGS_NOTED: u64 = ((tcp::FIN | tcp::SYN | tcp::RST) as u64) << FLAGS;
        const MASK: u64 = 0xff << SLOT | 0xff << LANE | FLAGS_NOTED;
        let expected = other.word.0.wrapping_add((distance as u64) << SLOT);
        (self.way.0 ^ other.way.0) | (self.word.0 ^ expected) & MASK
    }

    /// Not 0 where a packet goes by another way or lane than one before it, or may begin a connection.
    #[inline(always)]
    pub(super) fn differs_from(self, first: Packet) -> u64 {
        const SYN: u64 = (tcp::SYN as u64) << FLAGS;
        let lanes = (self.word.0 ^ first.word.0) & 0xff << LANE;
        (self.way.0 ^ first.way.0) | lanes | self.word.0 & SYN
    }
}
