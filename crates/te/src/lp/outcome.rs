//! From the solver's minimisation back to the objective: values, bounds, flows, and proofs of infeasibility.

use super::columns::Columns;
use crate::error::Infeasible;
use crate::instance::Instance;
use crate::model::Model;
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

/// The proof that the demands do not fit: the rows whose prices make up the bound.
pub fn overloaded(model: &Model, instance: &Instance, price: &[f64], bound: f64) -> Infeasible {
    let total: f64 = price.iter().sum();
    let mut rows: Vec<usize> = (0..price.len())
        .filter(|&r| price[r] > 0.01 * total)
        .collect();
    rows.sort_by(|&a, &b| price[b].total_cmp(&price[a]));
    rows.truncate(10);
    let constraints: Vec<String> = rows.iter().map(|&r| instance.row_name(model, r)).collect();
    let message = format!(
        "carrying the demand needs at least {bound:.6} times the capacities there are; proved by the weighted sum of {} constraints, the heaviest being {}",
        constraints.len(),
        constraints.first().map_or("none", String::as_str)
    );
    Infeasible {
        constraints,
        message,
    }
}

/// A chain whose every route is forbidden or blocked.
pub fn stuck(model: &Model, instance: &Instance, commodity: usize) -> Infeasible {
    Infeasible::no_route(&model.chains[instance.commodities[commodity].chain as usize].id)
}
