//! Rules that change under running connections.

use crate::frames::{packet, tuple};
use crate::network::{Network, names};
use crate::plan::{Chain, Plan, chain, instance};
use contracts::forwarder::AttachmentState;
use std::collections::HashMap;
use wire::{FiveTuple, tcp};

/// A connection of a host behind the first edge.
pub fn connection(number: u32) -> FiveTuple {
    let host = format!("10.1.0.{}", 2 + number % 200);
    tuple(
        &host,
        1024 + (number / 200) as u16,
        "10.2.0.9",
        443,
        tcp::PROTOCOL,
    )
}

/// Sends a packet of each direction and returns the instances, which must be the same both ways.
pub fn exchange(network: &mut Network, chain: &Chain, tuple: &FiveTuple, flags: u8) -> Vec<String> {
    let there = network.send(&chain.ingress, &packet(tuple, flags, 10));
    assert_eq!(there.len(), 1, "{tuple}: {:?}", network.drops());
    let back = network.send(&chain.egress, &packet(&tuple.reversed(), tcp::ACK, 10));
    assert_eq!(back.len(), 1, "{tuple}: {:?}", network.drops());
    let forward: Vec<String> = names(&there[0].visits)
        .into_iter()
        .map(String::from)
        .collect();
    let mut reverse = names(&back[0].visits);
    reverse.reverse();
    assert_eq!(forward, reverse, "{tuple}");
    forward
}

/// Opens connections; the instances that each passes.
pub fn open(network: &mut Network, numbers: std::ops::Range<u32>) -> HashMap<u32, Vec<String>> {
    let chain = network.plan.chains[0].clone();
    numbers
        .map(|number| {
            (
                number,
                exchange(network, &chain, &connection(number), tcp::SYN),
            )
        })
        .collect()
}

/// Which part of them passes an instance.
pub fn share(opened: &HashMap<u32, Vec<String>>, name: &str) -> f64 {
    let using = opened
        .values()
        .filter(|visited| visited.iter().any(|visited| visited == name))
        .count();
    using as f64 / opened.len() as f64
}

/// Where a connection's first VNF is says nothing about where its second one is.
#[test]
fn sites_are_drawn_anew_for_each_vnf() {
    let vnf = |names: [&str; 2]| vec![instance(1, names[0], 100), instance(2, names[1], 100)];
    let vnfs = vec![vnf(["a", "b"]), vnf(["c", "d"])];
    let mut network = Network::new(Plan::new(3, chain(0, vnfs, 0)));
    let opened = open(&mut network, 0..2000);
    for pair in [["a", "c"], ["a", "d"], ["b", "c"], ["b", "d"]] {
        let using = opened.values().filter(|visited| **visited == pair).count();
        assert!((425..575).contains(&using), "{pair:?}: {using} of 500");
    }
    network.assert_no_drops();
}

#[test]
fn old_connections_keep_their_instances_and_new_ones_follow_new_weights() {
    let vnfs = vec![
        vec![instance(1, "a", 300), instance(2, "b", 100)],
        vec![instance(2, "c", 100)],
    ];
    let mut network = Network::new(Plan::new(3, chain(0, vnfs, 2)));
    let old = open(&mut network, 0..1000);
    assert!(
        (share(&old, "a") - 0.75).abs() < 0.05,
        "{}",
        share(&old, "a")
    );
    network.change(|plan| {
        plan.chains[0].vnfs[0][0].weight = 100;
        plan.chains[0].vnfs[0].push(instance(0, "d", 200));
        plan.chains[0].vnfs[1].push(instance(1, "e", 100));
    });
    let chain = network.plan.chains[0].clone();
    for (number, visited) in &old {
        assert_eq!(
            &exchange(&mut network, &chain, &connection(*number), tcp::ACK),
            visited
        );
    }
    let new = open(&mut network, 1000..3000);
    for (name, expected) in [("a", 0.25), ("b", 0.25), ("d", 0.5), ("c", 0.5), ("e", 0.5)] {
        let share = share(&new, name);
        assert!(
            (share - expected).abs() < 0.05,
            "{name}: {share}, not {expected}"
        );
    }
    network.assert_no_drops();
}

