//! VNF placement: where to deploy VNFs anew so that all chains together travel least (equation 3).
//!
//! The mixed-integer program has a binary w_fs for each VNF and site. Its linking constraints x_{c z s} ≤ w_fs are
//! relaxed with multipliers λ ≥ 0; then chains separate into dynamic programs and VNFs into "take the N sites with the
//! largest Σ λ", which bounds the optimum from below for any λ. Capacities are relaxed with the prices of the latency
//! optimum, whose sum is subtracted. The placement comes from local search: one sweep of forward and backward dynamic
//! programs gives the total for every site that a VNF's new instance could move to.

use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Constraint, Error, Infeasible, NotFound};
use crate::infeasible::no_route;
use crate::instance::{Demand, Instance};
use crate::lp::{self, Fit, Monitor, Options, Phase, Progress};
use crate::model::{Deployment, Model};
use crate::plan::bound::Bound;
use crate::plan::relaxation::Relaxation;
use crate::plan::repair::repair;
use crate::plan::search::{POLISHED, Search};
use crate::solution::{Objective, Solution, loads, relative_gap, value};

/// Rounds of search, routing and bound.
const ROUNDS: usize = 3;

/// Placements that may turn out not to carry the demand.
const MOST_REFUSED: i32 = 6;

/// Factor between the prices of what is full after one refused placement and the next.
const PRESSURE: f64 = 3.0;

/// Placements that are few enough to try all, in a small model.
const FEW: usize = 200;

/// A plan and its proof.
#[derive(Debug, Clone)]
pub struct PlacementPlan {
    /// The model with the plan carried out.
    pub model: Model,
    /// How many further sites each VNF was to get.
    pub new_sites: Vec<usize>,
    /// Whether capacities hold.
    pub capacitated: bool,
    /// New deployments as (VNF, site, load that the routing puts there).
    pub placed: Vec<(usize, usize, f64)>,
    /// Routing on the planned model; its bound is that of the whole planning problem.
    pub solution: Solution,
    /// Equation 3 before the plan, with the same treatment of capacities.
    pub before: f64,
}

