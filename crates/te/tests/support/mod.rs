//! Small random models that exercise every part of the paper's model.
#![allow(dead_code)] // Each test binary uses its own part.

pub mod features;
pub mod series_program;
pub mod stopping;

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

/// A random model in which every second chain has limits. Of odd seeds with many small chains, so that solves ask in the
/// middle of their loops whether to stop, not only before them.
pub fn limited_model(seed: u64) -> Model {
    let mut model = random_model(seed);
    if seed % 2 == 1 {
        divide_chains(&mut model, 5);
    }
    let mut random = Random::new(seed);
    let (sites, links) = (model.sites.len(), model.links.len());
    for chain in &mut model.chains {
        let limits = &mut chain.limits;
        match random.below(10) {
            0 => limits.max_latency_ms = Some(random.between(2.0, 12.0)),
            1 => limits.avoid_sites = vec![random.below(sites)],
            2 => limits.avoid_links = random.sample(links, 2),
            3 => limits.use_links = vec![random.below(links)],
            4 => limits.max_routes = Some(4 + random.below(2)),
            5 => chain.minimum_share = Some(random.between(0.0, 0.5)),
            _ => {}
        }
    }
    model
}

/// Divides every chain into equal ones.
pub fn divide_chains(model: &mut Model, parts: usize) {
    let part = |chain: &Chain, number: usize| {
        let mut part = chain.clone();
        part.id = format!("{}-{number}", chain.id);
        let both = part.forward_mbps.iter_mut().chain(&mut part.reverse_mbps);
        both.for_each(|mbps| *mbps /= parts as f64);
        part
    };
    let whole = std::mem::take(&mut model.chains);
    for number in 0..parts {
        model.chains.extend(whole.iter().map(|c| part(c, number)));
    }
}

/// Writes a solution as the command would, reads it back and checks it.
pub fn checked(model: &Model, instance: &Instance, solution: &Solution) -> Report {
    checked_text(model, &te::result::to_json(model, instance, solution), &[])
}

/// Checks a result as it was written.
pub fn checked_text(model: &Model, text: &str, matrices: &[te::series::Matrix]) -> Report {
    let document = te::json::parse(text.as_bytes()).expect("what we write is JSON");
    te::check::check(model, &document, matrices, &|_| {}).expect("what we write is a result")
}

pub fn demand(objective: Objective) -> te::instance::Demand {
    if objective == Objective::Throughput {
        te::instance::Demand::Partial
    } else {
        te::instance::Demand::Full
    }
}

/// Every route of a commodity over sites where its VNFs are, between its ends.
pub fn all_routes(instance: &Instance, commodity: usize) -> Vec<te::instance::Route> {
    let c = &instance.commodities[commodity];
    let mut partial: Vec<Vec<u32>> = vec![Vec::new()];
    for z in 0..c.vnfs as usize {
        let vnf = &instance.vnfs[instance.stage_vnf[c.stage(z)] as usize];
        partial = partial
            .iter()
            .flat_map(|p| {
                vnf.deployments
                    .iter()
                    .map(move |(s, _)| [&p[..], &[*s]].concat())
            })
            .collect();
    }
    let mut routes = Vec::new();
    for &source in instance.sources(c) {
        for &sink in instance.sinks(c) {
            let route = |sites: &Vec<u32>| te::instance::Route {
                source,
                sink,
                sites: sites.clone().into(),
            };
            routes.extend(partial.iter().map(route));
        }
    }
    routes
}

/// Whether a route keeps its chain's limits, worked out from the model and the network alone.
pub fn keeps_limits(
    model: &Model,
    instance: &Instance,
    commodity: usize,
    route: &te::instance::Route,
) -> bool {
    let chain = &model.chains[instance.commodities[commodity].chain as usize];
    let limits = &chain.limits;
    let mut stops = vec![instance.node_at[route.source as usize] as usize];
    stops.extend(route.sites.iter().map(|&s| model.sites[s as usize].node));
    stops.push(instance.node_at[route.sink as usize] as usize);
    let (mut latency, mut crossed) = (0.0, Vec::new());
    for (z, hop) in stops.windows(2).enumerate() {
        latency += instance.network.latency_ms(hop[0], hop[1]);
        if chain.forward_mbps[z] > 0.0 {
            crossed.extend(instance.network.path(hop[0], hop[1]).map(|(link, _)| link));
        }
        if chain.reverse_mbps[z] > 0.0 {
            crossed.extend(instance.network.path(hop[1], hop[0]).map(|(link, _)| link));
        }
    }
    let visits = |site: &usize| route.sites.contains(&(*site as u32));
    limits
        .max_latency_ms
        .is_none_or(|most| latency <= most + 1e-9)
        && !limits.avoid_sites.iter().any(visits)
        && limits.use_sites.iter().all(visits)
        && !limits.avoid_links.iter().any(|l| crossed.contains(l))
        && limits.use_links.iter().all(|l| crossed.contains(l))
}

