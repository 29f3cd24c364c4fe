//! The network between nodes: which links the traffic of a pair crosses, in which shares, and how long it takes.
//!
//! This is the paper's r and d. Switchboard does not route inside the network; it only chooses sites, and the
//! network carries what flows between two of them as its routers do.

use crate::model::{Model, Routing};

/// Latencies that differ by less than this, relatively, are equal.
const EQUAL: f64 = 1e-9;

/// Link shares and latency of every ordered pair of nodes.
#[derive(Debug, Clone)]
pub struct Network {
    nodes: usize,
    offset: Vec<u32>,
    links: Vec<u32>,
    fractions: Vec<f64>,
    latency: Vec<f64>,
}

impl Network {
    /// Computes the routing of a model.
    pub fn of(model: &Model) -> Network {
        match &model.routing {
            Routing::ShortestPath => shortest_paths(model, &vec![true; model.links.len()]),
            Routing::Fractions(_) => {
                let (pairs, latency) = given(model);
                Network::from_pairs(model.nodes.len(), pairs, latency)
            }
        }
    }

    /// The routing after the links that are not `alive` failed: shortest paths are found anew around them;
    /// given fractions cannot be, so pairs that used a failed link are cut.
    pub fn without(model: &Model, alive: &[bool]) -> Network {
        if let Routing::ShortestPath = model.routing {
            return shortest_paths(model, alive);
        }
        let (mut pairs, mut latency) = given(model);
        for (pair, latency) in pairs.iter_mut().zip(&mut latency) {
            if pair.iter().any(|(link, _)| !alive[*link as usize]) {
                pair.clear();
                *latency = f64::INFINITY;
            }
        }
        Network::from_pairs(model.nodes.len(), pairs, latency)
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// d: mean latency over the routing's fractions, ms; infinite where no route exists.
    pub fn latency_ms(&self, from: usize, to: usize) -> f64 {
        self.latency[from * self.nodes + to]
    }

    /// The links that traffic from one node to the other crosses, with its share on each.
    pub fn path(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let pair = from * self.nodes + to;
        let range = self.offset[pair] as usize..self.offset[pair + 1] as usize;
        self.links[range.clone()]
            .iter()
            .map(|&l| l as usize)
            .zip(self.fractions[range].iter().copied())
    }

    /// Σ_e r_{from,to,e} · price_e for every pair, as a matrix by rows.
    pub fn sum_over_paths(&self, price: &[f64], into: &mut Vec<f64>) {
        into.clear();
        into.extend(self.offset.windows(2).map(|w| {
            let range = w[0] as usize..w[1] as usize;
            self.links[range.clone()]
                .iter()
                .zip(&self.fractions[range])
                .map(|(&l, &r)| price[l as usize] * r)
                .sum::<f64>()
        }));
    }

    /// Whether every node reaches every other.
    pub fn connects_everything(&self) -> bool {
        self.latency.iter().all(|l| l.is_finite())
    }

    fn from_pairs(nodes: usize, mut pairs: Vec<Vec<(u32, f64)>>, latency: Vec<f64>) -> Network {
        let mut network = Network {
            nodes,
            offset: vec![0],
            links: Vec::new(),
            fractions: Vec::new(),
            latency,
        };
        for pair in &mut pairs {
            pair.sort_by_key(|(link, _)| *link);
            network.links.extend(pair.iter().map(|(l, _)| *l));
            network.fractions.extend(pair.iter().map(|(_, r)| *r));
            network.offset.push(network.links.len() as u32);
        }
        network
    }
}

/// The stated routing: for each pair of nodes its links and fractions, and its latency.
fn given(model: &Model) -> (Vec<Vec<(u32, f64)>>, Vec<f64>) {
    let nodes = model.nodes.len();
    let mut pairs = vec![Vec::new(); nodes * nodes];
    let mut latency = vec![f64::INFINITY; nodes * nodes];
    for node in 0..nodes {
        latency[node * nodes + node] = 0.0;
    }
    if let Routing::Fractions(entries) = &model.routing {
        for entry in entries.iter().filter(|e| e.fraction > 0.0) {
            let pair = entry.from * nodes + entry.to;
            pairs[pair].push((entry.link as u32, entry.fraction));
            let before = if latency[pair].is_finite() {
                latency[pair]
            } else {
                0.0
            };
            latency[pair] = before + entry.fraction * model.links[entry.link].latency_ms;
        }
    }
    (pairs, latency)
}

fn shortest_paths(model: &Model, alive: &[bool]) -> Network {
    let nodes = model.nodes.len();
    let mut pairs = vec![Vec::new(); nodes * nodes];
    let mut latency = vec![f64::INFINITY; nodes * nodes];
    let mut incoming = vec![Vec::new(); nodes];
    let mut outgoing = vec![Vec::new(); nodes];
    for (index, link) in model.links.iter().enumerate().filter(|(i, _)| alive[*i]) {
        incoming[link.to].push(index);
        outgoing[link.from].push(index);
    }
    for target in 0..nodes {
        let tree = settle(model, &incoming, target);
        let next_hops: Vec<Vec<usize>> = (0..nodes)
            .map(|node| next_hops(model, &outgoing[node], &tree, node))
            .collect();
        let mut share = vec![0.0; nodes];
        for source in (0..nodes).filter(|&s| tree.distance[s].is_finite()) {
            let pair = &mut pairs[source * nodes + target];
            let mut total = 0.0;
            share[source] = 1.0;
            // Farthest first: a node's share is complete before it is passed on.
            for &node in tree.order[..=tree.rank[source]].iter().rev() {
                let amount = std::mem::take(&mut share[node]);
                if amount == 0.0 || node == target {
                    continue;
                }
                let each = amount / next_hops[node].len() as f64;
                for &link in &next_hops[node] {
                    pair.push((link as u32, each));
                    total += each * model.links[link].latency_ms;
                    share[model.links[link].to] += each;
                }
            }
            latency[source * nodes + target] = total;
        }
    }
    Network::from_pairs(nodes, pairs, latency)
}

/// Distances to one target; nodes in the order in which they were settled.
struct Tree {
    distance: Vec<f64>,
    order: Vec<usize>,
    rank: Vec<usize>,
}

/// Dijkstra toward `target`, by latency and then by hops, so that links of no latency make no loop.
fn settle(model: &Model, incoming: &[Vec<usize>], target: usize) -> Tree {
    let nodes = incoming.len();
    let mut distance = vec![f64::INFINITY; nodes];
    let mut hops = vec![usize::MAX; nodes];
    let mut rank = vec![usize::MAX; nodes];
    let mut order = Vec::with_capacity(nodes);
    (distance[target], hops[target]) = (0.0, 0);
    loop {
        let candidates = (0..nodes).filter(|&n| rank[n] == usize::MAX && distance[n].is_finite());
        let nearest = candidates.min_by(|&a, &b| {
            distance[a]
                .total_cmp(&distance[b])
                .then(hops[a].cmp(&hops[b]))
        });
        let Some(node) = nearest else { break };
        rank[node] = order.len();
        order.push(node);
        for &link in &incoming[node] {
            let (from, through) = (
                model.links[link].from,
                distance[node] + model.links[link].latency_ms,
            );
            if through < distance[from]
                || (through == distance[from] && hops[node] + 1 < hops[from])
            {
                (distance[from], hops[from]) = (through, hops[node] + 1);
            }
        }
    }
    Tree {
        distance,
        order,
        rank,
    }
}

fn next_hops(model: &Model, outgoing: &[usize], tree: &Tree, node: usize) -> Vec<usize> {
    let on_shortest = |&&link: &&usize| {
        let next = model.links[link].to;
        let through = tree.distance[next] + model.links[link].latency_ms;
        // A node settled earlier is nearer: requiring it keeps the next hops free of loops.
        tree.rank[next] < tree.rank[node]
            && through <= tree.distance[node] * (1.0 + EQUAL) + f64::MIN_POSITIVE
    };
    outgoing.iter().filter(on_shortest).copied().collect()
}
