use super::*;
use crate::nsh::{self, ServicePathIdentifier};
use crate::{IpPacket, Label, MacAddress, ParseError, ServiceIndex, Vni, checksum, ethernet, ipv4};
use std::net::IpAddr;

fn context() -> SteeringContext {
    SteeringContext {
        chain: Label::new(1000).unwrap(),
        direction: Direction::Reverse,
        egress: Label::new(77).unwrap(),
        service_index: ServiceIndex::new(254),
        loop_guard: 63,
    }
}

/// One service path has an identifier: that of [`context`].
struct OnePath;

const IDENTIFIER: u32 = 0xabcdef;

impl ServicePathMap for OnePath {
    fn path(&self, identifier: ServicePathIdentifier) -> Option<ServicePath> {
        (identifier.get() == IDENTIFIER).then(|| context().path())
    }

    fn identifier(&self, path: &ServicePath) -> Option<ServicePathIdentifier> {
        (*path == context().path())
            .then(|| ServicePathIdentifier::new(IDENTIFIER))
            .flatten()
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

const UNDERLAYS: [(&str, &str); 2] = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];

fn template(encoding: Encoding, (source, destination): (&str, &str)) -> TunnelTemplate {
    TunnelTemplate::with_encoding(
        encoding,
        (MacAddress([2; 6]), MacAddress([4; 6])),
        (source.parse().unwrap(), destination.parse().unwrap()),
        Vni::new(5).unwrap(),
    )
    .unwrap()
}

fn frame(encoding: Encoding, underlay: (&str, &str)) -> Vec<u8> {
    let template = template(encoding, underlay);
    let mut frame = vec![0u8; template.length()];
    frame.extend(inner());
    template
        .encapsulate(&mut frame, 50_000, &context(), &OnePath)
        .unwrap();
    frame
}

fn taken_apart(frame: &[u8]) -> Result<Decapsulated, ParseError> {
    let header = ethernet::Header::parse(frame)?;
    let packet = &frame[header.length..];
    let parsed = IpPacket::parse(packet)?;
    decapsulate(Encoding::of(&parsed).unwrap(), packet, &parsed, &OnePath)
}

fn every_frame() -> impl Iterator<Item = (Encoding, Vec<u8>)> {
    Encoding::ALL
        .into_iter()
        .flat_map(|encoding| UNDERLAYS.map(|underlay| (encoding, frame(encoding, underlay))))
}

#[test]
fn what_is_encapsulated_is_taken_apart() {
    for encoding in Encoding::ALL {
        for underlay in UNDERLAYS {
            let frame = frame(encoding, underlay);
            let result = taken_apart(&frame).unwrap();
            assert_eq!(result.context, context());
            let network = (encoding != Encoding::MplsInUdp).then(|| Vni::new(5).unwrap());
            assert_eq!(result.network, network);
            assert_eq!(result.peer, underlay.0.parse::<IpAddr>().unwrap());
            assert_eq!(
                &frame[14 + result.inner_offset..14 + result.end],
                &inner()[..]
            );
            let template = template(encoding, underlay);
            assert_eq!(14 + result.inner_offset, template.length());
            assert!(template.length() <= OVERHEAD_LIMIT);
            assert_eq!(template.overhead() + inner().len() + 14, frame.len());
        }
    }
    let longest = template(Encoding::VxlanGpeNsh, UNDERLAYS[1]);
    assert_eq!(longest.length(), OVERHEAD_LIMIT);
}

#[test]
fn headroom_alone_is_written_alike() {
    for encoding in [Encoding::VxlanMpls, Encoding::MplsInUdp] {
        for underlay in UNDERLAYS {
            let template = template(encoding, underlay);
            let mut headroom = vec![0xee; template.length()];
            assert!(template.write(&mut headroom, inner().len(), 50_000, &context()));
            assert_eq!(headroom, frame(encoding, underlay)[..template.length()]);
            assert!(!template.write(&mut headroom[1..], inner().len(), 50_000, &context()));
            assert!(!template.write(&mut headroom, 65_536, 50_000, &context()));
        }
    }
}

#[test]
fn truncation_at_every_length_is_an_error() {
    for (encoding, frame) in every_frame() {
        for length in 0..frame.len() {
            assert!(
                taken_apart(&frame[..length]).is_err(),
                "{encoding:?} {length}"
            );
        }
    }
}

/// Shortens the lengths of the outer headers too, so that only what is inside is cut short.
#[test]
fn a_datagram_that_ends_inside_the_context_is_an_error() {
    for encoding in Encoding::ALL {
        let template = template(encoding, UNDERLAYS[0]);
        let udp_at = 34;
        for length in 8..encoding.context_length() {
            let mut frame = frame(encoding, UNDERLAYS[0]);
            frame.truncate(udp_at + length);
            frame[16..18].copy_from_slice(&((20 + length) as u16).to_be_bytes());
            frame[udp_at + 4..udp_at + 6].copy_from_slice(&(length as u16).to_be_bytes());
            ipv4::set_checksum(&mut frame[14..34]);
            let error = taken_apart(&frame).unwrap_err();
            assert!(
                error.name().ends_with("_truncated"),
                "{encoding:?} {length}: {error}"
            );
        }
        assert_eq!(template.encoding(), encoding);
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
fn what_is_wrong_inside_is_named() {
    let vxlan = 42;
    for (encoding, at, value, error) in [
        (Encoding::VxlanMpls, vxlan, 0, ParseError::VxlanBadFlags),
        (
            Encoding::VxlanMpls,
            vxlan + 20,
            8,
            ParseError::VxlanInnerUnknown,
        ),
        (
            Encoding::VxlanMpls,
            vxlan + 21,
            0,
            ParseError::VxlanInnerUnknown,
        ),
        (
            Encoding::VxlanMpls,
            vxlan + 23,
            0,
            ParseError::MplsReservedLabel,
        ),
        (
            Encoding::MplsInUdp,
            42 + 6,
            0,
            ParseError::MplsNoBottomOfStack,
        ),
        (
            Encoding::VxlanGpeNsh,
            vxlan,
            0,
            ParseError::VxlanGpeBadFlags,
        ),
        (
            Encoding::VxlanGpeNsh,
            vxlan + 3,
            1,
            ParseError::VxlanGpeUnknownProtocol,
        ),
        (Encoding::VxlanGpeNsh, vxlan + 8, 0x2f, ParseError::NshOam),
        (
            Encoding::VxlanGpeNsh,
            vxlan + 10,
            0,
            ParseError::NshReservedMetadataType,
        ),
        (Encoding::VxlanGpeNsh, vxlan + 11, 2, ParseError::InnerNotIp),
        (
            Encoding::VxlanGpeNsh,
            vxlan + 11,
            5,
            ParseError::NshUnknownNextProtocol,
        ),
        (
            Encoding::VxlanGpeNsh,
            vxlan + 12,
            0,
            ParseError::NshUnknownPath,
        ),
    ] {
        let mut frame = frame(encoding, UNDERLAYS[0]);
        frame[at] = value;
        if error == ParseError::MplsReservedLabel {
            frame[at - 1] = 0;
            frame[at + 1] &= 0x0f;
        }
        let result = taken_apart(&frame);
        assert_eq!(result, Err(error), "{encoding:?} byte {at} is {value}");
    }
}

#[test]
fn a_tag_inside_vxlan_is_refused() {
    let mut frame = frame(Encoding::VxlanMpls, UNDERLAYS[0]);
    frame[62..68].copy_from_slice(&[0x81, 0, 0, 9, 0x88, 0x47]);
    assert_eq!(taken_apart(&frame), Err(ParseError::VxlanInnerTagged));
}

#[test]
fn a_fragment_of_a_tunnel_packet_is_refused() {
    for (encoding, mut frame) in every_frame().step_by(2) {
        let end = frame.len() - frame.len() % 8 + 2;
        frame.truncate(end);
        frame[16..18].copy_from_slice(&((end - 14) as u16).to_be_bytes());
        frame[20..22].copy_from_slice(&[0x20, 0]);
        ipv4::set_checksum(&mut frame[14..34]);
        let result = taken_apart(&frame);
        assert_eq!(result, Err(ParseError::TunnelFragmented), "{encoding:?}");
    }
}

#[test]
fn a_wrong_udp_checksum_is_named_and_a_right_one_accepted() {
    for (encoding, mut frame) in every_frame() {
        let (addresses, udp_at) = match frame[12..14] {
            [0x08, 0x00] => (26..34, 34),
            _ => (22..54, 54),
        };
        assert_eq!(frame[udp_at + 6..udp_at + 8], [0, 0]);
        let length = frame.len() - udp_at;
        let total = checksum::pseudo_header(&frame[addresses], 17, length)
            + checksum::sum(&frame[udp_at..]);
        let sum = checksum::finish(total);
        frame[udp_at + 6..udp_at + 8].copy_from_slice(&sum.to_be_bytes());
        assert!(taken_apart(&frame).is_ok(), "{encoding:?}");
        frame[udp_at + 7] ^= 1;
        assert_eq!(taken_apart(&frame), Err(ParseError::UdpBadChecksum));
    }
}

#[test]
fn a_relayed_service_header_stays_as_it_came() {
    for underlay in UNDERLAYS {
        let template = template(Encoding::VxlanGpeNsh, underlay);
        let mut frame = frame(Encoding::VxlanGpeNsh, underlay);
        let nsh_at = 14 + taken_apart(&frame).unwrap().nsh_offset.unwrap();
        assert_eq!(nsh_at, template.relay_length());
        frame[nsh_at] |= 0x10;
        frame[nsh_at + 2] |= 0xf0;
        frame[nsh_at + 8..nsh_at + 24].fill(0x77);
        let service_header = frame[nsh_at..].to_vec();
        frame[..nsh_at].fill(0);
        template.relay(&mut frame, 60_000).unwrap();
        assert_eq!(frame[nsh_at..], service_header);
        assert_eq!(nsh::decrement_ttl(&mut frame[nsh_at..]), Some(62));
        let result = taken_apart(&frame).unwrap();
        assert_eq!(Some(result.context), context().passed());
        assert_eq!(14 + result.end, frame.len());
    }
    let mut frame = frame(Encoding::VxlanMpls, UNDERLAYS[0]);
    assert_eq!(
        template(Encoding::VxlanMpls, UNDERLAYS[0]).relay(&mut frame, 60_000),
        Err(EncapsulateError::RelayWithoutNsh)
    );
}

#[test]
fn what_cannot_be_encapsulated_is_named() {
    let other = SteeringContext {
        direction: Direction::Forward,
        ..context()
    };
    for encoding in Encoding::ALL {
        let template = template(encoding, UNDERLAYS[0]);
        let put = |frame: &mut [u8], context: SteeringContext| {
            template.encapsulate(frame, 1, &context, &OnePath)
        };
        let mut short = vec![0x45; template.length() - 1];
        assert_eq!(
            put(&mut short, context()),
            Err(EncapsulateError::NoHeadroom)
        );
        let mut longest = vec![0x45; 14 + 65_535];
        assert_eq!(put(&mut longest, context()), Ok(()));
        let mut too_long = vec![0x45; 14 + 65_536];
        assert_eq!(
            put(&mut too_long, context()),
            Err(EncapsulateError::TooLong)
        );
        if encoding == Encoding::VxlanGpeNsh {
            let mut packet = vec![0x75; template.length() + 20];
            assert_eq!(
                put(&mut packet, context()),
                Err(EncapsulateError::InnerNotIp)
            );
            packet.fill(0x45);
            assert_eq!(put(&mut packet, other), Err(EncapsulateError::PathUnnamed));
        }
    }
}

#[test]
fn families_do_not_mix() {
    let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
    for encoding in Encoding::ALL {
        let macs = (MacAddress([2; 6]), MacAddress([4; 6]));
        assert!(TunnelTemplate::with_encoding(encoding, macs, (a, b), Vni::default()).is_none());
    }
}

#[test]
fn the_loop_guard_ends_at_zero() {
    let at = |loop_guard| SteeringContext {
        loop_guard,
        ..context()
    };
    assert_eq!(at(2).passed(), Some(at(1)));
    assert_eq!(at(1).passed(), None);
    assert_eq!(at(0).passed(), None);
}

#[test]
fn the_loop_guard_keeps_its_meaning_through_a_service_header() {
    let identifier = ServicePathIdentifier::new(IDENTIFIER).unwrap();
    for (guard, ttl) in [(1, 1), (63, 63), (64, 63), (255, 63)] {
        let context = SteeringContext {
            loop_guard: guard,
            ..context()
        };
        assert_eq!(context.to_nsh(identifier, false).ttl, ttl);
    }
    let zero = nsh::Header {
        ttl: 0,
        ..context().to_nsh(identifier, false)
    };
    let read = SteeringContext::from_nsh(&zero, &OnePath).unwrap();
    assert_eq!(read.passed().map(|context| context.loop_guard), Some(63));
}

#[test]
fn labelled_types_are_those_of_labels_and_service_headers() {
    let labelled: Vec<u16> = (0..=u16::MAX).filter(|&kind| is_labelled(kind)).collect();
    assert_eq!(labelled, [0x8847, 0x8848, 0x894f]);
}
