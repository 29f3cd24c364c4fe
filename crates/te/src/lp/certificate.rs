//! The proof: a bound from any prices by one sweep of the dynamic program (Lagrangian duality).
//!
//! For row prices π ≥ 0 (by row, for its whole capacity), with m_c(π) the cheapest route of commodity c under its own
//! cost plus π:
//!
//! * scale, where t = 1/α is minimised: t ≥ Σ_c m_c(π) / Σ_r π_r;
//! * latency: value ≥ Σ_c m_c(π) − Σ_r π_r;
//! * throughput: value ≤ Σ_c max(0, worth_c − m_c(π)) + Σ_r π_r, mandatory commodities without the max.
//!
//! Load that is already there (`Instance::base`) adds Σ π_r · base_r to Σ_c m_c(π). The bound holds for every π ≥ 0, so it
//! does not matter where π came from or how inexact the master was. What is no such π (a number that is none, a negative
//! one, one so large that it cannot be told from what marks the impossible) proves nothing: there is no sweep.

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

/// Prices of units of load below this are told apart from what marks the impossible, whatever the load.
const LARGEST: f64 = IMPOSSIBLE / 1e20;

/// As [`unit_prices`], for a proof; none for prices that prove nothing.
pub fn proving(instance: &Instance, price: &[f64]) -> Option<Vec<f64>> {
    let unit = unit_prices(instance, price);
    let proves = |p: &f64| (0.0..LARGEST).contains(p);
    (price.iter().all(proves) && unit.iter().all(proves)).then_some(unit)
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
/// are cheaper by more than `threshold` become candidates. None when there was not the time for all of them, or the prices
/// prove nothing.
pub fn sweep(
    instance: &Instance,
    costing: &Costing,
    price: &[f64],
    current: &[f64],
    threshold: f64,
    threads: usize,
    clock: &Clock<'_>,
) -> Option<Sweep> {
    let unit = proving(instance, price)?;
    let tables = Tables::new(instance, &unit, latency_weight(costing));
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
    // Dear prices and dear routes can still cancel to what is no number.
    sum.bound.is_finite().then_some(sum)
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
        // Not `min`, which takes what is no number for zero.
        result.bound += if optional && cost > 0.0 { 0.0 } else { cost };
        if cost < current[index] - threshold {
            result.candidates.push(Candidate {
                commodity: index,
                route: scratch.route(),
            });
        }
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Demand;
    use crate::lp::{Monitor, Options};
    use crate::model::Model;

    const MODEL: &str = r#"{
      "nodes": [{"id":"a"},{"id":"b"}],
      "links": [{"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":10},
                {"id":"ba","from":"b","to":"a","latency_ms":1,"bandwidth_mbps":10}],
      "sites": [{"id":"s","node":"b","capacity":20}],
      "vnfs": [{"id":"f","load_per_mbps":1,"deployments":[{"site":"s","capacity":20}]}],
      "chains": [{"id":"plain","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":2},
                 {"id":"limited","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":2,"max_latency_ms":5},
                 {"id":"bare","ingress":"b","egress":"a","vnfs":[],"forward_mbps":1,"reverse_mbps":1}] }"#;

    fn bound(objective: Objective, price: &[f64]) -> Option<f64> {
        let model = Model::read(MODEL.as_bytes()).expect("good");
        let demand = if objective == Objective::Throughput {
            Demand::Partial
        } else {
            Demand::Full
        };
        let instance = Instance::new(&model, demand).expect("background fits");
        let (options, monitor) = (Options::default(), Monitor::default());
        let costing = Costing {
            objective,
            unit: 1.0,
        };
        let clock = Clock::new(&options, &monitor);
        let current = vec![f64::NEG_INFINITY; instance.commodities.len()];
        sweep(&instance, &costing, price, &current, 0.0, 1, &clock).map(|sweep| sweep.bound)
    }

    #[test]
    fn prices_that_are_no_prices_prove_nothing() {
        let good = [0.25, 0.0, 0.5, 0.125];
        for objective in [Objective::Throughput, Objective::Scale, Objective::Latency] {
            assert!(bound(objective, &good).is_some_and(f64::is_finite));
            for row in 0..good.len() {
                for wrong in [
                    f64::NAN,
                    f64::INFINITY,
                    f64::NEG_INFINITY,
                    -1e-9,
                    f64::MAX,
                    1e90,
                ] {
                    let mut price = good;
                    price[row] = wrong;
                    assert_eq!(bound(objective, &price), None, "{objective:?} {price:?}");
                }
            }
        }
    }

    #[test]
    fn a_bound_is_what_the_prices_prove_by_hand() {
        // Nothing is priced: all is carried, nothing limits growth, every chain takes its fastest route.
        assert_eq!(bound(Objective::Throughput, &[0.0; 4]), Some(-6.0));
        assert_eq!(bound(Objective::Scale, &[0.0; 4]), Some(0.0));
        assert_eq!(bound(Objective::Latency, &[0.0; 4]), Some(6.0));
        // The link ab alone: 2 + 2 + 1 of its 10 Mbit/s.
        assert_eq!(bound(Objective::Scale, &[1.0, 0.0, 0.0, 0.0]), Some(0.5));
    }
}
