//! The heuristics: the paper's dynamic program (SB-DP, section 4.4) and the baselines it is compared with.
//!
//! Under *throughput* and *latency* chains are routed one after the other into the capacity that is left; what does
//! not fit on the cheapest route is routed again. Under *scale* every chain is routed whole and the value is the
//! factor at which the tightest row is full.

mod baseline;
mod congestion;
mod dp;
mod exchange;
mod gathered;
mod held;
mod nearest;
mod settle;
mod state;
mod sweeps;
mod watch;

use crate::error::Infeasible;
use crate::infeasible::no_route;
use crate::instance::Instance;
use crate::lp::{Monitor, Options};
use crate::model::Model;
use crate::solution::{Flow, Objective, Solution, Status, value};
pub use dp::{route_one, route_share};
pub(crate) use nearest::Nearest;
pub use state::{Costs, State};
use watch::Watch;

/// A heuristic of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heuristic {
    /// SB-DP.
    Dp,
    /// SB-DP's costs, but each VNF's site chosen on its own, hop by hop.
    OneHop,
    /// SB-DP with latency as its only cost.
    DpLatency,
    /// The nearest site for each VNF, whatever the load.
    Anycast,
    /// The nearest site that still has compute capacity.
    ComputeAware,
}

/// Routes all commodities of an instance. Of the options only the time limit counts.
///
/// An answer that is cut short gives the chains that are left the nearest sites: under scale whatever the load, so that
/// every chain has a route; otherwise as far as there is room. Under scale so does a chain whose heuristic ends where no
/// capacity leads on.
///
/// # Errors
/// Under scale: a chain without any route, or demands that load nothing, so that no factor is the largest.
pub fn solve(
    model: &Model,
    instance: &Instance,
    heuristic: Heuristic,
    objective: Objective,
    options: &Options,
    monitor: &Monitor<'_>,
) -> Result<Solution, Infeasible> {
    let watch = Watch::new(options, monitor);
    let flows = match (heuristic, objective) {
        (Heuristic::Dp, Objective::Scale) => sweeps::scale(instance, &watch),
        (Heuristic::ComputeAware, Objective::Scale) => {
            baseline::compute_aware_scale(instance, &watch)
        }
        (_, Objective::Scale) => baseline::whole(instance, heuristic, &watch),
        (Heuristic::Dp, Objective::Throughput) => Ok(sweeps::throughput(instance, &watch)),
        (Heuristic::Dp, Objective::Latency) => Ok(sweeps::latency(instance, &watch)),
        _ => Ok(baseline::fill(instance, heuristic, objective, &watch)),
    };
    let flows = flows.map_err(|stuck| no_route(model, instance, stuck))?;
    let solution = finish(instance, objective, flows, &watch);
    if objective == Objective::Scale && !solution.value.is_finite() {
        return Err(Infeasible::unbounded());
    }
    Ok(solution)
}

fn finish(
    instance: &Instance,
    objective: Objective,
    flows: Vec<Flow>,
    watch: &Watch<'_>,
) -> Solution {
    let mut solution = Solution {
        relaxed: None,
        status: Status::Feasible,
        objective,
        value: value(instance, objective, &flows),
        bound: None,
        seconds: watch.clock.elapsed().as_secs_f64(),
        flows,
    };
    if watch.was_cut_short() {
        solution.status = watch.clock.ended(Status::Feasible);
    } else if solution.leaves_demand(instance) {
        solution.status = Status::Partial;
    }
    solution
}
