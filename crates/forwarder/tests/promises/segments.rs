//! Packets that their sender's system left to be cut: whole where the next port takes them, in right segments elsewhere.

use crate::frames::{fitting_size, frame, packet, tuple};
use crate::network::{HOST_MAC, Network, port_mac};
use crate::plan::{Plan, chain, edge_port, instance, interface_mac};
use forwarder::frame::{Frame, HeapFrame};
use forwarder::pipeline::Output;
use std::collections::BTreeMap;
use wire::segments::Segments;
use wire::{FiveTuple, IpPacket, ethernet, ipv4, tcp, udp};

const SIZE: u16 = 1_000;
/// Two segments and a short one.
const PAYLOAD: usize = 2_345;
/// One site has the edges; the VNF is there as well, or at the other.
const HERE: usize = 0;

fn network(vnf_site: usize) -> Network {
    Network::new(Plan::new(
        2,
        chain(HERE, vec![vec![instance(vnf_site, "a", 100)]], HERE),
    ))
}

fn connections() -> [FiveTuple; 4] {
    [
        tuple("10.1.0.5", 4000, "10.2.0.9", 80, tcp::PROTOCOL),
        tuple("2001:db8:1::5", 4000, "2001:db8:2::9", 80, tcp::PROTOCOL),
        tuple("10.1.0.5", 4000, "10.2.0.9", 80, udp::PROTOCOL),
        tuple("2001:db8:1::5", 4000, "2001:db8:2::9", 80, udp::PROTOCOL),
    ]
}

/// A packet of a connection, of several segments, as a system leaves it.
fn large(tuple: &FiveTuple) -> Vec<u8> {
    let mut packet = packet(tuple, tcp::ACK | tcp::FIN, PAYLOAD);
    let payload = packet.len() - PAYLOAD;
    for (number, byte) in packet[payload..].iter_mut().enumerate() {
        *byte = ((number * 31) >> 3) as u8;
    }
    let segments = Segments::of_packet(&packet, SIZE).unwrap();
    assert_eq!(segments.count(), 3);
    segments.begin_checksum(&mut packet);
    packet
}

fn segments_of(packet: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let segments = Segments::of_packet(packet, SIZE).unwrap();
    segments.cut(packet, 0, &mut Vec::new(), |segment| {
        all.push(segment.to_vec());
        true
    });
    all
}

/// Lets frames arrive at a port; what leaves, by port and with the size of its segments.
fn arrive(
    network: &mut Network,
    port: &str,
    mut frames: Vec<HeapFrame>,
) -> Vec<(String, Vec<u8>, u16)> {
    let (number, now) = (network.port(HERE, port), network.now);
    let node = &mut network.nodes[HERE];
    let (rules, mut out) = (&node.rules, Output::default());
    node.pipeline
        .process_burst(rules, number, &mut frames, now, &mut out);
    out.merge(|bytes| Some(HeapFrame::new(bytes)));
    let mut all = Vec::new();
    for (port, list) in out.ports.iter().enumerate() {
        for frame in list {
            let bytes = frame.data().to_vec();
            all.push((rules.ports[port].name.clone(), bytes, frame.segment_size()));
        }
    }
    all
}

/// A network in which packets of the connections have passed, so that neighbours are known.
fn warm(vnf_site: usize) -> Network {
    let mut network = network(vnf_site);
    let chain = network.plan.chains[0].clone();
    for tuple in connections() {
        network.send(&chain.ingress, &packet(&tuple, tcp::ACK, 5));
        network.send(&chain.egress, &packet(&tuple.reversed(), tcp::ACK, 5));
    }
    network.assert_no_drops();
    network
}

fn from_edge(network: &Network, packet: &[u8]) -> (String, Vec<u8>) {
    let port = edge_port(&network.plan.chains[0].ingress);
    let frame = frame(port_mac(HERE, &port), HOST_MAC, 0, packet);
    (port, frame)
}

#[test]
fn where_a_tunnel_begins_it_is_cut_and_each_segment_goes_as_if_it_had_come_alone() {
    for tuple in connections() {
        let packet = large(&tuple);
        let (mut one, mut other) = (warm(1), warm(1));
        let (port, whole) = from_edge(&one, &packet);
        let cut = arrive(&mut one, &port, vec![HeapFrame::of_segments(&whole, SIZE)]);
        let alone = segments_of(&packet)
            .iter()
            .map(|segment| HeapFrame::new(&from_edge(&other, segment).1))
            .collect();
        let expected = arrive(&mut other, &port, alone);
        assert_eq!(cut, expected, "{tuple:?}");
        assert_eq!(cut.len(), 3);
        assert!(
            cut.iter()
                .all(|(port, _, size)| port == "wan" && *size == 0)
        );
        assert_eq!(one.event("segmented"), 1);
        one.assert_no_drops();
    }
}

