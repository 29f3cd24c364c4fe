//! IPv4 (RFC 791, section 3.1).
//!
//! ```text
//!  0        1        2                 4                 6                 8
//! +--------+--------+-----------------+-----------------+-----------------+
//! |ver|ihl | DSCP   | total length    | identification  |-DM| offset / 8  |
//! +--------+--------+-----------------+-----------------+-----------------+
//! | TTL    |protocol| checksum        | source address                    |
//! +--------+--------+-----------------+-----------------------------------+
//! | destination address               | options, to a multiple of 4 bytes |
//! +-----------------------------------+-----------------------------------+
//! ```
//!
//! ihl: bytes of the header / 4. D: don't fragment. M: more fragments.

mod options;

pub use options::{Ipv4Option, Options};

use crate::{ParseError, checksum};

/// Bytes of a header without options.
pub const HEADER_LENGTH: usize = 20;
/// Bytes of a header with as many options as there can be.
pub const HEADER_LENGTH_LIMIT: usize = 60;
const DONT_FRAGMENT: u16 = 0x4000;
pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;

/// The fields of a header that steering reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
    /// Protocol behind the header.
    pub protocol: u8,
    /// Time to live.
    pub ttl: u8,
    /// Bytes of the header, options included.
    pub header_length: usize,
    /// Bytes of the packet, header included; the frame may hold padding behind it.
    pub total_length: usize,
    /// Don't fragment.
    pub dont_fragment: bool,
    /// More fragments follow.
    pub more_fragments: bool,
    /// Bytes of the original payload in front of this fragment's.
    pub fragment_offset: usize,
    /// Names the original packet of fragments.
    pub identification: u16,
}

impl Header {
    /// Reads and checks a header: version, lengths, checksum.
    ///
    /// # Errors
    /// Names the first thing wrong.
    #[inline(always)]
    pub fn parse(packet: &[u8]) -> Result<Header, ParseError> {
        let header = Header::parse_fields(packet)?;
        if header.total_length > packet.len() {
            return Err(ParseError::Ipv4BadTotalLength);
        }
        let right = match packet.first_chunk::<HEADER_LENGTH>() {
            Some(bytes) if header.header_length == HEADER_LENGTH => checksum::is_right(bytes),
            _ => checksum::fold(checksum::sum(&packet[..header.header_length])) == 0xffff,
        };
        if !right {
            return Err(ParseError::Ipv4BadChecksum);
        }
        let payload = header.total_length - header.header_length;
        if header.fragment_offset + header.total_length > 65_535
            || (header.more_fragments && !payload.is_multiple_of(8))
        {
            return Err(ParseError::Ipv4BadFragment);
        }
        Ok(header)
    }

    /// Reads a header of which the packet may be cut short, as ICMP errors quote it.
    ///
    /// # Errors
    /// The header itself is cut short or its version or lengths are wrong.
    #[inline(always)]
    pub fn parse_fields(packet: &[u8]) -> Result<Header, ParseError> {
        let bytes = packet
            .first_chunk::<HEADER_LENGTH>()
            .ok_or(ParseError::Ipv4Truncated)?;
        if bytes[0] >> 4 != 4 {
            return Err(ParseError::Ipv4BadVersion);
        }
        let header_length = usize::from(bytes[0] & 0x0f) * 4;
        if header_length < HEADER_LENGTH || header_length > packet.len() {
            return Err(ParseError::Ipv4BadHeaderLength);
        }
        let total_length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        if total_length < header_length {
            return Err(ParseError::Ipv4BadTotalLength);
        }
        let flags = u16::from_be_bytes([bytes[6], bytes[7]]);
        Ok(Header {
            source: [bytes[12], bytes[13], bytes[14], bytes[15]],
            destination: [bytes[16], bytes[17], bytes[18], bytes[19]],
            protocol: bytes[9],
            ttl: bytes[8],
            header_length,
            total_length,
            dont_fragment: flags & DONT_FRAGMENT != 0,
            more_fragments: flags & MORE_FRAGMENTS != 0,
            fragment_offset: usize::from(flags & 0x1fff) * 8,
            identification: u16::from_be_bytes([bytes[4], bytes[5]]),
        })
    }
}

