//! The network service header (RFC 8300, section 2).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---+-+-+-----------+-----------+-+-+-+-+-------+---------------+
//! |Ver|O|U|    TTL    |  Length   |U|U|U|U|MD Type| next protocol |  base header, Length in 4 bytes
//! +---+-+-+-----------+-----------+-+-+-+-+-------+---------------+
//! |      service path identifier                  | service index |  service path header
//! +-----------------------------------------------+---------------+
//! |  MD type 1: 16 bytes of context                               |
//! |  MD type 2: context headers of variable length, or none       |
//! +---------------------------------------------------------------+
//! ```
//!
//! [`Header::parse`] refuses what RFC 8300 says to discard. A forwarder lowers the TTL, in place ([`decrement_ttl`]), so that the O
//! bit, unassigned bits (U) and context stay as they came (section 2.2). The service index is for service functions and proxies to
//! lower (section 2.3). Context is theirs too: nothing here reads it.

use crate::ParseError;
use std::fmt;

/// Bytes of base and service path header.
pub const BASE_LENGTH: usize = 8;
/// Bytes of a header with MD type 1.
pub const FIXED_LENGTH: usize = 24;
/// The TTL a classifier starts with unless told otherwise (RFC 8300, section 2.2).
pub const INITIAL_TTL: u8 = 63;

const OAM: u8 = 0x20;

/// Names a service path: 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServicePathIdentifier(u32);

impl ServicePathIdentifier {
    /// An identifier, unless the number has more than 24 bits.
    #[inline]
    pub const fn new(value: u32) -> Option<ServicePathIdentifier> {
        if value >> 24 == 0 {
            Some(ServicePathIdentifier(value))
        } else {
            None
        }
    }

    /// Its number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for ServicePathIdentifier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}

/// Where along its service path a packet is; falls by one at each service function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceIndex(u8);

impl ServiceIndex {
    /// What a classifier starts with (RFC 8300, section 2.3).
    pub const INITIAL: ServiceIndex = ServiceIndex(255);

    /// An index.
    #[inline]
    pub const fn new(value: u8) -> ServiceIndex {
        ServiceIndex(value)
    }

    /// Its number.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The index behind one more service function; none when this one is 0 already.
    #[inline]
    #[must_use]
    pub const fn decremented(self) -> Option<ServiceIndex> {
        match self.0.checked_sub(1) {
            Some(value) => Some(ServiceIndex(value)),
            None => None,
        }
    }
}

impl fmt::Display for ServiceIndex {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}

/// The format of the context behind the service path header (RFC 8300, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MetadataType {
    /// MD type 1: 16 bytes.
    Fixed = 1,
    /// MD type 2: context headers of variable length.
    Variable = 2,
}

/// What follows the header (RFC 8300, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NextProtocol {
    /// An IPv4 packet.
    Ipv4 = 1,
    /// An IPv6 packet.
    Ipv6 = 2,
    /// An Ethernet frame.
    Ethernet = 3,
    /// Another network service header.
    Nsh = 4,
    /// An MPLS label stack.
    Mpls = 5,
}

impl NextProtocol {
    #[inline]
    const fn from_number(number: u8) -> Option<NextProtocol> {
        Some(match number {
            1 => NextProtocol::Ipv4,
            2 => NextProtocol::Ipv6,
            3 => NextProtocol::Ethernet,
            4 => NextProtocol::Nsh,
            5 => NextProtocol::Mpls,
            _ => return None,
        })
    }
}

/// The base and service path header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Operation and maintenance, not traffic.
    pub oam: bool,
    /// Forwarders it may still pass; 0 stands for 64, as one less than 0 is 63.
    pub ttl: u8,
    /// Bytes of the header, context included.
    pub length: usize,
    /// Format of the context.
    pub metadata: MetadataType,
    /// What follows.
    pub next: NextProtocol,
    /// The service path.
    pub path: ServicePathIdentifier,
    /// Where along it.
    pub index: ServiceIndex,
}

