//! Fragmentation of IPv4 packets (RFC 791, section 3.2).
//!
//! ```text
//! | header, all options    | 8 n bytes | more | → | header, copied options | 8 n bytes | more | → … | header | rest |
//! ```

use crate::ipv4::{self, Options};
use std::fmt;

/// Why a packet is not cut into fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FragmentError {
    /// Its sender forbids it: the answer is ICMP "fragmentation needed".
    DontFragment,
    /// The MTU has no room for the header and 8 bytes.
    MtuTooSmall,
    /// It is no whole IPv4 packet.
    Malformed,
}

impl fmt::Display for FragmentError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            FragmentError::DontFragment => "the packet must not be fragmented",
            FragmentError::MtuTooSmall => "the MTU holds no header and 8 bytes",
            FragmentError::Malformed => "the packet is no whole IPv4 packet",
        })
    }
}

impl std::error::Error for FragmentError {}

/// The fragments of a packet, written one after the other into the caller's buffers. A fragment can be cut again.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    first_header: &'a [u8],
    later_header: [u8; ipv4::HEADER_LENGTH_LIMIT],
    later_length: usize,
    payload: &'a [u8],
    /// Bytes of the payload written so far; none when all fragments were.
    written: Option<usize>,
    original: ipv4::Header,
    mtu: usize,
}

impl<'a> Fragments<'a> {
    /// Cuts a checked packet (padding behind it is left out) into fragments of at most `mtu` bytes.
    ///
    /// # Errors
    /// See [`FragmentError`].
    pub fn new(packet: &'a [u8], mtu: usize) -> Result<Fragments<'a>, FragmentError> {
        let original = ipv4::Header::parse_fields(packet).map_err(|_| FragmentError::Malformed)?;
        let packet = packet
            .get(..original.total_length)
            .ok_or(FragmentError::Malformed)?;
        if original.dont_fragment {
            return Err(FragmentError::DontFragment);
        }
        if mtu < original.header_length + 8 {
            return Err(FragmentError::MtuTooSmall);
        }
        let (first_header, payload) = packet.split_at(original.header_length);
        let (later_header, later_length) = later_header(first_header);
        Ok(Fragments {
            first_header,
            later_header,
            later_length,
            payload,
            written: Some(0),
            original,
            mtu,
        })
    }

    /// Bytes of the next fragment; none behind the last.
    pub fn next_length(&self) -> Option<usize> {
        let written = self.written?;
        Some(self.header(written).len() + self.part(written).len())
    }

    /// Writes the next fragment to the start of `buffer` and returns its length. None behind the last, and when `buffer`
    /// is shorter than [`Fragments::next_length`]: then nothing is written and the fragment is still the next.
    pub fn write_next(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let written = self.written?;
        let (header, part) = (self.header(written), self.part(written));
        let length = header.len() + part.len();
        let fragment = buffer.get_mut(..length)?;
        let (to_header, to_payload) = fragment.split_at_mut(header.len());
        to_header.copy_from_slice(header);
        to_payload.copy_from_slice(part);
        let behind = written + part.len();
        let last = behind >= self.payload.len();
        to_header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        let offset = ((self.original.fragment_offset + written) / 8) as u16;
        let more = if !last || self.original.more_fragments {
            ipv4::MORE_FRAGMENTS
        } else {
            0
        };
        to_header[6..8].copy_from_slice(&(offset & 0x1fff | more).to_be_bytes());
        ipv4::set_checksum(to_header);
        self.written = (!last).then_some(behind);
        Some(length)
    }

    fn header(&self, written: usize) -> &[u8] {
        if written + self.original.fragment_offset == 0 {
            self.first_header
        } else {
            &self.later_header[..self.later_length]
        }
    }

    fn part(&self, written: usize) -> &'a [u8] {
        let room = self.mtu - self.header(written).len();
        let rest = &self.payload[written..];
        if rest.len() <= room {
            rest
        } else {
            &rest[..room / 8 * 8]
        }
    }
}

/// The fragments of a packet, each in memory of its own; nothing where [`Fragments::new`] has an error.
pub fn fragment_v4(packet: &[u8], mtu: usize) -> Option<Vec<Vec<u8>>> {
    let mut fragments = Fragments::new(packet, mtu).ok()?;
    let mut all = Vec::new();
    while let Some(length) = fragments.next_length() {
        let mut fragment = vec![0; length];
        fragments.write_next(&mut fragment)?;
        all.push(fragment);
    }
    Some(all)
}

