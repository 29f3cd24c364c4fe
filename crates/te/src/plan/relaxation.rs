//! The dynamic programs behind placement: the cheapest route where using a site may cost extra, and the totals for every
//! move of a VNF's new site.

use crate::clock::Clock;
use crate::instance::{Commodity, Instance, Route};
use crate::plan::hops::Hops;
use crate::plan::search::Search;
use crate::tables::Tables;

/// Costs of hops and visits.
pub struct Relaxation<'a> {
    pub instance: &'a Instance,
    tables: Tables,
    hops: Hops,
}

/// Working memory for the route of one chain.
#[derive(Default)]
pub struct Scratch {
    table: Vec<f64>,
    /// Sites of the route found last.
    pub sites: Vec<usize>,
}

/// One chain's stages: for each VNF, the cost from the ingress to each site and from each site to the egress.
#[derive(Default)]
pub struct Sweep {
    forward: Vec<f64>,
    backward: Vec<f64>,
    width: usize,
}

impl Sweep {
    /// Cost of the cheapest route whose VNF `z` is at a site.
    pub fn via(&self, z: usize, site: usize) -> f64 {
        let at = z * self.width + site;
        self.forward[at] + self.backward[at]
    }

    /// The least of that over several sites.
    pub fn least(&self, z: usize, sites: impl Iterator<Item = usize>) -> f64 {
        sites.map(|s| self.via(z, s)).fold(f64::INFINITY, f64::min)
    }
}

