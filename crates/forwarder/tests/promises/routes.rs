//! Connections without an entry: every forwarder draws the same route for them, in either direction.
//!
//! One network sees packets of one direction only, another one those of the other. Neither has an entry that could tell the other
//! direction's way, so both go by the hash alone.

use crate::changes::exchange;
use crate::frames::{packet, rewrite, tuple};
use crate::network::{Network, names};
use crate::plan::{Chain, Edge, Plan, Route, chain, edge, instance};
use contracts::forwarder::AttachmentState;
use std::collections::HashMap;
use wire::{FiveTuple, tcp};

const CONNECTIONS: u32 = 4_000;

/// A VNF with an instance at each of these sites, named by position and site.
fn vnf(position: usize, sites: &[usize]) -> Vec<crate::plan::Instance> {
    let at = |&site: &usize| instance(site, &format!("{position}@{site}"), 100);
    sites.iter().map(at).collect()
}

/// Two VNFs at three sites each, also those of the edges; routes prefer pairs.
pub fn pairs() -> Plan {
    let mut chain = chain(0, vec![vnf(0, &[0, 1, 2]), vnf(1, &[1, 2, 3])], 3);
    let ways = [
        (30, 0, 3),
        (10, 0, 1),
        (15, 1, 1),
        (5, 1, 2),
        (2, 2, 1),
        (38, 2, 3),
    ];
    let route =
        |(weight, first, second): (u32, usize, usize)| (weight * 100, vec![0, first, second, 3]);
    chain.routes = ways.map(route).to_vec();
    Plan::new(4, chain)
}

/// Three VNFs and three ingress edges, each with routes of its own.
fn triples() -> Plan {
    let vnfs = vec![vnf(0, &[1, 2]), vnf(1, &[0, 2, 3]), vnf(2, &[1, 3])];
    let mut chain = chain(0, vnfs, 3);
    chain.more_ingresses = vec![edge(1, "second", 3), edge(4, "third", 4)];
    chain.routes = vec![
        (900, vec![0, 1, 0, 1, 3]),
        (100, vec![0, 2, 3, 3, 3]),
        (500, vec![1, 1, 2, 3, 3]),
        (300, vec![1, 2, 2, 1, 3]),
        (200, vec![1, 2, 0, 3, 3]),
        (1, vec![4, 1, 3, 3, 3]),
        (2, vec![4, 2, 0, 1, 3]),
    ];
    Plan::new(5, chain)
}

/// A connection of a host behind an ingress edge.
fn connection(edge: &Edge, number: u32) -> FiveTuple {
    let network = edge.prefixes[0].trim_end_matches(".0/24");
    let host = format!("{network}.{}", 2 + number % 200);
    let port = 1024 + (number / 200) as u16;
    tuple(&host, port, "10.2.0.9", 443, tcp::PROTOCOL)
}

/// The instances that a packet of the connection passes, from the ingress on. Nobody knows the connection.
fn visits(
    network: &mut Network,
    chain: &Chain,
    edge: &Edge,
    tuple: &FiveTuple,
    forward: bool,
) -> Vec<String> {
    let left = match forward {
        true => network.send(edge, &packet(tuple, tcp::ACK, 10)),
        false => network.send(&chain.egress, &packet(&tuple.reversed(), tcp::ACK, 10)),
    };
    assert_eq!(left.len(), 1, "{tuple}: {:?}", network.drops());
    let own = if forward { &chain.egress } else { edge };
    assert_eq!(left[0].edge, crate::plan::edge_port(own), "{tuple}");
    let mut passed: Vec<String> = names(&left[0].visits)
        .iter()
        .map(|n| n.to_string())
        .collect();
    if !forward {
        passed.reverse();
    }
    passed
}

/// The ways of all connections of an edge in one direction.
fn ways(plan: &Plan, edge: &Edge, forward: bool) -> Vec<Vec<String>> {
    let mut network = Network::new(plan.clone());
    let chain = plan.chains[0].clone();
    let tuples = (0..CONNECTIONS).map(|number| connection(edge, number));
    let ways = tuples.map(|tuple| visits(&mut network, &chain, edge, &tuple, forward));
    let ways = ways.collect();
    network.assert_no_drops();
    ways
}

