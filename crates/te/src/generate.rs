//! Models in the manner of the paper's section 7.3: a backbone with sites at all nodes, random VNFs and chains.
//!
//! What the paper took from an operator (capacities, traffic matrix) is invented here and said so: node weights by
//! degree, gravity traffic between all pairs, each link the smallest of the usual line rates that carries its
//! gravity traffic with room to spare. Switchboard's traffic and background share the network 4 : 1.

use std::collections::BTreeSet;

use crate::error::{InputError, Reason};
use crate::model::ranges;
use crate::model::{Chain, Deployment, Ends, Limits, Model, Routing, Site, Vnf};
use crate::network::Network;
use crate::random::Random;

/// How a site's compute is divided among the VNFs that run there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Division {
    /// Equally, as in the paper.
    Equal,
    /// Each VNF may use up to four equal shares, the site's capacity being the limit for all.
    Overbooked,
    /// In proportion to the demand for each VNF. One that no chain visits has none, and is deployed nowhere.
    Proportional,
}

/// What to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Number of VNFs.
    pub vnfs: usize,
    /// Share of all sites at which each VNF is deployed.
    pub coverage: f64,
    /// Number of chains.
    pub chains: usize,
    /// `load_per_mbps` of every VNF. At 1 all sites together can just handle the demand.
    pub cpu_per_byte: f64,
    /// Division of the sites' compute.
    pub division: Division,
    /// Factor on all chains' traffic.
    pub demand: f64,
    /// Seed.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            vnfs: 100,
            coverage: 0.5,
            chains: 10_000,
            cpu_per_byte: 0.1,
            division: Division::Equal,
            demand: 1.0,
            seed: 1,
        }
    }
}

/// Line rates that links are given, Mbit/s.
const RATES: [f64; 5] = [40_000.0, 100_000.0, 200_000.0, 400_000.0, 500_000.0];

/// Mean gravity traffic of a pair of nodes, Mbit/s.
const PAIR_MBPS: f64 = 1500.0;

/// Share of the traffic that is background.
const BACKGROUND: f64 = 0.2;

/// Gravity traffic fills at most this share of a link.
const FILL: f64 = 0.5;

/// Generates a model on a backbone: nodes and links whose latencies are kept and whose bandwidths are replaced.
///
/// # Errors
/// A backbone that is not connected, or options out of range, named as the command's options.
pub fn generate(backbone: &Model, options: &Options) -> Result<Model, InputError> {
    let refuse = |option: &str, message: &str| InputError::new(option, Reason::OutOfRange, message);
    if !(options.coverage > 0.0 && options.coverage <= 1.0) {
        return Err(refuse("--coverage", "must be above 0 and at most 1"));
    }
    let written = [
        ("--cpu-per-byte", options.cpu_per_byte, ranges::LOAD),
        ("--demand", options.demand, ranges::DEMAND),
    ];
    for (option, number, range) in written {
        if let Err(message) = range.holds(number) {
            return Err(refuse(option, &message));
        }
    }
    if options.vnfs < 5 {
        return Err(refuse(
            "--vnfs",
            "chains have up to 5 VNFs, so at least 5 are needed",
        ));
    }
    if backbone.nodes.len() < 2 {
        return Err(refuse("--backbone", "needs at least two nodes"));
    }
    let network = Network::of(backbone);
    if !network.connects_everything() {
        return Err(refuse(
            "--backbone",
            "is not connected; chains could not be routed",
        ));
    }
    let mut random = Random::new(options.seed);
    let mut model = backbone.clone();
    model.routing = Routing::ShortestPath;
    let weights = node_weights(&model, &mut random);
    dimension_links(&mut model, &network, &weights);
    model.chains = chains(options, &weights, &mut random);
    let demand = vnf_demand(&model, options.vnfs);
    deploy(&mut model, options, &demand, &mut random);
    Ok(model)
}

fn node_weights(model: &Model, random: &mut Random) -> Vec<f64> {
    let mut degree = vec![0.0; model.nodes.len()];
    for link in &model.links {
        degree[link.from] += 1.0;
    }
    let raw: Vec<f64> = degree
        .iter()
        .map(|d| d * random.between(0.5, 1.5))
        .collect();
    let total: f64 = raw.iter().sum();
    raw.iter().map(|w| w / total).collect()
}

/// Gravity traffic between two nodes, Mbit/s.
fn gravity(weights: &[f64], from: usize, to: usize) -> f64 {
    let count = weights.len() as f64;
    if from == to {
        0.0
    } else {
        PAIR_MBPS * count * count * weights[from] * weights[to]
    }
}

fn dimension_links(model: &mut Model, network: &Network, weights: &[f64]) {
    let mut load = vec![0.0; model.links.len()];
    for from in 0..weights.len() {
        for to in 0..weights.len() {
            let traffic = gravity(weights, from, to);
            network
                .path(from, to)
                .for_each(|(link, r)| load[link] += r * traffic);
        }
    }
    for (link, load) in model.links.iter_mut().zip(load) {
        let rate = RATES.iter().find(|&&rate| load <= FILL * rate);
        link.bandwidth_mbps = rate
            .copied()
            .unwrap_or((load / FILL / 100_000.0).ceil() * 100_000.0);
        link.background_mbps = BACKGROUND * load;
    }
}

