//! Fragments and ICMP errors follow their connection, whatever they show of it.

use crate::frames::{frame, ip, packet, tuple, unreachable};
use crate::network::{Delivery, HOST_MAC, Network, Service, names, port_mac};
use crate::plan::{Chain, Plan, chain, edge, edge_port, instance};
use std::collections::BTreeMap;
use wire::{Addresses, FiveTuple, IpPacket, ipv4, ipv6};

/// Many instances, so that nothing goes the right way by chance.
fn plan() -> Plan {
    let vnfs = (0..8).map(|number| instance(1, &format!("i{number}"), 100));
    Plan::new(2, chain(0, vec![vnfs.collect()], 1))
}

fn connection_v4(number: u16) -> FiveTuple {
    tuple("10.1.0.5", 4000 + number, "10.2.0.9", 80, 17)
}

fn connection_v6(number: u16) -> FiveTuple {
    tuple("2001:db8:1::5", 4000 + number, "2001:db8:2::9", 80, 17)
}

/// The part of a datagram over IPv6 from `range` on, behind a fragment header, whose first part has destination options first.
fn fragment_v6(about: &FiveTuple, identification: u32, first: bool) -> Vec<u8> {
    let whole = packet(about, 0, 32);
    let options = [17u8, 0, 1, 4, 0, 0, 0, 0];
    let datagram = [&options[..], &whole[40..]].concat();
    let (from, to) = if first { (0, 24) } else { (24, datagram.len()) };
    let mut header = vec![60, 0, 0, from as u8 | u8::from(first)];
    header.extend(identification.to_be_bytes());
    let part = [&header[..], &datagram[from..to]].concat();
    let Addresses::V6 {
        source,
        destination,
    } = about.addresses
    else {
        panic!("{about} is not over IPv6");
    };
    let fixed = ipv6::write(source, destination, 44, 64, part.len());
    [&fixed[..], &part].concat()
}

/// Both parts of a datagram over IPv4.
fn fragment_v4(about: &FiveTuple, identification: u16, first: bool) -> Vec<u8> {
    let whole = packet(about, 0, 32);
    let (from, to) = if first { (20, 36) } else { (36, whole.len()) };
    let mut part = whole[..20].to_vec();
    part.extend_from_slice(&whole[from..to]);
    let length = part.len() as u16;
    part[2..4].copy_from_slice(&length.to_be_bytes());
    part[4..6].copy_from_slice(&identification.to_be_bytes());
    part[6..8].copy_from_slice(if first { &[0x20, 0] } else { &[0, 2] });
    ipv4::set_checksum(&mut part[..20]);
    part
}

fn only(mut left: Vec<Delivery>, network: &Network) -> Delivery {
    assert_eq!(left.len(), 1, "{:?}", network.drops());
    left.remove(0)
}

/// Sends a whole packet of a connection; which instance it passed.
fn passed(network: &mut Network, chain: &Chain, about: &FiveTuple) -> String {
    let left = network.send(&chain.ingress, &packet(about, 0, 10));
    names(&only(left, network).visits)[0].to_string()
}

#[test]
fn fragments_behind_extension_headers_follow_the_first() {
    for workers in [1, 3] {
        let mut network = Network::with_workers(plan(), workers, 7);
        let chain = network.plan.chains[0].clone();
        for number in 0..40 {
            let about = connection_v6(number);
            let instance = passed(&mut network, &chain, &about);
            for first in [true, false] {
                let part = fragment_v6(&about, 900 + u32::from(number), first);
                let left = network.send(&chain.ingress, &part);
                let left = only(left, &network);
                assert_eq!(names(&left.visits), [&instance], "{number}, first {first}");
            }
        }
        network.assert_no_drops();
    }
}

#[test]
fn an_error_that_quotes_a_later_fragment_follows_its_connection() {
    for workers in [1, 2, 3, 5] {
        errors_that_quote_later_fragments(workers);
    }
}

