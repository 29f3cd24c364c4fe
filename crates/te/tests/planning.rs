//! Plans: cloud capacity against HiGHS, placement against every placement there is.

mod support;

use support::{RouteProgram, checked, random_model};
use te::error::Error;
use te::instance::{Demand, Instance};
use te::lp::{self, Monitor, Options};
use te::model::{Deployment, Limits, Model};
use te::plan::{cloud, placement, write};
use te::random::Random;
use te::solution::Objective;

fn options(gap: f64) -> Options {
    Options {
        gap,
        ..Options::default()
    }
}

/// Largest factor with `added` capacity anywhere: with b_s the capacity added for each unit of t = 1/α, the rows of a site
/// are load ≤ t·m_s + b_s, those of its VNFs grow in proportion, and Σ b_s ≤ t·A.
fn cloud_reference(model: &Model, instance: &Instance, added: f64) -> Option<f64> {
    let mut reference = RouteProgram::new(model, instance, Objective::Scale, false);
    let program = &mut reference.program;
    let extra: Vec<usize> = model
        .sites
        .iter()
        .map(|_| program.column(0.0, f64::INFINITY))
        .collect();
    let t = 0;
    let mut budget: Vec<(usize, f64)> = extra.iter().map(|&b| (b, 1.0)).collect();
    budget.push((t, -added));
    program.rows.push((f64::NEG_INFINITY, 0.0, budget));
    for (site, &b) in extra.iter().enumerate() {
        let mut rows = vec![(instance.links + site, 1.0)];
        for vnf in 0..model.vnfs.len() {
            if let Some(row) = instance.vnf_row(vnf, site) {
                rows.push((row, instance.capacity[row] / model.sites[site].capacity));
            }
        }
        for (row, growth) in rows {
            if let Some(at) = reference.capacity_rows.get(&row) {
                program.rows[*at].2.push((b, -growth));
            }
        }
    }
    program.integer.resize(program.cost.len(), false);
    reference
        .solve(Objective::Scale)
        .filter(|v| v.is_finite() && *v < 1e9)
}

#[test]
fn cloud_plans_agree_with_highs_and_beat_an_even_spread() {
    let (mut compared, mut better) = (0, 0);
    for seed in 9000..9080 {
        let model = random_model(seed);
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        if (0..instance.commodities.len())
            .map(|c| support::all_routes(&instance, c).len())
            .sum::<usize>()
            > 2000
        {
            continue;
        }
        for added in [50.0, 1000.0] {
            let Some(expected) = cloud_reference(&model, &instance, added) else {
                continue;
            };
            let plan =
                cloud::plan(&model, added, &options(1e-6), &Monitor::default()).expect("routes");
            let bound = plan.solution.bound.expect("proved");
            assert!(
                (plan.solution.value - expected).abs() <= 3e-6 * expected
                    && (bound - expected).abs() <= 3e-6 * expected,
                "seed {seed} +{added}: {} bounded by {bound} against {expected}",
                plan.solution.value
            );
            let spent: f64 = plan.added.iter().sum();
            assert!(
                spent <= added * (1.0 + 1e-9) && plan.added.iter().all(|a| *a >= 0.0),
                "{spent} of {added}"
            );
            assert!(
                plan.uniform <= plan.solution.value * (1.0 + 1e-5),
                "an even spread is a plan too"
            );
            let planned = Instance::new(&plan.model, Demand::Full).expect("background fits");
            assert_eq!(
                checked(&plan.model, &planned, &plan.solution).violations,
                Vec::<String>::new()
            );
            compared += 1;
            better += usize::from(plan.uniform < plan.solution.value * 0.99);
        }
    }
    assert!(
        compared > 60 && better > 15,
        "{compared} compared, {better} better than an even spread"
    );
}

#[test]
fn a_cloud_plan_without_time_is_no_worse_than_an_even_spread() {
    let hurried = Options {
        time_limit: std::time::Duration::ZERO,
        ..options(1e-6)
    };
    let mut spread = 0;
    for seed in 9000..9080 {
        let model = random_model(seed);
        let Ok(plan) = cloud::plan(&model, 300.0, &hurried, &Monitor::default()) else {
            continue;
        };
        assert!(plan.solution.value >= plan.uniform, "seed {seed}");
        let planned = Instance::new(&plan.model, Demand::Full).expect("background fits");
        assert_eq!(
            checked(&plan.model, &planned, &plan.solution).violations,
            Vec::<String>::new()
        );
        spread += usize::from(plan.added.iter().all(|a| *a == plan.added[0]));
    }
    assert!(spread > 5, "{spread} are the even spread");
}