fn chains(options: &Options, weights: &[f64], random: &mut Random) -> Vec<Chain> {
    let count = weights.len();
    let total: f64 = (0..count * count)
        .map(|i| gravity(weights, i / count, i % count))
        .sum();
    let mut chains: Vec<Chain> = (0..options.chains)
        .map(|index| {
            let ingress = random.below(count);
            let egress = (ingress + 1 + random.below(count - 1)) % count;
            let length = 3 + random.below(3);
            let vnfs = random.sample(options.vnfs, length);
            let forward = weights[ingress] * random.between(0.5, 1.5);
            let reverse = forward * random.between(0.1, 0.5);
            Chain {
                id: format!("c{index}"),
                customer: None,
                ingress: Ends::Any(vec![ingress]),
                egress: Ends::Any(vec![egress]),
                vnfs,
                forward_mbps: vec![forward; length + 1],
                reverse_mbps: vec![reverse; length + 1],
                priority: 1.0,
                minimum_share: None,
                survive_share: None,
                limits: Limits::default(),
            }
        })
        .collect();
    let offered: f64 = chains.iter().map(Chain::demand_mbps).sum();
    let scale = options.demand * (1.0 - BACKGROUND) * total / offered;
    for chain in &mut chains {
        chain
            .forward_mbps
            .iter_mut()
            .chain(&mut chain.reverse_mbps)
            .for_each(|mbps| *mbps *= scale);
    }
    chains
}

/// Gives the links of nodes with one neighbour room for the chains that begin and end there. No routing avoids these links,
/// so one that is too small would decide every figure of throughput alone: their own chains fill them to `fill` at most.
pub fn widen_access(model: &mut Model, fill: f64) {
    let mut neighbours = vec![BTreeSet::new(); model.nodes.len()];
    for link in &model.links {
        neighbours[link.from].insert(link.to);
    }
    let mut sent = vec![0.0; model.nodes.len()];
    let mut received = vec![0.0; model.nodes.len()];
    for chain in &model.chains {
        let last = chain.vnfs.len();
        if let (Ends::Any(ingress), Ends::Any(egress)) = (&chain.ingress, &chain.egress) {
            sent[ingress[0]] += chain.forward_mbps[0];
            received[ingress[0]] += chain.reverse_mbps[0];
            sent[egress[0]] += chain.reverse_mbps[last];
            received[egress[0]] += chain.forward_mbps[last];
        }
    }
    for link in &mut model.links {
        let mut own: f64 = 0.0;
        if neighbours[link.from].len() == 1 {
            own = own.max(sent[link.from]);
        }
        if neighbours[link.to].len() == 1 {
            own = own.max(received[link.to]);
        }
        let needed = (own + link.background_mbps) / fill;
        if own > 0.0 && link.bandwidth_mbps < needed {
            link.bandwidth_mbps = needed;
        }
    }
}

/// Traffic handled by each VNF, sent and received, Mbit/s.
fn vnf_demand(model: &Model, vnfs: usize) -> Vec<f64> {
    let mut demand = vec![0.0; vnfs];
    for chain in &model.chains {
        for (z, &vnf) in chain.vnfs.iter().enumerate() {
            demand[vnf] += chain.forward_mbps[z]
                + chain.reverse_mbps[z]
                + chain.forward_mbps[z + 1]
                + chain.reverse_mbps[z + 1];
        }
    }
    demand
}

fn deploy(model: &mut Model, options: &Options, demand: &[f64], random: &mut Random) {
    let count = model.nodes.len();
    let capacity = demand.iter().sum::<f64>() / options.demand / count as f64;
    model.sites = model
        .nodes
        .iter()
        .enumerate()
        .map(|(node, n)| Site {
            id: format!("s-{}", n.id),
            node,
            capacity,
        })
        .collect();
    let each = ((options.coverage * count as f64).round() as usize).clamp(1, count);
    let places: Vec<Vec<usize>> = (0..options.vnfs)
        .map(|_| random.sample(count, each))
        .collect();
    let mut tenants = vec![0.0; count];
    let mut weight = vec![0.0; count];
    let part = |vnf: usize| demand[vnf] / each as f64;
    for (vnf, sites) in places.iter().enumerate() {
        for &site in sites {
            tenants[site] += 1.0;
            weight[site] += part(vnf);
        }
    }
    let share = |vnf: usize, site: usize| match options.division {
        Division::Equal => capacity / tenants[site],
        Division::Overbooked => (4.0 * capacity / tenants[site]).min(capacity),
        Division::Proportional => capacity * part(vnf) / weight[site],
    };
    model.vnfs = places
        .iter()
        .enumerate()
        .map(|(vnf, sites)| Vnf {
            id: format!("f{vnf}"),
            load_per_mbps: options.cpu_per_byte,
            deployments: sites
                .iter()
                .filter(|_| options.division != Division::Proportional || demand[vnf] > 0.0)
                .map(|&site| Deployment {
                    site,
                    capacity: share(vnf, site),
                })
                .collect(),
        })
        .collect();
}
