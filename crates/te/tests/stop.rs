//! Whenever a solve is stopped, what it returns keeps every constraint, and what it states holds.

mod support;

use std::time::Duration;

use support::stopping::{patient, stopped_everywhere};
use support::{OBJECTIVES, checked, demand, limited_model, random_model};
use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::lp::{self, Monitor, Options};
use te::model::Model;
use te::solution::{Objective, Solution, Status};

const HEURISTICS: [Heuristic; 5] = [
    Heuristic::Dp,
    Heuristic::OneHop,
    Heuristic::DpLatency,
    Heuristic::Anycast,
    Heuristic::ComputeAware,
];

/// What every answer must be, stopped or not.
fn assert_answer(model: &Model, instance: &Instance, solution: &Solution, what: &str) {
    let violations = checked(model, instance, solution).violations;
    assert!(violations.is_empty(), "{what}: {violations:?}");
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

/// Whether a value is better than a bound allows.
fn beats(objective: Objective, value: f64, bound: f64) -> bool {
    match objective {
        Objective::Latency => value < bound * (1.0 - 1e-6),
        Objective::Throughput | Objective::Scale => value > bound * (1.0 + 1e-6),
    }
}

#[test]
fn heuristics_that_are_stopped_anywhere_answer_within_every_limit() {
    for seed in 0..60 {
        let model = limited_model(seed);
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            for heuristic in HEURISTICS {
                let solve = |monitor: &Monitor<'_>| {
                    let options = patient(1e-6);
                    heuristic::solve(&model, &instance, heuristic, objective, &options, monitor)
                };
                let whole = solve(&Monitor::default());
                let times = stopped_everywhere(seed, solve, |n, answer, stopped| {
                    let what = format!("seed {seed} {heuristic:?} {objective:?}, stopped at {n}");
                    match (answer, &whole) {
                        (Ok(answer), Ok(_)) => {
                            assert_answer(&model, &instance, &answer, &what);
                            let interrupted = answer.status == Status::Interrupted;
                            assert!(stopped || !interrupted, "{what}: it was not");
                        }
                        // Stopped early it may find a route where the heuristic itself finds none.
                        (Ok(answer), Err(_)) => {
                            assert_answer(&model, &instance, &answer, &what);
                        }
                        (Err(e), Err(_)) => assert_eq!(objective, Objective::Scale, "{what}: {e}"),
                        (Err(e), Ok(_)) => panic!("{what}: {e}"),
                    }
                });
                assert!(times > 0, "seed {seed} {heuristic:?}: it never asks");
            }
        }
    }
}

#[test]
fn the_exact_solver_stopped_anywhere_has_an_answer_and_a_true_bound() {
    let mut stops = 0;
    for seed in 0..100 {
        let model = limited_model(seed);
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            let solve = |monitor: &Monitor<'_>| {
                lp::solve(&model, &instance, objective, &patient(1e-6), monitor)
            };
            let best = solve(&Monitor::default());
            stops += stopped_everywhere(seed, solve, |n, early, _| {
                let what = format!("seed {seed} {objective:?}, stopped at {n}");
                let (best, early) = match (&best, early) {
                    (Ok(best), Ok(early)) => (best, early),
                    // What does not fit may not have been proved not to yet.
                    (Err(_), Ok(early)) => {
                        assert_answer(&model, &instance, &early, &what);
                        return;
                    }
                    (Err(_), Err(_)) => return,
                    (Ok(_), Err(e)) => panic!("{what}: {e}"),
                };
                assert_answer(&model, &instance, &early, &what);
                // The bound is on any routing, whatever the number of routes.
                let proved = |bound: f64| beats(objective, best.value, bound);
                assert!(
                    !early.bound.is_some_and(proved) || best.leaves_demand(&instance),
                    "{what}: {:?} is no bound on {}",
                    early.bound,
                    best.value
                );
            });
        }
    }
    assert!(stops > 4000, "{stops}");
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
        let none = Options {
            time_limit: Duration::ZERO,
            ..patient(1e-6)
        };
        if let Ok(best) = solve(&patient(1e-6)) {
            let early = solve(&none).expect("there is a routing");
            assert_eq!(early.status == Status::TimeLimit, early.gap() > Some(1e-6));
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
        .recv_timeout(Duration::from_secs(600))
        .expect("all of them end, and hold");
}
