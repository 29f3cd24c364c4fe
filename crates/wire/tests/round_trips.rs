//! Properties: what is written is read as it was, and any bytes at all pass every check.

mod codec_checks;

use proptest::prelude::*;
use proptest::sample::Index;
use wire::arp::{Arp, Operation};
use wire::nsh::{self, MetadataType, NextProtocol, ServicePathIdentifier};
use wire::steering::{
    Direction, Encoding, ServicePath, ServicePathMap, SteeringContext, TunnelTemplate, decapsulate,
};
use wire::{
    Addresses, FiveTuple, IpPacket, Label, MacAddress, ParseError, ServiceIndex, Vni, checksum,
    ethernet, ipv4, ipv6, mpls, tcp, udp, vlan, vxlan, vxlan_gpe,
};

fn mac() -> impl Strategy<Value = MacAddress> {
    any::<[u8; 6]>().prop_map(MacAddress)
}

fn label() -> impl Strategy<Value = Label> {
    (16u32..1 << 20).prop_map(|value| Label::new(value).unwrap())
}

fn vni() -> impl Strategy<Value = Vni> {
    (0u32..1 << 24).prop_map(|value| Vni::new(value).unwrap())
}

fn identifier() -> impl Strategy<Value = ServicePathIdentifier> {
    (0u32..1 << 24).prop_map(|value| ServicePathIdentifier::new(value).unwrap())
}

fn context() -> impl Strategy<Value = SteeringContext> {
    (label(), any::<bool>(), label(), any::<u8>(), any::<u8>()).prop_map(
        |(chain, forward, egress, index, loop_guard)| SteeringContext {
            chain: Label::new(chain.get() & !1).unwrap(),
            direction: if forward {
                Direction::Forward
            } else {
                Direction::Reverse
            },
            egress,
            service_index: ServiceIndex::new(index),
            loop_guard,
        },
    )
}

fn five_tuple() -> impl Strategy<Value = FiveTuple> {
    let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(source, destination)| Addresses::V4 {
        source,
        destination,
    });
    let v6 = any::<([u8; 16], [u8; 16])>().prop_map(|(source, destination)| Addresses::V6 {
        source,
        destination,
    });
    (prop_oneof![v4, v6], any::<(u8, u16, u16)>()).prop_map(
        |(addresses, (protocol, source_port, destination_port))| FiveTuple {
            addresses,
            protocol,
            source_port,
            destination_port,
        },
    )
}

/// One service path, by any identifier.
struct Only(ServicePathIdentifier, ServicePath);

impl ServicePathMap for Only {
    fn path(&self, identifier: ServicePathIdentifier) -> Option<ServicePath> {
        (identifier == self.0).then_some(self.1)
    }

    fn identifier(&self, path: &ServicePath) -> Option<ServicePathIdentifier> {
        (*path == self.1).then_some(self.0)
    }
}

/// A UDP packet of that connection's addresses and ports.
fn packet(tuple: &FiveTuple, data: &[u8]) -> Vec<u8> {
    let header = udp::Header {
        source_port: tuple.source_port,
        destination_port: tuple.destination_port,
        length: udp::HEADER_LENGTH + data.len(),
        checksum: 0,
    };
    let datagram = [&header.to_bytes()[..], data].concat();
    match tuple.addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            let fields = ipv4::Fields {
                source,
                destination,
                protocol: udp::PROTOCOL,
                ttl: 64,
                payload_length: datagram.len(),
                identification: 1,
                dont_fragment: false,
            };
            [&ipv4::write(&fields)[..], &datagram].concat()
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let header = ipv6::write(source, destination, udp::PROTOCOL, 64, datagram.len());
            [&header[..], &datagram].concat()
        }
    }
}

/// An outer source port.
const PORT: u16 = 51_234;

