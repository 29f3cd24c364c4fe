//! The rounds of column generation.

mod counting;
mod few_routes;
mod fit;
mod interior_start;
mod quick_start;
mod rationing;
mod route_limit;
mod spreading;
mod warm_start;

use super::certificate::{Sweep, sweep};
use super::columns::{Columns, Costing};
use super::expansion::Expansion;
use super::frank_wolfe::{FrankWolfe, Potential};
use super::master::{Restricted, Start};
use super::{Monitor, Options, Phase, Progress, outcome};
use crate::clock::Clock;
use crate::error::Infeasible;
use crate::infeasible::no_route;
use crate::instance::Instance;
use crate::model::Model;
use crate::solution::{Objective, Solution, relative_gap, value};

/// Utilisation above one that counts as rounding.
const ROUNDING: f64 = 2e-7;

/// Sweeps of Frank–Wolfe after which its answer is looked at.
const WALK: usize = 8;

/// Part of the gap to which a master is solved before routes are priced again: more is lost on columns that are missing.
const CLOSER: f64 = 0.4;

/// Most rounds.
const ROUNDS: usize = 200;

pub use fit::{Fit, fit};

pub(super) struct Solver<'a> {
    instance: &'a Instance,
    costing: Costing,
    options: &'a Options,
    monitor: &'a Monitor<'a>,
    clock: &'a Clock<'a>,
    columns: Columns,
    restricted: Restricted,
    /// Best routing so far: shares of columns and minimised value.
    best: Vec<f64>,
    value: f64,
    /// Best bound so far, and the prices that prove it.
    bound: f64,
    proof: Vec<f64>,
    /// A routing with room on every row, and its largest utilisation; none under scale.
    interior: Option<(Vec<f64>, f64)>,
    /// SB-DP's answer, for an answer before the solver has its own; none under scale.
    quick: Option<Solution>,
    stuck: Option<usize>,
    /// Prices from which the first master starts, where they are not those of the proof.
    first_price: Option<Vec<f64>>,
    /// The best minimised value of a routing that keeps numbers of routes, beside the one at work.
    held: f64,
    /// Capacity that may be added, under scale.
    expansion: Option<Expansion>,
    /// Once chains are held to their number of routes: the columns that may be used.
    allowed: Option<Vec<bool>>,
    /// The bound without regard to numbers of routes, once there is one with it.
    relaxed: Option<f64>,
}

