//! Drawn platforms, connections and changes: the three promises hold for all of them.

use crate::frames::{packet, tuple};
use crate::network::{Network, names};
use crate::plan::{Chain, Plan, Route, SIBLING, chain, instance};
use contracts::forwarder::{AttachmentKind, AttachmentState, Encapsulation};
use std::collections::BTreeMap;
use wire::{FiveTuple, tcp};

/// SplitMix64.
pub struct Draw(pub u64);

impl Draw {
    /// A number below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ word >> 31) % limit as u64) as usize
    }
}

pub fn platform(draw: &mut Draw) -> Plan {
    let sites = 1 + draw.below(4);
    let mut vnfs = Vec::new();
    for position in 0..draw.below(5) {
        let mut instances = Vec::new();
        for number in 0..1 + draw.below(3) {
            let mut drawn = instance(
                draw.below(sites),
                &format!("i{position}{number}"),
                1 + draw.below(300) as u32,
            );
            drawn.kind = match draw.below(6) {
                0 => AttachmentKind::Transparent,
                1 => AttachmentKind::LabelAwareMpls,
                2 => AttachmentKind::LabelAwareNsh,
                _ => AttachmentKind::Gateway,
            };
            instances.push(drawn);
        }
        vnfs.push(instances);
    }
    let mut plan = Plan::new(sites, chain(draw.below(sites), vnfs, draw.below(sites)));
    let encapsulations = [
        Encapsulation::VxlanMpls,
        Encapsulation::VxlanGpeNsh,
        Encapsulation::MplsInUdp,
    ];
    plan.encapsulations = (0..1 + draw.below(3))
        .map(|_| encapsulations[draw.below(3)])
        .collect();
    plan.chains[0].routes = routes(&plan.chains[0], draw);
    plan
}

/// Routes by sites at which each VNF takes new connections, or none; none either where a VNF takes none.
pub fn routes(chain: &Chain, draw: &mut Draw) -> Vec<Route> {
    let mut routes = BTreeMap::new();
    for _ in 0..draw.below(5) {
        let mut sites = vec![chain.ingress.site % SIBLING];
        for instances in &chain.vnfs {
            let active = instances.iter();
            let active = active.filter(|one| one.state == AttachmentState::Active);
            let active: Vec<usize> = active.map(|one| one.site).collect();
            if active.is_empty() {
                return Vec::new();
            }
            sites.push(active[draw.below(active.len())] % SIBLING);
        }
        sites.push(chain.egress.site % SIBLING);
        *routes.entry(sites).or_insert(0) += 1 + draw.below(300) as u32;
    }
    let swapped = routes.into_iter().map(|(sites, weight)| (weight, sites));
    swapped.collect()
}

/// Changes weights and routes, drains instances that have company, and adds instances.
pub fn change(plan: &mut Plan, draw: &mut Draw, step: usize) {
    let sites = plan.sites;
    for (position, instances) in plan.chains[0].vnfs.iter_mut().enumerate() {
        match draw.below(4) {
            0 => {
                let index = draw.below(instances.len());
                instances[index].weight = 1 + draw.below(300) as u32;
            }
            1 => {
                let active = instances
                    .iter()
                    .filter(|one| one.state == AttachmentState::Active)
                    .count();
                let index = draw.below(instances.len());
                if active > 1 {
                    instances[index].state = AttachmentState::Draining;
                }
            }
            2 => instances.push(instance(
                draw.below(sites),
                &format!("n{position}{step}"),
                100,
            )),
            _ => {}
        }
    }
    plan.chains[0].routes = routes(&plan.chains[0], draw);
}

pub fn connection(number: usize) -> FiveTuple {
    if number.is_multiple_of(3) {
        tuple(
            &format!("2001:db8:1::{number:x}"),
            1000,
            "2001:db8:2::9",
            443,
            tcp::PROTOCOL,
        )
    } else {
        tuple(
            &format!("10.1.0.{}", 2 + number % 200),
            1000 + number as u16,
            "10.2.0.9",
            443,
            tcp::PROTOCOL,
        )
    }
}

/// Sends a packet each way; returns the instances passed, having checked order and symmetry.
pub fn exchange(network: &mut Network, tuple: &FiveTuple, flags: u8, seed: u64) -> Vec<String> {
    let chain = network.plan.chains[0].clone();
    let there = network.send(&chain.ingress, &packet(tuple, flags, 10));
    assert_eq!(
        there.len(),
        1,
        "seed {seed}, {tuple}: {:?}",
        network.drops()
    );
    assert_eq!(there[0].edge, "edge-out", "seed {seed}");
    let positions: Vec<usize> = there[0].visits.iter().map(|visit| visit.position).collect();
    assert_eq!(
        positions,
        (0..chain.vnfs.len()).collect::<Vec<_>>(),
        "seed {seed}: conformity"
    );
    assert!(
        there[0].visits.iter().all(|visit| visit.forward),
        "seed {seed}"
    );
    let back = network.send(&chain.egress, &packet(&tuple.reversed(), tcp::ACK, 10));
    assert_eq!(back.len(), 1, "seed {seed}, {tuple}: {:?}", network.drops());
    let mut reverse = names(&back[0].visits);
    reverse.reverse();
    let forward = names(&there[0].visits);
    assert_eq!(forward, reverse, "seed {seed}: symmetric return");
    forward.into_iter().map(String::from).collect()
}

#[test]
fn conformity_affinity_and_symmetric_return_hold_on_drawn_platforms() {
    for seed in 0..25 {
        let mut draw = Draw(seed);
        let mut network = Network::new(platform(&mut draw));
        let mut opened: Vec<(FiveTuple, Vec<String>)> = Vec::new();
        for step in 0..6 {
            for _ in 0..8 {
                let tuple = connection(opened.len());
                let visited = exchange(&mut network, &tuple, tcp::SYN, seed);
                opened.push((tuple, visited));
            }
            network.change(|plan| change(plan, &mut draw, step));
            for (tuple, visited) in &opened {
                let again = exchange(&mut network, tuple, tcp::ACK, seed);
                assert_eq!(&again, visited, "seed {seed}: affinity of {tuple}");
            }
        }
        network.assert_no_drops();
    }
}
