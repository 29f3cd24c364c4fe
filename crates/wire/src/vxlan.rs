//! VXLAN (RFC 7348, section 5).
//!
//! ```text
//!  0        1          4                      7          8
//! +--------+----------+----------------------+----------+------------------
//! |0000I000| reserved | network identifier   | reserved | Ethernet frame
//! +--------+----------+----------------------+----------+------------------
//! ```
//!
//! I: the network identifier is valid. Reserved bits are 0 when sent and ignored when read.

use crate::ParseError;
use std::fmt;

/// UDP destination port (RFC 7348, section 8).
pub const PORT: u16 = 4789;
/// Bytes of the header.
pub const HEADER_LENGTH: usize = 8;
const IDENTIFIER_VALID: u8 = 0x08;

/// A VXLAN network identifier: 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Vni(u32);

impl Vni {
    /// An identifier, unless the number has more than 24 bits.
    #[inline]
    pub const fn new(value: u32) -> Option<Vni> {
        if value >> 24 == 0 {
            Some(Vni(value))
        } else {
            None
        }
    }

    /// Its number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// From its three bytes on the wire.
    #[inline]
    pub(crate) const fn from_bytes([a, b, c]: [u8; 3]) -> Vni {
        Vni(u32::from_be_bytes([0, a, b, c]))
    }

    /// Its three bytes on the wire.
    #[inline]
    pub(crate) const fn to_bytes(self) -> [u8; 3] {
        let [_, a, b, c] = self.0.to_be_bytes();
        [a, b, c]
    }
}

impl fmt::Display for Vni {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}

/// Reads a header and returns the network identifier; reserved bits are ignored, as the RFC wants.
///
/// # Errors
/// Too short, or the I flag is not set.
#[inline(always)]
pub fn parse(bytes: &[u8]) -> Result<Vni, ParseError> {
    let bytes = bytes
        .first_chunk::<HEADER_LENGTH>()
        .ok_or(ParseError::VxlanTruncated)?;
    if bytes[0] & IDENTIFIER_VALID == 0 {
        return Err(ParseError::VxlanBadFlags);
    }
    Ok(Vni::from_bytes([bytes[4], bytes[5], bytes[6]]))
}

/// The bytes of a header.
#[inline]
pub const fn to_bytes(network: Vni) -> [u8; HEADER_LENGTH] {
    let [a, b, c] = network.to_bytes();
    [IDENTIFIER_VALID, 0, 0, 0, a, b, c, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_names_what_is_wrong() {
        let network = Vni::new(0x0a_bcde).unwrap();
        let mut bytes = to_bytes(network);
        assert_eq!(bytes, [8, 0, 0, 0, 0x0a, 0xbc, 0xde, 0]);
        assert_eq!(parse(&bytes), Ok(network));
        for length in 0..HEADER_LENGTH {
            assert_eq!(parse(&bytes[..length]), Err(ParseError::VxlanTruncated));
        }
        bytes[0] = 0xf7;
        assert_eq!(parse(&bytes), Err(ParseError::VxlanBadFlags));
    }

    #[test]
    fn reserved_bits_are_ignored() {
        assert_eq!(
            parse(&[0xff, 0xff, 0xff, 0xff, 0, 0, 7, 0xff]),
            Ok(Vni::new(7).unwrap())
        );
    }

    #[test]
    fn an_identifier_has_24_bits() {
        assert_eq!(Vni::new(0xff_ffff).map(Vni::get), Some(0xff_ffff));
        assert_eq!(Vni::new(0x100_0000), None);
    }
}
