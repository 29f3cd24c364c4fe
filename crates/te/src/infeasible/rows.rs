//! Rows, which are links, sites and VNFs at sites, as constraints in the model's names.

use crate::error::{Constraint, Infeasible};
use crate::instance::Instance;
use crate::model::Model;

/// Most constraints that are listed of a weighted sum.
const LISTED: usize = 10;

/// Weights below this share of all are not listed.
const NEGLIGIBLE: f64 = 0.01;

/// A weight of at least this share is that of a constraint that proves it alone.
const ALONE: f64 = 1.0 - 1e-6;

/// A figure with six significant digits at most, and no more digits than it takes.
pub fn figure(value: f64) -> String {
    let digits = format!("{value:.5e}");
    digits
        .parse::<f64>()
        .map_or(digits, |rounded| rounded.to_string())
}

/// A row: its name, the field that states its capacity, and what it has.
pub fn row(model: &Model, instance: &Instance, row: usize) -> Constraint {
    let name = instance.row_name(model, row);
    let has = figure(instance.capacity[row]);
    let (pointer, scarce) = if row < instance.links {
        let link = &model.links[row];
        (
            format!("/links/{row}/bandwidth_mbps"),
            format!(
                "has {has} Mbit/s for chains: max_link_utilization {} of {} Mbit/s, less {} Mbit/s of background traffic",
                figure(model.max_link_utilization),
                figure(link.bandwidth_mbps),
                figure(link.background_mbps)
            ),
        )
    } else if row < instance.links + instance.sites {
        let site = row - instance.links;
        (
            format!("/sites/{site}/capacity"),
            format!("has {has} load units of compute"),
        )
    } else {
        (
            deployment(model, row - instance.links - instance.sites),
            format!("has {has} load units of compute"),
        )
    };
    Constraint {
        name,
        pointer,
        scarce,
    }
}

/// The pointer of the capacity of a deployment, counted over all VNFs.
fn deployment(model: &Model, mut number: usize) -> String {
    for (vnf, deployments) in model.vnfs.iter().map(|v| v.deployments.len()).enumerate() {
        if number < deployments {
            return format!("/vnfs/{vnf}/deployments/{number}/capacity");
        }
        number -= deployments;
    }
    "/vnfs".into()
}

/// The unit that a row's capacity is in.
fn unit(instance: &Instance, row: usize) -> &'static str {
    if row < instance.links {
        "Mbit/s"
    } else {
        "load units"
    }
}

/// The proof that the demands do not fit: by the rows' prices, carrying them takes `bound` > 1 times the capacities.
pub fn overloaded(model: &Model, instance: &Instance, price: &[f64], bound: f64) -> Infeasible {
    let total: f64 = price.iter().sum();
    let mut rows: Vec<usize> = (0..price.len()).filter(|&r| price[r] > 0.0).collect();
    let proving = rows.len();
    rows.retain(|&r| price[r] > NEGLIGIBLE * total);
    rows.sort_by(|&a, &b| price[b].total_cmp(&price[a]));
    rows.truncate(LISTED);
    let constraints = rows.iter().map(|&r| {
        let mut constraint = row(model, instance, r);
        let weight = price[r] / total;
        constraint.scarce += &if weight >= ALONE {
            let needed = figure(bound * instance.capacity[r]);
            format!("; at least {needed} {} are needed", unit(instance, r))
        } else {
            format!("; weight {weight:.3} in the proof")
        };
        constraint
    });
    let constraints: Vec<Constraint> = constraints.collect();
    let heaviest = constraints.first().map_or("none", |c| c.name.as_str());
    let by = match proving {
        1 => heaviest.to_owned(),
        _ => format!("the weighted sum of {proving} constraints, the heaviest being {heaviest}"),
    };
    Infeasible {
        message: format!(
            "carrying the demand needs at least {} times the capacities there are; proved by {by}",
            figure(bound)
        ),
        constraints,
    }
}

/// Whether the background traffic of a model keeps every link's limit.
///
/// # Errors
/// The first link where it does not.
pub fn background(model: &Model) -> Result<(), Infeasible> {
    for (index, link) in model.links.iter().enumerate() {
        let limit = model.max_link_utilization * link.bandwidth_mbps;
        if link.background_mbps - limit <= crate::instance::EMPTY * link.bandwidth_mbps {
            continue;
        }
        let (name, background) = (format!("link {}", link.id), figure(link.background_mbps));
        let limit = figure(limit);
        let (beta, bandwidth) = (
            figure(model.max_link_utilization),
            figure(link.bandwidth_mbps),
        );
        return Err(Infeasible {
            message: format!(
                "{name} carries {background} Mbit/s of background traffic, above its limit of {limit} Mbit/s (equation 6)"
            ),
            constraints: vec![Constraint {
                name,
                pointer: format!("/links/{index}/background_mbps"),
                scarce: format!(
                    "{background} Mbit/s of background traffic; max_link_utilization {beta} of {bandwidth} Mbit/s allows {limit}"
                ),
            }],
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_no_more_digits_than_they_take() {
        for (value, text) in [
            (100.0, "100"),
            (0.30000000000000004, "0.3"),
            (1.0 / 3.0, "0.333333"),
            (123456.7, "123457"),
            (12345678.0, "12345700"),
            (0.0, "0"),
            (1e-7, "0.0000001"),
        ] {
            assert_eq!(figure(value), text);
        }
    }
}
