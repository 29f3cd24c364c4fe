//! VXLAN Generic Protocol Extension (draft-ietf-nvo3-vxlan-gpe, section 3).
//!
//! ```text
//!  0          1          3               4                      7          8
//! +----------+----------+---------------+----------------------+----------+---------
//! |RRVVIPBO  | reserved | next protocol | network identifier   | reserved | payload
//! +----------+----------+---------------+----------------------+----------+---------
//! ```
//!
//! V: version, 0. I: the network identifier is valid. P: the next protocol is valid; without it the payload
//! is an Ethernet frame, as in plain VXLAN. B: broadcast, unknown or multicast. O: the payload is for operation
//! and maintenance, not traffic. Reserved bits are 0 when sent and ignored when read.

use crate::ParseError;
use crate::vxlan::Vni;

/// UDP destination port.
pub const PORT: u16 = 4790;
/// Bytes of the header.
pub const HEADER_LENGTH: usize = 8;
const VERSION: u8 = 0x30;
const IDENTIFIER_VALID: u8 = 0x08;
const PROTOCOL_VALID: u8 = 0x04;
const OAM: u8 = 0x01;

/// What follows the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NextProtocol {
    /// An IPv4 packet.
    Ipv4 = 1,
    /// An IPv6 packet.
    Ipv6 = 2,
    /// An Ethernet frame.
    Ethernet = 3,
    /// A network service header.
    Nsh = 4,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What follows.
    pub next: NextProtocol,
    /// The network.
    pub network: Vni,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// Too short, another version, the I flag not set, the O flag set, or a next protocol that nothing here reads.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, ParseError> {
        let bytes = bytes
            .first_chunk::<HEADER_LENGTH>()
            .ok_or(ParseError::VxlanGpeTruncated)?;
        if bytes[0] & VERSION != 0 {
            return Err(ParseError::VxlanGpeBadVersion);
        }
        if bytes[0] & (IDENTIFIER_VALID | OAM) != IDENTIFIER_VALID {
            return Err(ParseError::VxlanGpeBadFlags);
        }
        let next = match (bytes[0] & PROTOCOL_VALID, bytes[3]) {
            (0, _) | (_, 3) => NextProtocol::Ethernet,
            (_, 1) => NextProtocol::Ipv4,
            (_, 2) => NextProtocol::Ipv6,
            (_, 4) => NextProtocol::Nsh,
            _ => return Err(ParseError::VxlanGpeUnknownProtocol),
        };
        Ok(Header {
            next,
            network: Vni::from_bytes([bytes[4], bytes[5], bytes[6]]),
        })
    }

    /// The header's bytes.
    #[inline]
    pub const fn to_bytes(self) -> [u8; HEADER_LENGTH] {
        let [a, b, c] = self.network.to_bytes();
        let flags = IDENTIFIER_VALID | PROTOCOL_VALID;
        [flags, 0, 0, self.next as u8, a, b, c, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(next: NextProtocol) -> Header {
        Header {
            next,
            network: Vni::new(0x12_3456).unwrap(),
        }
    }

    #[test]
    fn reads_what_it_writes() {
        for next in [
            NextProtocol::Ipv4,
            NextProtocol::Ipv6,
            NextProtocol::Ethernet,
            NextProtocol::Nsh,
        ] {
            let bytes = header(next).to_bytes();
            assert_eq!(Header::parse(&bytes), Ok(header(next)));
            for length in 0..HEADER_LENGTH {
                assert_eq!(
                    Header::parse(&bytes[..length]),
                    Err(ParseError::VxlanGpeTruncated)
                );
            }
        }
    }

    #[test]
    fn names_what_is_wrong() {
        for (at, value, error) in [
            (0, 0x1c, ParseError::VxlanGpeBadVersion),
            (0, 0x2c, ParseError::VxlanGpeBadVersion),
            (0, 0x04, ParseError::VxlanGpeBadFlags),
            (0, 0x0d, ParseError::VxlanGpeBadFlags),
            (3, 0, ParseError::VxlanGpeUnknownProtocol),
            (3, 9, ParseError::VxlanGpeUnknownProtocol),
        ] {
            let mut bytes = header(NextProtocol::Nsh).to_bytes();
            bytes[at] = value;
            assert_eq!(Header::parse(&bytes), Err(error), "byte {at} is {value:#x}");
        }
    }

    #[test]
    fn reserved_bits_are_ignored_and_without_the_p_flag_it_is_ethernet() {
        let bytes = [0xca, 0xff, 0xff, 0xff, 0x12, 0x34, 0x56, 0xff];
        assert_eq!(Header::parse(&bytes), Ok(header(NextProtocol::Ethernet)));
    }
}
