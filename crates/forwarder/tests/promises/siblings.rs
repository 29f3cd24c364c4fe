//! Sites with two forwarders each, whose instances move between them, drain and come while connections go on.

use crate::network::Network;
use crate::plan::{Instance, Plan, Role, SIBLING, peer_name};
use crate::random::{Draw, change, connection, exchange, platform};
use contracts::forwarder::ImportFlowsRequest;
use forwarder::exchange;
use wire::{FiveTuple, tcp};

/// Gives each site a second forwarder, and things homes with either.
pub fn spread(mut plan: Plan, draw: &mut Draw) -> Plan {
    plan.sites += SIBLING;
    let chain = &mut plan.chains[0];
    chain.ingress.site += SIBLING * draw.below(2);
    chain.egress.site += SIBLING * draw.below(2);
    for one in chain.vnfs.iter_mut().flatten() {
        one.site += SIBLING * draw.below(2);
    }
    plan
}

/// Brings the flow entries of a forwarder to its sibling, in pages.
fn hand_over(network: &mut Network, from: usize, to: usize) {
    let now = network.now;
    let workers = network.nodes[from].team.as_ref();
    for worker in 0..workers.map_or(1, |team| team.pipelines.len()) {
        let mut begin = true;
        loop {
            let node = &mut network.nodes[from];
            let pipeline = match &mut node.team {
                Some(team) => &mut team.pipelines[worker],
                None => &mut node.pipeline,
            };
            let (met, more) = pipeline.export(begin, 64, now);
            let page = exchange::page(&met, &node.registry, more);
            let request = ImportFlowsRequest {
                from: peer_name(from),
                page: Some(page),
            };
            let node = &mut network.nodes[to];
            let (rules, registry) = (&node.rules, &mut node.registry);
            let imports = exchange::read(&request, &peer_name(to), rules, registry).unwrap();
            match &mut node.team {
                Some(team) => team.import(rules, &imports, now),
                None => assert_eq!(node.pipeline.import(rules, &imports, now).refused, 0),
            }
            begin = false;
            if !more {
                break;
            }
        }
    }
}

/// Moves an instance to its home's sibling, as a Local Switchboard does; `between` has its turn after each step. Who is taken away in
/// between moves no further.
pub fn relocate<T>(
    all: &mut T,
    name: &str,
    network: impl Fn(&mut T) -> &mut Network,
    mut between: impl FnMut(&mut T),
) {
    let Some(one) = found(&mut network(all).plan, name) else {
        return;
    };
    let (home, begins) = match one.sibling {
        Some(_) => (one.site, Role::Returning),
        None => (one.site, Role::Preparing),
    };
    let to = (home + SIBLING) % (2 * SIBLING);
    if to >= network(all).plan.sites {
        return;
    }
    let step = |all: &mut T, home: usize, role: Role| {
        network(all).change(|plan| {
            if let Some(one) = found(plan, name) {
                (one.site, one.sibling) = (home, Some(role));
            }
        });
    };
    step(all, home, begins);
    hand_over(network(all), home, to);
    between(all);
    hand_over(network(all), home, to);
    step(all, to, Role::Passing);
    between(all);
    hand_over(network(all), home, to);
    step(all, to, Role::Gone);
    between(all);
}

fn found<'a>(plan: &'a mut Plan, name: &str) -> Option<&'a mut Instance> {
    let mut all = plan.chains[0].vnfs.iter_mut().flatten();
    all.find(|one| one.name == name)
}

/// An instance of the plan, as VNF and number.
pub fn drawn_instance(plan: &Plan, draw: &mut Draw) -> Option<[usize; 2]> {
    let vnfs = &plan.chains[0].vnfs;
    let vnf = draw.below(vnfs.len().max(1));
    vnfs.get(vnf).map(|all| [vnf, draw.below(all.len())])
}

/// Both directions pass the same instances at a site with two forwarders of one or two workers each, whatever moves between them.
#[test]
fn connections_keep_their_instances_while_these_move_between_siblings() {
    for seed in 0..16 {
        let mut draw = Draw(seed);
        let plan = spread(platform(&mut draw), &mut draw);
        let mut network = Network::with_workers(plan, 1 + seed as usize % 2, seed);
        let mut opened: Vec<(FiveTuple, Vec<String>)> = Vec::new();
        for step in 0..6 {
            let mut grow = |network: &mut Network| {
                for _ in 0..4 {
                    let tuple = connection(opened.len());
                    let visited = exchange(network, &tuple, tcp::SYN, seed);
                    opened.push((tuple, visited));
                }
                for (tuple, visited) in &opened {
                    let again = exchange(network, tuple, tcp::ACK, seed);
                    assert_eq!(&again, visited, "seed {seed}: affinity of {tuple}");
                }
            };
            grow(&mut network);
            if let Some([vnf, index]) = drawn_instance(&network.plan, &mut draw) {
                let name = network.plan.chains[0].vnfs[vnf][index].name.clone();
                relocate(&mut network, &name, |network| network, &mut grow);
            }
            network.change(|plan| change(plan, &mut draw, step));
            grow(&mut network);
        }
        network.assert_no_drops();
    }
}
