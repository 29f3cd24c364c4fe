//! `check` finds every change of a result: each leaf of what every command writes is changed, dropped, doubled and
//! renamed, and each time something is found wrong. What is free by nature is listed here, with the reason.

mod support;

use support::stopping::{patient, stopped_at};
use support::{OBJECTIVES, demand, limited_model, random_model};
use te::check::check;
use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::json::{Value, parse};
use te::lp::{self, Monitor};
use te::model::Model;
use te::plan::{cloud, placement, write};
use te::series::{self, Matrix};
use te::survive::{self, Against};

/// What is free by nature: a pointer, with `*` for any index, the change that nothing can contradict, and why.
const FREE: &[(&str, Change, &str)] = &[
    ("/seconds", Change::Number, "how long it took"),
    (
        "/max_change",
        Change::Number,
        "more was allowed than is used",
    ),
    (
        "/ignore_capacity",
        Change::Flip,
        "capacities hold although they need not",
    ),
    (
        "/bound_ignores",
        Change::Shape,
        "the proof is not stated, so it may be one of the problem with the limit",
    ),
    // Figures of other routings, stated for comparison; they are held against the bound only.
    (
        "/uniform",
        Change::Number,
        "an even spread's routing is not stated",
    ),
    (
        "/before",
        Change::Number,
        "the routing before is not stated",
    ),
    ("/before", Change::Null, "it may not be known"),
    (
        "/failures/*/from_scratch",
        Change::Number,
        "that routing is not stated",
    ),
    (
        "/failures/*/from_scratch",
        Change::Null,
        "nothing may limit it, where no bound says otherwise",
    ),
    (
        "/failures/*/from_scratch_bound",
        Change::Number,
        "its proof is not stated",
    ),
    (
        "/failures/*/from_scratch_bound",
        Change::Null,
        "it may not be known",
    ),
    (
        "/matrices/*/from_scratch_moved_share",
        Change::Number,
        "those routings are not stated",
    ),
    (
        "/matrices/*/from_scratch",
        Change::Number,
        "that routing is not stated",
    ),
    (
        "/matrices/*/from_scratch_bound",
        Change::Number,
        "its proof is not stated",
    ),
    (
        "/matrices/*/from_scratch_bound",
        Change::Null,
        "it may not be known",
    ),
];

/// Kinds of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// A number becomes another one.
    Number,
    /// A number becomes null, or null a number.
    Null,
    /// A truth value becomes the other one.
    Flip,
    /// A string becomes another one.
    Text,
    /// A member is left out or has another name, or an entry is left out or doubled.
    Shape,
}

/// Relative changes of numbers, all above the tolerance.
const FACTORS: [f64; 2] = [1.0 + 1e-4, 1.0 - 1e-4];

/// Changes of shares and of added capacity, which are seen in sums over all routes and sites.
const COARSE: [f64; 2] = [0.01, -0.01];

/// A route with less than this share is within the tolerance of those sums.
const DUST: f64 = 1e-4;

/// Numbers that differ by less differ by rounding.
const ROUNDING: f64 = 1e-12;

fn is_dust(value: &Value) -> bool {
    let Value::Object(members) = value else {
        return false;
    };
    let mut shares = members.iter().filter(|(name, _)| name == "fraction");
    shares.any(|(_, v)| matches!(v, Value::Number(n) if *n < DUST))
}

/// Calls `look` with every changed document, the pointer of the change and its kind.
fn mutations(document: &Value, look: &mut dyn FnMut(&Value, &str, Change)) {
    let mut paths = Vec::new();
    collect(document, String::new(), &mut Vec::new(), &mut paths);
    for (pointer, path) in paths {
        for (change, changed) in changes(at(document, &path), &pointer) {
            let mut copy = document.clone();
            *at_mut(&mut copy, &path) = changed;
            look(&copy, &pointer, change);
        }
    }
}

fn collect(
    value: &Value,
    pointer: String,
    path: &mut Vec<usize>,
    paths: &mut Vec<(String, Vec<usize>)>,
) {
    if is_dust(value) {
        return;
    }
    paths.push((pointer.clone(), path.clone()));
    let children: Vec<(String, &Value)> = match value {
        Value::List(items) => items
            .iter()
            .enumerate()
            .map(|(i, v)| (i.to_string(), v))
            .collect(),
        Value::Object(members) => members.iter().map(|(name, v)| (name.clone(), v)).collect(),
        _ => Vec::new(),
    };
    for (i, (name, child)) in children.into_iter().enumerate() {
        path.push(i);
        collect(child, format!("{pointer}/{name}"), path, paths);
        path.pop();
    }
}

