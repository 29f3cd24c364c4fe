//! UDP (RFC 768).
//!
//! ```text
//!  0             2                  4          6          8
//! +-------------+------------------+----------+----------+------
//! | source port | destination port | length   | checksum | data
//! +-------------+------------------+----------+----------+------
//! ```

use crate::ParseError;

/// IP protocol number.
pub const PROTOCOL: u8 = 17;
/// Bytes of the header.
pub const HEADER_LENGTH: usize = 8;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Bytes of header and data.
    pub length: usize,
    /// 0: none.
    pub checksum: u16,
}

impl Header {
    /// Reads a header; `datagram` is everything the IP packet holds behind its header.
    ///
    /// # Errors
    /// Too short, or a length that does not fit.
    #[inline(always)]
    pub fn parse(datagram: &[u8]) -> Result<Header, ParseError> {
        let header = Header::parse_fields(datagram)?;
        if header.length > datagram.len() {
            return Err(ParseError::UdpBadLength);
        }
        Ok(header)
    }

    /// Reads a header whose data may be missing, as in first fragments.
    ///
    /// # Errors
    /// Too short, or a length below that of the header.
    #[inline(always)]
    pub fn parse_fields(datagram: &[u8]) -> Result<Header, ParseError> {
        let bytes = datagram
            .first_chunk::<HEADER_LENGTH>()
            .ok_or(ParseError::UdpTruncated)?;
        let length = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        if length < HEADER_LENGTH {
            return Err(ParseError::UdpBadLength);
        }
        Ok(Header {
            source_port: u16::from_be_bytes([bytes[0], bytes[1]]),
            destination_port: u16::from_be_bytes([bytes[2], bytes[3]]),
            length,
            checksum: u16::from_be_bytes([bytes[6], bytes[7]]),
        })
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LENGTH] {
        let mut bytes = [0; HEADER_LENGTH];
        bytes[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        bytes[4..6].copy_from_slice(&(self.length as u16).to_be_bytes());
        bytes[6..8].copy_from_slice(&self.checksum.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_names_what_is_wrong() {
        let header = Header {
            source_port: 49_152,
            destination_port: 4789,
            length: 12,
            checksum: 0xbeef,
        };
        let mut datagram = header.to_bytes().to_vec();
        datagram.extend([0; 4]);
        assert_eq!(Header::parse(&datagram), Ok(header));
        assert_eq!(Header::parse(&datagram[..7]), Err(ParseError::UdpTruncated));
        assert_eq!(
            Header::parse(&datagram[..11]),
            Err(ParseError::UdpBadLength)
        );
        datagram[5] = 7;
        assert_eq!(Header::parse(&datagram), Err(ParseError::UdpBadLength));
    }
}
