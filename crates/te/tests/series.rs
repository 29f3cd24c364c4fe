//! Series of demand matrices: against HiGHS on a program over all routes, by hand, and against bad input.

mod support;

use support::series_program::{Expected, reference};
use support::{checked_text, random_model};
use te::error::{Error, Reason};
use te::json::parse;
use te::lp::{Monitor, Options};
use te::model::Model;
use te::random::Random;
use te::series::{self, Matrix, Series};

fn options() -> Options {
    Options {
        gap: 1e-7,
        ..Options::default()
    }
}

fn solve(model: &Model, matrices: &[Matrix], max_change: f64) -> Series {
    let series = series::solve(model, matrices, max_change, &options(), &Monitor::default())
        .expect("solvable");
    let text = series::to_json(model, &series);
    let report = checked_text(model, &text, matrices);
    assert_eq!(report.violations, Vec::<String>::new());
    series
}

/// Matrices around a model's own demands, each chain differently.
fn matrices(model: &Model, count: usize, seed: u64) -> Vec<Matrix> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|m| {
            let mut matrix = Matrix::of(model, &format!("m{m}"));
            for chain in 0..model.chains.len() {
                // Some vanish, and in every second series the weight swings between halves of the chains.
                let swing = if seed.is_multiple_of(2) && (chain + m).is_multiple_of(2) {
                    0.1
                } else {
                    1.0
                };
                let factor = if random.below(8) == 0 {
                    0.0
                } else {
                    swing * random.between(0.8, 1.5)
                };
                let both = matrix.forward[chain]
                    .iter_mut()
                    .chain(&mut matrix.reverse[chain]);
                both.for_each(|mbps| *mbps *= factor);
            }
            matrix
        })
        .collect()
}

#[test]
fn value_and_bound_agree_with_highs_for_any_bound_on_the_change() {
    let (mut compared, mut between) = (0, 0);
    for seed in 5000..5060 {
        let model = random_model(seed);
        let matrices = matrices(&model, 2 + seed as usize % 3, seed);
        let mut values = Vec::new();
        for max_change in [0.0, 0.01, 0.05, 1.0] {
            let Expected::Factor(expected) = reference(&model, &matrices, max_change) else {
                break;
            };
            let series = solve(&model, &matrices, max_change);
            for (what, figure) in [("value", series.value), ("bound", series.bound)] {
                assert!(
                    (figure - expected).abs() <= 2e-6 * expected,
                    "seed {seed}, change {max_change}: {what} {figure} against {expected}"
                );
            }
            values.push(expected);
            compared += 1;
        }
        assert!(
            values.is_sorted_by(|a, b| *a <= b * (1.0 + 1e-9)),
            "more change never hurts: {values:?}"
        );
        if let [one, .., all] = values[..] {
            let within = |v: &&f64| one < **v * 0.9999 && **v < all * 0.9999;
            between += values.iter().filter(within).count();
        }
    }
    assert!(
        compared > 60 && between > 3,
        "{compared} compared, {between} with a budget that matters"
    );
}

/// a and b joined by a short link of 10 Mbit/s and, by way of either of two sites, by 10 Mbit/s each.
const TWO_WAYS: &str = r#"{
 "nodes": [{"id":"a"},{"id":"b"},{"id":"x"},{"id":"y"}],
 "links": [{"id":"ax","from":"a","to":"x","latency_ms":1,"bandwidth_mbps":10},{"id":"xb","from":"x","to":"b","latency_ms":1,"bandwidth_mbps":100},
           {"id":"ay","from":"a","to":"y","latency_ms":1,"bandwidth_mbps":10},{"id":"yb","from":"y","to":"b","latency_ms":1,"bandwidth_mbps":100}],
 "sites": [{"id":"sx","node":"x","capacity":1000},{"id":"sy","node":"y","capacity":1000}],
 "vnfs": [{"id":"f","load_per_mbps":0,"deployments":[{"site":"sx","capacity":1000},{"site":"sy","capacity":1000}]},
          {"id":"fx","load_per_mbps":0,"deployments":[{"site":"sx","capacity":1000}]},
          {"id":"fy","load_per_mbps":0,"deployments":[{"site":"sy","capacity":1000}]}],
 "chains": [{"id":"free","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":8},
            {"id":"onx","ingress":"a","egress":"b","vnfs":["fx"],"forward_mbps":2},
            {"id":"ony","ingress":"a","egress":"b","vnfs":["fy"],"forward_mbps":2}] }"#;