impl Header {
    /// Reads a header. Unassigned bits are ignored.
    ///
    /// # Errors
    /// Too short; another version than 0; MD type 0 or 15 ([`ParseError::NshReservedMetadataType`]) or unknown; a
    /// length other than 6 words for MD type 1, below 2 words for MD type 2, or beyond the packet; an unknown next
    /// protocol.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, ParseError> {
        let base = bytes
            .first_chunk::<BASE_LENGTH>()
            .ok_or(ParseError::NshTruncated)?;
        if base[0] >> 6 != 0 {
            return Err(ParseError::NshBadVersion);
        }
        let length = usize::from(base[1] & 0x3f) * 4;
        let metadata = match base[2] & 0x0f {
            1 => MetadataType::Fixed,
            2 => MetadataType::Variable,
            0 | 15 => return Err(ParseError::NshReservedMetadataType),
            _ => return Err(ParseError::NshUnknownMetadataType),
        };
        let fits = match metadata {
            MetadataType::Fixed => length == FIXED_LENGTH,
            MetadataType::Variable => length >= BASE_LENGTH,
        };
        if !fits {
            return Err(ParseError::NshBadLength);
        }
        if length > bytes.len() {
            return Err(ParseError::NshTruncated);
        }
        Ok(Header {
            oam: base[0] & OAM != 0,
            ttl: (base[0] & 0x0f) << 2 | base[1] >> 6,
            length,
            metadata,
            next: NextProtocol::from_number(base[3]).ok_or(ParseError::NshUnknownNextProtocol)?,
            path: ServicePathIdentifier(u32::from_be_bytes([0, base[4], base[5], base[6]])),
            index: ServiceIndex(base[7]),
        })
    }

    /// The bytes of base and service path header; unassigned bits are 0 and bits above the TTL's six are cut off.
    /// Context is the caller's to append.
    #[inline]
    pub const fn to_bytes(&self) -> [u8; BASE_LENGTH] {
        let oam = if self.oam { OAM } else { 0 };
        let [_, a, b, c] = self.path.0.to_be_bytes();
        [
            oam | self.ttl >> 2 & 0x0f,
            self.ttl << 6 | (self.length / 4) as u8 & 0x3f,
            self.metadata as u8,
            self.next as u8,
            a,
            b,
            c,
            self.index.0,
        ]
    }

    /// The bytes of a whole header with MD type 1 and these 16 bytes of context (0: no metadata, section 2.4).
    #[inline]
    pub fn to_fixed_bytes(&self, context: &[u8; 16]) -> [u8; FIXED_LENGTH] {
        let header = Header {
            length: FIXED_LENGTH,
            metadata: MetadataType::Fixed,
            ..*self
        };
        let mut bytes = [0; FIXED_LENGTH];
        bytes[..BASE_LENGTH].copy_from_slice(&header.to_bytes());
        bytes[BASE_LENGTH..].copy_from_slice(context);
        bytes
    }
}

/// The TTL one hop on: one less, 63 for 0; none when that is 0 and the packet must be dropped (RFC 8300, section 2.2).
#[inline]
pub const fn next_ttl(ttl: u8) -> Option<u8> {
    match ttl.wrapping_sub(1) & 0x3f {
        0 => None,
        left => Some(left),
    }
}

/// Lowers the TTL in place before the look-up, and returns it; nothing else changes. None, and nothing has changed, when the TTL
/// runs out and the packet must not be forwarded, or `bytes` is too short.
#[inline]
pub fn decrement_ttl(bytes: &mut [u8]) -> Option<u8> {
    let base = bytes.first_chunk_mut::<BASE_LENGTH>()?;
    let left = next_ttl((base[0] & 0x0f) << 2 | base[1] >> 6)?;
    write_ttl(base, left);
    Some(left)
}

/// Writes another TTL in place, of at most 63; nothing else changes.
pub fn write_ttl(bytes: &mut [u8], ttl: u8) {
    if let Some(base) = bytes.first_chunk_mut::<BASE_LENGTH>() {
        base[0] = base[0] & 0xf0 | ttl >> 2 & 0x0f;
        base[1] = base[1] & 0x3f | ttl << 6;
    }
}

#[cfg(test)]
mod tests;
