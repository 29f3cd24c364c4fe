//! Whether everything that must be carried fits at all.

use super::*;
use crate::infeasible::{no_route, overloaded, smallest, too_few_routes, too_few_together};

/// Sum of the parts above one that is more than rounding in a bound.
const PROVED: f64 = 1.0 + 1e-9;

/// What is known of whether everything that must be carried fits.
#[derive(Debug, Clone, PartialEq)]
pub enum Fit {
    /// A routing carries it.
    Fits,
    /// A routing carries it that takes more routes than `max_routes` says; whether one within it does was not shown.
    FitsOnMoreRoutes,
    /// No routing does; the proof.
    DoesNotFit(Infeasible),
    /// Neither was shown: there was not the time.
    NotKnown,
}

/// Finds out whether some routing carries all that must be carried, whatever the objective.
pub fn fit(model: &Model, instance: &Instance, options: &Options, monitor: &Monitor<'_>) -> Fit {
    let part = mandatory(instance);
    if part.commodities.is_empty() {
        return Fit::Fits;
    }
    // How full the search for room is means nothing to the user.
    let meaning = |progress: &Progress| Progress {
        phase: Phase::Fit,
        ..Progress::at(progress.elapsed)
    };
    monitor.told(meaning, |monitor| {
        let clock = Clock::new(options, monitor);
        let mut solver = match room(model, &part, options, monitor, &clock) {
            Ok(solver) => solver,
            Err(proof) => return Fit::DoesNotFit(proof),
        };
        if let Some(proof) = too_few_routes(model, instance) {
            return Fit::DoesNotFit(proof);
        }
        if solver.value > 1.0 + ROUNDING {
            return Fit::NotKnown;
        }
        solver.limit_routes(model);
        if solver.bound > PROVED {
            let factor = solver.in_objective(solver.bound);
            let needed = limits_in_the_way(model, &part, options, monitor, &clock);
            return Fit::DoesNotFit(too_few_together(model, &part, &needed, factor));
        }
        if solver.value <= 1.0 + ROUNDING {
            Fit::Fits
        } else {
            Fit::FitsOnMoreRoutes
        }
    })
}

/// A smallest set of chains whose `max_routes` leave too few routes; a larger one where the time does not suffice.
fn limits_in_the_way(
    model: &Model,
    part: &Instance,
    options: &Options,
    monitor: &Monitor<'_>,
    clock: &Clock<'_>,
) -> Vec<u32> {
    let quiet = monitor.quiet();
    let exclude = |chains: &[u32]| {
        let mut part = part.clone();
        part.max_routes.retain(|chain, _| chains.contains(chain));
        room(model, &part, options, &quiet, clock).is_ok_and(|mut solver| {
            solver.limit_routes(model);
            solver.bound > PROVED
        })
    };
    let mut chains: Vec<u32> = part.commodities.iter().map(|c| c.chain).collect();
    chains.dedup();
    chains.retain(|chain| part.max_routes.contains_key(chain));
    smallest(&chains, &exclude)
}

/// The instance with only what must be carried.
pub(super) fn mandatory(instance: &Instance) -> Instance {
    let mut part = instance.clone();
    part.commodities.retain(|c| c.mandatory);
    part
}

/// Works on the routing with most room until it fits or provably does not; stopped, its value may be above one and its
/// bound below.
///
/// # Errors
/// A chain without a route, or demands that provably do not fit.
pub(super) fn room<'a>(
    model: &Model,
    part: &'a Instance,
    options: &'a Options,
    monitor: &'a Monitor<'a>,
    clock: &'a Clock<'a>,
) -> Result<Solver<'a>, Infeasible> {
    let mut scale = Solver::new(part, Objective::Scale, options, monitor, clock);
    scale.warm_start();
    if let Some(commodity) = scale.stuck {
        return Err(no_route(model, part, commodity));
    }
    scale.rounds(|s| s.value < 0.999 || s.bound > PROVED || s.gap() < 1e-8);
    if scale.bound > PROVED {
        return Err(overloaded(model, part, &scale.proof, scale.bound));
    }
    Ok(scale)
}
