//! Whenever a solve is stopped, what it returns keeps every constraint, and what it states holds.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::{OBJECTIVES, checked, demand, random_model};
use te::check::Report;
use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::json::parse;
use te::lp::{self, Monitor, Options, Progress};
use te::model::Model;
use te::plan::{cloud, placement};
use te::random::Random;
use te::series::{self, Matrix};
use te::solution::{Objective, Solution, Status};
use te::survive::{self, Against};

const HEURISTICS: [Heuristic; 5] = [
    Heuristic::Dp,
    Heuristic::OneHop,
    Heuristic::DpLatency,
    Heuristic::Anycast,
    Heuristic::ComputeAware,
];

/// A random model in which every second chain has limits.
fn limited_model(seed: u64) -> Model {
    let mut model = random_model(seed);
    let mut random = Random::new(seed);
    let (sites, links) = (model.sites.len(), model.links.len());
    for chain in &mut model.chains {
        let limits = &mut chain.limits;
        match random.below(10) {
            0 => limits.max_latency_ms = Some(random.between(2.0, 12.0)),
            1 => limits.avoid_sites = vec![random.below(sites)],
            2 => limits.avoid_links = random.sample(links, 2),
            3 => limits.use_links = vec![random.below(links)],
            4 => limits.max_routes = Some(4 + random.below(2)),
            _ => {}
        }
    }
    model
}

/// Moments at which a solve is stopped: at once, within the first steps, or never.
fn limits(seed: u64) -> [Options; 3] {
    let mut random = Random::new(seed);
    let middle = 10f64.powf(random.between(-5.0, -2.0));
    [0.0, middle, 60.0].map(|seconds| Options {
        gap: 1e-6,
        time_limit: Duration::from_secs_f64(seconds),
        threads: 1 + (seed % 2) as usize,
    })
}

fn assert_holds(report: &Report, what: &str) {
    assert!(
        report.violations.is_empty(),
        "{what}: {:?}",
        report.violations
    );
}

/// What every answer must be, stopped or not.
fn assert_answer(model: &Model, instance: &Instance, solution: &Solution, what: &str) {
    assert_holds(&checked(model, instance, solution), what);
    let stopped = matches!(solution.status, Status::Interrupted | Status::TimeLimit);
    let left = solution.leaves_demand(instance);
    assert!(
        !left || stopped || solution.status == Status::Partial,
        "{what}: demand is left and the status is {:?}",
        solution.status
    );
    assert!(solution.value.is_finite(), "{what}: {}", solution.value);
    let proved = solution.bound.is_some_and(f64::is_finite);
    assert!(
        proved || solution.status != Status::Optimal,
        "{what}: optimal without a bound"
    );
    assert!(
        solution.objective != Objective::Scale || !left,
        "{what}: a factor holds for all chains"
    );
}

#[test]
fn heuristics_that_are_stopped_answer_within_every_limit() {
    let mut stopped = 0;
    for seed in 0..60 {
        let model = limited_model(seed);
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            for heuristic in HEURISTICS {
                for options in limits(seed) {
                    let what = format!("seed {seed} {heuristic:?} {objective:?} {options:?}");
                    let monitor = Monitor::default();
                    match heuristic::solve(
                        &model, &instance, heuristic, objective, &options, &monitor,
                    ) {
                        Ok(answer) => {
                            assert_answer(&model, &instance, &answer, &what);
                            stopped += usize::from(answer.status == Status::TimeLimit);
                        }
                        Err(e) => assert_eq!(objective, Objective::Scale, "{what}: {e}"),
                    }
                }
            }
        }
    }
    assert!(stopped > 500, "only {stopped} were stopped");
}

#[test]
fn the_exact_solver_stopped_at_any_moment_has_an_answer_and_a_true_bound() {
    let mut stopped = 0;
    for seed in 0..80 {
        let model = limited_model(seed);
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            let solve = |options: &Options| {
                lp::solve(&model, &instance, objective, options, &Monitor::default())
            };
            let [none, middle, long] = limits(seed);
            let best = solve(&long);
            for options in [none, middle] {
                let what = format!("seed {seed} {objective:?} {options:?}");
                let early = match solve(&options) {
                    Ok(early) => early,
                    Err(e) => {
                        assert!(best.is_err(), "{what}: {e}");
                        continue;
                    }
                };
                assert_answer(&model, &instance, &early, &what);
                stopped += usize::from(early.status == Status::TimeLimit);
                // The bound is on any routing, whatever the number of routes.
                let (Ok(best), Some(bound)) = (&best, early.bound) else {
                    continue;
                };
                let beaten = match objective {
                    Objective::Latency => best.value < bound * (1.0 - 1e-6),
                    Objective::Throughput | Objective::Scale => best.value > bound * (1.0 + 1e-6),
                };
                assert!(
                    !beaten || best.leaves_demand(&instance),
                    "{what}: {bound} is no bound"
                );
            }
        }
    }
    assert!(stopped > 150, "only {stopped} were stopped");
}