/// A program with a share for every route that keeps the limits: the answer for small models by another way. With `most_routes`, chains are held to their number of routes by whole variables.
pub struct RouteProgram {
    pub program: te::arc::Program,
    /// Program row of each row of the instance that anything loads.
    pub capacity_rows: std::collections::BTreeMap<usize, usize>,
}

impl RouteProgram {
    pub fn new(
        model: &Model,
        instance: &Instance,
        objective: Objective,
        most_routes: bool,
    ) -> RouteProgram {
        let mut program = te::arc::Program {
            maximise: objective == Objective::Throughput,
            ..Default::default()
        };
        let scale = (objective == Objective::Scale).then(|| program.column(1.0, f64::INFINITY));
        let mut loads: Vec<Vec<(usize, f64)>> = vec![Vec::new(); instance.rows()];
        let mut capacity_rows = std::collections::BTreeMap::new();
        let mut used: std::collections::BTreeMap<(u32, te::instance::Route), Vec<usize>> =
            Default::default();
        for (c, commodity) in instance.commodities.iter().enumerate() {
            let mut sum = Vec::new();
            for route in all_routes(instance, c)
                .into_iter()
                .filter(|r| keeps_limits(model, instance, c, r))
            {
                let cost = match objective {
                    Objective::Throughput => commodity.worth,
                    Objective::Latency => instance.weighted_latency(commodity, &route),
                    Objective::Scale => 0.0,
                };
                let x = program.column(cost, 1.0);
                sum.push((x, 1.0));
                let mut mine = std::collections::BTreeMap::new();
                instance.loads(commodity, &route, |row, load| {
                    *mine.entry(row).or_insert(0.0) += load
                });
                mine.into_iter()
                    .for_each(|(row, load)| loads[row].push((x, load)));
                used.entry((commodity.chain, route.clone()))
                    .or_default()
                    .push(x);
            }
            let least = if commodity.mandatory || objective != Objective::Throughput {
                1.0
            } else {
                0.0
            };
            program.rows.push((least, 1.0, sum));
        }
        for (row, mut entries) in loads.into_iter().enumerate().filter(|(_, e)| !e.is_empty()) {
            let limit = match scale {
                Some(t) => {
                    entries.push((t, -instance.capacity[row]));
                    0.0
                }
                None => instance.capacity[row],
            };
            capacity_rows.insert(row, program.rows.len());
            program.rows.push((f64::NEG_INFINITY, limit, entries));
        }
        program.integer = vec![false; program.cost.len()];
        if most_routes {
            for (chain, most) in &instance.max_routes {
                let mut count = Vec::new();
                for (_, shares) in used.iter().filter(|((c, _), _)| c == chain) {
                    let whole = program.column(0.0, 1.0);
                    *program.integer.last_mut().expect("a column was added") = true;
                    count.push((whole, 1.0));
                    for &x in shares {
                        program
                            .rows
                            .push((f64::NEG_INFINITY, 0.0, vec![(x, 1.0), (whole, -1.0)]));
                    }
                }
                program.rows.push((0.0, *most as f64, count));
            }
        }
        RouteProgram {
            program,
            capacity_rows,
        }
    }

    /// The optimum in the objective's unit; none when infeasible.
    pub fn solve(&self, objective: Objective) -> Option<f64> {
        // HiGHS has no opinion on programs without columns.
        if self.program.cost.is_empty() {
            return self
                .program
                .rows
                .iter()
                .all(|(low, ..)| *low <= 0.0)
                .then_some(0.0);
        }
        match te::highs::solve(&self.program, te::highs::Method::Simplex, 60.0) {
            te::highs::Outcome::Optimal(value, _) if objective == Objective::Scale => {
                Some(1.0 / value)
            }
            te::highs::Outcome::Optimal(value, _) => Some(value),
            te::highs::Outcome::Infeasible => None,
            te::highs::Outcome::Other(status) => panic!("HiGHS stopped with {status}"),
        }
    }
}

/// A model whose VNFs are at one site each, and one more for each where there is another site.
pub fn placeable(seed: u64) -> (Model, Vec<usize>) {
    let mut model = random_model(seed);
    if seed % 2 == 1 {
        divide_chains(&mut model, 5);
    }
    for vnf in &mut model.vnfs {
        vnf.deployments.truncate(1);
    }
    let new = vec![usize::from(model.sites.len() > 1); model.vnfs.len()];
    (model, new)
}
