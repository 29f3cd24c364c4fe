use super::*;
use wire::{IpPacket, MacAddress, ethernet, ipv4, ipv6, tcp, udp};

const PAYLOAD: usize = 4_000;

/// A frame of several segments as the kernel hands it over: checksum fields hold anything.
fn frame(v6: bool, tcp: bool, vlan: u16) -> Vec<u8> {
    let transport: Vec<u8> = if tcp {
        let flags = 0x80 | tcp::FIN | tcp::ACK | 0x08;
        let mut header = vec![
            0x10, 0, 0, 80, 0xff, 0xff, 0xff, 0, 0, 0, 0, 9, 0x60, flags, 1, 0, 0, 0, 0, 0,
        ];
        header.extend([1, 1, 1, 1]);
        header
    } else {
        let [high, low] = ((PAYLOAD + 8) as u16).to_be_bytes();
        vec![0x10, 0, 0, 53, high, low, 0, 0]
    };
    let payload: Vec<u8> = (0..PAYLOAD).map(|i| (i * 7) as u8).collect();
    let protocol = if tcp { tcp::PROTOCOL } else { udp::PROTOCOL };
    let length = transport.len() + payload.len();
    let (ether_type, ip) = if v6 {
        (
            ethernet::IPV6,
            ipv6::write([1; 16], [2; 16], protocol, 64, length).to_vec(),
        )
    } else {
        let fields = ipv4::Fields {
            source: [10, 0, 0, 1],
            destination: [10, 0, 0, 2],
            protocol,
            ttl: 64,
            payload_length: length,
            identification: 0xffff,
            dont_fragment: true,
        };
        (ethernet::IPV4, ipv4::write(&fields).to_vec())
    };
    let mut frame = vec![0; 18];
    let header = ethernet::Header::write(
        &mut frame,
        MacAddress([2; 6]),
        MacAddress([4; 6]),
        vlan,
        ether_type,
    );
    frame.truncate(header);
    [frame, ip, transport, payload].concat()
}

fn description(frame: &[u8], v6: bool, tcp: bool) -> Description {
    let ip = ethernet::Header::parse(frame).unwrap().length;
    Description {
        flags: NEEDS_CHECKSUM,
        kind: match (tcp, v6) {
            (false, _) => UDP_SEGMENTS,
            (true, false) => TCP_V4,
            (true, true) => TCP_V6,
        },
        header_length: 0,
        segment_size: 1400,
        checksum_start: (ip + if v6 { 40 } else { 20 }) as u16,
        checksum_offset: if tcp { 16 } else { 6 },
    }
}

fn transport_checksum_is_right(packet: &[u8], parsed: &IpPacket) -> bool {
    let addresses = if parsed.is_v6() { 8..40 } else { 12..20 };
    let transport = &packet[parsed.transport_offset..parsed.length];
    let pseudo =
        checksum::pseudo_header(&packet[addresses], parsed.tuple.protocol, transport.len());
    checksum::fold(pseudo + checksum::sum(transport)) == 0xffff
}

#[test]
fn an_unfilled_checksum_is_filled() {
    for (v6, tcp) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut frame = frame(v6, tcp, 0);
        let mut description = description(&frame, v6, tcp);
        description.kind = 0;
        let start = usize::from(description.checksum_start);
        let at = start + usize::from(description.checksum_offset);
        let addresses = if v6 { 22..54 } else { 26..34 };
        let protocol = if tcp { tcp::PROTOCOL } else { udp::PROTOCOL };
        let pseudo = checksum::pseudo_header(&frame[addresses], protocol, frame.len() - start);
        frame[at..at + 2].copy_from_slice(&checksum::fold(pseudo).to_be_bytes());
        assert_eq!(description.complete(&mut frame, 0), Some(Contents::Frame));
        let packet = &frame[14..];
        assert!(transport_checksum_is_right(
            packet,
            &IpPacket::parse(packet).unwrap()
        ));
    }
}

