//! The cheapest trajectory of a commodity: one route for each matrix, with a price on every change of route.
//!
//! Over matrices i..j that share a route, its cost is the sum of its costs in each; the dynamic program of the paper's
//! equation 8 finds the cheapest for the summed costs. A shortest path over the moments of change then joins intervals.

use std::ops::Range;

use crate::constrained::{self, Costs};
use crate::instance::{Commodity, Instance, NONE, Route};
use crate::tables::{IMPOSSIBLE, Tables};

/// The route of a commodity from one matrix on, up to the next segment's first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// First matrix.
    pub first: u32,
    /// Its route.
    pub route: Route,
}

/// The instances of all matrices with the price tables of those whose rows cost anything.
pub struct Prices<'a> {
    /// One instance for each matrix, alike in everything but traffic.
    pub instances: &'a [Instance],
    /// Tables by matrix; none where every row is free.
    pub tables: Vec<Option<Tables>>,
    /// What blocks routes whatever the prices: tables for prices of zero.
    pub free: Tables,
    /// Cost of one Mbit/s of demand changing its route when a matrix begins.
    pub change: Vec<f64>,
}

impl<'a> Prices<'a> {
    /// Tables for `price`: by matrix and row, for a whole capacity.
    pub fn new(instances: &'a [Instance], price: &[f64], change: Vec<f64>) -> Prices<'a> {
        let rows = instances[0].rows();
        let tables = instances
            .iter()
            .zip(price.chunks(rows))
            .map(|(instance, price)| {
                price.iter().any(|p| *p > 0.0).then(|| {
                    let unit = |(p, c): (&f64, &f64)| if *c > 0.0 { p / c } else { 0.0 };
                    let unit: Vec<f64> = price.iter().zip(&instance.capacity).map(unit).collect();
                    Tables::new(instance, &unit, 0.0)
                })
            });
        Prices {
            tables: tables.collect(),
            free: Tables::new(&instances[0], &vec![0.0; rows], 0.0),
            instances,
            change,
        }
    }

    /// The cheapest trajectory of a commodity and its cost; none where it has no route at all. With `constant` it
    /// keeps one route throughout.
    pub fn cheapest(&self, commodity: usize, constant: bool) -> Option<(f64, Vec<Segment>)> {
        let count = self.instances.len();
        let limited = self.instances[0].commodities[commodity].limits.is_some();
        if constant {
            let mut grid = Grid::new(self, commodity);
            if !limited {
                (0..count).for_each(|m| grid.add(self, commodity, m));
            }
            let (cost, route) = self.over(0..count, commodity, &grid)?;
            return Some((cost, vec![Segment { first: 0, route }]));
        }
        let of_one = |m: usize| {
            let mut grid = Grid::new(self, commodity);
            if !limited {
                grid.add(self, commodity, m);
            }
            grid
        };
        let grids: Vec<Grid> = (0..count).map(of_one).collect();
        // best[j]: cheapest way through matrices 0..j, as (cost, where its last segment begins, that segment's route).
        let mut best: Vec<Option<(f64, usize, Route)>> = vec![None; count + 1];
        for first in 0..count {
            let before = match &best[first] {
                Some((cost, ..)) => *cost,
                None if first == 0 => 0.0,
                None => continue,
            };
            let moved = if first == 0 {
                0.0
            } else {
                self.change[first] * self.instances[first].commodities[commodity].demand
            };
            let mut sum = Grid::new(self, commodity);
            for last in first..count {
                sum.merge(&grids[last]);
                // A route that some matrix forbids is not kept through more matrices either.
                let Some((cost, route)) = self.over(first..last + 1, commodity, &sum) else {
                    break;
                };
                let total = before + moved + cost;
                if best[last + 1].as_ref().is_none_or(|(b, ..)| total < *b) {
                    best[last + 1] = Some((total, first, route));
                }
            }
        }
        let mut segments: Vec<Segment> = Vec::new();
        let mut at = count;
        let cost = best[count].as_ref()?.0;
        while at > 0 {
            let (_, first, route) = best[at].take()?;
            at = first;
            if segments.last().is_some_and(|next| next.route == route) {
                segments.pop();
            }
            segments.push(Segment {
                first: first as u32,
                route,
            });
        }
        segments.reverse();
        Some((cost, segments))
    }
}

impl Prices<'_> {
    /// The cheapest route that is kept through a range of matrices; `grid` holds their sums, unless limits apply.
    fn over(&self, matrices: Range<usize>, commodity: usize, grid: &Grid) -> Option<(f64, Route)> {
        let instance = &self.instances[0];
        let one = &instance.commodities[commodity];
        if one.limits.is_none() {
            return grid.cheapest(self, commodity);
        }
        let costs = Summed::new(self, commodity, matrices);
        constrained::cheapest_by(instance, &costs, one).filter(|(cost, _)| *cost < IMPOSSIBLE)
    }
}