fn at<'a>(value: &'a Value, path: &[usize]) -> &'a Value {
    path.iter().fold(value, |value, &i| match value {
        Value::List(items) => &items[i],
        Value::Object(members) => &members[i].1,
        _ => panic!("a leaf has no parts"),
    })
}

fn at_mut<'a>(value: &'a mut Value, path: &[usize]) -> &'a mut Value {
    path.iter().fold(value, |value, &i| match value {
        Value::List(items) => &mut items[i],
        Value::Object(members) => &mut members[i].1,
        _ => panic!("a leaf has no parts"),
    })
}

/// A value changed in every way.
fn changes(value: &Value, pointer: &str) -> Vec<(Change, Value)> {
    match value {
        Value::Null => vec![(Change::Null, Value::Number(1.0))],
        Value::Bool(b) => vec![(Change::Flip, Value::Bool(!b))],
        Value::Text(_) => ["", "no such thing"]
            .map(|t| (Change::Text, Value::Text(t.into())))
            .into(),
        Value::Number(n) => {
            let steps: Vec<&str> = pointer.split('/').collect();
            let mut changed: Vec<f64> = match steps[..] {
                [.., "fraction"] | [_, "added", _, _] => COARSE.iter().map(|c| n + c).collect(),
                _ => FACTORS.iter().map(|f| n * f).collect(),
            };
            changed.extend([n + 1.0, -n - 1.0]);
            let changed = changed
                .into_iter()
                .filter(|c| (c - n).abs() > (1e-6 * n.abs()).max(ROUNDING));
            changed
                .map(|c| (Change::Number, Value::Number(c)))
                .chain([(Change::Null, Value::Null)])
                .collect()
        }
        Value::List(items) => (0..items.len())
            .filter(|i| !is_dust(&items[*i]))
            .flat_map(|i| {
                let (mut less, mut more) = (items.clone(), items.clone());
                less.remove(i);
                more.insert(i, items[i].clone());
                [less, more].map(|list| (Change::Shape, Value::List(list)))
            })
            .collect(),
        Value::Object(members) => {
            let mut all = Vec::new();
            for i in 0..members.len() {
                let (mut less, mut renamed) = (members.clone(), members.clone());
                less.remove(i);
                renamed[i].0 = "unknown".into();
                all.extend([less, renamed]);
            }
            let mut more = members.clone();
            more.push(("unknown".into(), Value::Null));
            all.push(more);
            all.into_iter()
                .map(|o| (Change::Shape, Value::Object(o)))
                .collect()
        }
    }
}

fn is_free(pointer: &str, change: Change) -> bool {
    let is_index = |step: &str| step.bytes().all(|b| b.is_ascii_digit());
    let steps = pointer
        .split('/')
        .map(|s| if !s.is_empty() && is_index(s) { "*" } else { s });
    let pattern = steps.collect::<Vec<_>>().join("/");
    FREE.iter().any(|(p, c, _)| *p == pattern && *c == change)
}

/// Checks a result, then each of its mutations. Returns how many there were.
fn assert_all_found(model: &Model, text: &str, matrices: &[Matrix], what: &str) -> usize {
    let document = parse(text.as_bytes()).expect("what we write is JSON");
    let checked = |document: &Value| check(model, document, matrices, &|_| {});
    let report = checked(&document).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(report.violations, Vec::<String>::new(), "{what}");
    let (mut count, mut accepted) = (0, Vec::new());
    mutations(&document, &mut |changed, pointer, change| {
        count += 1;
        let violations = match checked(changed) {
            Ok(report) => report.violations,
            Err(e) => vec![e.to_string()],
        };
        let pointed = violations
            .iter()
            .all(|v| v.starts_with('/') || v.starts_with("(document)"));
        assert!(pointed, "{what}: without a pointer: {violations:?}");
        if violations.is_empty() && !is_free(pointer, change) {
            accepted.push(format!("{pointer} {change:?}"));
        }
    });
    assert!(
        accepted.is_empty(),
        "{what}: check accepts {accepted:?}\n{text}"
    );
    count
}

const HEURISTICS: [Heuristic; 5] = [
    Heuristic::Dp,
    Heuristic::OneHop,
    Heuristic::DpLatency,
    Heuristic::Anycast,
    Heuristic::ComputeAware,
];