/// Solves an instance to a certified gap.
///
/// # Errors
/// A chain without a route, or demands that provably do not fit.
pub fn solve(
    model: &Model,
    instance: &Instance,
    objective: Objective,
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<Solution, Infeasible> {
    solve_with_prices(model, instance, objective, options, monitor).map(|(solution, _)| solution)
}

/// As [`solve`]; also the prices that prove the bound, by row and for the row's whole capacity, in the objective's unit.
///
/// # Errors
/// As [`solve`].
pub fn solve_with_prices(
    model: &Model,
    instance: &Instance,
    objective: Objective,
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<(Solution, Vec<f64>), Infeasible> {
    let clock = Clock::new(options, monitor);
    let mut solver = Solver::new(instance, objective, options, monitor, &clock);
    let mut counted = false;
    if objective == Objective::Scale {
        solver.warm_start();
    } else {
        solver.start_quickly(model)?;
        counted = solver.find_interior(model)?;
    }
    if let Some(commodity) = solver.stuck {
        return Err(no_route(model, instance, commodity));
    }
    if objective == Objective::Scale && solver.value <= 0.0 {
        return Err(Infeasible::unbounded());
    }
    solver.rounds(|s| s.gap() <= options.gap);
    if counted && solver.is_open() {
        solver.walk_with_barrier();
        solver.rounds(|s| s.gap() <= options.gap);
    }
    if instance.max_routes.is_empty() && solver.is_open() && solver.value.is_finite() {
        solver.choose_routes();
    }
    solver.limit_routes(model);
    if objective != Objective::Scale && solver.quick_is_better() {
        return Ok(solver.give_quick());
    }
    let unit = solver.costing.unit;
    let prices = solver.proof.iter().map(|p| p * unit).collect();
    Ok((solver.finish(), prices))
}

/// Solves the scale objective with `added` capacity to spread over the sites (the paper's cloud capacity planning).
/// Returns the routing and the share of the added capacity for each site; the bound is that of the plan. `even` is the
/// optimum when each site gets an equal part, with the prices that prove it: the search goes on from there.
///
/// # Errors
/// As [`solve`].
pub fn expand(
    model: &Model,
    instance: &Instance,
    added: f64,
    even: (&Solution, &[f64]),
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<(Solution, Vec<f64>), Infeasible> {
    let clock = Clock::new(options, monitor);
    let mut extended = instance.clone();
    extended.capacity.push(added);
    let mut solver = Solver::new(&extended, Objective::Scale, options, monitor, &clock);
    solver.expansion = Some(Expansion::new(instance, added));
    solver.warm_start();
    if let Some(commodity) = solver.stuck {
        return Err(no_route(model, instance, commodity));
    }
    if solver.value <= 0.0 {
        return Err(Infeasible::unbounded());
    }
    solver.take_up(even.0, even.1);
    for row in instance.links..instance.links + instance.sites {
        solver.restricted.add_row(row);
    }
    solver.restricted.add_row(instance.rows());
    solver.rounds(|s| s.gap() <= options.gap);
    solver.limit_routes(model);
    solver.thin_out();
    let shares = solver.expansion.take().map(|e| e.best).unwrap_or_default();
    Ok((solver.finish(), shares))
}

impl<'a> Solver<'a> {
    fn new(
        instance: &'a Instance,
        objective: Objective,
        options: &'a Options,
        monitor: &'a Monitor<'a>,
        clock: &'a Clock<'a>,
    ) -> Self {
        let least =
            (objective == Objective::Latency).then(|| least_latency(instance, options, clock));
        let unit = match objective {
            Objective::Scale => 1.0,
            Objective::Throughput => instance.commodities.iter().map(|c| c.worth).sum(),
            Objective::Latency => least.flatten().unwrap_or(0.0),
        };
        Solver {
            instance,
            costing: Costing {
                objective,
                unit: if unit > 0.0 { unit } else { 1.0 },
            },
            options,
            monitor,
            clock,
            columns: Columns::new(instance),
            restricted: Restricted::new(instance, options.threads),
            best: Vec::new(),
            value: f64::INFINITY,
            // In units of the solver: all demand carried, every chain on its fastest route, nothing known.
            bound: match objective {
                Objective::Throughput => -1.0,
                Objective::Latency if unit > 0.0 => 1.0,
                Objective::Latency | Objective::Scale => 0.0,
            },
            proof: vec![0.0; instance.rows()],
            interior: None,
            quick: None,
            stuck: None,
            first_price: None,
            held: f64::INFINITY,
            expansion: None,
            allowed: None,
            relaxed: None,
        }
    }

    fn is_scale(&self) -> bool {
        self.costing.objective == Objective::Scale
    }

    fn gap(&self) -> f64 {
        let (value, bound) = (self.in_objective(self.value), self.in_objective(self.bound));
        relative_gap(self.costing.objective, value, bound)
    }

    /// Whether the gap is larger than it may be, and there is time.
    fn is_open(&self) -> bool {
        self.gap() > self.options.gap && !self.should_stop()
    }

    fn in_objective(&self, minimised: f64) -> f64 {
        outcome::to_objective(self.costing.objective, self.costing.unit, minimised)
    }

    fn should_stop(&self) -> bool {
        self.clock.is_over()
    }

    fn report(&self) {
        if let Some(report) = self.monitor.report {
            report(&self.progress());
        }
    }

    /// What is known now. A routing on more routes than a chain may have is no answer.
    fn progress(&self) -> Progress {
        let value = if self.instance.max_routes.is_empty() || self.allowed.is_some() {
            self.value.min(self.held)
        } else {
            self.held
        };
        let value = if value.is_finite() {
            self.in_objective(value)
        } else {
            f64::NAN
        };
        let bound = self.in_objective(self.bound);
        Progress {
            value,
            bound,
            gap: relative_gap(self.costing.objective, value, bound),
            ..Progress::at(self.clock.elapsed())
        }
    }

    /// Takes over a routing if it is better than the best; `utilization` by row.
    fn offer(&mut self, x: &[f64], utilization: &[f64]) {
        let most = utilization.iter().copied().fold(0.0, f64::max);
        if self.is_scale() {
            if most < self.value {
                (self.value, self.best) = (most, x.to_vec());
                if let Some(expansion) = &mut self.expansion {
                    expansion.best.clone_from(&expansion.shares);
                }
            } else if self.expansion.is_none() && self.value.is_finite() {
                self.mix(x, utilization);
            }
            return;
        }
        let cost = |x: &[f64]| {
            x.iter()
                .zip(&self.columns.cost)
                .map(|(x, c)| x * c)
                .sum::<f64>()
        };
        if most <= 1.0 + ROUNDING {
            let value = cost(x);
            if value < self.value {
                (self.value, self.best) = (value, x.to_vec());
            }
            return;
        }
        // Step back toward the interior until every row holds.
        let Some((interior, room)) = &self.interior else {
            return;
        };
        if *room >= 1.0 - ROUNDING {
            return;
        }
        let step = (most - 1.0) / (most - room);
        let mixed: Vec<f64> = (0..self.columns.len())
            .map(|c| {
                (1.0 - step) * x.get(c).unwrap_or(&0.0) + step * interior.get(c).unwrap_or(&0.0)
            })
            .collect();
        let value = cost(&mixed);
        if value < self.value {
            (self.value, self.best) = (value, mixed);
        }
    }

    /// Under scale, goes from the best routing toward another as far as the fullest row sinks: a master that left out
    /// rows overfills them, and is right about all others.
    fn mix(&mut self, x: &[f64], utilization: &[f64]) {
        let now = self.utilization(&self.best);
        let fullest = |step: f64| {
            now.iter()
                .zip(utilization)
                .map(|(a, b)| a + step * (b - a))
                .fold(0.0, f64::max)
        };
        // Convex and piecewise linear in the step.
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..40 {
            let third = (high - low) / 3.0;
            if fullest(low + third) <= fullest(high - third) {
                high -= third;
            } else {
                low += third;
            }
        }
        if fullest(low) < self.value {
            self.best.resize(x.len(), 0.0);
            self.best
                .iter_mut()
                .zip(x)
                .for_each(|(best, x)| *best += low * (x - *best));
            self.value = fullest(low);
        }
    }

    /// Utilisations of a routing, after the capacity that is being added.
    fn utilization(&self, x: &[f64]) -> Vec<f64> {
        let mut utilization = utilization(self.instance, &self.columns, x);
        for (u, base) in utilization.iter_mut().zip(&self.instance.base) {
            *u += base;
        }
        if let Some(expansion) = &self.expansion {
            expansion.relieve(&mut utilization);
        }
        utilization
    }

    /// Proves a bound from prices and puts routes that beat `marginal` into the pool. Returns how many are new.
    fn price_out(&mut self, price: &[f64], marginal: &[f64], threshold: f64) -> usize {
        let mut price = price.to_vec();
        if let Some(expansion) = &self.expansion {
            expansion.price_budget(&mut price);
        }
        let price = &price[..];
        let Some(Sweep {
            bound,
            candidates,
            stuck,
        }) = sweep(
            self.instance,
            &self.costing,
            price,
            marginal,
            threshold,
            self.options.threads,
            self.clock,
        )
        else {
            return 0;
        };
        if let Some(commodity) = stuck {
            self.stuck = Some(commodity);
            return 0;
        }
        if bound > self.bound {
            self.bound = bound;
            self.proof = price.to_vec();
        }
        let mut new = 0;
        for candidate in candidates {
            let chain = self.instance.commodities[candidate.commodity].chain;
            if self.allowed.is_some() && self.instance.max_routes.contains_key(&chain) {
                continue;
            }
            new += usize::from(
                self.columns
                    .add(
                        self.instance,
                        &self.costing,
                        candidate.commodity,
                        &candidate.route,
                    )
                    .1,
            );
        }
        new
    }

    /// A start for the master with room on every row: the best routing, and under fixed capacities half way to the
    /// interior.
    fn start_point(&self) -> Vec<f64> {
        let mut x = self.best.clone();
        x.resize(self.columns.len(), 0.0);
        if let Some((interior, room)) = &self.interior
            && *room < 1.0
        {
            for (c, x) in x.iter_mut().enumerate() {
                *x = 0.9 * *x + 0.1 * interior.get(c).unwrap_or(&0.0);
            }
        }
        x
    }

    /// Rounds of master and pricing until `done`, or nothing is left to do.
    fn rounds(&mut self, done: impl Fn(&Self) -> bool) {
        let mut price = self
            .first_price
            .take()
            .unwrap_or_else(|| self.proof.clone());
        let mut idle = 0;
        for _ in 0..ROUNDS {
            if done(self) || self.should_stop() || self.stuck.is_some() || idle > 3 {
                return;
            }
            let unit = self.value.abs().max(1e-12);
            let gap = (self.value - self.bound).min(unit).max(1e-13);
            let tolerance = (CLOSER * gap)
                .max(0.05 * self.options.gap.max(1e-10) * unit)
                .min(gap)
                * 0.3f64.powi(idle);
            let start = self.start_point();
            let solved = self.restricted.solve(
                &self.columns,
                self.is_scale(),
                &Start {
                    x: &start,
                    price: &price,
                    gap,
                    tolerance,
                    clock: self.clock,
                },
                |c| {
                    self.allowed
                        .as_ref()
                        .is_none_or(|a| a.get(c).copied().unwrap_or(true))
                },
                &self
                    .expansion
                    .as_ref()
                    .map(|e| e.loose(self.value))
                    .unwrap_or_default(),
            );
            if let Some(expansion) = &mut self.expansion {
                expansion.take(&solved.loose);
            }
            let utilization = self.utilization(&solved.x);
            self.offer(&solved.x, &utilization);
            if self.should_stop() {
                return;
            }
            let new_rows = self.add_tight_rows(&utilization);
            let threshold = 1e-3 * solved.gap / self.instance.commodities.len() as f64;
            let before = self.bound;
            let mut new = self.price_out(&solved.price, &solved.marginal, threshold);
            if !done(self) && before > f64::NEG_INFINITY {
                let smooth: Vec<f64> = self
                    .proof
                    .iter()
                    .zip(&solved.price)
                    .map(|(a, b)| 0.5 * (a + b))
                    .collect();
                new += self.price_out(&smooth, &solved.marginal, threshold);
            }
            price = solved.price;
            idle = if new == 0 && new_rows == 0 {
                idle + 1
            } else {
                0
            };
            self.report();
        }
    }

    /// Rows beyond what the master allowed, and nearly so, enter it. Returns how many entered.
    fn add_tight_rows(&mut self, utilization: &[f64]) -> usize {
        let limit = if self.is_scale() {
            self.restricted
                .rows
                .iter()
                .map(|&r| utilization[r as usize])
                .fold(0.0, f64::max)
        } else {
            1.0
        };
        (0..utilization.len())
            .filter(|&r| utilization[r] > 0.97 * limit && self.restricted.add_row(r))
            .count()
    }

    fn finish(mut self) -> Solution {
        self.thin_out();
        let status = self.clock.status(Some(self.gap()), self.options.gap);
        let objective = self.costing.objective;
        let flows = outcome::flows(self.instance, &self.columns, &self.best);
        Solution {
            status,
            objective,
            value: value(self.instance, objective, &flows),
            bound: Some(self.in_objective(self.bound)),
            relaxed: self.relaxed.map(|b| self.in_objective(b)),
            seconds: self.clock.elapsed().as_secs_f64(),
            flows,
        }
    }
}

fn utilization(instance: &Instance, columns: &Columns, x: &[f64]) -> Vec<f64> {
    let mut utilization = vec![0.0; instance.rows()];
    for (column, &x) in x.iter().enumerate().filter(|(_, x)| **x > 0.0) {
        let (rows, loads) = columns.loads(column);
        for (&r, &l) in rows.iter().zip(loads) {
            utilization[r as usize] += x * l;
        }
    }
    utilization
}

/// Equation 3 with every commodity on its fastest route, which is the unit of the latency objective and its first bound;
/// none when there was not the time.
fn least_latency(instance: &Instance, options: &Options, clock: &Clock<'_>) -> Option<f64> {
    let costing = Costing {
        objective: Objective::Latency,
        unit: 1.0,
    };
    let none = vec![f64::NEG_INFINITY; instance.commodities.len()];
    sweep(
        instance,
        &costing,
        &vec![0.0; instance.rows()],
        &none,
        0.0,
        options.threads,
        clock,
    )
    .map(|sweep| sweep.bound)
}
