//! What operators ask of single chains, against HiGHS on a program over all routes that keep the limits.

mod support;

use support::{OBJECTIVES, RouteProgram, checked, demand, random_model};
use te::heuristic::{self, Heuristic};
use te::instance::Instance;
use te::lp::{self, Fit, Monitor};
use te::model::{Ends, Model};
use te::random::Random;
use te::solution::{Objective, Solution};

/// Gives every second chain limits of one kind; kinds may combine.
fn with_limits(model: &mut Model, kinds: &[&str], seed: u64) {
    let mut random = Random::new(seed);
    let (sites, links) = (model.sites.len(), model.links.len());
    for chain in model.chains.iter_mut() {
        if random.below(2) == 0 {
            continue;
        }
        for kind in kinds {
            match *kind {
                "latency" => chain.limits.max_latency_ms = Some(random.between(2.0, 12.0)),
                "avoid sites" => chain.limits.avoid_sites = vec![random.below(sites)],
                "avoid links" => chain.limits.avoid_links = random.sample(links, 2),
                "use sites" if !chain.vnfs.is_empty() => {
                    chain.limits.use_sites = vec![random.below(sites)]
                }
                "use links" => chain.limits.use_links = vec![random.below(links)],
                "shares" => {
                    chain.minimum_share = Some([0.0, 0.3, 0.7, 1.0][random.below(4)]);
                    chain.priority = random.between(0.5, 4.0);
                }
                "routes" => {
                    let shares = |ends: &Ends| match ends {
                        Ends::Any(_) => 1,
                        Ends::Shares(shares) => shares.len(),
                    };
                    let pairs = shares(&chain.ingress) * shares(&chain.egress);
                    chain.limits.max_routes = Some(pairs + random.below(2));
                }
                _ => {}
            }
        }
        let limits = &mut chain.limits;
        limits.use_sites.retain(|s| !limits.avoid_sites.contains(s));
        limits.use_links.retain(|l| !limits.avoid_links.contains(l));
    }
}

fn exact(model: &Model, instance: &Instance, objective: Objective) -> Option<Solution> {
    let options = lp::Options {
        gap: 1e-7,
        ..lp::Options::default()
    };
    let solution = lp::solve(model, instance, objective, &options, &Monitor::default()).ok()?;
    assert_eq!(
        checked(model, instance, &solution).violations,
        Vec::<String>::new()
    );
    Some(solution)
}

fn agree_with_highs(kinds: &[&str], seeds: std::ops::Range<u64>) {
    let (mut solved, mut infeasible, mut mattered) = (0, 0, 0);
    for seed in seeds {
        let mut model = random_model(seed);
        let free = model.clone();
        with_limits(&mut model, kinds, seed);
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            if (0..instance.commodities.len())
                .map(|c| support::all_routes(&instance, c).len())
                .sum::<usize>()
                > 3000
            {
                continue;
            }
            let expected = RouteProgram::new(&model, &instance, objective, false).solve(objective);
            let found = exact(&model, &instance, objective);
            match (expected, found) {
                (Some(expected), Some(found)) => {
                    let tolerance = 1e-6 * expected.abs().max(1e-9);
                    let bound = found.bound.expect("exact");
                    assert!(
                        (found.value - expected).abs() <= tolerance
                            && (bound - expected).abs() <= tolerance,
                        "{kinds:?} seed {seed} {objective:?}: {} bounded by {bound} against {expected}",
                        found.value
                    );
                    solved += 1;
                    let free_instance =
                        Instance::new(&free, demand(objective)).expect("background fits");
                    let without = exact(&free, &free_instance, objective);
                    mattered += usize::from(
                        without.is_some_and(|w| (w.value - expected).abs() > 1e-4 * expected.abs()),
                    );
                }
                (None, None) => infeasible += 1,
                (expected, found) => {
                    panic!(
                        "{kinds:?} seed {seed} {objective:?}: {expected:?} against {:?}",
                        found.map(|f| f.value)
                    )
                }
            }
        }
    }
    assert!(
        solved > 20 && mattered > 5,
        "{kinds:?}: {solved} solved, {mattered} where it matters, {infeasible} infeasible"
    );
}

#[test]
fn latency_limits() {
    agree_with_highs(&["latency"], 7000..7040);
}

#[test]
fn sites_and_links_to_avoid() {
    agree_with_highs(&["avoid sites"], 7100..7130);
    agree_with_highs(&["avoid links"], 7130..7160);
}

#[test]
fn sites_and_links_to_use() {
    agree_with_highs(&["use sites"], 7200..7300);
    agree_with_highs(&["use links"], 7300..7400);
}

#[test]
fn shares_that_must_be_carried_and_priorities() {
    agree_with_highs(&["shares"], 7400..7440);
}

#[test]
fn all_limits_at_once() {
    agree_with_highs(
        &[
            "latency",
            "avoid sites",
            "avoid links",
            "use links",
            "shares",
        ],
        7500..7600,
    );
}