impl<'a> Relaxation<'a> {
    /// Costs under prices of whole capacities; candidates' own rows must have the price zero.
    pub fn new(instance: &'a Instance, price: &[f64]) -> Relaxation<'a> {
        let unit: Vec<f64> = price
            .iter()
            .zip(&instance.capacity)
            .map(|(p, c)| if *c > 0.0 { p / c } else { 0.0 })
            .collect();
        let tables = Tables::new(instance, &unit, 1.0);
        let hops = Hops::new(instance, &tables);
        Relaxation {
            instance,
            tables,
            hops,
        }
    }

    /// VNF at position `z` of a commodity.
    pub fn vnf(&self, commodity: &Commodity, z: usize) -> usize {
        self.instance.stage_vnf[commodity.stage(z)] as usize
    }

    fn traffic(&self, stage: usize) -> [f64; 2] {
        [self.instance.forward[stage], self.instance.reverse[stage]]
    }

    /// Cost of a hop between places.
    fn hop(&self, stage: usize, from: u32, to: u32) -> f64 {
        let at = from as usize * self.instance.stride + to as usize;
        let [forward, reverse] = self.traffic(stage);
        forward * self.tables.forward[at] + reverse * self.tables.reverse[at]
    }

    /// The cheapest way from the ingress to each site, into `table`.
    fn enter(&self, c: &Commodity, table: &mut [f64]) {
        for (site, &place) in self.instance.site_place.iter().enumerate() {
            let from = self.instance.sources(c).iter();
            let costs = from.map(|&source| self.hop(c.stage(0), source, place));
            table[site] = costs.fold(f64::INFINITY, f64::min);
        }
    }

    /// The cheapest way from a site to the egress.
    fn exit(&self, c: &Commodity, site: usize) -> f64 {
        let (last, place) = (c.stage(c.vnfs as usize), self.instance.site_place[site]);
        let to = self.instance.sinks(c).iter();
        to.map(|&sink| self.hop(last, place, sink))
            .fold(f64::INFINITY, f64::min)
    }

    /// Cost of a chain without VNFs.
    fn direct(&self, c: &Commodity) -> f64 {
        let sinks = self.instance.sinks(c).iter();
        let pairs =
            sinks.flat_map(|&sink| self.instance.sources(c).iter().map(move |&s| (s, sink)));
        pairs
            .map(|(source, sink)| self.hop(c.stage(0), source, sink))
            .fold(f64::INFINITY, f64::min)
    }

    /// The cheapest route of a commodity over the sites that are open for each VNF; it is left in `scratch`. `extra` is
    /// paid on top, by position in the chain and site.
    pub fn cheapest(
        &self,
        commodity: usize,
        open: &[Vec<usize>],
        extra: Option<&[f32]>,
        scratch: &mut Scratch,
    ) -> f64 {
        let c = &self.instance.commodities[commodity];
        let (vnfs, width, sites) = (c.vnfs as usize, self.hops.width, self.instance.sites);
        scratch.sites.clear();
        if vnfs == 0 {
            return self.direct(c);
        }
        scratch.table.resize(vnfs * width, 0.0);
        for z in 0..vnfs {
            let (done, rest) = scratch.table.split_at_mut(z * width);
            let layer = &mut rest[..width];
            if z == 0 {
                self.enter(c, layer);
            } else {
                let before = &done[(z - 1) * width..];
                let from = open[self.vnf(c, z - 1)].iter().map(|&s| (s, before[s]));
                self.hops.reach(self.traffic(c.stage(z)), from, layer);
            }
            let handled = self.instance.handled(c, z);
            for (cost, visit) in layer.iter_mut().zip(self.hops.visits(self.vnf(c, z))) {
                *cost += handled * visit;
            }
            if let Some(extra) = extra {
                for (cost, extra) in layer.iter_mut().zip(&extra[z * sites..(z + 1) * sites]) {
                    *cost += f64::from(*extra);
                }
            }
        }
        self.trace(c, open, scratch)
    }

    /// The last hop, then the route backwards: each step finds again which site gave the minimum.
    fn trace(&self, c: &Commodity, open: &[Vec<usize>], scratch: &mut Scratch) -> f64 {
        let (vnfs, width) = (c.vnfs as usize, self.hops.width);
        scratch.sites.resize(vnfs, 0);
        let mut total = f64::INFINITY;
        for z in (0..vnfs).rev() {
            let layer = &scratch.table[z * width..];
            let traffic = self.traffic(c.stage(z + 1));
            let (mut best, mut site) = (f64::INFINITY, 0);
            for &from in &open[self.vnf(c, z)] {
                let onward = match scratch.sites.get(z + 1) {
                    Some(&to) => self.hops.hop(traffic, from, to),
                    None => self.exit(c, from),
                };
                if layer[from] + onward < best {
                    (best, site) = (layer[from] + onward, from);
                }
            }
            scratch.sites[z] = site;
            if z + 1 == vnfs {
                total = best;
            }
        }
        total
    }

    /// The route over given sites with its cheapest ends.
    pub fn with_ends(&self, commodity: &Commodity, sites: &[usize]) -> Route {
        let first = sites.first().map(|&s| self.instance.site_place[s]);
        let last = sites.last().map(|&s| self.instance.site_place[s]);
        let end_stage = commodity.stage(commodity.vnfs as usize);
        let mut best = (f64::INFINITY, 0, 0);
        for &source in self.instance.sources(commodity) {
            for &sink in self.instance.sinks(commodity) {
                let cost = match (first, last) {
                    (Some(first), Some(last)) => {
                        self.hop(commodity.stage(0), source, first)
                            + self.hop(end_stage, last, sink)
                    }
                    _ => self.hop(end_stage, source, sink),
                };
                if cost < best.0 {
                    best = (cost, source, sink);
                }
            }
        }
        Route {
            source: best.1,
            sink: best.2,
            sites: sites.iter().map(|s| *s as u32).collect(),
        }
    }

    /// Total cost under a placement, and for each VNF the total if the new site in `slot` were each site; none when there
    /// was not the time.
    pub fn moves(
        &self,
        search: &Search,
        placed: &[Vec<usize>],
        slot: usize,
        clock: &Clock<'_>,
    ) -> Option<(f64, Vec<Vec<f64>>)> {
        let mut totals = vec![vec![0.0; self.instance.sites]; placed.len()];
        let mut total = 0.0;
        let open = search.open(placed);
        let mut sweep = Sweep::default();
        for (index, c) in self.instance.commodities.iter().enumerate() {
            if clock.is_over_at(index) {
                return None;
            }
            total += self.through(&open, c, &mut sweep);
            for z in 0..c.vnfs as usize {
                let vnf = self.vnf(c, z);
                if search.new_sites[vnf] == 0 {
                    continue;
                }
                let repeated = (0..c.vnfs as usize).filter(|&y| self.vnf(c, y) == vnf);
                match repeated.clone().next() {
                    Some(first) if repeated.count() > 1 => {
                        if first == z {
                            self.move_all(index, vnf, (search, placed, slot), &mut totals[vnf]);
                        }
                        continue;
                    }
                    _ => {}
                }
                let others = placed[vnf].iter().enumerate();
                let others = others.filter(|(k, _)| *k != slot).map(|(_, s)| *s);
                let stay = sweep.least(z, search.existing[vnf].iter().copied().chain(others));
                for &site in &search.candidates[vnf] {
                    totals[vnf][site] += stay.min(sweep.via(z, site));
                }
            }
        }
        Some((total, totals))
    }

    /// Adds the costs of a commodity that visits a VNF more than once when its new site in `slot` is each candidate: all
    /// visits may move, which one sweep does not see.
    fn move_all(
        &self,
        commodity: usize,
        vnf: usize,
        (search, placed, slot): (&Search, &[Vec<usize>], usize),
        totals: &mut [f64],
    ) {
        let mut scratch = Scratch::default();
        let mut open = search.open(placed);
        let others = placed[vnf].iter().enumerate();
        let others = others.filter(|(k, _)| *k != slot).map(|(_, s)| *s);
        open[vnf] = search.existing[vnf].iter().copied().chain(others).collect();
        for &site in &search.candidates[vnf] {
            open[vnf].push(site);
            totals[site] += self.cheapest(commodity, &open, None, &mut scratch);
            open[vnf].pop();
        }
    }

    /// Forward and backward costs of a commodity over the open sites, for every site it could use; and its total.
    pub fn through(&self, open: &[Vec<usize>], c: &Commodity, sweep: &mut Sweep) -> f64 {
        let (vnfs, width) = (c.vnfs as usize, self.hops.width);
        if vnfs == 0 {
            return self.direct(c);
        }
        sweep.width = width;
        sweep.forward.resize(vnfs * width, 0.0);
        sweep.backward.resize(vnfs * width, 0.0);
        let costs = |z: usize| {
            (
                self.instance.handled(c, z),
                self.hops.visits(self.vnf(c, z)),
            )
        };
        for z in 0..vnfs {
            let (done, rest) = sweep.forward.split_at_mut(z * width);
            let layer = &mut rest[..width];
            if z == 0 {
                self.enter(c, layer);
            } else {
                let before = &done[(z - 1) * width..];
                let from = open[self.vnf(c, z - 1)].iter().map(|&s| (s, before[s]));
                self.hops.reach(self.traffic(c.stage(z)), from, layer);
            }
            let (handled, visits) = costs(z);
            for (cost, visit) in layer.iter_mut().zip(visits) {
                *cost += handled * visit;
            }
        }
        for z in (0..vnfs).rev() {
            let (rest, done) = sweep.backward.split_at_mut((z + 1) * width);
            let layer = &mut rest[z * width..];
            if z + 1 == vnfs {
                for (site, cost) in layer.iter_mut().enumerate().take(self.instance.sites) {
                    *cost = self.exit(c, site);
                }
            } else {
                let (handled, visits) = costs(z + 1);
                let after = |&s: &usize| (s, done[s] + handled * visits[s]);
                let to = open[self.vnf(c, z + 1)].iter().map(after);
                self.hops.leave(self.traffic(c.stage(z + 1)), to, layer);
            }
        }
        sweep.least(0, open[self.vnf(c, 0)].iter().copied())
    }
}
