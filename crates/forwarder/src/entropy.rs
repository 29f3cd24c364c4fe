//! The entropy of a connection: a number that is the same for both directions and at every forwarder of the platform, and that nobody
//! without the platform's secret can tell.
//!
//! It is what the outer UDP source port of tunnels tells of the inner packet (RFC 7348, section 5), and all that a connection's home
//! depends on ([`crate::home`]): so whoever can read that port, or the inner packet, knows the home.
//!
//! Each end is 32 bits, an IPv4 address or a keyed sum of products of an IPv6 one (NH, RFC 4418, section 5.2). The ends meet in a product,
//! the ports in another; products do not tell which came first. All are products of 32 bits, of which processors work out
//! several at once, and which the kernel's packet filters can do too ([`crate::dealing`]).

use flow::siphash::SipHash13;
use flow::{FlowKey, Ipv4Key, Ipv6Key};
use wire::{Addresses, FiveTuple};

/// An odd number without pattern, from SplitMix64.
pub(crate) const MIX: u32 = 0x1ce4_e5b9;
/// Bits of the entropy, the upper ones, that the outer source port has room for.
pub(crate) const PORT_BITS: u32 = 14;
/// The least outer source port: the dynamic ones begin there.
const FIRST_PORT: u16 = 0xc000;
/// Sets these words apart from all else that is made from the same secret.
const PURPOSE: u64 = u64::from_le_bytes(*b"entropy ");

/// The secret function that tells a connection's entropy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entropy {
    /// Of the ends.
    pub(crate) ends: u32,
    /// Of the ports.
    pub(crate) ports: u32,
    /// Of the words of an IPv6 address.
    pub(crate) words: [u32; 4],
}

impl Entropy {
    /// For whoever has nothing to tell apart.
    pub(crate) const OF_NOTHING: Entropy = Entropy {
        ends: 0,
        ports: 0,
        words: [0; 4],
    };

    /// The function of a secret.
    pub fn new(secret: [u8; 16]) -> Entropy {
        let sip = SipHash13::new(secret);
        let word = |number| sip.hash_words([PURPOSE, number]) as u32;
        Entropy {
            ends: word(0),
            ports: word(1),
            words: [2, 3, 4, 5].map(word),
        }
    }

    /// The entropy of a connection.
    pub fn of(&self, tuple: &FiveTuple) -> u32 {
        let ports = u32::from(tuple.source_port) << 16 | u32::from(tuple.destination_port);
        match tuple.addresses {
            Addresses::V4 {
                source,
                destination,
            } => self.of_ends([source, destination].map(u32::from_be_bytes), ports),
            Addresses::V6 {
                source,
                destination,
            } => {
                let ends = [source, destination].map(u128::from_be_bytes);
                self.of_ends(ends.map(|end| self.fold(end)), ports)
            }
        }
    }

    /// The outer UDP source port of a connection's packets in tunnels: 49152 to 65535.
    pub fn port(&self, tuple: &FiveTuple) -> u16 {
        port_of(self.of(tuple))
    }

    /// The entropy of a key's connection.
    #[inline(always)]
    pub(crate) fn of_v4(&self, key: &Ipv4Key) -> u32 {
        let both = key.both_addresses();
        self.of_ends([(both >> 32) as u32, both as u32], key.both_ports())
    }

    /// The same of a key.
    #[inline(always)]
    pub(crate) fn of_v6(&self, key: &Ipv6Key) -> u32 {
        let ends = [key.source().to_bits(), key.destination().to_bits()];
        let ports = u32::from(key.source_port()) << 16 | u32::from(key.destination_port());
        self.of_ends(ends.map(|end| self.fold(end)), ports)
    }

    /// Two ends, and both ports.
    #[inline(always)]
    fn of_ends(&self, [one, other]: [u32; 2], ports: u32) -> u32 {
        let met = product(one ^ self.ends, other ^ self.ends);
        let turned = ports.rotate_left(16);
        let met = met.wrapping_add(product(ports ^ self.ports, turned ^ self.ports));
        folded(met).wrapping_mul(MIX)
    }

    /// An IPv6 address as an end.
    #[inline(always)]
    fn fold(&self, address: u128) -> u32 {
        let [a, b, c, d] = [96, 64, 32, 0].map(|below| (address >> below) as u32);
        let [e, f, g, h] = self.words;
        let sum = product(a.wrapping_add(e), b.wrapping_add(f));
        folded(sum.wrapping_add(product(c.wrapping_add(g), d.wrapping_add(h))))
    }
}

