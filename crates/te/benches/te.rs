//! `make bench-te`: the goal figures of traffic engineering, into `bench/results/te.json`.
//!
//! Backbones come from the directory in `SWITCHBOARD_DATA`, else `../shared/data` beside the repository. Figures are
//! medians of three runs; the load average is recorded with them, because other work on the machine shows in them.
//! For the same reason the slowest ones are also given in processor seconds, all threads together (`…_cpu_s`).
//!
//! Arguments name the parts to run: single, heuristics, latency, highs, large, placement, grid. Without any, all run
//! and the result is written; with some, the figures are only printed. `BENCH_TE_QUICK=1` is the short form: the grid
//! with one seed, HiGHS with 300 chains at most.

use std::path::PathBuf;
use std::time::Instant;

use te::arc::Arc;
use te::generate::{Division, Options, generate};
use te::heuristic::{self, Costs, Heuristic, State};
use te::highs::{Method, Outcome};
use te::import::{Defaults, graphml};
use te::instance::{Demand, Instance};
use te::json::Writer;
use te::lp;
use te::model::Model;
use te::solution::Objective;

struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    /// What it is compared with: its name, its value, and how many times as good ours is.
    peer: Option<(String, f64, f64)>,
}

/// The goals that are an upper limit, by figure; of `dp_over_lp_…` a lower one.
const GOALS: [(&str, f64); 16] = [
    ("lp_10k_1pct_s", 0.2),
    ("lp_10k_1e4_s", 0.6),
    ("lp_10k_1e6_s", 1.2),
    ("lp_grid_worst_s", 4.0),
    ("lp_1k_dense_s", 10.0),
    ("lp_100k_s", 5.0),
    ("latency_10k_50_s", 1.0),
    ("latency_10k_95_s", 4.0),
    ("dp_10k_ms", 25.0),
    ("dp_one_us", 10.0),
    ("dp_over_lp_min", 0.85),
    ("dp_over_lp_median", 0.95),
    ("placement_10k_gap", 0.02),
    ("placement_10k_s", 10.0),
    ("cogentco_10k_s", 15.0),
    ("peak_rss_mb", 1000.0),
];

fn main() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let data = std::env::var("SWITCHBOARD_DATA")
        .map_or_else(|_| root.join("../shared/data"), PathBuf::from);
    let load =
        |name: &str| std::fs::read_to_string(data.join(format!("topologyzoo/{name}.graphml")));
    let (Ok(att), Ok(cogentco)) = (load("AttMpls"), load("Cogentco")) else {
        eprintln!(
            "bench-te needs topologyzoo/AttMpls.graphml and Cogentco.graphml in {}; set SWITCHBOARD_DATA",
            data.display()
        );
        return;
    };
    let defaults = Defaults {
        bandwidth_mbps: Some(10_000.0),
        latency_ms: Some(1.0),
    };
    let att = graphml(&att, &defaults).expect("the Zoo's AttMpls");
    let cogentco = graphml(&cogentco, &defaults).expect("the Zoo's Cogentco");
    let mut figures = Vec::new();
    let path = root.join("bench/results/te.json");
    // Written after each part, so that a bench that is cut short leaves what it measured.
    let save = |figures: &[Figure]| {
        std::fs::write(&path, report(figures))
            .unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
    };
    type Part<'a> = (&'static str, Box<dyn Fn(&mut Vec<Figure>) + 'a>);
    let parts: [Part<'_>; 7] = [
        ("single", Box::new(|f| single(&att, f))),
        ("heuristics", Box::new(|f| heuristics(&att, f))),
        ("latency", Box::new(|f| latency(&att, f))),
        ("large", Box::new(|f| large(&att, &cogentco, f))),
        ("placement", Box::new(|f| placement(&att, f))),
        ("grid", Box::new(|f| grid(&att, f))),
        // Last, so that the memory HiGHS takes is not counted as ours.
        ("highs", Box::new(|f| against_highs(&att, f))),
    ];
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    for (name, part) in parts {
        if !chosen.is_empty() && !chosen.iter().any(|c| c == name) {
            continue;
        }
        if name == "highs" {
            say(&mut figures, "peak_rss_mb", peak_rss_mb(), "MB");
        }
        part(&mut figures);
        if chosen.is_empty() {
            save(&figures);
        }
    }
}

