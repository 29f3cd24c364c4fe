//! Throughput where compute is far too short for all demand: against HiGHS, and how soon a bound is near.

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::{checked, limited_model, random_model};
use te::arc::Arc;
use te::generate::{Division, Options, generate};
use te::highs::{Method, Outcome};
use te::instance::{Commodity, Demand, Instance};
use te::lp::{self, Monitor, Phase, Progress};
use te::model::Model;
use te::random::Random;
use te::solution::{Objective, Solution, Status};

const THROUGHPUT: Objective = Objective::Throughput;

/// Multiplies all traffic.
fn grown(mut model: Model, factor: f64) -> Model {
    for chain in &mut model.chains {
        let traffic = chain.forward_mbps.iter_mut().chain(&mut chain.reverse_mbps);
        traffic.for_each(|mbps| *mbps *= factor);
    }
    model
}

fn solve(model: &Model, gap: f64, monitor: &Monitor<'_>) -> Option<Solution> {
    let instance = Instance::new(model, Demand::Partial).expect("background fits");
    let options = lp::Options {
        gap,
        ..lp::Options::default()
    };
    let solution = lp::solve(model, &instance, THROUGHPUT, &options, monitor).ok()?;
    let report = checked(model, &instance, &solution);
    assert_eq!(report.violations, Vec::<String>::new());
    Some(solution)
}

#[test]
fn value_and_bound_agree_with_highs_where_little_can_be_carried() {
    let (mut compared, mut short, mut infeasible) = (0, 0, 0);
    for seed in 0..120 {
        let mut model = grown(random_model(seed), [5.0, 20.0, 80.0][seed as usize % 3]);
        if seed % 4 == 0 {
            // Something that must be carried of the first chain.
            model.chains[0].minimum_share = Some(0.02);
        }
        let instance = Instance::new(&model, Demand::Partial).expect("background fits");
        let arc = Arc::new(&instance, THROUGHPUT).expect("no limits");
        let solved = solve(&model, 1e-7, &Monitor::default());
        match te::highs::solve(&arc.program, Method::Simplex, 60.0) {
            Outcome::Optimal(value, _) => {
                let value = arc.value(value);
                let solved = solved.unwrap_or_else(|| panic!("seed {seed}: HiGHS found {value}"));
                let bound = solved.bound.expect("exact");
                for (what, figure) in [("value", solved.value), ("bound", bound)] {
                    let near = (figure - value).abs() <= 1e-6 * value.max(1e-9);
                    assert!(near, "seed {seed}: {what} {figure} against {value}");
                }
                let all: f64 = instance.commodities.iter().map(|c| c.worth).sum();
                short += usize::from(value < 0.5 * all);
                compared += 1;
            }
            Outcome::Infeasible => {
                assert!(solved.is_none(), "seed {seed}: HiGHS says infeasible");
                infeasible += 1;
            }
            Outcome::Other(status) => panic!("HiGHS stopped with {status}"),
        }
    }
    assert!(
        compared > 80 && short > 60 && infeasible > 0,
        "{compared} compared, {short} short, {infeasible} infeasible"
    );
}

#[test]
fn limits_of_chains_are_kept_where_little_can_be_carried() {
    let solved = (0..60).filter_map(|seed| {
        let model = grown(limited_model(seed), 30.0);
        solve(&model, 1e-6, &Monitor::default())
    });
    assert!(solved.count() > 20);
}

