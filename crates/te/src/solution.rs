//! What every algorithm returns: routes with fractions, and the figures that follow from them.

use std::collections::BTreeMap;

use crate::instance::{Commodity, Instance, Route};

/// What is optimised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// Most demand carried, each chain at most its own; Mbit/s.
    Throughput,
    /// Largest factor on all demands that can be carried.
    Scale,
    /// Least aggregate latency with all demand carried (equation 3), Mbit/s · ms.
    Latency,
}

impl Objective {
    /// The objective's name in the contract.
    pub fn name(self) -> &'static str {
        match self {
            Objective::Throughput => "throughput",
            Objective::Scale => "scale",
            Objective::Latency => "latency",
        }
    }

    /// Whether larger values are better.
    pub fn maximises(self) -> bool {
        self != Objective::Latency
    }
}

/// How a solve ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Proved within the gap that was asked for.
    Optimal,
    /// A valid answer of a heuristic, or of the exact solver with a restriction it cannot prove optimal.
    Feasible,
    /// The best answer when the time was up.
    TimeLimit,
    /// The best answer when the user interrupted.
    Interrupted,
    /// A heuristic left demand uncarried that should have been carried in full.
    Partial,
}

impl Status {
    /// The status in the contract's words.
    pub fn name(self) -> &'static str {
        match self {
            Status::Optimal => "optimal",
            Status::Feasible => "feasible",
            Status::TimeLimit => "time-limit",
            Status::Interrupted => "interrupted",
            Status::Partial => "partial",
        }
    }
}

/// A route and the share of its commodity that it carries.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Index of the commodity.
    pub commodity: usize,
    /// Where it goes.
    pub route: Route,
    /// Share of the commodity's demand, of the scaled demand under the scale objective.
    pub fraction: f64,
}

/// A routing with its value and, from the exact solver, its proof.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// How the solve ended.
    pub status: Status,
    /// What was optimised.
    pub objective: Objective,
    /// Value of the routing.
    pub value: f64,
    /// A bound that no routing beats, where one was proved.
    pub bound: Option<f64>,
    /// The bound of the problem without `max_routes`, where [`Solution::bound`] is one with chains held to it. None where
    /// that limit is left out of account, or there is none.
    pub relaxed: Option<f64>,
    /// Wall-clock time of the solve, seconds.
    pub seconds: f64,
    /// The routing.
    pub flows: Vec<Flow>,
}

impl Solution {
    /// |bound − value| over |bound|, for maximisation, or over |value|.
    pub fn gap(&self) -> Option<f64> {
        self.bound
            .map(|bound| relative_gap(self.objective, self.value, bound))
    }

    /// Whether demand is left uncarried that should have been carried in full.
    pub fn leaves_demand(&self, instance: &Instance) -> bool {
        self.left(instance).next().is_some()
    }

    /// The demand that is left uncarried and should have been carried, Mbit/s; and the chain with most of it.
    pub fn rest(&self, instance: &Instance) -> (f64, usize) {
        let mut by_chain: BTreeMap<u32, f64> = BTreeMap::new();
        for (commodity, share) in self.left(instance) {
            *by_chain.entry(commodity.chain).or_default() += share * commodity.demand;
        }
        let most = by_chain.iter().max_by(|a, b| a.1.total_cmp(b.1));
        let chain = most.map_or(0, |(chain, _)| *chain as usize);
        (by_chain.values().sum(), chain)
    }

    /// What should have been carried in full and was not, with the share that is left.
    fn left<'a>(&self, instance: &'a Instance) -> impl Iterator<Item = (&'a Commodity, f64)> {
        let mut left = vec![1.0; instance.commodities.len()];
        for flow in &self.flows {
            left[flow.commodity] -= flow.fraction;
        }
        let each = instance.commodities.iter().zip(left);
        each.filter(|(c, share)| c.mandatory && *share > 1e-9)
    }

    /// Factor that the demands of the model are multiplied with in this routing.
    pub fn demand_factor(&self) -> f64 {
        if self.objective == Objective::Scale {
            self.value
        } else {
            1.0
        }
    }
}

/// A value that is better than its bound by more than this, relatively, is so not by rounding.
const BEATEN: f64 = 1e-6;

/// Distance of a value from its bound, relative to the larger of the two; never negative, and infinite where either is not
/// known or the value beats the bound, which then is none.
pub fn relative_gap(objective: Objective, value: f64, bound: f64) -> f64 {
    let (low, high) = if objective.maximises() {
        (value, bound)
    } else {
        (bound, value)
    };
    let beaten = low - high > BEATEN * high.abs();
    if !low.is_finite() || !high.is_finite() || beaten {
        f64::INFINITY
    } else if high <= 0.0 {
        0.0
    } else {
        ((high - low) / high).max(0.0)
    }
}

/// Load of every row under a routing, with the demands as they are in the model.
pub fn loads(instance: &Instance, flows: &[Flow]) -> Vec<f64> {
    let mut loads: Vec<f64> = instance
        .base
        .iter()
        .zip(&instance.capacity)
        .map(|(b, c)| b * c)
        .collect();
    loads.resize(instance.rows(), 0.0);
    for flow in flows {
        let commodity = &instance.commodities[flow.commodity];
        instance.loads(commodity, &flow.route, |row, load| {
            loads[row] += flow.fraction * load
        });
    }
    loads
}

/// The most loaded row and its load as a share of its capacity.
pub fn tightest(instance: &Instance, loads: &[f64]) -> (usize, f64) {
    let ratio = |row: usize| match (loads[row], instance.capacity[row]) {
        (load, _) if load <= 0.0 => 0.0,
        (_, capacity) if capacity <= 0.0 => f64::INFINITY,
        (load, capacity) => load / capacity,
    };
    (0..loads.len())
        .map(|row| (row, ratio(row)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or((0, 0.0))
}

/// Value of a routing under an objective whose demands are carried as given.
pub fn value(instance: &Instance, objective: Objective, flows: &[Flow]) -> f64 {
    let commodity = |flow: &Flow| &instance.commodities[flow.commodity];
    match objective {
        Objective::Throughput => flows.iter().map(|f| f.fraction * commodity(f).worth).sum(),
        Objective::Latency => flows
            .iter()
            .map(|f| f.fraction * instance.weighted_latency(commodity(f), &f.route))
            .sum(),
        Objective::Scale => {
            let (_, utilization) = tightest(instance, &loads(instance, flows));
            if utilization > 0.0 {
                1.0 / utilization
            } else {
                f64::INFINITY
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_that_the_value_beats_closes_no_gap() {
        for (objective, value, bound, gap) in [
            (Objective::Throughput, 9.0, 10.0, 0.1),
            (Objective::Throughput, 10.0 + 1e-9, 10.0, 0.0),
            (Objective::Throughput, 219.75, -0.0, f64::INFINITY),
            (Objective::Throughput, 10.1, 10.0, f64::INFINITY),
            (Objective::Scale, 1.0, f64::NAN, f64::INFINITY),
            (Objective::Scale, f64::NAN, 1.0, f64::INFINITY),
            (Objective::Latency, 10.0, 9.0, 0.1),
            (Objective::Latency, 8.0, 9.0, f64::INFINITY),
            (Objective::Latency, 0.0, 0.0, 0.0),
        ] {
            let found = relative_gap(objective, value, bound);
            assert!(
                found == gap || (found - gap).abs() < 1e-12,
                "{objective:?} {value} {bound}: {found}"
            );
        }
    }
}