fn say(figures: &mut Vec<Figure>, name: &'static str, value: f64, unit: &'static str) {
    let goal = GOALS.iter().find(|(goal, _)| *goal == name);
    let peer = goal.map(|&(_, goal)| {
        if name.starts_with("dp_over_lp") {
            ("goal, at least".to_owned(), goal, value / goal)
        } else {
            ("goal, at most".to_owned(), goal, goal / value)
        }
    });
    let missed = peer.as_ref().is_some_and(|(_, _, ratio)| *ratio < 1.0);
    eprintln!(
        "{name} {value:.6} {unit}{}",
        if missed { ", goal missed" } else { "" }
    );
    figures.push(Figure {
        name,
        value,
        unit,
        peer,
    });
}

fn workload(backbone: &Model, change: impl FnOnce(&mut Options)) -> Model {
    let mut options = Options::default();
    change(&mut options);
    generate(backbone, &options).expect("options in range")
}

fn options(gap: f64) -> lp::Options {
    lp::Options {
        gap,
        threads: cores(),
        ..lp::Options::default()
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processor time of this process so far, seconds (proc(5): utime and stime in hundredths).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or("");
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// How long a solve took, not a number where the gap was not proved; and its value.
#[derive(Clone, Copy)]
struct Solve {
    seconds: f64,
    cpu_seconds: f64,
    value: f64,
    bound: f64,
}

/// Solves a model, compiling it included.
fn solve(model: &Model, objective: Objective, gap: f64) -> Solve {
    let demand = if objective == Objective::Throughput {
        Demand::Partial
    } else {
        Demand::Full
    };
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let instance = Instance::new(model, demand).expect("background fits");
    let solution = lp::solve(
        model,
        &instance,
        objective,
        &options(gap),
        &lp::Monitor::default(),
    )
    .expect("feasible");
    let mut solve = Solve {
        seconds: start.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        value: solution.value,
        bound: solution.bound.unwrap_or(f64::NAN),
    };
    if !solution.gap().is_some_and(|reached| reached <= gap) {
        eprintln!(
            "  not proved: gap {:?} after {:.1} s",
            solution.gap(),
            solve.seconds
        );
        (solve.seconds, solve.cpu_seconds) = (f64::NAN, f64::NAN);
    }
    solve
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn seconds(model: &Model, objective: Objective, gap: f64) -> f64 {
    median(
        (0..3)
            .map(|_| solve(model, objective, gap).seconds)
            .collect(),
    )
}

fn single(att: &Model, figures: &mut Vec<Figure>) {
    let model = workload(att, |_| {});
    for (name, gap) in [
        ("lp_10k_1pct_s", 1e-2),
        ("lp_10k_1e4_s", 1e-4),
        ("lp_10k_1e6_s", 1e-6),
    ] {
        say(figures, name, seconds(&model, Objective::Scale, gap), "s");
    }
    let dense = workload(att, |o| {
        (o.chains, o.coverage, o.cpu_per_byte, o.division) =
            (1000, 1.0, 1.0, Division::Proportional);
    });
    let runs: Vec<Solve> = (0..3)
        .map(|_| solve(&dense, Objective::Scale, 1e-4))
        .collect();
    let of = |pick: fn(&Solve) -> f64| median(runs.iter().map(pick).collect());
    say(figures, "lp_1k_dense_s", of(|r| r.seconds), "s");
    say(figures, "lp_1k_dense_cpu_s", of(|r| r.cpu_seconds), "s");
}

/// The grid, once for each cell: the slowest, and dp's part of lp.
fn grid(att: &Model, figures: &mut Vec<Figure>) {
    let seeds = if std::env::var("BENCH_TE_QUICK").is_ok() {
        1..=1
    } else {
        1..=3
    };
    let (mut slowest, mut dearest): (f64, f64) = (0.0, 0.0);
    let mut ratios = Vec::new();
    for seed in seeds {
        for coverage in [0.25, 0.5, 0.75, 1.0] {
            for cpu_per_byte in [0.1, 0.5, 1.0, 3.0] {
                for division in [Division::Overbooked, Division::Proportional] {
                    let model = workload(att, |o| {
                        (o.coverage, o.cpu_per_byte, o.division, o.seed) =
                            (coverage, cpu_per_byte, division, seed);
                    });
                    let solve = solve(&model, Objective::Scale, 1e-4);
                    let best = solve.value;
                    if solve.seconds.is_nan() {
                        (slowest, dearest) = (f64::INFINITY, f64::INFINITY);
                    }
                    slowest = slowest.max(solve.seconds);
                    dearest = dearest.max(solve.cpu_seconds);
                    let instance = Instance::new(&model, Demand::Full).expect("background fits");
                    let dp = heuristic::solve(&model, &instance, Heuristic::Dp, Objective::Scale)
                        .expect("routes");
                    eprintln!(
                        "  {coverage} {cpu_per_byte} {division:?} {seed}: {:.3} s, {:.2} cpu s, dp {:.4}",
                        solve.seconds,
                        solve.cpu_seconds,
                        dp.value / best
                    );
                    ratios.push(dp.value / best);
                }
            }
        }
    }
    say(figures, "lp_grid_worst_s", slowest, "s");
    say(figures, "lp_grid_worst_cpu_s", dearest, "s");
    say(
        figures,
        "dp_over_lp_min",
        ratios.iter().copied().fold(1.0, f64::min),
        "ratio",
    );
    say(figures, "dp_over_lp_median", median(ratios), "ratio");
}

/// Longest run of HiGHS, seconds.
const HIGHS_LIMIT: f64 = 600.0;

/// Chains, and the names of the figures and the goal where the issue sets one.
const AGAINST_HIGHS: [(usize, &str, Option<f64>); 4] = [
    (100, "lp_vs_arc_100", None),
    (200, "lp_vs_arc_200", None),
    (300, "lp_vs_arc_300", Some(100.0)),
    (1000, "lp_vs_arc_1000", Some(1000.0)),
];

/// The arc formulation given to HiGHS as suits it best of what was tried: shares between 0 and 1, rows in units of their
/// capacity, a minimisation, interior point without crossover.
fn against_highs(att: &Model, figures: &mut Vec<Figure>) {
    let quick = std::env::var("BENCH_TE_QUICK").is_ok();
    for (chains, name, goal) in AGAINST_HIGHS {
        if quick && chains > 300 {
            continue;
        }
        let model = workload(att, |o| o.chains = chains);
        let mut runs: Vec<Solve> = (0..5)
            .map(|_| solve(&model, Objective::Scale, 1e-6))
            .collect();
        runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let mine = runs[runs.len() / 2];
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        let start = Instant::now();
        let arc = Arc::new(&instance, Objective::Scale).expect("no limits");
        let peer = te::highs::solve(&arc.program, Method::InteriorPoint, HIGHS_LIMIT);
        let theirs = start.elapsed().as_secs_f64();
        let columns = arc.program.cost.len();
        let proved = matches!(peer, Outcome::Optimal(..));
        let note = match peer {
            Outcome::Optimal(other, _) => {
                let other = arc.value(other);
                let apart = (mine.value - other).abs().max((mine.bound - other).abs()) / other;
                assert!(apart <= 1e-6, "the two optima differ by {apart:e}");
                format!(
                    "HiGHS IPM, arc formulation, {columns} variables; optimal, from our value and bound by {apart:.0e}"
                )
            }
            other => format!(
                "HiGHS IPM, arc formulation, {columns} variables; no optimum after {theirs:.0} s ({other:?}): the ratio is a lower bound"
            ),
        };
        let ratio = theirs / mine.seconds;
        eprintln!(
            "{name} {ratio:.0}: {:.4} s against {theirs:.1} s; {note}",
            mine.seconds
        );
        figures.push(Figure {
            name,
            value: mine.seconds,
            unit: "s",
            peer: Some((note, theirs, ratio)),
        });
        let unit = if proved {
            "times as fast"
        } else {
            "times as fast at least"
        };
        if let Some(goal) = goal {
            figures.push(Figure {
                name,
                value: ratio,
                unit,
                peer: Some(("goal, at least".to_owned(), goal, ratio / goal)),
            });
        }
    }
}

fn latency(att: &Model, figures: &mut Vec<Figure>) {
    let model = workload(att, |_| {});
    let most = solve(&model, Objective::Scale, 1e-4).value;
    for (name, load) in [("latency_10k_50_s", 0.5), ("latency_10k_95_s", 0.95)] {
        let loaded = workload(att, |o| o.demand = most * load);
        // `demand` scales compute too in the generator's rule; bring the sites back to the base model's.
        let mut loaded = loaded;
        (loaded.sites, loaded.vnfs) = (model.sites.clone(), model.vnfs.clone());
        say(
            figures,
            name,
            seconds(&loaded, Objective::Latency, 1e-4),
            "s",
        );
    }
}

fn heuristics(att: &Model, figures: &mut Vec<Figure>) {
    let model = workload(att, |_| {});
    let instance = Instance::new(&model, Demand::Partial).expect("background fits");
    let whole = || {
        let start = Instant::now();
        let solution = heuristic::solve(&model, &instance, Heuristic::Dp, Objective::Throughput)
            .expect("routes");
        assert!(solution.value > 0.0);
        start.elapsed().as_secs_f64() * 1e3
    };
    say(
        figures,
        "dp_10k_ms",
        median((0..5).map(|_| whole()).collect()),
        "ms",
    );
    let mut state = State::new(&instance, Costs::for_objective(Objective::Throughput), true);
    let mut scratch = te::kernel::Scratch::default();
    for commodity in 0..5000 {
        heuristic::route_one(&instance, &mut state, commodity, &mut scratch);
    }
    let start = Instant::now();
    for commodity in 5000..10_000 {
        heuristic::route_one(&instance, &mut state, commodity, &mut scratch);
    }
    say(
        figures,
        "dp_one_us",
        start.elapsed().as_secs_f64() / 5000.0 * 1e6,
        "us",
    );
}

fn large(att: &Model, cogentco: &Model, figures: &mut Vec<Figure>) {
    let model = workload(att, |o| o.chains = 100_000);
    say(
        figures,
        "lp_100k_s",
        solve(&model, Objective::Scale, 1e-4).seconds,
        "s",
    );
    let model = workload(cogentco, |_| {});
    say(
        figures,
        "cogentco_10k_s",
        solve(&model, Objective::Scale, 1e-3).seconds,
        "s",
    );
}

fn placement(att: &Model, figures: &mut Vec<Figure>) {
    let model = workload(att, |_| {});
    let start = Instant::now();
    let each = vec![1; model.vnfs.len()];
    let plan = te::plan::placement::plan(
        &model,
        &each,
        false,
        &options(0.02),
        &lp::Monitor::default(),
    )
    .expect("sites");
    say(
        figures,
        "placement_10k_s",
        start.elapsed().as_secs_f64(),
        "s",
    );
    say(
        figures,
        "placement_10k_gap",
        plan.solution.gap().unwrap_or(f64::NAN),
        "ratio",
    );
}

fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok())
        .map_or(f64::NAN, |kb| kb / 1024.0)
}

fn output(program: &str, arguments: &[&str]) -> String {
    let run = std::process::Command::new(program).args(arguments).output();
    run.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
        .unwrap_or_default()
}

fn report(figures: &[Figure]) -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .unwrap_or("")
        .trim_start_matches([' ', '\t', ':']);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = load.split_whitespace().take(3).collect();
    let cores = cores();
    let short = if std::env::var("BENCH_TE_QUICK").is_ok() {
        "; short form: grid with one seed instead of three, no lp_vs_arc_1000"
    } else {
        ""
    };
    let machine = format!(
        "{model}, {cores} cores, load average {} at the end; lp on all cores, HiGHS on one{short}",
        load.join(" ")
    );
    let mut writer = Writer::new();
    writer.object(|w| {
        w.name("bench")
            .text("te")
            .name("commit")
            .text(&output("git", &["rev-parse", "HEAD"]));
        w.name("machine").text(&machine);
        w.name("figures").list(|w| {
            for figure in figures {
                w.line().object(|w| {
                    w.name("name")
                        .text(figure.name)
                        .name("value")
                        .number(figure.value)
                        .name("unit")
                        .text(figure.unit);
                    if let Some((peer, value, ratio)) = &figure.peer {
                        w.name("peer").text(peer).name("peer_value").number(*value);
                        w.name("ratio").number(*ratio);
                    }
                });
            }
        });
    });
    writer.finish()
}