/// Plans `new_sites[f]` further sites for each VNF f.
///
/// With `capacitated`, links, sites and VNFs keep their limits, a new deployment being limited by its site alone;
/// otherwise capacities are ignored, and every chain takes its fastest route.
///
/// # Errors
/// Demands that no placement carries, or more new sites than there are; that no placement was found.
pub fn plan(
    model: &Model,
    new_sites: &[usize],
    capacitated: bool,
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<PlacementPlan, Error> {
    let clock = Clock::new(options, monitor);
    let (extended, candidates) = extend(model, new_sites)?;
    let mut instance = Instance::new(&extended, Demand::Full)?;
    if !capacitated {
        instance
            .capacity
            .iter_mut()
            .for_each(|c| *c = f64::INFINITY);
    }
    let search = Search::new(&instance, new_sites, candidates);
    let planning = Planning {
        extended: &extended,
        instance: &instance,
        search: &search,
        capacitated,
        options,
        monitor,
        clock: &clock,
    };
    let (mut solution, placed) = planning.best().map_err(|e| in_fields_of(model, e))?;
    let none = vec![Vec::new(); new_sites.len()];
    let before = planning.evaluate(&none, Known::of(&solution, Phase::WithoutNewSites));
    solution.seconds = clock.elapsed().as_secs_f64();
    let partial = solution.leaves_demand(&instance);
    let gap = solution.gap().filter(|_| !partial);
    solution.status = clock.status(gap, options.gap);
    let load = loads(&instance, &solution.flows);
    let mut list = Vec::new();
    let mut planned = model.clone();
    for (vnf, sites) in placed.iter().enumerate() {
        for &site in sites {
            let used = instance.vnf_row(vnf, site).map_or(0.0, |row| load[row]);
            list.push((vnf, site, used));
            let capacity = if capacitated {
                model.sites[site].capacity
            } else {
                used.max(1.0)
            };
            planned.vnfs[vnf]
                .deployments
                .push(Deployment { site, capacity });
        }
    }
    Ok(PlacementPlan {
        model: planned,
        new_sites: new_sites.to_vec(),
        capacitated,
        placed: list,
        solution,
        before: before
            .ok()
            .filter(|(s, _)| !s.leaves_demand(&instance))
            .map_or(f64::INFINITY, |(s, _)| s.value),
    })
}

/// The same error with the pointers of a model's own fields: a candidate has the capacity of its site.
fn in_fields_of(model: &Model, error: Error) -> Error {
    let Error::Infeasible(mut proof) = error else {
        return error;
    };
    for constraint in &mut proof.constraints {
        let parts: Vec<&str> = constraint.pointer.split('/').collect();
        let ["", "vnfs", vnf, "deployments", number, "capacity"] = parts[..] else {
            continue;
        };
        let (Ok(vnf), Ok(number)) = (vnf.parse::<usize>(), number.parse::<usize>()) else {
            continue;
        };
        if number < model.vnfs[vnf].deployments.len() {
            continue;
        }
        let site = model
            .sites
            .iter()
            .position(|s| constraint.name.ends_with(&format!(" at site {}", s.id)));
        constraint.pointer = site.map_or("/sites".into(), |s| format!("/sites/{s}/capacity"));
    }
    Error::Infeasible(proof)
}

/// Value and bound of the plan so far.
#[derive(Debug, Clone, Copy)]
struct Known {
    phase: Phase,
    value: f64,
    bound: f64,
}

impl Known {
    fn nothing(phase: Phase) -> Known {
        Known {
            phase,
            value: f64::INFINITY,
            bound: f64::NEG_INFINITY,
        }
    }

    /// What a plan states of itself.
    fn of(plan: &Solution, phase: Phase) -> Known {
        Known {
            phase,
            value: plan.value,
            bound: plan.bound.unwrap_or(f64::NEG_INFINITY),
        }
    }

    fn progress(self, elapsed: Duration) -> Progress {
        Progress {
            phase: self.phase,
            value: self.value,
            bound: self.bound,
            gap: self.gap(),
            ..Progress::at(elapsed)
        }
    }

    fn gap(self) -> f64 {
        relative_gap(Objective::Latency, self.value, self.bound)
    }
}

/// The routing of a placement with its bound, and the new sites of each VNF.
type Placed = (Solution, Vec<Vec<usize>>);

/// What came of trying every placement.
enum Few {
    /// The best of all, proved.
    All(Placed),
    /// The best of those that were tried, if any carries the demand.
    Some(Option<Placed>),
}

/// A planning problem, and when to stop.
struct Planning<'a> {
    extended: &'a Model,
    instance: &'a Instance,
    search: &'a Search,
    capacitated: bool,
    options: &'a Options,
    monitor: &'a Monitor<'a>,
    clock: &'a Clock<'a>,
}

