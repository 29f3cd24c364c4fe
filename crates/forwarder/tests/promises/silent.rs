//! Who does not answer: what waits for neighbours is bounded, each link for itself, and connections without an answer end soon.

use crate::frames::{packet, tuple};
use crate::network::Network;
use crate::plan::{Plan, chain, edge, instance};
use std::collections::BTreeMap;
use wire::tcp;

/// Silent addresses that one customer floods.
const SILENT: u32 = 500;
/// Packets to each.
const PACKETS: u32 = 40;

/// Two customers whose egress edges share a port, by VLAN.
fn network() -> Network {
    let mut acme = chain(0, vec![vec![instance(1, "a", 100)]], 1);
    acme.egress.vlan = 5;
    acme.egress.prefixes[0] = "10.2.0.0/16".into();
    let mut other = acme.clone();
    other.customer = "other".into();
    (other.label, other.egress_label) = (2000, 600);
    other.ingress = edge(0, "other-in", 3);
    other.egress = edge(1, "other-out", 4);
    other.egress.vlan = 6;
    let mut plan = Plan::new(2, acme);
    plan.chains.push(other);
    Network::new(plan)
}

#[test]
fn a_flood_of_silent_addresses_takes_nothing_from_other_customers() {
    let mut network = network();
    let [acme, other] = [0, 1].map(|number| network.plan.chains[number].clone());
    network.silent = true;
    for number in 0..SILENT {
        let silent = format!("10.2.{}.{}", 1 + number / 250, 1 + number % 250);
        let sent = packet(&tuple("10.1.0.5", 4000, &silent, 80, 17), 0, 10);
        for _ in 0..PACKETS {
            assert!(network.send(&acme.ingress, &sent).is_empty());
        }
    }
    let waiting = network.event("neighbour_wait");
    assert!((64..=256).contains(&waiting), "{waiting} packets waited");
    let asked = network.event("neighbour_asked");
    assert!(asked <= 300, "{asked} questions");
    let crowded = network.drops()["neighbour_crowded"];
    assert_eq!(network.drops().len(), 1, "{:?}", network.drops());
    network.silent = false;
    let sent = packet(&tuple("10.3.0.5", 4000, "10.4.0.9", 80, 17), 0, 10);
    assert_eq!(network.send(&other.ingress, &sent).len(), 1);
    network.silent = true;
    for _ in 0..4 {
        network.tick();
    }
    let all = u64::from(SILENT * PACKETS);
    let given_up = BTreeMap::from([
        ("neighbour_crowded", crowded),
        ("neighbour_unresolved", all - crowded),
    ]);
    assert_eq!(network.drops(), given_up, "no packet is lost unnamed");
    network.silent = false;
    let sent = packet(&tuple("10.1.0.5", 4000, "10.2.1.1", 80, 17), 0, 10);
    assert_eq!(
        network.send(&acme.ingress, &sent).len(),
        1,
        "it answers now"
    );
}

/// Whichever side sends without being answered: its entries live no longer than those of what is unanswered.
#[test]
fn nobody_keeps_an_entry_for_long_alone() {
    let unanswered = [
        (tcp::PROTOCOL, tcp::SYN, 35),
        (tcp::PROTOCOL, tcp::SYN | tcp::ACK, 35),
        (tcp::PROTOCOL, tcp::ACK, 315),
        (17, 0, 35),
    ];
    for (protocol, flags, wait) in unanswered {
        for from_ingress in [true, false] {
            let vnfs = vec![vec![instance(1, "a", 100)]];
            let mut network = Network::new(Plan::new(2, chain(0, vnfs, 1)));
            let chain = network.plan.chains[0].clone();
            let one = tuple("10.1.0.5", 4000, "10.2.0.9", 80, protocol);
            for _ in 0..3 {
                let left = if from_ingress {
                    network.send(&chain.ingress, &packet(&one, flags, 10))
                } else {
                    network.send(&chain.egress, &packet(&one.reversed(), flags, 10))
                };
                assert_eq!(left.len(), 1, "{:?}", network.drops());
            }
            for _ in 0..wait {
                network.tick();
            }
            let left: u64 = network
                .nodes
                .iter()
                .map(|node| node.pipeline.flow_entries())
                .sum();
            assert_eq!(
                left, 0,
                "{protocol} {flags:#x}, from ingress: {from_ingress}"
            );
        }
    }
}
