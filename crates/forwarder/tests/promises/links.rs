//! What a forwarder takes off its links: a port shows it every frame, as a switch does that floods or copies them.

use crate::frames::{frame, packet, tuple};
use crate::network::{HOST_MAC, Network, Service, names, port_mac};
use crate::plan::{Plan, chain, instance, interface_mac, interface_vlan};
use contracts::forwarder::AttachmentKind;
use forwarder::frame::HeapFrame;
use forwarder::pipeline::Output;
use std::collections::BTreeMap;
use wire::arp::{Arp, Operation};
use wire::{MacAddress, ethernet, icmp, ipv4, neighbour_discovery};

/// Another host, or another router, of the same link.
const OTHER: MacAddress = MacAddress([4, 0, 0, 0, 0, 2]);

#[test]
fn frames_between_other_hosts_are_left_alone() {
    for service in [Service::AtOnce, Service::Bursts] {
        let mut plan = Plan::new(2, chain(0, vec![vec![instance(1, "a", 100)]], 1));
        plan.chains[0].egress.vlan = 7;
        let mut network = Network::new(plan);
        network.service = service;
        let chain = network.plan.chains[0].clone();
        let vnf = interface_mac(chain.label, 0, "a", true);
        for (client, server) in [("10.1.0.5", "10.2.0.9"), ("2001:db8:1::5", "2001:db8:2::9")] {
            let about = tuple(client, 4000, server, 80, 17);
            let there = packet(&about, 0, 10);
            let back = packet(&about.reversed(), 0, 10);
            assert_eq!(network.send(&chain.ingress, &there).len(), 1);
            for (site, port, source, vlan, sent) in [
                (0, "edge-in", HOST_MAC, 0, &there),
                (1, "edge-shared", HOST_MAC, 7, &back),
                (1, "vnf-a", vnf, 0, &there),
            ] {
                let to = |destination| {
                    let frame = frame(destination, source, vlan, sent);
                    (site, port.to_string(), frame)
                };
                let own = port_mac(site, port);
                let left = network.inject_all(&[to(own), to(OTHER), to(own), to(OTHER)]);
                assert_eq!(left.len(), 2, "{service:?} {about} at {port}");
            }
        }
        assert_eq!(network.drops(), BTreeMap::from([("ethernet_not_ours", 12)]));
    }
}

#[test]
fn frames_between_other_hosts_are_not_answered() {
    let mut network = Network::new(Plan::new(2, chain(0, vec![vec![instance(1, "a", 100)]], 1)));
    let mut dying = packet(&tuple("10.1.0.5", 4000, "10.2.0.9", 80, 17), 0, 10);
    dying[8] = 1;
    ipv4::set_checksum(&mut dying[..20]);
    let request = Arp {
        operation: Operation::Request,
        sender_mac: HOST_MAC,
        sender: [10, 1, 0, 5],
        target_mac: OTHER,
        target: [10, 1, 0, 1],
    };
    let asking = |destination: MacAddress| {
        let mut bytes = frame(destination, HOST_MAC, 0, &[0x45]);
        bytes.truncate(12);
        bytes.extend(ethernet::ARP.to_be_bytes());
        bytes.extend(request.to_bytes());
        bytes
    };
    network.inject(0, "edge-in", frame(OTHER, HOST_MAC, 0, &dying));
    network.inject(0, "edge-in", asking(OTHER));
    assert_eq!(network.drops(), BTreeMap::from([("ethernet_not_ours", 2)]));
    for (event, count) in [("icmp_error_sent", 0), ("neighbour_answered", 0)] {
        assert_eq!(network.event(event), count, "{event}");
    }
    network.inject(0, "edge-in", asking(MacAddress::BROADCAST));
    assert_eq!(network.event("neighbour_answered"), 1);
}

/// What passes a bump in the wire may be for anybody behind it.
#[test]
fn a_transparent_vnf_may_change_whom_frames_are_for() {
    let mut bump = instance(1, "m", 100);
    bump.kind = AttachmentKind::Transparent;
    for service in [Service::AtOnce, Service::Bursts] {
        let mut network = Network::new(Plan::new(2, chain(0, vec![vec![bump.clone()]], 1)));
        network.service = service;
        let chain = network.plan.chains[0].clone();
        let sent = packet(&tuple("10.1.0.5", 4000, "10.2.0.9", 80, 17), 0, 10);
        let left = network.send(&chain.ingress, &sent);
        assert_eq!(names(&left[0].visits), ["m"]);
        let vlan = interface_vlan(chain.label, 0) as u16;
        let passed = frame(OTHER, HOST_MAC, vlan, &sent);
        assert_eq!(network.inject(1, "m-out", passed).len(), 1);
        network.assert_no_drops();
    }
}

/// A host asks whether it may have an address before it takes it (RFC 4862, section 5.4.3).
#[test]
fn a_host_that_would_take_the_gateways_address_is_told_that_it_is_taken() {
    let mut network = Network::new(Plan::new(2, chain(0, vec![vec![instance(1, "a", 100)]], 1)));
    for (target, answers) in [("2001:db8:1::1", 1), ("2001:db8:1::2", 0)] {
        let target: std::net::Ipv6Addr = target.parse().unwrap();
        let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
        message.extend(target.octets());
        let group = neighbour_discovery::solicited_node(target.octets());
        let asking = icmp::neighbour_packet([0; 16], group, message);
        let asking = frame(neighbour_discovery::group_mac(group), HOST_MAC, 0, &asking);
        let (port, mac) = (network.port(0, "edge-in"), port_mac(0, "edge-in"));
        let node = &mut network.nodes[0];
        let mut out = Output::default();
        let asking = HeapFrame::new(&asking);
        node.pipeline
            .process(&node.rules, port, asking, network.now, &mut out);
        let made: Vec<Vec<u8>> = out.made.into_iter().map(|made| made.bytes).collect();
        assert_eq!(made.len(), answers, "{target}");
        for answer in made {
            let all = neighbour_discovery::ALL_NODES;
            assert_eq!(answer[..6], neighbour_discovery::group_mac(all).0);
            let expected = neighbour_discovery::advertisement([0; 16], target.octets(), mac);
            assert_eq!(answer[14..], expected);
        }
    }
    network.assert_no_drops();
}
