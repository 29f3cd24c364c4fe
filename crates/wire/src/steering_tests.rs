use crate::steering::*;
use crate::{IpPacket, Label, MacAddress, ParseError, ethernet, ipv4, ipv6};
use std::net::IpAddr;

fn context() -> SteeringContext {
    SteeringContext {
        chain: Label::new(1000).unwrap(),
        direction: Direction::Reverse,
        egress: Label::new(77).unwrap(),
        service_index: 254,
        loop_guard: 63,
    }
}

fn inner() -> Vec<u8> {
    let mut packet = ipv4::write(&ipv4::Fields {
        source: [10, 0, 0, 1],
        destination: [10, 0, 0, 2],
        protocol: 17,
        ttl: 64,
        payload_length: 8,
        identification: 0,
        dont_fragment: true,
    })
    .to_vec();
    packet.extend([0x30, 0x39, 0, 53, 0, 8, 0, 0]);
    packet
}

fn frame(source: &str, destination: &str) -> Vec<u8> {
    let (source, destination): (IpAddr, IpAddr) =
        (source.parse().unwrap(), destination.parse().unwrap());
    let template = TunnelTemplate::new(
        MacAddress([2; 6]),
        MacAddress([4; 6]),
        source,
        destination,
        5,
    )
    .unwrap();
    let inner = inner();
    let mut frame = vec![0u8; template.length()];
    template.write(&mut frame, inner.len(), 50_000, &context());
    frame.extend(inner);
    frame
}

fn taken_apart(frame: &[u8]) -> Result<Decapsulated, ParseError> {
    let header = ethernet::Header::parse(frame)?;
    let packet = &frame[header.length..];
    let parsed = IpPacket::parse(packet)?;
    assert!(is_vxlan(&parsed));
    decapsulate(packet, &parsed)
}

#[test]
fn what_is_encapsulated_is_taken_apart() {
    for (source, destination, overhead) in [
        ("192.0.2.1", "192.0.2.2", 34),
        ("2001:db8::1", "2001:db8::2", 54),
    ] {
        let frame = frame(source, destination);
        let result = taken_apart(&frame).unwrap();
        assert_eq!(result.context, context());
        assert_eq!((result.network, result.peer), (5, source.parse().unwrap()));
        assert_eq!(result.inner_offset, overhead + 24);
        assert_eq!(
            &frame[14 + result.inner_offset..14 + result.end],
            &inner()[..]
        );
    }
}

#[test]
fn truncation_at_every_length_is_an_error() {
    for frame in [
        frame("192.0.2.1", "192.0.2.2"),
        frame("2001:db8::1", "2001:db8::2"),
    ] {
        for length in 0..frame.len() {
            assert!(taken_apart(&frame[..length]).is_err(), "{length}");
        }
    }
}

#[test]
fn label_stacks_of_another_depth_are_named() {
    let mut one = context().to_labels();
    one[2] |= 1;
    assert_eq!(
        SteeringContext::from_labels(&one),
        Err(ParseError::MplsTooFewLabels)
    );
    let mut three = context().to_labels();
    three[6] &= !1;
    assert_eq!(
        SteeringContext::from_labels(&three),
        Err(ParseError::MplsNoBottomOfStack)
    );
}

#[test]
fn a_wrong_udp_checksum_is_named_and_a_right_one_accepted() {
    let mut frame = frame("192.0.2.1", "192.0.2.2");
    let length = frame.len() - 34;
    frame[40..42].copy_from_slice(&[0, 0]);
    let total = crate::checksum::pseudo_header(&frame[26..34], 17, length)
        + crate::checksum::sum(&frame[34..]);
    let sum = crate::checksum::finish(total);
    frame[40..42].copy_from_slice(&sum.to_be_bytes());
    assert!(taken_apart(&frame).is_ok());
    frame[41] ^= 1;
    assert_eq!(taken_apart(&frame), Err(ParseError::UdpBadChecksum));
}

#[test]
fn families_do_not_mix() {
    let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
    assert!(TunnelTemplate::new(MacAddress([2; 6]), MacAddress([4; 6]), a, b, 5).is_none());
    assert_eq!(ipv6::HEADER_LENGTH + CONTEXT_LENGTH + 14, OVERHEAD_LIMIT);
}
