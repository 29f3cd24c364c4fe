//! Failures: routes with room left so that, whatever single link or site fails, every chain's stated share goes on.
//!
//! After a failure the network finds its shortest paths anew; chains whose routes did not touch what failed keep
//! them, and those that did are moved onto backup routes computed here. The value is the largest factor on all demands
//! for which the normal state and every failure hold; the bound is the least factor over all failures when everything
//! may be routed from scratch, which no routing beats.

use std::collections::HashSet;

use crate::error::Infeasible;
use crate::instance::{Demand, Instance};
use crate::lp::{self, Monitor, Options};
use crate::model::Model;
use crate::network::Network;
use crate::solution::{Flow, Objective, Solution, Status, loads};

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// A link, with the link of the opposite direction that shares its fibre.
    Link(usize),
    /// A site with all its VNFs.
    Site(usize),
}

/// The state after one failure.
#[derive(Debug, Clone)]
pub struct Contingency {
    /// What failed.
    pub failure: Failure,
    /// Its name in the model.
    pub name: String,
    /// Factor on the demands that the plan carries after it.
    pub value: f64,
    /// Factor when everything is routed from scratch after it, and its bound.
    pub from_scratch: f64,
    /// Share of the demand that changes its route.
    pub moved: f64,
    /// Backup routes of the chains that move, for [`Contingency::instance`].
    pub flows: Vec<Flow>,
    /// The instance after the failure: chains at their stated shares.
    pub instance: Instance,
}

/// Routes for the normal state and for every failure.
#[derive(Debug, Clone)]
pub struct Survivable {
    /// The normal routing; its value holds in every state.
    pub solution: Solution,
    /// Factor of the normal state alone.
    pub normal: f64,
    /// Every failure, in the model's order.
    pub failures: Vec<Contingency>,
}

/// Which failures are survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Against {
    /// Any single link.
    Links,
    /// Any single site.
    Sites,
}

