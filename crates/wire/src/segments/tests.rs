use super::*;
use crate::MacAddress;

const PAYLOAD: usize = 4_000;
const SIZE: u16 = 1_400;

/// A frame of several segments as a system hands it over: the checksum holds the pseudo-header's sum.
fn frame(v6: bool, tcp: bool, vlan: u16) -> Vec<u8> {
    let transport: Vec<u8> = if tcp {
        let flags = CWR | tcp::FIN | tcp::ACK | PSH;
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
    let (to, from) = (MacAddress([2; 6]), MacAddress([4; 6]));
    let header = ethernet::Header::write(&mut frame, to, from, vlan, ether_type);
    frame.truncate(header);
    let mut frame = [frame, ip, transport, payload].concat();
    let segments = Segments::of_frame(&frame, SIZE).unwrap();
    segments.begin_checksum(&mut frame);
    frame
}

fn checksum_is_right(packet: &[u8], parsed: &IpPacket) -> bool {
    let transport = &packet[parsed.transport_offset..parsed.length];
    let addresses = &packet[addresses(0, parsed.is_v6())];
    let pseudo = checksum::pseudo_header(addresses, parsed.tuple.protocol, transport.len());
    checksum::fold(pseudo + checksum::sum(transport)) == 0xffff
}

#[test]
fn segments_hold_the_payload_in_order_with_right_headers() {
    for (v6, tcp, vlan, room) in [
        (false, true, 0, 0),
        (true, true, 7, 72),
        (false, false, 7, 3),
        (true, false, 0, 0),
    ] {
        let whole = frame(v6, tcp, vlan);
        let segments = Segments::of_frame(&whole, SIZE).unwrap();
        assert_eq!(segments.count(), 3);
        let (mut payload, mut number) = (Vec::new(), 0u16);
        segments.cut(&whole, room, &mut Vec::new(), |segment| {
            let segment = &segment[room..];
            let ip = ethernet::Header::parse(segment).unwrap();
            assert_eq!(ip.vlan, vlan);
            let packet = &segment[ip.length..];
            let parsed = IpPacket::parse(packet).unwrap();
            assert_eq!(parsed.length, packet.len());
            assert!(packet.len() <= segments.longest());
            assert!(checksum_is_right(packet, &parsed));
            if !v6 {
                let header = ipv4::Header::parse(packet).unwrap();
                assert_eq!(header.identification, 0xffff_u16.wrapping_add(number));
            }
            let transport = &packet[parsed.transport_offset..];
            if tcp {
                let sequence = u32::from_be_bytes(transport[4..8].try_into().unwrap());
                assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(payload.len() as u32));
                assert_eq!(transport[13] & (tcp::FIN | PSH) != 0, number == 2);
                assert_eq!(transport[13] & CWR != 0, number == 0);
                assert_eq!(transport[13] & tcp::ACK, tcp::ACK);
                payload.extend_from_slice(&transport[24..]);
            } else {
                payload.extend_from_slice(&transport[8..]);
            }
            number += 1;
            true
        });
        assert_eq!(number, 3);
        assert!(whole.ends_with(&payload) && payload.len() == PAYLOAD);
    }
}

/// The first segment byte by byte, worked out by hand from the headers above.
#[test]
fn a_segment_is_right_to_the_byte() {
    let whole = frame(false, true, 0);
    let segments = Segments::of_frame(&whole, SIZE).unwrap();
    let mut first = Vec::new();
    segments.cut(&whole, 0, &mut Vec::new(), |segment| {
        first.extend_from_slice(segment);
        false
    });
    // Ethernet; 20 + 24 + 1400 bytes of IPv4, identification and "don't fragment" as they were; ACK and CWR alone left.
    #[rustfmt::skip]
    let expected = [
        2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0,
        0x45, 0, 0x05, 0xa4, 0xff, 0xff, 0x40, 0, 64, 6, 0x21, 0x52, 10, 0, 0, 1, 10, 0, 0, 2,
        0x10, 0, 0, 80, 0xff, 0xff, 0xff, 0, 0, 0, 0, 9, 0x60, 0x90, 1, 0,
    ];
    assert_eq!(first[..50], expected, "{:02x?}", &first[..50]);
    assert_eq!(first[52..58], [0, 0, 1, 1, 1, 1]);
    assert_eq!(first[58..], whole[58..58 + 1_400]);
    assert!(checksum_is_right(
        &first[14..],
        &IpPacket::parse(&first[14..]).unwrap()
    ));
}

#[test]
fn what_cannot_be_cut_is_told() {
    let whole = frame(false, true, 0);
    assert!(Segments::of_frame(&whole, 0).is_none());
    assert!(Segments::of_frame(&whole, 3).is_none(), "too many");
    assert_eq!(Segments::of_frame(&whole, 4).unwrap().count(), 1_000);
    assert_eq!(Segments::of_frame(&whole, 5_000).unwrap().count(), 1);
    for length in 0..58 {
        assert!(Segments::of_frame(&whole[..length], SIZE).is_none());
    }
    let mut fragment = whole.clone();
    fragment[14 + 6] = 0x20;
    ipv4::set_checksum(&mut fragment[14..34]);
    assert!(Segments::of_frame(&fragment, SIZE).is_none());
    let mut other = whole.clone();
    other[14 + 9] = 132;
    ipv4::set_checksum(&mut other[14..34]);
    assert!(Segments::of_frame(&other, SIZE).is_none());
}

#[test]
fn a_checksum_left_to_the_device_is_finished_and_no_other_is_touched() {
    for (v6, tcp) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut frame = frame(v6, tcp, 5);
        assert!(finish_checksum(&mut frame));
        let packet = &frame[18..];
        assert!(checksum_is_right(packet, &IpPacket::parse(packet).unwrap()));
        let finished = frame.clone();
        assert!(!finish_checksum(&mut frame));
        // A wrong one is the receiver's to find.
        *frame.last_mut().unwrap() ^= 1;
        assert!(!finish_checksum(&mut frame));
        assert_eq!(frame[..frame.len() - 1], finished[..finished.len() - 1]);
    }
}

#[test]
fn a_fragment_keeps_the_checksum_of_the_whole() {
    // IPv4: more fragments are to come.
    let mut v4 = frame(false, false, 0);
    v4[14 + 6] = 0x20;
    ipv4::set_checksum(&mut v4[14..34]);
    // IPv6: a fragment header in front of UDP; the pseudo-header's sum is that of what is there.
    let plain = frame(true, false, 0);
    let mut v6 = plain[..54].to_vec();
    v6[20] = 44;
    let length = (plain.len() - 54 + 8) as u16;
    v6[18..20].copy_from_slice(&length.to_be_bytes());
    v6.extend([udp::PROTOCOL, 0, 0, 1, 0, 0, 0, 7]);
    v6.extend(&plain[54..]);
    for mut frame in [v4, v6] {
        let before = frame.clone();
        assert!(!finish_checksum(&mut frame));
        assert_eq!(frame, before);
    }
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    let whole = frame(true, true, 9);
    for at in 0..80 {
        for bit in 0..8 {
            let mut frame = whole[..300].to_vec();
            frame[at] ^= 1 << bit;
            finish_checksum(&mut frame);
            if let Some(segments) = Segments::of_frame(&frame, 100) {
                segments.begin_checksum(&mut frame);
                segments.cut(&frame, 0, &mut Vec::new(), |_| true);
                segments.cut(&frame[..20], 0, &mut Vec::new(), |_| true);
            }
        }
    }
}