/// All ways to choose `count` of `from`.
fn choices(from: &[usize], count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (i, &first) in from.iter().enumerate() {
        for mut rest in choices(&from[i + 1..], count - 1) {
            rest.insert(0, first);
            all.push(rest);
        }
    }
    all
}

/// The least latency over every placement, each solved exactly; none when no placement carries the demand.
fn every_placement(model: &Model, new_sites: &[usize], capacitated: bool) -> Option<f64> {
    let per_vnf: Vec<Vec<Vec<usize>>> = model
        .vnfs
        .iter()
        .zip(new_sites)
        .map(|(vnf, count)| {
            let free: Vec<usize> = (0..model.sites.len())
                .filter(|s| !vnf.deployments.iter().any(|d| d.site == *s))
                .collect();
            choices(&free, *count)
        })
        .collect();
    let mut best: Option<f64> = None;
    let total: usize = per_vnf.iter().map(Vec::len).product();
    for number in 0..total {
        let mut rest = number;
        let mut changed = model.clone();
        for (vnf, options) in changed.vnfs.iter_mut().zip(&per_vnf) {
            for &site in &options[rest % options.len()] {
                vnf.deployments.push(Deployment {
                    site,
                    capacity: model.sites[site].capacity,
                });
            }
            rest /= options.len();
        }
        let mut instance = Instance::new(&changed, Demand::Full).expect("background fits");
        if !capacitated {
            instance
                .capacity
                .iter_mut()
                .for_each(|c| *c = f64::INFINITY);
        }
        let value = if capacitated {
            lp::solve(
                &changed,
                &instance,
                Objective::Latency,
                &options(1e-6),
                &Monitor::default(),
            )
            .ok()
            .map(|s| s.value)
        } else {
            let cheapest = |c: usize| {
                let routes = support::all_routes(&instance, c);
                let commodity = &instance.commodities[c];
                routes
                    .iter()
                    .map(|r| instance.weighted_latency(commodity, r))
                    .fold(f64::INFINITY, f64::min)
            };
            Some((0..instance.commodities.len()).map(cheapest).sum())
        };
        best = match (best, value) {
            (Some(a), Some(b)) => Some(f64::min(a, b)),
            (a, b) => a.or(b),
        };
    }
    best
}

fn placements_against_enumeration(
    capacitated: bool,
    seeds: std::ops::Range<u64>,
) -> (usize, usize, f64) {
    let (mut compared, mut reached, mut largest_gap) = (0, 0, 0.0f64);
    for seed in seeds {
        let mut model = random_model(seed);
        // Half the demand, so that capacities matter and something fits.
        for chain in &mut model.chains {
            chain
                .forward_mbps
                .iter_mut()
                .chain(&mut chain.reverse_mbps)
                .for_each(|mbps| *mbps *= 0.5);
        }
        let free = |vnf: usize| model.sites.len() - model.vnfs[vnf].deployments.len();
        let new_sites: Vec<usize> = (0..model.vnfs.len())
            .map(|f| free(f).min(usize::from(f < 2) + usize::from(f == 0)))
            .collect();
        if new_sites.iter().all(|n| *n == 0) {
            continue;
        }
        let plan = placement::plan(
            &model,
            &new_sites,
            capacitated,
            &options(1e-6),
            &Monitor::default(),
        );
        let Some(expected) = every_placement(&model, &new_sites, capacitated) else {
            assert!(
                plan.is_err(),
                "seed {seed}: a plan where no placement carries the demand"
            );
            continue;
        };
        let plan =
            plan.unwrap_or_else(|e| panic!("seed {seed}: {e} where {expected} can be reached"));
        let (value, bound) = (plan.solution.value, plan.solution.bound.expect("proved"));
        let slack = 2e-6 * expected.max(1e-9);
        assert!(
            bound <= expected + slack,
            "seed {seed}: bound {bound} above the optimum {expected}"
        );
        assert!(
            value >= expected - slack,
            "seed {seed}: {value} beats every placement, {expected}"
        );
        for (vnf, count) in new_sites.iter().enumerate() {
            assert_eq!(
                plan.placed.iter().filter(|p| p.0 == vnf).count(),
                *count,
                "seed {seed}"
            );
        }
        let planned = Instance::new(&plan.model, Demand::Full).expect("background fits");
        if capacitated {
            assert_eq!(
                checked(&plan.model, &planned, &plan.solution).violations,
                Vec::<String>::new(),
                "seed {seed}"
            );
        }
        assert!(
            value <= plan.before * (1.0 + 1e-6),
            "seed {seed}: new sites never hurt"
        );
        compared += 1;
        reached += usize::from(value <= expected * (1.0 + 1e-4) + 1e-9);
        largest_gap = largest_gap.max(plan.solution.gap().unwrap_or(1.0));
    }
    (compared, reached, largest_gap)
}