proptest! {
    #[test]
    fn any_bytes_pass_every_check(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for (_, check) in codec_checks::CHECKS {
            check(&bytes);
        }
    }

    /// Bytes that are nearly right reach further than random ones.
    #[test]
    fn damaged_tunnel_packets_pass_every_check(
        context in context(),
        tuple in five_tuple(),
        encoding in prop::sample::select(&Encoding::ALL),
        damage in prop::collection::vec(any::<(Index, u8)>(), 0..4),
        cut in any::<Index>(),
    ) {
        let path = Only(ServicePathIdentifier::new(7).unwrap(), context.path());
        let mut frame = encapsulated(encoding, &tuple, &context, &path, &packet(&tuple, b"some data"));
        for (at, value) in damage {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        let length = cut.index(frame.len() * 2).min(frame.len());
        for (_, check) in codec_checks::CHECKS {
            check(&frame[..length]);
            check(frame.get(14..length).unwrap_or_default());
        }
    }

    #[test]
    fn ethernet(destination in mac(), source in mac(), vlan in 0u16..4095, ether_type: u16) {
        prop_assume!(!vlan::Tag::follows(ether_type));
        let mut buffer = [0; 18];
        let length = ethernet::Header::write(&mut buffer, destination, source, vlan, ether_type);
        let header = ethernet::Header::parse(&buffer[..length]).unwrap();
        prop_assert_eq!(
            (header.destination, header.source, header.vlan, header.ether_type, header.length),
            (destination, source, vlan, ether_type, length)
        );
    }

    #[test]
    fn vlan_tag(priority in 0u8..8, drop_eligible: bool, identifier in 0u16..4095, ether_type: u16) {
        let tag = vlan::Tag { priority, drop_eligible, identifier };
        let bytes = [tag.to_bytes(), ether_type.to_be_bytes()].concat();
        prop_assert_eq!(vlan::Tag::parse(&bytes), Ok((tag, ether_type)));
    }

    #[test]
    fn arp(asks: bool, sender_mac in mac(), sender: [u8; 4], target_mac in mac(), target: [u8; 4]) {
        let operation = if asks { Operation::Request } else { Operation::Reply };
        let arp = Arp { operation, sender_mac, sender, target_mac, target };
        prop_assert_eq!(Arp::parse(&arp.to_bytes()), Ok(arp));
    }

    #[test]
    fn ipv4_header(
        source: [u8; 4], destination: [u8; 4], protocol: u8, ttl: u8, payload_length in 0usize..1400,
        identification: u16, dont_fragment: bool,
    ) {
        let fields = ipv4::Fields {
            source, destination, protocol, ttl, payload_length, identification, dont_fragment,
        };
        let mut packet = ipv4::write(&fields).to_vec();
        packet.resize(20 + payload_length, 0);
        let header = ipv4::Header::parse(&packet).unwrap();
        prop_assert_eq!(
            (header.source, header.destination, header.protocol, header.ttl, header.total_length),
            (source, destination, protocol, ttl, packet.len())
        );
        prop_assert_eq!((header.identification, header.dont_fragment), (identification, dont_fragment));
        prop_assert_eq!((header.fragment_offset, header.more_fragments), (0, false));
        for length in 0..packet.len().min(60) {
            prop_assert!(length == packet.len() || ipv4::Header::parse(&packet[..length]).is_err());
        }
    }

    #[test]
    fn ipv6_header(source: [u8; 16], destination: [u8; 16], hop_limit: u8, payload_length in 0usize..1400) {
        let mut packet = ipv6::write(source, destination, udp::PROTOCOL, hop_limit, payload_length).to_vec();
        packet.resize(40 + payload_length, 0);
        let header = ipv6::Header::parse(&packet).unwrap();
        prop_assert_eq!(
            (header.source, header.destination, header.protocol, header.hop_limit, header.total_length),
            (source, destination, udp::PROTOCOL, hop_limit, packet.len())
        );
    }

    #[test]
    fn udp_header(source_port: u16, destination_port: u16, data in 0usize..600, checksum: u16) {
        let header = udp::Header { source_port, destination_port, length: 8 + data, checksum };
        let mut datagram = header.to_bytes().to_vec();
        datagram.resize(8 + data, 0);
        prop_assert_eq!(udp::Header::parse(&datagram), Ok(header));
    }

    #[test]
    fn label_stack_entry(label in 0u32..1 << 20, traffic_class in 0u8..8, bottom_of_stack: bool, ttl: u8) {
        let entry = mpls::StackEntry { label, traffic_class, bottom_of_stack, ttl };
        prop_assert_eq!(mpls::StackEntry::parse(&entry.to_bytes()), Ok(entry));
    }

    #[test]
    fn vxlan_headers(network in vni(), next in 1u8..5) {
        prop_assert_eq!(vxlan::parse(&vxlan::to_bytes(network)), Ok(network));
        let next = [
            vxlan_gpe::NextProtocol::Ipv4,
            vxlan_gpe::NextProtocol::Ipv6,
            vxlan_gpe::NextProtocol::Ethernet,
            vxlan_gpe::NextProtocol::Nsh,
        ][usize::from(next) - 1];
        let header = vxlan_gpe::Header { next, network };
        prop_assert_eq!(vxlan_gpe::Header::parse(&header.to_bytes()), Ok(header));
    }

    #[test]
    fn service_header(
        oam: bool, ttl in 0u8..64, words in 2usize..64, fixed: bool, path in identifier(), index: u8,
        context: [u8; 16], v6: bool,
    ) {
        let header = nsh::Header {
            oam,
            ttl,
            length: if fixed { nsh::FIXED_LENGTH } else { 4 * words },
            metadata: if fixed { MetadataType::Fixed } else { MetadataType::Variable },
            next: if v6 { NextProtocol::Ipv6 } else { NextProtocol::Ipv4 },
            path,
            index: ServiceIndex::new(index),
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(header.length, 0);
        prop_assert_eq!(nsh::Header::parse(&bytes), Ok(header));
        for length in 0..bytes.len() {
            prop_assert!(nsh::Header::parse(&bytes[..length]).is_err());
        }
        if fixed {
            let whole = header.to_fixed_bytes(&context);
            prop_assert_eq!(nsh::Header::parse(&whole), Ok(header));
            prop_assert_eq!(&whole[8..], &context[..]);
        }
    }

    #[test]
    fn steering_context(context in context(), identifier in identifier(), v6: bool) {
        prop_assert_eq!(SteeringContext::from_labels(&context.to_labels()), Ok(context));
        let paths = Only(identifier, context.path());
        let header = context.to_nsh(identifier, v6);
        let read = SteeringContext::from_nsh(&header, &paths);
        if context.loop_guard == 1 {
            prop_assert_eq!(read, Err(ParseError::NshTtlExpired));
            return Ok(());
        }
        // The TTL has six bits, and 0 stands for 64.
        let loop_guard = if context.loop_guard == 0 { 64 } else { context.loop_guard.min(63) };
        prop_assert_eq!(read, Ok(SteeringContext { loop_guard, ..context }));
    }

    #[test]
    fn tunnels(
        context in context(), tuple in five_tuple(), inner in five_tuple(), network in vni(),
        encoding in prop::sample::select(&Encoding::ALL), data in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let context = SteeringContext { loop_guard: context.loop_guard % 62 + 2, ..context };
        let inner = packet(&inner, &data);
        let paths = Only(ServicePathIdentifier::new(network.get()).unwrap(), context.path());
        let frame = encapsulated(encoding, &tuple, &context, &paths, &inner);
        let outer = IpPacket::parse(&frame[14..]).unwrap();
        prop_assert_eq!(Encoding::of(&outer), Some(encoding));
        let read = decapsulate(encoding, &frame[14..], &outer, &paths).unwrap();
        prop_assert_eq!(read.context, context);
        prop_assert_eq!(read.peer, tuple.source());
        prop_assert_eq!(&frame[14..][read.inner_offset..read.end], &inner[..]);
        prop_assert_eq!(outer.tuple.source_port, PORT);
        let inner = IpPacket::parse(&inner).unwrap();
        prop_assert_eq!(inner.tuple.reversed().reversed(), inner.tuple);
    }

    #[test]
    fn a_packet_shows_its_connection(tuple in five_tuple(), data in prop::collection::vec(any::<u8>(), 0..60)) {
        let tuple = FiveTuple { protocol: udp::PROTOCOL, ..tuple };
        let packet = packet(&tuple, &data);
        prop_assert_eq!(IpPacket::parse(&packet).unwrap().tuple, tuple);
        for length in 0..packet.len() {
            prop_assert!(IpPacket::parse(&packet[..length]).is_err());
        }
    }

    #[test]
    fn an_updated_checksum_is_that_of_the_changed_bytes(mut bytes in prop::collection::vec(any::<u8>(), 2..80), at: Index, new: u16) {
        // As in any header, something that the sum covers is not 0.
        bytes[0] = 0x45;
        let before = checksum::finish(checksum::sum(&bytes));
        let at = at.index(bytes.len() / 2) * 2;
        prop_assume!(at > 0);
        let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(checksum::update(before, old, new), checksum::finish(checksum::sum(&bytes)));
    }

    /// The same for IPv4 and IPv6: with the pseudo-header, the sum of a segment stays right.
    #[test]
    fn a_clamped_segment_keeps_a_right_checksum(
        tuple in five_tuple(), size: u16, limit: u16, padding in 0usize..3, data in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let addresses = match tuple.addresses {
            Addresses::V4 { source, destination } => [source, destination].concat(),
            Addresses::V6 { source, destination } => [source, destination].concat(),
        };
        let mut options = vec![1; padding];
        options.extend([2, 4]);
        options.extend(size.to_be_bytes());
        options.resize(8, 0);
        let mut segment = vec![0x5a; tcp::HEADER_LENGTH];
        segment[12] = 7 << 4;
        segment[13] = tcp::SYN;
        segment[16..18].fill(0);
        segment.extend(options);
        segment.extend(data);
        let pseudo = checksum::pseudo_header(&addresses, tcp::PROTOCOL, segment.len());
        let sum = checksum::finish(pseudo + checksum::sum(&segment));
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        let changed = tcp::clamp_maximum_segment_size(&mut segment, limit);
        prop_assert_eq!(changed, size > limit);
        prop_assert_eq!(tcp::maximum_segment_size(&segment), Some(size.min(limit)));
        prop_assert_eq!(checksum::fold(pseudo + checksum::sum(&segment)), 0xffff);
    }
}

fn encapsulated(
    encoding: Encoding,
    outer: &FiveTuple,
    context: &SteeringContext,
    paths: &impl ServicePathMap,
    inner: &[u8],
) -> Vec<u8> {
    let macs = (MacAddress([2; 6]), MacAddress([4; 6]));
    let addresses = (outer.source(), outer.destination());
    let template =
        TunnelTemplate::with_encoding(encoding, macs, addresses, Vni::default()).unwrap();
    let mut frame = vec![0; template.length()];
    frame.extend(inner);
    template
        .encapsulate(&mut frame, PORT, context, paths)
        .unwrap();
    frame
}
