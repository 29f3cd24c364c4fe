//! The answer for a series of matrices by another way: a program over all routes.

use super::{all_routes, keeps_limits};
use te::arc::Program;
use te::highs::{Method, Outcome};
use te::instance::{Demand, Instance, Route};
use te::model::Model;
use te::series::Matrix;

/// What a program over all routes says of a series.
#[derive(Debug, PartialEq)]
pub enum Expected {
    /// The largest factor.
    Factor(f64),
    Infeasible,
    /// The program is too large, or no factor is the largest.
    Unknown,
}

/// Solves a series by a program over all routes: shares for each matrix, and their increases. A route has no share in a
/// matrix with whose demands it does not keep its chain's limits.
pub fn reference(model: &Model, matrices: &[Matrix], max_change: f64) -> Expected {
    let models: Vec<Model> = matrices.iter().map(|m| m.apply(model)).collect();
    let instances: Vec<Instance> = models
        .iter()
        .map(|m| Instance::new(m, Demand::Full).expect("background fits"))
        .collect();
    let mut program = Program::default();
    let t = program.column(1.0, f64::INFINITY);
    let mut loads = vec![vec![(t, 0.0)]; instances.len() * instances[0].rows()];
    let mut moved = vec![Vec::new(); instances.len()];
    let mut size = 0;
    for c in 0..instances[0].commodities.len() {
        let routes = all_routes(&instances[0], c);
        size += routes.len() * instances.len();
        if size > 3000 {
            return Expected::Unknown;
        }
        let mut before: Vec<usize> = Vec::new();
        for (m, instance) in instances.iter().enumerate() {
            let chain = instance.commodities[c].chain as usize;
            let allowed = |route: &Route| {
                !matrices[m].demands(chain) || keeps_limits(&models[m], instance, c, route)
            };
            let most = |route: &Route| if allowed(route) { 1.0 } else { 0.0 };
            let x: Vec<usize> = routes
                .iter()
                .map(|route| program.column(0.0, most(route)))
                .collect();
            program
                .rows
                .push((1.0, 1.0, x.iter().map(|&x| (x, 1.0)).collect()));
            for (&x, route) in x.iter().zip(&routes) {
                let mut mine = std::collections::BTreeMap::new();
                instance.loads(&instance.commodities[c], route, |row, load| {
                    *mine.entry(row).or_insert(0.0) += load / instance.capacity[row];
                });
                for (row, load) in mine {
                    loads[m * instance.rows() + row].push((x, load));
                }
            }
            for (&now, &then) in x.iter().zip(&before) {
                let more = program.column(0.0, f64::INFINITY);
                program.rows.push((
                    f64::NEG_INFINITY,
                    0.0,
                    vec![(now, 1.0), (then, -1.0), (more, -1.0)],
                ));
                // One routing for all binds also those who demand nothing in a matrix.
                let demand = if max_change > 0.0 {
                    instance.commodities[c].demand
                } else {
                    1.0
                };
                moved[m].push((more, demand));
            }
            before = x;
        }
    }
    for mut row in loads {
        row[0].1 = -1.0;
        program.rows.push((f64::NEG_INFINITY, 0.0, row));
    }
    for (instance, entries) in instances.iter().zip(moved).skip(1) {
        let total: f64 = instance.commodities.iter().map(|c| c.demand).sum();
        program
            .rows
            .push((f64::NEG_INFINITY, max_change * total, entries));
    }
    program.integer = vec![false; program.cost.len()];
    match te::highs::solve(&program, Method::Simplex, 60.0) {
        Outcome::Optimal(value, _) if value > 1e-9 => Expected::Factor(1.0 / value),
        Outcome::Optimal(..) => Expected::Unknown,
        Outcome::Infeasible => Expected::Infeasible,
        other => panic!("HiGHS ended with {other:?}"),
    }
}
