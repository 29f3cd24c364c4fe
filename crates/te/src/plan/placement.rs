//! VNF placement: where to deploy VNFs anew so that all chains together travel least (equation 3).
//!
//! The mixed-integer program has a binary w_fs for each VNF and site. Its linking constraints x_{c z s} ≤ w_fs are
//! relaxed with multipliers λ ≥ 0; then chains separate into dynamic programs and VNFs into "take the N sites with the
//! largest Σ λ", which bounds the optimum from below for any λ. Capacities are relaxed with the prices of the latency
//! optimum, whose sum is subtracted. The placement comes from local search: one sweep of forward and backward dynamic
//! programs gives the total for every site that a VNF's new instance could move to.

use std::sync::atomic::Ordering;

use crate::error::Infeasible;
use crate::instance::{Demand, Instance};
use crate::lp::{self, Monitor, Options, Progress};
use crate::model::{Deployment, Model};
use crate::plan::bound::Bound;
use crate::plan::relaxation::Relaxation;
use crate::plan::search::Search;
use crate::solution::{Objective, Solution, Status, loads, relative_gap};

/// A plan and its proof.
#[derive(Debug, Clone)]
pub struct PlacementPlan {
    /// The model with the plan carried out.
    pub model: Model,
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
/// Demands that do not fit, or more new sites than there are.
pub fn plan(
    model: &Model,
    new_sites: &[usize],
    capacitated: bool,
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<PlacementPlan, Infeasible> {
    let start = std::time::Instant::now();
    let (extended, candidates) = extend(model, new_sites)?;
    let mut instance = Instance::new(&extended, Demand::Full)?;
    if !capacitated {
        instance
            .capacity
            .iter_mut()
            .for_each(|c| *c = f64::INFINITY);
    }
    let search = Search::new(&instance, new_sites, candidates);
    let mut price = vec![0.0; instance.rows()];
    let mut best: Option<(Solution, Vec<Vec<usize>>)> = None;
    let mut bound = f64::NEG_INFINITY;
    let mut placed = Vec::new();
    let rounds = if capacitated { 3 } else { 1 };
    let interrupted = || {
        monitor
            .interrupt
            .is_some_and(|flag| flag.load(Ordering::Relaxed))
    };
    let stop = || interrupted() || start.elapsed() >= options.time_limit;
    for _ in 0..rounds {
        let relaxation = Relaxation::new(&instance, &price);
        placed = search.improve(&relaxation, &placed, &stop);
        let (solution, duals) = evaluate(
            &extended,
            &instance,
            &search,
            &placed,
            capacitated,
            options,
            monitor,
        )?;
        let paid: f64 = price.iter().sum();
        let target = best
            .as_ref()
            .map_or(solution.value, |(b, _)| b.value.min(solution.value));
        let proved = Bound::new(&relaxation, &search, &placed);
        bound = bound.max(proved.raise(target + paid, options.gap, &stop) - paid);
        if best.as_ref().is_none_or(|(b, _)| solution.value < b.value) {
            best = Some((solution, placed.clone()));
        }
        price = duals;
        let gap = best.as_ref().map_or(1.0, |(b, _)| {
            relative_gap(Objective::Latency, b.value, bound)
        });
        if let Some(report) = monitor.report {
            let value = best.as_ref().map_or(f64::NAN, |(b, _)| b.value);
            report(&Progress {
                elapsed: start.elapsed(),
                value,
                bound,
                gap,
            });
        }
        if gap <= options.gap || stop() {
            break;
        }
    }
    let (mut solution, placed) = best.expect("at least one round");
    let before = evaluate(
        &extended,
        &instance,
        &search,
        &vec![Vec::new(); new_sites.len()],
        capacitated,
        options,
        monitor,
    );
    solution.bound = Some(bound);
    solution.seconds = start.elapsed().as_secs_f64();
    solution.status = match solution.gap() {
        Some(gap) if gap <= options.gap => Status::Optimal,
        _ if interrupted() => Status::Interrupted,
        _ if start.elapsed() >= options.time_limit => Status::TimeLimit,
        _ => Status::Feasible,
    };
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
        placed: list,
        solution,
        before: before.map_or(f64::INFINITY, |(s, _)| s.value),
    })
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
                constraints: vec![format!("VNF {}", vnf.id)],
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

/// The latency optimum with a placement open and all other candidates closed, and the prices that prove it.
#[allow(clippy::too_many_arguments)]
fn evaluate(
    extended: &Model,
    base: &Instance,
    search: &Search,
    placed: &[Vec<usize>],
    capacitated: bool,
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<(Solution, Vec<f64>), Infeasible> {
    let mut instance = base.clone();
    for (vnf, candidates) in search.candidates.iter().enumerate() {
        // Gone altogether: a VNF without load would slip through a capacity of zero.
        let closed = |site: &u32| {
            let site = *site as usize;
            candidates.contains(&site) && !placed[vnf].contains(&site)
        };
        instance.close(vnf, closed);
    }
    if capacitated {
        lp::solve_with_prices(extended, &instance, Objective::Latency, options, monitor)
    } else {
        Ok((search.fastest(base, placed), vec![0.0; base.rows()]))
    }
}