/// Costs of a commodity's stages summed over some matrices: from every stop that may send to every one that may receive.
struct Grid {
    /// By stage: costs by sender, then receiver.
    hops: Vec<Vec<f64>>,
}

/// The places where a stage may begin or end; with the sites, where it is a VNF's.
fn stops(instance: &Instance, commodity: &Commodity, position: usize) -> Vec<(u32, u32, u32)> {
    let ends = |places: &[u32]| places.iter().map(|&p| (p, NONE, NONE)).collect();
    match position {
        0 => ends(instance.sources(commodity)),
        p if p == commodity.vnfs as usize + 1 => ends(instance.sinks(commodity)),
        p => {
            let vnf = &instance.vnfs[instance.stage_vnf[commodity.stage(p - 1)] as usize];
            let stop = |&(site, row): &(u32, u32)| (instance.site_place[site as usize], site, row);
            vnf.deployments.iter().map(stop).collect()
        }
    }
}

impl Grid {
    fn new(prices: &Prices<'_>, commodity: usize) -> Grid {
        let stages = prices.instances[0].commodities[commodity].vnfs as usize + 1;
        Grid {
            hops: vec![Vec::new(); stages],
        }
    }

    /// Adds the costs of one matrix: of each stage's links, and of being handled where it ends.
    fn add(&mut self, prices: &Prices<'_>, index: usize, matrix: usize) {
        let instance = &prices.instances[matrix];
        let commodity = &instance.commodities[index];
        let tables = prices.tables[matrix].as_ref().unwrap_or(&prices.free);
        let mut from = stops(instance, commodity, 0);
        for z in 0..self.hops.len() {
            let stage = commodity.stage(z);
            let (w, v) = (instance.forward[stage], instance.reverse[stage]);
            let to = stops(instance, commodity, z + 1);
            let visit: Vec<f64> = to
                .iter()
                .map(|&(_, site, row)| visit(instance, tables, commodity, z, site, row))
                .collect();
            let hops = &mut self.hops[z];
            hops.resize(from.len() * to.len(), 0.0);
            for (a, &(sender, ..)) in from.iter().enumerate() {
                let offset = sender as usize * instance.stride;
                for (b, &(receiver, ..)) in to.iter().enumerate() {
                    let at = offset + receiver as usize;
                    hops[a * to.len() + b] +=
                        w * tables.forward[at] + v * tables.reverse[at] + visit[b];
                }
            }
            from = to;
        }
    }

    fn merge(&mut self, other: &Grid) {
        for (sum, other) in self.hops.iter_mut().zip(&other.hops) {
            sum.resize(other.len(), 0.0);
            sum.iter_mut().zip(other).for_each(|(a, b)| *a += b);
        }
    }

