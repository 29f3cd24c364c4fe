//! IPv4, IPv6, ICMP, neighbour discovery, fragmentation.

use wire::fragment::{FragmentError, Fragments};
use wire::icmp::Error;
use wire::ip::Fragmentation;
use wire::ipv4::Options;
use wire::neighbour_discovery::Neighbour;
use wire::{IpPacket, checksum, icmpv4, icmpv6};

/// Lengths are inside the packet; lowering the TTL keeps the checksum right; options stay inside the header.
pub fn ipv4(bytes: &[u8]) {
    use wire::ipv4;
    if let Ok(fields) = ipv4::Header::parse_fields(bytes) {
        let options: usize = Options::of(bytes, fields.header_length)
            .map(|option| option.bytes.len())
            .sum();
        assert!(ipv4::HEADER_LENGTH + options <= fields.header_length);
    }
    let Ok(header) = ipv4::Header::parse(bytes) else {
        return;
    };
    assert!(header.header_length <= header.total_length && header.total_length <= bytes.len());
    let mut changed = bytes.to_vec();
    ipv4::decrement_ttl(&mut changed);
    let ttl = header.ttl.wrapping_sub(1);
    let expected = ipv4::Header { ttl, ..header };
    assert_eq!(ipv4::Header::parse(&changed), Ok(expected));
    let mut recomputed = changed.clone();
    ipv4::set_checksum(&mut recomputed[..header.header_length]);
    assert_eq!(recomputed, changed, "an update and a new sum agree");
}

/// Lengths are inside the packet, and the walk over extension headers is bounded by them.
pub fn ipv6(bytes: &[u8]) {
    use wire::ipv6;
    let Ok(header) = ipv6::Header::parse(bytes) else {
        return;
    };
    assert!((40..=header.total_length).contains(&header.transport_offset));
    assert!(header.total_length <= bytes.len());
    let plain = ipv6::write(
        header.source,
        header.destination,
        59,
        header.hop_limit,
        header.total_length - 40,
    );
    let packet = [&plain[..], &bytes[40..header.total_length]].concat();
    let again = ipv6::Header::parse(&packet).expect("without extension headers nothing is wrong");
    assert_eq!(
        (again.source, again.destination),
        (header.source, header.destination)
    );
    assert_eq!((again.transport_offset, again.fragment), (40, None));
}

/// What steering reads of a packet is consistent, and the same for the other direction.
pub fn ip(bytes: &[u8]) {
    let Ok(packet) = IpPacket::parse(bytes) else {
        return;
    };
    assert!(packet.transport_offset <= packet.length && packet.length <= bytes.len());
    let tuple = packet.tuple;
    assert_eq!(tuple.reversed().reversed(), tuple);
    if matches!(packet.fragmentation, Fragmentation::Later { .. }) {
        assert_eq!((tuple.source_port, tuple.destination_port), (0, 0));
        assert_eq!(packet.quoted, None);
    }
    assert_eq!(packet.is_v6(), bytes[0] >> 4 == 6);
    assert_eq!(IpPacket::parse(&bytes[..packet.length]), Ok(packet));
}

/// An error about any packet is a packet that quotes it, has right checksums and is not answered itself.
pub fn icmp(bytes: &[u8]) {
    for v6 in [false, true] {
        let _ = wire::icmp::quoted_tuple(v6, bytes);
        let mut echo = bytes.to_vec();
        for offset in [0, 20, 40, bytes.len()] {
            wire::icmp::echo_reply_in_place(v6, &mut echo, offset);
        }
    }
    for error in [Error::TooBig { mtu: 1280 }, Error::TimeExceeded] {
        let mut buffer = [0; icmpv6::ERROR_LIMIT];
        if let Some(length) = icmpv4::write_error(error, [192, 0, 2, 1], bytes, &mut buffer) {
            let answer = &buffer[..length];
            assert!(length <= icmpv4::ERROR_LIMIT);
            assert_eq!(answer[28..], bytes[..length - 28]);
            assert_eq!(checksum::finish(checksum::sum(&answer[20..])), 0);
            check_answer(answer, bytes);
            let again = icmpv4::write_error(error, [192, 0, 2, 1], answer, &mut [0; 576]);
            assert_eq!(again, None);
        }
        if let Some(length) = icmpv6::write_error(error, [9; 16], bytes, &mut buffer) {
            let answer = &buffer[..length];
            assert_eq!(answer[48..], bytes[..length - 48]);
            let destination = std::array::from_fn(|i| answer[24 + i]);
            assert_eq!(
                icmpv6::message_checksum([9; 16], destination, &answer[40..]),
                0
            );
            check_answer(answer, bytes);
            let again = icmpv6::write_error(error, [9; 16], answer, &mut [0; 1280]);
            assert_eq!(again, None);
        }
    }
}

fn check_answer(answer: &[u8], about: &[u8]) {
    let (Ok(packet), Ok(about)) = (IpPacket::parse(answer), IpPacket::parse(about)) else {
        return;
    };
    assert_eq!(packet.quoted, Some(about.tuple));
    assert_eq!(packet.tuple.destination(), about.tuple.source());
}

/// What passes the checks came from the same link, and is about one node.
pub fn neighbour_discovery(bytes: &[u8]) {
    let Ok(header) = wire::ipv6::Header::parse(bytes) else {
        return;
    };
    let message = &bytes[header.transport_offset..header.total_length];
    let Ok(Some(neighbour)) = Neighbour::check(&header, message) else {
        return;
    };
    assert_eq!(header.hop_limit, 255);
    assert_ne!(neighbour.target[0], 0xff);
    let packet = wire::icmp::neighbour_packet([1; 16], [2; 16], neighbour.to_message());
    let header = wire::ipv6::Header::parse(&packet).expect("it was written here");
    assert_eq!(Neighbour::parse(&header, &packet[40..]), Some(neighbour));
}

/// Fragments fit, are whole packets themselves and hold the payload, in order and completely.
pub fn fragment(bytes: &[u8]) {
    let Ok(header) = wire::ipv4::Header::parse(bytes) else {
        return;
    };
    for mtu in [28, 68, 100, 576, 1442] {
        let mut fragments = match Fragments::new(bytes, mtu) {
            Ok(fragments) => fragments,
            Err(FragmentError::DontFragment) => {
                assert!(header.dont_fragment);
                continue;
            }
            Err(FragmentError::MtuTooSmall) => {
                assert!(mtu < header.header_length + 8);
                continue;
            }
            Err(FragmentError::Malformed) => panic!("the packet was checked"),
        };
        let mut payload = Vec::new();
        let mut buffer = [0; 1500];
        let mut more = true;
        while let Some(length) = fragments.write_next(&mut buffer[..mtu]) {
            assert!(more, "a fragment behind the last");
            let part = wire::ipv4::Header::parse(&buffer[..length]).expect("a packet");
            assert_eq!(part.fragment_offset, header.fragment_offset + payload.len());
            assert_eq!(
                (part.source, part.protocol),
                (header.source, header.protocol)
            );
            payload.extend_from_slice(&buffer[part.header_length..length]);
            more = part.more_fragments;
        }
        assert_eq!(more, header.more_fragments);
        assert_eq!(payload, bytes[header.header_length..header.total_length]);
    }
}
