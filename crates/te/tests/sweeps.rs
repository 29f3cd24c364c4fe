//! SB-DP for a whole model: how near it comes to the optimum where chains compete, and what it keeps.

mod support;

use support::checked;
use te::generate::{Division, Options, generate};
use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::lp::{self, Monitor};
use te::model::{Link, Model, Node, Routing};
use te::solution::{Objective, Solution, Status};

/// A ring of nodes with chords.
fn backbone(count: usize) -> Model {
    let ring = (0..count).map(|i| (i, (i + 1) % count));
    let chords = (0..count / 2).map(|i| (i, (i + count / 2 + i % 3) % count));
    let mut links = Vec::new();
    for (a, b) in ring.chain(chords) {
        for (from, to) in [(a, b), (b, a)] {
            links.push(Link {
                id: format!("l{}", links.len()),
                from,
                to,
                latency_ms: 1.0 + (a % 5) as f64,
                bandwidth_mbps: 10_000.0,
                background_mbps: 0.0,
            });
        }
    }
    let node = |i| Node {
        id: format!("n{i}"),
        coordinates: None,
    };
    Model {
        nodes: (0..count).map(node).collect(),
        links,
        max_link_utilization: 1.0,
        routing: Routing::ShortestPath,
        sites: Vec::new(),
        vnfs: Vec::new(),
        customers: Default::default(),
        chains: Vec::new(),
    }
}

const WORKLOADS: [(u64, Division); 4] = [
    (1, Division::Equal),
    (2, Division::Overbooked),
    (3, Division::Proportional),
    (4, Division::Overbooked),
];

fn workload(seed: u64, division: Division) -> Model {
    let options = Options {
        vnfs: 8,
        coverage: 0.6,
        chains: 300,
        cpu_per_byte: 0.4,
        division,
        seed,
        ..Default::default()
    };
    generate(&backbone(12), &options).expect("a workload")
}

/// A workload at a factor on the largest demands that fit.
fn loaded(seed: u64, division: Division, factor: f64) -> Model {
    let mut model = workload(seed, division);
    let most = exact(&model, Objective::Scale).value;
    for chain in &mut model.chains {
        let traffic = chain.forward_mbps.iter_mut().chain(&mut chain.reverse_mbps);
        traffic.for_each(|mbps| *mbps *= factor * most);
    }
    model
}

fn instance(model: &Model, objective: Objective) -> Instance {
    let demand = match objective {
        Objective::Throughput => Demand::Partial,
        Objective::Scale | Objective::Latency => Demand::Full,
    };
    Instance::new(model, demand).expect("background fits")
}

fn exact(model: &Model, objective: Objective) -> Solution {
    let instance = instance(model, objective);
    let options = lp::Options::default();
    lp::solve(model, &instance, objective, &options, &Monitor::default()).expect("an optimum")
}

/// SB-DP's answer, which keeps every constraint and is the same each time.
fn dp(model: &Model, objective: Objective) -> Solution {
    let instance = instance(model, objective);
    let (options, monitor) = (lp::Options::default(), Monitor::default());
    let solve = || {
        heuristic::solve(
            model,
            &instance,
            Heuristic::Dp,
            objective,
            &options,
            &monitor,
        )
        .expect("an answer")
    };
    let answer = solve();
    let violations = checked(model, &instance, &answer).violations;
    assert_eq!(violations, Vec::<String>::new());
    assert_eq!(answer.flows, solve().flows);
    answer
}

#[test]
fn all_demand_is_carried_up_to_high_load_with_little_more_latency_than_the_optimum() {
    for (seed, division) in WORKLOADS {
        for factor in [0.6, 0.8, 0.9] {
            let model = loaded(seed, division, factor);
            let answer = dp(&model, Objective::Latency);
            let least = exact(&model, Objective::Latency).value;
            assert_eq!(answer.status, Status::Feasible, "{division:?} {factor}");
            let more = answer.value / least;
            assert!(more < 1.1, "{division:?} {factor}: {more} of the optimum");
        }
    }
}

#[test]
fn most_of_what_can_be_carried_is_where_not_all_can() {
    for (seed, division) in WORKLOADS {
        for factor in [1.5, 3.0] {
            let model = loaded(seed, division, factor);
            let answer = dp(&model, Objective::Throughput);
            let bound = exact(&model, Objective::Throughput).bound.expect("a bound");
            let part = answer.value / bound;
            // So few chains fill a VNF at a site that its last ones do not fit.
            assert!(part > 0.8, "{division:?} {factor}: {part} of the bound");
        }
    }
}

#[test]
fn the_factor_is_near_the_largest() {
    for (seed, division) in WORKLOADS {
        let model = workload(seed, division);
        let part = dp(&model, Objective::Scale).value / exact(&model, Objective::Scale).value;
        assert!(part > 0.85, "{division:?}: {part} of the largest factor");
    }
}

#[test]
fn what_must_be_carried_is_though_others_come_first() {
    for (seed, division) in WORKLOADS {
        let mut model = loaded(seed, division, 3.0);
        let count = model.chains.len();
        for (index, chain) in model.chains.iter_mut().enumerate() {
            // The last of them must be carried, and are worth least.
            let must = index >= count - count / 10;
            chain.minimum_share = Some(if must { 1.0 } else { 0.0 });
            chain.priority = if must { 0.1 } else { 1.0 };
        }
        let answer = dp(&model, Objective::Throughput);
        assert_eq!(answer.status, Status::Feasible, "{division:?}");
    }
}

#[test]
fn a_chain_with_one_route_stays_in_one_piece() {
    for (seed, division) in WORKLOADS {
        let mut model = loaded(seed, division, 0.7);
        model
            .chains
            .iter_mut()
            .for_each(|chain| chain.limits.max_routes = Some(1));
        for objective in [Objective::Latency, Objective::Throughput] {
            let answer = dp(&model, objective);
            let mut routes = vec![0; model.chains.len()];
            for flow in &answer.flows {
                routes[flow.commodity] += 1;
            }
            assert!(routes.iter().all(|&r| r <= 1), "{division:?} {objective:?}");
            let whole = answer.flows.iter().filter(|f| f.fraction > 0.999).count();
            assert!(
                whole * 10 > 9 * model.chains.len(),
                "{division:?} {objective:?}: {whole}"
            );
        }
    }
}
