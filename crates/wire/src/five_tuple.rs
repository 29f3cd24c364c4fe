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
