//! Plans that survive failures: by hand, against re-optimising after every failure, and against wrong plans.

mod support;

use support::stopping::{graceful, stopped_everywhere};
use support::{checked_text, random_model};
use te::error::Infeasible;
use te::instance::{Demand, Instance};
use te::json::parse;
use te::lp::{self, Monitor, Options};
use te::model::{Chain, Ends, Model};
use te::network::Network;
use te::solution::{Objective, Status};
use te::survive::{self, Against, Survivable};

fn options() -> Options {
    Options {
        gap: 1e-6,
        ..Options::default()
    }
}

/// Solves, writes, reads back and checks every state.
fn plan(model: &Model, against: Against) -> Result<(Survivable, String), Infeasible> {
    let instance = Instance::new(model, Demand::Full)?;
    let plan = survive::solve(model, &instance, against, &options(), &Monitor::default())?;
    let text = survive::to_json(model, &instance, against, &plan);
    assert_eq!(violations(model, &text), Vec::<String>::new());
    Ok((plan, text))
}

fn violations(model: &Model, text: &str) -> Vec<String> {
    checked_text(model, text, &[]).violations
}

/// a and b joined directly by a fibre of 10 Mbit/s and over c by fibres of 6 Mbit/s; the VNF at b and at c.
const TRIANGLE: &str = r#"{
 "nodes": [{"id":"a"},{"id":"b"},{"id":"c"}],
 "links": [{"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":10},{"id":"ba","from":"b","to":"a","latency_ms":1,"bandwidth_mbps":10},
           {"id":"ac","from":"a","to":"c","latency_ms":1,"bandwidth_mbps":6},{"id":"ca","from":"c","to":"a","latency_ms":1,"bandwidth_mbps":6},
           {"id":"cb","from":"c","to":"b","latency_ms":1,"bandwidth_mbps":6},{"id":"bc","from":"b","to":"c","latency_ms":1,"bandwidth_mbps":6}],
 "sites": [{"id":"sb","node":"b","capacity":20},{"id":"sc","node":"c","capacity":8}],
 "vnfs": [{"id":"f","load_per_mbps":1,"deployments":[{"site":"sb","capacity":20},{"site":"sc","capacity":8}]}],
 "chains": [{"id":"x","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":2 EXTRA}] }"#;

fn triangle(extra: &str) -> Model {
    Model::read(TRIANGLE.replace("EXTRA", extra).as_bytes()).expect("good")
}

