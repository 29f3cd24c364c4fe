//! Everything that a model may ask, at once: the results of every command on such models hold, and the exact solver
//! agrees with HiGHS.

mod support;

use support::features::full_model;
use support::series_program::{Expected, reference};
use support::{OBJECTIVES, RouteProgram, all_routes, checked, checked_text, demand};
use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::lp::{self, Monitor, Options};
use te::model::{Deployment, Model, Routing};
use te::plan::{cloud, placement, write};
use te::random::Random;
use te::series::{self, Matrix};
use te::solution::{Objective, Status, relative_gap};
use te::survive::{self, Against};

const HEURISTICS: [Heuristic; 5] = [
    Heuristic::Dp,
    Heuristic::OneHop,
    Heuristic::DpLatency,
    Heuristic::Anycast,
    Heuristic::ComputeAware,
];

fn options() -> Options {
    Options {
        gap: 1e-7,
        ..Options::default()
    }
}

/// Few enough routes for a program over all of them.
fn is_small(instance: &Instance) -> bool {
    let routes = (0..instance.commodities.len()).map(|c| all_routes(instance, c).len());
    routes.sum::<usize>() <= 1000
}

/// The optimum over all routes without regard to their number; none where nothing is feasible or no factor is the largest.
fn optimum(model: &Model, instance: &Instance, objective: Objective) -> Option<f64> {
    RouteProgram::new(model, instance, objective, false)
        .solve(objective)
        .filter(|v| v.is_finite() && *v < 1e9)
}

#[test]
fn every_algorithm_under_every_objective_holds() {
    let (mut compared, mut answers) = (0, 0);
    for seed in 20_000..20_400 {
        let model = full_model(seed);
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            if !is_small(&instance) {
                continue;
            }
            let optimum = optimum(&model, &instance, objective);
            let within = |value: f64, partial: bool| match optimum {
                Some(o) if objective.maximises() => partial || value <= o * (1.0 + 1e-6),
                Some(o) => partial || value >= o * (1.0 - 1e-6),
                None => partial,
            };
            let mut best = None;
            if let Ok(exact) = lp::solve(
                &model,
                &instance,
                objective,
                &options(),
                &Monitor::default(),
            ) {
                let what = format!("seed {seed} lp {objective:?}");
                let report = checked(&model, &instance, &exact);
                assert_eq!(report.violations, Vec::<String>::new(), "{what}");
                let partial = exact.status == Status::Partial;
                assert!(within(exact.value, partial), "{what}: {optimum:?}");
                best = (!partial).then_some(exact.value);
                let (Some(optimum), Some(bound)) = (optimum, exact.bound) else {
                    continue;
                };
                let near = |a: f64| (a - optimum).abs() <= 2e-6 * optimum.abs().max(1e-9);
                let tighter = if objective.maximises() {
                    bound <= optimum * (1.0 + 1e-6)
                } else {
                    bound >= optimum * (1.0 - 1e-6)
                };
                assert!(
                    near(bound) || exact.relaxed.is_some() && tighter,
                    "{what}: bound {bound} against {optimum}"
                );
                assert!(
                    !instance.max_routes.is_empty() || near(exact.value),
                    "{what}: {} against {optimum}",
                    exact.value
                );
                compared += 1;
            } else {
                assert_eq!(optimum, None, "seed {seed} lp {objective:?}");
            }
            for heuristic in HEURISTICS {
                let (options, monitor) = (options(), Monitor::default());
                let solved =
                    heuristic::solve(&model, &instance, heuristic, objective, &options, &monitor);
                let Ok(answer) = solved else { continue };
                let what = format!("seed {seed} {heuristic:?} {objective:?}");
                let report = checked(&model, &instance, &answer);
                assert_eq!(report.violations, Vec::<String>::new(), "{what}");
                let partial = answer.status == Status::Partial;
                assert!(
                    within(answer.value, partial),
                    "{what}: {} against {optimum:?}",
                    answer.value
                );
                let better = |best: f64| match objective {
                    Objective::Latency => answer.value < best * (1.0 - 1e-6),
                    _ => answer.value > best * (1.0 + 1e-6),
                };
                // Also where chains are held to a number of routes, which the exact solver cannot hold them to exactly.
                assert!(
                    heuristic != Heuristic::Dp || partial || !best.is_some_and(better),
                    "{what}: {} is better than {best:?}",
                    answer.value
                );
                answers += 1;
            }
        }
    }
    assert!(
        compared > 300 && answers > 1500,
        "{compared} compared, {answers} answers"
    );
}

/// The model with every VNF at every site, and without the limits that leave most chains nowhere to go.
fn replaceable(mut model: Model) -> Model {
    let sites: Vec<(usize, f64)> = model.sites.iter().map(|s| s.capacity).enumerate().collect();
    for vnf in &mut model.vnfs {
        let everywhere = sites
            .iter()
            .map(|&(site, capacity)| Deployment { site, capacity });
        vnf.deployments = everywhere.collect();
    }
    for chain in &mut model.chains {
        chain.limits.use_sites.clear();
        chain.limits.use_links.clear();
        // A chain without VNFs whose pair is cut has no other way.
        if chain.vnfs.is_empty() && matches!(model.routing, Routing::Fractions(_)) {
            chain.survive_share = Some(0.0);
        }
    }
    model
}