/// The instances on a route of chains whose VNFs have one at each site.
fn along((_, sites): &Route) -> Vec<String> {
    let vnfs = &sites[1..sites.len() - 1];
    let at = |(position, site)| format!("{position}@{site}");
    vnfs.iter().enumerate().map(at).collect()
}

#[test]
fn both_directions_take_one_route_by_its_share() {
    for plan in [pairs(), triples()] {
        let chain = plan.chains[0].clone();
        for edge in chain.ingresses() {
            let there = ways(&plan, edge, true);
            assert_eq!(there, ways(&plan, edge, false), "{}", edge.name);
            let own = chain
                .routes
                .iter()
                .filter(|(_, sites)| sites[0] == edge.site);
            let total: u32 = own.clone().map(|route| route.0).sum();
            let mut known = 0;
            for route in own {
                let taken = there.iter().filter(|way| **way == along(route)).count();
                let share = f64::from(route.0) / f64::from(total);
                let (mean, deviation) = (
                    share * f64::from(CONNECTIONS),
                    (share * (1.0 - share) * f64::from(CONNECTIONS)).sqrt(),
                );
                assert!(
                    (taken as f64 - mean).abs() < 4.0 * deviation,
                    "{route:?}: {taken}"
                );
                known += taken;
            }
            assert_eq!(known, there.len(), "all are on routes");
        }
    }
}

/// What gains or loses a share gains or loses connections; no other route does.
#[test]
fn a_change_of_shares_moves_few() {
    let before = pairs();
    let mut after = before.clone();
    let routes = &mut after.chains[0].routes;
    (routes[0].0, routes[1].0) = (2_500, 1_500);
    let changed = [&routes[0], &routes[1]].map(along);
    let edge = before.chains[0].ingress.clone();
    let (old, new) = (ways(&before, &edge, true), ways(&after, &edge, true));
    let moved: Vec<_> = old
        .iter()
        .zip(&new)
        .filter(|(old, new)| old != new)
        .collect();
    assert!(
        moved
            .iter()
            .all(|(old, new)| **old == changed[0] || **new == changed[1])
    );
    assert!((150..350).contains(&moved.len()), "{} of 200", moved.len());
}

/// Where the only VNF has nobody at a site, routes through it take no part, and both neighbours know.
#[test]
fn routes_through_a_dead_site_are_left_out_at_both_ends() {
    let mut chain = chain(0, vec![vnf(0, &[0, 1, 2])], 3);
    chain.routes = [(1000, 0), (4000, 1), (2000, 2)]
        .map(|(w, at)| (w, vec![0, at, 3]))
        .to_vec();
    let whole = Plan::new(4, chain);
    let mut lacking = whole.clone();
    lacking.chains[0].vnfs[0][1].state = AttachmentState::Dead;
    let edge = whole.chains[0].ingress.clone();
    let (before, now) = (ways(&whole, &edge, true), ways(&lacking, &edge, true));
    assert_eq!(now, ways(&lacking, &edge, false));
    for (before, now) in before.iter().zip(&now) {
        match before[0].as_str() {
            "0@1" => assert_ne!(now, before),
            _ => assert_eq!(now, before, "nothing else moves"),
        }
    }
}

/// Nobody but the neighbours of a site knows that it has nobody; what comes to them takes another route from there.
#[test]
fn a_route_that_ends_further_on_is_left_where_that_is_known() {
    let mut plan = pairs();
    plan.chains[0].vnfs[1][2].state = AttachmentState::Dead;
    let edge = plan.chains[0].ingress.clone();
    let (before, now) = (ways(&pairs(), &edge, true), ways(&plan, &edge, true));
    for (before, now) in before.iter().zip(&now) {
        assert_eq!(now[0], before[0], "the ingress knows nothing of it");
        match before[1].as_str() {
            "1@3" => assert_eq!(now[1], "1@1", "the other route of either site"),
            _ => assert_eq!(now, before),
        }
    }
}