/// Finds routes that survive any single failure.
///
/// # Errors
/// A chain that no routing carries after some failure, named with the failure.
pub fn solve(
    model: &Model,
    instance: &Instance,
    against: Against,
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<Survivable, Infeasible> {
    let start = std::time::Instant::now();
    let mut solution = lp::solve(model, instance, Objective::Scale, options, monitor)?;
    let normal = solution.value;
    let (mut value, mut bound) = (normal, solution.bound.unwrap_or(f64::INFINITY));
    let quiet = Monitor {
        report: None,
        interrupt: monitor.interrupt,
    };
    let mut failures = Vec::new();
    for failure in failures_of(model, against) {
        let contingency = after(model, instance, &solution, failure, options, &quiet)?;
        value = value.min(contingency.value);
        bound = bound.min(contingency.from_scratch * (1.0 + options.gap));
        failures.push(contingency);
    }
    solution.value = value;
    solution.bound = Some(bound);
    solution.seconds = start.elapsed().as_secs_f64();
    solution.status = if solution.gap().is_some_and(|g| g <= options.gap) {
        Status::Optimal
    } else {
        Status::Feasible
    };
    Ok(Survivable {
        solution,
        normal,
        failures,
    })
}

fn failures_of(model: &Model, against: Against) -> Vec<Failure> {
    match against {
        Against::Sites => (0..model.sites.len()).map(Failure::Site).collect(),
        Against::Links => {
            let mut taken = HashSet::new();
            let mut failures = Vec::new();
            for link in 0..model.links.len() {
                if taken.insert(link) {
                    if let Some(twin) = twin(model, link, &taken) {
                        taken.insert(twin);
                    }
                    failures.push(Failure::Link(link));
                }
            }
            failures
        }
    }
}

/// The link of the opposite direction on the same fibre: same ends and latency, the first that is not taken.
fn twin(model: &Model, link: usize, taken: &HashSet<usize>) -> Option<usize> {
    let one = &model.links[link];
    (0..model.links.len()).find(|&other| {
        let two = &model.links[other];
        other > link
            && !taken.contains(&other)
            && (two.from, two.to) == (one.to, one.from)
            && two.latency_ms == one.latency_ms
    })
}

/// The failed model: chains at the shares they must keep.
fn failed(model: &Model, failure: Failure) -> (Model, Vec<bool>, Network) {
    let mut after = model.clone();
    let mut alive = vec![true; model.links.len()];
    match failure {
        Failure::Link(link) => {
            alive[link] = false;
            if let Some(twin) = twin(model, link, &HashSet::new()) {
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

fn name(model: &Model, failure: Failure) -> String {
    match failure {
        Failure::Link(link) => format!("link {}", model.links[link].id),
        Failure::Site(site) => format!("site {}", model.sites[site].id),
    }
}

fn after(
    model: &Model,
    before: &Instance,
    solution: &Solution,
    failure: Failure,
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<Contingency, Infeasible> {
    let name = name(model, failure);
    let explain = |e: Infeasible| {
        let mut constraints = vec![name.clone()];
        constraints.extend(e.constraints);
        Infeasible {
            constraints,
            message: format!("after the failure of {name}: {}", e.message),
        }
    };
    let (model_after, _, network) = failed(model, failure);
    let mut instance =
        Instance::with_network(&model_after, network, Demand::Full).map_err(explain)?;
    // Chains that need not survive a failure put no load on it.
    let keeps: Vec<bool> = model
        .chains
        .iter()
        .map(|c| c.survive_share != Some(0.0))
        .collect();
    instance.commodities.retain(|c| keeps[c.chain as usize]);
    let scratch =
        lp::solve(&model_after, &instance, Objective::Scale, options, monitor).map_err(explain)?;
    let (staying, moving) = split(before, &instance, solution, failure);
    let everything: f64 = instance.commodities.iter().map(|c| c.demand).sum();
    let moved = moving
        .iter()
        .map(|&(c, share)| share * instance.commodities[c].demand)
        .sum::<f64>()
        / everything.max(1e-12);
    let mut part = instance.clone();
    let stay_loads = loads(&instance, &staying);
    part.base = stay_loads
        .iter()
        .zip(&instance.capacity)
        .map(|(l, c)| if *c > 0.0 { l / c } else { 0.0 })
        .collect();
    part.commodities = moving
        .iter()
        .map(|&(c, share)| {
            let mut commodity = instance.commodities[c].clone();
            commodity.demand *= share;
            commodity
        })
        .collect();
    part.scale_stages(&moving.iter().map(|m| m.1).collect::<Vec<_>>());
    let (value, flows) = if moving.is_empty() {
        let most = part.base.iter().copied().fold(0.0, f64::max);
        (
            if most > 0.0 {
                1.0 / most
            } else {
                f64::INFINITY
            },
            Vec::new(),
        )
    } else {
        let moved =
            lp::solve(&model_after, &part, Objective::Scale, options, monitor).map_err(explain)?;
        let flows = moved.flows.into_iter().map(|f| {
            let (commodity, share) = moving[f.commodity];
            Flow {
                commodity,
                route: f.route,
                fraction: f.fraction * share,
            }
        });
        (moved.value, flows.collect())
    };
    Ok(Contingency {
        failure,
        name,
        value,
        from_scratch: scratch.bound.unwrap_or(scratch.value),
        moved,
        flows,
        instance,
    })
}

/// Flows that a failure leaves alone, and the commodities that must move with their shares.
fn split(
    before: &Instance,
    after: &Instance,
    solution: &Solution,
    failure: Failure,
) -> (Vec<Flow>, Vec<(usize, f64)>) {
    // Commodities keep their order; those that need not survive are missing from `after`.
    let mut number = vec![None; before.commodities.len()];
    let mut next = 0;
    for (old, commodity) in before.commodities.iter().enumerate() {
        if after
            .commodities
            .get(next)
            .is_some_and(|c| (c.chain, c.first_stage) == (commodity.chain, commodity.first_stage))
        {
            number[old] = Some(next);
            next += 1;
        }
    }
    let mut staying = Vec::new();
    let mut moving: Vec<(usize, f64)> = Vec::new();
    for flow in &solution.flows {
        let Some(commodity) = number[flow.commodity] else {
            continue;
        };
        let touched = match failure {
            Failure::Site(site) => flow.route.sites.contains(&(site as u32)),
            Failure::Link(_) => before.hops(&flow.route).any(|(a, b)| {
                !before.network.path(a, b).eq(after.network.path(a, b))
                    || !before.network.path(b, a).eq(after.network.path(b, a))
            }),
        };
        if !touched {
            staying.push(Flow {
                commodity,
                ..flow.clone()
            });
        } else if let Some((last, share)) = moving.last_mut().filter(|(c, _)| *c == commodity) {
            *share += flow.fraction;
            debug_assert_eq!(*last, commodity);
        } else {
            moving.push((commodity, flow.fraction));
        }
    }
    (staying, moving)
}
