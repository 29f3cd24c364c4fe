//! Failures: routes with room left so that, whatever single link or site fails, every chain's stated share goes on.
//!
//! After a failure the network finds its shortest paths anew; chains whose routes did not touch what failed keep
//! them, and those that did are moved onto backup routes computed here. Where that carries less than the worst failure
//! allows anyway, the others give way too, as little as needed. The value is the largest factor on all demands for which
//! the normal state and every failure hold; the bound is the least factor over all states when each is routed from
//! scratch, which no plan beats.

mod failure;
mod write;

use std::collections::HashMap;

pub use failure::{Against, Failure};
pub use write::to_json;

use crate::clock::{Clock, Grace};
use crate::error::{Constraint, Infeasible};
use crate::instance::{Commodity, Demand, Instance, Route};
use crate::lp::{self, Monitor, Options, Phase, Progress};
use crate::model::Model;
use crate::solution::{Flow, Objective, Solution, loads, value};
use failure::{failed, failures_of};

/// The state after one failure.
#[derive(Debug, Clone)]
pub struct Contingency {
    /// What failed.
    pub failure: Failure,
    /// Identifier of the link or site in the model.
    pub name: String,
    /// Factor on the demands that the plan carries after it.
    pub value: f64,
    /// Factor that is reached when everything is routed from scratch after it; at least that of the plan, whose routing is
    /// one of those. Infinite where nothing limits it.
    pub from_scratch: f64,
    /// Proved bound on it, and so on every plan; infinite where there is none.
    pub from_scratch_bound: f64,
    /// Share of the demand that changes its route.
    pub moved: f64,
    /// Share of the traffic on routes that the failure leaves alone that stays there.
    pub keep: f64,
    /// Backup routes of all other traffic, for [`Contingency::instance`].
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
    /// Links or sites whose failure there was not the time to provide for.
    pub not_covered: Vec<String>,
}

/// Finds routes that survive any single failure. Time is shared evenly among the failures; those that it does not suffice
/// for are named.
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
    let clock = Clock::new(options, monitor);
    let half = clock.share(options, 2);
    let mut solution = monitor.during(Phase::NormalState, clock.elapsed(), |monitor| {
        lp::solve(model, instance, Objective::Scale, &half, monitor)
    })?;
    let normal = solution.value;
    let (mut value, mut bound) = (normal, any_routes(&solution));
    solution.relaxed = None;
    let failures = failures_of(model, against);
    let mut states = Vec::new();
    let mut grace = clock.grace();
    for (i, &failure) in failures.iter().enumerate() {
        if grace.is_over() {
            break;
        }
        let limited = clock.share(options, 2 * (failures.len() - i));
        let quiet = monitor.quiet();
        let state = State::after(model, instance, &solution, failure, &limited, &quiet)?;
        value = value.min(state.best());
        bound = bound.min(state.bound);
        states.push(state);
        if let Some(report) = monitor.report {
            // What holds after the failures so far is no plan yet.
            report(&Progress {
                phase: Phase::Failures,
                bound,
                done: Some((i + 1) as f64 / failures.len() as f64),
                ..Progress::at(clock.elapsed())
            });
        }
    }
    let not_covered = failures[states.len()..].iter();
    let not_covered: Vec<String> = not_covered.map(|f| f.name(model).1.to_owned()).collect();
    let mut failures = settle_all(states, instance, &solution, value, &mut grace);
    solution.value = failures.iter().map(|f| f.value).fold(normal, f64::min);
    // Where nothing is left to carry, any factor holds.
    for failure in failures.iter_mut().filter(|f| f.value.is_infinite()) {
        failure.value = solution.value;
    }
    solution.bound = Some(bound);
    solution.seconds = clock.elapsed().as_secs_f64();
    // What holds in some states only is no optimum over all of them.
    let gap = solution.gap().filter(|_| not_covered.is_empty());
    solution.status = clock.status(gap, options.gap);
    Ok(Survivable {
        solution,
        normal,
        failures,
        not_covered,
    })
}

/// A bound for any number of routes: what stays and what is backed up make more than a chain has normally.
fn any_routes(solution: &Solution) -> f64 {
    solution.relaxed.or(solution.bound).unwrap_or(f64::INFINITY)
}