/// Lowers the TTL of a checked header by one and mends the checksum (RFC 1624).
#[inline]
pub fn decrement_ttl(packet: &mut [u8]) {
    if let Some(bytes) = packet.first_chunk_mut::<HEADER_LENGTH>() {
        let old = u16::from_be_bytes([bytes[8], bytes[9]]);
        bytes[8] = bytes[8].wrapping_sub(1);
        let new = u16::from_be_bytes([bytes[8], bytes[9]]);
        let before = u16::from_be_bytes([bytes[10], bytes[11]]);
        bytes[10..12].copy_from_slice(&checksum::update(before, old, new).to_be_bytes());
    }
}

/// What [`write()`] puts into a header.
#[derive(Clone, Copy, Debug)]
pub struct Fields {
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
    /// Protocol behind the header.
    pub protocol: u8,
    /// Time to live.
    pub ttl: u8,
    /// Bytes behind the header.
    pub payload_length: usize,
    /// Names the packet's fragments.
    pub identification: u16,
    /// Don't fragment.
    pub dont_fragment: bool,
}

/// The bytes of a header without options.
pub fn write(fields: &Fields) -> [u8; HEADER_LENGTH] {
    let mut bytes = [0u8; HEADER_LENGTH];
    bytes[0] = 0x45;
    bytes[2..4].copy_from_slice(&((HEADER_LENGTH + fields.payload_length) as u16).to_be_bytes());
    bytes[4..6].copy_from_slice(&fields.identification.to_be_bytes());
    let flags = if fields.dont_fragment {
        DONT_FRAGMENT
    } else {
        0
    };
    bytes[6..8].copy_from_slice(&flags.to_be_bytes());
    bytes[8] = fields.ttl;
    bytes[9] = fields.protocol;
    bytes[12..16].copy_from_slice(&fields.source);
    bytes[16..20].copy_from_slice(&fields.destination);
    set_checksum(&mut bytes);
    bytes
}

/// Computes the checksum of a header, options included, and stores it.
pub fn set_checksum(header: &mut [u8]) {
    if header.len() >= HEADER_LENGTH {
        header[10..12].fill(0);
        let value = checksum::finish(checksum::sum(header));
        header[10..12].copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Vec<u8> {
        let mut packet = write(&Fields {
            source: [10, 0, 0, 1],
            destination: [10, 0, 0, 2],
            protocol: 17,
            ttl: 64,
            payload_length: 8,
            identification: 7,
            dont_fragment: true,
        })
        .to_vec();
        packet.extend([0; 8]);
        packet
    }

    fn changed(change: impl Fn(&mut Vec<u8>)) -> Result<Header, ParseError> {
        let mut packet = packet();
        change(&mut packet);
        let length = usize::from(packet[0] & 15) * 4;
        if (20..=packet.len()).contains(&length) {
            set_checksum(&mut packet[..length]);
        }
        Header::parse(&packet)
    }

    #[test]
    fn reads_what_it_writes() {
        let header = Header::parse(&packet()).unwrap();
        assert_eq!((header.total_length, header.ttl), (28, 64));
        assert!(header.dont_fragment && !header.more_fragments);
    }

    #[test]
    fn names_what_is_wrong() {
        assert_eq!(changed(|p| p[0] = 0x65), Err(ParseError::Ipv4BadVersion));
        assert_eq!(
            changed(|p| p[0] = 0x44),
            Err(ParseError::Ipv4BadHeaderLength)
        );
        assert_eq!(
            changed(|p| p[0] = 0x4f),
            Err(ParseError::Ipv4BadHeaderLength)
        );
        assert_eq!(changed(|p| p[3] = 19), Err(ParseError::Ipv4BadTotalLength));
        assert_eq!(changed(|p| p[3] = 29), Err(ParseError::Ipv4BadTotalLength));
        assert_eq!(
            changed(|p| p[6..8].copy_from_slice(&[0x1f, 0xff])).map(|h| h.fragment_offset),
            Err(ParseError::Ipv4BadFragment)
        );
        let mut packet = packet();
        packet[10] ^= 1;
        assert_eq!(Header::parse(&packet), Err(ParseError::Ipv4BadChecksum));
    }

    #[test]
    fn truncation_at_every_length_is_an_error() {
        let packet = packet();
        for length in 0..packet.len() {
            assert!(Header::parse(&packet[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn decrement_keeps_the_checksum_right() {
        let mut packet = packet();
        for ttl in (0..64).rev() {
            decrement_ttl(&mut packet);
            assert_eq!(Header::parse(&packet).unwrap().ttl, ttl);
        }
    }
}