#[test]
fn every_change_of_a_heuristics_result_is_found() {
    let mut count = 0;
    for seed in [2, 4, 6] {
        let model = limited_model(seed);
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            for heuristic in HEURISTICS {
                let (options, monitor) = (patient(1e-6), Monitor::default());
                let solved =
                    heuristic::solve(&model, &instance, heuristic, objective, &options, &monitor);
                let Ok(solution) = solved else { continue };
                let text = te::result::to_json(&model, &instance, &solution);
                let what = format!("seed {seed} {heuristic:?} {objective:?}");
                count += assert_all_found(&model, &text, &[], &what);
            }
        }
    }
    assert!(count > 1000, "{count}");
}

#[test]
fn every_change_of_an_exact_result_is_found_whole_or_stopped() {
    let mut count = 0;
    for seed in 0..10 {
        let model = limited_model(2 * seed);
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            for n in [0, 30, usize::MAX] {
                let (solved, _) = stopped_at(n, |monitor| {
                    lp::solve(&model, &instance, objective, &patient(1e-4), monitor)
                });
                let Ok(solution) = solved else { continue };
                let text = te::result::to_json(&model, &instance, &solution);
                let what = format!("seed {seed} {objective:?}, stopped at {n}");
                count += assert_all_found(&model, &text, &[], &what);
            }
        }
    }
    assert!(count > 1000, "{count}");
}

#[test]
fn every_change_of_a_plan_for_failures_is_found() {
    let mut count = 0;
    for seed in 0..8 {
        let mut model = random_model(seed);
        model.chains.truncate(3);
        model.chains[0].survive_share = Some(0.5);
        if seed % 3 == 0 {
            model.chains[1].survive_share = Some(0.0);
        }
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        for against in [Against::Links, Against::Sites] {
            for n in [60, usize::MAX] {
                let (plan, _) = stopped_at(n, |monitor| {
                    survive::solve(&model, &instance, against, &patient(1e-4), monitor)
                });
                let Ok(plan) = plan else { continue };
                let text = survive::to_json(&model, &instance, against, &plan);
                let what = format!("seed {seed} {against:?}, stopped at {n}");
                count += assert_all_found(&model, &text, &[], &what);
            }
        }
    }
    assert!(count > 1000, "{count}");
}

/// Three matrices between which the first two chains swing; with `idle` one of them demands nothing in the second.
fn swinging(model: &Model, idle: bool) -> Vec<Matrix> {
    let matrix = |(m, factor): (usize, &f64)| {
        let mut matrix = Matrix::of(model, &format!("m{m}"));
        let both = matrix.forward.iter_mut().zip(&mut matrix.reverse).take(2);
        for (chain, (w, v)) in both.enumerate() {
            let gone = idle && chain == 1 && m == 1;
            let factor = if gone { 0.0 } else { *factor };
            w.iter_mut().chain(v).for_each(|mbps| *mbps *= factor);
        }
        matrix
    };
    [1.0, 0.3, 1.4].iter().enumerate().map(matrix).collect()
}

#[test]
fn every_change_of_a_series_is_found() {
    let mut count = 0;
    for seed in 0..6 {
        let mut model = random_model(seed);
        model.chains.truncate(4);
        // With routes of its own a matrix need not have any for who demands nothing in it.
        for (change, idle) in [(0.0, true), (0.05, false)] {
            let matrices = swinging(&model, idle);
            let monitor = Monitor::default();
            let solved = series::solve(&model, &matrices, change, &patient(1e-4), &monitor);
            let Ok(series) = solved else { continue };
            let text = series::to_json(&model, &series);
            let what = format!("seed {seed}, change {change}");
            count += assert_all_found(&model, &text, &matrices, &what);
        }
    }
    assert!(count > 1000, "{count}");
}

#[test]
fn every_change_of_a_plan_is_found() {
    let (mut clouds, mut placements) = (0, 0);
    for seed in 0..10 {
        let mut model = random_model(seed);
        let monitor = Monitor::default();
        if let Ok(plan) = cloud::plan(&model, 200.0, &patient(1e-4), &monitor) {
            let text = write::cloud(&plan).expect("background fits");
            clouds += assert_all_found(&model, &text, &[], &format!("seed {seed}, cloud"));
        }
        for vnf in &mut model.vnfs {
            vnf.deployments.truncate(1);
        }
        let new = vec![usize::from(model.sites.len() > 1); model.vnfs.len()];
        for capacitated in [true, false] {
            let solved = placement::plan(&model, &new, capacitated, &patient(1e-4), &monitor);
            let Ok(plan) = solved else { continue };
            let text = write::placement(&plan).expect("background fits");
            let what = format!("seed {seed}, placement, {capacitated}");
            placements += assert_all_found(&model, &text, &[], &what);
        }
    }
    assert!(clouds > 1000 && placements > 1000, "{clouds} {placements}");
}
