//! What may fail, and the network and the demands after it.

use std::collections::{HashMap, VecDeque};

use crate::model::Model;
use crate::network::Network;

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A link, with the link of the opposite direction that shares its fibre.
    Link(usize),
    /// A site with all its VNFs.
    Site(usize),
}

/// Which failures are survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// Any single link.
    Links,
    /// Any single site.
    Sites,
}

impl Failure {
    /// What kind of thing fails, and its identifier.
    pub(super) fn name(self, model: &Model) -> (&'static str, &str) {
        match self {
            Failure::Link(link) => ("link", &model.links[link].id),
            Failure::Site(site) => ("site", &model.sites[site].id),
        }
    }

    /// JSON pointer of what fails.
    pub(super) fn pointer(self) -> String {
        match self {
            Failure::Link(link) => format!("/links/{link}"),
            Failure::Site(site) => format!("/sites/{site}"),
        }
    }
}

/// Every failure, in the model's order.
pub(super) fn failures_of(model: &Model, against: Against) -> Vec<Failure> {
    match against {
        Against::Sites => (0..model.sites.len()).map(Failure::Site).collect(),
        Against::Links => {
            let twins = twins(model);
            let first = |&link: &usize| twins[link].is_none_or(|twin| link < twin);
            (0..model.links.len())
                .filter(first)
                .map(Failure::Link)
                .collect()
        }
    }
}

/// For each link the one of the opposite direction on the same fibre. A model has directions only: of the links that join
/// the same ends those of equal latency are paired in the model's order, then those that are left, in that order too.
fn twins(model: &Model) -> Vec<Option<usize>> {
    let mut twins = vec![None; model.links.len()];
    let latency = |link: usize| model.links[link].latency_ms.to_bits();
    pair(model, &mut twins, latency);
    pair(model, &mut twins, |_| 0);
    twins
}

/// Pairs links without a twin whose ends are each other's and that are alike.
fn pair(model: &Model, twins: &mut [Option<usize>], alike: impl Fn(usize) -> u64) {
    let mut waiting: HashMap<(usize, usize, u64), VecDeque<usize>> = HashMap::new();
    for (index, link) in model.links.iter().enumerate() {
        if twins[index].is_some() {
            continue;
        }
        let partners = waiting.get_mut(&(link.to, link.from, alike(index)));
        match partners.and_then(VecDeque::pop_front) {
            Some(twin) => (twins[index], twins[twin]) = (Some(twin), Some(index)),
            None => waiting
                .entry((link.from, link.to, alike(index)))
                .or_default()
                .push_back(index),
        }
    }
}

/// The failed model: chains at the shares they must keep.
pub(super) fn failed(model: &Model, failure: Failure) -> (Model, Vec<bool>, Network) {
    let mut after = model.clone();
    let mut alive = vec![true; model.links.len()];
    match failure {
        Failure::Link(link) => {
            alive[link] = false;
            if let Some(twin) = twins(model)[link] {
                alive[twin] = false;
            }
        }
        Failure::Site(site) => {
            for vnf in &mut after.vnfs {
                vnf.deployments.retain(|d| d.site != site);
            }
        }
    }
    for chain in &mut after.chains {
        let share = chain.survive_share.unwrap_or(1.0);
        chain
            .forward_mbps
            .iter_mut()
            .chain(&mut chain.reverse_mbps)
            .for_each(|mbps| *mbps *= share);
    }
    let network = Network::without(model, &alive);
    (after, alive, network)
}