#[test]
fn a_draining_instance_keeps_its_connections_and_gets_no_new_ones() {
    let vnfs = vec![vec![instance(1, "a", 100), instance(2, "b", 100)]];
    let mut network = Network::new(Plan::new(3, chain(0, vnfs, 2)));
    let old = open(&mut network, 0..400);
    network.change(|plan| plan.chains[0].vnfs[0][0].state = AttachmentState::Draining);
    let chain = network.plan.chains[0].clone();
    for (number, visited) in &old {
        assert_eq!(
            &exchange(&mut network, &chain, &connection(*number), tcp::ACK),
            visited
        );
    }
    let new = open(&mut network, 400..800);
    assert_eq!(share(&new, "b"), 1.0);
    network.assert_no_drops();
}

#[test]
fn connections_of_a_dead_instance_choose_again_and_others_stay() {
    let vnfs = vec![vec![
        instance(1, "a", 100),
        instance(1, "b", 100),
        instance(1, "c", 100),
    ]];
    let mut network = Network::new(Plan::new(2, chain(0, vnfs, 1)));
    let old = open(&mut network, 0..600);
    network.change(|plan| plan.chains[0].vnfs[0][0].state = AttachmentState::Dead);
    let chain = network.plan.chains[0].clone();
    let mut moved = 0;
    for (number, visited) in &old {
        let now = exchange(&mut network, &chain, &connection(*number), tcp::ACK);
        if visited[0] == "a" {
            assert_ne!(now[0], "a");
            moved += 1;
        } else {
            assert_eq!(&now, visited);
        }
    }
    assert!(moved > 100);
    assert_eq!(network.event("flow_rechosen"), moved);
    network.assert_no_drops();
}

#[test]
fn connections_of_an_instance_that_died_at_another_site_choose_again() {
    let vnfs = vec![vec![instance(1, "a", 100), instance(2, "b", 100)]];
    let mut network = Network::new(Plan::new(3, chain(0, vnfs, 0)));
    let old = open(&mut network, 0..200);
    network.change(|plan| plan.chains[0].vnfs[0][0].state = AttachmentState::Dead);
    // Until the entries have been walked over, packets go where nobody serves them.
    network.tick();
    network.tick();
    let chain = network.plan.chains[0].clone();
    let mut moved = 0;
    for (number, visited) in &old {
        let now = exchange(&mut network, &chain, &connection(*number), tcp::ACK);
        assert_eq!(now, ["b"]);
        moved += u64::from(visited[0] == "a");
    }
    assert!(moved > 60);
    network.assert_no_drops();
    // They stay where they are when the other comes back.
    network.change(|plan| plan.chains[0].vnfs[0][0].state = AttachmentState::Active);
    network.tick();
    network.tick();
    for number in old.keys() {
        let now = exchange(&mut network, &chain, &connection(*number), tcp::ACK);
        assert_eq!(now, ["b"]);
    }
}

#[test]
fn connections_wait_for_an_instance_that_died_at_another_site_where_there_is_no_other() {
    let vnfs = vec![vec![instance(1, "a", 100)], vec![instance(2, "b", 100)]];
    let mut network = Network::new(Plan::new(3, chain(0, vnfs, 0)));
    let old = open(&mut network, 0..20);
    network.change(|plan| plan.chains[0].vnfs[0][0].state = AttachmentState::Dead);
    network.tick();
    network.tick();
    let chain = network.plan.chains[0].clone();
    let sent = packet(&connection(0), tcp::ACK, 10);
    assert!(network.send(&chain.ingress, &sent).is_empty());
    assert_eq!(network.drops()["hop_gone"], 1);
    network.change(|plan| plan.chains[0].vnfs[0][0].state = AttachmentState::Active);
    for (number, visited) in &old {
        let now = exchange(&mut network, &chain, &connection(*number), tcp::ACK);
        assert_eq!(&now, visited);
    }
}