fn errors_that_quote_later_fragments(workers: usize) {
    let mut network = Network::with_workers(plan(), workers, 7);
    let chain = network.plan.chains[0].clone();
    for number in 0..40 {
        for (about, v6) in [
            (connection_v4(number), false),
            (connection_v6(number), true),
        ] {
            let instance = passed(&mut network, &chain, &about);
            let part = |first| match v6 {
                true => fragment_v6(&about, 900 + u32::from(number), first),
                false => fragment_v4(&about, 900 + number, first),
            };
            for first in [true, false] {
                let left = network.send(&chain.ingress, &part(first));
                only(left, &network);
            }
            let quoted = unreachable_about_part(&about, &part(false));
            let left = network.send(&chain.egress, &quoted);
            let left = only(left, &network);
            assert_eq!(
                names(&left.visits),
                [&instance],
                "{about}, {workers} workers"
            );
            assert_eq!(left.edge, edge_port(&chain.ingress));
        }
    }
    network.assert_no_drops();
    assert_eq!(network.event("flow_new"), 80 * 3, "errors open nothing");
    let unknown = fragment_v4(&connection_v4(1), 7, false);
    let error = unreachable_about_part(&connection_v4(1), &unknown);
    assert!(network.send(&chain.egress, &error).is_empty());
    assert_eq!(
        network.drops(),
        BTreeMap::from([("fragment_without_first", 1)])
    );
}

#[test]
fn an_error_leaves_the_entry_of_a_connection_whose_path_is_gone() {
    let mut network = Network::new(plan());
    let chain = network.plan.chains[0].clone();
    let about = connection_v4(1);
    passed(&mut network, &chain, &about);
    let site = chain.ingress.site;
    // Another chain has the edges now.
    network.change(|plan| plan.chains[0].label += 2);
    let entries = |network: &mut Network| network.nodes[site].flows(network.now).0.len();
    let before = entries(&mut network);
    assert!(before > 0, "the entries are still there");
    let error = unreachable(&packet(&about.reversed(), 0, 60));
    network.send(&chain.ingress, &error);
    assert_eq!(entries(&mut network), before, "{:?}", network.drops());
}

/// [`unreachable`] about a later fragment, which shows no protocol.
fn unreachable_about_part(about: &FiveTuple, part: &[u8]) -> Vec<u8> {
    let mut error = unreachable(&packet(about, 0, part.len()));
    let quote_at = IpPacket::parse(&error).unwrap().transport_offset + 8;
    error.truncate(quote_at);
    error.extend_from_slice(part);
    let transport = error.split_off(quote_at - 8);
    let protocol = if about.source().is_ipv6() { 58 } else { 1 };
    let header = FiveTuple {
        protocol,
        ..about.reversed()
    };
    ip(&header, transport)
}

#[test]
fn an_error_in_fragments_follows_the_connection_it_quotes() {
    for workers in [1, 3] {
        let mut network = Network::with_workers(plan(), workers, 3);
        let chain = network.plan.chains[0].clone();
        for number in 0..40 {
            let about = connection_v4(number);
            let instance = passed(&mut network, &chain, &about);
            let error = unreachable(&packet(&about, 0, 60));
            let (message, cut) = (error[20..].to_vec(), 48);
            for (at, bytes) in [(0, &message[..cut]), (cut, &message[cut..])] {
                let header = FiveTuple {
                    protocol: 1,
                    ..about.reversed()
                };
                let mut part = ip(&header, bytes.to_vec());
                part[4..6].copy_from_slice(&(300 + number).to_be_bytes());
                let offset = (at / 8) as u16 | if at == 0 { 0x2000 } else { 0 };
                part[6..8].copy_from_slice(&offset.to_be_bytes());
                ipv4::set_checksum(&mut part[..20]);
                let left = network.send(&chain.egress, &part);
                let left = only(left, &network);
                assert_eq!(names(&left.visits), [&instance], "{number} at {at}");
                assert_eq!(left.edge, edge_port(&chain.ingress));
            }
        }
        network.assert_no_drops();
        assert_eq!(network.event("flow_new"), 40 * 3, "errors open nothing");
    }
}

#[test]
fn a_flood_of_first_fragments_takes_nothing_from_another_customer() {
    let mut plan = plan();
    let mut other = plan.chains[0].clone();
    other.customer = "other".into();
    (other.label, other.egress_label) = (2000, 600);
    (other.ingress, other.egress) = (edge(0, "other-in", 3), edge(1, "other-out", 4));
    plan.chains.push(other.clone());
    let mut network = Network::new(plan);
    let flooding = network.plan.chains[0].clone();
    let about = tuple("10.3.0.5", 4000, "10.4.0.9", 80, 17);
    let left = network.send(&other.ingress, &fragment_v4(&about, 77, true));
    let instance = names(&only(left, &network).visits)[0].to_string();
    for number in 0..3_000 {
        let first = fragment_v4(&connection_v4(0), number, true);
        network.send(&flooding.ingress, &first);
    }
    let left = network.send(&other.ingress, &fragment_v4(&about, 77, false));
    assert_eq!(names(&only(left, &network).visits), [&instance]);
    network.tick();
    let forgotten = network.event("fragment_forgotten");
    assert!(forgotten > 3_000, "at each place of the flood: {forgotten}");
    network.assert_no_drops();
}

