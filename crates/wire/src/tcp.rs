//! TCP (RFC 9293, section 3.1): ports, flags, and clamping of the maximum segment size (sections 3.2 and 3.7.1).
//!
//! ```text
//!  0             2             4                 8                 12   13      14       16         18       20
//! +-------------+-------------+-----------------+-----------------+----+-------+--------+----------+--------+
//! | source port | dest. port  | sequence number | acknowledgement |off | flags | window | checksum | urgent | options
//! +-------------+-------------+-----------------+-----------------+----+-------+--------+----------+--------+
//! ```

use crate::{ParseError, checksum};

/// IP protocol number.
pub const PROTOCOL: u8 = 6;
/// Bytes of a header without options.
pub const HEADER_LENGTH: usize = 20;
/// Flag: no more data from the sender.
pub const FIN: u8 = 0x01;
/// Flag: opens a connection.
pub const SYN: u8 = 0x02;
/// Flag: ends a connection at once.
pub const RST: u8 = 0x04;
/// Flag: the acknowledgement counts.
pub const ACK: u8 = 0x10;

const OPTION_END: u8 = 0;
const OPTION_NO_OPERATION: u8 = 1;
const OPTION_MAXIMUM_SEGMENT_SIZE: u8 = 2;

/// The fields of a header that steering reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Byte 13.
    pub flags: u8,
    /// Bytes of the header, options included.
    pub header_length: usize,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// Too short, or a data offset that does not fit.
    #[inline(always)]
    pub fn parse(segment: &[u8]) -> Result<Header, ParseError> {
        let bytes = segment
            .first_chunk::<HEADER_LENGTH>()
            .ok_or(ParseError::TcpTruncated)?;
        let header_length = usize::from(bytes[12] >> 4) * 4;
        if header_length < HEADER_LENGTH || header_length > segment.len() {
            return Err(ParseError::TcpBadDataOffset);
        }
        Ok(Header {
            source_port: u16::from_be_bytes([bytes[0], bytes[1]]),
            destination_port: u16::from_be_bytes([bytes[2], bytes[3]]),
            flags: bytes[13],
            header_length,
        })
    }
}

/// The maximum segment size that a segment's options offer; nothing when none does, or options make no sense before it.
pub fn maximum_segment_size(segment: &[u8]) -> Option<u16> {
    let header = Header::parse(segment).ok()?;
    let at = maximum_segment_size_offset(&segment[..header.header_length])?;
    Some(u16::from_be_bytes([segment[at], segment[at + 1]]))
}

/// Lowers the maximum segment size a SYN offers to `limit` and mends the checksum; returns whether
/// it changed anything. Options that make no sense end the search.
pub fn clamp_maximum_segment_size(segment: &mut [u8], limit: u16) -> bool {
    let Ok(header) = Header::parse(segment) else {
        return false;
    };
    if header.flags & SYN == 0 {
        return false;
    }
    let Some(at) = maximum_segment_size_offset(&segment[..header.header_length]) else {
        return false;
    };
    let old = u16::from_be_bytes([segment[at], segment[at + 1]]);
    if old <= limit {
        return false;
    }
    let before = u16::from_be_bytes([segment[16], segment[17]]);
    // The value may lie at an odd offset: then the sum's words hold it with bytes swapped.
    let (from, to) = if at % 2 == 0 {
        (old, limit)
    } else {
        (old.swap_bytes(), limit.swap_bytes())
    };
    segment[at..at + 2].copy_from_slice(&limit.to_be_bytes());
    let after = checksum::update(before, from, to);
    segment[16..18].copy_from_slice(&after.to_be_bytes());
    true
}

/// Where a header's maximum-segment-size value lies.
fn maximum_segment_size_offset(header: &[u8]) -> Option<usize> {
    let mut at = HEADER_LENGTH;
    loop {
        match *header.get(at)? {
            OPTION_END => return None,
            OPTION_NO_OPERATION => at += 1,
            kind => {
                let length = usize::from(*header.get(at + 1)?);
                if length < 2 || at + length > header.len() {
                    return None;
                }
                if kind == OPTION_MAXIMUM_SEGMENT_SIZE {
                    return (length == 4).then_some(at + 2);
                }
                at += length;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syn(options: &[u8]) -> Vec<u8> {
        let mut segment = vec![0u8; HEADER_LENGTH];
        segment[0..4].copy_from_slice(&[0x30, 0x39, 0, 80]);
        segment.extend_from_slice(options);
        segment[12] = (segment.len() as u8 / 4) << 4;
        segment[13] = SYN;
        let value = checksum::finish(checksum::sum(&segment));
        segment[16..18].copy_from_slice(&value.to_be_bytes());
        segment
    }

    #[test]
    fn clamps_at_even_and_odd_offsets() {
        for options in [
            [2u8, 4, 0x05, 0xb4, 0, 0, 0, 0],
            [1, 2, 4, 0x05, 0xb4, 0, 0, 0],
        ] {
            let mut segment = syn(&options);
            assert_eq!(maximum_segment_size(&segment), Some(1460));
            assert!(clamp_maximum_segment_size(&mut segment, 1360));
            assert_eq!(maximum_segment_size(&segment), Some(1360));
            assert_eq!(checksum::finish(checksum::sum(&segment)), 0);
            assert!(segment.windows(4).any(|window| window == [2, 4, 5, 0x50]));
            assert!(!clamp_maximum_segment_size(&mut segment, 1360));
        }
    }

    #[test]
    fn only_a_syn_is_clamped() {
        let mut segment = syn(&[2, 4, 0x05, 0xb4]);
        segment[13] = ACK;
        assert!(!clamp_maximum_segment_size(&mut segment, 1));
        segment[13] = SYN | ACK;
        assert!(clamp_maximum_segment_size(&mut segment, 1));
    }

    #[test]
    fn leaves_senseless_options_alone() {
        for options in [
            [8u8, 0, 0, 0],
            [2, 5, 0, 0],
            [2, 3, 9, 0],
            [9, 200, 0, 0],
            [0, 2, 4, 9],
        ] {
            let mut segment = syn(&options);
            let before = segment.clone();
            assert_eq!(maximum_segment_size(&segment), None);
            assert!(!clamp_maximum_segment_size(&mut segment, 1));
            assert_eq!(segment, before);
        }
    }

    #[test]
    fn names_what_is_wrong() {
        let segment = syn(&[]);
        for length in 0..segment.len() {
            assert_eq!(
                Header::parse(&segment[..length]),
                Err(ParseError::TcpTruncated)
            );
        }
        let mut bad = segment.clone();
        bad[12] = 0x40;
        assert_eq!(Header::parse(&bad), Err(ParseError::TcpBadDataOffset));
        bad[12] = 0xf0;
        assert_eq!(Header::parse(&bad), Err(ParseError::TcpBadDataOffset));
    }
}