#[test]
fn an_instance_that_is_removed_leaves_its_connections_to_others() {
    let vnfs = vec![vec![instance(1, "a", 100), instance(1, "b", 100)]];
    let mut network = Network::new(Plan::new(2, chain(0, vnfs, 1)));
    open(&mut network, 0..100);
    network.change(|plan| {
        plan.chains[0].vnfs[0].remove(0);
    });
    let chain = network.plan.chains[0].clone();
    for number in 0..100 {
        assert_eq!(
            exchange(&mut network, &chain, &connection(number), tcp::ACK),
            ["b"]
        );
    }
}

#[test]
fn a_connection_begun_under_an_older_version_of_the_chain_stays_on_it() {
    let vnfs = vec![vec![instance(1, "a", 100)]];
    let mut network = Network::new(Plan::new(2, chain(0, vnfs.clone(), 1)));
    let old = open(&mut network, 0..50);
    network.change(|plan| {
        // The new version has a label of its own and comes first among the classifiers of its edges.
        let mut newer = plan.chains[0].clone();
        newer.label = 1002;
        newer.vnfs.push(vec![instance(0, "inserted", 100)]);
        plan.retired = std::mem::replace(&mut plan.chains, vec![newer]);
    });
    let chain = network.plan.chains[0].clone();
    for (number, visited) in &old {
        assert_eq!(
            &exchange(&mut network, &chain, &connection(*number), tcp::ACK),
            visited
        );
    }
    for visited in open(&mut network, 50..100).values() {
        assert_eq!(visited.as_slice(), ["a", "inserted"]);
    }
    network.assert_no_drops();
}

#[test]
fn ports_that_change_places_in_the_rules_keep_their_neighbours_and_waiting_packets() {
    let mut network = Network::new(Plan::new(2, chain(0, vec![vec![instance(1, "m", 100)]], 1)));
    let chain = network.plan.chains[0].clone();
    assert_eq!(
        exchange(&mut network, &chain, &connection(1), tcp::SYN),
        ["m"]
    );
    network.change(|plan| {
        // A port whose name sorts before the others moves them all by one.
        plan.chains[0].vnfs[0].push(crate::plan::Instance {
            kind: contracts::forwarder::AttachmentKind::Transparent,
            ..instance(1, "aaa", 100)
        });
    });
    for number in 0..50 {
        exchange(&mut network, &chain, &connection(number), tcp::SYN);
    }
    network.assert_no_drops();
}

#[test]
fn idle_times_come_with_the_rules_and_counts_follow() {
    let vnfs = vec![vec![instance(1, "a", 100)]];
    let mut network = Network::new(Plan::new(2, chain(0, vnfs, 1)));
    open(&mut network, 0..30);
    network.tick();
    // Two edges' entries and those of both stages at the instance's site, one stage at the other.
    let entries = |network: &Network| -> u64 {
        network
            .nodes
            .iter()
            .map(|node| node.pipeline.flow_entries())
            .sum()
    };
    assert_eq!(entries(&network), 30 * 5);
    let most = network.nodes[1].pipeline.hop_flows.values().max();
    assert_eq!(most, Some(&60), "the instance is a hop of both stages");
    let generation = network.plan.generation;
    assert_eq!(network.nodes[1].pipeline.counted_generation, generation);
    let mut set = network.plan.rules(1);
    set.timers = Some(contracts::forwarder::FlowTimers {
        tcp_opening: 5,
        tcp_established: 20,
        tcp_closing: 5,
        ..Default::default()
    });
    network.apply_at(1, &set);
    assert_eq!(entries(&network), 30 * 5, "entries survive the change");
    for _ in 0..200 {
        network.tick();
    }
    assert_eq!(network.nodes[1].pipeline.flow_entries(), 0);
    assert!(network.nodes[1].pipeline.hop_flows.is_empty());
}
