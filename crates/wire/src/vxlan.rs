//! VXLAN (RFC 7348, section 5).
//!
//! ```text
//!  0        1          4                      7          8
//! +--------+----------+----------------------+----------+------------------
//! |0000I000| reserved | network identifier   | reserved | Ethernet frame
//! +--------+----------+----------------------+----------+------------------
//! ```

use crate::ParseError;

/// UDP destination port.
pub const PORT: u16 = 4789;
/// Bytes of the header.
pub const HEADER_LENGTH: usize = 8;
const IDENTIFIER_VALID: u8 = 0x08;

/// Reads a header and returns the network identifier; reserved bits are ignored, as the RFC wants.
///
/// # Errors
/// Too short, or the I flag is not set.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<u32, ParseError> {
    let bytes = bytes
        .first_chunk::<HEADER_LENGTH>()
        .ok_or(ParseError::VxlanTruncated)?;
    if bytes[0] & IDENTIFIER_VALID == 0 {
        return Err(ParseError::VxlanBadFlags);
    }
    Ok(u32::from_be_bytes([0, bytes[4], bytes[5], bytes[6]]))
}

/// The bytes of a header for a 24-bit network identifier.
#[inline]
pub const fn to_bytes(identifier: u32) -> [u8; HEADER_LENGTH] {
    let [_, a, b, c] = identifier.to_be_bytes();
    [IDENTIFIER_VALID, 0, 0, 0, a, b, c, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_names_what_is_wrong() {
        let mut bytes = to_bytes(0x0a_bcde);
        assert_eq!(parse(&bytes), Ok(0x0a_bcde));
        assert_eq!(parse(&bytes[..7]), Err(ParseError::VxlanTruncated));
        bytes[0] = 0xff;
        assert_eq!(parse(&bytes), Ok(0x0a_bcde), "reserved bits are ignored");
        bytes[0] = 0xf7;
        assert_eq!(parse(&bytes), Err(ParseError::VxlanBadFlags));
    }
}
