//! Flow keys: which service path and stage (or edge) a packet is at, and its 5-tuple.
//!
//! A key is two parts. The *head* packs everything but the addresses into 56 bits,
//!
//! ```text
//!   55            40 39      32 31              16 15          0
//!  +----------------+----------+------------------+-------------+
//!  |      path      | protocol | destination port | source port |
//!  +----------------+----------+------------------+-------------+
//! ```
//!
//! and the *addresses* are one 64-bit word (IPv4) or two 128-bit words (IPv6). The lowest twelve bits of the head
//! are the key's *quotient*: the table does not store them, because the number of the bucket an entry lies in
//! already tells them (see [`crate::table`]).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::bucket::{Bucket, Bucket4, Bucket6};
use crate::engine::Engine;
use crate::probe::{Hashes, Mixer, Wanted};
use crate::shape::Shape;

/// Bits of a key that are implied by the bucket instead of stored.
pub(crate) const QUOTIENT_BITS: u32 = 12;
/// The quotient within a head.
pub(crate) const QUOTIENT_MASK: u64 = (1 << QUOTIENT_BITS) - 1;

pub(crate) const PROTOCOL_SHIFT: u32 = 32;
pub(crate) const PATH_SHIFT: u32 = 40;

/// A key's parts, for the table. Nobody outside implements it.
pub trait Layout: Copy + Eq + 'static {
    /// The address words.
    type Addresses: Copy + Eq;
    /// The unit of memory that holds entries of this kind.
    type Bucket: Bucket<Addresses = Self::Addresses>;
    /// What is hashed.
    type Blocks: AsRef<[u128]> + Copy;

    /// Path, protocol and ports; the upper eight bits are zero.
    fn head(&self) -> u64;
    /// Source and destination address.
    fn addresses(&self) -> Self::Addresses;
    /// The inverse of [`Layout::head`] and [`Layout::addresses`].
    fn from_parts(head: u64, addresses: Self::Addresses) -> Self;
    /// Adds (exclusive or, hence its own inverse) a word to the addresses.
    fn mix(addresses: Self::Addresses, word: u64) -> Self::Addresses;
    /// Head and addresses as blocks to hash.
    fn blocks(head: u64, addresses: Self::Addresses) -> Self::Blocks;

    /// [`Mixer::probe_each`], by the best means there are for this kind.
    #[inline(always)]
    fn probe_each<E: Engine>(
        engine: E,
        mixer: Mixer,
        shape: Shape,
        keys: &[Self],
        wanted: &mut [Wanted<Self::Addresses>],
        buckets: &mut [Hashes],
    ) {
        mixer.probe_each(engine, shape, keys, wanted, buckets);
    }
}

/// A kind of key: [`Ipv4Key`] or [`Ipv6Key`]. A table holds one kind.
pub trait FlowKey: Layout + std::hash::Hash + fmt::Debug {
    /// The interned service path and stage, or edge, given when the key was made.
    fn path(&self) -> u16 {
        (self.head() >> PATH_SHIFT) as u16
    }

    /// The IP protocol number (IPv6: of the upper-layer header).
    fn protocol(&self) -> u8 {
        (self.head() >> PROTOCOL_SHIFT) as u8
    }

    /// The source port in forward orientation, or what stands for it (ICMP: the identifier).
    fn source_port(&self) -> u16 {
        self.head() as u16
    }

    /// The destination port in forward orientation, or what stands for it.
    fn destination_port(&self) -> u16 {
        (self.head() >> 16) as u16
    }
}

/// The ports of a head, exchanged, under another path.
#[inline(always)]
const fn reversed_head(head: u64, path: u16) -> u64 {
    let protocol = head & 0xff << PROTOCOL_SHIFT;
    (path as u64) << PATH_SHIFT | protocol | (head as u32).rotate_left(16) as u64
}

/// A head under another path.
#[inline(always)]
const fn head_at(head: u64, path: u16) -> u64 {
    head & ((1 << PATH_SHIFT) - 1) | (path as u64) << PATH_SHIFT
}

impl FlowKey for Ipv4Key {}
impl FlowKey for Ipv6Key {}

const fn head(path: u16, protocol: u8, source_port: u16, destination_port: u16) -> u64 {
    (path as u64) << PATH_SHIFT
        | (protocol as u64) << PROTOCOL_SHIFT
        | (destination_port as u64) << 16
        | source_port as u64
}

/// Key of an IPv4 connection, in forward orientation: source is the side that the chain's ingress is on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C, align(16))]
pub struct Ipv4Key {
    addresses: u64,
    head: u64,
}

impl Ipv4Key {
    /// A key from host-order numbers; `path` is the caller's interned id of a service path pair and stage, or of an edge.
    #[inline]
    pub const fn new(
        path: u16,
        source: u32,
        destination: u32,
        protocol: u8,
        source_port: u16,
        destination_port: u16,
    ) -> Self {
        Self {
            head: head(path, protocol, source_port, destination_port),
            addresses: (source as u64) << 32 | destination as u64,
        }
    }

    /// [`Ipv4Key::new`] from words as headers hold them: source and destination address in one, source and destination port
    /// in the other, the source in the upper half.
    #[inline(always)]
    pub const fn from_words(path: u16, protocol: u8, addresses: u64, ports: u32) -> Self {
        Self {
            head: (path as u64) << PATH_SHIFT
                | (protocol as u64) << PROTOCOL_SHIFT
                | ports.rotate_left(16) as u64,
            addresses,
        }
    }

    /// The same connection on another path.
    #[inline(always)]
    pub const fn at(&self, path: u16) -> Self {
        Self {
            head: head_at(self.head, path),
            addresses: self.addresses,
        }
    }

