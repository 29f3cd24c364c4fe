//! Conformity, symmetric return and separation.

use crate::frames::{packet, rewrite, tuple, unreachable};
use crate::network::{Network, names};
use crate::plan::{Plan, chain, edge, instance};
use contracts::forwarder::AttachmentKind;
use std::collections::HashMap;
use wire::{IpPacket, tcp, udp};

fn both_families() -> [wire::FiveTuple; 2] {
    [
        tuple("10.1.0.5", 4000, "192.0.2.9", 80, tcp::PROTOCOL),
        tuple("2001:db8:1::5", 4000, "2001:db8:ffff::9", 80, tcp::PROTOCOL),
    ]
    .map(|tuple| match tuple.addresses {
        // The simulated networks are on link only; the internet is network 2.
        wire::Addresses::V4 { .. } => {
            crate::frames::tuple("10.1.0.5", 4000, "10.2.0.9", 80, tcp::PROTOCOL)
        }
        wire::Addresses::V6 { .. } => {
            crate::frames::tuple("2001:db8:1::5", 4000, "2001:db8:2::9", 80, tcp::PROTOCOL)
        }
    })
}

#[test]
fn a_chain_that_returns_to_a_site_visits_every_vnf_in_order_both_ways() {
    let vnfs = vec![
        vec![instance(0, "a", 100)],
        vec![instance(1, "b", 100)],
        vec![instance(0, "c", 100)],
    ];
    let mut network = Network::new(Plan::new(3, chain(0, vnfs, 2)));
    let (ingress, egress) = (
        network.plan.chains[0].ingress.clone(),
        network.plan.chains[0].egress.clone(),
    );
    for tuple in both_families() {
        for _ in 0..2 {
            let there = network.send(&ingress, &packet(&tuple, tcp::SYN, 100));
            assert_eq!(there.len(), 1);
            assert_eq!(
                (names(&there[0].visits), there[0].edge.as_str()),
                (vec!["a", "b", "c"], "edge-out")
            );
            let parsed = IpPacket::parse(&there[0].packet).unwrap();
            assert_eq!(
                (parsed.tuple, parsed.ttl),
                (tuple, 63),
                "the TTL falls by one"
            );
            let back = network.send(
                &egress,
                &packet(&tuple.reversed(), tcp::SYN | tcp::ACK, 100),
            );
            assert_eq!(
                (names(&back[0].visits), back[0].edge.as_str()),
                (vec!["c", "b", "a"], "edge-in")
            );
        }
    }
    network.assert_no_drops();
}

#[test]
fn a_chain_without_vnfs_joins_its_edges() {
    let mut network = Network::new(Plan::new(2, chain(0, Vec::new(), 1)));
    let chain = network.plan.chains[0].clone();
    let tuple = both_families()[0];
    assert_eq!(
        network.send(&chain.ingress, &packet(&tuple, tcp::SYN, 0))[0].edge,
        "edge-out"
    );
    assert_eq!(
        network.send(&chain.egress, &packet(&tuple.reversed(), tcp::ACK, 0))[0].edge,
        "edge-in"
    );
    network.assert_no_drops();
}

#[test]
fn transparent_instances_pass_frames_through() {
    let mut bump = instance(1, "bump", 100);
    bump.kind = AttachmentKind::Transparent;
    let vnfs = vec![vec![bump], vec![instance(1, "gate", 100)]];
    let mut network = Network::new(Plan::new(2, chain(0, vnfs, 1)));
    let chain = network.plan.chains[0].clone();
    for tuple in both_families() {
        let there = network.send(&chain.ingress, &packet(&tuple, tcp::SYN, 0));
        assert_eq!(names(&there[0].visits), ["bump", "gate"]);
        let back = network.send(&chain.egress, &packet(&tuple.reversed(), tcp::ACK, 0));
        assert_eq!(names(&back[0].visits), ["gate", "bump"]);
    }
    network.assert_no_drops();
}

/// A NAT that gives every connection a port of its own on one address.
fn masquerade(network: &mut Network, name: &str, address: [u8; 4]) {
    let mut ports: HashMap<u16, ([u8; 4], u16)> = HashMap::new();
    network.behaviours.insert(
        name.to_string(),
        Box::new(move |packet, forward| {
            if forward {
                let source: [u8; 4] = packet[12..16].try_into().unwrap();
                let port = u16::from_be_bytes([packet[20], packet[21]]);
                let known = ports
                    .iter()
                    .find(|(_, from)| **from == (source, port))
                    .map(|(port, _)| *port);
                let mapped = known.unwrap_or(20_000 + ports.len() as u16);
                ports.insert(mapped, (source, port));
                rewrite(packet, true, address, mapped);
                return true;
            }
            let port = u16::from_be_bytes([packet[22], packet[23]]);
            match ports.get(&port) {
                Some(&(to, port)) => {
                    rewrite(packet, false, to, port);
                    true
                }
                None => false,
            }
        }),
    );
}

