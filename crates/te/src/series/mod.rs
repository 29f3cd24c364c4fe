//! Time-varying demand: routes for a series of demand matrices.
//!
//! Either one routing for all matrices, or one for each with a bound on how much of the demand changes its route from
//! one matrix to the next. Both minimise the largest utilisation over all matrices. They are one linear program over
//! *trajectories*: a commodity's trajectory has a route for each matrix, loads the rows of every matrix, and loads a
//! matrix's budget of change where its route differs from the one before. Shares of trajectories are as general as
//! shares of routes with their total variation, since shares of consecutive matrices can always be matched so that
//! only their difference moves. One routing for all is the budget zero.

mod matrices;
mod pool;
mod pricing;
mod solver;
mod start;
mod write;

use std::collections::{HashMap, HashSet};

pub use matrices::{Matrix, check_names, read};
pub use write::to_json;

use crate::clock::Clock;
use crate::constrained::most_times;
use crate::error::{Error, Infeasible, InputError, Reason};
use crate::instance::{Demand, Instance, Route};
use crate::lp::{self, Monitor, Options, Phase, Progress};
use crate::model::Model;
use crate::network::Network;
use crate::solution::{Flow, Objective, Solution, Status, loads, relative_gap, tightest};
use pool::Rows;
use solver::Solver;

/// The routing of one matrix.
#[derive(Debug, Clone)]
pub struct Moment {
    /// The matrix's name.
    pub name: String,
    /// The model with its demands.
    pub model: Model,
    /// The compiled model, which the flows refer to.
    pub instance: Instance,
    /// The routing.
    pub flows: Vec<Flow>,
    /// Factor on this matrix's demands that it carries.
    pub value: f64,
    /// Share of this matrix's demand that is routed otherwise than in the matrix before.
    pub moved: f64,
    /// Factor that is reached when the matrix is routed from scratch, without regard for the others; at least that of its
    /// routing here.
    pub from_scratch: f64,
    /// Its bound.
    pub from_scratch_bound: f64,
    /// Share of the demand that changes its route when every matrix is routed from scratch.
    pub from_scratch_moved: f64,
}

/// Routes for a series.
#[derive(Debug, Clone)]
pub struct Series {
    /// How the solve ended.
    pub status: Status,
    /// Factor on all demands that every matrix's routing carries.
    pub value: f64,
    /// Proved bound on it.
    pub bound: f64,
    /// Wall-clock time, seconds.
    pub seconds: f64,
    /// Largest share of a matrix's demand that may change its route when it begins.
    pub max_change: f64,
    /// The matrices in order.
    pub moments: Vec<Moment>,
}

