//! A flow table without room: connections that have an entry keep their choice, all others get the hash's, packet by packet, the
//! same in both directions and at every forwarder, for as long as weights stand. Nothing is dropped, and everything is counted.

use crate::changes;
use crate::frames::{packet, tuple};
use crate::network::{Network, names, settings};
use crate::plan::{Chain, Plan, chain, instance};
use crate::routes::pairs;
use contracts::forwarder::AttachmentState;
use flow::FlowKey;
use forwarder::pipeline::{Pipeline, Settings};
use forwarder::rules::Rules;
use std::collections::HashMap;
use wire::{FiveTuple, tcp};

/// More than the smallest table has slots for.
const CONNECTIONS: u32 = 16_000;

fn connection(number: u32) -> FiveTuple {
    let host = format!("10.1.0.{}", 2 + number % 200);
    let port = 1024 + (number / 200) as u16;
    tuple(&host, port, "10.2.0.9", 443, tcp::PROTOCOL)
}

/// One customer whose VNF has three instances at one site, and forwarders whose tables are as small as can be.
fn network() -> Network {
    let vnfs = ["a", "b", "c"].map(|name| instance(1, name, 100)).to_vec();
    small(Plan::new(2, chain(0, vec![vnfs], 1)))
}

/// A network whose forwarders have the smallest tables.
fn small(plan: Plan) -> Network {
    let mut network = Network::new(plan);
    let small = Settings {
        memory_v4: 4096 * 64,
        memory_v6: 4096 * 192,
        ..settings()
    };
    for node in &mut network.nodes {
        let mut pipeline = Pipeline::new(&small, &node.rules).unwrap();
        let now = network.now;
        pipeline
            .rules_changed(&Rules::empty(), &node.rules, now)
            .unwrap();
        node.pipeline = pipeline;
    }
    network
}

/// Sends a packet of each direction; the instance, which must be the same both ways.
fn exchange(network: &mut Network, chain: &Chain, number: u32, flags: u8) -> String {
    let tuple = connection(number);
    let there = network.send(&chain.ingress, &packet(&tuple, flags, 10));
    assert_eq!(there.len(), 1, "{tuple}: {:?}", network.drops());
    let back = network.send(&chain.egress, &packet(&tuple.reversed(), tcp::ACK, 10));
    assert_eq!(back.len(), 1, "{tuple}: {:?}", network.drops());
    let (there, back) = (names(&there[0].visits), names(&back[0].visits));
    assert_eq!(there, back, "{tuple}");
    there[0].to_string()
}

/// Opens so many connections; which instance each has.
fn open(network: &mut Network, connections: std::ops::Range<u32>) -> HashMap<u32, String> {
    let chain = network.plan.chains[0].clone();
    connections
        .map(|number| (number, exchange(network, &chain, number, tcp::SYN)))
        .collect()
}

/// How many entries of a connection, of one for each of two stages, the forwarder at the VNF's site has.
fn remembered(network: &mut Network, number: u32) -> usize {
    let now = network.now;
    let (v4, _) = network.nodes[1].pipeline.flows(now);
    let about = connection(number);
    v4.iter()
        .filter(|entry| entry.key.source_port() == about.source_port)
        .filter(|entry| std::net::IpAddr::from(entry.key.source()) == about.source())
        .count()
}

#[test]
fn a_full_table_drops_nothing_and_both_directions_agree() {
    let mut network = network();
    let chain = network.plan.chains[0].clone();
    let opened = open(&mut network, 0..CONNECTIONS);
    let hashed = network.event("flow_table_full_hashed");
    assert!(hashed > 0, "the table is full");
    let limit: u64 = network
        .nodes
        .iter()
        .map(|node| node.pipeline.flow_entries_limit())
        .sum();
    let held: u64 = network
        .nodes
        .iter()
        .map(|node| node.pipeline.flow_entries())
        .sum();
    assert!(held <= limit && held * 10 > limit * 3, "{held} of {limit}");
    let new = network.event("flow_new");
    for (number, instance) in &opened {
        assert_eq!(&exchange(&mut network, &chain, *number, tcp::ACK), instance);
    }
    assert!(
        network.event("flow_table_full_hashed") > hashed,
        "packet by packet"
    );
    assert_eq!(network.event("flow_new"), new, "none of them is new again");
    network.assert_no_drops();
}

/// The ingress site sees its own instance and the other sites, the egress site its own and the others: they draw the same site.
#[test]
fn both_directions_agree_without_entries_where_a_vnf_is_at_several_sites() {
    let everywhere = [(0, "a", 100), (1, "b", 50), (1, "c", 100), (2, "d", 70)];
    let vnf = everywhere.map(|(site, name, weight)| instance(site, name, weight));
    let mut network = small(Plan::new(3, chain(0, vec![vnf.to_vec()], 2)));
    let opened = open(&mut network, 0..CONNECTIONS);
    assert!(network.event("flow_table_full_hashed") > u64::from(CONNECTIONS));
    for (_, name, weight) in everywhere {
        let share = opened.values().filter(|visited| *visited == name).count() as f64;
        let due = f64::from(CONNECTIONS * weight) / 320.0;
        assert!((share / due - 1.0).abs() < 0.05, "{name}: {share} of {due}");
    }
    network.assert_no_drops();
}

/// Two VNFs at several sites each, whose pairs have other shares than their sites would give.
#[test]
fn both_directions_agree_without_entries_where_routes_prefer_pairs_of_sites() {
    let mut network = small(pairs());
    let chain = network.plan.chains[0].clone();
    for number in 0..CONNECTIONS {
        changes::exchange(&mut network, &chain, &connection(number), tcp::SYN);
    }
    assert!(network.event("flow_table_full_hashed") > u64::from(CONNECTIONS));
    network.assert_no_drops();
}

#[test]
fn connections_with_an_entry_keep_their_choice_when_weights_change_and_others_get_the_hashs() {
    let mut network = network();
    let chain = network.plan.chains[0].clone();
    let opened = open(&mut network, 0..CONNECTIONS);
    assert!(network.event("flow_table_full_hashed") > 0);
    network.change(|plan| plan.chains[0].vnfs[0][0].state = AttachmentState::Draining);
    let (mut kept, mut moved) = (0, 0);
    for number in (0..CONNECTIONS).step_by(97) {
        let entries = remembered(&mut network, number);
        if entries == 1 {
            // What holds for its directions one by one: the one keeps its choice, the other follows the hash.
            continue;
        }
        let now = exchange(&mut network, &chain, number, tcp::ACK);
        let before = &opened[&number];
        if entries == 2 || before != "a" {
            assert_eq!(&now, before, "connection {number}");
            kept += 1;
        } else {
            assert_ne!(now, "a", "without an entry nothing holds it");
            moved += 1;
        }
    }
    assert!(kept > 20 && moved > 20, "{kept} kept, {moved} moved");
    network.assert_no_drops();
}

#[test]
fn room_is_used_again_once_connections_have_ended() {
    let mut network = network();
    open(&mut network, 0..CONNECTIONS);
    let hashed = network.event("flow_table_full_hashed");
    assert!(hashed > 0);
    // Longer than the idle time of an open connection, which these are.
    for _ in 0..160 {
        network.now += 49;
        network.tick();
    }
    let held: u64 = network
        .nodes
        .iter()
        .map(|node| node.pipeline.flow_entries())
        .sum();
    assert_eq!(held, 0);
    open(&mut network, 0..100);
    assert_eq!(
        network.event("flow_table_full_hashed"),
        hashed,
        "there is room"
    );
    network.assert_no_drops();
}
