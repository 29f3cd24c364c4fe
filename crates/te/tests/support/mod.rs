//! Small random models that exercise every part of the paper's model.
#![allow(dead_code)] // Each test binary uses its own part.

use te::check::Report;
use te::instance::Instance;
use te::model::*;
use te::random::Random;
use te::solution::{Objective, Solution};

pub const OBJECTIVES: [Objective; 3] =
    [Objective::Throughput, Objective::Scale, Objective::Latency];

/// A connected backbone with parallel links, background, several sites on a node, chains of 0 to 4 VNFs with
/// traffic for each stage, repeated VNFs, several ends, fixed shares, parts that must be carried, priorities.
pub fn random_model(seed: u64) -> Model {
    let mut random = Random::new(seed);
    let count = 3 + random.below(5);
    let nodes = (0..count)
        .map(|i| Node {
            id: format!("n{i}"),
            coordinates: None,
        })
        .collect();
    let mut links = Vec::new();
    let mut pair = |random: &mut Random, a: usize, b: usize| {
        let latency_ms = [1.0, 2.0, 2.5, 4.0][random.below(4)];
        for (from, to) in [(a, b), (b, a)] {
            let bandwidth_mbps = random.between(50.0, 150.0);
            let background_mbps = if random.below(2) == 0 {
                0.0
            } else {
                random.between(0.0, 20.0)
            };
            links.push(Link {
                id: format!("l{}", links.len()),
                from,
                to,
                latency_ms,
                bandwidth_mbps,
                background_mbps,
            });
        }
    };
    for i in 0..count {
        pair(&mut random, i, (i + 1) % count);
    }
    for _ in 0..random.below(count + 1) {
        let a = random.below(count);
        let b = (a + 1 + random.below(count - 1)) % count;
        pair(&mut random, a, b);
    }
    let sites: Vec<Site> = (0..1 + random.below(count + 1))
        .map(|i| Site {
            id: format!("s{i}"),
            node: random.below(count),
            capacity: random.between(100.0, 600.0),
        })
        .collect();
    let vnfs: Vec<Vnf> = (0..2 + random.below(4))
        .map(|i| {
            let places = 1 + random.below(sites.len());
            let deployments = random
                .sample(sites.len(), places)
                .into_iter()
                .map(|site| Deployment {
                    site,
                    capacity: random.between(30.0, 300.0),
                })
                .collect();
            let load_per_mbps = if random.below(6) == 0 {
                0.0
            } else {
                random.between(0.2, 2.0)
            };
            Vnf {
                id: format!("f{i}"),
                load_per_mbps,
                deployments,
            }
        })
        .collect();
    let chains = (0..2 + random.below(9))
        .map(|i| random_chain(&mut random, i, count, vnfs.len()))
        .collect();
    Model {
        nodes,
        links,
        max_link_utilization: if random.below(3) == 0 { 0.8 } else { 1.0 },
        routing: Routing::ShortestPath,
        sites,
        vnfs,
        customers: Default::default(),
        chains,
    }
}

fn random_chain(random: &mut Random, index: usize, nodes: usize, vnfs: usize) -> Chain {
    let ends = |random: &mut Random| match random.below(6) {
        0 if nodes > 2 => Ends::Any(random.sample(nodes, 2)),
        1 if nodes > 2 => {
            let two = random.sample(nodes, 2);
            Ends::Shares(vec![(two[0], 0.25), (two[1], 0.75)])
        }
        _ => Ends::Any(vec![random.below(nodes)]),
    };
    let length = random.below(5);
    let stages = length + 1;
    let forward = random.between(1.0, 15.0);
    let per_stage = random.below(2) == 0;
    let mut traffic = |base: f64| -> Vec<f64> {
        (0..stages)
            .map(|_| {
                if per_stage {
                    base * random.between(0.5, 1.5)
                } else {
                    base
                }
            })
            .collect()
    };
    let forward_mbps = traffic(forward);
    let reverse_mbps = traffic(forward * 0.3);
    Chain {
        id: format!("c{index}"),
        customer: None,
        ingress: ends(random),
        egress: ends(random),
        vnfs: (0..length).map(|_| random.below(vnfs)).collect(),
        forward_mbps,
        reverse_mbps,
        priority: [1.0, 1.0, 3.0][random.below(3)],
        minimum_share: None,
        survive_share: None,
        limits: Limits::default(),
    }
}

/// Writes a solution as the command would, reads it back and checks it.
pub fn checked(model: &Model, instance: &Instance, solution: &Solution) -> Report {
    let text = te::result::to_json(model, instance, solution);
    let document = te::json::parse(text.as_bytes()).expect("what we write is JSON");
    te::check::check(
        model,
        &te::result::read(&document, model).expect("what we write is a result"),
    )
}

pub fn demand(objective: Objective) -> te::instance::Demand {
    if objective == Objective::Throughput {
        te::instance::Demand::Partial
    } else {
        te::instance::Demand::Full
    }
}
