//! The dynamic programs behind placement: totals for every move, and the Lagrangian bound.

use crate::instance::{Instance, Route};
use crate::solution::{Flow, Objective, Solution, Status};
use crate::tables::Tables;

/// Sweeps of local search.
const SEARCH_SWEEPS: usize = 14;

/// Steps of the subgradient method; in small models, where they cost nothing, ten times as many.
const BOUND_STEPS: usize = 120;

/// Chains times VNFs up to which a model is small: there a placement is polished move by move.
const POLISHED: usize = 20_000;

/// What may be placed where.
pub struct Search {
    /// Sites that are new for each VNF.
    pub candidates: Vec<Vec<usize>>,
    new_sites: Vec<usize>,
    /// Sites where each VNF runs already.
    existing: Vec<Vec<usize>>,
}

/// Costs of hops and visits, by site.
pub struct Relaxation<'a> {
    instance: &'a Instance,
    tables: Tables,
    sites: usize,
}

/// One chain's stages: for each VNF, the cost from the ingress to each site and from each site to the egress.
#[derive(Default)]
struct Sweep {
    forward: Vec<f64>,
    backward: Vec<f64>,
}

impl Search {
    /// The candidates of an instance whose VNFs are deployed at existing and candidate sites.
    pub fn new(instance: &Instance, new_sites: &[usize], candidates: Vec<Vec<usize>>) -> Search {
        let existing = instance
            .vnfs
            .iter()
            .zip(&candidates)
            .map(|(vnf, new)| {
                vnf.deployments
                    .iter()
                    .map(|(s, _)| *s as usize)
                    .filter(|s| !new.contains(s))
                    .collect()
            })
            .collect();
        Search {
            candidates,
            new_sites: new_sites.to_vec(),
            existing,
        }
    }

    /// Improves a placement, or finds one from nothing, by moving one new site of each VNF at a time.
    /// `stop` ends the search once there is a complete placement.
    pub fn improve(
        &self,
        relaxation: &Relaxation<'_>,
        start: &[Vec<usize>],
        stop: &dyn Fn() -> bool,
    ) -> Vec<Vec<usize>> {
        let mut placed: Vec<Vec<usize>> = if start.is_empty() {
            vec![Vec::new(); self.new_sites.len()]
        } else {
            start.to_vec()
        };
        let mut best = placed.clone();
        let mut best_total = f64::INFINITY;
        let slots = self.new_sites.iter().copied().max().unwrap_or(0);
        for sweep in 0..SEARCH_SWEEPS.max(2 * slots) {
            if best_total.is_finite() && stop() {
                return best;
            }
            let slot = sweep % slots.max(1);
            let (total, totals) = relaxation.moves(self, &placed, slot);
            let complete = placed
                .iter()
                .zip(&self.new_sites)
                .all(|(p, n)| p.len() == *n);
            if complete && total < best_total {
                best_total = total;
                best.clone_from(&placed);
            }
            for vnf in 0..placed.len() {
                // Half of the VNFs stay in each sweep, so that two do not chase each other.
                if slot >= self.new_sites[vnf]
                    || (placed[vnf].len() > slot && (vnf + sweep / slots.max(1)) % 2 == 0)
                {
                    continue;
                }
                let taken = |site: usize| {
                    placed[vnf]
                        .iter()
                        .enumerate()
                        .any(|(k, s)| *s == site && k != slot)
                };
                let free = self.candidates[vnf].iter().copied().filter(|&s| !taken(s));
                let choice = free.min_by(|&a, &b| totals[vnf][a].total_cmp(&totals[vnf][b]));
                if let Some(site) = choice {
                    if placed[vnf].len() > slot {
                        placed[vnf][slot] = site
                    } else {
                        placed[vnf].push(site)
                    }
                }
            }
        }
        if best_total.is_infinite() {
            return placed;
        }
        if relaxation.instance.commodities.len() * best.len() <= POLISHED {
            self.polish(relaxation, &mut best, best_total);
        }
        best
    }

