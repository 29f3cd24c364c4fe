//! The proof: a bound from any prices by one sweep of the dynamic program (Lagrangian duality).
//!
//! For row prices π ≥ 0 (by row, for its whole capacity), with m_c(π) the cheapest route of commodity c under its own
//! cost plus π:
//!
//! * scale, where t = 1/α is minimised: t ≥ Σ_c m_c(π) / Σ_r π_r;
//! * latency: value ≥ Σ_c m_c(π) − Σ_r π_r;
//! * throughput: value ≤ Σ_c max(0, worth_c − m_c(π)) + Σ_r π_r, mandatory commodities without the max.
//!
//! Load that is already there (`Instance::base`) adds Σ π_r · base_r to Σ_c m_c(π). The bound holds for every π, so it does not matter where π came from or how inexact the master was.

use crate::clock::Clock;
use crate::instance::Instance;
use crate::kernel::{Scratch, cheapest};
use crate::lp::columns::Costing;
use crate::parallel::in_parts;
use crate::solution::Objective;
use crate::tables::{IMPOSSIBLE, Tables};

/// Commodities from which a sweep is shared by threads.
const MANY: usize = 2000;

/// What a sweep found for one commodity that can be improved.
pub struct Candidate {
    /// The commodity.
    pub commodity: usize,
    /// Its cheapest route.
    pub route: crate::instance::Route,
}

/// Result of a sweep.
pub struct Sweep {
    /// Lower bound on the minimised value in the solver's unit.
    pub bound: f64,
    /// Routes that cost less than the commodity's current price.
    pub candidates: Vec<Candidate>,
    /// A commodity without any possible route.
    pub stuck: Option<usize>,
}

/// Prices of whole capacities as prices of units of load.
pub fn unit_prices(instance: &Instance, price: &[f64]) -> Vec<f64> {
    price
        .iter()
        .zip(&instance.capacity)
        .map(|(&p, &c)| if c > 0.0 { p / c } else { 0.0 })
        .collect()
}

/// Weight of latency in the tables, so that their costs are in the solver's unit.
pub fn latency_weight(costing: &Costing) -> f64 {
    if costing.objective == Objective::Latency {
        1.0 / costing.unit
    } else {
        0.0
    }
}

/// Sweeps all commodities under `price`. `current` gives each commodity's present marginal cost; only routes that
/// are cheaper by more than `threshold` become candidates. None when there was not the time for all of them.
pub fn sweep(
    instance: &Instance,
    costing: &Costing,
    price: &[f64],
    current: &[f64],
    threshold: f64,
    threads: usize,
    clock: &Clock<'_>,
) -> Option<Sweep> {
    let tables = Tables::new(
        instance,
        &unit_prices(instance, price),
        latency_weight(costing),
    );
    let part = |range| sweep_part(instance, costing, &tables, current, threshold, range, clock);
    let parts = in_parts(instance.commodities.len(), threads, MANY, part);
    let total: f64 = price.iter().sum();
    let mut sum = Sweep {
        bound: 0.0,
        candidates: Vec::new(),
        stuck: None,
    };
    for part in parts {
        let part = part?;
        sum.bound += part.bound;
        sum.candidates.extend(part.candidates);
        sum.stuck = sum.stuck.or(part.stuck);
    }
    sum.bound += price
        .iter()
        .zip(&instance.base)
        .map(|(p, b)| p * b)
        .sum::<f64>();
    sum.bound = if costing.objective == Objective::Scale {
        if total > 0.0 { sum.bound / total } else { 0.0 }
    } else {
        sum.bound - total
    };
    Some(sum)
}

fn sweep_part(
    instance: &Instance,
    costing: &Costing,
    tables: &Tables,
    current: &[f64],
    threshold: f64,
    range: std::ops::Range<usize>,
    clock: &Clock<'_>,
) -> Option<Sweep> {
    let mut scratch = Scratch::default();
    let mut result = Sweep {
        bound: 0.0,
        candidates: Vec::new(),
        stuck: None,
    };
    for index in range {
        if clock.is_over_at(index) {
            return None;
        }
        let commodity = &instance.commodities[index];
        let mut cost = cheapest(instance, tables, commodity, &mut scratch);
        let optional = costing.may_be_left(commodity);
        if cost >= IMPOSSIBLE {
            if !optional {
                result.stuck = Some(index);
            }
            continue;
        }
        if costing.objective == Objective::Throughput {
            cost -= commodity.worth / costing.unit;
        }
        result.bound += if optional { cost.min(0.0) } else { cost };
        if cost < current[index] - threshold {
            result.candidates.push(Candidate {
                commodity: index,
                route: scratch.route(),
            });
        }
    }
    Some(result)
}
