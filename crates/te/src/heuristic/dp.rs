//! SB-DP: every chain over the route that is cheapest at the loads it finds.

use super::nearest::{self, Nearest};
use super::state::{Costs, State, Used, UsedRoutes};
use super::watch::Watch;
use crate::instance::{Instance, Route};
use crate::kernel::Scratch;
use crate::solution::{Flow, Objective, loads, tightest, value};

/// A remainder smaller than this share of a chain's demand counts as carried.
const CARRIED: f64 = 1e-9;

/// Sweeps of re-routing under the scale objective.
const SWEEPS: usize = 3;

/// Routes chains in order into the capacity that is left; what must be carried goes first.
pub fn fill(
    instance: &Instance,
    costs: Costs,
    objective: Objective,
    watch: &Watch<'_>,
) -> Vec<Flow> {
    let mut state = State::new(instance, costs, true);
    let mut flows = Vec::with_capacity(instance.commodities.len());
    let mut scratch = Scratch::default();
    let mut used = Used::default();
    let mut order: Vec<usize> = (0..instance.commodities.len()).collect();
    order.sort_by_key(|&c| !instance.commodities[c].mandatory);
    for (at, &index) in order.iter().enumerate() {
        if watch.is_over_at(at) {
            nearest::fill(instance, &mut state, &order[at..], &mut used, &mut flows);
            break;
        }
        let used = used.of(instance, instance.commodities[index].chain);
        carry(
            instance,
            &mut state,
            index,
            1.0,
            used,
            &mut scratch,
            &mut flows,
        );
        watch.report(at, at as f64 / order.len() as f64, || match objective {
            Objective::Throughput => value(instance, objective, &flows),
            // What only some chains travel is nobody's latency.
            Objective::Latency | Objective::Scale => f64::NAN,
        });
    }
    flows
}

/// Routes one commodity at the present loads: the routes, and the rows that ran out on the way, if any did.
pub fn route_one(
    instance: &Instance,
    state: &mut State,
    index: usize,
    scratch: &mut Scratch,
) -> (Vec<Flow>, Vec<usize>) {
    route_share(instance, state, index, 1.0, scratch)
}

/// As [`route_one`], for a share of the commodity's demand.
pub fn route_share(
    instance: &Instance,
    state: &mut State,
    index: usize,
    share: f64,
    scratch: &mut Scratch,
) -> (Vec<Flow>, Vec<usize>) {
    let mut used = UsedRoutes::none(instance, instance.commodities[index].chain);
    let mut flows = Vec::new();
    let limits = carry(
        instance, state, index, share, &mut used, scratch, &mut flows,
    );
    (flows, limits)
}

/// Carries up to a share of a commodity; returns the rows that limited it.
fn carry(
    instance: &Instance,
    state: &mut State,
    index: usize,
    share: f64,
    used: &mut UsedRoutes,
    scratch: &mut Scratch,
    flows: &mut Vec<Flow>,
) -> Vec<usize> {
    let commodity = &instance.commodities[index];
    let mut limits = Vec::new();
    let mut left = share;
    while left > CARRIED && state.route(instance, commodity, scratch).is_some() {
        let route = scratch.route();
        if !used.allows(&route) {
            break;
        }
        let needs = state.needs(instance, commodity, &route);
        let (share, limit) = state.room(instance, &needs, left);
        if share > 0.0 {
            state.put(instance, &needs, share);
            used.insert(&route);
            flows.push(Flow {
                commodity: index,
                route,
                fraction: share,
            });
            left -= share;
        }
        match limit {
            // The row is full but for rounding: say so, or the same route would be found again. Traffic so thin that a full
            // row does not cost enough would find it all the same.
            Some(row) if !limits.contains(&row) => {
                state.fill_up(instance, row);
                limits.push(row);
            }
            _ => break,
        }
    }
    if left > CARRIED && limits.is_empty() {
        limits = state.blocking(instance, commodity);
    }
    limits
}