#[test]
fn uncapacitated_placements_against_every_placement() {
    let (compared, reached, gap) = placements_against_enumeration(false, 9200..9260);
    eprintln!("uncapacitated: {reached} of {compared} optimal, largest certified gap {gap:.4}");
    assert!(
        compared > 25 && reached == compared,
        "{reached} of {compared}"
    );
}

#[test]
fn capacitated_placements_against_every_placement() {
    let (compared, reached, gap) = placements_against_enumeration(true, 9300..9360);
    eprintln!("capacitated: {reached} of {compared} optimal, largest certified gap {gap:.4}");
    assert!(
        compared > 20 && reached == compared,
        "{reached} of {compared}"
    );
}

#[test]
fn more_new_sites_than_there_are_is_infeasible_and_named() {
    let model = random_model(9200);
    let mut new_sites = vec![0; model.vnfs.len()];
    new_sites[0] = model.sites.len() + 1;
    let error = placement::plan(
        &model,
        &new_sites,
        true,
        &options(1e-3),
        &Monitor::default(),
    )
    .expect_err("too many");
    let Error::Infeasible(proof) = error else {
        panic!("{error}")
    };
    assert_eq!(proof.names(), [format!("VNF {}", model.vnfs[0].id)]);
}

/// Gives chains limits that some routes keep.
fn limited(seed: u64) -> Model {
    let mut model = support::limited_model(seed);
    for chain in &mut model.chains {
        chain.minimum_share = None;
    }
    model
}

#[test]
fn plans_keep_the_limits_of_chains_and_their_bound_holds() {
    let (mut clouds, mut placements, mut limits) = (0, 0, 0);
    for seed in 0..100 {
        let model = limited(2 * seed);
        let monitor = Monitor::default();
        if let Ok(plan) = cloud::plan(&model, 300.0, &options(1e-6), &monitor) {
            let text = write::cloud(&plan).expect("background fits");
            let report = support::checked_text(&model, &text, &[]);
            assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
            assert!(plan.solution.value >= plan.uniform, "seed {seed}");
            clouds += 1;
            limits += usize::from(text.contains("bound_ignores"));
        }
        let free = |vnf: usize| model.sites.len() - model.vnfs[vnf].deployments.len();
        let new: Vec<usize> = (0..model.vnfs.len()).map(|f| free(f).min(1)).collect();
        for capacitated in [true, false] {
            let plan = placement::plan(&model, &new, capacitated, &options(1e-6), &monitor);
            let Ok(plan) = plan else { continue };
            let text = write::placement(&plan).expect("background fits");
            let report = support::checked_text(&model, &text, &[]);
            assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
            placements += 1;
        }
    }
    assert!(
        clouds > 20 && placements > 20 && limits > 5,
        "{clouds} {placements} {limits}"
    );
}