/// A network whose egress edge takes no more than `mtu` bytes, the VNF at one of the two sites.
fn narrow(vnf_site: usize, mtu: u32) -> Network {
    let vnfs = vec![vec![instance(vnf_site, "a", 100)]];
    let mut network = Network::new(Plan::new(2, chain(0, vnfs, 1)));
    let mut set = network.plan.rules(1);
    set.edges[0].mtu = mtu;
    network.apply_at(1, &set);
    network
}

#[test]
fn what_does_not_fit_a_far_edge_is_answered_with_the_size_that_fits() {
    for vnf_site in [0, 1] {
        let mut network = narrow(vnf_site, 1400);
        let chain = network.plan.chains[0].clone();
        for (about, own) in [
            (connection_v4(1), "10.2.0.1"),
            (connection_v6(1), "2001:db8:2::1"),
        ] {
            let headers = packet(&about, 0, 0).len();
            for (payload, fits) in [(1400 - headers, true), (1401 - headers, false)] {
                let mut sent = packet(&about, 0, payload);
                if about.source().is_ipv4() {
                    sent[6] = 0x40;
                    ipv4::set_checksum(&mut sent[..20]);
                }
                let left = network.send(&chain.ingress, &sent);
                let left = only(left, &network);
                if fits {
                    assert_eq!(left.edge, "edge-out");
                    continue;
                }
                assert_eq!(left.edge, "edge-in", "VNF at {vnf_site}, {about}");
                let answer = IpPacket::parse(&left.packet).unwrap();
                assert_eq!(crate::frames::fitting_size(&left.packet), Some(1400));
                assert_eq!(answer.tuple.source().to_string(), own);
                assert_eq!(answer.quoted, Some(about));
                assert_eq!(names(&left.visits), ["a", "a"], "there and back");
            }
        }
        assert_eq!(network.drops(), BTreeMap::from([("mtu_exceeded", 2)]));
        assert_eq!(network.event("icmp_error_sent"), 2);
    }
}

#[test]
fn errors_to_one_edge_are_limited_and_those_to_another_are_not() {
    for service in [Service::AtOnce, Service::Bursts] {
        let mut network = Network::new(plan());
        network.service = service;
        let chain = network.plan.chains[0].clone();
        let mut dying = packet(&connection_v4(1), 0, 10);
        dying[8] = 1;
        ipv4::set_checksum(&mut dying[..20]);
        let mut answered = 0;
        for _ in 0..250 {
            answered += network.send(&chain.ingress, &dying).len();
        }
        assert_eq!(answered, 100);
        assert_eq!(network.event("icmp_error_limited"), 150);
        let mut other = packet(&connection_v4(1).reversed(), 0, 10);
        other[8] = 1;
        ipv4::set_checksum(&mut other[..20]);
        assert_eq!(network.send(&chain.egress, &other).len(), 1);
        network.tick();
        assert_eq!(network.send(&chain.ingress, &dying).len(), 1);
        assert_eq!(network.drops(), BTreeMap::from([("ttl_exceeded", 252)]));
    }
}

#[test]
fn no_error_answers_an_error() {
    let mut network = Network::new(plan());
    let chain = network.plan.chains[0].clone();
    for about in [connection_v4(1), connection_v6(1)] {
        let mut error = unreachable(&packet(&about.reversed(), 0, 10));
        match about.source().is_ipv4() {
            true => {
                error[8] = 1;
                ipv4::set_checksum(&mut error[..20]);
            }
            false => error[7] = 1,
        }
        assert!(network.send(&chain.ingress, &error).is_empty());
    }
    assert_eq!(network.drops(), BTreeMap::from([("ttl_exceeded", 2)]));
    assert_eq!(network.event("icmp_error_sent"), 0);
}

