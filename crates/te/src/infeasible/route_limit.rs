//! Chains that may have too few routes for their demand: one whatever the others do, or all together.

use super::probe::Probe;
use super::rows::{figure, row};
use crate::error::{Constraint, Infeasible};
use crate::instance::{Commodity, Instance};
use crate::model::Model;

/// Halvings of the interval in which the widest route's room is searched.
const HALVINGS: usize = 50;

/// A chain's demand between one pair of ends that must be carried over at most so many routes.
struct Held<'a> {
    commodity: &'a Commodity,
    /// Demand as a multiple of the commodity's.
    times: f64,
    /// Most routes that this pair of ends may have, the others having one each.
    most: usize,
}

/// The proof that a chain with `max_routes` cannot be carried: k routes carry at most k times what the widest one has room
/// for. None where that proves nothing, which does not mean that the demand fits.
pub fn too_few_routes(model: &Model, instance: &Instance) -> Option<Infeasible> {
    let mut chains: Vec<(&u32, &usize)> = instance.max_routes.iter().collect();
    chains.sort_unstable();
    chains
        .into_iter()
        .flat_map(|(&chain, &most)| held(instance, chain, most))
        .find(|h| !passes(model, instance, h, h.times / h.most as f64))
        .map(|h| explain(model, instance, &h))
}

/// What must be carried of a chain, by pairs of ends.
fn held(instance: &Instance, chain: u32, most: usize) -> Vec<Held<'_>> {
    let ends = |c: &Commodity| (instance.sources(c), instance.sinks(c));
    let mut pairs: Vec<Held<'_>> = Vec::new();
    let commodities = instance.commodities.iter();
    for commodity in commodities.filter(|c| c.chain == chain && c.mandatory) {
        let same = pairs
            .iter_mut()
            .find(|h| ends(h.commodity) == ends(commodity));
        match same {
            Some(held) => held.times += commodity.share / held.commodity.share,
            None => pairs.push(Held {
                commodity,
                times: 1.0,
                most: 0,
            }),
        }
    }
    let others = pairs.len().saturating_sub(1);
    pairs
        .iter_mut()
        .for_each(|h| h.most = most.saturating_sub(others).max(1));
    pairs
}

/// Whether some route within the chain's limits has room for a multiple of the commodity's demand.
fn passes(model: &Model, instance: &Instance, held: &Held<'_>, need: f64) -> bool {
    let limits = &model.chains[held.commodity.chain as usize].limits;
    Probe::new(instance, held.commodity, need, &|_| true)
        .latency(limits.clone())
        .is_some()
}

/// The proof, by a search through all choices of routes, that `chains` cannot be carried together within their `max_routes`: of all
/// that `instance` has, at most `factor` fits.
pub fn too_few_together(
    model: &Model,
    instance: &Instance,
    chains: &[u32],
    factor: f64,
) -> Infeasible {
    let limit = |chain: &u32| Constraint {
        name: format!("chain {}", model.chains[*chain as usize].id),
        pointer: format!("/chains/{chain}/max_routes"),
        scarce: format!("may take at most {} routes", instance.max_routes[chain]),
    };
    Infeasible {
        message: format!(
            "what must be carried fits on any number of routes; with max_routes only {} of it does, whatever routes are chosen",
            figure(factor)
        ),
        constraints: chains.iter().map(limit).collect(),
    }
}

fn explain(model: &Model, instance: &Instance, held: &Held<'_>) -> Infeasible {
    let needed = held.times / held.most as f64;
    let (mut widest, mut too_much) = (0.0, needed);
    for _ in 0..HALVINGS {
        let middle = 0.5 * (widest + too_much);
        if passes(model, instance, held, middle) {
            widest = middle;
        } else {
            too_much = middle;
        }
    }
    let index = held.commodity.chain as usize;
    let chain = &model.chains[index];
    let mbps = |need: f64| figure(need * held.commodity.demand);
    let mut constraints = vec![Constraint {
        name: format!("chain {}", chain.id),
        pointer: format!("/chains/{index}/max_routes"),
        scarce: format!(
            "over at most {} routes one must carry at least {} Mbit/s; the widest has room for {}",
            held.most,
            mbps(needed),
            mbps(widest)
        ),
    }];
    let narrow = narrowest(model, instance, held, too_much);
    constraints.extend(narrow.into_iter().map(|r| row(model, instance, r)));
    Infeasible {
        message: format!(
            "the chain '{}' has to carry {} Mbit/s, and no {} routes have room for that",
            chain.id,
            mbps(held.times),
            held.most
        ),
        constraints,
    }
}

/// A smallest set of rows that leaves no route as wide as that.
fn narrowest(model: &Model, instance: &Instance, held: &Held<'_>, need: f64) -> Vec<usize> {
    let limits = &model.chains[held.commodity.chain as usize].limits;
    let rows: Vec<usize> = (0..instance.rows()).collect();
    super::conflict::smallest(&rows, &|part| {
        let mut counts = vec![false; instance.rows()];
        part.iter().for_each(|&row| counts[row] = true);
        let counted = |row: usize| counts[row];
        let probe = Probe::new(instance, held.commodity, need, &counted);
        probe.latency(limits.clone()).is_none()
    })
}