/// Makes every state carry `value`, those first that carry least; where there is not the time, they carry what they do.
fn settle_all(
    states: Vec<State>,
    before: &Instance,
    normal: &Solution,
    value: f64,
    grace: &mut Grace<'_>,
) -> Vec<Contingency> {
    // A hair less, so that rounding in a mixture does not undercut what is stated.
    let target = value * (1.0 - 1e-12);
    let mut order: Vec<usize> = (0..states.len()).collect();
    order.sort_by(|&a, &b| states[a].kept.0.total_cmp(&states[b].kept.0));
    let mut states: Vec<Option<State>> = states.into_iter().map(Some).collect();
    let mut settled: Vec<Option<Contingency>> = states.iter().map(|_| None).collect();
    for index in order {
        let over = grace.is_over();
        settled[index] = states[index].take().map(|state| {
            if over || state.kept.0 >= target {
                state.unmixed()
            } else {
                state.settle(before, normal, target)
            }
        });
    }
    settled.into_iter().flatten().collect()
}

/// One failure before it is known how much all states together can carry.
struct State {
    failure: Failure,
    name: String,
    instance: Instance,
    /// Normal flows that stand.
    staying: Vec<Flow>,
    /// Backup routes of what was touched, and the factor with them.
    backup: (f64, Vec<Flow>),
    /// Everything from scratch, and its factor.
    scratch: (f64, Vec<Flow>),
    bound: f64,
    /// With backup routes and all that the failure leaves alone: the factor, and the share of the demand that moves.
    kept: (f64, f64),
}

impl State {
    fn after(
        model: &Model,
        before: &Instance,
        solution: &Solution,
        failure: Failure,
        options: &Options,
        monitor: &Monitor<'_>,
    ) -> Result<State, Infeasible> {
        let (kind, name) = failure.name(model);
        let explain = |e: Infeasible| {
            let mut constraints = vec![Constraint {
                name: format!("{kind} {name}"),
                pointer: failure.pointer(),
                scarce: "has failed".into(),
            }];
            constraints.extend(e.constraints);
            let message = format!("after the failure of {kind} {name}: {}", e.message);
            Infeasible {
                constraints,
                message,
            }
        };
        let (model_after, _, network) = failed(model, failure);
        let mut instance =
            Instance::with_network(&model_after, network, Demand::Full).map_err(explain)?;
        // Chains that need not survive a failure put no load on it.
        let keeps = |c: &Commodity| model.chains[c.chain as usize].survive_share != Some(0.0);
        instance.commodities.retain(keeps);
        let (scratch, bound) = if instance.commodities.is_empty() {
            ((f64::INFINITY, Vec::new()), f64::INFINITY)
        } else {
            let solved = largest(&model_after, &instance, options, monitor).map_err(explain)?;
            let bound = any_routes(&solved);
            ((solved.value, solved.flows), bound)
        };
        let (staying, moving) = split(before, &instance, solution, failure);
        let backup = backup(&model_after, &instance, &staying, &moving, options, monitor)
            .map_err(explain)?;
        let all: Vec<Flow> = staying.iter().chain(&backup.1).cloned().collect();
        let kept = (
            value(&instance, Objective::Scale, &all),
            moved(before, solution, &instance, &all),
        );
        Ok(State {
            failure,
            name: name.to_owned(),
            kept,
            staying,
            backup,
            bound,
            scratch,
            instance,
        })
    }

    fn best(&self) -> f64 {
        self.backup.0.max(self.scratch.0)
    }

    /// Backup routes and all that the failure leaves alone.
    fn unmixed(self) -> Contingency {
        let (value, moved) = self.kept;
        Contingency {
            value,
            moved,
            failure: self.failure,
            name: self.name,
            from_scratch: self.scratch.0.max(value),
            from_scratch_bound: self.bound,
            keep: 1.0,
            flows: self.backup.1,
            instance: self.instance,
        }
    }

