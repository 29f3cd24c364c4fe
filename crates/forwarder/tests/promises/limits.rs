//! Packets that are too large, too old or too often passed on, and answers to them.

use crate::frames::{fitting_size, frame, packet, tuple};
use crate::network::{HOST_MAC, Network, port_mac};
use crate::plan::{Plan, chain, instance};
use std::collections::BTreeMap;
use wire::{IpPacket, ethernet, icmp, ipv4, tcp};

fn network(wan_mtu: u32) -> Network {
    let mut plan = Plan::new(2, chain(0, vec![vec![instance(1, "a", 100)]], 1));
    plan.wan_mtu = wan_mtu;
    Network::new(plan)
}

/// 1500 bytes less IPv4, UDP, VXLAN, Ethernet and two labels.
const INNER: usize = 1500 - 20 - 8 - 8 - 14 - 8;

#[test]
fn segment_sizes_that_a_syn_offers_are_lowered_to_what_fits() {
    let mut network = network(1500);
    let chain = network.plan.chains[0].clone();
    lowers_segment_sizes(&mut network, INNER, "between edges");
    for (source, destination) in [("10.1.0.5", "10.2.0.9"), ("2001:db8:1::5", "2001:db8:2::9")] {
        let tuple = tuple(source, 4000, destination, 80, tcp::PROTOCOL);
        let plain = network
            .send(&chain.ingress, &packet(&tuple, tcp::ACK, 0))
            .remove(0)
            .packet;
        let parsed = IpPacket::parse(&plain).unwrap();
        assert_eq!(
            plain[parsed.transport_offset + 22..parsed.transport_offset + 24],
            [0x05, 0xb4]
        );
    }
    assert_eq!(network.event("mss_clamped"), 4);
}

/// Also where no edge is: the site of the VNF is nobody else's.
#[test]
fn segment_sizes_are_lowered_to_what_a_vnf_takes() {
    use contracts::forwarder::AttachmentKind::{Gateway, LabelAwareMpls, Transparent};
    for kind in [Gateway, Transparent, LabelAwareMpls] {
        let mut vnf = instance(1, "a", 100);
        vnf.kind = kind;
        let mut network = Network::new(Plan::new(3, chain(0, vec![vec![vnf]], 2)));
        let mut set = network.plan.rules(1);
        set.attachments[0].mtu = 1300;
        network.apply_at(1, &set);
        lowers_segment_sizes(&mut network, 1300, &format!("{kind:?}"));
        // Over IPv6 the edges lower it to 1440 already.
        assert_eq!(network.event("mss_clamped"), 6);
    }
}

/// Sees that SYNs of both directions and families offer segments that fit in IP packets of a size.
fn lowers_segment_sizes(network: &mut Network, inner: usize, place: &str) {
    let chain = network.plan.chains[0].clone();
    for (source, destination, headers) in [
        ("10.1.0.5", "10.2.0.9", 40),
        ("2001:db8:1::5", "2001:db8:2::9", 60),
    ] {
        let tuple = tuple(source, 4000, destination, 80, tcp::PROTOCOL);
        for (edge, packet_tuple, flags) in [
            (&chain.ingress, tuple, tcp::SYN),
            (&chain.egress, tuple.reversed(), tcp::SYN | tcp::ACK),
        ] {
            let sent = packet(&packet_tuple, flags, 0);
            let arrived = network.send(edge, &sent).remove(0).packet;
            let parsed = IpPacket::parse(&arrived).unwrap();
            let option = &arrived[parsed.transport_offset + 20..parsed.transport_offset + 24];
            let size = (inner - headers) as u16;
            let expected = [2, 4, (size >> 8) as u8, size as u8];
            assert_eq!(option, expected, "{place} {packet_tuple}");
            assert!(transport_checksum_is_right(&arrived));
        }
    }
}

