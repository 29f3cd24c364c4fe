use super::*;
use crate::icmp;

const SOURCE: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
const TARGET: [u8; 16] = [
    0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0x56,
];
const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

fn read(packet: &[u8]) -> Result<Option<Neighbour>, ParseError> {
    let header = ipv6::Header::parse(packet)?;
    Neighbour::check(&header, &packet[header.transport_offset..])
}

/// A changed message with the checksum and lengths mended.
fn changed(packet: &[u8], change: impl Fn(&mut Vec<u8>)) -> Result<Option<Neighbour>, ParseError> {
    let header = ipv6::Header::parse(packet).unwrap();
    let mut message = packet[40..].to_vec();
    change(&mut message);
    if message.len() >= 4 {
        message[2..4].fill(0);
    }
    let packet = icmp::neighbour_packet(header.source, header.destination, message);
    read(&packet)
}

#[test]
fn reads_what_it_writes() {
    let asked = read(&solicitation(SOURCE, TARGET, MAC)).unwrap().unwrap();
    let expected = Neighbour {
        solicitation: true,
        target: TARGET,
        mac: Some(MAC),
    };
    assert_eq!(asked, expected);
    for (asked_by, destination, flags) in [(SOURCE, SOURCE, 0xe0), (UNSPECIFIED, ALL_NODES, 0xa0)] {
        let packet = advertisement(asked_by, TARGET, MAC);
        let header = ipv6::Header::parse(&packet).unwrap();
        assert_eq!((header.source, header.destination), (TARGET, destination));
        assert_eq!(packet[44], flags);
        let told = read(&packet).unwrap().unwrap();
        assert_eq!((told.solicitation, told.mac), (false, Some(MAC)));
    }
}

#[test]
fn a_message_without_an_option_has_no_mac() {
    for solicitation in [true, false] {
        let neighbour = Neighbour {
            solicitation,
            target: TARGET,
            mac: None,
        };
        let packet = icmp::neighbour_packet(SOURCE, TARGET, neighbour.to_message());
        assert_eq!(read(&packet), Ok(Some(neighbour)));
        let header = ipv6::Header::parse(&packet).unwrap();
        assert_eq!(Neighbour::parse(&header, &packet[40..]), Some(neighbour));
    }
}

#[test]
fn truncation_at_every_length_is_an_error_or_leaves_out_the_option() {
    for packet in [
        solicitation(SOURCE, TARGET, MAC),
        advertisement(SOURCE, TARGET, MAC),
    ] {
        for length in 1..32 {
            let result = changed(&packet, |message| message.truncate(length));
            match length {
                24 => assert_eq!(result.unwrap().unwrap().mac, None),
                ..24 => assert_eq!(result, Err(ParseError::NeighbourTruncated), "{length}"),
                _ => assert_eq!(result, Err(ParseError::NeighbourBadOption), "{length}"),
            }
        }
    }
}

/// A message of neighbour discovery that is all zeroes but for its type.
fn message(source: [u8; 16], kind: u8, length: usize) -> Vec<u8> {
    let mut message = vec![0; length];
    message[0] = kind;
    icmp::neighbour_packet(source, ALL_NODES, message)
}

#[test]
fn other_messages_are_checked_and_none_of_ours() {
    let mut link = [0; 16];
    link[..2].copy_from_slice(&[0xfe, 0x80]);
    for (kind, length) in [(133, 8), (134, 16), (137, 40)] {
        assert_eq!(read(&message(link, kind, length)), Ok(None), "{kind}");
        let short = read(&message(link, kind, length - 1));
        assert_eq!(short, Err(ParseError::NeighbourTruncated), "{kind}");
        let mut far = message(link, kind, length);
        far[7] = 64;
        assert_eq!(read(&far), Err(ParseError::NeighbourBadHopLimit), "{kind}");
        let option = read(&message(link, kind, length + 8));
        assert_eq!(option, Err(ParseError::NeighbourBadOption), "{kind}");
        let global = read(&message([0x20; 16], kind, length));
        let expected = match kind {
            133 => Ok(None),
            _ => Err(ParseError::NeighbourBadAddress),
        };
        assert_eq!(global, expected, "{kind}");
    }
    assert_eq!(read(&message(link, 128, 8)), Ok(None));
}

#[test]
fn nothing_is_read_from_fragments() {
    let whole = solicitation(SOURCE, TARGET, MAC);
    let header = ipv6::Header::parse(&whole).unwrap();
    for (offset, expected) in [(0, Err(ParseError::NeighbourFragmented)), (8, Ok(None))] {
        let header = ipv6::Header {
            fragment: Some(ipv6::Fragment {
                offset,
                more: true,
                identification: 1,
            }),
            ..header
        };
        assert_eq!(
            Neighbour::check(&header, &whole[40..]),
            expected,
            "{offset}"
        );
    }
}

#[test]
fn names_the_check_that_failed() {
    let packet = solicitation(SOURCE, TARGET, MAC);
    let mut far = packet;
    far[7] = 254;
    assert_eq!(read(&far), Err(ParseError::NeighbourBadHopLimit));
    let mut damaged = packet;
    damaged[60] ^= 1;
    assert_eq!(read(&damaged), Err(ParseError::NeighbourBadChecksum));
    for (at, value, error) in [
        (1, 1, ParseError::NeighbourBadCode),
        (8, 0xff, ParseError::NeighbourBadAddress),
        (25, 0, ParseError::NeighbourBadOption),
        (25, 2, ParseError::NeighbourBadOption),
    ] {
        let result = changed(&packet, |message| message[at] = value);
        assert_eq!(result, Err(error), "byte {at} is {value}");
    }
}

#[test]
fn who_has_no_address_names_no_mac_and_asks_the_group() {
    let ask = |destination, mac| {
        let neighbour = Neighbour {
            solicitation: true,
            target: TARGET,
            mac,
        };
        read(&icmp::neighbour_packet(
            UNSPECIFIED,
            destination,
            neighbour.to_message(),
        ))
    };
    let group = solicited_node(TARGET);
    assert!(ask(group, None).unwrap().is_some());
    assert_eq!(ask(group, Some(MAC)), Err(ParseError::NeighbourBadAddress));
    assert_eq!(ask(TARGET, None), Err(ParseError::NeighbourBadAddress));
}

#[test]
fn a_solicited_advertisement_is_for_one_node() {
    let neighbour = Neighbour {
        solicitation: false,
        target: TARGET,
        mac: Some(MAC),
    };
    let packet = icmp::neighbour_packet(TARGET, ALL_NODES, neighbour.to_message());
    assert_eq!(read(&packet), Err(ParseError::NeighbourBadAddress));
}

#[test]
fn groups_are_those_of_the_rfcs() {
    let group = solicited_node(TARGET);
    assert_eq!(
        group,
        [
            0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x12, 0x34, 0x56
        ]
    );
    assert_eq!(
        group_mac(group),
        MacAddress([0x33, 0x33, 0xff, 0x12, 0x34, 0x56])
    );
}