    /// The routing that carries `target` and leaves as much as possible where it is: backup routes for what was touched,
    /// mixed with the routing from scratch as far as needed.
    fn settle(self, before: &Instance, normal: &Solution, target: f64) -> Contingency {
        let instance = &self.instance;
        let mut all = self.staying.clone();
        all.extend(self.backup.1.iter().cloned());
        let (mine, other) = (loads(instance, &all), loads(instance, &self.scratch.1));
        let mut keep: f64 = 1.0;
        for row in 0..instance.rows() {
            let room = instance.capacity[row] / target;
            if mine[row] > room && mine[row] > other[row] {
                keep = keep.min(((room - other[row]) / (mine[row] - other[row])).max(0.0));
            }
        }
        let mut flows: Vec<Flow> = Vec::new();
        for (part, from) in [(keep, self.backup.1), (1.0 - keep, self.scratch.1)] {
            let scaled = from.into_iter().map(|f| Flow {
                fraction: part * f.fraction,
                ..f
            });
            flows.extend(scaled.filter(|f| f.fraction > 0.0));
        }
        let stays = !self.staying.is_empty();
        let kept = self.staying.into_iter().map(|f| Flow {
            fraction: keep * f.fraction,
            ..f
        });
        let whole: Vec<Flow> = kept.chain(flows.iter().cloned()).collect();
        let value = value(instance, Objective::Scale, &whole);
        Contingency {
            value,
            moved: moved(before, normal, instance, &whole),
            failure: self.failure,
            name: self.name,
            from_scratch: self.scratch.0.max(value),
            from_scratch_bound: self.bound,
            keep: if stays { keep } else { 1.0 },
            flows,
            instance: self.instance,
        }
    }
}

/// Share of the demand that is not on the routes of the normal state.
fn moved(before: &Instance, normal: &Solution, after: &Instance, flows: &[Flow]) -> f64 {
    type Key<'a> = (u32, &'a Route);
    let mut old: HashMap<Key<'_>, f64> = HashMap::new();
    for flow in &normal.flows {
        let c = &before.commodities[flow.commodity];
        *old.entry((c.chain, &flow.route)).or_insert(0.0) += flow.fraction * c.share;
    }
    let mut new: HashMap<Key<'_>, f64> = HashMap::new();
    let mut demand: HashMap<u32, f64> = HashMap::new();
    for flow in flows {
        let c = &after.commodities[flow.commodity];
        *new.entry((c.chain, &flow.route)).or_insert(0.0) += flow.fraction * c.share;
        demand.insert(c.chain, c.demand / c.share);
    }
    let more = |(key, share): (&Key<'_>, &f64)| {
        demand[&key.0] * (share - old.get(key).copied().unwrap_or(0.0)).max(0.0)
    };
    let mut moving: Vec<f64> = new.iter().map(more).collect();
    // Summed in order of size, so that the sum does not depend on the order of the map.
    moving.sort_by(f64::total_cmp);
    let mut total: Vec<f64> = demand.into_values().collect();
    total.sort_by(f64::total_cmp);
    moving.iter().sum::<f64>() / total.iter().sum::<f64>().max(f64::MIN_POSITIVE)
}

/// Backup routes for what must move, around what stays; and the factor that both together carry.
fn backup(
    model: &Model,
    instance: &Instance,
    staying: &[Flow],
    moving: &[(usize, f64)],
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<(f64, Vec<Flow>), Infeasible> {
    if moving.is_empty() {
        return Ok((value(instance, Objective::Scale, staying), Vec::new()));
    }
    let mut part = instance.clone();
    part.base = loads(instance, staying)
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
    let solved = largest(model, &part, options, monitor)?;
    let flows = solved.flows.into_iter().map(|f| {
        let (commodity, share) = moving[f.commodity];
        Flow {
            commodity,
            route: f.route,
            fraction: f.fraction * share,
        }
    });
    Ok((solved.value, flows.collect()))
}

/// The routing with the largest factor; where nothing limits it, as what is left after a failure may load nothing, any that
/// carries everything, with a factor without end.
fn largest(
    model: &Model,
    instance: &Instance,
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<Solution, Infeasible> {
    match lp::solve(model, instance, Objective::Scale, options, monitor) {
        Err(e) if e == Infeasible::unbounded() => {
            let any = lp::solve(model, instance, Objective::Latency, options, monitor)?;
            Ok(Solution {
                value: f64::INFINITY,
                bound: None,
                relaxed: None,
                ..any
            })
        }
        solved => solved,
    }
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
