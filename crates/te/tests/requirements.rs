//! What operators ask beyond the paper: restricted routes, parts of demands, priorities.

use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::lp;
use te::model::Model;
use te::solution::{Objective, Solution, Status};

mod support;

/// a —fast (1 ms, 10 Mbit/s)— b and a —slow (5 ms each)— c — b; a site with the VNF at b and at c.
const DIAMOND: &str = r#"{
 "nodes": [{"id":"a"},{"id":"b"},{"id":"c"}],
 "links": [{"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":10},{"id":"ba","from":"b","to":"a","latency_ms":1,"bandwidth_mbps":10},
           {"id":"ac","from":"a","to":"c","latency_ms":5,"bandwidth_mbps":100},{"id":"ca","from":"c","to":"a","latency_ms":5,"bandwidth_mbps":100},
           {"id":"cb","from":"c","to":"b","latency_ms":5,"bandwidth_mbps":100},{"id":"bc","from":"b","to":"c","latency_ms":5,"bandwidth_mbps":100}],
 "sites": [{"id":"sb","node":"b","capacity":1000},{"id":"sc","node":"c","capacity":1000}],
 "vnfs": [{"id":"f","load_per_mbps":1,"deployments":[{"site":"sb","capacity":1000},{"site":"sc","capacity":1000}]}],
 "customers": [{"id":"gold","priority":5}],
 "chains": [CHAINS] }"#;

fn model(chains: &str) -> Model {
    Model::read(DIAMOND.replace("CHAINS", chains).as_bytes()).expect("good")
}

fn solve(model: &Model, objective: Objective) -> Result<Solution, te::error::Infeasible> {
    let instance = Instance::new(model, support::demand(objective))?;
    let solution = lp::solve(
        model,
        &instance,
        objective,
        &lp::Options {
            gap: 1e-6,
            ..Default::default()
        },
        &Default::default(),
    )?;
    let report = support::checked(model, &instance, &solution);
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    for heuristic in [
        Heuristic::Dp,
        Heuristic::OneHop,
        Heuristic::DpLatency,
        Heuristic::Anycast,
        Heuristic::ComputeAware,
    ] {
        if let Ok(answer) = heuristic::solve(
            model,
            &instance,
            heuristic,
            objective,
            &lp::Options::default(),
            &lp::Monitor::default(),
        ) {
            let report = support::checked(model, &instance, &answer);
            assert!(
                report.violations.is_empty(),
                "{heuristic:?}: {:?}",
                report.violations
            );
        }
    }
    Ok(solution)
}