/// The outer UDP source port of packets whose connection has this entropy.
#[inline(always)]
pub(crate) fn port_of(entropy: u32) -> u16 {
    FIRST_PORT | (entropy >> (u32::BITS - PORT_BITS)) as u16
}

#[inline(always)]
fn product(one: u32, other: u32) -> u64 {
    u64::from(one) * u64::from(other)
}

#[inline(always)]
fn folded(word: u64) -> u32 {
    (word >> 32) as u32 ^ word as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use wire::steering::Direction;

    fn tuple(number: u32, part: usize, v6: bool) -> FiveTuple {
        let [a, b, c, d] = number.to_be_bytes();
        let wide = |end: [u8; 4]| {
            let mut address = [0x20; 16];
            address[12..].copy_from_slice(&end);
            address
        };
        let (source, destination) = match part {
            0 => ([10, b, c, d], [192, 0, 2, 1]),
            1 => ([10, 0, 0, 1], [a ^ 203, b, c, d]),
            _ => ([10, 0, 0, 1], [192, 0, 2, 1]),
        };
        let mut tuple = FiveTuple {
            addresses: match v6 {
                false => Addresses::V4 {
                    source,
                    destination,
                },
                true => Addresses::V6 {
                    source: wide(source),
                    destination: wide(destination),
                },
            },
            protocol: 17,
            source_port: 1,
            destination_port: 2,
        };
        match part {
            2 => tuple.source_port = number as u16,
            3 => tuple.destination_port = number as u16,
            _ => {}
        }
        tuple
    }

    #[test]
    fn both_directions_agree_and_connections_spread_evenly_whichever_part_of_them_differs() {
        for secret in 0..4 {
            let entropy = Entropy::new([secret; 16]);
            for (part, v6) in (0..4).flat_map(|part| [(part, false), (part, true)]) {
                // By the upper bits, as the outer port and homes have them.
                let mut shares = [0u32; 64];
                let mut ports = std::collections::HashSet::new();
                for number in 0..64_000 {
                    let tuple = tuple(number, part, v6);
                    let number = entropy.of(&tuple);
                    assert_eq!(number, entropy.of(&tuple.reversed()));
                    assert!(port_of(number) >= FIRST_PORT);
                    ports.insert(port_of(number));
                    shares[(number >> 26) as usize] += 1;
                }
                // Ten standard deviations of a fair draw.
                let even = shares.iter().all(|&share| share.abs_diff(1000) < 316);
                assert!(even, "{part}, IPv6 {v6}: {shares:?}");
                assert!(ports.len() > 15_000, "{part}: {} ports", ports.len());
            }
        }
    }

    #[test]
    fn a_key_has_the_entropy_of_its_connection() {
        let entropy = Entropy::new([7; 16]);
        for number in 0..1_000u32 {
            let word = number.wrapping_mul(0x9e37_79b9);
            let (from, to) = (number as u16, 53);
            let v4 = Ipv4Key::new(3, word, !word.rotate_left(7), 17, from, to);
            let wide = u128::from(word).wrapping_mul(0x0123_4567_89ab_cdef_0246_8ace_1357_9bdf);
            let v6 = Ipv6Key::new(3, wide, !wide.rotate_left(50), 6, from, to);
            for key in [v4, v4.reversed_at(3)] {
                assert_eq!(
                    entropy.of_v4(&key),
                    entropy.of(&key.tuple(Direction::Forward))
                );
            }
            for key in [v6, v6.reversed_at(3)] {
                assert_eq!(
                    entropy.of_v6(&key),
                    entropy.of(&key.tuple(Direction::Forward))
                );
            }
        }
    }

    #[test]
    fn who_does_not_know_the_secret_cannot_tell() {
        let [one, other] = [1, 2].map(|secret| Entropy::new([secret; 16]));
        for v6 in [false, true] {
            let both = (0..10_000).map(|number| tuple(number, 2, v6));
            let alike = both.filter(|tuple| one.of(tuple) >> 31 == other.of(tuple) >> 31);
            assert!(alike.count().abs_diff(5_000) < 500, "IPv6 {v6}");
        }
    }
}