#[test]
fn failures_worked_out_by_hand() {
    // Normal: site sb takes load 2·2 = 4 per unit of factor, sc takes 8 in all: 20/4 + 8/4 = 7, but 2 Mbit/s over the
    // links ab and ac allow (10 + 6)/2 = 8. So 7. Without ab all 2 Mbit/s go over ac: 6/2 = 3.
    let (by_link, _) = plan(&triangle(""), Against::Links).expect("survives");
    assert!((by_link.normal - 7.0).abs() < 1e-5, "{}", by_link.normal);
    assert!(
        (by_link.solution.value - 3.0).abs() < 1e-5,
        "{}",
        by_link.solution.value
    );
    let of = |name: &str| {
        by_link
            .failures
            .iter()
            .find(|f| f.name == name)
            .expect("listed")
            .from_scratch
    };
    // Without ac, what goes to c crosses ab and bc and returns over cb: still only 10 leave a.
    assert!(
        (of("ab") - 3.0).abs() < 1e-5 && (of("ac") - 5.0).abs() < 1e-5,
        "{} {}",
        of("ab"),
        of("ac")
    );
    assert_eq!(by_link.failures.len(), 3, "one failure for each fibre");
    // Without sb only sc is left: 8/4 = 2. Without sc: 20/4 = 5, over ab alone 10/2 = 5.
    let (by_site, _) = plan(&triangle(""), Against::Sites).expect("survives");
    assert!(
        (by_site.solution.value - 2.0).abs() < 1e-5,
        "{}",
        by_site.solution.value
    );
    // A share of one half needs half the room after a failure: min(7, 2/0.5).
    let (half, _) = plan(&triangle(r#","survive_share":0.5"#), Against::Sites).expect("survives");
    assert!(
        (half.solution.value - 4.0).abs() < 1e-5,
        "{}",
        half.solution.value
    );
    let (none, _) = plan(&triangle(r#","survive_share":0"#), Against::Sites).expect("survives");
    assert!(
        (none.solution.value - 7.0).abs() < 1e-5,
        "{}",
        none.solution.value
    );
}

#[test]
fn a_site_that_nothing_can_replace_is_infeasible_and_named() {
    let mut model = triangle("");
    model.vnfs[0].deployments.truncate(1);
    let error = plan(&model, Against::Sites).expect_err("no other site has the VNF");
    assert_eq!(error.names()[..2], ["site sb", "chain x"], "{error}");
    let mut cut = triangle("");
    cut.links.truncate(2);
    let Chain { ingress, .. } = &cut.chains[0];
    assert_eq!(*ingress, Ends::Any(vec![0]));
    cut.vnfs[0].deployments.truncate(1);
    let error = plan(&cut, Against::Links).expect_err("b cannot be reached otherwise");
    assert_eq!(error.names()[..2], ["link ab", "chain x"], "{error}");
}

#[test]
fn given_fractions_over_a_failed_link_carry_nothing_more() {
    let entry = |from: &str, to: &str, link: &str| {
        format!(r#"{{"from":"{from}","to":"{to}","link":"{link}","fraction":1}}"#)
    };
    let entries = |list: &[(&str, &str, &str)]| {
        let list: Vec<String> = list.iter().map(|(a, b, l)| entry(a, b, l)).collect();
        let routing = format!(
            r#" "routing": {{"kind":"fractions","entries":[{}]}}, "sites": ["#,
            list.join(",")
        );
        Model::read(
            TRIANGLE
                .replace("EXTRA", "")
                .replace(r#" "sites": ["#, &routing)
                .as_bytes(),
        )
        .expect("good")
    };
    // Only over ab: nothing goes to b by way of c, because c-b has no fractions.
    let cut = entries(&[("a", "b", "ab"), ("a", "c", "ac")]);
    let error = plan(&cut, Against::Links).expect_err("a-b is cut");
    assert_eq!(error.names()[..2], ["link ab", "chain x"], "{error}");
    // With c-b the site at c takes over: 6 Mbit/s of a-c for 2, and compute of 8 for 4.
    let open = entries(&[("a", "b", "ab"), ("a", "c", "ac"), ("c", "b", "cb")]);
    let (survives, _) = plan(&open, Against::Links).expect("c takes over");
    let after = |name: &str| {
        let found = survives.failures.iter().find(|f| f.name == name);
        found.expect("it is among the failures").value
    };
    assert!((after("ab") - 2.0).abs() < 1e-5, "{}", after("ab"));
    let moved = survives
        .failures
        .iter()
        .map(|f| f.moved)
        .fold(0.0, f64::max);
    assert!(moved > 0.0);
}

/// The factor after a failure when everything is routed from scratch, by the plain solver on a changed model.
fn from_scratch(model: &Model, against: Against, failed: usize, twin: Option<usize>) -> f64 {
    let mut after = model.clone();
    let mut alive = vec![true; model.links.len()];
    match against {
        Against::Links => {
            alive[failed] = false;
            twin.into_iter().for_each(|twin| alive[twin] = false);
        }
        Against::Sites => after
            .vnfs
            .iter_mut()
            .for_each(|v| v.deployments.retain(|d| d.site != failed)),
    }
    let network = Network::without(&after, &alive);
    let instance = Instance::with_network(&after, network, Demand::Full).expect("background fits");
    lp::solve(
        &after,
        &instance,
        Objective::Scale,
        &options(),
        &Monitor::default(),
    )
    .expect("routes")
    .value
}

#[test]
fn random_plans_reach_what_re_optimising_after_each_failure_reaches() {
    let mut solved = 0;
    for seed in 6000..6080 {
        let model = random_model(seed);
        for against in [Against::Links, Against::Sites] {
            let Ok((plan, _)) = plan(&model, against) else {
                continue;
            };
            solved += 1;
            assert_eq!(plan.solution.status, Status::Optimal, "seed {seed}");
            let mut least = plan.normal;
            for failure in &plan.failures {
                // The random models list a link and its opposite one after the other.
                let expected = match failure.failure {
                    survive::Failure::Link(link) => {
                        from_scratch(&model, against, link, Some(link ^ 1))
                    }
                    survive::Failure::Site(site) => from_scratch(&model, against, site, None),
                };
                assert!(
                    (failure.from_scratch - expected).abs() <= 3e-6 * expected,
                    "seed {seed} {}",
                    failure.name
                );
                assert!(
                    (0.0..=1.0 + 1e-9).contains(&failure.moved),
                    "{}",
                    failure.moved
                );
                least = least.min(expected);
            }
            let value = plan.solution.value;
            assert!(
                (value - least).abs() <= 1e-5 * least,
                "seed {seed}: {value} against {least}"
            );
            assert!(
                plan.solution
                    .bound
                    .is_some_and(|b| b >= value * (1.0 - 1e-9)),
                "seed {seed}"
            );
        }
    }
    assert!(solved > 40, "{solved}");
}

#[test]
fn traffic_that_a_failure_leaves_alone_stays_where_that_costs_nothing() {
    let (plan, _) = plan(&triangle(""), Against::Links).expect("survives");
    // Losing ab is the worst case; after losing ac or cb there is more than the factor needs, so nothing else moves.
    for failure in plan.failures.iter().filter(|f| f.name != "ab") {
        assert_eq!(failure.keep, 1.0, "{}", failure.name);
    }
}

#[test]
fn check_finds_what_a_wrong_plan_does_not_survive() {
    let model = triangle("");
    let (plan, text) = plan(&model, Against::Links).expect("survives");
    let value = format!("\"value\":{}", plan.solution.value);
    assert!(text.contains(&value));
    let too_much = text.replace(&value, "\"value\":3.1");
    assert!(
        violations(&model, &too_much)
            .iter()
            .any(|v| v.contains("link ac") && v.contains("after the failure of ab"))
    );
    let first = text.find("{\"failed\":\"ab\"").expect("the first failure");
    let second = first + 1 + text[first + 1..].find("{\"failed\"").expect("the second");
    let missing = format!("{}{}", &text[..first], &text[second..]);
    assert!(
        violations(&model, &missing)
            .iter()
            .any(|v| v.contains("the failure of ab is missing"))
    );
    let unprotected = text.replace("\"keep\":", "\"keep\":0.5,\"was\":");
    let document = parse(unprotected.as_bytes()).expect("JSON");
    assert_eq!(
        te::check::check(&model, &document, &[], &|_| {})
            .expect_err("unknown field")
            .pointer,
        "/failures/0/was"
    );
}

/// Both directions of a fibre fail together, whatever latencies are stated for them; of several fibres between the same ends
/// those of equal latency belong together, the others by their place in the model.
#[test]
fn the_directions_of_a_fibre_fail_together() {
    let latency = |model: &mut Model, id: &str, ms: f64| {
        let link = model.links.iter_mut().find(|l| l.id == id);
        link.expect(id).latency_ms = ms;
    };
    let failures = |model: &Model| -> Vec<String> {
        let (plan, _) = plan(model, Against::Links).expect("survives");
        plan.failures.iter().map(|f| f.name.clone()).collect()
    };
    let mut model = triangle("");
    latency(&mut model, "ba", 1.25);
    assert_eq!(failures(&model), ["ab", "ac", "cb"]);
    // Without ab and ba all 2 Mbit/s go over ac, as where the latencies are equal.
    let (apart, _) = plan(&model, Against::Links).expect("survives");
    assert!(
        (apart.solution.value - 3.0).abs() < 1e-5,
        "{}",
        apart.solution.value
    );
    // A second fibre whose directions come in the other order, and one that goes one way only.
    for (id, from, to, latency_ms) in [("ab2", 0, 1, 5.0), ("ba2", 1, 0, 1.0), ("ab3", 0, 1, 7.0)] {
        let link = te::model::Link {
            id: id.into(),
            from,
            to,
            latency_ms,
            ..model.links[0].clone()
        };
        model.links.push(link);
    }
    // ab (1 ms) with ba2 (1 ms), then ba (1.25 ms) with ab2 (5 ms), ab3 alone; each is named after its first direction.
    assert_eq!(failures(&model), ["ab", "ba", "ac", "cb", "ab3"]);
}

#[test]
fn what_loads_nothing_after_a_failure_is_no_fault_of_the_failure() {
    // After any failure only a chain is left that crosses no link; nothing limits it.
    let mut model = triangle(r#","survive_share":0"#);
    let stays = Chain {
        id: "y".into(),
        egress: Ends::Any(vec![0]),
        vnfs: Vec::new(),
        forward_mbps: vec![1.0],
        reverse_mbps: vec![0.0],
        survive_share: None,
        ..model.chains[0].clone()
    };
    model.chains.push(stays);
    for (against, count) in [(Against::Links, 3), (Against::Sites, 2)] {
        let (free, text) = plan(&model, against).expect("nothing stands in the way");
        assert!(
            (free.solution.value - 7.0).abs() < 1e-5,
            "{}",
            free.solution.value
        );
        assert_eq!(free.failures.len(), count);
        assert!(text.contains(r#""from_scratch":null"#), "{text}");
    }
}

/// Whenever a solve is stopped: what is said of routing from scratch is at least what the plan's own routes carry, and at most
/// what is proved.
#[test]
fn routing_from_scratch_is_never_said_to_carry_less_than_the_plan() {
    let (mut plans, mut cut) = (0, 0);
    for seed in 0..30 {
        let model = random_model(seed);
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        for against in [Against::Links, Against::Sites] {
            let solve = |monitor: &Monitor<'_>| {
                survive::solve(&model, &instance, against, &graceful(1e-6), monitor)
            };
            stopped_everywhere(seed, solve, |n, plan, _| {
                let Ok(plan) = plan else { return };
                let what = format!("seed {seed}, {against:?}, stopped at {n}");
                let text = survive::to_json(&model, &instance, against, &plan);
                assert_eq!(violations(&model, &text), Vec::<String>::new(), "{what}");
                for f in &plan.failures {
                    let (reached, bound) = (f.from_scratch, f.from_scratch_bound);
                    assert!(reached >= f.value, "{what}: {} < {}", reached, f.value);
                    assert!(
                        bound >= reached * (1.0 - 1e-9),
                        "{what}: {bound} < {reached}"
                    );
                    let whole = plan.solution.bound.expect("there is always one");
                    assert!(whole <= bound, "{what}: {whole} > {bound}");
                    cut += usize::from(bound > 1.001 * reached);
                }
                plans += 1;
            });
        }
    }
    assert!(plans > 300 && cut > 100, "{plans} plans, {cut} cut short");
}

#[test]
fn check_refuses_what_routing_from_scratch_cannot_be() {
    let model = triangle("");
    let (plan, text) = plan(&model, Against::Links).expect("survives");
    let ab = &plan.failures[0];
    let with = |member: &str, stated: f64, value: &str| {
        let whole = format!("\"{member}\":{stated}");
        assert!(text.contains(&whole), "{whole} in {text}");
        violations(
            &model,
            &text.replacen(&whole, &format!("\"{member}\":{value}"), 1),
        )
    };
    let found =
        |violations: &[String], pointer: &str| violations.iter().any(|v| v.starts_with(pointer));
    // Less than the plan carries, more than is proved, and a bound that would bind the plan too.
    let less = with("from_scratch", ab.from_scratch, "2.9");
    assert!(found(&less, "/failures/0/from_scratch: "), "{less:?}");
    let more = with("from_scratch", ab.from_scratch, "3.1");
    assert!(found(&more, "/failures/0/from_scratch_bound: "), "{more:?}");
    let without = with("from_scratch", ab.from_scratch, "null");
    assert!(
        found(&without, "/failures/0/from_scratch_bound: "),
        "{without:?}"
    );
    let tight = with("from_scratch_bound", ab.from_scratch_bound, "2.95");
    assert!(found(&tight, "/bound: "), "{tight:?}");
    // That no bound was proved contradicts nothing.
    assert_eq!(
        with("from_scratch_bound", ab.from_scratch_bound, "null"),
        Vec::<String>::new()
    );
}
