//! What RFC 8300, 7348, 3032 and 6936 ask of a node on the way, rather than of its codecs (`docs/conformance.md`).

use crate::frames::{packet, tuple};
use crate::network::{Network, Service};
use crate::plan::{Plan, chain, instance};
use contracts::forwarder::Encapsulation;
use forwarder::entropy::Entropy;
use std::collections::{BTreeMap, BTreeSet};
use wire::IpPacket;
use wire::steering::{self, Encoding};

/// Offsets in a frame over an IPv4 underlay: Ethernet, IPv4, UDP, VXLAN, Ethernet, two labels.
const SOURCE_AT: usize = 14 + 12;
const VNI_AT: usize = 14 + 20 + 8 + 4;
const LABELS_AT: usize = 14 + 20 + 8 + 8 + 14;
const LOOP_GUARD_AT: usize = LABELS_AT + 3;
const SERVICE_INDEX_AT: usize = LABELS_AT + 7;
/// Where the network service header begins in VXLAN-GPE.
const NSH_AT: usize = 14 + 20 + 8 + 8;

fn network() -> Network {
    network_of(Encapsulation::VxlanMpls)
}

fn network_of(encapsulation: Encapsulation) -> Network {
    let vnfs = vec![vec![instance(1, "a", 100)], vec![instance(0, "b", 100)]];
    let mut plan = Plan::new(2, chain(0, vnfs, 1));
    plan.encapsulations = vec![encapsulation];
    Network::new(plan)
}

/// The frames that a connection's first packet sends over the underlay, in order.
fn tunnelled(network: &mut Network) -> Vec<Vec<u8>> {
    let chain = network.plan.chains[0].clone();
    let connection = tuple("10.1.0.5", 4000, "10.2.0.9", 80, 17);
    assert_eq!(
        network
            .send(&chain.ingress, &packet(&connection, 0, 10))
            .len(),
        1
    );
    let frames = std::mem::take(&mut network.tunnelled);
    // Not the neighbours' questions and answers.
    frames
        .into_iter()
        .filter(|frame| frame.len() > SERVICE_INDEX_AT)
        .collect()
}

#[test]
fn the_service_index_falls_by_one_for_each_vnf_and_by_none_for_a_forwarder() {
    for (encapsulation, index_at) in [
        (Encapsulation::VxlanMpls, SERVICE_INDEX_AT),
        (Encapsulation::VxlanGpeNsh, NSH_AT + 7),
    ] {
        let mut network = network_of(encapsulation);
        let indices = |frames: &[Vec<u8>]| -> Vec<u8> {
            frames.iter().map(|frame| frame[index_at]).collect()
        };
        assert_eq!(indices(&tunnelled(&mut network)), [255, 254, 253]);
        let chain = network.plan.chains[0].clone();
        let answer = tuple("10.2.0.9", 80, "10.1.0.5", 4000, 17);
        assert_eq!(
            network.send(&chain.egress, &packet(&answer, 0, 10)).len(),
            1
        );
        assert_eq!(indices(&network.tunnelled), [255, 254, 253]);
    }
}

#[test]
fn the_source_port_is_the_inner_connection_s_entropy_both_ways() {
    for encapsulation in [
        Encapsulation::VxlanMpls,
        Encapsulation::VxlanGpeNsh,
        Encapsulation::MplsInUdp,
    ] {
        for service in [Service::AtOnce, Service::Bursts] {
            let mut network = network_of(encapsulation);
            network.service = service;
            let chain = network.plan.chains[0].clone();
            for number in 0..40u16 {
                let (client, server, protocol) = match number % 3 {
                    0 => ("10.1.0.5", "10.2.0.9", 6),
                    1 => ("10.1.0.5", "10.2.0.9", 17),
                    _ => ("2001:db8:1::5", "2001:db8:2::9", 6),
                };
                let connection = tuple(client, 4000 + number, server, 80, protocol);
                for _ in 0..2 {
                    network.send(&chain.ingress, &packet(&connection, 0x10, 10));
                    network.send(&chain.egress, &packet(&connection.reversed(), 0x10, 10));
                }
            }
            network.assert_no_drops();
            let rules = &network.nodes[0].rules;
            let entropy = Entropy::new(rules.selection_seed);
            let (mut ports, mut tunnels) = (BTreeSet::new(), 0);
            for frame in &network.tunnelled {
                let Ok(outer) = IpPacket::parse(&frame[14..]) else {
                    continue;
                };
                let encoding = Encoding::of(&outer).expect("nothing but tunnels");
                let taken = steering::decapsulate(encoding, &frame[14..], &outer, rules).unwrap();
                let inner = &frame[14 + taken.inner_offset..14 + taken.end];
                let inner = IpPacket::parse(inner).unwrap().tuple;
                assert_eq!(outer.tuple.source_port, entropy.port(&inner), "{inner}");
                assert!(outer.tuple.source_port >= 49_152);
                ports.insert(outer.tuple.source_port);
                tunnels += 1;
            }
            // Both directions of a connection have one.
            assert!((35..=40).contains(&ports.len()), "{}", ports.len());
            assert_eq!(tunnels, 40 * 4 * 3, "{encapsulation:?}, {service:?}");
        }
    }
}

