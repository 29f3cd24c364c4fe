//! Holding chains to at most so many routes: which routes stay, and the shares they then carry.

use std::collections::BTreeMap;

use super::*;
use crate::heuristic::{self, Heuristic};
use crate::instance::{Commodity, Route};

/// How much a route of the optimum counts beside those of SB-DP.
const SECOND: f64 = 1e-3;

/// Whether a route lies between a commodity's ends.
fn joins(instance: &Instance, commodity: &Commodity, route: &Route) -> bool {
    instance.sources(commodity).contains(&route.source)
        && instance.sinks(commodity).contains(&route.sink)
}

impl Solver<'_> {
    /// Holds chains to their number of routes: each keeps those that carry most in the optimum, and the rest is solved
    /// anew around them; or, where that is better, those that SB-DP gives it and what the optimum uses most besides; or, in a
    /// small model, what a search over the choices finds. The bound stays that of the problem without the limit, which is
    /// valid and may be loose, unless the search went through all choices.
    pub(super) fn limit_routes(&mut self, model: &Model) {
        // Without any routing there is nothing to hold to a limit.
        if self.instance.max_routes.is_empty() || self.value.is_infinite() {
            return;
        }
        let optimum = self.best.clone();
        let interior = self.interior.take().map(|(x, _)| x);
        self.hold_to(&optimum, &optimum, interior);
        if self.gap() <= self.options.gap || self.should_stop() || self.expansion.is_some() {
            return;
        }
        self.hold_to_few(model, &optimum);
        if self.gap() > self.options.gap && !self.should_stop() {
            self.choose_routes();
        }
    }

    /// Holds chains to the routes that SB-DP gives them, filled up with those that the optimum uses most, where that is better.
    fn hold_to_few(&mut self, model: &Model, optimum: &[f64]) {
        let Some(whole) = self.few_routes(model) else {
            return;
        };
        let (value, best) = (self.value, std::mem::take(&mut self.best));
        self.held = self.held.min(value);
        // Routes of SB-DP come before all others.
        let mut ranking = whole.clone();
        for (rank, x) in ranking.iter_mut().zip(optimum) {
            *rank += SECOND * x;
        }
        self.hold_to(&ranking, &whole, Some(whole.clone()));
        if value <= self.value {
            (self.value, self.best) = (value, best);
        }
    }

    /// Lets chains with a limit keep the routes with the largest shares in `ranking`, and solves anew from a start.
    fn hold_to(&mut self, ranking: &[f64], start: &[f64], interior: Option<Vec<f64>>) {
        let allowed = self.most_used(ranking);
        let x = self.restrict(start, &allowed);
        let interior = interior.map(|x| self.restrict(&x, &allowed));
        let largest = |s: &Self, x: &[f64]| s.utilization(x).into_iter().fold(0.0, f64::max);
        self.interior = interior
            .map(|x| (x.clone(), largest(self, &x)))
            .filter(|(_, room)| *room < 1.0);
        self.allowed = Some(allowed);
        (self.value, self.best) = (f64::INFINITY, x.clone());
        let utilization = self.utilization(&x);
        self.offer(&x, &utilization);
        if self.value.is_finite() {
            let target = self.options.gap;
            self.rounds(|s| s.gap() <= target);
        }
    }

    /// SB-DP's routing, which keeps the limits, as shares of columns; none where it leaves what must be carried.
    fn few_routes(&mut self, model: &Model) -> Option<Vec<f64>> {
        let found = if self.is_scale() {
            let (rest, quiet) = (self.clock.share(self.options, 1), self.monitor.quiet());
            let (dp, objective) = (Heuristic::Dp, Objective::Scale);
            heuristic::solve(model, self.instance, dp, objective, &rest, &quiet).ok()?
        } else {
            self.quick.clone()?
        };
        let mut shares = (!found.leaves_demand(self.instance)).then(|| self.columns_of(&found))?;
        shares.resize(self.columns.len(), 0.0);
        Some(shares)
    }

    /// The columns that may stay: for chains with a limit those of the routes that carry most, as many as they may have;
    /// for others all. Every commodity of a chain gets a column for each of the chain's routes between its ends.
    fn most_used(&mut self, ranking: &[f64]) -> Vec<bool> {
        let kept: Vec<(u32, Vec<Route>)> = self
            .carried_routes(ranking)
            .into_iter()
            .map(|(chain, list)| (chain, self.heaviest(chain, list)))
            .collect();
        let mut allowed: Vec<bool> = (0..self.columns.len())
            .map(|column| {
                let commodity = self.columns.commodity[column] as usize;
                let chain = self.instance.commodities[commodity].chain;
                self.columns.route(column).is_none()
                    || !self.instance.max_routes.contains_key(&chain)
            })
            .collect();
        let instance = self.instance;
        for (index, commodity) in instance.commodities.iter().enumerate() {
            let Ok(at) = kept.binary_search_by_key(&commodity.chain, |(chain, _)| *chain) else {
                continue;
            };
            for route in kept[at].1.iter().filter(|r| joins(instance, commodity, r)) {
                let (column, new) = self.columns.add(instance, &self.costing, index, route);
                if new {
                    allowed.push(true);
                }
                allowed[column] = true;
            }
        }
        allowed
    }

    /// The routes of a routing for every chain with a limit, with the demand that each carries.
    fn carried_routes(&self, x: &[f64]) -> BTreeMap<u32, Vec<(Route, f64)>> {
        let mut carried: BTreeMap<u32, Vec<(Route, f64)>> = BTreeMap::new();
        for (column, &x) in x.iter().enumerate().filter(|(_, x)| **x > 0.0) {
            let commodity = &self.instance.commodities[self.columns.commodity[column] as usize];
            let Some(route) = self.columns.route(column) else {
                continue;
            };
            if self.instance.max_routes.contains_key(&commodity.chain) {
                let list = carried.entry(commodity.chain).or_default();
                match list.iter_mut().find(|(r, _)| r == route) {
                    Some((_, sum)) => *sum += x * commodity.demand,
                    None => list.push((route.clone(), x * commodity.demand)),
                }
            }
        }
        carried
    }

    /// As many routes as a chain may have: of each of its commodities the heaviest before any keeps a second one.
    fn heaviest(&self, chain: u32, mut list: Vec<(Route, f64)>) -> Vec<Route> {
        list.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut kept: Vec<Route> = Vec::new();
        let commodities = &self.instance.commodities;
        for commodity in commodities.iter().filter(|c| c.chain == chain) {
            let mine = |r: &&Route| joins(self.instance, commodity, r);
            if !kept.iter().any(|r| mine(&r)) {
                kept.extend(list.iter().map(|(r, _)| r).find(mine).cloned());
            }
        }
        let more = list.into_iter().map(|(r, _)| r);
        let more: Vec<Route> = more.filter(|r| !kept.contains(r)).collect();
        kept.extend(more);
        kept.truncate(self.instance.max_routes[&chain]);
        kept
    }

    /// Shares of the allowed columns alone; a commodity left without any goes uncarried, or to its first.
    pub(super) fn restrict(&self, x: &[f64], allowed: &[bool]) -> Vec<f64> {
        let mut restricted = vec![0.0; self.columns.len()];
        for commodity in 0..self.instance.commodities.len() {
            let mine: Vec<usize> = self.columns.of(commodity).filter(|&c| allowed[c]).collect();
            let share = |c: usize| x.get(c).copied().unwrap_or(0.0);
            let sum: f64 = mine.iter().map(|&c| share(c)).sum();
            let rest = mine
                .iter()
                .copied()
                .find(|&c| self.columns.route(c).is_none())
                .or(mine.first().copied());
            for &column in &mine {
                restricted[column] = if sum > 0.0 { share(column) / sum } else { 0.0 };
            }
            if let Some(rest) = rest.filter(|_| sum <= 0.0) {
                restricted[rest] = 1.0;
            }
        }
        restricted
    }

    /// Leaves out small shares while the proof still holds: an interior solution spreads a chain over more routes
    /// than it needs, and each costs forwarding state.
    pub(super) fn thin_out(&mut self) {
        let objective = self.costing.objective;
        let before = self.gap();
        if !before.is_finite() {
            // Nothing tells what thinning would cost.
            return;
        }
        for least in [0.1, 0.03, 0.01, 0.003, 0.001] {
            let mut x = vec![0.0; self.columns.len()];
            for commodity in 0..self.instance.commodities.len() {
                let share = |c: usize| self.best.get(c).copied().unwrap_or(0.0);
                let kept: f64 = self
                    .columns
                    .of(commodity)
                    .map(share)
                    .filter(|s| *s >= least)
                    .sum();
                for column in self.columns.of(commodity).filter(|&c| share(c) >= least) {
                    x[column] = share(column) / kept;
                }
            }
            let utilization = self.utilization(&x);
            let most = utilization.iter().copied().fold(0.0, f64::max);
            let value = if self.is_scale() {
                most
            } else {
                x.iter().zip(&self.columns.cost).map(|(x, c)| x * c).sum()
            };
            let fits = self.is_scale() || most <= 1.0 + ROUNDING;
            let gap = relative_gap(
                objective,
                self.in_objective(value),
                self.in_objective(self.bound),
            );
            if fits && gap <= self.options.gap.max(before) {
                (self.best, self.value) = (x, value);
                return;
            }
        }
    }
}