    /// Moves one new site at a time for as long as any single move gains.
    fn polish(&self, relaxation: &Relaxation<'_>, placed: &mut [Vec<usize>], mut total: f64) {
        let mut gained = true;
        while gained {
            gained = false;
            for vnf in 0..placed.len() {
                for slot in 0..placed[vnf].len() {
                    let (_, totals) = relaxation.moves(self, placed, slot);
                    let free = self.candidates[vnf]
                        .iter()
                        .copied()
                        .filter(|s| !placed[vnf].contains(s));
                    let best = free.min_by(|&a, &b| totals[vnf][a].total_cmp(&totals[vnf][b]));
                    if let Some(site) = best.filter(|&s| totals[vnf][s] < total * (1.0 - 1e-9)) {
                        (placed[vnf][slot], total, gained) = (site, totals[vnf][site], true);
                    }
                }
            }
        }
    }

    /// Every chain on its fastest route under a placement, capacities ignored.
    pub fn fastest(&self, instance: &Instance, placed: &[Vec<usize>]) -> Solution {
        let relaxation = Relaxation::new(instance, self, &vec![0.0; instance.rows()]);
        let mut flows = Vec::with_capacity(instance.commodities.len());
        let mut value = 0.0;
        for c in 0..instance.commodities.len() {
            let (cost, sites) = relaxation.route(c, |vnf, site, _| {
                if self.is_open(placed, vnf, site) {
                    Some(0.0)
                } else {
                    None
                }
            });
            value += cost;
            let commodity = &instance.commodities[c];
            let route = relaxation.with_ends(commodity, &sites);
            flows.push(Flow {
                commodity: c,
                route,
                fraction: 1.0,
            });
        }
        Solution {
            status: Status::Feasible,
            objective: Objective::Latency,
            value,
            bound: None,
            seconds: 0.0,
            flows,
        }
    }

    fn is_open(&self, placed: &[Vec<usize>], vnf: usize, site: usize) -> bool {
        self.existing[vnf].contains(&site) || placed[vnf].contains(&site)
    }
}

