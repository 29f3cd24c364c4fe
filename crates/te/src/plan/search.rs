//! Local search for a placement.

use crate::clock::Clock;
use crate::heuristic::Nearest;
use crate::instance::{Commodity, Instance, Route};
use crate::kernel;
use crate::plan::relaxation::{Relaxation, Scratch};
use crate::solution::{Flow, Objective, Solution, Status, value};
use crate::tables::{IMPOSSIBLE, Tables};

/// Sweeps of local search.
const SWEEPS: usize = 14;

/// Chains times VNFs up to which a model is small: there a placement is polished move by move.
pub const POLISHED: usize = 20_000;

/// Fastest routes of chains with limits.
struct Latency {
    tables: Tables,
    scratch: kernel::Scratch,
}

impl Latency {
    fn new(instance: &Instance) -> Latency {
        Latency {
            tables: Tables::new(instance, &vec![0.0; instance.rows()], 1.0),
            scratch: kernel::Scratch::default(),
        }
    }

    fn route(&mut self, instance: &Instance, commodity: &Commodity) -> Option<Route> {
        let cost = kernel::cheapest(instance, &self.tables, commodity, &mut self.scratch);
        (cost < IMPOSSIBLE).then(|| self.scratch.route())
    }
}

/// What may be placed where.
pub struct Search {
    /// Sites that are new for each VNF.
    pub candidates: Vec<Vec<usize>>,
    /// How many of them each VNF gets.
    pub new_sites: Vec<usize>,
    /// Sites where each VNF runs already.
    pub existing: Vec<Vec<usize>>,
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
    /// When time is up, VNFs that lack sites get the next best that are free. `report` is called after every sweep.
    pub fn improve(
        &self,
        relaxation: &Relaxation<'_>,
        start: &[Vec<usize>],
        clock: &Clock<'_>,
        report: &dyn Fn(),
    ) -> Vec<Vec<usize>> {
        let mut placed: Vec<Vec<usize>> = if start.is_empty() {
            vec![Vec::new(); self.new_sites.len()]
        } else {
            start.to_vec()
        };
        let mut best = placed.clone();
        let mut best_total = f64::INFINITY;
        let slots = self.new_sites.iter().copied().max().unwrap_or(0);
        for sweep in 0..SWEEPS.max(2 * slots) {
            let slot = sweep % slots.max(1);
            let Some((total, totals)) = relaxation.moves(self, &placed, slot, clock) else {
                break;
            };
            report();
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
            self.complete(&mut placed);
            return placed;
        }
        if relaxation.instance.commodities.len() * best.len() <= POLISHED {
            self.polish(relaxation, &mut best, best_total, clock, report);
        }
        best
    }

    /// Gives VNFs that lack new sites the first that are free, beginning at another for each VNF.
    fn complete(&self, placed: &mut [Vec<usize>]) {
        for (vnf, mine) in placed.iter_mut().enumerate() {
            let candidates = &self.candidates[vnf];
            for k in 0..candidates.len() {
                let site = candidates[(vnf + k) % candidates.len()];
                if mine.len() < self.new_sites[vnf] && !mine.contains(&site) {
                    mine.push(site);
                }
            }
        }
    }