fn transport_checksum_is_right(packet: &[u8]) -> bool {
    let parsed = IpPacket::parse(packet).unwrap();
    let addresses = if parsed.is_v6() { 8..40 } else { 12..20 };
    let transport = &packet[parsed.transport_offset..parsed.length];
    let pseudo =
        wire::checksum::pseudo_header(&packet[addresses], parsed.tuple.protocol, transport.len());
    wire::checksum::fold(pseudo + wire::checksum::sum(transport)) == 0xffff
}

#[test]
fn what_does_not_fit_and_may_not_be_cut_is_answered_with_the_size_that_fits() {
    let mut network = network(1500);
    let chain = network.plan.chains[0].clone();
    for (source, destination) in [("10.1.0.5", "10.2.0.9"), ("2001:db8:1::5", "2001:db8:2::9")] {
        let tuple = tuple(source, 4000, destination, 80, 17);
        let v6 = source.contains(':');
        let headers = if v6 { 48 } else { 28 };
        for (payload, fits) in [(INNER - headers, true), (INNER - headers + 1, false)] {
            let mut sent = packet(&tuple, 0, payload);
            if !v6 {
                sent[6] = 0x40;
                ipv4::set_checksum(&mut sent[..20]);
            }
            let arrived = network.send(&chain.ingress, &sent);
            assert_eq!(arrived.len(), 1);
            if fits {
                assert_eq!(arrived[0].edge, "edge-out");
                continue;
            }
            assert_eq!(arrived[0].edge, "edge-in");
            let answer = IpPacket::parse(&arrived[0].packet).unwrap();
            assert_eq!(fitting_size(&arrived[0].packet), Some(INNER as u32));
            assert_eq!(answer.tuple.destination(), tuple.source());
            assert_eq!(answer.quoted, Some(tuple));
        }
    }
    assert_eq!(network.drops(), BTreeMap::from([("mtu_exceeded", 2)]));
}

#[test]
fn what_may_be_cut_arrives_in_fragments_that_hold_it_all() {
    let mut network = network(1500);
    let chain = network.plan.chains[0].clone();
    let tuple = tuple("10.1.0.5", 4000, "10.2.0.9", 80, 17);
    let sent = packet(&tuple, 0, 1472);
    let arrived = network.send(&chain.ingress, &sent);
    assert_eq!(arrived.len(), 2, "{:?}", network.drops());
    let mut payload = Vec::new();
    for delivery in &arrived {
        let header = ipv4::Header::parse(&delivery.packet).unwrap();
        assert!(header.total_length <= INNER);
        assert_eq!(header.fragment_offset, payload.len());
        payload.extend_from_slice(&delivery.packet[header.header_length..header.total_length]);
    }
    assert_eq!(payload, sent[20..]);
    network.assert_no_drops();
}

#[test]
fn a_packet_at_its_last_hop_is_answered() {
    let mut network = network(1600);
    let chain = network.plan.chains[0].clone();
    for (source, destination, own) in [
        ("10.1.0.5", "10.2.0.9", "10.1.0.1"),
        ("2001:db8:1::5", "2001:db8:2::9", "2001:db8:1::1"),
    ] {
        let tuple = tuple(source, 4000, destination, 80, 17);
        let mut sent = packet(&tuple, 0, 10);
        if source.contains(':') {
            sent[7] = 1;
        } else {
            sent[8] = 1;
            ipv4::set_checksum(&mut sent[..20]);
        }
        let arrived = network.send(&chain.ingress, &sent);
        let answer = IpPacket::parse(&arrived[0].packet).unwrap();
        assert_eq!(answer.quoted, Some(tuple));
        assert_eq!(answer.tuple.source().to_string(), own);
    }
    assert_eq!(network.drops(), BTreeMap::from([("ttl_exceeded", 2)]));
}