    /// The connection as its answers show it, on a path.
    #[inline(always)]
    pub const fn reversed_at(&self, path: u16) -> Self {
        Self {
            head: reversed_head(self.head, path),
            addresses: self.addresses.rotate_left(32),
        }
    }

    /// Source and destination address, the source above.
    #[inline(always)]
    pub const fn both_addresses(&self) -> u64 {
        self.addresses
    }

    /// Destination and source port, the source below.
    #[inline(always)]
    pub const fn both_ports(&self) -> u32 {
        self.head as u32
    }

    /// The source address in forward orientation.
    pub const fn source(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits((self.addresses >> 32) as u32)
    }

    /// The destination address in forward orientation.
    pub const fn destination(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.addresses as u32)
    }
}

impl Layout for Ipv4Key {
    type Addresses = u64;
    type Bucket = Bucket4;
    type Blocks = [u128; 1];

    #[inline(always)]
    fn head(&self) -> u64 {
        self.head
    }

    #[inline(always)]
    fn addresses(&self) -> u64 {
        self.addresses
    }

    #[inline(always)]
    fn from_parts(head: u64, addresses: u64) -> Self {
        Self { head, addresses }
    }

    #[inline(always)]
    fn mix(addresses: u64, word: u64) -> u64 {
        addresses ^ word
    }

    #[inline(always)]
    fn blocks(head: u64, addresses: u64) -> [u128; 1] {
        [(head as u128) << 64 | addresses as u128]
    }

    #[inline(always)]
    fn probe_each<E: Engine>(
        engine: E,
        mixer: Mixer,
        shape: Shape,
        keys: &[Self],
        wanted: &mut [Wanted<u64>],
        buckets: &mut [Hashes],
    ) {
        engine.probe4_each(mixer, shape, keys, wanted, buckets);
    }
}

impl fmt::Debug for Ipv4Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "path {} protocol {} {}:{} > {}:{}",
            self.path(),
            self.protocol(),
            self.source(),
            self.source_port(),
            self.destination(),
            self.destination_port()
        )
    }
}

/// Key of an IPv6 connection, in forward orientation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ipv6Key {
    head: u64,
    addresses: [u128; 2],
}

impl Ipv6Key {
    /// A key from host-order numbers; the arguments mean what they mean for [`Ipv4Key::new`].
    #[inline]
    pub const fn new(
        path: u16,
        source: u128,
        destination: u128,
        protocol: u8,
        source_port: u16,
        destination_port: u16,
    ) -> Self {
        Self {
            head: head(path, protocol, source_port, destination_port),
            addresses: [source, destination],
        }
    }

    /// The same connection on another path.
    #[inline(always)]
    pub const fn at(&self, path: u16) -> Self {
        Self {
            head: head_at(self.head, path),
            addresses: self.addresses,
        }
    }

    /// The connection as its answers show it, on a path.
    #[inline(always)]
    pub const fn reversed_at(&self, path: u16) -> Self {
        Self {
            head: reversed_head(self.head, path),
            addresses: [self.addresses[1], self.addresses[0]],
        }
    }

    /// The source address in forward orientation.
    pub const fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.addresses[0])
    }

    /// The destination address in forward orientation.
    pub const fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.addresses[1])
    }
}

impl Layout for Ipv6Key {
    type Addresses = [u128; 2];
    type Bucket = Bucket6;
    type Blocks = [u128; 3];

    #[inline(always)]
    fn head(&self) -> u64 {
        self.head
    }

    #[inline(always)]
    fn addresses(&self) -> [u128; 2] {
        self.addresses
    }

    #[inline(always)]
    fn from_parts(head: u64, addresses: [u128; 2]) -> Self {
        Self { head, addresses }
    }

    #[inline(always)]
    fn mix(addresses: [u128; 2], word: u64) -> [u128; 2] {
        [addresses[0] ^ word as u128, addresses[1]]
    }

    #[inline(always)]
    fn blocks(head: u64, addresses: [u128; 2]) -> [u128; 3] {
        [head as u128, addresses[0], addresses[1]]
    }
}

impl fmt::Debug for Ipv6Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "path {} protocol {} [{}]:{} > [{}]:{}",
            self.path(),
            self.protocol(),
            self.source(),
            self.source_port(),
            self.destination(),
            self.destination_port()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_gives_back_what_it_was_made_from() {
        let key = Ipv4Key::new(0xabcd, 0x0a00_0001, 0xc0a8_0102, 6, 0x1234, 443);
        assert_eq!(
            format!("{key:?}"),
            "path 43981 protocol 6 10.0.0.1:4660 > 192.168.1.2:443"
        );
        assert_eq!(Ipv4Key::from_parts(key.head(), key.addresses()), key);
        let words = Ipv4Key::from_words(0xabcd, 6, 0x0a00_0001_c0a8_0102, 0x1234_01bb);
        assert_eq!(words, key);
        let answer = Ipv4Key::new(9, 0xc0a8_0102, 0x0a00_0001, 6, 443, 0x1234);
        assert_eq!(key.reversed_at(9), answer);
        assert_eq!(answer.reversed_at(3).at(0xabcd), key);
        let key = Ipv6Key::new(7, 1, 2 << 64, 17, 0xffff, 53);
        assert_eq!(
            format!("{key:?}"),
            "path 7 protocol 17 [::1]:65535 > [0:0:0:2::]:53"
        );
        let answer = Ipv6Key::new(8, 2 << 64, 1, 17, 53, 0xffff);
        assert_eq!(key.reversed_at(8), answer);
        assert_eq!(answer.reversed_at(3).at(7), key);
        assert_eq!(Ipv6Key::from_parts(key.head(), key.addresses()), key);
    }
}
