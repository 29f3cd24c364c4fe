//! Backbones from the formats in which the world's data comes: nodes, links and, where given, demands.
//!
//! What a file leaves out is not invented: a link without a stated capacity is an error unless the caller gives
//! one, and a link without coordinates at its ends needs a stated latency. What is left out or changed is noted.

mod bounds;
mod graphml;
mod notes;
mod repetita;
mod sndlib;

use crate::error::InputError;
use crate::model::{Chain, Ends, KM_PER_MS, Limits, Link, Model, Node, Routing, great_circle_km};
pub use graphml::graphml;
pub use notes::{Change, Notes};
pub use repetita::{repetita, repetita_demands};
pub use sndlib::sndlib;

/// What to assume where a file is silent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Defaults {
    /// Bandwidth of links that state none, Mbit/s.
    pub bandwidth_mbps: Option<f64>,
    /// Latency of links that state none and lack coordinates, ms.
    pub latency_ms: Option<f64>,
}

/// Demand between two nodes, by index, Mbit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    /// Index of the node it comes from.
    pub from: usize,
    /// Index of the node it goes to.
    pub to: usize,
    /// Mbit/s.
    pub mbps: f64,
}

/// A model of nodes and links alone.
fn backbone(nodes: Vec<Node>, links: Vec<Link>) -> Model {
    Model {
        nodes,
        links,
        max_link_utilization: 1.0,
        routing: Routing::ShortestPath,
        sites: Vec::new(),
        vnfs: Vec::new(),
        customers: Default::default(),
        chains: Vec::new(),
    }
}

/// Demands as chains without VNFs, so that an imported matrix can be solved and checked as it is.
pub fn add_demands(model: &mut Model, demands: &[Traffic], notes: &mut Notes) {
    let first = model.chains.len();
    let name = |d: &Traffic| format!("{} > {}", model.nodes[d.from].id, model.nodes[d.to].id);
    for demand in demands {
        if demand.from == demand.to {
            notes.add(Change::SelfDemand, name(demand));
        } else if demand.mbps <= 0.0 {
            notes.add(Change::NoDemand, name(demand));
        }
    }
    model.chains.extend(
        demands
            .iter()
            .filter(|d| d.mbps > 0.0 && d.from != d.to)
            .enumerate()
            .map(|(i, demand)| Chain {
                id: format!("demand-{}", first + i),
                customer: None,
                ingress: Ends::Any(vec![demand.from]),
                egress: Ends::Any(vec![demand.to]),
                vnfs: Vec::new(),
                forward_mbps: vec![demand.mbps],
                reverse_mbps: vec![0.0],
                priority: 1.0,
                minimum_share: None,
                survive_share: None,
                limits: Limits::default(),
            }),
    );
}

/// Notes nodes that demands of another file do not mention: its numbers are places in the topology's list of nodes, so that many
/// may tell that it belongs to another topology.
pub fn note_nodes_without_demand(model: &Model, demands: &[Traffic], notes: &mut Notes) {
    let mut is_named = vec![false; model.nodes.len()];
    for demand in demands {
        is_named[demand.from] = true;
        is_named[demand.to] = true;
    }
    for (node, is_named) in model.nodes.iter().zip(is_named) {
        if !is_named {
            notes.add(Change::NodeWithoutDemand, &node.id);
        }
    }
}

/// Notes nodes of which it is not known where they are.
fn note_places(nodes: &[Node], notes: &mut Notes) {
    for node in nodes.iter().filter(|n| n.coordinates.is_none()) {
        notes.add(Change::NoCoordinates, &node.id);
    }
}

/// Notes links beside the first one between the same nodes in the same direction.
fn note_parallels(links: &[Link], notes: &mut Notes) {
    let mut seen = std::collections::HashSet::new();
    for link in links.iter().filter(|l| !seen.insert((l.from, l.to))) {
        notes.add(Change::ParallelLink, &link.id);
    }
}

/// Latency of a link by its ends' coordinates, else the default, else an error at `place`.
fn latency(
    (a, b): (&Node, &Node),
    defaults: &Defaults,
    place: &str,
    notes: &mut Notes,
) -> Result<f64, InputError> {
    use crate::error::Reason;
    match (a.coordinates, b.coordinates, defaults.latency_ms) {
        (Some(a), Some(b), _) => Ok(great_circle_km(a, b) / KM_PER_MS),
        (_, _, Some(latency)) => {
            notes.add(Change::DefaultLatency, format!("{} - {}", a.id, b.id));
            Ok(latency)
        }
        _ => {
            let bare = if a.coordinates.is_none() {
                &a.id
            } else {
                &b.id
            };
            let message = format!(
                "node '{bare}' has no coordinates to compute a latency from; give --default-latency"
            );
            Err(InputError::new(place, Reason::MissingField, message))
        }
    }
}

/// Makes identifiers unique: repeated ones get their position added, which is noted as `change`.
fn unique(ids: Vec<String>, change: Change, notes: &mut Notes) -> Vec<String> {
    let mut seen: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    for id in &ids {
        *seen.entry(id).or_default() += 1;
    }
    let repeated: Vec<bool> = ids.iter().map(|id| seen[id.as_str()] > 1).collect();
    let mut taken: std::collections::HashSet<String> = std::collections::HashSet::new();
    ids.iter()
        .enumerate()
        .map(|(i, id)| {
            let mut name = if repeated[i] {
                format!("{id}#{i}")
            } else {
                id.clone()
            };
            while !taken.insert(name.clone()) {
                name.push('#');
            }
            if name != *id {
                notes.add(change, &name);
            }
            name
        })
        .collect()
}