/// The chain bound to x demands 8 in the first matrix, that bound to y in the second; 16 Mbit/s in all.
fn swing() -> (Model, Vec<Matrix>) {
    let model = Model::read(TWO_WAYS.as_bytes()).expect("good");
    let document = parse(
        &br#"{"matrices":[{"name":"day","demands":[{"chain":"onx","forward_mbps":8},{"chain":"ony","forward_mbps":0}]},
                         {"name":"night","demands":[{"chain":"onx","forward_mbps":0},{"chain":"ony","forward_mbps":8}]}]}"#[..],
    );
    let matrices = series::read(&document.expect("JSON"), &model, "file").expect("good");
    (model, matrices)
}

#[test]
fn leave_to_change_never_makes_the_answer_worse() {
    let coarse = Options {
        gap: 0.3,
        ..Options::default()
    };
    let mut better = 0;
    for seed in 5100..5160 {
        let model = random_model(seed);
        let matrices = matrices(&model, 3, seed);
        let solve = |change| {
            let monitor = Monitor::default();
            series::solve(&model, &matrices, change, &coarse, &monitor)
        };
        // Demands may load nothing, or need other routes at other times.
        let Ok(one) = solve(0.0) else { continue };
        for change in [0.02, 0.1] {
            let several = solve(change).expect("no change is a change that is allowed");
            // Matrices that change so little by themselves are not solved together, each within its gap.
            let alone = several.moments.iter().all(|m| m.value == m.from_scratch);
            let least = one.value * if alone { 1.0 - coarse.gap } else { 1.0 - 1e-9 };
            let (value, one) = (several.value, one.value);
            assert!(
                value >= least,
                "seed {seed}, change {change}: {value} against {one} without"
            );
            better += usize::from(value > one * 1.01);
        }
    }
    assert!(better > 5, "{better} gain by changing");
}

#[test]
fn a_swing_of_demand_worked_out_by_hand() {
    let (model, matrices) = swing();
    // From scratch each matrix puts all 8 of the free chain on the other side: 8 on each, factor 10/8.
    // One routing halves it: 8 + 4 on the busy side, factor 10/12.
    // With a quarter of the free chain's demand moving, an eighth of all 16 Mbit/s: 8 + 3, factor 10/11.
    for (max_change, factor) in [
        (0.0, 10.0 / 12.0),
        (0.125, 10.0 / 11.0),
        (0.5, 1.25),
        (1.0, 1.25),
    ] {
        let series = solve(&model, &matrices, max_change);
        assert!(
            (series.value - factor).abs() < 1e-6,
            "{max_change}: {} against {factor}",
            series.value
        );
        assert!(
            series
                .moments
                .iter()
                .all(|m| (m.from_scratch - 1.25).abs() < 1e-6)
        );
        assert!(series.moments[1].moved <= max_change + 1e-9);
    }
}

#[test]
fn a_site_to_avoid_is_avoided_in_every_matrix() {
    let (mut model, matrices) = swing();
    model.chains[0].limits.avoid_sites = vec![1];
    // The free chain must stay at x, so that the day's matrix puts 16 on it.
    let series = solve(&model, &matrices, 0.0);
    assert!(
        (series.value - 10.0 / 16.0).abs() < 1e-6,
        "{}",
        series.value
    );
}

#[test]
fn an_interrupted_series_has_an_answer_that_checks() {
    let model = random_model(5011);
    let matrices = matrices(&model, 3, 1);
    let best = solve(&model, &matrices, 0.05);
    let monitor = Monitor {
        report: None,
        interrupt: Some(&|| true),
    };
    let early = series::solve(&model, &matrices, 0.05, &options(), &monitor).expect("an answer");
    assert!(early.value <= best.value * (1.0 + 1e-6) && early.bound >= best.value * (1.0 - 1e-6));
}

