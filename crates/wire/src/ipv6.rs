//! IPv6 and its extension headers (RFC 8200, sections 3 and 4).
//!
//! ```text
//!  0                      4               6           7           8            24                 40
//! +----------------------+---------------+-----------+-----------+------------+------------------+
//! |ver|class|flow label  | payload length|next header| hop limit | source (16)| destination (16) |
//! +----------------------+---------------+-----------+-----------+------------+------------------+
//! extension: | next header | length / 8 - 1 | …
//! fragment:  | next header | 0 | offset 13, 0 2, more 1 | identification 4 |
//! authentication (RFC 4302): | next header | length / 4 - 2 | …
//! ```
//!
//! The walk ends at the first protocol that is no extension header, or at [`EXTENSION_LIMIT`]. Encrypted payload (ESP) is
//! such a protocol.

use crate::ParseError;

/// Bytes of the fixed header.
pub const HEADER_LENGTH: usize = 40;
/// Extension headers that are read at most.
pub const EXTENSION_LIMIT: usize = 8;

const FRAGMENT_LENGTH: usize = 8;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
const AUTHENTICATION: u8 = 51;
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;

/// Whether a next-header number is that of an extension header that is walked over.
#[inline]
const fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        HOP_BY_HOP
            | ROUTING
            | FRAGMENT
            | AUTHENTICATION
            | DESTINATION
            | MOBILITY
            | HOST_IDENTITY
            | SHIM6
    )
}

/// The fields of a header, and what its extension headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// Hop limit.
    pub hop_limit: u8,
    /// Bytes of the packet, fixed header included.
    pub total_length: usize,
    /// Protocol behind the extension headers.
    pub protocol: u8,
    /// Bytes up to that protocol's header.
    pub transport_offset: usize,
    /// The fragment header, if there is one.
    pub fragment: Option<Fragment>,
}

/// A fragment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Bytes of the original's fragmentable part in front of this fragment's.
    pub offset: usize,
    /// More fragments follow.
    pub more: bool,
    /// Names the original packet.
    pub identification: u32,
}

impl Header {
    /// Reads and checks a header and its extension headers.
    ///
    /// # Errors
    /// Names the first thing wrong.
    #[inline(always)]
    pub fn parse(packet: &[u8]) -> Result<Header, ParseError> {
        let header = Header::parse_fields(packet)?;
        if header.total_length > packet.len() {
            return Err(ParseError::Ipv6BadPayloadLength);
        }
        if header.transport_offset > header.total_length {
            return Err(ParseError::Ipv6ExtensionTruncated);
        }
        Ok(header)
    }

    /// Reads a header of which the packet may be cut short, as ICMP errors quote it.
    ///
    /// # Errors
    /// A header is cut short or its version is wrong.
    #[inline(always)]
    pub fn parse_fields(packet: &[u8]) -> Result<Header, ParseError> {
        let bytes = packet
            .first_chunk::<HEADER_LENGTH>()
            .ok_or(ParseError::Ipv6Truncated)?;
        if bytes[0] >> 4 != 6 {
            return Err(ParseError::Ipv6BadVersion);
        }
        let payload_length = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        let total_length = HEADER_LENGTH + payload_length;
        let extensions = if is_extension(bytes[6]) {
            Extensions::walk(bytes[6], total_length, packet)?
        } else {
            Extensions::none(bytes[6], total_length)
        };
        Ok(Header {
            source: address(bytes, 8),
            destination: address(bytes, 24),
            hop_limit: bytes[7],
            total_length,
            protocol: extensions.protocol,
            transport_offset: extensions.end,
            fragment: extensions.fragment,
        })
    }
}

/// What the extension headers say.
struct Extensions {
    /// Protocol behind those read so far.
    protocol: u8,
    /// Bytes up to it.
    end: usize,
    total_length: usize,
    fragment: Option<Fragment>,
}

impl Extensions {
    #[inline(always)]
    const fn none(protocol: u8, total_length: usize) -> Extensions {
        Extensions {
            protocol,
            end: HEADER_LENGTH,
            total_length,
            fragment: None,
        }
    }

    #[cold]
    fn walk(protocol: u8, total_length: usize, packet: &[u8]) -> Result<Extensions, ParseError> {
        let mut walked = Extensions::none(protocol, total_length);
        for _ in 0..EXTENSION_LIMIT {
            let at = walked.end;
            let length = match (walked.protocol, packet.get(at + 1)) {
                (FRAGMENT, _) => FRAGMENT_LENGTH,
                (AUTHENTICATION, Some(&length)) => (usize::from(length) + 2) * 4,
                (_, Some(&length)) => (usize::from(length) + 1) * 8,
                (_, None) => return Err(ParseError::Ipv6ExtensionTruncated),
            };
            let extension = packet
                .get(at..at + length)
                .ok_or(ParseError::Ipv6ExtensionTruncated)?;
            if walked.protocol == FRAGMENT {
                walked.read_fragment(extension)?;
            }
            walked.protocol = extension[0];
            walked.end = at + length;
            // Behind a later fragment's header is payload, not another header.
            let later = walked.fragment.is_some_and(|fragment| fragment.offset > 0);
            if later || !is_extension(walked.protocol) {
                return Ok(walked);
            }
        }
        Err(ParseError::Ipv6ExtensionTooDeep)
    }