#[test]
fn descriptions_that_do_not_fit_the_frame_are_refused() {
    let whole = frame(false, true, 0);
    let right = description(&whole, false, true);
    let wrong = [
        Description {
            segment_size: 0,
            ..right
        },
        Description {
            kind: TCP_V6,
            ..right
        },
        Description {
            kind: UDP_SEGMENTS,
            ..right
        },
        Description { kind: 3, ..right },
        Description {
            checksum_start: 30,
            ..right
        },
        Description {
            kind: 0,
            checksum_start: 65_000,
            ..right
        },
        Description {
            kind: 0,
            checksum_offset: 65_000,
            ..right
        },
    ];
    for description in wrong {
        assert_eq!(
            description.complete(&mut whole.clone(), 0),
            None,
            "{description:?}"
        );
    }
    for length in 0..54 {
        assert_eq!(
            right.complete(&mut whole[..length].to_vec(), 0),
            None,
            "{length}"
        );
    }
    assert!(right.complete(&mut whole.clone(), 0).is_some());
}

#[test]
fn a_description_survives_its_bytes_and_a_frame_on_its_way() {
    for (v6, tcp) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut whole = frame(v6, tcp, 0);
        let given = description(&whole, v6, tcp);
        assert_eq!(Description::from_bytes(&given.to_bytes()), given);
        assert_eq!(
            given.complete(&mut whole, 0),
            Some(Contents::Segments(1_400))
        );
        let segments = Segments::of_frame(&whole, 1_400).unwrap();
        let again = Description::of(&segments, 1_400);
        let congestion = if tcp { CONGESTION_NOTIFIED } else { 0 };
        assert_eq!(again.kind, given.kind | congestion);
        assert_eq!(usize::from(again.header_length), whole.len() - PAYLOAD);
        assert_eq!(
            (again.checksum_start, again.checksum_offset),
            (given.checksum_start, given.checksum_offset)
        );
        // The field holds what the kernel expects: the sum of the pseudo-header, of the whole length.
        let start = usize::from(given.checksum_start);
        let at = start + usize::from(given.checksum_offset);
        let addresses = if v6 { 22..54 } else { 26..34 };
        let protocol = if tcp { tcp::PROTOCOL } else { udp::PROTOCOL };
        let pseudo = checksum::pseudo_header(&whole[addresses], protocol, whole.len() - start);
        assert_eq!(whole[at..at + 2], checksum::fold(pseudo).to_be_bytes());
    }
}

/// A frame inside IPv4, UDP and VXLAN.
fn in_vxlan(inner: &[u8]) -> Vec<u8> {
    let length = udp::HEADER_LENGTH + wire::vxlan::HEADER_LENGTH + inner.len();
    let mut outer = frame(false, false, 0)[..42].to_vec();
    outer[16..18].copy_from_slice(&((20 + length) as u16).to_be_bytes());
    ipv4::set_checksum(&mut outer[14..34]);
    outer[38..40].copy_from_slice(&(length as u16).to_be_bytes());
    let network = wire::Vni::new(5).unwrap();
    [&outer, &wire::vxlan::to_bytes(network)[..], inner].concat()
}

#[test]
fn segments_inside_a_tunnel_are_told_and_those_of_another_kind_refused() {
    for (v6, tcp) in [(false, true), (true, true), (false, false), (true, false)] {
        let inner = frame(v6, tcp, 0);
        let whole = in_vxlan(&inner);
        let mut given = description(&inner, v6, tcp);
        given.checksum_start += (whole.len() - inner.len()) as u16;
        let mut completed = whole.clone();
        let contents = given.complete(&mut completed, 0);
        let Some(Contents::Tunnelled(tunnelled)) = contents else {
            panic!("{contents:?}");
        };
        assert_eq!(tunnelled.inner().count(), 3);
        assert_eq!(completed, whole);
        given.kind = if tcp { UDP_SEGMENTS } else { TCP_V4 };
        assert_eq!(given.complete(&mut completed, 0), None);
        // Without segments, the checksum inside is finished.
        given.kind = 0;
        assert_eq!(given.complete(&mut completed, 0), Some(Contents::Frame));
        let changed = (0..whole.len()).filter(|&i| completed[i] != whole[i]);
        let at = usize::from(given.checksum_start + given.checksum_offset);
        assert!(changed.into_iter().all(|i| i == at || i == at + 1));
        let start = usize::from(given.checksum_start);
        assert_eq!(checksum::fold(checksum::sum(&whole[start..])), {
            let stored = u16::from_be_bytes([completed[at], completed[at + 1]]);
            !stored
        });
    }
}
