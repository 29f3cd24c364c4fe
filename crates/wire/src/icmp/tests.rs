use super::*;
use crate::IpPacket;

const OURS_V4: [u8; 4] = [192, 0, 2, 1];
const OURS_V6: [u8; 16] = [9; 16];
const DATA: [u8; 16] = [0x30, 0x39, 0, 53, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

fn packet_v4(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv4::write(&ipv4::Fields {
        source,
        destination,
        protocol,
        ttl: 1,
        payload_length: payload.len(),
        identification: 0,
        dont_fragment: true,
    });
    [&header[..], payload].concat()
}

fn udp_v4() -> Vec<u8> {
    packet_v4([10, 0, 0, 1], [10, 0, 0, 2], 17, &DATA)
}

fn packet_v6(source: [u8; 16], destination: [u8; 16], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv6::write(source, destination, protocol, 1, payload.len());
    [&header[..], payload].concat()
}

fn udp_v6() -> Vec<u8> {
    packet_v6([0x20; 16], [0x21; 16], 17, &DATA)
}

fn checksum_v6(packet: &[u8]) -> u16 {
    let header = ipv6::Header::parse(packet).unwrap();
    icmpv6::message_checksum(header.source, header.destination, &packet[40..])
}

#[test]
fn an_error_quotes_the_connection_it_is_about() {
    for (error, v4, v6) in [
        (Error::TooBig { mtu: 1400 }, [3, 4, 5, 120], [2, 0, 5, 120]),
        (Error::TimeExceeded, [11, 0, 0, 0], [3, 0, 0, 0]),
    ] {
        let about = udp_v4();
        let answer = error_v4(error, OURS_V4, &about).unwrap();
        let parsed = IpPacket::parse(&answer).unwrap();
        assert_eq!(parsed.quoted, Some(IpPacket::parse(&about).unwrap().tuple));
        assert_eq!([answer[20], answer[21], answer[26], answer[27]], v4);
        assert_eq!(checksum::finish(checksum::sum(&answer[20..])), 0);
        let about = udp_v6();
        let answer = error_v6(error, OURS_V6, &about).unwrap();
        let parsed = IpPacket::parse(&answer).unwrap();
        assert_eq!(parsed.quoted, Some(IpPacket::parse(&about).unwrap().tuple));
        assert_eq!([answer[40], answer[41], answer[46], answer[47]], v6);
        assert_eq!(checksum_v6(&answer), 0);
    }
}

#[test]
fn an_error_quotes_no_more_than_it_may_hold() {
    let long = packet_v4([10, 0, 0, 1], [10, 0, 0, 2], 17, &[0; 3000]);
    let answer = error_v4(Error::TooBig { mtu: 1400 }, OURS_V4, &long).unwrap();
    assert_eq!(answer.len(), icmpv4::ERROR_LIMIT);
    assert_eq!(answer[28..], long[..548]);
    let long = packet_v6([0x20; 16], [0x21; 16], 17, &[0; 3000]);
    let answer = error_v6(Error::TooBig { mtu: 1400 }, OURS_V6, &long).unwrap();
    assert_eq!(answer.len(), icmpv6::ERROR_LIMIT);
    assert_eq!(answer[48..], long[..1232]);
}

#[test]
fn an_error_needs_room() {
    let mut buffer = [0; 28 + 36];
    let length = buffer.len();
    let mut write =
        |room| icmpv4::write_error(Error::TimeExceeded, OURS_V4, &udp_v4(), &mut buffer[..room]);
    assert_eq!(write(length), Some(length));
    assert_eq!(write(length - 1), None);
    let mut buffer = [0; 48 + 56];
    let length = buffer.len();
    let mut write =
        |room| icmpv6::write_error(Error::TimeExceeded, OURS_V6, &udp_v6(), &mut buffer[..room]);
    assert_eq!(write(length), Some(length));
    assert_eq!(write(length - 1), None);
}

#[test]
fn errors_are_not_answered() {
    let first = error_v4(Error::TimeExceeded, OURS_V4, &udp_v4()).unwrap();
    assert_eq!(error_v4(Error::TimeExceeded, OURS_V4, &first), None);
    let first = error_v6(Error::TimeExceeded, OURS_V6, &udp_v6()).unwrap();
    assert_eq!(error_v6(Error::TimeExceeded, OURS_V6, &first), None);
    let mut redirect = packet_v6([0x20; 16], [0x21; 16], ICMPV6, &[0; 8]);
    redirect[40] = 137;
    assert_eq!(error_v6(Error::TimeExceeded, OURS_V6, &redirect), None);
}

#[test]
fn queries_are_answered_and_what_is_too_short_to_tell_is_not() {
    let echo = packet_v4(
        [10, 0, 0, 1],
        [10, 0, 0, 2],
        ICMP,
        &[8, 0, 0, 0, 0, 1, 0, 1],
    );
    assert!(error_v4(Error::TimeExceeded, OURS_V4, &echo).is_some());
    assert_eq!(error_v4(Error::TimeExceeded, OURS_V4, &echo[..27]), None);
    let echo = packet_v6([0x20; 16], [0x21; 16], ICMPV6, &[128, 0, 0, 0, 0, 1, 0, 1]);
    assert!(error_v6(Error::TimeExceeded, OURS_V6, &echo).is_some());
    assert_eq!(error_v6(Error::TimeExceeded, OURS_V6, &echo[..47]), None);
}

#[test]
fn only_single_hosts_are_answered() {
    let host = [10, 0, 0, 1];
    for (source, destination) in [
        ([0, 0, 0, 0], host),
        ([127, 0, 0, 1], host),
        ([224, 0, 0, 1], host),
        ([255; 4], host),
        (host, [239, 1, 2, 3]),
        (host, [255; 4]),
    ] {
        let about = packet_v4(source, destination, 17, &DATA);
        let answer = error_v4(Error::TimeExceeded, OURS_V4, &about);
        assert_eq!(answer, None, "{source:?} {destination:?}");
    }
    let mut group = [0; 16];
    group[0] = 0xff;
    let loopback = 1u128.to_be_bytes();
    for (source, destination) in [
        ([0; 16], [1; 16]),
        (loopback, [1; 16]),
        (group, [1; 16]),
        ([1; 16], group),
    ] {
        let about = packet_v6(source, destination, 17, &DATA);
        assert_eq!(error_v6(Error::TimeExceeded, OURS_V6, &about), None);
    }
    let about = packet_v6([1; 16], group, 17, &DATA);
    let answer = error_v6(Error::TooBig { mtu: 1400 }, OURS_V6, &about);
    assert!(answer.is_some(), "path MTU discovery works for groups too");
}

#[test]
fn later_fragments_are_not_answered_over_ipv4() {
    let mut about = udp_v4();
    about[7] = 1;
    assert_eq!(error_v4(Error::TimeExceeded, OURS_V4, &about), None);
}

#[test]
fn later_fragments_over_ipv6_are_answered_unless_they_may_be_of_an_error() {
    for (protocol, is_answered) in [(17, true), (ICMPV6, false)] {
        let fragment = [&[protocol, 0, 0, 8, 0, 0, 0, 7][..], &DATA].concat();
        let about = packet_v6([0x20; 16], [0x21; 16], 44, &fragment);
        let answer = error_v6(Error::TooBig { mtu: 1400 }, OURS_V6, &about);
        assert_eq!(answer.is_some(), is_answered, "{protocol}");
        if let Some(answer) = answer {
            let parsed = IpPacket::parse(&answer).unwrap();
            assert_eq!(parsed.quoted_fragment, Some(7));
        }
    }
}

#[test]
fn an_error_for_somebody_else_than_the_quoted_source_is_named() {
    let mut answer = error_v4(Error::TimeExceeded, OURS_V4, &udp_v4()).unwrap();
    answer[19] ^= 1;
    ipv4::set_checksum(&mut answer[..20]);
    let misdirected = Err(ParseError::IcmpQuoteMisdirected);
    assert_eq!(IpPacket::parse(&answer), misdirected);
    let mut answer = error_v6(Error::TimeExceeded, OURS_V6, &udp_v6()).unwrap();
    answer[39] ^= 1;
    assert_eq!(IpPacket::parse(&answer), misdirected);
}

fn echo(v6: bool) -> Vec<u8> {
    let mut message = vec![8, 0, 0, 0, 0x12, 0x34, 0, 1, 9, 9, 9, 9];
    if v6 {
        message[0] = 128;
        return neighbour_packet([0x20; 16], [0x21; 16], message);
    }
    let sum = checksum::finish(checksum::sum(&message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    packet_v4([10, 0, 0, 1], [10, 0, 0, 2], ICMP, &message)
}

#[test]
fn an_echo_becomes_its_reply() {
    let mut packet = echo(false);
    assert!(echo_reply_in_place(false, &mut packet, 20));
    let parsed = IpPacket::parse(&packet).unwrap();
    assert_eq!(parsed.tuple.source().to_string(), "10.0.0.2");
    assert_eq!((packet[20], parsed.tuple.source_port), (0, 0x1234));
    assert_eq!(parsed.ttl, HOP_LIMIT);
    assert_eq!(checksum::finish(checksum::sum(&packet[20..])), 0);
    let mut packet = echo(true);
    assert!(echo_reply_in_place(true, &mut packet, 40));
    let header = ipv6::Header::parse(&packet).unwrap();
    assert_eq!((header.source, header.hop_limit), ([0x21; 16], HOP_LIMIT));
    assert_eq!(packet[40], 129);
    assert_eq!(checksum_v6(&packet), 0);
}

#[test]
fn no_echo_is_answered_outside_the_packet() {
    for (v6, offset) in [
        (false, 19),
        (false, 25),
        (false, 99),
        (true, 39),
        (true, 45),
    ] {
        let mut packet = echo(v6);
        let before = packet.clone();
        assert!(!echo_reply_in_place(v6, &mut packet, offset));
        assert_eq!(packet, before);
    }
}

#[test]
fn short_quotes_are_named() {
    let answer = error_v4(Error::TimeExceeded, OURS_V4, &udp_v4()).unwrap();
    for length in 0..8 + 28 {
        let result = quoted_tuple(false, &answer[20..20 + length]);
        assert_eq!(result, Err(ParseError::IcmpQuoteTruncated), "{length}");
    }
    let answer = error_v6(Error::TimeExceeded, OURS_V6, &udp_v6()).unwrap();
    for length in 0..8 + 48 {
        let result = quoted_tuple(true, &answer[40..40 + length]);
        assert_eq!(result, Err(ParseError::IcmpQuoteTruncated), "{length}");
    }
}

#[test]
fn what_has_no_ports_may_be_shorter_than_a_quote_is_at_least() {
    // One byte of protocol 10 behind an IPv6 header: found by fuzzing.
    let mut packet = udp_v6()[..41].to_vec();
    packet[4..7].copy_from_slice(&[0, 1, 10]);
    let answer = error_v6(Error::TimeExceeded, OURS_V6, &packet).unwrap();
    let quoted = quoted_tuple(true, &answer[40..]).unwrap();
    assert_eq!(
        (quoted.protocol, quoted.source_port, quoted.destination_port),
        (10, 0, 0)
    );
}

#[test]
fn a_quote_of_another_version_is_malformed() {
    let mut message = vec![11, 0, 0, 0, 0, 0, 0, 0];
    message.extend(udp_v6());
    let malformed = Err(ParseError::IcmpQuoteMalformed);
    assert_eq!(quoted_tuple(false, &message), malformed);
    message.truncate(8);
    message.extend(udp_v4());
    message.extend([0; 20]);
    assert_eq!(quoted_tuple(true, &message), malformed);
}

#[test]
fn a_quoted_echo_has_its_identifier_and_a_later_fragment_no_ports() {
    let mut message = vec![11, 0, 0, 0, 0, 0, 0, 0];
    message.extend(echo(false));
    let tuple = quoted_tuple(false, &message).unwrap();
    assert_eq!(
        (tuple.source_port, tuple.destination_port),
        (0x1234, 0x1234)
    );
    message[8 + 7] = 1;
    let tuple = quoted_tuple(false, &message).unwrap();
    assert_eq!((tuple.source_port, tuple.destination_port), (0, 0));
}