fn site_names(model: &Model, solution: &Solution) -> Vec<String> {
    let mut names: Vec<String> = solution
        .flows
        .iter()
        .flat_map(|f| {
            f.route
                .sites
                .iter()
                .map(|&s| model.sites[s as usize].id.clone())
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn a_site_to_avoid_is_avoided_and_one_to_use_is_used() {
    let chain = |extra: &str| {
        format!(r#"{{"id":"x","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":2{extra}}}"#)
    };
    let free = model(&chain(""));
    assert_eq!(
        site_names(&free, &solve(&free, Objective::Latency).expect("fits")),
        ["sb"]
    );
    for extra in [
        r#","avoid":{"sites":["sb"]}"#,
        r#","use":{"sites":["sc"]}"#,
        r#","avoid":{"links":["ab"]}"#,
        r#","use":{"links":["ac"]}"#,
    ] {
        let model = model(&chain(extra));
        let solution = solve(&model, Objective::Latency).expect("fits");
        let expected = if extra.contains("links\":[\"ab") || extra.contains("ac") {
            10.0
        } else {
            6.0
        };
        // Over c: a–c is 5 ms; c–b goes over a at 6 ms or straight at 5.
        assert!(
            site_names(&model, &solution) == ["sc"],
            "{extra}: {:?}",
            solution.flows
        );
        assert!(
            solution.value / 2.0 >= expected - 1e-6,
            "{extra}: {}",
            solution.value
        );
    }
}

#[test]
fn a_latency_limit_keeps_traffic_off_slow_routes_and_can_be_impossible() {
    let chain = |limit: f64| {
        model(&format!(
            r#"{{"id":"x","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":20,"max_latency_ms":{limit}}}"#
        ))
    };
    let tight = solve(&chain(2.0), Objective::Throughput).expect("carries what it can");
    assert!((tight.value - 10.0).abs() < 1e-4, "{}", tight.value);
    let loose = solve(&chain(20.0), Objective::Throughput).expect("carries all");
    assert!((loose.value - 20.0).abs() < 1e-4, "{}", loose.value);
    let error = solve(&chain(0.5), Objective::Latency).expect_err("1 ms is the least");
    assert_eq!(error.names(), ["chain x"]);
}

#[test]
fn priority_decides_who_is_carried() {
    let two = r#"{"id":"gold","customer":"gold","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":8,"max_latency_ms":2},
                 {"id":"plain","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":8,"max_latency_ms":2}"#;
    let model = model(two);
    let solution = solve(&model, Objective::Throughput).expect("solves");
    assert!(
        (solution.value - (5.0 * 8.0 + 2.0)).abs() < 1e-3,
        "{}",
        solution.value
    );
}

#[test]
fn a_minimum_share_is_carried_whatever_the_priority() {
    let two = r#"{"id":"gold","customer":"gold","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":8,"max_latency_ms":2},
                 {"id":"plain","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":8,"max_latency_ms":2,"minimum_share":0.5}"#;
    let solution = solve(&model(two), Objective::Throughput).expect("solves");
    assert!(
        (solution.value - (5.0 * 6.0 + 4.0)).abs() < 1e-3,
        "{}",
        solution.value
    );
    let too_much = two
        .replace("\"minimum_share\":0.5", "\"minimum_share\":1")
        .replace(
            "\"forward_mbps\":8,\"max_latency_ms\":2,\"minimum",
            "\"forward_mbps\":18,\"max_latency_ms\":2,\"minimum",
        );
    solve(&model(&too_much), Objective::Throughput).expect_err("18 Mbit/s do not fit on 10");
}

#[test]
fn at_most_k_routes_are_used() {
    for most in [1, 2] {
        let model = model(&format!(
            r#"{{"id":"x","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":60,"reverse_mbps":10,"max_routes":{most}}}"#
        ));
        for objective in [Objective::Throughput, Objective::Scale] {
            let solution = solve(&model, objective).expect("solves");
            assert!(
                solution.flows.len() <= most,
                "{objective:?}: {:?}",
                solution.flows
            );
            assert!(
                solution.value > 0.0
                    && solution
                        .bound
                        .is_some_and(|b| b >= solution.value * (1.0 - 1e-6))
            );
        }
    }
}

#[test]
fn an_interrupted_solve_returns_its_best_with_a_true_bound() {
    let model = support::random_model(77);
    let instance = Instance::new(&model, Demand::Full).expect("background fits");
    let monitor = lp::Monitor {
        report: None,
        interrupt: Some(&|| true),
    };
    let early = lp::solve(
        &model,
        &instance,
        Objective::Scale,
        &lp::Options {
            gap: 1e-9,
            ..Default::default()
        },
        &monitor,
    )
    .expect("an answer");
    let best = lp::solve(
        &model,
        &instance,
        Objective::Scale,
        &lp::Options {
            gap: 1e-7,
            ..Default::default()
        },
        &Default::default(),
    )
    .expect("optimal");
    assert!(matches!(
        early.status,
        Status::Interrupted | Status::Optimal
    ));
    assert!(
        early.value <= best.value * (1.0 + 1e-6)
            && early.bound.expect("bound") >= best.value * (1.0 - 1e-6)
    );
}
