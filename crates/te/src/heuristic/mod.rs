//! The heuristics: the paper's dynamic program (SB-DP, section 4.4) and the baselines it is compared with.
//!
//! Under *throughput* and *latency* chains are routed one after the other into the capacity that is left; what does
//! not fit on the cheapest route is routed again. Under *scale* every chain is routed whole and the value is the
//! factor at which the tightest row is full.

mod baseline;
mod dp;
mod state;

use std::time::Instant;

use crate::error::Infeasible;
use crate::instance::Instance;
use crate::model::Model;
use crate::solution::{Flow, Objective, Solution, Status, value};
pub use dp::{route_one, route_share};
pub use state::{Costs, State};

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

/// Routes all commodities of an instance.
///
/// # Errors
/// Under scale: a chain without any route, or demands that load nothing, so that no factor is the largest.
pub fn solve(
    model: &Model,
    instance: &Instance,
    heuristic: Heuristic,
    objective: Objective,
) -> Result<Solution, Infeasible> {
    let start = Instant::now();
    let flows = match (heuristic, objective) {
        (Heuristic::Dp, Objective::Scale) => dp::spread(instance, Costs::for_objective(objective)),
        (Heuristic::ComputeAware, Objective::Scale) => baseline::compute_aware_scale(instance),
        (_, Objective::Scale) => baseline::whole(instance, heuristic),
        (Heuristic::Dp, _) => dp::fill(instance, Costs::for_objective(objective)),
        _ => baseline::fill(instance, heuristic, objective),
    };
    let solution = finish(instance, objective, flows, start);
    if objective == Objective::Scale && !solution.value.is_finite() {
        let routed: std::collections::HashSet<usize> =
            solution.flows.iter().map(|f| f.commodity).collect();
        return Err(
            match (0..instance.commodities.len()).find(|c| !routed.contains(c)) {
                Some(commodity) => Infeasible::no_route(
                    &model.chains[instance.commodities[commodity].chain as usize].id,
                ),
                None => Infeasible::unbounded(),
            },
        );
    }
    Ok(solution)
}

fn finish(instance: &Instance, objective: Objective, flows: Vec<Flow>, start: Instant) -> Solution {
    let mut carried = vec![0.0; instance.commodities.len()];
    for flow in &flows {
        carried[flow.commodity] += flow.fraction;
    }
    let complete =
        |(c, share): (usize, &f64)| !instance.commodities[c].mandatory || *share >= 1.0 - 1e-9;
    let status = if carried.iter().enumerate().all(complete) {
        Status::Feasible
    } else {
        Status::Partial
    };
    Solution {
        status,
        objective,
        value: value(instance, objective, &flows),
        bound: None,
        seconds: start.elapsed().as_secs_f64(),
        flows,
    }
}