/// A ring of sites of which each of three VNFs runs at the first; chains may use few others. Also the sites that serve them
/// all, two for each VNF.
fn planted(seed: u64, capacity: f64) -> (Model, Vec<Vec<usize>>) {
    const SITES: usize = 14;
    let mut random = Random::new(seed);
    let list = |of: &dyn Fn(usize) -> String| (0..SITES).map(of).collect::<Vec<_>>().join(",");
    let links = list(&|i| {
        let j = (i + 1) % SITES;
        let link = |a: usize, b: usize| {
            format!(
                r#"{{"id":"l{a}-{b}","from":"n{a}","to":"n{b}","latency_ms":1,"bandwidth_mbps":1000}}"#
            )
        };
        format!("{},{}", link(i, j), link(j, i))
    });
    let nodes = list(&|i| format!(r#"{{"id":"n{i}"}}"#));
    let sites = list(&|i| format!(r#"{{"id":"s{i}","node":"n{i}","capacity":{capacity}}}"#));
    let vnf = |f: usize| {
        format!(
            r#"{{"id":"f{f}","load_per_mbps":1,"deployments":[{{"site":"s0","capacity":{capacity}}}]}}"#
        )
    };
    let vnfs: Vec<String> = (0..3).map(vnf).collect();
    let placed: Vec<Vec<usize>> = (0..3)
        .map(|_| {
            random
                .sample(SITES - 1, 2)
                .into_iter()
                .map(|s| s + 1)
                .collect()
        })
        .collect();
    let chains: Vec<String> = (0..20)
        .map(|c| {
            let (f, g) = (c % 3, (c + 1) % 3);
            let serving = [placed[f][c % 2], placed[g][(c / 2) % 2]];
            // Nobody may use where all VNFs run already; the others are avoided by chance.
            let avoid: Vec<String> = (0..SITES)
                .filter(|s| !serving.contains(s) && (*s == 0 || random.below(4) > 0))
                .map(|s| format!(r#""s{s}""#))
                .collect();
            format!(
                r#"{{"id":"c{c}","ingress":"n{}","egress":"n{}","vnfs":["f{f}","f{g}"],"forward_mbps":1,"avoid":{{"sites":[{}]}}}}"#,
                random.below(SITES),
                random.below(SITES),
                avoid.join(",")
            )
        })
        .collect();
    let text = format!(
        r#"{{"nodes":[{nodes}],"links":[{links}],"sites":[{sites}],"vnfs":[{}],"chains":[{}]}}"#,
        vnfs.join(","),
        chains.join(",")
    );
    (Model::read(text.as_bytes()).expect("good"), placed)
}

#[test]
fn a_placement_that_serves_chains_with_limits_is_found_among_many() {
    let mut found = 0;
    for seed in 0..30 {
        let (model, _) = planted(seed, 1000.0);
        for capacitated in [false, true] {
            found += usize::from(plans_truthfully(&model, capacitated, seed));
        }
    }
    assert!(found >= 57, "{found} of 60");
}

/// Whether a plan of two new sites for each VNF was found, which must hold; where one exists, none may be called infeasible.
fn plans_truthfully(model: &Model, capacitated: bool, seed: u64) -> bool {
    let (options, monitor) = (options(1e-4), Monitor::default());
    match placement::plan(model, &[2, 2, 2], capacitated, &options, &monitor) {
        Ok(plan) => {
            let text = write::placement(&plan).expect("background fits");
            let report = support::checked_text(model, &text, &[]);
            assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
            true
        }
        Err(Error::NotFound(_)) => false,
        Err(e) => panic!("seed {seed}: {e}"),
    }
}

#[test]
fn what_no_placement_serves_is_infeasible_and_what_is_not_found_is_not_called_so() {
    let (model, _) = planted(1, 1000.0);
    let plan = |model: &Model, new: &[usize]| {
        placement::plan(model, new, false, &options(1e-4), &Monitor::default())
    };
    // All sites are avoided: not even all candidates together help.
    let mut walled = model.clone();
    walled.chains[3].limits.avoid_sites = (0..walled.sites.len()).collect();
    match plan(&walled, &[2, 2, 2]) {
        Err(Error::Infeasible(proof)) => assert_eq!(proof.names()[0], "chain c3"),
        other => panic!("{other:?}"),
    }
    // f0 gets one site and is needed at three, too many placements to try all.
    let mut many = model.clone();
    for (c, chain) in many.chains.iter_mut().enumerate() {
        let only = if c < 3 { 5 + c } else { 4 };
        chain.limits.avoid_sites = (0..14).filter(|s| *s != only).collect();
    }
    match plan(&many, &[1, 2, 2]) {
        Err(Error::NotFound(_)) => {}
        other => panic!("{other:?}"),
    }
    // With f0 alone to place, all are tried.
    let mut few = many.clone();
    few.chains.truncate(3);
    few.chains.iter_mut().for_each(|chain| chain.vnfs = vec![0]);
    few.chains.iter_mut().for_each(|chain| {
        chain.forward_mbps.truncate(2);
        chain.reverse_mbps.truncate(2);
    });
    match plan(&few, &[1, 0, 0]) {
        Err(Error::Infeasible(proof)) => {
            assert!(
                proof.message.starts_with("none of the 13 placements"),
                "{proof}"
            )
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_placement_with_room_is_found_where_the_nearest_has_none() {
    let mut found = 0;
    for seed in 0..20 {
        // Each new site has room for a part of the chains; the sites' room suffices for all together.
        let (mut model, placed) = planted(seed, 30.0);
        model
            .chains
            .iter_mut()
            .for_each(|chain| chain.limits = Limits::default());
        let full: Vec<usize> = (1..model.sites.len())
            .filter(|s| !placed.iter().flatten().any(|p| p == s))
            .collect();
        full.iter().for_each(|&s| model.sites[s].capacity = 0.5);
        found += usize::from(plans_truthfully(&model, true, seed));
    }
    assert!(found > 0, "none of 20");
}

/// Where routes are too few in each placement, no plan is one that leaves demand.
#[test]
fn no_placement_serves_where_chains_have_too_few_routes_in_each() {
    let text = include_str!("models/placement-with-too-few-routes.json");
    let model = Model::read(text.as_bytes()).expect("a model");
    let mut new_sites = vec![0; model.vnfs.len()];
    new_sites[0] = 1;
    let plan = placement::plan(
        &model,
        &new_sites,
        true,
        &options(1e-4),
        &Monitor::default(),
    );
    assert!(matches!(plan, Err(Error::Infeasible(_))), "{plan:?}");
}