#[test]
fn what_is_feasible_is_not_called_infeasible_for_want_of_time() {
    let mut partial = 0;
    for seed in 0..80 {
        let model = random_model(seed);
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        let solve = |options: &Options| {
            let monitor = Monitor::default();
            lp::solve(&model, &instance, Objective::Latency, options, &monitor)
        };
        let [none, _, long] = limits(seed);
        if let Ok(best) = solve(&long) {
            let early = solve(&none).expect("there is a routing");
            assert!(
                early.leaves_demand(&instance) || early.value >= best.value * (1.0 - 1e-6),
                "seed {seed}"
            );
            let text = te::result::to_json(&model, &instance, &early);
            assert_eq!(
                text.contains("\"partial\":true"),
                early.leaves_demand(&instance),
                "{text}"
            );
            partial += usize::from(early.leaves_demand(&instance));
        }
    }
    assert!(partial < 40, "{partial} of 80 were left in part");
}

/// Stops at the n-th word of progress.
fn interrupted_at<T>(n: usize, work: impl FnOnce(&Monitor<'_>) -> T) -> T {
    let (flag, count) = (
        AtomicBool::new(n == 0),
        std::sync::atomic::AtomicUsize::new(0),
    );
    let report = |_: &Progress| {
        if count.fetch_add(1, Ordering::Relaxed) + 1 >= n {
            flag.store(true, Ordering::Relaxed);
        }
    };
    work(&Monitor {
        report: Some(&report),
        interrupt: Some(&flag),
    })
}

#[test]
fn survival_plans_that_are_interrupted_say_what_they_do_not_cover() {
    let mut plans = 0;
    for seed in 0..30 {
        let model = limited_model(seed);
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        let [none, middle, long] = limits(seed);
        for (n, options) in [
            (0, &long),
            (1, &long),
            (3, &long),
            (99, &none),
            (99, &middle),
        ] {
            let what = format!("seed {seed}, interrupted at {n}, {options:?}");
            let against = if seed % 2 == 0 {
                Against::Links
            } else {
                Against::Sites
            };
            let plan = interrupted_at(n, |monitor| {
                survive::solve(&model, &instance, against, options, monitor)
            });
            let Ok(plan) = plan else { continue };
            plans += 1;
            let text = survive::to_json(&model, &instance, against, &plan);
            let document = parse(text.as_bytes()).expect("what we write is JSON");
            let read = te::check::survive::read(&document, &model).expect("what we write is read");
            assert_holds(&te::check::survive::check_all(&model, &read), &what);
        }
    }
    assert!(plans > 20, "only {plans} plans");
}

#[test]
fn a_failure_is_left_out_only_by_plans_that_were_cut_short() {
    let survives = |seed| {
        let model = random_model(seed);
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        let plan = interrupted_at(0, |monitor| {
            let options = Options::default();
            survive::solve(&model, &instance, Against::Sites, &options, monitor)
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
        te::check::survive::read(&document, &model)
    };
    let silent = read(&write(&plan)).expect("a plan");
    let report = te::check::survive::check_all(&model, &silent);
    assert!(report.violations.iter().any(|v| v.contains("is missing")));
    plan.not_covered.push(gone.name);
    let named = read(&write(&plan)).expect("a plan");
    assert_holds(&te::check::survive::check_all(&model, &named), "named");
    plan.solution.status = Status::Optimal;
    let refused = read(&write(&plan)).expect_err("it was not cut short");
    assert_eq!(refused.pointer, "/not_covered");
}

#[test]
fn series_that_are_interrupted_have_routes_for_every_matrix() {
    for seed in 0..24 {
        let mut model = limited_model(seed);
        model
            .chains
            .iter_mut()
            .for_each(|c| c.limits.max_routes = None);
        let mut random = Random::new(seed);
        let matrices: Vec<Matrix> = (0..4)
            .map(|m| {
                let mut matrix = Matrix::of(&model, &format!("m{m}"));
                for chain in 0..model.chains.len() {
                    let factor = [0.0, 0.5, 1.0, 2.0][random.below(4)];
                    let both = matrix.forward[chain]
                        .iter_mut()
                        .chain(&mut matrix.reverse[chain]);
                    both.for_each(|mbps| *mbps *= factor);
                }
                matrix
            })
            .collect();
        let [none, middle, long] = limits(seed);
        for change in [0.0, 0.2] {
            for (n, options) in [
                (0, &long),
                (2, &long),
                (5, &long),
                (99, &none),
                (99, &middle),
            ] {
                let what = format!("seed {seed}, change {change}, at {n}, {options:?}");
                let series = interrupted_at(n, |monitor| {
                    series::solve(&model, &matrices, change, options, monitor)
                });
                let Ok(series) = series else { continue };
                let text = series::to_json(&model, &series);
                let document = parse(text.as_bytes()).expect("what we write is JSON");
                let read = te::check::series::read(&document, &model, &matrices)
                    .expect("what we write is read");
                assert_holds(&te::check::series::check(&model, &matrices, &read), &what);
            }
        }
    }
}

#[test]
fn plans_that_are_interrupted_check() {
    let (mut placements, mut clouds) = (0, 0);
    for seed in 0..40 {
        let mut model = random_model(seed);
        for vnf in &mut model.vnfs {
            vnf.deployments.truncate(1);
        }
        let new: Vec<usize> = model
            .vnfs
            .iter()
            .map(|_| usize::from(model.sites.len() > 1))
            .collect();
        let [none, middle, long] = limits(seed);
        for (n, options) in [(0, &long), (2, &long), (99, &none), (99, &middle)] {
            let what = format!("seed {seed}, interrupted at {n}, {options:?}");
            for capacitated in [true, false] {
                let plan = interrupted_at(n, |monitor| {
                    placement::plan(&model, &new, capacitated, options, monitor)
                });
                let Ok(plan) = plan else { continue };
                assert_eq!(plan.placed.len(), new.iter().sum::<usize>(), "{what}");
                if capacitated {
                    let instance = Instance::new(&plan.model, Demand::Full).expect("fits");
                    assert_answer(&plan.model, &instance, &plan.solution, &what);
                }
                placements += 1;
            }
            let plan = interrupted_at(n, |monitor| cloud::plan(&model, 100.0, options, monitor));
            if let Ok(plan) = plan {
                let instance = Instance::new(&plan.model, Demand::Full).expect("fits");
                assert_answer(&plan.model, &instance, &plan.solution, &what);
                assert!(plan.solution.value >= plan.uniform, "{what}");
                clouds += 1;
            }
        }
    }
    assert!(placements > 100 && clouds > 50, "{placements}, {clouds}");
}

/// A chain that must go over the link ab twice, of which rounding leaves a sliver that no further share can fill.
const SLIVER: &str = r#"{
 "nodes": [{"id":"a"},{"id":"b"}],
 "links": [{"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":100},
           {"id":"ba","from":"b","to":"a","latency_ms":1,"bandwidth_mbps":1000000}],
 "sites": [{"id":"sa","node":"a","capacity":1e9},{"id":"sb","node":"b","capacity":1e9},{"id":"sx","node":"a","capacity":1e9}],
 "vnfs": [{"id":"f","load_per_mbps":1,"deployments":[{"site":"sb","capacity":1e9}]},
          {"id":"g","load_per_mbps":1,"deployments":[{"site":"sa","capacity":1e9}]}],
 "chains": [{"id":"x","ingress":"a","egress":"b","vnfs":["f","g"],"forward_mbps":DEMAND,"avoid":{"sites":["sx"]}}] }"#;

#[test]
fn every_heuristic_ends_where_rounding_leaves_a_sliver_of_a_link() {
    let (done, ended) = std::sync::mpsc::channel();
    let work = move || {
        for demand_mbps in ["145.09", "161", "183.57", "274.96", "590.94", "724.51"] {
            let text = SLIVER.replace("DEMAND", demand_mbps);
            let model = Model::read(text.as_bytes()).expect("good");
            for objective in [Objective::Throughput, Objective::Latency] {
                let instance = Instance::new(&model, demand(objective)).expect("background fits");
                for heuristic in HEURISTICS {
                    let (options, monitor) = Default::default();
                    let answer = heuristic::solve(
                        &model, &instance, heuristic, objective, &options, &monitor,
                    );
                    let answer = answer.expect("an answer");
                    let what = format!("{heuristic:?} {objective:?} {demand_mbps}");
                    assert_answer(&model, &instance, &answer, &what);
                    let carried: f64 = answer.flows.iter().map(|f| f.fraction).sum();
                    let most = 50.0 / instance.commodities[0].demand;
                    assert!((carried - most).abs() < 1e-6, "{what}: {carried} of {most}");
                }
            }
        }
        done.send(()).expect("the test waits");
    };
    // A loop without end would not end the test either.
    std::thread::spawn(work);
    ended
        .recv_timeout(Duration::from_secs(120))
        .expect("all of them end, and hold");
}
