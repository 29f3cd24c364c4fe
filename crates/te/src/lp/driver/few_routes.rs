//! The search for the routes that limited chains keep, where the model is small enough for it.

use std::collections::BTreeMap;

use super::*;
use crate::constrained::allows;
use crate::instance::{Commodity, Route};
use crate::lp::route_choice::{Choice, Limited, search};
use crate::lp::simplex::{Aim, Program};

/// Most routes that a model may have for all of them to be looked at.
const EVERY_ROUTE: usize = 1_500;

/// Most columns and rows, multiplied, of a program that is searched.
const SMALL: usize = 300_000;

/// Entries of tableaus that a search may change; about a second.
const WORK: u64 = 1_000_000_000;

/// How near to the best choice the search comes, as a share of the gap that is asked for.
const NEARNESS: f64 = 0.1;

impl Solver<'_> {
    /// Looks for a better choice of routes by branch and bound, over all routes there are if those are few, else over those
    /// that were found so far. Where it ends over all of them, its bound is one of the problem with the limit. Without limits that is the
    /// simplex method on the whole program, for small models whose numbers are too far apart for the master.
    pub(super) fn choose_routes(&mut self) {
        let complete = self.add_every_route();
        let Some((choice, columns)) = self.choice() else {
            return;
        };
        let gap = NEARNESS * self.options.gap;
        let chosen = search(&choice, self.value, gap, WORK, || self.should_stop());
        if let Some((_, shares)) = chosen.best {
            let mut x = vec![0.0; self.columns.len()];
            for (&column, share) in columns.iter().zip(shares) {
                x[column] = share;
            }
            self.normalise(&mut x);
            let utilization = self.utilization(&x);
            self.take_choice(x, &utilization);
        }
        if let Some(bound) = chosen.bound.filter(|_| complete) {
            self.relaxed = (!self.instance.max_routes.is_empty()).then_some(self.bound);
            // What is proved without the limit holds with it.
            self.bound = self.bound.max(bound.min(self.value));
        }
    }

    /// Takes over a routing that keeps the limits, if it is better.
    fn take_choice(&mut self, x: Vec<f64>, utilization: &[f64]) {
        let most = utilization.iter().copied().fold(0.0, f64::max);
        let cost = || x.iter().zip(&self.columns.cost).map(|(x, c)| x * c).sum();
        let value = if self.is_scale() { most } else { cost() };
        if value < self.value && (self.is_scale() || most <= 1.0 + ROUNDING) {
            (self.value, self.best) = (value, x);
        }
    }

    /// Makes the shares of each commodity sum to one.
    fn normalise(&self, x: &mut [f64]) {
        for commodity in 0..self.instance.commodities.len() {
            let sum: f64 = self.columns.of(commodity).map(|c| x[c]).sum();
            if sum > 0.0 {
                self.columns.of(commodity).for_each(|c| x[c] /= sum);
            }
        }
    }

    /// Puts every route of every commodity into the pool, where there are few; says whether it did.
    fn add_every_route(&mut self) -> bool {
        let instance = self.instance;
        let mut left = EVERY_ROUTE;
        let mut all = Vec::new();
        for commodity in &instance.commodities {
            let Some(routes) = every_route(instance, commodity, left) else {
                return false;
            };
            left -= routes.len();
            all.push(routes);
        }
        for (commodity, routes) in all.iter().enumerate() {
            for route in routes {
                self.columns.add(instance, &self.costing, commodity, route);
            }
        }
        true
    }

    /// The program of all columns in the pool, and the column of each of its own; none where it is not small.
    fn choice(&mut self) -> Option<(Choice, Vec<usize>)> {
        let instance = self.instance;
        for commodity in 0..instance.commodities.len() {
            if self.costing.may_be_left(&instance.commodities[commodity]) {
                self.columns.uncarried(commodity);
            }
        }
        let mut program = Program::default();
        let mut columns = Vec::new();
        let mut chains: BTreeMap<u32, BTreeMap<Route, Vec<usize>>> = BTreeMap::new();
        for (index, commodity) in instance.commodities.iter().enumerate() {
            let mut mine: Vec<usize> = self.columns.of(index).collect();
            mine.sort_unstable();
            let mut block = Vec::with_capacity(mine.len());
            for column in mine {
                let (rows, loads) = self.columns.loads(column);
                if !loads.iter().all(|load| load.is_finite()) {
                    continue; // through what has no capacity
                }
                let number = columns.len();
                block.push(number);
                columns.push(column);
                program.cost.push(self.columns.cost[column]);
                let pairs = rows.iter().map(|&r| r as usize).zip(loads.iter().copied());
                program.loads.push(pairs.collect());
                if let Some(route) = self.columns.route(column)
                    && instance.max_routes.contains_key(&commodity.chain)
                {
                    let routes = chains.entry(commodity.chain).or_default();
                    routes.entry(route.clone()).or_default().push(number);
                }
            }
            program.blocks.push(block);
        }
        self.keep_rows_that_matter(&mut program);
        let rows = program.base.len() + program.blocks.len();
        let small = rows.saturating_mul(columns.len()) <= SMALL;
        let limited = |(chain, routes): (u32, BTreeMap<Route, Vec<usize>>)| Limited {
            most: instance.max_routes[&chain],
            routes: routes.into_values().collect(),
        };
        small.then(|| {
            let choice = Choice {
                program,
                chains: chains.into_iter().map(limited).collect(),
                aim: if self.is_scale() {
                    Aim::Utilization
                } else {
                    Aim::Cost
                },
            };
            (choice, columns)
        })
    }

    /// Numbers the rows that some choice may fill, and leaves out the others.
    fn keep_rows_that_matter(&self, program: &mut Program) {
        let rows = self.instance.rows();
        let mut most = self.instance.base.clone();
        most.resize(rows, 0.0);
        for block in &program.blocks {
            let mut of_block: BTreeMap<usize, f64> = BTreeMap::new();
            for &(row, load) in block.iter().flat_map(|&c| &program.loads[c]) {
                let largest = of_block.entry(row).or_default();
                *largest = largest.max(load);
            }
            of_block
                .into_iter()
                .for_each(|(row, load)| most[row] += load);
        }
        let least = if self.is_scale() { self.bound } else { 1.0 };
        let mut number = vec![usize::MAX; rows];
        for row in (0..rows).filter(|&r| most[r] > least) {
            number[row] = program.base.len();
            program
                .base
                .push(self.instance.base.get(row).copied().unwrap_or(0.0));
        }
        for loads in &mut program.loads {
            loads.retain_mut(|(row, _)| {
                *row = number[*row];
                *row != usize::MAX
            });
        }
    }
}