/// Routes every chain whole, then re-routes each at the loads of all others; keeps the best sweep.
///
/// # Errors
/// A commodity that has no route at all.
pub fn spread(instance: &Instance, costs: Costs, watch: &Watch<'_>) -> Result<Vec<Flow>, usize> {
    let mut state = State::new(instance, costs, false);
    state.set_reference(instance, reference_guess(instance, watch));
    let mut routes: Vec<Option<Route>> = vec![None; instance.commodities.len()];
    let mut best: (f64, Vec<Flow>) = (f64::INFINITY, Vec::new());
    for sweep in 0..=SWEEPS {
        let count = routes.len() as f64;
        let report = |piece: usize| {
            let done = (sweep as f64 + piece as f64 / count) / (SWEEPS + 1) as f64;
            watch.report(piece, done, || 1.0 / best.0)
        };
        match spread_once(instance, &mut state, &mut routes, watch, report) {
            Swept::Whole => {}
            Swept::Stuck(commodity) => return Err(commodity),
            // A routing that is half re-routed is no worse an answer than any; the best sweep may be better.
            Swept::Stopped if sweep == 0 => complete(instance, &mut routes)?,
            Swept::Stopped => {}
        }
        let flows: Vec<Flow> = routes
            .iter()
            .flatten()
            .enumerate()
            .map(|(commodity, route)| Flow {
                commodity,
                route: route.clone(),
                fraction: 1.0,
            })
            .collect();
        state.load = loads(instance, &flows);
        let (_, utilization) = tightest(instance, &state.load);
        if utilization < best.0 {
            best = (utilization, flows);
        }
        if watch.was_cut_short() {
            break;
        }
        if sweep < SWEEPS {
            state.set_reference(instance, best.0);
        }
    }
    Ok(best.1)
}

/// How a sweep over all chains ended.
enum Swept {
    Whole,
    /// A commodity has no route.
    Stuck(usize),
    Stopped,
}

/// Routes every chain at the loads of all others.
fn spread_once(
    instance: &Instance,
    state: &mut State,
    routes: &mut [Option<Route>],
    watch: &Watch<'_>,
    report: impl Fn(usize),
) -> Swept {
    let mut scratch = Scratch::default();
    for (index, commodity) in instance.commodities.iter().enumerate() {
        if watch.is_over_at(index) {
            return Swept::Stopped;
        }
        if let Some(route) = &routes[index] {
            state.add(instance, commodity, route, -1.0);
        }
        if state.route(instance, commodity, &mut scratch).is_none() {
            return Swept::Stuck(index);
        }
        if !routes[index].as_ref().is_some_and(|r| scratch.is(r)) {
            routes[index] = Some(scratch.route());
        }
        if let Some(route) = &routes[index] {
            state.add(instance, commodity, route, 1.0);
        }
        report(index);
    }
    Swept::Whole
}

/// Gives commodities that have no route yet their nearest.
///
/// # Errors
/// One that has none.
fn complete(instance: &Instance, routes: &mut [Option<Route>]) -> Result<(), usize> {
    let mut nearest = Nearest::new(instance);
    for (index, commodity) in instance.commodities.iter().enumerate() {
        if routes[index].is_none() {
            routes[index] = Some(nearest.route(instance, commodity).ok_or(index)?);
        }
    }
    Ok(())
}

/// A first guess of the tightest row's utilisation: that of routes by hop count, spread evenly.
fn reference_guess(instance: &Instance, watch: &Watch<'_>) -> f64 {
    let mut state = State::new(
        instance,
        Costs {
            latency: 0.0,
            utilization: 1.0,
            growth: 0.0,
        },
        false,
    );
    let mut scratch = Scratch::default();
    let step = (instance.commodities.len() / 500).max(1);
    let mut sampled = 0.0;
    let mut total = 0.0;
    for (index, commodity) in instance.commodities.iter().enumerate() {
        total += commodity.demand;
        if index % step == 0
            && !watch.clock.is_over()
            && state.route(instance, commodity, &mut scratch).is_some()
        {
            sampled += commodity.demand;
            state.add(instance, commodity, &scratch.route(), 1.0);
        }
    }
    let (_, utilization) = tightest(instance, &state.load);
    if sampled > 0.0 && utilization > 0.0 {
        utilization * total / sampled / 3.0
    } else {
        1.0
    }
}
