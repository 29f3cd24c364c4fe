//! SB-DP: every chain over the route that is cheapest at the loads it finds.

use super::nearest;
use super::state::{Costs, State, Used, UsedRoutes};
use super::watch::Watch;
use crate::instance::Instance;
use crate::kernel::Scratch;
use crate::solution::{Flow, Objective, value};

/// A remainder smaller than this share of a chain's demand counts as carried.
pub(super) const CARRIED: f64 = 1e-9;

/// Routes chains in order into the capacity that is left; what must be carried goes first.
pub fn fill(instance: &Instance, objective: Objective, watch: &Watch<'_>) -> Vec<Flow> {
    let mut state = State::new(instance, Costs::for_objective(objective), true);
    let mut flows = Vec::with_capacity(instance.commodities.len());
    let mut scratch = Scratch::default();
    let mut used = Used::default();
    let mut order: Vec<usize> = (0..instance.commodities.len()).collect();
    order.sort_by_key(|&c| !instance.commodities[c].mandatory);
    for (at, &index) in order.iter().enumerate() {
        if watch.is_over_at(at) {
            let all = vec![1.0; order.len()];
            nearest::fill(
                instance,
                &mut state,
                &order[at..],
                &all,
                &mut used,
                &mut flows,
            );
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
    let mut limits = carry(
        instance, state, index, share, &mut used, scratch, &mut flows,
    );
    let carried: f64 = flows.iter().map(|f| f.fraction).sum();
    if share - carried > CARRIED && limits.is_empty() {
        limits = state.blocking(instance, &instance.commodities[index]);
    }
    (flows, limits)
}

/// Carries up to a share of a commodity; returns the rows that limited it.
pub(super) fn carry(
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
    limits
}