impl<'a> Relaxation<'a> {
    /// Costs under prices of whole capacities; candidates' own rows must have the price zero.
    pub fn new(instance: &'a Instance, _search: &Search, price: &[f64]) -> Relaxation<'a> {
        let unit: Vec<f64> = price
            .iter()
            .zip(&instance.capacity)
            .map(|(p, c)| if *c > 0.0 { p / c } else { 0.0 })
            .collect();
        let tables = Tables::new(instance, &unit, 1.0);
        Relaxation {
            instance,
            tables,
            sites: instance.sites,
        }
    }

    #[inline]
    fn hop(&self, stage: usize, from: u32, to: u32) -> f64 {
        let at = from as usize * self.instance.stride + to as usize;
        self.instance.forward[stage] * self.tables.forward[at]
            + self.instance.reverse[stage] * self.tables.reverse[at]
    }

    fn visit(&self, commodity: usize, z: usize, site: usize, row: usize) -> f64 {
        let c = &self.instance.commodities[commodity];
        let vnf = &self.instance.vnfs[self.instance.stage_vnf[c.stage(z)] as usize];
        let load = vnf.load_per_mbps * self.instance.handled(c, z);
        load * (self.tables.row_price(self.instance.links + site) + self.tables.row_price(row))
    }

    /// The cheapest route of a commodity where `extra(vnf, site, position)` is paid on top, or `None` forbids.
    fn route(
        &self,
        commodity: usize,
        extra: impl Fn(usize, usize, usize) -> Option<f64>,
    ) -> (f64, Vec<usize>) {
        let c = &self.instance.commodities[commodity];
        let mut layers: Vec<Vec<(f64, u32, usize)>> = Vec::with_capacity(c.vnfs as usize);
        for z in 0..c.vnfs as usize {
            let stage = c.stage(z);
            let vnf = self.instance.stage_vnf[stage] as usize;
            let mut layer = Vec::new();
            for &(site, row) in &self.instance.vnfs[vnf].deployments {
                let Some(extra) = extra(vnf, site as usize, z) else {
                    continue;
                };
                let place = self.instance.site_place[site as usize];
                let (mut best, mut from) = (f64::INFINITY, 0);
                if z == 0 {
                    for &source in self.instance.sources(c) {
                        best = best.min(self.hop(stage, source, place));
                    }
                } else {
                    for (i, &(cost, site, _)) in layers[z - 1].iter().enumerate() {
                        let cost =
                            cost + self.hop(stage, self.instance.site_place[site as usize], place);
                        if cost < best {
                            (best, from) = (cost, i);
                        }
                    }
                }
                layer.push((
                    best + extra + self.visit(commodity, z, site as usize, row as usize),
                    site,
                    from,
                ));
            }
            layers.push(layer);
        }
        self.finish(commodity, &layers)
    }

    /// The route over given sites with its cheapest ends.
    fn with_ends(&self, commodity: &crate::instance::Commodity, sites: &[usize]) -> Route {
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

    fn finish(&self, commodity: usize, layers: &[Vec<(f64, u32, usize)>]) -> (f64, Vec<usize>) {
        let c = &self.instance.commodities[commodity];
        let last = c.stage(c.vnfs as usize);
        let mut best = (f64::INFINITY, 0);
        for &sink in self.instance.sinks(c) {
            match layers.last() {
                None => {
                    for &source in self.instance.sources(c) {
                        best.0 = best.0.min(self.hop(last, source, sink));
                    }
                }
                Some(layer) => {
                    for (i, &(cost, site, _)) in layer.iter().enumerate() {
                        let cost =
                            cost + self.hop(last, self.instance.site_place[site as usize], sink);
                        if cost < best.0 {
                            best = (cost, i);
                        }
                    }
                }
            }
        }
        let mut sites = vec![0; layers.len()];
        let mut at = best.1;
        for z in (0..layers.len()).rev() {
            let (_, site, from) = layers[z][at];
            sites[z] = site as usize;
            at = from;
        }
        (best.0, sites)
    }

    /// Total cost under a placement, and for each VNF the total if the new site in `slot` were each site.
    fn moves(&self, search: &Search, placed: &[Vec<usize>], slot: usize) -> (f64, Vec<Vec<f64>>) {
        let mut totals = vec![vec![0.0; self.sites]; placed.len()];
        let mut total = 0.0;
        let mut sweep = Sweep::default();
        for commodity in 0..self.instance.commodities.len() {
            total += self.through(search, placed, commodity, &mut sweep);
            let c = &self.instance.commodities[commodity];
            for z in 0..c.vnfs as usize {
                let vnf = self.instance.stage_vnf[c.stage(z)] as usize;
                if search.new_sites[vnf] == 0 {
                    continue;
                }
                let via = |s: usize| {
                    sweep.forward[z * self.sites + s] + sweep.backward[z * self.sites + s]
                };
                let others = placed[vnf]
                    .iter()
                    .enumerate()
                    .filter(|(k, _)| *k != slot)
                    .map(|(_, s)| *s);
                let stay = search.existing[vnf]
                    .iter()
                    .copied()
                    .chain(others)
                    .map(via)
                    .fold(f64::INFINITY, f64::min);
                for &site in &search.candidates[vnf] {
                    totals[vnf][site] += stay.min(via(site));
                }
            }
        }
        (total, totals)
    }

    /// Forward and backward costs of a commodity over the open sites, for every site it could use; and its total.
    fn through(
        &self,
        search: &Search,
        placed: &[Vec<usize>],
        commodity: usize,
        sweep: &mut Sweep,
    ) -> f64 {
        let c = &self.instance.commodities[commodity];
        let (vnfs, sites) = (c.vnfs as usize, self.sites);
        sweep.forward.clear();
        sweep.forward.resize(vnfs * sites, f64::INFINITY);
        sweep.backward.clear();
        sweep.backward.resize(vnfs * sites, f64::INFINITY);
        let vnf_at = |z: usize| self.instance.stage_vnf[c.stage(z)] as usize;
        let open = |z: usize| {
            search.existing[vnf_at(z)]
                .iter()
                .chain(&placed[vnf_at(z)])
                .copied()
        };
        let place = |site: usize| self.instance.site_place[site];
        for z in 0..vnfs {
            for &(site, row) in &self.instance.vnfs[vnf_at(z)].deployments {
                let site = site as usize;
                let into = if z == 0 {
                    self.instance
                        .sources(c)
                        .iter()
                        .map(|&s| self.hop(c.stage(0), s, place(site)))
                        .fold(f64::INFINITY, f64::min)
                } else {
                    open(z - 1)
                        .map(|s| {
                            sweep.forward[(z - 1) * sites + s]
                                + self.hop(c.stage(z), place(s), place(site))
                        })
                        .fold(f64::INFINITY, f64::min)
                };
                sweep.forward[z * sites + site] =
                    into + self.visit(commodity, z, site, row as usize);
            }
        }
        for z in (0..vnfs).rev() {
            let row = |site: usize| self.instance.vnf_row(vnf_at(z + 1), site).unwrap_or(0);
            for &(site, _) in &self.instance.vnfs[vnf_at(z)].deployments {
                let site = site as usize;
                sweep.backward[z * sites + site] = if z + 1 == vnfs {
                    self.instance
                        .sinks(c)
                        .iter()
                        .map(|&s| self.hop(c.stage(vnfs), place(site), s))
                        .fold(f64::INFINITY, f64::min)
                } else {
                    open(z + 1)
                        .map(|s| {
                            self.hop(c.stage(z + 1), place(site), place(s))
                                + self.visit(commodity, z + 1, s, row(s))
                                + sweep.backward[(z + 1) * sites + s]
                        })
                        .fold(f64::INFINITY, f64::min)
                };
            }
        }
        if vnfs == 0 {
            return self.finish(commodity, &[]).0;
        }
        open(0)
            .map(|s| sweep.forward[s] + sweep.backward[s])
            .fold(f64::INFINITY, f64::min)
    }

    /// A lower bound on the cost of any placement, by a subgradient method that aims at `target`.
    pub fn lower_bound(
        &self,
        search: &Search,
        placed: &[Vec<usize>],
        target: f64,
        gap: f64,
        stop: &dyn Fn() -> bool,
    ) -> f64 {
        let mut offsets = vec![0usize];
        for c in &self.instance.commodities {
            offsets.push(offsets[offsets.len() - 1] + c.vnfs as usize * self.sites);
        }
        let mut lambda = self.first_multipliers(search, placed, &offsets);
        let mut direction = vec![0.0f32; lambda.len()];
        // With every candidate open and free, no placement travels less.
        let nothing = vec![0.0f32; lambda.len()];
        let (mut best, mut step, mut stale) = (self.relaxed(search, &nothing, &offsets).0, 1.0, 0);
        let small = self.instance.commodities.len() * search.candidates.len() <= POLISHED;
        for _ in 0..if small { 10 * BOUND_STEPS } else { BOUND_STEPS } {
            if stop() {
                break;
            }
            let (bound, used, chosen) = self.relaxed(search, &lambda, &offsets);
            if bound > best {
                (best, stale) = (bound, 0);
            } else {
                stale += 1;
            }
            if stale >= 5 {
                (step, stale) = (0.6 * step, 0);
            }
            if best >= target * (1.0 - gap) {
                break;
            }
            self.ascend(
                search,
                &mut lambda,
                &mut direction,
                &offsets,
                &used,
                &chosen,
                step * (target - bound),
            );
        }
        best
    }

    /// What a chain would save by each candidate, the others as placed: multipliers to begin with.
    fn first_multipliers(
        &self,
        search: &Search,
        placed: &[Vec<usize>],
        offsets: &[usize],
    ) -> Vec<f32> {
        let mut lambda = vec![0.0f32; offsets[offsets.len() - 1]];
        let mut sweep = Sweep::default();
        for (commodity, c) in self.instance.commodities.iter().enumerate() {
            self.through(search, placed, commodity, &mut sweep);
            for z in 0..c.vnfs as usize {
                let vnf = self.instance.stage_vnf[c.stage(z)] as usize;
                let via = |s: usize| {
                    sweep.forward[z * self.sites + s] + sweep.backward[z * self.sites + s]
                };
                let stay = search.existing[vnf]
                    .iter()
                    .map(|&s| via(s))
                    .fold(f64::INFINITY, f64::min);
                for &site in &search.candidates[vnf] {
                    let saved = (stay - via(site)).clamp(0.0, 1e12);
                    lambda[offsets[commodity] + z * self.sites + site] = saved as f32;
                }
            }
        }
        lambda
    }

    /// Value of the relaxation, the sites that each commodity uses, and those that each VNF would be given.
    fn relaxed(
        &self,
        search: &Search,
        lambda: &[f32],
        offsets: &[usize],
    ) -> (f64, Vec<Vec<usize>>, Vec<Vec<usize>>) {
        let mut paid = vec![vec![0.0f64; self.sites]; search.candidates.len()];
        let mut used = Vec::with_capacity(self.instance.commodities.len());
        let mut bound = 0.0;
        let is_candidate: Vec<Vec<bool>> = search
            .candidates
            .iter()
            .map(|c| {
                let mut flags = vec![false; self.sites];
                c.iter().for_each(|&s| flags[s] = true);
                flags
            })
            .collect();
        for (commodity, c) in self.instance.commodities.iter().enumerate() {
            let base = offsets[commodity];
            let (cost, sites) = self.route(commodity, |vnf, site, z| {
                Some(if is_candidate[vnf][site] {
                    f64::from(lambda[base + z * self.sites + site])
                } else {
                    0.0
                })
            });
            bound += cost;
            used.push(sites);
            for z in 0..c.vnfs as usize {
                let vnf = self.instance.stage_vnf[c.stage(z)] as usize;
                for &site in &search.candidates[vnf] {
                    paid[vnf][site] += f64::from(lambda[base + z * self.sites + site]);
                }
            }
        }
        let mut chosen = Vec::with_capacity(paid.len());
        for (vnf, paid) in paid.iter().enumerate() {
            let mut order = search.candidates[vnf].clone();
            order.sort_by(|&a, &b| paid[b].total_cmp(&paid[a]));
            order.truncate(search.new_sites[vnf]);
            bound -= order.iter().map(|&s| paid[s]).sum::<f64>();
            chosen.push(order);
        }
        (bound, used, chosen)
    }

    /// One step along the subgradient x − w, smoothed over steps.
    #[allow(clippy::too_many_arguments)]
    fn ascend(
        &self,
        search: &Search,
        lambda: &mut [f32],
        direction: &mut [f32],
        offsets: &[usize],
        used: &[Vec<usize>],
        chosen: &[Vec<usize>],
        distance: f64,
    ) {
        let mut norm = 0.0f64;
        for (commodity, c) in self.instance.commodities.iter().enumerate() {
            #[allow(
                clippy::needless_range_loop,
                reason = "z is also the position in the chain"
            )]
            for z in 0..c.vnfs as usize {
                let vnf = self.instance.stage_vnf[c.stage(z)] as usize;
                for &site in &search.candidates[vnf] {
                    let at = offsets[commodity] + z * self.sites + site;
                    let x = f32::from(u8::from(used[commodity][z] == site));
                    let w = f32::from(u8::from(chosen[vnf].contains(&site)));
                    direction[at] = 0.6 * direction[at] + 0.4 * (x - w);
                    // A multiplier at zero that would fall does not move.
                    if lambda[at] > 0.0 || direction[at] > 0.0 {
                        norm += f64::from(direction[at]).powi(2);
                    }
                }
            }
        }
        if norm > 0.0 {
            let step = (distance.max(0.0) / norm) as f32;
            for (l, d) in lambda.iter_mut().zip(direction) {
                *l = (*l + step * *d).max(0.0);
            }
        }
    }
}
