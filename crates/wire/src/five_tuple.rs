//! What names a connection: protocol, addresses and ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Source and destination address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Source.
        source: [u8; 4],
        /// Destination.
        destination: [u8; 4],
    },
    /// IPv6.
    V6 {
        /// Source.
        source: [u8; 16],
        /// Destination.
        destination: [u8; 16],
    },
}

/// A connection as one of its packets shows it. ICMP echoes have their identifier as both ports; other
/// protocols without ports have 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FiveTuple {
    /// Source and destination address.
    pub addresses: Addresses,
    /// IP protocol number.
    pub protocol: u8,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

/// 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// An odd number without pattern, from SplitMix64.
const MIX: u64 = 0xbf58_476d_1ce4_e5b9;

impl FiveTuple {
    /// A connection of a protocol that has no ports, or of which they are not known yet: they are 0.
    #[inline]
    pub const fn without_ports(addresses: Addresses, protocol: u8) -> FiveTuple {
        FiveTuple {
            addresses,
            protocol,
            source_port: 0,
            destination_port: 0,
        }
    }

    /// The same connection as packets of the other direction show it.
    #[inline]
    #[must_use]
    pub fn reversed(self) -> FiveTuple {
        FiveTuple {
            addresses: match self.addresses {
                Addresses::V4 {
                    source,
                    destination,
                } => Addresses::V4 {
                    source: destination,
                    destination: source,
                },
                Addresses::V6 {
                    source,
                    destination,
                } => Addresses::V6 {
                    source: destination,
                    destination: source,
                },
            },
            protocol: self.protocol,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }

    /// The source address.
    pub fn source(&self) -> IpAddr {
        match self.addresses {
            Addresses::V4 { source, .. } => Ipv4Addr::from(source).into(),
            Addresses::V6 { source, .. } => Ipv6Addr::from(source).into(),
        }
    }

    /// The destination address.
    pub fn destination(&self) -> IpAddr {
        match self.addresses {
            Addresses::V4 { destination, .. } => Ipv4Addr::from(destination).into(),
            Addresses::V6 { destination, .. } => Ipv6Addr::from(destination).into(),
        }
    }

    /// 64 bits that are the same for both directions: what the outer UDP source port is made from.
    /// Not keyed: never use it where collisions could be aimed.
    #[inline]
    pub fn symmetric_hash(&self) -> u64 {
        let (a, b) = match self.addresses {
            Addresses::V4 {
                source,
                destination,
            } => (
                u64::from(u32::from_be_bytes(source)),
                u64::from(u32::from_be_bytes(destination)),
            ),
            Addresses::V6 {
                source,
                destination,
            } => (fold(source), fold(destination)),
        };
        let a = a.rotate_left(16) ^ u64::from(self.source_port);
        let b = b.rotate_left(16) ^ u64::from(self.destination_port);
        meet(a, b, self.protocol)
    }

    /// The outer UDP source port for the connection: 49152 to 65535 (RFC 7348, section 5).
    #[inline]
    pub fn entropy_port(&self) -> u16 {
        port_of(self.symmetric_hash())
    }

    /// [`FiveTuple::entropy_port`] over IPv4 from both ends, each its address with its port behind it.
    #[inline(always)]
    pub const fn entropy_port_v4(source: u64, destination: u64, protocol: u8) -> u16 {
        port_of(meet(source, destination, protocol))
    }
}

/// The hash of a protocol and two ends, the same whichever comes first.
#[inline(always)]
const fn meet(a: u64, b: u64, protocol: u8) -> u64 {
    // Sum and difference are the same whichever comes first, and together leave nothing else open.
    let sum = a.wrapping_add(b) ^ (protocol as u64) << 56;
    let word = sum.wrapping_mul(SPREAD) ^ (a ^ b).wrapping_mul(MIX).rotate_left(32);
    (word ^ word >> 32).wrapping_mul(MIX)
}

#[inline(always)]
const fn port_of(hash: u64) -> u16 {
    0xc000 | (hash >> 50) as u16
}

#[inline]
fn fold(address: [u8; 16]) -> u64 {
    let word = u128::from_be_bytes(address);
    ((word >> 64) as u64).wrapping_mul(SPREAD) ^ word as u64
}

impl fmt::Display for FiveTuple {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} {} > {} {} protocol {}",
            self.source(),
            self.source_port,
            self.destination(),
            self.destination_port,
            self.protocol
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_hash_alike_and_connections_spread() {
        let mut ports = std::collections::HashSet::new();
        for port in 0..1000u16 {
            let tuple = FiveTuple {
                addresses: Addresses::V4 {
                    source: [10, 0, 0, 1],
                    destination: [10, 0, 0, 2],
                },
                protocol: 6,
                source_port: port,
                destination_port: 80,
            };
            assert_eq!(tuple.symmetric_hash(), tuple.reversed().symmetric_hash());
            assert_eq!(tuple.reversed().reversed(), tuple);
            assert!(tuple.entropy_port() >= 49_152);
            ports.insert(tuple.entropy_port());
        }
        assert!(ports.len() > 900, "{} of 1000 differ", ports.len());
    }

    #[test]
    fn connections_spread_evenly_whichever_part_of_them_differs() {
        let tuple = |number: u32, part: usize| {
            let [_, a, b, c] = number.to_be_bytes();
            let mut tuple = FiveTuple {
                addresses: Addresses::V4 {
                    source: [10, 0, 0, 1],
                    destination: [192, 0, 2, 1],
                },
                protocol: 17,
                source_port: 1,
                destination_port: 2,
            };
            match (part, &mut tuple.addresses) {
                (0, Addresses::V4 { source, .. }) => *source = [10, a, b, c],
                (1, Addresses::V4 { destination, .. }) => *destination = [203, a, b, c],
                (2, _) => tuple.source_port = number as u16,
                _ => tuple.destination_port = number as u16,
            }
            tuple
        };
        for part in 0..4 {
            // By the upper bits, as the outer port and the choice of a worker have them.
            let mut shares = [0u32; 64];
            for number in 0..64_000 {
                shares[(tuple(number, part).symmetric_hash() >> 58) as usize] += 1;
            }
            // Ten standard deviations of a fair draw.
            assert!(
                shares.iter().all(|&share| share.abs_diff(1000) < 316),
                "{part}: {shares:?}"
            );
        }
    }
}