    /// Moves one new site at a time for as long as any single move gains.
    fn polish(
        &self,
        relaxation: &Relaxation<'_>,
        placed: &mut [Vec<usize>],
        mut total: f64,
        clock: &Clock<'_>,
        report: &dyn Fn(),
    ) {
        let mut gained = true;
        while gained {
            gained = false;
            for vnf in 0..placed.len() {
                for slot in 0..placed[vnf].len() {
                    let Some((_, totals)) = relaxation.moves(self, placed, slot, clock) else {
                        return;
                    };
                    report();
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

    /// Every chain on its fastest route under a placement, capacities ignored. `open` has what is not placed closed,
    /// `instance` has not. When time is up the rest go from site to nearest site.
    ///
    /// # Errors
    /// A commodity whose limits leave it no route.
    pub fn fastest(
        &self,
        open: &Instance,
        instance: &Instance,
        placed: &[Vec<usize>],
        clock: &Clock<'_>,
    ) -> Result<Solution, usize> {
        let relaxation = Relaxation::new(instance, &vec![0.0; instance.rows()]);
        let mut nearest: Option<Nearest> = None;
        let mut latency: Option<Latency> = None;
        let sites = self.open(placed);
        let mut scratch = Scratch::default();
        let mut flows = Vec::with_capacity(instance.commodities.len());
        for (c, commodity) in instance.commodities.iter().enumerate() {
            if nearest.is_none() && clock.is_over_at(c) {
                nearest = Some(Nearest::new(open));
            }
            let near = nearest.as_mut().and_then(|n| n.route(open, commodity));
            let route = match (near, commodity.limits.is_some()) {
                (Some(route), _) => route,
                (None, true) => {
                    let latency = latency.get_or_insert_with(|| Latency::new(open));
                    latency.route(open, commodity).ok_or(c)?
                }
                (None, false) => {
                    relaxation.cheapest(c, &sites, None, &mut scratch);
                    relaxation.with_ends(commodity, &scratch.sites)
                }
            };
            flows.push(Flow {
                commodity: c,
                route,
                fraction: 1.0,
            });
        }
        Ok(Solution {
            relaxed: None,
            status: Status::Feasible,
            objective: Objective::Latency,
            value: value(instance, Objective::Latency, &flows),
            bound: None,
            seconds: 0.0,
            flows,
        })
    }

    /// Every placement, where there are at most so many.
    pub fn few_placements(&self, most: usize) -> Option<Vec<Vec<Vec<usize>>>> {
        let mut all: Vec<Vec<Vec<usize>>> = vec![Vec::new()];
        for (candidates, &count) in self.candidates.iter().zip(&self.new_sites) {
            let choices = choices(candidates, count, most)?;
            if all.len() * choices.len() > most {
                return None;
            }
            let with = |placed: &Vec<Vec<usize>>, choice: &Vec<usize>| {
                let mut placed = placed.clone();
                placed.push(choice.clone());
                placed
            };
            all = all
                .iter()
                .flat_map(|placed| choices.iter().map(move |choice| with(placed, choice)))
                .collect();
        }
        Some(all)
    }

    /// Sites where each VNF runs under a placement.
    pub fn open(&self, placed: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let both = self.existing.iter().zip(placed);
        both.map(|(old, new)| [&old[..], new].concat()).collect()
    }
}

/// All ways to choose `count` of some sites, where there are at most so many.
fn choices(sites: &[usize], count: usize, most: usize) -> Option<Vec<Vec<usize>>> {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for taken in 0..count {
        let mut longer = Vec::new();
        for choice in &all {
            let first = choice.last().map_or(0, |last| {
                1 + sites.iter().position(|s| s == last).unwrap_or(0)
            });
            // As many must be left as are still to be taken.
            let end = (sites.len() + taken + 1).saturating_sub(count);
            for &site in sites.get(first..end).unwrap_or_default() {
                let mut choice = choice.clone();
                choice.push(site);
                longer.push(choice);
            }
        }
        if longer.len() > most {
            return None;
        }
        all = longer;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_placements_are_all_combinations_and_many_are_none() {
        let search = |candidates: Vec<Vec<usize>>, new_sites: &[usize]| Search {
            existing: vec![Vec::new(); candidates.len()],
            new_sites: new_sites.to_vec(),
            candidates,
        };
        let two = search(vec![vec![1, 4, 5], vec![], vec![0, 2]], &[2, 0, 1]);
        let all = two.few_placements(6).expect("six");
        let chosen: Vec<(&[usize], usize)> = all.iter().map(|p| (&p[0][..], p[2][0])).collect();
        assert_eq!(
            chosen,
            [
                (&[1, 4][..], 0),
                (&[1, 4], 2),
                (&[1, 5], 0),
                (&[1, 5], 2),
                (&[4, 5], 0),
                (&[4, 5], 2)
            ]
        );
        assert!(all.iter().all(|p| p[1].is_empty()));
        assert_eq!(two.few_placements(5), None);
        let many = search(vec![(0..40).collect()], &[20]);
        assert_eq!(many.few_placements(1000), None);
    }
}
