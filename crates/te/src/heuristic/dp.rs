//! SB-DP: every chain over the route that is cheapest at the loads it finds.

use super::state::{Costs, State, UsedRoutes};
use crate::instance::{Instance, Route};
use crate::kernel::Scratch;
use crate::solution::{Flow, loads, tightest};

/// A remainder smaller than this share of a chain's demand counts as carried.
const CARRIED: f64 = 1e-9;

/// Sweeps of re-routing under the scale objective.
const SWEEPS: usize = 3;

/// Routes chains in order into the capacity that is left; what must be carried goes first.
pub fn fill(instance: &Instance, costs: Costs) -> Vec<Flow> {
    let mut state = State::new(instance, costs, true);
    let mut flows = Vec::with_capacity(instance.commodities.len());
    let mut scratch = Scratch::default();
    for mandatory in [true, false] {
        for commodity in (0..instance.commodities.len())
            .filter(|&c| instance.commodities[c].mandatory == mandatory)
        {
            fill_one(instance, &mut state, commodity, &mut scratch, &mut flows);
        }
    }
    flows
}

/// Carries as much of one commodity as fits, route after route.
fn fill_one(
    instance: &Instance,
    state: &mut State,
    index: usize,
    scratch: &mut Scratch,
    flows: &mut Vec<Flow>,
) {
    let used = instance.routes_of(instance.commodities[index].chain, flows);
    carry(instance, state, index, 1.0, used, scratch, flows);
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
    let used = instance.routes_of(instance.commodities[index].chain, &[]);
    let mut flows = Vec::new();
    let limits = carry(instance, state, index, share, used, scratch, &mut flows);
    (flows, limits)
}

/// Carries up to a share of a commodity; returns the rows that limited it.
fn carry(
    instance: &Instance,
    state: &mut State,
    index: usize,
    share: f64,
    mut used: UsedRoutes,
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
        let (share, limit) = state.room(instance, commodity, &route, left);
        if share > 0.0 {
            state.add(instance, commodity, &route, share);
            used.insert(&route);
            flows.push(Flow {
                commodity: index,
                route,
                fraction: share,
            });
            left -= share;
        }
        match limit {
            // The row is full but for rounding: say so, or the same route would be found again.
            Some(row) => {
                state.fill_up(instance, row);
                limits.push(row);
            }
            None => break,
        }
    }
    if left > CARRIED && limits.is_empty() {
        limits = state.blocking(instance, commodity);
    }
    limits
}

/// Routes every chain whole, then re-routes each at the loads of all others; keeps the best sweep.
pub fn spread(instance: &Instance, costs: Costs) -> Vec<Flow> {
    let mut scratch = Scratch::default();
    let mut state = State::new(instance, costs, false);
    state.set_reference(instance, reference_guess(instance));
    let mut routes: Vec<Option<Route>> = vec![None; instance.commodities.len()];
    let mut best: (f64, Vec<Flow>) = (f64::INFINITY, Vec::new());
    for sweep in 0..=SWEEPS {
        for (index, commodity) in instance.commodities.iter().enumerate() {
            if let Some(route) = &routes[index] {
                state.add(instance, commodity, route, -1.0);
            }
            if state.route(instance, commodity, &mut scratch).is_none() {
                return Vec::new();
            }
            if !routes[index].as_ref().is_some_and(|r| scratch.is(r)) {
                routes[index] = Some(scratch.route());
            }
            if let Some(route) = &routes[index] {
                state.add(instance, commodity, route, 1.0);
            }
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
        if sweep < SWEEPS {
            state.set_reference(instance, best.0);
        }
    }
    best.1
}

/// A first guess of the tightest row's utilisation: that of routes by hop count, spread evenly.
fn reference_guess(instance: &Instance) -> f64 {
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
        if index % step == 0 && state.route(instance, commodity, &mut scratch).is_some() {
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
