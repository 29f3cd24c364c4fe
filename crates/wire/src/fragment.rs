//! Fragmentation of IPv4 packets (RFC 791, section 3.2).

use crate::ipv4;

const OPTION_COPIED: u8 = 0x80;

/// Cuts a checked IPv4 packet into fragments of at most `mtu` bytes; a fragment can be cut again.
/// Nothing when the packet may not be fragmented or `mtu` leaves no room for 8 bytes of payload.
pub fn fragment_v4(packet: &[u8], mtu: usize) -> Option<Vec<Vec<u8>>> {
    let header = ipv4::Header::parse_fields(packet).ok()?;
    if header.dont_fragment || header.total_length > packet.len() {
        return None;
    }
    let payload = &packet[header.header_length..header.total_length];
    let first_header = packet[..header.header_length].to_vec();
    let later_header = later_header(&first_header);
    let mut fragments = Vec::new();
    let mut sent = 0;
    while sent < payload.len() {
        let base = if sent == 0 && header.fragment_offset == 0 {
            &first_header
        } else {
            &later_header
        };
        let room = mtu.checked_sub(base.len())? / 8 * 8;
        if room == 0 {
            return None;
        }
        let part = &payload[sent..payload.len().min(sent + room)];
        let more = header.more_fragments || sent + part.len() < payload.len();
        let mut fragment = base.clone();
        fragment[2..4].copy_from_slice(&((base.len() + part.len()) as u16).to_be_bytes());
        let offset = ((header.fragment_offset + sent) / 8) as u16;
        let word = offset | if more { 0x2000 } else { 0 };
        fragment[6..8].copy_from_slice(&word.to_be_bytes());
        ipv4::set_checksum(&mut fragment);
        fragment.extend_from_slice(part);
        fragments.push(fragment);
        sent += part.len();
    }
    Some(fragments)
}

/// The header of later fragments: only options that are to be copied, padded.
fn later_header(first: &[u8]) -> Vec<u8> {
    let mut header = first[..ipv4::HEADER_LENGTH].to_vec();
    let mut options = &first[ipv4::HEADER_LENGTH..];
    while let Some(&kind) = options.first() {
        let length = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(options.get(1).copied().unwrap_or(0)),
        };
        if length == 0 || length > options.len() {
            break;
        }
        if kind & OPTION_COPIED != 0 {
            header.extend_from_slice(&options[..length]);
        }
        options = &options[length..];
    }
    while !header.len().is_multiple_of(4) {
        header.push(0);
    }
    header[0] = 0x40 | (header.len() / 4) as u8;
    header
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

    #[test]
    fn fragments_hold_the_whole_payload_in_order() {
        let original = packet(4000, false);
        for mtu in [28, 576, 1400, 1442] {
            let fragments = fragment_v4(&original, mtu).unwrap();
            let mut payload = Vec::new();
            for (index, fragment) in fragments.iter().enumerate() {
                let header = ipv4::Header::parse(fragment).unwrap();
                assert!(fragment.len() <= mtu);
                assert_eq!(header.fragment_offset, payload.len());
                assert_eq!(header.more_fragments, index + 1 < fragments.len());
                assert_eq!(header.identification, 99);
                payload.extend_from_slice(&fragment[header.header_length..]);
            }
            assert_eq!(payload, original[20..]);
        }
    }

    #[test]
    fn a_fragment_can_be_cut_again() {
        let first = fragment_v4(&packet(3000, false), 1500).unwrap();
        let again = fragment_v4(&first[0], 700).unwrap();
        let last = ipv4::Header::parse(again.last().unwrap()).unwrap();
        assert!(last.more_fragments, "more of the original follow");
    }

    #[test]
    fn refuses_what_may_not_be_cut() {
        assert_eq!(fragment_v4(&packet(3000, true), 1500), None);
        assert_eq!(fragment_v4(&packet(3000, false), 27), None);
    }
}