/// A ring of ten nodes.
fn ring() -> Model {
    let nodes: Vec<String> = (0..10).map(|i| format!(r#"{{"id":"n{i}"}}"#)).collect();
    let link = |a: usize, b: usize| {
        format!(r#"{{"id":"{a}-{b}","from":"n{a}","to":"n{b}","latency_ms":1,"bandwidth_mbps":1}}"#)
    };
    let both = |a: usize| [link(a, (a + 1) % 10), link((a + 1) % 10, a)].join(",");
    let links: Vec<String> = (0..10).map(both).collect();
    let (nodes, links) = (nodes.join(","), links.join(","));
    let text =
        format!(r#"{{"nodes":[{nodes}],"links":[{links}],"sites":[],"vnfs":[],"chains":[]}}"#);
    Model::read(text.as_bytes()).expect("good")
}

/// Of fifteen times what compute suffices for: the first bound that says anything is near, and the gap closes.
#[test]
fn the_first_bound_is_near_where_hundreds_of_deployments_are_full() {
    for (seed, division) in [
        (1, Division::Proportional),
        (2, Division::Equal),
        (3, Division::Overbooked),
    ] {
        let options = Options {
            vnfs: 30,
            coverage: 0.75,
            chains: 600,
            cpu_per_byte: 3.0,
            demand: 5.0,
            division,
            seed,
        };
        let model = generate(&ring(), &options).expect("a workload");
        let told = Mutex::new(Vec::new());
        let report = |progress: &Progress| told.lock().expect("no panic").push(*progress);
        let monitor = Monitor {
            report: Some(&report),
            interrupt: None,
        };
        let solution = solve(&model, 1e-4, &monitor).expect("nothing must be carried");
        let what = format!("{division:?}: {} of {:?}", solution.value, solution.bound);
        assert_eq!(solution.status, Status::Optimal, "{what}");
        let all: f64 = model.chains.iter().map(|c| c.demand_mbps()).sum();
        assert!(solution.value < 0.2 * all, "{what}");
        let told = told.into_inner().expect("no panic");
        let mut own = told.iter().filter(|p| p.phase == Phase::Whole);
        let first = own.find(|p| p.bound < 0.999 * all).expect("a bound");
        assert!(first.bound < 1.05 * solution.value, "{what}: {first:?}");
    }
}

/// Chains that are larger than a VNF's part of a site: none is carried whole anywhere, and thousands of deployments are full.
#[test]
fn the_gap_closes_where_chains_are_larger_than_deployments() {
    for (seed, division) in [(5, Division::Proportional), (6, Division::Equal)] {
        let options = Options {
            vnfs: 100,
            coverage: 1.0,
            chains: 1000,
            cpu_per_byte: 3.0,
            demand: 1.0,
            division,
            seed,
        };
        let model = generate(&ring(), &options).expect("a workload");
        let instance = Instance::new(&model, Demand::Partial).expect("background fits");
        let deployments = model.vnfs.iter().flat_map(|vnf| &vnf.deployments);
        let largest = deployments.map(|d| d.capacity).fold(0.0, f64::max);
        let is_larger =
            |c: &Commodity| (0..c.vnfs as usize).any(|z| 3.0 * instance.handled(c, z) > largest);
        assert!(instance.commodities.iter().filter(|c| is_larger(c)).count() > 30);
        let steps = AtomicUsize::new(0);
        let report = |progress: &Progress| {
            steps.fetch_add(
                usize::from(progress.phase == Phase::Whole),
                Ordering::Relaxed,
            );
        };
        let monitor = Monitor {
            report: Some(&report),
            interrupt: None,
        };
        let solution = solve(&model, 1e-6, &monitor).expect("nothing must be carried");
        let what = format!("{division:?}: {} of {:?}", solution.value, solution.bound);
        assert_eq!(solution.status, Status::Optimal, "{what}");
        let steps = steps.into_inner();
        assert!(
            steps <= 3,
            "{what}: {steps} steps where it begins with the answer"
        );
        let all: f64 = model.chains.iter().map(|c| c.demand_mbps()).sum();
        assert!(solution.value < 0.6 * all, "{what} of {all}");
    }
}

/// Leaves about every fourth link out, so that others lead one way.
fn with_one_way_links(mut model: Model, seed: u64) -> Model {
    let mut random = Random::new(seed ^ 0x1eaf);
    let gone: Vec<bool> = model.links.iter().map(|_| random.below(4) == 0).collect();
    let mut gone = gone.into_iter();
    model.links.retain(|_| !gone.next().unwrap_or(false));
    for chain in &mut model.chains {
        // Answers would need the way back.
        if random.below(2) == 0 {
            chain.reverse_mbps.iter_mut().for_each(|mbps| *mbps = 0.0);
        }
    }
    model
}

/// Where links lead one way, sites may be reached that nothing leaves again.
#[test]
fn nothing_goes_where_no_links_lead() {
    let (mut compared, mut less) = (0, 0);
    for seed in 0..400 {
        let whole = grown(
            random_model(seed),
            [1.0, 5.0, 20.0, 80.0][seed as usize % 4],
        );
        let model = with_one_way_links(whole.clone(), seed);
        let instance = Instance::new(&model, Demand::Partial).expect("background fits");
        let arc = Arc::new(&instance, THROUGHPUT).expect("no limits");
        let Outcome::Optimal(value, _) = te::highs::solve(&arc.program, Method::Simplex, 60.0)
        else {
            continue;
        };
        let value = arc.value(value);
        let Some(solved) = solve(&model, 1e-7, &Monitor::default()) else {
            continue;
        };
        let bound = solved.bound.expect("exact");
        for (what, figure) in [("value", solved.value), ("bound", bound)] {
            let near = (figure - value).abs() <= 1e-6 * value.max(1e-9);
            assert!(near, "seed {seed}: {what} {figure} against {value}");
        }
        compared += 1;
        let free = solve(&whole, 1e-7, &Monitor::default()).map(|s| s.value);
        less += usize::from(free.is_some_and(|free| value < 0.99 * free));
    }
    assert!(
        compared > 200 && less > 50,
        "{compared} compared, {less} carry less"
    );
}

fn read(text: &str) -> Model {
    Model::read(text.as_bytes()).expect("a model")
}

/// Models on which the master stands still: priorities of 100 beside deployments of 0.001, and what counting chooses as a bad start.
#[test]
fn small_models_are_solved_to_the_end_where_the_master_stands_still() {
    for (model, expected) in [
        (include_str!("models/far-apart.json"), 7757.963475649474),
        (include_str!("models/short-of-compute.json"), 2.0998497813),
    ] {
        let solution = solve(&read(model), 1e-7, &Monitor::default()).expect("an answer");
        assert_eq!(solution.status, Status::Optimal, "{expected}");
        let bound = solution.bound.expect("exact");
        for figure in [solution.value, bound] {
            assert!(
                (figure - expected).abs() <= 1e-6 * expected,
                "{figure} {expected}"
            );
        }
    }
}