#[test]
fn an_error_changes_nothing_of_the_connection_it_quotes() {
    let mut network = Network::new(Plan::new(3, chain(0, vec![vec![instance(1, "a", 100)]], 1)));
    let chain = network.plan.chains[0].clone();
    let about = connection_v4(1);
    passed(&mut network, &chain, &about);
    let is_tunnel = |frame: &&Vec<u8>| frame.len() > 100 && frame[29] == 1;
    let to_vnf = network.tunnelled.iter().find(is_tunnel).unwrap().clone();
    // An error of the same direction, about the answers, that another site sends.
    let error = unreachable(&packet(&about.reversed(), 0, 10));
    let mut forged = to_vnf[..72].to_vec();
    forged.extend_from_slice(&error);
    let total = (forged.len() - 14) as u16;
    forged[16..18].copy_from_slice(&total.to_be_bytes());
    forged[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    forged[29] = 3;
    ipv4::set_checksum(&mut forged[14..34]);
    let left = network.inject(1, "wan", forged);
    assert_eq!(only(left, &network).edge, "edge-out");
    assert_eq!(network.event("flow_hop_moved"), 0);
    let left = network.send(&chain.egress, &packet(&about.reversed(), 0, 10));
    assert_eq!(
        only(left, &network).edge,
        "edge-in",
        "answers go where they went"
    );
    network.assert_no_drops();
}

#[test]
fn what_an_edge_would_refuse_does_not_leave_by_one_either() {
    for (source, address) in [
        (true, [127, 0, 0, 1]),
        (true, [224, 0, 0, 1]),
        (true, [169, 254, 1, 1]),
        (true, [255, 255, 255, 255]),
        (false, [0, 1, 2, 3]),
        (false, [224, 0, 0, 9]),
        (false, [169, 254, 1, 1]),
    ] {
        let mut network =
            Network::new(Plan::new(2, chain(0, vec![vec![instance(1, "a", 100)]], 1)));
        let rewrite = move |packet: &mut Vec<u8>, _: bool| {
            crate::frames::rewrite(packet, source, address, 77);
            true
        };
        network.behaviours.insert("a".into(), Box::new(rewrite));
        let chain = network.plan.chains[0].clone();
        let left = network.send(&chain.ingress, &packet(&connection_v4(1), 0, 10));
        assert!(left.is_empty(), "{address:?}");
        assert_eq!(network.drops(), BTreeMap::from([("edge_martian", 1)]));
    }
    // Link-local, and a group.
    for start in [[0xfe, 0x80], [0xff, 0x02]] {
        let mut network =
            Network::new(Plan::new(2, chain(0, vec![vec![instance(1, "a", 100)]], 1)));
        let rewrite = move |packet: &mut Vec<u8>, _: bool| {
            packet[8..10].copy_from_slice(&start);
            true
        };
        network.behaviours.insert("a".into(), Box::new(rewrite));
        let chain = network.plan.chains[0].clone();
        let left = network.send(&chain.ingress, &packet(&connection_v6(1), 0, 10));
        assert!(left.is_empty(), "{start:x?}");
        assert_eq!(network.drops(), BTreeMap::from([("edge_martian", 1)]));
    }
}

#[test]
fn one_tag_names_a_vlan_and_a_priority_tag_names_none() {
    let mut plan = plan();
    plan.chains[0].egress.vlan = 7;
    let mut network = Network::new(plan);
    let sent = packet(&connection_v4(1), 0, 10);
    let mut priority = frame(port_mac(0, "edge-in"), HOST_MAC, 9, &sent);
    priority[14..16].copy_from_slice(&[0xe0, 0]);
    let left = network.inject(0, "edge-in", priority);
    assert_eq!(only(left, &network).vlan, 7);
    // The edge's VLAN, and another tag on either side of it.
    let answer = packet(&connection_v4(1).reversed(), 0, 10);
    let tagged = frame(port_mac(1, "edge-shared"), HOST_MAC, 7, &answer);
    for (at, tag) in [
        (12, [0x88, 0xa8, 0, 9]),
        (16, [0x81, 0, 0, 9]),
        (16, [0x81, 0, 0, 0]),
    ] {
        let mut nested = tagged[..at].to_vec();
        nested.extend(tag);
        nested.extend_from_slice(&tagged[at..]);
        assert!(network.inject(1, "edge-shared", nested).is_empty());
    }
    assert_eq!(network.drops(), BTreeMap::from([("vlan_nested", 3)]));
    assert_eq!(network.inject(1, "edge-shared", tagged).len(), 1);
}