/// The header of later fragments and its length: only options that are to be copied, padded.
fn later_header(first: &[u8]) -> ([u8; ipv4::HEADER_LENGTH_LIMIT], usize) {
    let mut header = [0; ipv4::HEADER_LENGTH_LIMIT];
    let mut length = ipv4::HEADER_LENGTH;
    header[..length].copy_from_slice(&first[..length]);
    for option in Options::of(first, first.len()).filter(|option| option.is_copied()) {
        let end = length + option.bytes.len();
        header[length..end].copy_from_slice(option.bytes);
        length = end;
    }
    length = length.next_multiple_of(4);
    header[0] = 0x40 | (length / 4) as u8;
    (header, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(payload: usize, dont_fragment: bool) -> Vec<u8> {
        let mut packet = ipv4::write(&ipv4::Fields {
            source: [10, 0, 0, 1],
            destination: [10, 0, 0, 2],
            protocol: 17,
            ttl: 64,
            payload_length: payload,
            identification: 99,
            dont_fragment,
        })
        .to_vec();
        packet.extend((0..payload).map(|i| i as u8));
        packet
    }

    fn with_options(options: &[u8]) -> Vec<u8> {
        let plain = packet(2000, false);
        let mut packet = [&plain[..20], options, &plain[20..]].concat();
        packet[0] = 0x40 | (5 + options.len() / 4) as u8;
        let length = packet.len() as u16;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        ipv4::set_checksum(&mut packet[..20 + options.len()]);
        packet
    }

    /// Checks each fragment and returns the payload they hold together.
    fn joined(fragments: &[Vec<u8>], mtu: usize) -> Vec<u8> {
        let mut payload = Vec::new();
        for (index, fragment) in fragments.iter().enumerate() {
            let header = ipv4::Header::parse(fragment).unwrap();
            assert!(fragment.len() <= mtu);
            assert_eq!(header.fragment_offset, payload.len());
            assert_eq!(header.more_fragments, index + 1 < fragments.len());
            assert_eq!(header.identification, 99);
            payload.extend_from_slice(&fragment[header.header_length..]);
        }
        payload
    }

    #[test]
    fn fragments_hold_the_whole_payload_in_order() {
        for size in [0, 1, 8, 1380, 1381, 4000] {
            let original = packet(size, false);
            for mtu in [28, 576, 1400, 1442] {
                let fragments = fragment_v4(&original, mtu).unwrap();
                assert_eq!(joined(&fragments, mtu), original[20..], "{size} {mtu}");
            }
        }
    }

    #[test]
    fn a_packet_that_fits_stays_as_it_is() {
        for size in [0, 7, 480] {
            let original = packet(size, false);
            let fragments = fragment_v4(&original, 500).unwrap();
            assert_eq!(fragments, [original]);
        }
    }

    #[test]
    fn padding_behind_the_packet_is_left_out() {
        let mut padded = packet(1000, false);
        padded.extend([0xee; 9]);
        let fragments = fragment_v4(&padded, 600).unwrap();
        assert_eq!(joined(&fragments, 600), padded[20..1020]);
    }

    #[test]
    fn a_fragment_can_be_cut_again() {
        let first = fragment_v4(&packet(4000, false), 1500).unwrap();
        for (index, fragment) in first.iter().enumerate() {
            let again = fragment_v4(fragment, 700).unwrap();
            let head = ipv4::Header::parse(fragment).unwrap();
            let last = ipv4::Header::parse(again.last().unwrap()).unwrap();
            assert_eq!(last.more_fragments, index + 1 < first.len());
            let second = ipv4::Header::parse(&again[1]).unwrap();
            assert_eq!(second.fragment_offset, head.fragment_offset + 680);
        }
    }

    #[test]
    fn later_fragments_have_the_copied_options_only() {
        let original = with_options(&[7, 7, 4, 9, 9, 9, 9, 0x94, 4, 0, 0, 1]);
        let fragments = fragment_v4(&original, 600).unwrap();
        assert_eq!(joined(&fragments, 600), original[32..]);
        assert_eq!(fragments[0][20..32], original[20..32]);
        for fragment in &fragments[1..] {
            assert_eq!(fragment[0], 0x46);
            assert_eq!(fragment[20..24], [0x94, 4, 0, 0]);
        }
    }

    #[test]
    fn a_short_buffer_loses_no_fragment() {
        let original = packet(1000, false);
        let mut fragments = Fragments::new(&original, 600).unwrap();
        let length = fragments.next_length().unwrap();
        let mut buffer = [0; 600];
        assert_eq!(fragments.write_next(&mut buffer[..length - 1]), None);
        assert_eq!(buffer, [0; 600]);
        assert_eq!(fragments.write_next(&mut buffer), Some(length));
        assert_eq!(fragments.write_next(&mut buffer), Some(20 + 1000 - 576));
        assert_eq!(fragments.next_length(), None);
        assert_eq!(fragments.write_next(&mut buffer), None);
    }

    #[test]
    fn refuses_what_may_not_be_cut() {
        let error = |packet: &[u8], mtu| Fragments::new(packet, mtu).unwrap_err();
        assert_eq!(
            error(&packet(3000, true), 1500),
            FragmentError::DontFragment
        );
        assert_eq!(error(&packet(3000, false), 27), FragmentError::MtuTooSmall);
        assert_eq!(
            error(&with_options(&[1; 40]), 67),
            FragmentError::MtuTooSmall
        );
        let whole = packet(100, false);
        for length in 0..whole.len() {
            assert_eq!(error(&whole[..length], 60), FragmentError::Malformed);
        }
    }
}
