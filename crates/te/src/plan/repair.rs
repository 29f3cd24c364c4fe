//! Placements that leave every chain with limits a route: what the search for short routes does not look at.

use crate::clock::Clock;
use crate::constrained::{Costs, cheapest_by};
use crate::instance::{Commodity, Instance, Route};
use crate::plan::search::Search;
use crate::random::Random;
use crate::tables::{IMPOSSIBLE, Tables};
use std::collections::VecDeque;

/// Moves for each new site, after which the repair gives up.
const PATIENCE: usize = 60;

/// One move in so many is made by chance.
const NOISE: usize = 8;

/// Moves for which a site that a VNF has left is not taken again.
const STAYS_AWAY: usize = 4;

/// Counts the visits of a route at sites that are not open.
struct Closed<'a> {
    instance: &'a Instance,
    tables: &'a Tables,
    commodity: &'a Commodity,
    /// By VNF and site: whether it may be opened and is not.
    closed: &'a [Vec<bool>],
}

impl Costs for Closed<'_> {
    fn hop(&self, z: usize, from: u32, to: u32) -> f64 {
        let (forward, reverse) = self.traffic(0, z);
        let at = from as usize * self.instance.stride + to as usize;
        forward * self.tables.forward[at] + reverse * self.tables.reverse[at]
    }

    fn visit(&self, z: usize, site: u32, row: u32) -> f64 {
        let vnf = self.instance.stage_vnf[self.commodity.stage(z)] as usize;
        let load = self.instance.vnfs[vnf].load_per_mbps * self.instance.handled(self.commodity, z);
        let site_row = self.instance.links + site as usize;
        let price = self.tables.row_price(site_row) + self.tables.row_price(row as usize);
        load * price + f64::from(u8::from(self.closed[vnf][site as usize]))
    }

    fn traffic(&self, _time: usize, z: usize) -> (f64, f64) {
        let stage = self.commodity.stage(z);
        (self.instance.forward[stage], self.instance.reverse[stage])
    }
}

/// A placement under repair.
struct Repair<'a> {
    /// With every candidate open.
    instance: &'a Instance,
    search: &'a Search,
    tables: Tables,
    placed: Vec<Vec<usize>>,
    closed: Vec<Vec<bool>>,
}

/// Changes a placement until every commodity with limits has a route; `instance` has every candidate open. What is left
/// stuck when the patience or the time is over stays so.
///
/// # Errors
/// A commodity that has no route with every candidate open.
pub fn repair(
    instance: &Instance,
    search: &Search,
    placed: Vec<Vec<usize>>,
    clock: &Clock<'_>,
) -> Result<Vec<Vec<usize>>, usize> {
    let limited: Vec<usize> = (0..instance.commodities.len())
        .filter(|&c| instance.commodities[c].limits.is_some())
        .collect();
    let mut repair = Repair {
        tables: Tables::new(instance, &vec![0.0; instance.rows()], 0.0),
        closed: vec![vec![false; instance.sites]; instance.vnfs.len()],
        instance,
        search,
        placed,
    };
    (0..instance.vnfs.len()).for_each(|vnf| repair.close(vnf));
    let count: usize = search.new_sites.iter().sum();
    let visits = |c: usize, vnf: usize| {
        let commodity = &instance.commodities[c];
        (0..commodity.vnfs as usize).any(|z| instance.stage_vnf[commodity.stage(z)] as usize == vnf)
    };
    let visitors: Vec<Vec<usize>> = (0..instance.vnfs.len())
        .map(|vnf| {
            limited
                .iter()
                .copied()
                .filter(|&c| visits(c, vnf))
                .collect()
        })
        .collect();
    let mut left: VecDeque<(usize, usize)> = VecDeque::new();
    let mut random = Random::new(1);
    for _ in 0..PATIENCE * count {
        let mut stuck: Vec<(usize, Route)> = Vec::new();
        for (at, &commodity) in limited.iter().enumerate() {
            if clock.is_over_at(at) {
                return Ok(repair.placed);
            }
            let (missing, route) = repair.missing(commodity).ok_or(commodity)?;
            if missing > 0.5 {
                stuck.push((commodity, route));
            }
        }
        if stuck.is_empty() {
            break;
        }
        // Any of them, by chance: a fixed order goes round in circles.
        let (commodity, route) = stuck.swap_remove(random.below(stuck.len()));
        let lacking: Vec<usize> = (0..route.sites.len())
            .map(|z| (instance.commodities[commodity].stage(z), route.sites[z]))
            .map(|(stage, site)| (instance.stage_vnf[stage] as usize, site as usize))
            .filter_map(|(vnf, site)| repair.closed[vnf][site].then_some(vnf))
            .collect();
        let vnf = lacking[random.below(lacking.len())];
        let (slot, site) = repair.best_move(vnf, &visitors[vnf], &left, &mut random);
        left.push_back((vnf, repair.placed[vnf][slot]));
        if left.len() > STAYS_AWAY {
            left.pop_front();
        }
        repair.place(vnf, slot, site);
    }
    Ok(repair.placed)
}

impl Repair<'_> {
    /// Closes the candidates of a VNF that are not placed.
    fn close(&mut self, vnf: usize) {
        for &site in &self.search.candidates[vnf] {
            self.closed[vnf][site] = !self.placed[vnf].contains(&site);
        }
    }

    /// How many sites a commodity lacks at least, and the route that lacks no more; none where it has no route at all.
    fn missing(&self, commodity: usize) -> Option<(f64, Route)> {
        let commodity = &self.instance.commodities[commodity];
        let costs = Closed {
            instance: self.instance,
            tables: &self.tables,
            commodity,
            closed: &self.closed,
        };
        cheapest_by(self.instance, &costs, commodity).filter(|(cost, _)| *cost < IMPOSSIBLE)
    }

    /// The move of one of a VNF's new sites after which its visitors lack least, or one by chance.
    fn best_move(
        &mut self,
        vnf: usize,
        visitors: &[usize],
        left: &VecDeque<(usize, usize)>,
        random: &mut Random,
    ) -> (usize, usize) {
        let search = self.search;
        let sites = search.candidates[vnf].iter().copied();
        let sites: Vec<usize> = sites.filter(|&site| self.closed[vnf][site]).collect();
        let slots = self.placed[vnf].len();
        let mut best = (
            f64::INFINITY,
            (random.below(slots), sites[random.below(sites.len())]),
        );
        if random.below(NOISE) == 0 {
            return best.1;
        }
        for slot in 0..slots {
            let before = self.placed[vnf][slot];
            for &site in sites.iter().filter(|&&site| !left.contains(&(vnf, site))) {
                self.place(vnf, slot, site);
                let lacks = |&c: &usize| self.missing(c).map_or(0.0, |(missing, _)| missing);
                let total: f64 = visitors.iter().map(lacks).sum();
                if total < best.0 {
                    best = (total, (slot, site));
                }
            }
            self.place(vnf, slot, before);
        }
        best.1
    }

    fn place(&mut self, vnf: usize, slot: usize, site: usize) {
        self.placed[vnf][slot] = site;
        self.close(vnf);
    }
}