/// Behind a VNF that rewrites it, a connection is another one: at one site that is no matter.
#[test]
fn a_rewritten_connection_takes_one_route_on_either_side_of_a_vnf_at_one_site() {
    let vnfs = vec![vnf(0, &[1, 2]), vnf(1, &[3]), vnf(2, &[1, 2])];
    let mut chain = chain(0, vnfs, 0);
    let ways = [(40, 1, 2), (30, 2, 1), (20, 1, 1), (10, 2, 2)];
    chain.routes = ways
        .map(|(weight, a, b)| (weight, vec![0, a, 3, b, 0]))
        .to_vec();
    let edge = chain.ingress.clone();
    let translated = |tuple: &FiveTuple| FiveTuple {
        source_port: tuple.source_port ^ 0x4000,
        ..*tuple
    };
    let network = || {
        let mut network = Network::new(Plan::new(4, chain.clone()));
        let translate = |packet: &mut Vec<u8>, forward: bool| {
            let (host, port) = if forward { (12, 20) } else { (16, 22) };
            let address = packet[host..host + 4].try_into().unwrap();
            let port = u16::from_be_bytes([packet[port], packet[port + 1]]);
            rewrite(packet, forward, address, port ^ 0x4000);
            true
        };
        network.behaviours.insert("1@3".into(), Box::new(translate));
        network
    };
    let (mut there, mut back) = (network(), network());
    let mut differ = 0;
    for tuple in (0..CONNECTIONS).map(|number| connection(&edge, number)) {
        let forward = visits(&mut there, &chain, &edge, &tuple, true);
        let reverse = visits(&mut back, &chain, &edge, &translated(&tuple), false);
        assert_eq!(forward, reverse, "{tuple}");
        differ += u32::from(forward[0] == "0@2" && forward[2] == "2@2");
    }
    let due = CONNECTIONS * 40 / 100 * 50 / 100; // both draws alone, not that of a route
    assert!(
        (due - 150..due + 150).contains(&differ),
        "{differ} of {due}"
    );
}

/// Sites follow a change one after the other. Connections that have entries keep their way, and those without one arrive.
#[test]
fn sites_with_other_lists_of_routes_split_no_connection_that_is_known() {
    let mut network = Network::new(pairs());
    let chain = network.plan.chains[0].clone();
    let open =
        |network: &mut Network, numbers: std::ops::Range<u32>| -> HashMap<u32, Vec<String>> {
            let flags = tcp::SYN;
            numbers
                .map(|n| {
                    (
                        n,
                        exchange(network, &chain, &connection(&chain.ingress, n), flags),
                    )
                })
                .collect()
        };
    let mut known = open(&mut network, 0..500);
    let mut next = network.plan.clone();
    next.generation += 1;
    next.chains[0].routes = vec![(10, vec![0, 2, 2, 3]), (30, vec![0, 1, 3, 3])];
    for (step, site) in [0, 2, 3, 1].into_iter().enumerate() {
        network.apply_at(site, &next.rules(site));
        for (number, way) in &known {
            let tuple = connection(&chain.ingress, *number);
            assert_eq!(&exchange(&mut network, &chain, &tuple, tcp::ACK), way);
        }
        let first = 500 * (step as u32 + 1);
        known.extend(open(&mut network, first..first + 500));
    }
    let last: Vec<_> = known
        .iter()
        .filter(|(number, _)| **number >= 2_000)
        .collect();
    assert!(
        last.iter()
            .all(|(_, way)| next.chains[0].routes.iter().any(|r| along(r) == **way))
    );
    network.assert_no_drops();
}

/// Rules without routes are rules as before: weights decide among sites.
#[test]
fn without_routes_weights_decide() {
    let mut plan = pairs();
    let of_routes = ways(&plan, &plan.chains[0].ingress, true);
    plan.chains[0].routes.clear();
    let by_weight = ways(&plan, &plan.chains[0].ingress, true);
    let pairs = |ways: &[Vec<String>]| ways.iter().filter(|way| ***way == ["0@2", "1@2"]).count();
    assert_eq!(pairs(&of_routes), 0, "no route has both");
    assert!((350..550).contains(&pairs(&by_weight)), "one of nine pairs");
}