#[test]
fn gateways_answer_echoes_and_questions_for_their_addresses() {
    let mut network = network(1600);
    let chain = network.plan.chains[0].clone();
    for (source, gateway, kind) in [
        ("10.1.0.5", "10.1.0.1", 8),
        ("2001:db8:1::5", "2001:db8:1::1", 128),
    ] {
        let protocol = if kind == 8 { 1 } else { 58 };
        let mut message = vec![kind, 0, 0, 0, 0, 9, 0, 1, 1, 2, 3];
        let tuple = tuple(source, 0, gateway, 0, protocol);
        let pseudo = match tuple.addresses {
            wire::Addresses::V4 { .. } => 0,
            wire::Addresses::V6 {
                source,
                destination,
            } => wire::checksum::pseudo_header(&[source, destination].concat(), 58, message.len()),
        };
        let sum = wire::checksum::finish(pseudo + wire::checksum::sum(&message));
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let arrived = network.send(&chain.ingress, &crate::frames::ip(&tuple, message));
        assert_eq!(arrived.len(), 1, "{:?}", network.drops());
        let answer = IpPacket::parse(&arrived[0].packet).unwrap();
        assert_eq!(
            (answer.tuple.source(), answer.tuple.destination()),
            (tuple.destination(), tuple.source())
        );
        let reply = icmp::Message::parse(
            answer.is_v6(),
            &arrived[0].packet[answer.transport_offset..],
        )
        .unwrap();
        assert_eq!(reply.kind, if kind == 8 { 0 } else { 129 });
    }
    assert_eq!(network.event("echo_answered"), 2);
}

#[test]
fn labels_from_an_edge_are_dropped() {
    let mut network = network(1600);
    for ether_type in [ethernet::MPLS, ethernet::MPLS_UPSTREAM, ethernet::NSH] {
        let mut labelled = frame(port_mac(0, "edge-in"), HOST_MAC, 0, &[0x45; 40]);
        labelled[12..14].copy_from_slice(&ether_type.to_be_bytes());
        assert!(network.inject(0, "edge-in", labelled).is_empty());
    }
    assert_eq!(network.drops(), BTreeMap::from([("edge_labelled", 3)]));
}

#[test]
fn a_packet_that_has_passed_too_many_forwarders_is_dropped() {
    let mut network = network(1600);
    let chain = network.plan.chains[0].clone();
    let tuple = tuple("10.1.0.5", 4000, "10.2.0.9", 80, 17);
    network.send(&chain.ingress, &packet(&tuple, 0, 10));
    let tunnelled = network.tunnelled.pop().unwrap();
    // Ethernet, IPv4, UDP, VXLAN, Ethernet; the loop guard is the TTL of the first label.
    let guard_at = 14 + 20 + 8 + 8 + 14 + 3;
    assert_eq!(tunnelled[guard_at], 64);
    for guard in [0, 1] {
        let mut looped = tunnelled.clone();
        looped[guard_at] = guard;
        assert!(network.inject(1, "wan", looped).is_empty());
    }
    assert_eq!(network.drops(), BTreeMap::from([("loop_guard", 2)]));
}

#[test]
fn packets_wait_for_a_neighbour_and_are_given_up_when_it_stays_silent() {
    let mut network = network(1600);
    let chain = network.plan.chains[0].clone();
    network.silent = true;
    let sent = packet(&tuple("10.1.0.5", 1, "10.2.0.9", 2, 17), 0, 1);
    for _ in 0..40 {
        assert!(network.send(&chain.ingress, &sent).is_empty());
    }
    assert_eq!(network.drops(), BTreeMap::from([("neighbour_crowded", 8)]));
    for _ in 0..5 {
        network.tick();
    }
    assert_eq!(
        network.drops(),
        BTreeMap::from([("neighbour_crowded", 8), ("neighbour_unresolved", 32)])
    );
    network.silent = false;
    assert_eq!(network.send(&chain.ingress, &sent).len(), 1);
}

#[test]
fn what_no_neighbour_leads_to_is_dropped() {
    let mut network = network(1600);
    let chain = network.plan.chains[0].clone();
    // Nobody has the addresses of network 9, and there is no router.
    let nowhere = tuple("10.1.0.5", 1, "10.9.0.1", 2, 17);
    assert!(
        network
            .send(&chain.ingress, &packet(&nowhere, 0, 1))
            .is_empty()
    );
    assert_eq!(network.drops(), BTreeMap::from([("edge_no_next_hop", 1)]));
}
