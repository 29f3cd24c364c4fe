//! Holding chains to at most so many routes: which routes stay, and the shares they then carry.

use super::*;

impl Solver<'_> {
    /// Holds chains to their number of routes: each keeps those that carry most in the optimum, and the rest is solved
    /// anew around them. The bound stays that of the problem without the limit, which is valid and may be loose.
    pub(super) fn limit_routes(&mut self) {
        // Without any routing there is nothing to hold to a limit.
        if self.instance.max_routes.is_empty() || self.value.is_infinite() {
            return;
        }
        self.share_routes();
        let allowed = self.most_used();
        let x = self.restrict(&self.best, &allowed);
        let interior = self
            .interior
            .take()
            .map(|(x, _)| self.restrict(&x, &allowed));
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

    /// Gives the parts of a chain that is held to a number of routes each other's routes, where their ends are the same: a
    /// part must not lose what carries it because only the other one used the route that stays.
    fn share_routes(&mut self) {
        let instance = self.instance;
        let ends = |c: usize| {
            let c = &instance.commodities[c];
            (c.chain, instance.sources(c), instance.sinks(c))
        };
        for one in 1..instance.commodities.len() {
            let limited = instance
                .max_routes
                .contains_key(&instance.commodities[one].chain);
            if !limited || ends(one) != ends(one - 1) {
                continue;
            }
            for (from, to) in [(one - 1, one), (one, one - 1)] {
                let columns: Vec<usize> = self.columns.of(from).collect();
                for column in columns {
                    if let Some(route) = self.columns.route(column).cloned() {
                        self.columns.add(instance, &self.costing, to, &route);
                    }
                }
            }
        }
        self.best.resize(self.columns.len(), 0.0);
    }

    /// For chains with a limit, the routes that carry most, as many as they may have; for others, all columns.
    pub(super) fn most_used(&self) -> Vec<bool> {
        let mut carried: std::collections::BTreeMap<u32, Vec<(crate::instance::Route, f64)>> =
            Default::default();
        for (column, &x) in self.best.iter().enumerate().filter(|(_, x)| **x > 0.0) {
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
        for (chain, list) in &mut carried {
            list.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            // Each pair of ends keeps its heaviest route before any keeps a second one.
            let mut ends = std::collections::BTreeSet::new();
            let (first, more): (Vec<_>, Vec<_>) = list
                .drain(..)
                .partition(|(r, _)| self.free_ends(*chain) || ends.insert((r.source, r.sink)));
            list.extend(first.into_iter().chain(more));
            list.truncate(self.instance.max_routes[chain]);
        }
        (0..self.columns.len())
            .map(|column| {
                let chain =
                    self.instance.commodities[self.columns.commodity[column] as usize].chain;
                match (
                    self.columns.route(column),
                    self.instance.max_routes.contains_key(&chain),
                ) {
                    (Some(route), true) => carried
                        .get(&chain)
                        .is_some_and(|l| l.iter().any(|(r, _)| r == route)),
                    _ => true,
                }
            })
            .collect()
    }

    /// Whether a chain's traffic may use any of its ends, so that no pair of them needs a route of its own.
    fn free_ends(&self, chain: u32) -> bool {
        let ends =
            |c: &crate::instance::Commodity| (self.instance.sources(c), self.instance.sinks(c));
        let mut mine = self
            .instance
            .commodities
            .iter()
            .filter(|c| c.chain == chain)
            .map(ends);
        let first = mine.next();
        mine.all(|ends| Some(ends) == first)
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
