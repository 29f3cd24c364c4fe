//! Whenever a plan, a plan for failures or a series is stopped, it is whole or says what it lacks, and what it states
//! holds.

mod support;

use support::stopping::{graceful, patient, stopped_at, stopped_everywhere};
use support::{checked, checked_text, limited_model, placeable, random_model};
use te::check::Report;
use te::instance::{Demand, Instance};
use te::json::parse;
use te::lp::Monitor;
use te::model::Model;
use te::plan::{cloud, placement};
use te::random::Random;
use te::series::{self, Matrix};
use te::solution::Status;
use te::survive::{self, Against, Survivable};

fn assert_holds(report: &Report, what: &str) {
    assert!(
        report.violations.is_empty(),
        "{what}: {:?}",
        report.violations
    );
}

fn check_plan(model: &Model, against: Against, plan: &Survivable) -> Report {
    let instance = Instance::new(model, Demand::Full).expect("background fits");
    let text = survive::to_json(model, &instance, against, plan);
    checked_text(model, &text, &[])
}

#[test]
fn plans_for_failures_that_are_stopped_anywhere_say_what_they_do_not_cover() {
    let (mut plans, mut short) = (0, 0);
    for seed in 0..40 {
        let model = limited_model(seed);
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        let against = if seed % 4 < 2 {
            Against::Links
        } else {
            Against::Sites
        };
        for options in [patient(1e-6), graceful(1e-6)] {
            let solve = |monitor: &Monitor<'_>| {
                survive::solve(&model, &instance, against, &options, monitor)
            };
            stopped_everywhere(seed, solve, |n, plan, stopped| {
                let what = format!("seed {seed}, stopped at {n}, grace {:?}", options.grace);
                let Ok(plan) = plan else { return };
                assert_holds(&check_plan(&model, against, &plan), &what);
                let whole = plan.not_covered.is_empty();
                assert!(whole || stopped && options.grace.is_zero(), "{what}");
                plans += 1;
                short += usize::from(!whole);
            });
        }
    }
    assert!(plans > 300 && short > 150, "{plans} plans, {short} short");
}

#[test]
fn a_failure_is_left_out_only_by_plans_that_were_cut_short() {
    let survives = |seed| {
        let model = random_model(seed);
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        let (plan, _) = stopped_at(0, |monitor| {
            survive::solve(&model, &instance, Against::Sites, &graceful(1e-6), monitor)
        });
        plan.ok().map(|plan| (model, instance, plan))
    };
    let (model, instance, mut plan) = (0..100).find_map(survives).expect("one survives");
    plan.solution.status = Status::Interrupted;
    let gone = plan.failures.pop().expect("a site");
    let write =
        |plan: &survive::Survivable| survive::to_json(&model, &instance, Against::Sites, plan);
    let read = |text: &str| {
        let document = parse(text.as_bytes()).expect("what we write is JSON");
        te::check::check(&model, &document, &[], &|_| {})
    };
    let report = read(&write(&plan)).expect("a plan");
    assert!(report.violations.iter().any(|v| v.contains("is missing")));
    plan.not_covered.push(gone.name);
    assert_holds(&read(&write(&plan)).expect("a plan"), "named");
    plan.solution.status = Status::Optimal;
    let refused = read(&write(&plan)).expect_err("it was not cut short");
    assert_eq!(refused.pointer, "/not_covered");
}

/// A model without limits on the number of routes, and matrices around its demands.
fn series_of(seed: u64) -> (Model, Vec<Matrix>) {
    let mut model = limited_model(seed);
    model
        .chains
        .iter_mut()
        .for_each(|c| c.limits.max_routes = None);
    let mut random = Random::new(seed);
    let mut matrix = |m: usize| {
        let mut matrix = Matrix::of(&model, &format!("m{m}"));
        for chain in 0..model.chains.len() {
            let factor = [0.0, 0.5, 1.0, 2.0][random.below(4)];
            let both = matrix.forward[chain]
                .iter_mut()
                .chain(&mut matrix.reverse[chain]);
            both.for_each(|mbps| *mbps *= factor);
        }
        matrix
    };
    let matrices = (0..4).map(&mut matrix).collect();
    (model, matrices)
}

#[test]
fn series_that_are_stopped_anywhere_have_routes_for_every_matrix() {
    let mut stops = 0;
    for seed in 0..60 {
        let (model, matrices) = series_of(seed);
        for change in [0.0, 0.2] {
            let solve = |monitor: &Monitor<'_>| {
                series::solve(&model, &matrices, change, &patient(1e-6), monitor)
            };
            let best = solve(&Default::default());
            stops += stopped_everywhere(seed, solve, |n, series, _| {
                let what = format!("seed {seed}, change {change}, stopped at {n}");
                let Ok(series) = series else {
                    assert!(best.is_err(), "{what}: {}", series.expect_err("an error"));
                    return;
                };
                let text = series::to_json(&model, &series);
                assert_holds(&checked_text(&model, &text, &matrices), &what);
                if let Ok(best) = &best {
                    assert!(best.value <= series.bound * (1.0 + 1e-6), "{what}");
                }
            });
        }
    }
    assert!(stops > 400, "{stops}");
}

fn assert_plan(model: &Model, solution: &te::solution::Solution, what: &str) {
    let instance = Instance::new(model, Demand::Full).expect("background fits");
    assert_holds(&checked(model, &instance, solution), what);
    assert!(solution.value.is_finite(), "{what}");
}

#[test]
fn placements_that_are_stopped_anywhere_are_complete() {
    let mut plans = 0;
    for seed in 0..16 {
        let (model, new) = placeable(seed);
        for capacitated in [true, false] {
            let solve = |monitor: &Monitor<'_>| {
                placement::plan(&model, &new, capacitated, &patient(1e-6), monitor)
            };
            stopped_everywhere(seed, solve, |n, plan, _| {
                let what = format!("seed {seed}, stopped at {n}");
                let Ok(plan) = plan else { return };
                assert_eq!(plan.placed.len(), new.iter().sum::<usize>(), "{what}");
                if capacitated {
                    assert_plan(&plan.model, &plan.solution, &what);
                }
                plans += 1;
            });
        }
    }
    assert!(plans > 300, "{plans}");
}

#[test]
fn clouds_that_are_stopped_anywhere_are_no_worse_than_an_even_spread() {
    let mut plans = 0;
    for seed in 0..16 {
        let (model, _) = placeable(seed);
        let solve = |monitor: &Monitor<'_>| cloud::plan(&model, 100.0, &patient(1e-6), monitor);
        stopped_everywhere(seed, solve, |n, plan, _| {
            let what = format!("seed {seed}, stopped at {n}");
            let Ok(plan) = plan else { return };
            assert_plan(&plan.model, &plan.solution, &what);
            assert!(plan.solution.value >= plan.uniform, "{what}");
            plans += 1;
        });
    }
    assert!(plans > 300, "{plans}");
}
