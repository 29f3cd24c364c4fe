//! SB-DP for a whole model: how near it comes to the optimum where chains compete, and what it keeps.

mod support;

use support::checked;
use te::generate::{Division, Options, generate};
use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::lp::{self, Monitor};
use te::model::{Ends, Link, Model, Node, Routing};
use te::network::Network;
use te::random::Random;
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

/// What operators ask of chains, by kind.
fn ask(model: &mut Model, kind: &str) {
    let mut random = Random::new(kind.len() as u64);
    let network = Network::of(model);
    let sites = model.sites.len();
    for (index, chain) in model.chains.iter_mut().enumerate() {
        match kind {
            "priorities" => chain.priority = (1 + index % 10 * 4 / 9) as f64,
            "far priorities" => chain.priority = 10f64.powf(random.between(-1.0, 2.0)),
            "shares" => chain.minimum_share = Some(0.2),
            "sites to avoid" => chain.limits.avoid_sites = random.sample(sites, sites / 4),
            "latency" => {
                let (from, to) = (chain.ingress.nodes().next(), chain.egress.nodes().next());
                let least = network.latency_ms(from.expect("an end"), to.expect("an end"));
                chain.limits.max_latency_ms = Some(2.0 * least + 20.0);
            }
            "sites to use" if index % 4 == 0 => {
                let vnf = chain.vnfs.first().map(|&vnf| &model.vnfs[vnf].deployments);
                let site = vnf.map(|d| d[random.below(d.len())].site);
                chain.limits.use_sites = site.into_iter().collect();
            }
            _ => {}
        }
    }
}

const ASKED: [&str; 6] = [
    "priorities",
    "far priorities",
    "shares",
    "sites to avoid",
    "latency",
    "sites to use",
];

#[test]
fn most_of_what_can_be_carried_is_whatever_is_asked_of_chains() {
    for (seed, division) in WORKLOADS {
        for kind in ASKED {
            let mut model = loaded(seed, division, 2.0);
            ask(&mut model, kind);
            let answer = dp(&model, Objective::Throughput);
            let bound = exact(&model, Objective::Throughput).bound.expect("a bound");
            let part = answer.value / bound;
            assert_eq!(answer.status, Status::Feasible, "{kind}, {division:?}");
            assert!(part > 0.85, "{kind}, {division:?}: {part} of the bound");
        }
    }
}

#[test]
fn large_chains_that_compete_are_divided_well() {
    let mut least: f64 = 1.0;
    for seed in 0..20 {
        let options = Options {
            vnfs: 5,
            coverage: 0.6,
            chains: 40,
            cpu_per_byte: 0.4,
            division: Division::Overbooked,
            seed,
            ..Default::default()
        };
        let mut model = generate(&backbone(8), &options).expect("a workload");
        ask(&mut model, "priorities");
        for chain in &mut model.chains {
            let traffic = chain.forward_mbps.iter_mut().chain(&mut chain.reverse_mbps);
            traffic.for_each(|mbps| *mbps *= 3.0);
        }
        let bound = exact(&model, Objective::Throughput).bound.expect("a bound");
        least = least.min(dp(&model, Objective::Throughput).value / bound);
    }
    assert!(least > 0.8, "{least} of the bound");
}

#[test]
fn a_chain_that_cannot_have_its_share_leaves_its_room_to_others() {
    let mut model = workload(1, Division::Equal);
    model.sites.truncate(1);
    model.vnfs.clear();
    model.chains.truncate(2);
    for (chain, (mbps, share)) in model.chains.iter_mut().zip([(1e9, 1.0), (1.0, 0.0)]) {
        (chain.ingress, chain.egress) = (Ends::Any(vec![0]), Ends::Any(vec![1]));
        chain.vnfs.clear();
        (chain.forward_mbps, chain.reverse_mbps) = (vec![mbps], vec![0.0]);
        chain.minimum_share = Some(share);
    }
    let answer = dp(&model, Objective::Throughput);
    assert_eq!(answer.status, Status::Partial);
    assert_eq!(answer.value, 1.0);
}

#[test]
fn the_factor_is_near_the_largest() {
    for (seed, division) in WORKLOADS {
        let model = workload(seed, division);
        let part = dp(&model, Objective::Scale).value / exact(&model, Objective::Scale).value;
        assert!(part > 0.93, "{division:?}: {part} of the largest factor");
    }
}

#[test]
fn the_factor_of_the_documented_example_is_near_the_largest_whatever_sites_are_avoided() {
    let text = include_str!("../../../examples/te/three-cities.json");
    let document = te::json::parse(text.as_bytes()).expect("JSON");
    let example = Model::from_value(&document).expect("a model");
    let mut compared = 0;
    for chain in 0..example.chains.len() {
        for site in 0..example.sites.len() {
            let mut model = example.clone();
            model.chains[chain].limits.avoid_sites = vec![site];
            let instance = instance(&model, Objective::Scale);
            let (options, monitor) = (lp::Options::default(), Monitor::default());
            let Ok(largest) = lp::solve(&model, &instance, Objective::Scale, &options, &monitor)
            else {
                continue; // A VNF is at the avoided site alone.
            };
            let part = dp(&model, Objective::Scale).value / largest.value;
            assert!(part > 0.95, "chain {chain}, site {site}: {part}");
            compared += 1;
        }
    }
    assert!(compared > 3, "{compared}");
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