#[test]
fn wrong_matrices_are_refused_with_their_place() {
    let (model, _) = swing();
    let cases: &[(&str, &str, Reason)] = &[
        (r#"{}"#, "", Reason::MissingField),
        (r#"[]"#, "", Reason::WrongType),
        (r#"{"demand":[]}"#, "/demand", Reason::UnknownField),
        (r#"{"matrices":[]}"#, "/matrices", Reason::WrongLength),
        (r#"{"matrices":[{}]}"#, "/matrices/0", Reason::MissingField),
        (
            r#"{"matrices":[{"factor":1},{"factor":-1}]}"#,
            "/matrices/1/factor",
            Reason::OutOfRange,
        ),
        (r#"{"factor":"2"}"#, "/factor", Reason::WrongType),
        (r#"{"factor":NaN}"#, "/factor", Reason::OutOfRange),
        (r#"{"factor":1e999}"#, "/factor", Reason::OutOfRange),
        (r#"{"factor":0}"#, "", Reason::OutOfRange),
        (r#"{"name":"","factor":1}"#, "/name", Reason::OutOfRange),
        (r#"{"demands":{}}"#, "/demands", Reason::WrongType),
        (
            r#"{"demands":[{"chain":"nobody","forward_mbps":1}]}"#,
            "/demands/0/chain",
            Reason::DanglingReference,
        ),
        (
            r#"{"demands":[{"forward_mbps":1}]}"#,
            "/demands/0",
            Reason::MissingField,
        ),
        (
            r#"{"demands":[{"chain":"free"}]}"#,
            "/demands/0",
            Reason::MissingField,
        ),
        (
            r#"{"demands":[{"chain":"free","forward_mbps":-1}]}"#,
            "/demands/0/forward_mbps",
            Reason::OutOfRange,
        ),
        (
            r#"{"demands":[{"chain":"free","forward_mbps":"1"}]}"#,
            "/demands/0/forward_mbps",
            Reason::WrongType,
        ),
        (
            r#"{"demands":[{"chain":"free","forward_mbps":[1]}]}"#,
            "/demands/0/forward_mbps",
            Reason::WrongLength,
        ),
        (
            r#"{"demands":[{"chain":"free","reverse_mbps":[1,2,3]}]}"#,
            "/demands/0/reverse_mbps",
            Reason::WrongLength,
        ),
        (
            r#"{"demands":[{"chain":"free","forward_mbps":1},{"chain":"free","forward_mbps":2}]}"#,
            "/demands/1/chain",
            Reason::Duplicate,
        ),
        (
            r#"{"demands":[{"chain":"free","forward_mbps":1},"#,
            "/demands/1",
            Reason::Syntax,
        ),
    ];
    for (text, pointer, reason) in cases {
        let read =
            parse(text.as_bytes()).and_then(|document| series::read(&document, &model, "file"));
        let error = read.expect_err(text);
        assert_eq!(
            (error.pointer.as_str(), error.reason),
            (*pointer, *reason),
            "{text}: {error}"
        );
    }
    let two = [Matrix::of(&model, "same"), Matrix::of(&model, "same")];
    assert_eq!(
        series::check_names(&two).expect_err("same names").reason,
        Reason::Duplicate
    );
}

#[test]
fn a_model_serves_as_a_matrix_and_chains_that_it_lacks_demand_nothing() {
    let (model, _) = swing();
    let mut other = model.clone();
    other.chains.remove(1);
    other.chains[0].forward_mbps = vec![3.0, 3.0];
    let document = parse(other.to_json().as_bytes()).expect("JSON");
    let matrix = &series::read(&document, &model, "noon").expect("good")[0];
    assert_eq!(matrix.forward, [[3.0, 3.0], [0.0, 0.0], [2.0, 2.0]]);
    assert_eq!(matrix.name, "noon");
    let mut stranger = other.clone();
    stranger.chains[0].id = "stranger".into();
    let document = parse(stranger.to_json().as_bytes()).expect("JSON");
    let error = series::read(&document, &model, "noon").expect_err("not in the model");
    assert_eq!(
        (error.pointer.as_str(), error.reason),
        ("/chains/0/id", Reason::DanglingReference)
    );
}

#[test]
fn a_limited_number_of_routes_is_refused_rather_than_ignored() {
    let (mut model, matrices) = swing();
    model.chains[2].limits.max_routes = Some(1);
    let error = series::solve(&model, &matrices, 0.0, &options(), &Monitor::default())
        .expect_err("refused");
    assert!(matches!(error, Error::Input(e) if e.pointer == "/chains/2/max_routes"));
}

#[test]
fn more_links_to_use_than_one_search_can_hold_chains_to_are_refused() {
    let (mut model, mut matrices) = swing();
    let many: Vec<usize> = (0..65).map(|i| model.links.len() + i).collect();
    for i in &many {
        let link = te::model::Link {
            id: format!("more{i}"),
            ..model.links[0].clone()
        };
        model.links.push(link);
    }
    model.chains[1].limits.use_links = many;
    // Forward by day, nothing by night: two sets of directions, of which 65 links leave room for one.
    let solve =
        |matrices: &[Matrix]| series::solve(&model, matrices, 0.0, &options(), &Monitor::default());
    let Err(Error::Input(refused)) = solve(&matrices) else {
        panic!("too many are taken");
    };
    assert_eq!(
        (refused.pointer.as_str(), refused.reason),
        ("/chains/1/use/links", Reason::OutOfRange)
    );
    assert!(refused.message.contains("at most 1"), "{refused}");
    // With traffic in the same directions they are one set; traffic from a to x is split over all of these links.
    matrices[1].forward[1] = vec![1.0, 1.0];
    assert!(solve(&matrices).is_ok());
}

/// A chain that goes by x in the first matrix, by y in the third and by either in the second; and one beside it.
const FORCED: &str = r#"{
 "nodes": [{"id":"a"},{"id":"b"},{"id":"x"},{"id":"y"}],
 "links": [{"id":"ax","from":"a","to":"x","latency_ms":1,"bandwidth_mbps":100},{"id":"xa","from":"x","to":"a","latency_ms":1,"bandwidth_mbps":100},
           {"id":"ay","from":"a","to":"y","latency_ms":1,"bandwidth_mbps":100},{"id":"ya","from":"y","to":"a","latency_ms":1,"bandwidth_mbps":100},
           {"id":"bx","from":"b","to":"x","latency_ms":1,"bandwidth_mbps":100},{"id":"xb","from":"x","to":"b","latency_ms":1,"bandwidth_mbps":100},
           {"id":"by","from":"b","to":"y","latency_ms":1,"bandwidth_mbps":100},{"id":"yb","from":"y","to":"b","latency_ms":1,"bandwidth_mbps":100}],
 "sites": [{"id":"sx","node":"x","capacity":1000},{"id":"sy","node":"y","capacity":1000}],
 "vnfs": [{"id":"f","load_per_mbps":0,"deployments":[{"site":"sx","capacity":1000},{"site":"sy","capacity":1000}]}],
 "chains": [{"id":"forced","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":1,"avoid":{"links":["ay","xa"]}},
            {"id":"beside","ingress":"a","egress":"x","vnfs":[],"forward_mbps":1}] }"#;

/// Of the forced chain's 1 Mbit/s the share `√2 − 1` may change its route in the second matrix and all else in the third, and a
/// little more: a mixture that no average of 200 whole routings comes near to.
#[test]
fn a_series_whose_start_is_not_found_is_not_called_infeasible() {
    let model = Model::read(FORCED.as_bytes()).expect("good");
    let share = 2f64.sqrt() - 1.0;
    let matrices = |room: f64| -> Vec<Matrix> {
        let beside = [
            1.0,
            10.0 * (share + room) - 1.0,
            10.0 * (1.0 - share + room) - 1.0,
        ];
        let text = format!(
            r#"{{"matrices":[
            {{"demands":[{{"chain":"forced","forward_mbps":1,"reverse_mbps":0}},{{"chain":"beside","forward_mbps":{}}}]}},
            {{"demands":[{{"chain":"forced","forward_mbps":0,"reverse_mbps":[0,1]}},{{"chain":"beside","forward_mbps":{}}}]}},
            {{"demands":[{{"chain":"forced","forward_mbps":0,"reverse_mbps":1}},{{"chain":"beside","forward_mbps":{}}}]}}]}}"#,
            beside[0], beside[1], beside[2]
        );
        series::read(&parse(text.as_bytes()).expect("JSON"), &model, "m").expect("good")
    };
    let tried = |room: f64| {
        series::solve(
            &model,
            &matrices(room),
            0.1,
            &options(),
            &Monitor::default(),
        )
    };
    let Err(Error::NotFound(missed)) = tried(1e-7) else {
        panic!("found: {:?}", tried(1e-7));
    };
    assert!(
        missed.message.contains("chain forced") && missed.message.contains("--max-change"),
        "{}",
        missed.message
    );
    // With more room it is found, and with less than is needed it is a proof.
    assert!(tried(0.02).is_ok());
    assert!(matches!(tried(-0.01), Err(Error::Infeasible(_))));
}