/// The model with a limit on the number of routes for most chains, and with up to four times the demand.
fn with_few_routes(mut model: Model, seed: u64) -> Model {
    let mut random = Random::new(seed);
    let more = random.between(1.0, 4.0);
    for chain in &mut model.chains {
        let shares = |ends: &Ends| match ends {
            Ends::Any(_) => 1,
            Ends::Shares(shares) => shares.len(),
        };
        let pairs = shares(&chain.ingress) * shares(&chain.egress);
        if random.below(5) > 0 {
            chain.limits.max_routes = Some(pairs + random.below(3) / 2);
        }
        let both = chain.forward_mbps.iter_mut().chain(&mut chain.reverse_mbps);
        both.for_each(|mbps| *mbps *= more);
    }
    model
}

/// HiGHS stops at a gap of 1e-4 with whole variables.
const WHOLE_GAP: f64 = 2e-4;

#[test]
fn a_number_of_routes_is_kept_and_the_best_choice_of_them_is_found_and_proved() {
    let (mut compared, mut mattered, mut tighter, mut together) = (0, 0, 0, 0);
    for seed in 7700..7780 {
        let model = with_few_routes(random_model(seed), seed);
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            if (0..instance.commodities.len())
                .map(|c| support::all_routes(&instance, c).len())
                .sum::<usize>()
                > 400
            {
                continue;
            }
            let what = format!("seed {seed} {objective:?}");
            let program = |routes| RouteProgram::new(&model, &instance, objective, routes);
            let expected = program(true).solve(objective);
            let options = lp::Options {
                gap: 1e-7,
                ..lp::Options::default()
            };
            let fit = lp::fit(&model, &instance, &options, &Monitor::default());
            // Under scale the factor says what fits.
            let fits = expected.is_some_and(|f| objective != Objective::Scale || f >= 1.0);
            match fits {
                true => assert_eq!(fit, Fit::Fits, "{what}"),
                false => {
                    let Fit::DoesNotFit(proof) = fit else {
                        panic!("{what}: {fit:?}");
                    };
                    together += usize::from(proof.message.contains("whatever routes are chosen"));
                }
            }
            let Ok(found) = lp::solve(&model, &instance, objective, &options, &Monitor::default())
            else {
                assert_eq!(expected, None, "{what}: refused");
                continue;
            };
            assert_eq!(
                checked(&model, &instance, &found).violations,
                Vec::<String>::new(),
                "{what}"
            );
            let partial = found.status == te::solution::Status::Partial;
            let Some(expected) = expected else {
                assert!(partial, "{what}: {} where nothing fits", found.value);
                continue;
            };
            assert!(!partial, "{what}: {expected} carries everything");
            let off = (found.value - expected).abs() / expected.abs();
            assert!(off <= WHOLE_GAP, "{what}: {} of {expected}", found.value);
            assert_eq!(
                found.status,
                te::solution::Status::Optimal,
                "{what}: {found:?}"
            );
            let bound = found.bound.expect("proved");
            assert!(
                (bound - expected).abs() <= WHOLE_GAP * expected.abs(),
                "{what}: {bound}"
            );
            compared += 1;
            let free = program(false).solve(objective).expect("more is allowed");
            let matters = (free - expected).abs() > WHOLE_GAP * expected.abs();
            mattered += usize::from(matters);
            tighter += usize::from(found.relaxed.is_some());
            assert!(
                found.relaxed.is_some() || !matters,
                "{what}: the bound is of another problem"
            );
        }
    }
    assert!(
        compared > 60 && mattered > 20 && tighter > 20 && together > 1,
        "{compared} compared, the limit matters in {mattered}, {tighter} are proved with it, {together} do not fit together"
    );
}

#[test]
fn a_minimum_share_and_a_number_of_routes_hold_together_in_every_algorithm() {
    let mut limited = 0;
    for seed in 7800..7860 {
        let mut model = random_model(seed);
        with_limits(&mut model, &["shares", "routes"], seed);
        limited += model
            .chains
            .iter()
            .filter(|c| c.limits.max_routes.is_some() && c.minimum_share.is_some_and(|s| s > 0.0))
            .count();
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            exact(&model, &instance, objective);
            for heuristic in [
                Heuristic::Dp,
                Heuristic::OneHop,
                Heuristic::DpLatency,
                Heuristic::Anycast,
                Heuristic::ComputeAware,
            ] {
                let (options, monitor) = (lp::Options::default(), Monitor::default());
                let answer =
                    heuristic::solve(&model, &instance, heuristic, objective, &options, &monitor);
                let Ok(answer) = answer else { continue };
                assert_eq!(
                    checked(&model, &instance, &answer).violations,
                    Vec::<String>::new(),
                    "seed {seed} {heuristic:?} {objective:?}"
                );
            }
        }
    }
    assert!(limited > 50, "{limited}");
}

/// Three chains that may take one route each do not fit together; a fourth, which has a limit too, has nothing to do with it.
#[test]
fn of_limits_that_leave_too_few_routes_those_are_named_that_matter() {
    let text = include_str!("models/too-few-routes-together.json");
    let model = Model::read(text.as_bytes()).expect("a model");
    let instance = Instance::new(&model, demand(Objective::Latency)).expect("background fits");
    let fit = lp::fit(
        &model,
        &instance,
        &lp::Options::default(),
        &Monitor::default(),
    );
    let Fit::DoesNotFit(proof) = fit else {
        panic!("{fit:?}");
    };
    let named: Vec<&str> = proof.constraints.iter().map(|c| &c.name[..]).collect();
    assert_eq!(named, ["chain c1", "chain c2", "chain c3"]);
}