#[test]
fn a_service_header_whose_ttl_ends_is_dropped_and_one_of_zero_counts_as_63() {
    let mut network = network_of(Encapsulation::VxlanGpeNsh);
    let frame = tunnelled(&mut network).remove(0);
    let with = |ttl: u8| {
        let mut frame = frame.clone();
        frame[NSH_AT] = frame[NSH_AT] & 0xf0 | ttl >> 2;
        frame[NSH_AT + 1] = frame[NSH_AT + 1] & 0x3f | ttl << 6;
        frame
    };
    assert_eq!(with(63), frame, "what is sent begins with 63");
    assert_eq!(network.inject(1, "wan", with(0)).len(), 1);
    assert_eq!(network.inject(1, "wan", with(2)).len(), 1);
    network.assert_no_drops();
    assert!(network.inject(1, "wan", with(1)).is_empty());
    assert_eq!(network.drops(), BTreeMap::from([("nsh_ttl_expired", 1)]));
    // Before the path is looked up: an identifier that nobody has is not the reason.
    let mut unknown = with(1);
    unknown[NSH_AT + 4] ^= 0xee;
    assert!(network.inject(1, "wan", unknown).is_empty());
    assert_eq!(network.drops(), BTreeMap::from([("nsh_ttl_expired", 2)]));
}

#[test]
fn a_path_or_an_index_that_leads_nowhere_is_dropped() {
    let mut network = network();
    let frame = tunnelled(&mut network).remove(0);
    for (at, change) in [
        (LABELS_AT + 1, 0x10),
        (SERVICE_INDEX_AT, 0x80),
        (SERVICE_INDEX_AT, 0x04),
    ] {
        let mut strange = frame.clone();
        strange[at] ^= change;
        assert!(network.inject(1, "wan", strange).is_empty(), "byte {at}");
    }
    let expected = BTreeMap::from([("path_unknown", 1), ("stage_unknown", 2)]);
    assert_eq!(network.drops(), expected);
}

#[test]
fn the_loop_guard_falls_before_anything_is_looked_up() {
    let mut network = network();
    let mut frame = tunnelled(&mut network).remove(0);
    // A path that nobody has: were it looked up first, it would be the reason.
    frame[LABELS_AT + 1] ^= 0x10;
    frame[LOOP_GUARD_AT] = 1;
    assert!(network.inject(1, "wan", frame).is_empty());
    assert_eq!(network.drops(), BTreeMap::from([("loop_guard", 1)]));
}

#[test]
fn another_network_identifier_is_not_delivered() {
    let mut network = network();
    let mut frame = tunnelled(&mut network).remove(0);
    frame[VNI_AT + 2] ^= 1;
    assert!(network.inject(1, "wan", frame).is_empty());
    assert_eq!(
        network.drops(),
        BTreeMap::from([("vxlan_unknown_network", 1)])
    );
}

#[test]
fn a_tunnel_packet_from_nobody_we_know_is_dropped() {
    let mut network = network();
    let mut frame = tunnelled(&mut network).remove(0);
    frame[SOURCE_AT + 3] = 77;
    wire::ipv4::set_checksum(&mut frame[14..34]);
    assert!(network.inject(1, "wan", frame).is_empty());
    assert_eq!(
        network.drops(),
        BTreeMap::from([("tunnel_unknown_peer", 1)])
    );
}

#[test]
fn over_ipv6_a_checksum_of_zero_counts_between_end_points_that_know_each_other() {
    let mut network = network();
    for site in 0..2 {
        let mut set = network.plan.rules(site);
        set.underlay.as_mut().unwrap().addresses = vec![format!("2001:db8:ff::{}/64", site + 1)];
        set.peers[0].address = format!("2001:db8:ff::{}", 2 - site);
        network.apply_at(site, &set);
    }
    let chain = network.plan.chains[0].clone();
    let connection = tuple("10.1.0.5", 4000, "10.2.0.9", 80, 17);
    assert_eq!(
        network
            .send(&chain.ingress, &packet(&connection, 0, 10))
            .len(),
        1
    );
    let udp_at = 14 + 40;
    let is_tunnel = |frame: &&Vec<u8>| frame[12..14] == [0x86, 0xdd] && frame[20] == 17;
    let mut frame = network.tunnelled.iter().find(is_tunnel).unwrap().clone();
    assert_eq!(frame[udp_at + 6..udp_at + 8], [0, 0]);
    network.assert_no_drops();
    frame[14 + 8 + 15] = 77;
    assert!(network.inject(1, "wan", frame).is_empty());
    assert_eq!(
        network.drops(),
        BTreeMap::from([("tunnel_unknown_peer", 1)])
    );
}

#[test]
fn a_packet_that_is_not_what_its_network_service_header_names_is_dropped() {
    use contracts::forwarder::AttachmentKind::LabelAwareNsh;
    let mut aware = instance(1, "aware", 100);
    aware.kind = LabelAwareNsh;
    let mut plan = Plan::new(2, chain(0, vec![vec![aware]], 1));
    plan.encapsulations = vec![Encapsulation::VxlanGpeNsh];
    let mut network = Network::new(plan);
    let chain = network.plan.chains[0].clone();
    for (source, destination, other) in [
        ("10.1.0.5", "10.2.0.9", 2),
        ("2001:db8:1::5", "2001:db8:2::9", 1),
    ] {
        let connection = tuple(source, 4000, destination, 80, 17);
        let sent = packet(&connection, 0, 10);
        assert_eq!(network.send(&chain.ingress, &sent).len(), 1);
        let mut returned = network.labelled.remove(0);
        assert_eq!(network.inject(1, "vnf-aware", returned.clone()).len(), 1);
        returned[14 + 3] = other;
        assert!(network.inject(1, "vnf-aware", returned).is_empty());
    }
    assert_eq!(network.drops(), BTreeMap::from([("inner_not_ip", 2)]));
}