    fn read_fragment(&mut self, extension: &[u8]) -> Result<(), ParseError> {
        let word = u16::from_be_bytes([extension[2], extension[3]]);
        let fragment = Fragment {
            offset: usize::from(word & 0xfff8),
            more: word & 1 == 1,
            identification: u32::from_be_bytes([
                extension[4],
                extension[5],
                extension[6],
                extension[7],
            ]),
        };
        // RFC 8200, section 4.5: the reassembled payload length, without this header, must fit in 16 bits, and
        // fragments but the last hold a multiple of 8 bytes.
        let headers = self.end + FRAGMENT_LENGTH;
        let too_long = fragment.offset + self.total_length
            > usize::from(u16::MAX) + HEADER_LENGTH + FRAGMENT_LENGTH;
        let uneven = fragment.more && !self.total_length.abs_diff(headers).is_multiple_of(8);
        if too_long || uneven {
            return Err(ParseError::Ipv6BadFragment);
        }
        self.fragment = Some(fragment);
        Ok(())
    }
}

/// The address at a place in a header; compiles to one move.
#[inline(always)]
fn address(bytes: &[u8; HEADER_LENGTH], at: usize) -> [u8; 16] {
    match bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        Some(address) => *address,
        None => [0; 16],
    }
}

/// Lowers the hop limit of a checked header by one.
#[inline]
pub fn decrement_hop_limit(packet: &mut [u8]) {
    if let Some(byte) = packet.get_mut(7) {
        *byte = byte.wrapping_sub(1);
    }
}

/// The bytes of a fixed header.
pub fn write(
    source: [u8; 16],
    destination: [u8; 16],
    protocol: u8,
    hop_limit: u8,
    payload_length: usize,
) -> [u8; HEADER_LENGTH] {
    let mut bytes = [0u8; HEADER_LENGTH];
    bytes[0] = 0x60;
    bytes[4..6].copy_from_slice(&(payload_length as u16).to_be_bytes());
    bytes[6] = protocol;
    bytes[7] = hop_limit;
    bytes[8..24].copy_from_slice(&source);
    bytes[24..40].copy_from_slice(&destination);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = write([1; 16], [2; 16], protocol, 64, payload.len()).to_vec();
        packet.extend_from_slice(payload);
        packet
    }

    #[test]
    fn reads_what_it_writes() {
        let packet = packet(17, &[0; 8]);
        let header = Header::parse(&packet).unwrap();
        assert_eq!((header.protocol, header.transport_offset), (17, 40));
        for length in 0..packet.len() {
            assert!(Header::parse(&packet[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn walks_extension_headers() {
        let payload = [
            [60, 0, 0, 0, 0, 0, 0, 0],
            [44, 0, 0, 0, 0, 0, 0, 0],
            [6, 0, 0, 1, 0, 0, 0, 9],
            [0; 8],
        ]
        .concat();
        let header = Header::parse(&packet(0, &payload)).unwrap();
        assert_eq!((header.protocol, header.transport_offset), (6, 64));
        let fragment = header.fragment.unwrap();
        assert_eq!(
            (fragment.offset, fragment.more, fragment.identification),
            (0, true, 9)
        );
    }

    #[test]
    fn walks_over_an_authentication_header() {
        let payload = [&[17, 4][..], &[0; 22], &[0; 8]].concat();
        let header = Header::parse(&packet(51, &payload)).unwrap();
        assert_eq!((header.protocol, header.transport_offset), (17, 64));
    }

    #[test]
    fn as_many_extensions_as_the_limit_are_read() {
        for count in 1..=EXTENSION_LIMIT {
            let mut payload = [60u8, 0, 0, 0, 0, 0, 0, 0].repeat(count);
            payload[8 * (count - 1)] = 59;
            let header = Header::parse(&packet(60, &payload)).unwrap();
            assert_eq!(
                (header.protocol, header.transport_offset),
                (59, 40 + 8 * count)
            );
        }
    }

    #[test]
    fn fragments_that_cannot_be_are_named() {
        let fragment = |offset: u16, more: u16, length: usize| {
            let word = (offset | more).to_be_bytes();
            let payload = [&[17, 0, word[0], word[1], 0, 0, 0, 1][..], &vec![0; length]].concat();
            Header::parse(&packet(44, &payload)).map(|header| header.transport_offset)
        };
        assert_eq!(fragment(0, 1, 16), Ok(48));
        assert_eq!(fragment(0, 1, 15), Err(ParseError::Ipv6BadFragment));
        assert_eq!(fragment(8, 0, 15), Ok(48));
        assert_eq!(fragment(0xfff8, 0, 7), Ok(48));
        assert_eq!(fragment(0xfff8, 0, 8), Err(ParseError::Ipv6BadFragment));
    }

    #[test]
    fn a_chain_of_extensions_is_bounded() {
        let payload = [60u8, 0, 0, 0, 0, 0, 0, 0].repeat(20);
        assert_eq!(
            Header::parse(&packet(60, &payload)),
            Err(ParseError::Ipv6ExtensionTooDeep)
        );
    }

    #[test]
    fn an_extension_beyond_the_packet_is_an_error() {
        assert_eq!(
            Header::parse(&packet(60, &[6, 9, 0, 0, 0, 0, 0, 0])),
            Err(ParseError::Ipv6ExtensionTruncated)
        );
        assert_eq!(
            Header::parse(&packet(60, &[])),
            Err(ParseError::Ipv6ExtensionTruncated)
        );
    }
}
