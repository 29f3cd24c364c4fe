//! From the solver's minimisation back to the objective: values, bounds, flows.

use super::columns::Columns;
use crate::instance::Instance;
use crate::solution::{Flow, Objective};

/// Shares below this are rounding of the master.
const NEGLIGIBLE: f64 = 1e-9;

/// Shares of columns as flows; shares that are only rounding are given to the commodity's largest column.
pub fn flows(instance: &Instance, columns: &Columns, x: &[f64]) -> Vec<Flow> {
    let mut flows = Vec::new();
    let mut mine: Vec<(usize, f64)> = Vec::new();
    for commodity in 0..instance.commodities.len() {
        mine.clear();
        mine.extend(
            columns
                .of(commodity)
                .map(|c| (c, x.get(c).copied().unwrap_or(0.0)))
                .filter(|(_, x)| *x > NEGLIGIBLE),
        );
        mine.sort_unstable_by_key(|(column, _)| *column);
        let sum: f64 = mine.iter().map(|(_, x)| x).sum();
        for &(column, x) in &mine {
            if let Some(route) = columns.route(column) {
                flows.push(Flow {
                    commodity,
                    route: route.clone(),
                    fraction: x / sum,
                });
            }
        }
    }
    flows
}

/// A value or bound of the minimisation in the objective's unit.
pub fn to_objective(objective: Objective, unit: f64, minimised: f64) -> f64 {
    match objective {
        Objective::Scale => 1.0 / minimised,
        Objective::Latency => minimised * unit,
        Objective::Throughput => -minimised * unit,
    }
}
