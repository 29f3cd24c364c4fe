//! Cloud capacity planning: where to add compute so that the demands can grow most.

use crate::clock::Clock;
use crate::error::{Constraint, Infeasible};
use crate::instance::{Demand, Instance};
use crate::lp::{self, Monitor, Options, Phase, Progress};
use crate::model::Model;
use crate::solution::{Objective, Solution, relative_gap, value};

/// A plan and its comparison.
#[derive(Debug, Clone)]
pub struct CloudPlan {
    /// The model with the plan carried out.
    pub model: Model,
    /// Capacity that was to be added, load units.
    pub capacity: f64,
    /// Capacity added to each site, load units.
    pub added: Vec<f64>,
    /// Routing on the planned model; its bound is that of the whole planning problem.
    pub solution: Solution,
    /// The factor that the same capacity supports when it is spread evenly over the sites.
    pub uniform: f64,
}

/// A model whose sites got more capacity; VNFs keep their shares of their sites.
pub fn with_capacity(model: &Model, added: &[f64]) -> Model {
    let mut planned = model.clone();
    for vnf in &mut planned.vnfs {
        for deployment in &mut vnf.deployments {
            deployment.capacity *=
                1.0 + added[deployment.site] / model.sites[deployment.site].capacity;
        }
    }
    for (site, added) in planned.sites.iter_mut().zip(added) {
        site.capacity += added;
    }
    planned
}

/// Plans where to add `capacity` load units. However short the time, the plan is no worse than an even spread.
///
/// # Errors
/// As [`lp::solve`]; also a model without sites.
pub fn plan(
    model: &Model,
    capacity: f64,
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<CloudPlan, Infeasible> {
    if model.sites.is_empty() {
        let message = "the model has no site that capacity could be added to".into();
        return Err(Infeasible {
            constraints: vec![Constraint {
                name: "all sites".into(),
                pointer: "/sites".into(),
                scarce: "there are none".into(),
            }],
            message,
        });
    }
    let clock = Clock::new(options, monitor);
    let instance = Instance::new(model, Demand::Full)?;
    let even = vec![capacity / model.sites.len() as f64; model.sites.len()];
    let half = clock.share(options, 2);
    // The even spread is a plan; a bound on what it supports is none on the best one.
    let meaning = |progress: &Progress| Progress {
        phase: Phase::EvenSpread,
        value: progress.value,
        ..Progress::at(progress.elapsed)
    };
    let (spread, prices) = monitor.told(meaning, |m| routed(model, &even, &half, m))?;
    let (rest, since) = (clock.share(options, 1), clock.elapsed());
    let meaning = |progress: &Progress| {
        let value = progress.value.max(spread.value);
        Progress {
            phase: Phase::BestSpread,
            elapsed: since + progress.elapsed,
            value,
            gap: relative_gap(Objective::Scale, value, progress.bound),
            ..*progress
        }
    };
    let known = (&spread, &prices[..]);
    let (mut solution, shares) = monitor.told(meaning, |monitor| {
        lp::expand(model, &instance, capacity, known, &rest, monitor)
    })?;
    let mut added: Vec<f64> = shares.iter().map(|share| share * capacity).collect();
    let mut planned = with_capacity(model, &added);
    let planned_instance = Instance::new(&planned, Demand::Full)?;
    solution.value = value(&planned_instance, Objective::Scale, &solution.flows);
    // A search that was cut short may not have come so far yet.
    if spread.value > solution.value {
        (added, solution.value, solution.flows) = (even, spread.value, spread.flows);
        planned = with_capacity(model, &added);
    }
    solution.seconds = clock.elapsed().as_secs_f64();
    solution.status = clock.status(solution.gap(), options.gap);
    Ok(CloudPlan {
        model: planned,
        capacity,
        added,
        solution,
        uniform: spread.value,
    })
}

/// The largest factor, its routing and its prices when capacity is added in a given way.
fn routed(
    model: &Model,
    added: &[f64],
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<(Solution, Vec<f64>), Infeasible> {
    let model = with_capacity(model, added);
    let instance = Instance::new(&model, Demand::Full)?;
    lp::solve_with_prices(&model, &instance, Objective::Scale, options, monitor)
}