    /// The cheapest route under these costs, the commodity's limits aside.
    fn cheapest(&self, prices: &Prices<'_>, index: usize) -> Option<(f64, Route)> {
        let instance = &prices.instances[0];
        let commodity = &instance.commodities[index];
        // The dynamic program of equation 8, backwards from each stop's best predecessor.
        let mut reached = vec![0.0; instance.sources(commodity).len()];
        let mut back: Vec<Vec<u32>> = Vec::with_capacity(self.hops.len());
        for hops in &self.hops {
            let width = hops.len() / reached.len();
            let mut next = vec![f64::INFINITY; width];
            let mut from = vec![0u32; width];
            for (a, (before, costs)) in reached.iter().zip(hops.chunks(width)).enumerate() {
                for (b, cost) in costs.iter().enumerate() {
                    if before + cost < next[b] {
                        (next[b], from[b]) = (before + cost, a as u32);
                    }
                }
            }
            back.push(from);
            reached = next;
        }
        let last = (0..reached.len()).min_by(|&a, &b| reached[a].total_cmp(&reached[b]))?;
        if reached[last] >= IMPOSSIBLE {
            return None;
        }
        let mut sites = Vec::with_capacity(commodity.vnfs as usize);
        let mut at = last;
        for (z, from) in back.iter().enumerate().rev() {
            at = from[at] as usize;
            if z > 0 {
                let vnf = instance.stage_vnf[commodity.stage(z - 1)] as usize;
                sites.push(instance.vnfs[vnf].deployments[at].0);
            }
        }
        sites.reverse();
        let route = Route {
            source: instance.sources(commodity)[at],
            sink: instance.sinks(commodity)[last],
            sites: sites.into(),
        };
        Some((reached[last], route))
    }
}

fn visit(
    instance: &Instance,
    tables: &Tables,
    commodity: &Commodity,
    z: usize,
    site: u32,
    row: u32,
) -> f64 {
    if site == NONE {
        return 0.0;
    }
    let vnf = &instance.vnfs[instance.stage_vnf[commodity.stage(z)] as usize];
    let price = tables.row_price(instance.links + site as usize) + tables.row_price(row as usize);
    vnf.load_per_mbps * instance.handled(commodity, z) * price
}

/// Costs summed over consecutive matrices, for the search with limits.
struct Summed<'a> {
    prices: &'a Prices<'a>,
    commodity: usize,
    matrices: Range<usize>,
    /// One matrix for each set of directions in which the commodity has traffic.
    times: Vec<usize>,
}

impl<'a> Summed<'a> {
    fn new(prices: &'a Prices<'a>, commodity: usize, matrices: Range<usize>) -> Summed<'a> {
        let directions = |m: usize| {
            let instance = &prices.instances[m];
            let c = &instance.commodities[commodity];
            let stages = c.stage(0)..=c.stage(c.vnfs as usize);
            let both = stages.map(|z| (instance.forward[z] > 0.0, instance.reverse[z] > 0.0));
            both.collect::<Vec<(bool, bool)>>()
        };
        let mut known: Vec<Vec<(bool, bool)>> = Vec::new();
        let mut times = Vec::new();
        for matrix in matrices.clone() {
            let here = directions(matrix);
            // Who demands nothing crosses nothing.
            let demands = here.iter().any(|(forward, reverse)| *forward || *reverse);
            if demands && !known.contains(&here) {
                known.push(here);
                times.push(matrix);
            }
        }
        Summed {
            prices,
            commodity,
            matrices,
            times,
        }
    }

    fn sum(&self, of: impl Fn(&Instance, &Tables, &Commodity) -> f64) -> f64 {
        let one = |m: usize| {
            let instance = &self.prices.instances[m];
            let tables = self.prices.tables[m].as_ref().unwrap_or(&self.prices.free);
            of(instance, tables, &instance.commodities[self.commodity])
        };
        self.matrices.clone().map(one).sum()
    }
}

impl Costs for Summed<'_> {
    fn hop(&self, z: usize, from: u32, to: u32) -> f64 {
        self.sum(|instance, tables, commodity| {
            let stage = commodity.stage(z);
            let at = from as usize * instance.stride + to as usize;
            instance.forward[stage] * tables.forward[at]
                + instance.reverse[stage] * tables.reverse[at]
        })
    }

    fn visit(&self, z: usize, site: u32, row: u32) -> f64 {
        self.sum(|instance, tables, commodity| visit(instance, tables, commodity, z, site, row))
    }

    fn times(&self) -> usize {
        self.times.len()
    }

    fn traffic(&self, time: usize, z: usize) -> (f64, f64) {
        let instance = &self.prices.instances[self.times[time]];
        let stage = instance.commodities[self.commodity].stage(z);
        (instance.forward[stage], instance.reverse[stage])
    }
}