#[test]
fn answers_to_rewritten_connections_return_through_the_instance_that_rewrote_them() {
    let vnfs = vec![
        vec![instance(1, "firewall", 100)],
        vec![
            instance(2, "nat-a", 100),
            instance(2, "nat-b", 100),
            instance(1, "nat-c", 100),
        ],
    ];
    let mut network = Network::new(Plan::new(3, chain(0, vnfs, 2)));
    masquerade(&mut network, "nat-a", [10, 2, 0, 101]);
    masquerade(&mut network, "nat-b", [10, 2, 0, 102]);
    masquerade(&mut network, "nat-c", [10, 2, 0, 103]);
    let chain = network.plan.chains[0].clone();
    let mut used = std::collections::BTreeMap::new();
    for host in 1..=200u16 {
        let from = tuple(
            &format!("10.1.0.{}", host % 250),
            1000 + host,
            "10.2.0.9",
            80,
            udp::PROTOCOL,
        );
        let there = network.send(&chain.ingress, &packet(&from, 0, 40));
        let visited = names(&there[0].visits)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>();
        *used.entry(visited[1].clone()).or_insert(0) += 1;
        let outside = IpPacket::parse(&there[0].packet).unwrap().tuple;
        assert_ne!(outside, from);
        let back = network.send(&chain.egress, &packet(&outside.reversed(), 0, 40));
        assert_eq!(back.len(), 1, "{visited:?} {from}: {:?}", network.drops());
        assert_eq!(names(&back[0].visits), [visited[1].as_str(), "firewall"]);
        assert_eq!(
            IpPacket::parse(&back[0].packet).unwrap().tuple,
            from.reversed()
        );
    }
    assert_eq!(used.len(), 3, "{used:?}");
    network.assert_no_drops();
}

#[test]
fn two_customers_with_the_same_addresses_share_an_instance_and_stay_apart() {
    let mut first = chain(0, vec![vec![instance(1, "shared", 100)]], 1);
    let mut second = first.clone();
    second.customer = "globex".into();
    (second.label, second.egress_label) = (2000, 501);
    (first.ingress.vlan, second.ingress.vlan) = (10, 20);
    second.egress = edge(1, "out2", 2);
    let mut plan = Plan::new(2, first);
    plan.chains.push(second);
    let mut network = Network::new(plan);
    let tuple = both_families()[0];
    for (number, chain) in network.plan.chains.clone().iter().enumerate() {
        let there = network.send(&chain.ingress, &packet(&tuple, tcp::SYN, 0));
        assert_eq!(there[0].edge, ["edge-out", "edge-out2"][number]);
        assert_eq!(
            (there[0].visits.len(), there[0].visits[0].chain),
            (1, number)
        );
        let back = network.send(&chain.egress, &packet(&tuple.reversed(), tcp::ACK, 0));
        assert_eq!(u32::from(back[0].vlan), chain.ingress.vlan);
        assert_eq!(back[0].visits[0].chain, number);
    }
    network.assert_no_drops();
}

#[test]
fn errors_follow_the_connection_they_quote() {
    let vnfs = vec![vec![
        instance(1, "a", 100),
        instance(1, "b", 100),
        instance(0, "c", 100),
    ]];
    let mut network = Network::new(Plan::new(2, chain(0, vnfs, 1)));
    let chain = network.plan.chains[0].clone();
    for port in 1..50 {
        for (source, destination) in [("10.1.0.5", "10.2.0.9"), ("2001:db8:1::5", "2001:db8:2::9")]
        {
            let there = network.send(
                &chain.ingress,
                &packet(&tuple(source, port, destination, 53, 17), 0, 600),
            );
            let back = network.send(&chain.egress, &unreachable(&there[0].packet));
            assert_eq!(back.len(), 1, "{:?}", network.drops());
            assert_eq!(names(&back[0].visits), names(&there[0].visits));
        }
    }
    network.assert_no_drops();
}

#[test]
fn later_fragments_follow_the_first() {
    let vnfs = vec![vec![
        instance(1, "a", 100),
        instance(1, "b", 100),
        instance(0, "c", 100),
    ]];
    let mut network = Network::new(Plan::new(2, chain(0, vnfs, 1)));
    let chain = network.plan.chains[0].clone();
    for port in 1..50 {
        let mut whole = packet(&tuple("10.1.0.5", port, "10.2.0.9", 53, 17), 0, 2000);
        whole[4..6].copy_from_slice(&port.to_be_bytes());
        wire::ipv4::set_checksum(&mut whole[..20]);
        let mut seen = Vec::new();
        for (offset, more) in [(0, true), (1000, true), (2000, false)] {
            let mut fragment = whole[..20].to_vec();
            fragment.extend_from_slice(&whole[20 + offset..(20 + offset + 1000).min(whole.len())]);
            let length = fragment.len() as u16;
            fragment[2..4].copy_from_slice(&length.to_be_bytes());
            let word = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
            fragment[6..8].copy_from_slice(&word.to_be_bytes());
            wire::ipv4::set_checksum(&mut fragment[..20]);
            let there = network.send(&chain.ingress, &fragment);
            assert_eq!(there.len(), 1, "{:?}", network.drops());
            seen.push(there[0].visits[0].instance.clone());
        }
        assert!(seen.iter().all(|name| *name == seen[0]), "{seen:?}");
    }
    network.assert_no_drops();
}