#[test]
fn every_plan_for_failures_holds() {
    let (mut plans, mut cut) = (0, 0);
    for seed in 21_000..21_200 {
        let model = replaceable(full_model(seed));
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        for against in [Against::Links, Against::Sites] {
            let (options, monitor) = (options(), Monitor::default());
            let solved = survive::solve(&model, &instance, against, &options, &monitor);
            let Ok(plan) = solved else { continue };
            let text = survive::to_json(&model, &instance, against, &plan);
            let violations = checked_text(&model, &text, &[]).violations;
            let what = format!("seed {seed} {against:?}");
            assert_eq!(violations, Vec::<String>::new(), "{what}");
            let (value, bound) = (plan.solution.value, plan.solution.bound.expect("proved"));
            assert!(value <= bound * (1.0 + 1e-6), "{what}: {value} {bound}");
            plans += 1;
            let fractions = matches!(model.routing, Routing::Fractions(_));
            let moves = plan.failures.iter().any(|f| f.moved > 0.0);
            cut += usize::from(fractions && against == Against::Links && moves);
        }
    }
    assert!(plans > 40 && cut > 5, "{plans} plans, {cut} with pairs cut");
}

/// Matrices around a model's own demands in which directions and stages get traffic that they lack, and lose it.
fn matrices(model: &Model, count: usize, seed: u64) -> Vec<Matrix> {
    let mut random = Random::new(seed);
    let matrix = |m: usize| {
        let mut matrix = Matrix::of(model, &format!("m{m}"));
        for chain in 0..model.chains.len() {
            let both = [&mut matrix.forward[chain], &mut matrix.reverse[chain]];
            for mbps in both.into_iter().flatten() {
                *mbps = match random.below(5) {
                    0 => 0.0,
                    1 => random.between(1.0, 10.0),
                    _ => *mbps * random.between(0.7, 1.4),
                };
            }
        }
        matrix
    };
    (0..count).map(matrix).collect()
}

#[test]
fn every_series_holds() {
    let (mut solved, mut compared, mut infeasible) = (0, 0, 0);
    for seed in 22_000..22_150 {
        let mut model = full_model(seed);
        for chain in &mut model.chains {
            chain.limits.max_routes = None;
        }
        let matrices = matrices(&model, 2 + seed as usize % 2, seed);
        for max_change in [0.0, 0.1, 1.0] {
            let (options, monitor) = (options(), Monitor::default());
            let series = series::solve(&model, &matrices, max_change, &options, &monitor);
            let expected = reference(&model, &matrices, max_change);
            let what = format!("seed {seed}, change {max_change}: {expected:?}");
            let series = match series {
                Ok(series) => series,
                Err(error) => {
                    assert!(!matches!(expected, Expected::Factor(_)), "{what}: {error}");
                    infeasible += usize::from(expected == Expected::Infeasible);
                    continue;
                }
            };
            assert_ne!(expected, Expected::Infeasible, "{what}: {}", series.value);
            let text = series::to_json(&model, &series);
            let violations = checked_text(&model, &text, &matrices).violations;
            assert_eq!(violations, Vec::<String>::new(), "{what}");
            if let Expected::Factor(expected) = expected {
                let off = (series.value - expected).abs() / expected;
                assert!(off <= 2e-6, "{what}: {}", series.value);
                compared += 1;
            }
            let gap = relative_gap(Objective::Scale, series.value, series.bound);
            assert!(gap <= 1e-6, "{what}: {} {}", series.value, series.bound);
            solved += 1;
        }
    }
    assert!(
        solved > 150 && compared > 100 && infeasible > 5,
        "{solved} solved, {compared} compared, {infeasible} infeasible"
    );
}

/// Plans for chains with every limit, numbers of routes among them: `check` carries each plan out.
#[test]
fn every_plan_of_capacity_and_placement_holds() {
    let (mut clouds, mut placements, mut few) = (0, 0, 0);
    for seed in 23_000..23_060 {
        let mut model = full_model(seed);
        let (options, monitor) = (options(), Monitor::default());
        if let Ok(plan) = cloud::plan(&model, 200.0, &options, &monitor) {
            let text = write::cloud(&plan).expect("background fits");
            let violations = checked_text(&model, &text, &[]).violations;
            assert_eq!(violations, Vec::<String>::new(), "seed {seed}, cloud");
            clouds += 1;
        }
        for vnf in &mut model.vnfs {
            vnf.deployments.truncate(1);
        }
        let new = vec![usize::from(model.sites.len() > 1); model.vnfs.len()];
        for capacitated in [true, false] {
            let solved = placement::plan(&model, &new, capacitated, &options, &monitor);
            let Ok(plan) = solved else { continue };
            let text = write::placement(&plan).expect("background fits");
            let violations = checked_text(&model, &text, &[]).violations;
            let what = format!("seed {seed}, placement, {capacitated}");
            assert_eq!(violations, Vec::<String>::new(), "{what}");
            placements += 1;
            few += usize::from(text.contains("bound_ignores"));
        }
    }
    assert!(
        clouds > 15 && placements > 30 && few > 15,
        "{clouds} spreads, {placements} placements, {few} with numbers of routes"
    );
}
