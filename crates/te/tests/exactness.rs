//! The exact solver against HiGHS on the paper's arc formulation, and properties that any optimum has.

mod support;

use support::{OBJECTIVES, checked, demand, limited_model, random_model};
use te::arc::Arc;
use te::heuristic::{self, Heuristic};
use te::highs::{Method, Outcome};
use te::instance::{Demand, Instance};
use te::lp::{self, Monitor};
use te::model::Model;
use te::solution::{Objective, Solution};

const MODELS: u64 = 150;

fn options() -> lp::Options {
    lp::Options {
        gap: 1e-7,
        ..lp::Options::default()
    }
}

fn exact(model: &Model, objective: Objective) -> Option<Solution> {
    let instance = Instance::new(model, demand(objective)).ok()?;
    let solution = lp::solve(model, &instance, objective, &options(), &Monitor::default()).ok()?;
    let report = checked(model, &instance, &solution);
    assert!(
        report.violations.is_empty(),
        "{objective:?}: {:?}",
        report.violations
    );
    Some(solution)
}

#[test]
fn value_and_bound_agree_with_highs_on_the_arc_formulation() {
    let mut compared = [0; 3];
    let mut infeasible = 0;
    for seed in 0..MODELS {
        let model = random_model(seed);
        if std::env::var("SEED").is_ok_and(|s| s != seed.to_string()) {
            continue;
        }
        for (i, objective) in OBJECTIVES.into_iter().enumerate() {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            let arc = Arc::new(&instance, objective).expect("no limits");
            let reference = te::highs::solve(&arc.program, Method::Simplex, 60.0);
            let solved = exact(&model, objective);
            match reference {
                Outcome::Optimal(t, _) if arc.value(t).is_infinite() => {
                    assert!(
                        solved.is_none(),
                        "seed {seed}: nothing is loaded, so any factor is possible"
                    );
                }
                Outcome::Optimal(value, _) => {
                    let value = arc.value(value);
                    let solved = solved.unwrap_or_else(|| {
                        panic!("seed {seed} {objective:?}: HiGHS found {value}")
                    });
                    let scale = value.abs().max(1e-9);
                    let bound = solved.bound.expect("exact");
                    assert!(
                        (solved.value - value).abs() <= 1e-6 * scale,
                        "seed {seed} {objective:?}: {} against {value}",
                        solved.value
                    );
                    assert!(
                        (bound - value).abs() <= 1e-6 * scale,
                        "seed {seed} {objective:?}: bound {bound} against {value}"
                    );
                    compared[i] += 1;
                }
                Outcome::Infeasible => {
                    assert!(
                        solved.is_none(),
                        "seed {seed} {objective:?}: HiGHS says infeasible"
                    );
                    infeasible += 1;
                }
                Outcome::Other(status) => panic!("HiGHS stopped with {status}"),
            }
        }
    }
    assert!(
        compared.iter().all(|c| *c > 20) && infeasible > 5,
        "too few cases: {compared:?}, {infeasible} infeasible"
    );
}

#[test]
fn no_heuristic_beats_the_bound_and_every_result_checks() {
    for seed in 1000..1000 + 2 * MODELS {
        let model = match seed % 2 {
            0 => random_model(seed),
            _ => limited_model(seed),
        };
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            let solved = exact(&model, objective);
            for heuristic in [
                Heuristic::Dp,
                Heuristic::OneHop,
                Heuristic::DpLatency,
                Heuristic::Anycast,
                Heuristic::ComputeAware,
            ] {
                let Ok(answer) = heuristic::solve(
                    &model,
                    &instance,
                    heuristic,
                    objective,
                    &options(),
                    &Monitor::default(),
                ) else {
                    continue;
                };
                let report = checked(&model, &instance, &answer);
                assert!(
                    report.violations.is_empty(),
                    "seed {seed} {heuristic:?} {objective:?}: {:?}",
                    report.violations
                );
                let Some(bound) = solved.as_ref().and_then(|s| s.bound) else {
                    continue;
                };
                let partial = answer.status == te::solution::Status::Partial;
                let beaten = match objective {
                    Objective::Latency => answer.value < bound * (1.0 - 1e-6),
                    _ => answer.value > bound * (1.0 + 1e-6),
                };
                // Who leaves what must be carried may carry more of the rest.
                assert!(
                    !beaten || partial,
                    "seed {seed} {heuristic:?} {objective:?}: {} beats {bound}",
                    answer.value
                );
            }
        }
    }
}

#[test]
fn scaling_all_capacities_scales_the_answer() {
    for seed in 2000..2060 {
        let mut model = random_model(seed);
        let Some(before) = exact(&model, Objective::Scale) else {
            continue;
        };
        for link in &mut model.links {
            link.bandwidth_mbps *= 3.0;
            link.background_mbps *= 3.0;
        }
        model.sites.iter_mut().for_each(|s| s.capacity *= 3.0);
        model
            .vnfs
            .iter_mut()
            .flat_map(|v| &mut v.deployments)
            .for_each(|d| d.capacity *= 3.0);
        let after = exact(&model, Objective::Scale).expect("still solvable");
        assert!(
            (after.value - 3.0 * before.value).abs() <= 1e-6 * after.value,
            "seed {seed}: {} and {}",
            before.value,
            after.value
        );
    }
}

#[test]
fn a_removed_site_never_helps() {
    let mut removed = 0;
    for seed in 3000..3080 {
        let model = random_model(seed);
        let mut smaller = model.clone();
        let gone = smaller.sites.len() - 1;
        smaller
            .vnfs
            .iter_mut()
            .for_each(|v| v.deployments.retain(|d| d.site != gone));
        if smaller.vnfs.iter().any(|v| v.deployments.is_empty()) {
            continue;
        }
        removed += 1;
        for objective in OBJECTIVES {
            let (Some(before), Some(after)) =
                (exact(&model, objective), exact(&smaller, objective))
            else {
                continue;
            };
            let slack = 1e-6 * before.value.abs();
            let helped = if objective.maximises() {
                after.value > before.value + slack
            } else {
                after.value < before.value - slack
            };
            assert!(
                !helped,
                "seed {seed} {objective:?}: {} without, {} with the site",
                after.value, before.value
            );
        }
    }
    assert!(removed > 10);
}

#[test]
fn the_same_model_gives_the_same_bytes() {
    let model = random_model(42);
    let instance = Instance::new(&model, Demand::Full).expect("background fits");
    let write = || {
        let mut solution = lp::solve(
            &model,
            &instance,
            Objective::Scale,
            &options(),
            &Monitor::default(),
        )
        .expect("feasible");
        solution.seconds = 0.0;
        te::result::to_json(&model, &instance, &solution)
    };
    assert_eq!(write(), write());
}

#[test]
fn the_interior_point_of_highs_proves_the_same_optima() {
    let mut compared = 0;
    for seed in 4000..4040 {
        let model = random_model(seed);
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            let arc = Arc::new(&instance, objective).expect("no limits");
            let Some(solved) = exact(&model, objective) else {
                continue;
            };
            let reference = te::highs::solve(&arc.program, Method::InteriorPoint, 60.0);
            let Outcome::Optimal(value, _) = reference else {
                panic!("seed {seed} {objective:?}: HiGHS ended with {reference:?}");
            };
            let value = arc.value(value);
            assert!(
                (solved.value - value).abs() <= 2e-6 * value.abs().max(1e-9),
                "seed {seed} {objective:?}: {} against {value}",
                solved.value
            );
            compared += 1;
        }
    }
    assert!(compared > 60, "too few cases: {compared}");
}