impl Planning<'_> {
    /// The best placement that rounds of search, routing and bound lead to: its routing with the bound, and the new sites.
    fn best(&self) -> Result<Placed, Error> {
        let mut best = match self.best_of_few()? {
            Few::All(best) => return Ok(best),
            Few::Some(best) => best,
        };
        let mut price = vec![0.0; self.instance.rows()];
        let mut known = Known::nothing(Phase::SearchedPlacements);
        known.value = best.as_ref().map_or(known.value, |(plan, _)| plan.value);
        let (mut placed, mut refused, mut carried) = (Vec::new(), 0, 0);
        while carried < if self.capacitated { ROUNDS } else { 1 } {
            let relaxation = Relaxation::new(self.instance, &price);
            let report = || self.report(known);
            let found = self
                .search
                .improve(&relaxation, &placed, self.clock, &report);
            placed = repair(self.instance, self.search, found, self.clock)
                .map_err(|stuck| no_route(self.extended, self.instance, stuck))?;
            let Ok((solution, duals)) = self.evaluate(&placed, known) else {
                // This placement does not carry the demand; what is full in it costs more from now on.
                refused += 1;
                if !self.capacitated || refused > MOST_REFUSED || self.clock.is_over() {
                    break;
                }
                let pressure = PRESSURE.powi(refused);
                for (price, dual) in price.iter_mut().zip(self.congestion(&placed)) {
                    *price += pressure * dual;
                }
                continue;
            };
            carried += 1;
            let whole = !solution.leaves_demand(self.instance);
            let paid: f64 = price.iter().sum();
            if whole {
                let target = known.value.min(solution.value);
                let proved = Bound::new(&relaxation, self.search, &placed, self.clock);
                let raised = proved.raise(target + paid, self.options.gap, self.clock, &report);
                known.bound = known.bound.max(raised - paid);
            }
            // What leaves demand is a plan only where there was not the time for one that does not.
            if best.is_none() && (whole || self.clock.is_over())
                || whole && solution.value < known.value
            {
                if whole {
                    known.value = solution.value;
                }
                best = Some((solution, placed.clone()));
            }
            price = duals;
            self.report(known);
            if known.gap() <= self.options.gap || self.clock.is_over() {
                break;
            }
        }
        let Some((mut solution, placed)) = best else {
            return Err(self.none_found());
        };
        // That of the relaxation, which leaves limits of chains out of account.
        solution.bound = known.bound.is_finite().then_some(known.bound);
        solution.relaxed = None;
        Ok((solution, placed))
    }

    /// The best of all placements, where they are few and the model is small; of some where there was not the time for all,
    /// or one is not known to carry the demand.
    ///
    /// # Errors
    /// That none of them carries the demand.
    fn best_of_few(&self) -> Result<Few, Error> {
        let Some(all) = self.search.few_placements(FEW) else {
            return Ok(Few::Some(None));
        };
        if all.len() * self.instance.commodities.len() > POLISHED {
            return Ok(Few::Some(None));
        }
        let mut best: Option<Placed> = None;
        let mut known = Known::nothing(Phase::EveryPlacement);
        let (mut bound, mut relaxed, mut held) = (f64::INFINITY, f64::INFINITY, false);
        let (count, mut refusal, mut all_known) = (all.len(), None, true);
        for placed in all {
            if self.clock.is_over() {
                return Ok(Few::Some(best));
            }
            match self.evaluate(&placed, known) {
                Ok((solution, _)) if solution.leaves_demand(self.instance) => all_known = false,
                Ok((solution, _)) => {
                    let mine = solution.bound.unwrap_or(solution.value);
                    bound = bound.min(mine);
                    relaxed = relaxed.min(solution.relaxed.unwrap_or(mine));
                    held |= solution.relaxed.is_some();
                    if solution.value < known.value {
                        known.value = solution.value;
                        best = Some((solution, placed));
                    }
                }
                Err(proof) => refusal = Some(proof),
            }
        }
        if !all_known {
            return Ok(Few::Some(best));
        }
        if let Some((mut solution, placed)) = best {
            solution.bound = Some(bound);
            solution.relaxed = held.then_some(relaxed);
            return Ok(Few::All((solution, placed)));
        }
        let Some(proof) = refusal else {
            return Ok(Few::Some(None));
        };
        // Not before every one was tried is it known that none does; what all together cannot carry says it best.
        let whole = self.open_proof().unwrap_or(proof);
        Err(Infeasible {
            message: format!("none of the {count} placements serves: {}", whole.message),
            ..whole
        }
        .into())
    }

    /// The proof that not even all candidates together carry the demand.
    fn open_proof(&self) -> Option<Infeasible> {
        let (rest, quiet) = (self.clock.share(self.options, 1), self.monitor.quiet());
        match lp::fit(self.extended, self.instance, &rest, &quiet) {
            Fit::DoesNotFit(proof) => Some(proof),
            Fit::Fits | Fit::FitsOnMoreRoutes | Fit::NotKnown => None,
        }
    }

    /// No placement was found: because not even all candidates together serve, or for want of a better search.
    fn none_found(&self) -> Error {
        match self.open_proof() {
            Some(proof) => proof.into(),
            None => NotFound {
                message: "every placement that was tried leaves a chain without a route or demand without room; all candidates \
                          together may serve: allow more new sites, or more time"
                    .into(),
            }
            .into(),
        }
    }

    /// Prices of what is full in a placement, such that all of them weigh as much as the latency of all demand.
    fn congestion(&self, placed: &[Vec<usize>]) -> Vec<f64> {
        let instance = self.closed(placed);
        let (rest, quiet) = (self.clock.share(self.options, 2), self.monitor.quiet());
        let (scale, latency) = (Objective::Scale, Objective::Latency);
        let Ok((solution, mut prices)) =
            lp::solve_with_prices(self.extended, &instance, scale, &rest, &quiet)
        else {
            return vec![0.0; instance.rows()];
        };
        let weight = value(&instance, latency, &solution.flows) / prices.iter().sum::<f64>();
        prices.iter_mut().for_each(|p| *p *= weight);
        prices
    }

    fn report(&self, known: Known) {
        if let Some(report) = self.monitor.report {
            report(&known.progress(self.clock.elapsed()));
        }
    }

    /// The instance with a placement open and all other candidates closed.
    fn closed(&self, placed: &[Vec<usize>]) -> Instance {
        let mut instance = self.instance.clone();
        for (vnf, candidates) in self.search.candidates.iter().enumerate() {
            // Gone altogether: a VNF without load would slip through a capacity of zero.
            let closed = |site: &u32| {
                let site = *site as usize;
                candidates.contains(&site) && !placed[vnf].contains(&site)
            };
            instance.close(vnf, closed);
        }
        instance
    }

    /// The latency optimum with a placement open and all other candidates closed, and the prices that prove it.
    fn evaluate(
        &self,
        placed: &[Vec<usize>],
        known: Known,
    ) -> Result<(Solution, Vec<f64>), Infeasible> {
        let instance = self.closed(placed);
        if !self.capacitated {
            let fastest = self
                .search
                .fastest(&instance, self.instance, placed, self.clock)
                .map_err(|commodity| no_route(self.extended, &instance, commodity))?;
            return Ok((fastest, vec![0.0; instance.rows()]));
        }
        // Neither value nor bound of one placement is that of the plan.
        let (rest, since) = (self.clock.share(self.options, 1), self.clock.elapsed());
        let meaning = |progress: &Progress| known.progress(since + progress.elapsed);
        let latency = Objective::Latency;
        let (solution, prices) = self.monitor.told(meaning, |monitor| {
            lp::solve_with_prices(self.extended, &instance, latency, &rest, monitor)
        })?;
        if solution.leaves_demand(&instance) {
            let (rest, quiet) = (self.clock.share(self.options, 1), self.monitor.quiet());
            if let Fit::DoesNotFit(proof) = lp::fit(self.extended, &instance, &rest, &quiet) {
                return Err(proof);
            }
        }
        Ok((solution, prices))
    }
}