/// Routes a series of matrices so that the worst one's utilisation is least, where at most the share `max_change` of a
/// matrix's demand is routed otherwise than in the matrix before; 0 means one routing for all.
///
/// # Errors
/// A chain with `max_routes`, which a series does not support; a chain that has no route, named with the matrix, or none
/// that it may keep as long as it has to; that none was found.
pub fn solve(
    model: &Model,
    matrices: &[Matrix],
    max_change: f64,
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<Series, Error> {
    if let Some((i, chain)) = model
        .chains
        .iter()
        .enumerate()
        .find(|(_, c)| c.limits.max_routes.is_some())
    {
        let message = format!(
            "chain '{}': a series cannot hold chains to a number of routes",
            chain.id
        );
        return Err(InputError::new(
            format!("/chains/{i}/max_routes"),
            Reason::Contradiction,
            message,
        )
        .into());
    }
    let clock = Clock::new(options, monitor);
    let network = Network::of(model);
    check_uses(model, matrices)?;
    let mut moments = Vec::with_capacity(matrices.len());
    let mut proofs = Vec::with_capacity(matrices.len());
    let (mut value, mut bound) = (f64::INFINITY, f64::INFINITY);
    for (i, matrix) in matrices.iter().enumerate() {
        // Half of the time is left to solve them together.
        let parts = if matrices.len() > 1 {
            2 * matrices.len() - i
        } else {
            1
        };
        let limited = clock.share(options, parts);
        let (moment, price) = alone(model, &network, matrix, &limited, monitor)?;
        value = value.min(moment.value);
        bound = bound.min(moment.from_scratch_bound);
        moments.push(moment);
        proofs.push(price);
        if let Some(report) = monitor.report {
            // Routed each by itself they carry more than together: a bound, and no value yet.
            report(&Progress {
                phase: Phase::EachMatrix,
                bound,
                done: Some((i + 1) as f64 / matrices.len() as f64),
                ..Progress::at(clock.elapsed())
            });
        }
    }
    for m in 1..moments.len() {
        let (before, now) = (&moments[m - 1].flows, &moments[m]);
        moments[m].from_scratch_moved = moved(before, &now.flows, &now.instance);
        moments[m].moved = moments[m].from_scratch_moved;
    }
    let mut series = Series {
        status: Status::Feasible,
        value,
        bound,
        seconds: 0.0,
        max_change,
        moments,
    };
    let one_for_all = max_change == 0.0 && series.moments.len() > 1;
    if !one_for_all && series.moments.iter().all(|m| m.moved <= max_change) {
        // Nothing couples the matrices.
        let gap = relative_gap(Objective::Scale, value, bound);
        series.status = clock.status(Some(gap), options.gap);
    } else {
        couple(&mut series, &proofs, options, monitor, &clock)?;
    }
    series.seconds = clock.elapsed().as_secs_f64();
    Ok(series)
}

/// Refuses chains that must use more links, with more different directions of traffic, than one search can hold them to.
fn check_uses(model: &Model, matrices: &[Matrix]) -> Result<(), InputError> {
    for (i, chain) in model.chains.iter().enumerate() {
        let kinds: HashSet<Vec<bool>> = matrices.iter().map(|m| m.directions(i)).collect();
        let most = most_times(&chain.limits);
        if kinds.len() > most {
            let message = format!(
                "its traffic has {} different sets of directions in the matrices, and with that many links to use at most {most} are supported: require fewer links",
                kinds.len()
            );
            let pointer = format!("/chains/{i}/use/links");
            return Err(InputError::new(pointer, Reason::OutOfRange, message));
        }
    }
    Ok(())
}

/// One matrix from scratch, and the prices that prove its bound.
fn alone(
    model: &Model,
    network: &Network,
    matrix: &Matrix,
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<(Moment, Vec<f64>), Infeasible> {
    let explain = |e: Infeasible| Infeasible {
        message: format!("with the demands of '{}': {}", matrix.name, e.message),
        ..e
    };
    let model = matrix.apply(model);
    let instance =
        Instance::with_network(&model, network.clone(), Demand::Full).map_err(explain)?;
    let mut part = instance.clone();
    let busy: Vec<usize> = (0..instance.commodities.len())
        .filter(|&c| matrix.demands(instance.commodities[c].chain as usize))
        .collect();
    part.commodities = busy
        .iter()
        .map(|&c| instance.commodities[c].clone())
        .collect();
    let (mut solution, price) =
        lp::solve_with_prices(&model, &part, Objective::Scale, options, &monitor.quiet())
            .map_err(explain)?;
    solution
        .flows
        .iter_mut()
        .for_each(|f| f.commodity = busy[f.commodity]);
    let moment = Moment {
        name: matrix.name.clone(),
        value: solution.value,
        from_scratch: solution.value,
        from_scratch_bound: solution.bound.unwrap_or(f64::INFINITY),
        flows: solution.flows,
        moved: 0.0,
        from_scratch_moved: 0.0,
        model,
        instance,
    };
    Ok((moment, price))
}

/// Solves the matrices together and replaces their routings.
///
/// # Errors
/// Chains that no routing serves within the budget of change.
fn couple(
    series: &mut Series,
    proofs: &[Vec<f64>],
    options: &Options,
    monitor: &Monitor<'_>,
    clock: &Clock<'_>,
) -> Result<(), Error> {
    let instances: Vec<Instance> = series.moments.iter().map(|m| m.instance.clone()).collect();
    let each = instances[0].rows();
    let total = |i: &Instance| i.commodities.iter().map(|c| c.demand).sum::<f64>();
    let budget = |i: &Instance| (series.max_change * total(i)).max(f64::MIN_POSITIVE);
    let rows = Rows {
        each,
        matrices: instances.len(),
        budget: if series.max_change > 0.0 {
            instances.iter().map(budget).collect()
        } else {
            Vec::new()
        },
    };
    let hardest = (0..instances.len())
        .min_by(|&a, &b| {
            series.moments[a]
                .from_scratch_bound
                .total_cmp(&series.moments[b].from_scratch_bound)
        })
        .unwrap_or(0);
    let mut proof = vec![0.0; each * instances.len()];
    proof[hardest * each..(hardest + 1) * each].copy_from_slice(&proofs[hardest]);
    let mut solver = Solver::new(
        &instances,
        rows,
        (1.0 / series.bound, proof),
        options,
        monitor,
        clock,
    );
    let one = one_for_all(series, &solver, options, monitor, clock);
    begin(&mut solver, &series.moments, hardest, clock)?;
    if let Some(one) = one {
        solver.start(one, false);
        solver.keep();
    }
    solver.run();
    series.status = solver.status();
    (series.value, series.bound) = (1.0 / solver.value, 1.0 / solver.bound);
    let mut scratch: Vec<Vec<Flow>> = Vec::with_capacity(instances.len());
    for (m, moment) in series.moments.iter_mut().enumerate() {
        let alone = std::mem::replace(&mut moment.flows, flows_at(&solver, m));
        let load = loads(&instances[m], &moment.flows);
        moment.value = 1.0 / tightest(&instances[m], &load).1;
        // Where the time did not suffice for a better one, this is the best routing from scratch that is known.
        scratch.push(if moment.value > moment.from_scratch {
            moment.from_scratch = moment.value;
            moment.flows.clone()
        } else {
            alone
        });
    }
    for m in 1..instances.len() {
        let own = |m: usize| &series.moments[m].flows[..];
        let both = moved(own(m - 1), own(m), &instances[m]);
        let from_scratch_moved = moved(&scratch[m - 1], &scratch[m], &instances[m]);
        let moment = &mut series.moments[m];
        (moment.moved, moment.from_scratch_moved) = (both, from_scratch_moved);
    }
    Ok(())
}

/// The first routing: the mean of the matrices' own, or that of the hardest where there is not the time.
///
/// # Errors
/// As [`couple`].
fn begin(
    solver: &mut Solver<'_>,
    moments: &[Moment],
    hardest: usize,
    clock: &Clock<'_>,
) -> Result<(), Error> {
    let average = start::hold(moments, solver, start::average(moments))?;
    if clock.is_over() || !solver.start(average, true) {
        let of_one = start::hold(moments, solver, start::of_one(moments, hardest))?;
        solver.start(of_one, false);
    }
    Ok(())
}

/// Where routes may change, the best routing that does without, for half of the time that is left: a start from which no
/// answer is worse. None where some chain must change.
fn one_for_all(
    series: &Series,
    changing: &Solver<'_>,
    options: &Options,
    monitor: &Monitor<'_>,
    clock: &Clock<'_>,
) -> Option<start::Shares> {
    if series.max_change <= 0.0 || clock.is_over() {
        return None;
    }
    let half = clock.share(options, 2);
    // What is proved without change is no bound where there may be some.
    let report = |progress: &Progress| {
        if let Some(report) = monitor.report {
            report(&Progress {
                elapsed: clock.elapsed(),
                bound: series.bound,
                gap: relative_gap(Objective::Scale, progress.value, series.bound),
                ..*progress
            });
        }
    };
    let monitor = Monitor {
        report: Some(&report),
        ..*monitor
    };
    let clock = Clock::new(&half, &monitor);
    let mut solver = changing.without_change(&half, &monitor, &clock);
    let average = start::average(&series.moments);
    let average = start::hold(&series.moments, &solver, average).ok()?;
    if !solver.start(average, true) {
        return None;
    }
    solver.run();
    Some(solver.shares())
}

/// The routing of one matrix out of the shares of trajectories.
fn flows_at(solver: &Solver<'_>, matrix: usize) -> Vec<Flow> {
    let mut flows: Vec<Flow> = Vec::new();
    for (commodity, mine) in solver.pool.of.iter().enumerate() {
        let first = flows.len();
        for &column in mine {
            let share = solver.best.get(column as usize).copied().unwrap_or(0.0);
            if share <= 0.0 {
                continue;
            }
            let trajectory = solver.pool.trajectory(column as usize);
            let at = trajectory.partition_point(|s| s.first as usize <= matrix) - 1;
            let route = &trajectory[at].route;
            match flows[first..].iter_mut().find(|f| f.route == *route) {
                Some(flow) => flow.fraction += share,
                None => flows.push(Flow {
                    commodity,
                    route: route.clone(),
                    fraction: share,
                }),
            }
        }
    }
    flows
}

/// Share of a matrix's demand that is routed otherwise than in the matrix before; `instance` is the matrix's.
fn moved(before: &[Flow], now: &[Flow], instance: &Instance) -> f64 {
    let mut kept: HashMap<(usize, &Route), f64> = HashMap::new();
    for flow in before {
        *kept.entry((flow.commodity, &flow.route)).or_default() += flow.fraction;
    }
    let demand = |f: &Flow| instance.commodities[f.commodity].demand;
    let more = |f: &Flow| {
        let before = kept.get(&(f.commodity, &f.route)).copied().unwrap_or(0.0);
        demand(f) * (f.fraction - before).max(0.0)
    };
    // A chain without demand before has no route that it could leave.
    let known: HashSet<usize> = before.iter().map(|f| f.commodity).collect();
    let moving: f64 = now
        .iter()
        .filter(|f| known.contains(&f.commodity))
        .map(more)
        .sum();
    let total: f64 = instance.commodities.iter().map(|c| c.demand).sum();
    if total > 0.0 { moving / total } else { 0.0 }
}

/// The routing of one matrix as a solution of its own, at the factor of the whole series.
pub(crate) fn as_solution(series: &Series, moment: &Moment) -> Solution {
    Solution {
        relaxed: None,
        status: series.status,
        objective: Objective::Scale,
        value: series.value,
        bound: Some(series.bound),
        seconds: series.seconds,
        flows: moment.flows.clone(),
    }
}