#[test]
fn without_a_tunnel_it_passes_whole() {
    for tuple in connections() {
        let packet = large(&tuple);
        let mut network = warm(HERE);
        let (port, whole) = from_edge(&network, &packet);
        let to_vnf = arrive(
            &mut network,
            &port,
            vec![HeapFrame::of_segments(&whole, SIZE)],
        );
        let [(port, bytes, SIZE)] = &to_vnf[..] else {
            panic!("{to_vnf:?}");
        };
        assert_eq!(port, "vnf-a");
        let header = ethernet::Header::parse(bytes).unwrap();
        let ip = IpPacket::parse(&bytes[header.length..]).unwrap();
        assert_eq!((ip.ttl, ip.length), (63, packet.len()));
        assert_eq!(
            bytes[header.length + ip.transport_offset..],
            packet[ip.transport_offset..]
        );

        // The VNF sends it on; it leaves at the other edge.
        let label = network.plan.chains[0].label;
        let source = interface_mac(label, 0, "a", true);
        let back = frame(port_mac(HERE, port), source, 0, &bytes[header.length..]);
        let port = port.clone();
        let left = arrive(
            &mut network,
            &port,
            vec![HeapFrame::of_segments(&back, SIZE)],
        );
        let [(port, bytes, SIZE)] = &left[..] else {
            panic!("{left:?}");
        };
        assert_eq!(*port, edge_port(&network.plan.chains[0].egress));
        assert_eq!(
            ethernet::Header::parse(bytes).unwrap().destination,
            HOST_MAC
        );
        assert_eq!(bytes[14..], back[14..]);
        network.assert_no_drops();
        assert_eq!(network.event("segmented"), 0);
    }
}

#[test]
fn segments_that_do_not_fit_are_answered_once_or_fragmented() {
    let mut network = warm(1);
    // What fits is less than a segment.
    network.change(|plan| plan.wan_mtu = 900);
    for (tuple, dont_fragment) in connections().into_iter().zip([true, true, false, true]) {
        let mut packet = large(&tuple);
        if !tuple.source().is_ipv6() {
            packet[6] = if dont_fragment { 0x40 } else { 0 };
            ipv4::set_checksum(&mut packet[..20]);
        }
        let before = network.drops();
        let (port, whole) = from_edge(&network, &packet);
        let left = arrive(
            &mut network,
            &port,
            vec![HeapFrame::of_segments(&whole, SIZE)],
        );
        if !dont_fragment {
            assert!(left.iter().all(|(port, ..)| port == "wan"), "{left:?}");
            assert_eq!(left.len(), 5, "two fragments, two, and one that fits");
            assert_eq!(network.drops(), before);
            continue;
        }
        let [(to, answer, 0)] = &left[..] else {
            panic!("{left:?}");
        };
        assert_eq!(*to, port);
        let size = fitting_size(&answer[14..]).unwrap();
        assert!(size < 900 && size > 800, "{size}");
        assert_eq!(IpPacket::parse(&answer[14..]).unwrap().quoted, Some(tuple));
    }
    assert_eq!(network.drops(), BTreeMap::from([("mtu_exceeded", 3)]));
}

#[test]
fn a_size_that_makes_no_sense_is_dropped_by_name() {
    let mut network = warm(1);
    let packet = large(&connections()[0]);
    let (port, whole) = from_edge(&network, &packet);
    let left = arrive(&mut network, &port, vec![HeapFrame::of_segments(&whole, 1)]);
    assert_eq!(left, []);
    assert_eq!(network.drops(), BTreeMap::from([("offload_unknown", 1)]));
}

#[test]
fn each_segment_that_finds_no_place_to_wait_is_one_drop() {
    for tuple in connections() {
        let mut network = network(1);
        let (port, whole) = from_edge(&network, &large(&tuple));
        for _ in 0..12 {
            arrive(
                &mut network,
                &port,
                vec![HeapFrame::of_segments(&whole, SIZE)],
            );
        }
        // Of 36 segments to a peer whose address nobody knows yet, 32 wait.
        assert_eq!(network.drops(), BTreeMap::from([("neighbour_crowded", 4)]));
        assert_eq!(network.event("segmented"), 12);
    }
}