/// Every route of a commodity within its limits; none where there are more than `most`.
fn every_route(instance: &Instance, commodity: &Commodity, most: usize) -> Option<Vec<Route>> {
    let joined = |a: u32, b: u32, z: usize| instance.joins(commodity, z, a, b);
    // Ways so far: the ingress, the sites, and the place that was reached.
    let sources = instance.sources(commodity).iter();
    let mut ways: Vec<(u32, Vec<u32>, u32)> = sources.map(|&s| (s, Vec::new(), s)).collect();
    for z in 0..commodity.vnfs as usize {
        let vnf = &instance.vnfs[instance.stage_vnf[commodity.stage(z)] as usize];
        if ways.len().saturating_mul(vnf.deployments.len()) > most {
            return None;
        }
        let mut next = Vec::new();
        for (source, sites, at) in &ways {
            for &(site, _) in &vnf.deployments {
                let place = instance.site_place[site as usize];
                if joined(*at, place, z) {
                    let sites = sites.iter().copied().chain([site]).collect();
                    next.push((*source, sites, place));
                }
            }
        }
        ways = next;
    }
    let sinks = instance.sinks(commodity);
    if ways.len().saturating_mul(sinks.len()) > most {
        return None;
    }
    let mut routes = Vec::new();
    for (source, sites, at) in ways {
        for &sink in sinks
            .iter()
            .filter(|&&s| joined(at, s, commodity.vnfs as usize))
        {
            let route = Route {
                source,
                sink,
                sites: sites.clone().into(),
            };
            if allows(instance, commodity, &route) {
                routes.push(route);
            }
        }
    }
    Some(routes)
}