/// The model with every VNF that gets new sites deployed everywhere; and the sites that are new for each.
fn extend(model: &Model, new_sites: &[usize]) -> Result<(Model, Vec<Vec<usize>>), Infeasible> {
    let mut extended = model.clone();
    let mut candidates = vec![Vec::new(); model.vnfs.len()];
    for (f, vnf) in extended
        .vnfs
        .iter_mut()
        .enumerate()
        .filter(|(f, _)| new_sites[*f] > 0)
    {
        let taken: Vec<usize> = vnf.deployments.iter().map(|d| d.site).collect();
        candidates[f] = (0..model.sites.len())
            .filter(|s| !taken.contains(s))
            .collect();
        if candidates[f].len() < new_sites[f] {
            let message = format!(
                "VNF '{}' is to get {} new sites and only {} are left",
                vnf.id,
                new_sites[f],
                candidates[f].len()
            );
            return Err(Infeasible {
                constraints: vec![Constraint {
                    name: format!("VNF {}", vnf.id),
                    pointer: format!("/vnfs/{f}/deployments"),
                    scarce: format!("leaves {} sites free", candidates[f].len()),
                }],
                message,
            });
        }
        let new = candidates[f].iter().map(|&site| Deployment {
            site,
            capacity: model.sites[site].capacity,
        });
        vnf.deployments.extend(new);
    }
    Ok((extended, candidates))
}
