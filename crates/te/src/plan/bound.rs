//! The Lagrangian bound of placement: x ≤ w relaxed with multipliers λ, raised by a subgradient method.

use crate::clock::Clock;
use crate::plan::relaxation::{Relaxation, Scratch, Sweep};
use crate::plan::search::{POLISHED, Search};

/// Steps of the subgradient method; in small models, where they cost nothing, ten times as many.
const STEPS: usize = 120;

/// Share of its last direction in the next one.
const MEMORY: f32 = 0.6;

/// Steps without a better bound after which steps become shorter.
const PATIENCE: usize = 5;

/// By how much they become shorter.
const SHORTER: f64 = 0.6;

/// The multipliers λ of one relaxation and what raises them.
pub struct Bound<'a> {
    relaxation: &'a Relaxation<'a>,
    search: &'a Search,
    /// Where each commodity's multipliers begin; they are by position in the chain and site.
    offsets: Vec<usize>,
    /// VNF of each position of each commodity, and where the multipliers of the position begin.
    stages: Vec<(usize, usize)>,
    /// Sites that each VNF may be at.
    open: Vec<Vec<usize>>,
    lambda: Vec<f32>,
    direction: Vec<f32>,
}

/// The relaxation's optimum.
struct Relaxed {
    value: f64,
    /// Sites that each commodity uses, one commodity after the other.
    used: Vec<usize>,
    /// Whether each VNF would be given each site.
    chosen: Vec<Vec<bool>>,
}

impl<'a> Bound<'a> {
    /// Multipliers at what each chain would save by each candidate, the others as placed; zero for those that there was not
    /// the time for.
    pub fn new(
        relaxation: &'a Relaxation<'a>,
        search: &'a Search,
        placed: &[Vec<usize>],
        clock: &Clock<'_>,
    ) -> Self {
        let sites = relaxation.instance.sites;
        let (mut offsets, mut stages) = (vec![0], Vec::new());
        for c in &relaxation.instance.commodities {
            for z in 0..c.vnfs as usize {
                stages.push((relaxation.vnf(c, z), stages.len() * sites));
            }
            offsets.push(stages.len() * sites);
        }
        let count = stages.len() * sites;
        let mut bound = Bound {
            relaxation,
            search,
            offsets,
            stages,
            open: search.open(&search.candidates),
            lambda: vec![0.0; count],
            direction: vec![0.0; count],
        };
        let (open, mut sweep) = (search.open(placed), Sweep::default());
        for (commodity, c) in relaxation.instance.commodities.iter().enumerate() {
            if clock.is_over_at(commodity) {
                break;
            }
            relaxation.through(&open, c, &mut sweep);
            for z in 0..c.vnfs as usize {
                let vnf = relaxation.vnf(c, z);
                let stay = sweep.least(z, search.existing[vnf].iter().copied());
                let first = bound.offsets[commodity] + z * sites;
                for &site in &search.candidates[vnf] {
                    let saved = (stay - sweep.via(z, site)).clamp(0.0, 1e12);
                    bound.lambda[first + site] = saved as f32;
                }
            }
        }
        bound
    }

    /// A lower bound on the cost of any placement, by steps that aim at `target`; `gap` is the share of it that may be
    /// missing. `report` is called after every step.
    pub fn raise(mut self, target: f64, gap: f64, clock: &Clock<'_>, report: &dyn Fn()) -> f64 {
        // With every candidate open and free, no placement travels less.
        let free = self.free(clock).unwrap_or(f64::NEG_INFINITY);
        let (mut best, mut step, mut stale) = (free, 1.0, 0);
        let commodities = self.relaxation.instance.commodities.len();
        let small = commodities * self.search.candidates.len() <= POLISHED;
        for _ in 0..if small { 10 * STEPS } else { STEPS } {
            let Some(relaxed) = self.relaxed(clock) else {
                break;
            };
            report();
            if relaxed.value > best {
                (best, stale) = (relaxed.value, 0);
            } else {
                stale += 1;
            }
            if stale >= PATIENCE {
                (step, stale) = (SHORTER * step, 0);
            }
            if best >= target * (1.0 - gap) {
                break;
            }
            self.ascend(&relaxed, step * (target - relaxed.value));
        }
        best
    }

    /// Value of the relaxation with all multipliers zero; none when there was not the time.
    fn free(&self, clock: &Clock<'_>) -> Option<f64> {
        let mut scratch = Scratch::default();
        (0..self.relaxation.instance.commodities.len())
            .map(|c| {
                let go_on = !clock.is_over_at(c);
                go_on.then(|| self.relaxation.cheapest(c, &self.open, None, &mut scratch))
            })
            .sum()
    }

    fn relaxed(&self, clock: &Clock<'_>) -> Option<Relaxed> {
        let (instance, sites) = (self.relaxation.instance, self.relaxation.instance.sites);
        let mut paid = vec![vec![0.0f64; sites]; self.search.candidates.len()];
        let mut used = Vec::with_capacity(self.lambda.len() / sites.max(1));
        let (mut value, mut scratch) = (0.0, Scratch::default());
        for commodity in 0..instance.commodities.len() {
            if clock.is_over_at(commodity) {
                return None;
            }
            let lambda = &self.lambda[self.offsets[commodity]..self.offsets[commodity + 1]];
            value += self
                .relaxation
                .cheapest(commodity, &self.open, Some(lambda), &mut scratch);
            used.extend_from_slice(&scratch.sites);
        }
        for &(vnf, first) in &self.stages {
            for (paid, lambda) in paid[vnf].iter_mut().zip(&self.lambda[first..]) {
                *paid += f64::from(*lambda);
            }
        }
        let mut chosen = Vec::with_capacity(paid.len());
        for (vnf, paid) in paid.iter().enumerate() {
            let mut order = self.search.candidates[vnf].clone();
            order.sort_by(|&a, &b| paid[b].total_cmp(&paid[a]));
            order.truncate(self.search.new_sites[vnf]);
            value -= order.iter().map(|&s| paid[s]).sum::<f64>();
            let mut flags = vec![false; sites];
            order.into_iter().for_each(|site| flags[site] = true);
            chosen.push(flags);
        }
        Some(Relaxed {
            value,
            used,
            chosen,
        })
    }

    /// One step along the subgradient x − w, smoothed over steps, as long as makes up `distance` if the relaxation were
    /// linear.
    fn ascend(&mut self, relaxed: &Relaxed, distance: f64) {
        let mut direction = std::mem::take(&mut self.direction);
        let mut norm = 0.0f64;
        for (&(vnf, first), used) in self.stages.iter().zip(&relaxed.used) {
            for &site in &self.search.candidates[vnf] {
                let x = f32::from(u8::from(*used == site));
                let w = f32::from(u8::from(relaxed.chosen[vnf][site]));
                let d = &mut direction[first + site];
                *d = MEMORY * *d + (1.0 - MEMORY) * (x - w);
                // A multiplier at zero that would fall does not move.
                if self.lambda[first + site] > 0.0 || *d > 0.0 {
                    norm += f64::from(*d).powi(2);
                }
            }
        }
        if norm > 0.0 {
            let step = (distance.max(0.0) / norm) as f32;
            for (lambda, d) in self.lambda.iter_mut().zip(&direction) {
                *lambda = (*lambda + step * *d).max(0.0);
            }
        }
        self.direction = direction;
    }
}
