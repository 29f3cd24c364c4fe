//! Neighbours that do not answer: what waits for them is bounded, each link for itself.

use crate::frames::{packet, tuple};
use crate::network::Network;
use crate::plan::{Plan, chain, edge, instance};
use std::collections::BTreeMap;

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
