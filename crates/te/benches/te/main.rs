//! `make bench-te`: the goal figures of traffic engineering, into `bench/results/te.json`.
//!
//! Backbones come from the directory in `SWITCHBOARD_DATA`, else `../shared/data` beside the repository. Figures are
//! medians; the load average before and after is recorded with them, because other work on the machine shows in them.
//! For the same reason the slowest ones are also given in processor seconds, all threads together (`…_cpu_s`).
//!
//! Arguments choose rows: a figure's name (`lp_1k_dense_s`), a part (single, heuristics, latency, large, placement, grid,
//! highs) or a cell of the grid (`0.5/0.5/proportional/3`: coverage, CPU per byte, division, seed). Figures are then
//! only printed; without arguments all rows are measured and written.

mod grid;
mod highs;
mod measure;
mod report;

use std::path::PathBuf;

use te::generate::Division;
use te::heuristic::{self, Costs, Heuristic, State};
use te::import::{Defaults, Notes, graphml};
use te::instance::{Demand, Instance};
use te::lp;
use te::model::Model;
use te::solution::Objective;

use measure::{median, options, repeated, solve, workload};
use report::Report;

/// Parts, and the rows of each. Memory comes before HiGHS, so that what that takes is not counted as ours.
const ROWS: [(&str, &[&str]); 9] = [
    (
        "single",
        &[
            "lp_10k_1pct_s",
            "lp_10k_1e4_s",
            "lp_10k_1e6_s",
            "lp_1k_dense_s",
            "lp_1k_short_s",
        ],
    ),
    (
        "heuristics",
        &[
            "dp_10k_ms",
            "dp_10k_overloaded_ms",
            "dp_10k_scale_ms",
            "dp_10k_latency_95_ms",
            "dp_one_us",
        ],
    ),
    ("latency", &["latency_10k_50_s", "latency_10k_95_s"]),
    (
        "large",
        &["lp_100k_s", "cogentco_10k_s", "cogentco_widened_10k_s"],
    ),
    ("placement", &["placement_10k_s"]),
    ("carried", &["dp_over_lp_carried_min"]),
    ("grid", &["lp_grid_worst_s"]),
    ("memory", &["peak_rss_mb"]),
    (
        "highs",
        &[
            highs::SIZES[0].1,
            highs::SIZES[1].1,
            highs::SIZES[2].1,
            highs::SIZES[3].1,
        ],
    ),
];

/// Times that most rows are measured; the median counts.
const TIMES: usize = 5;

/// Times for rows of several seconds.
const FEWER: usize = 3;

/// Factor on the demands at which less than half of them fit.
const OVERLOAD: f64 = 5.0;

/// How full chains that end there may make the link of a node with one neighbour, on the widened backbone.
const ACCESS_FILL: f64 = 0.3;

/// Backbones of the workloads.
struct Backbones {
    att: Model,
    cogentco: Model,
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench-te: {message}");
            std::process::ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let data = std::env::var("SWITCHBOARD_DATA")
        .map_or_else(|_| root.join("../shared/data"), PathBuf::from);
    let load = |name: &str| {
        let path = data.join(format!("topologyzoo/{name}.graphml"));
        let defaults = Defaults {
            bandwidth_mbps: Some(10_000.0),
            latency_ms: Some(1.0),
        };
        let text = std::fs::read_to_string(&path).map_err(|e| {
            format!(
                "{}: {e}; set SWITCHBOARD_DATA to the data directory",
                path.display()
            )
        })?;
        graphml(&text, &defaults, &mut Notes::default())
            .map_err(|e| format!("{}: {e}", path.display()))
    };
    let backbones = Backbones {
        att: load("AttMpls")?,
        cogentco: load("Cogentco")?,
    };
    // Cargo adds `--bench`.
    let (cells, chosen) = words(std::env::args().skip(1).filter(|a| !a.starts_with("--")))?;
    let all = cells.is_empty() && chosen.is_empty();
    let mut report = Report::new();
    for cell in cells {
        cell.measure(&backbones.att, FEWER);
    }
    for (part, rows) in ROWS {
        for row in rows {
            if all || chosen.iter().any(|c| c == part || c == row) {
                report.begin(row);
                measure(row, &backbones, &mut report);
            }
        }
        if all {
            report.save(&root.join("bench/results/te.json"));
        }
    }
    Ok(())
}

/// Cells and rows that were asked for.
fn words(words: impl Iterator<Item = String>) -> Result<(Vec<grid::Cell>, Vec<String>), String> {
    let (mut cells, mut chosen) = (Vec::new(), Vec::new());
    for word in words {
        if let Ok(cell) = word.parse() {
            cells.push(cell);
            continue;
        }
        let is =
            |(part, rows): &(&str, &[&str])| *part == word || rows.iter().any(|row| *row == word);
        if !ROWS.iter().any(is) {
            let known = ROWS
                .iter()
                .map(|(part, rows)| format!("{part} ({})", rows.join(", ")));
            return Err(format!(
                "'{word}' is no row; known: {}, or a cell of the grid such as 0.5/0.5/proportional/3",
                known.collect::<Vec<_>>().join(", ")
            ));
        }
        chosen.push(word);
    }
    Ok((cells, chosen))
}

/// Measures one row, and what comes with it.
fn measure(row: &str, backbones: &Backbones, report: &mut Report) {
    let Backbones { att, cogentco } = backbones;
    let mut time = |model: &Model, objective, gap, times| {
        report.say(row, repeated(model, objective, gap, times).seconds, "s");
    };
    match row {
        "lp_10k_1pct_s" => time(&workload(att, |_| {}), Objective::Scale, 1e-2, TIMES),
        "lp_10k_1e4_s" => time(&workload(att, |_| {}), Objective::Scale, 1e-4, TIMES),
        "lp_10k_1e6_s" => time(&workload(att, |_| {}), Objective::Scale, 1e-6, TIMES),
        "lp_1k_dense_s" => dense(att, report),
        "lp_1k_short_s" => time(&short(att), Objective::Throughput, 1e-4, TIMES),
        "dp_10k_ms" => {
            let model = workload(att, |_| {});
            report.say(row, dp_ms(&model, Objective::Throughput), "ms");
        }
        "dp_10k_overloaded_ms" => {
            let model = workload(att, |o| o.demand = OVERLOAD);
            report.say(row, dp_ms(&model, Objective::Throughput), "ms");
        }
        "dp_10k_scale_ms" => {
            let model = workload(att, |_| {});
            report.say(row, dp_ms(&model, Objective::Scale), "ms");
        }
        "dp_10k_latency_95_ms" => latency_by_dp(&loaded(att, 0.95), report),
        "dp_one_us" => report.say(row, dp_one_us(att), "us"),
        "latency_10k_50_s" => time(&loaded(att, 0.5), Objective::Latency, 1e-4, TIMES),
        "latency_10k_95_s" => time(&loaded(att, 0.95), Objective::Latency, 1e-4, TIMES),
        "lp_100k_s" => {
            let model = workload(att, |o| o.chains = 100_000);
            time(&model, Objective::Scale, 1e-4, FEWER);
        }
        "cogentco_10k_s" => time(&workload(cogentco, |_| {}), Objective::Scale, 1e-3, FEWER),
        "placement_10k_s" => placement(att, report),
        "cogentco_widened_10k_s" => {
            let mut model = workload(cogentco, |_| {});
            te::generate::widen_access(&mut model, ACCESS_FILL);
            time(&model, Objective::Scale, 1e-3, FEWER);
        }
        "dp_over_lp_carried_min" => grid::measure_carried(att, report),
        "lp_grid_worst_s" => grid::measure(att, report),
        "peak_rss_mb" => report.say(row, peak_rss_mb(), "MB"),
        _ => {
            let size = highs::SIZES.into_iter().find(|(_, name, _)| *name == row);
            highs::measure(att, size.expect("every row is measured"), report);
        }
    }
}

/// 1 000 chains, every VNF everywhere, capacity in proportion to demand: 2 600 rows.
fn dense(att: &Model, report: &mut Report) {
    let model = workload(att, |o| {
        (o.chains, o.coverage, o.cpu_per_byte, o.division) =
            (1000, 1.0, 1.0, Division::Proportional);
    });
    let run = repeated(&model, Objective::Scale, 1e-4, FEWER);
    report.say("lp_1k_dense_s", run.seconds, "s");
    report.say("lp_1k_dense_cpu_s", run.cpu_seconds, "s");
}

/// 1 000 chains, many of them larger than a VNF's part of a site, of which compute suffices for a third.
fn short(att: &Model) -> Model {
    workload(att, |o| {
        (o.chains, o.coverage, o.cpu_per_byte, o.division) =
            (1000, 1.0, 3.0, Division::Proportional);
    })
}

/// The usual workload with its demands at a share of the most that can be carried.
fn loaded(att: &Model, load: f64) -> Model {
    let model = workload(att, |_| {});
    let most = solve(&model, Objective::Scale, 1e-4).value;
    let mut loaded = workload(att, |o| o.demand = most * load);
    // `demand` scales compute too in the generator's rule; bring the sites back to the base model's.
    (loaded.sites, loaded.vnfs) = (model.sites, model.vnfs);
    loaded
}

/// Every chain by dp, from an empty network.
fn dp_ms(model: &Model, objective: Objective) -> f64 {
    let demand = match objective {
        Objective::Throughput => Demand::Partial,
        Objective::Scale | Objective::Latency => Demand::Full,
    };
    let instance = Instance::new(model, demand).expect("background fits");
    let (dp, limits, monitor) = (Heuristic::Dp, options(1e-4), lp::Monitor::default());
    let once = |_| {
        let start = std::time::Instant::now();
        let routed = heuristic::solve(model, &instance, dp, objective, &limits, &monitor);
        let seconds = start.elapsed().as_secs_f64();
        assert!(routed.expect("routes").value > 0.0);
        seconds * 1e3
    };
    median((0..4 * TIMES).map(once))
}

/// All demand with little latency, by dp: how long it takes and how much more than the least it is.
fn latency_by_dp(model: &Model, report: &mut Report) {
    report.say(
        "dp_10k_latency_95_ms",
        dp_ms(model, Objective::Latency),
        "ms",
    );
    let instance = Instance::new(model, Demand::Full).expect("background fits");
    let (dp, limits, monitor) = (Heuristic::Dp, options(1e-4), lp::Monitor::default());
    let routed = heuristic::solve(model, &instance, dp, Objective::Latency, &limits, &monitor);
    let routed = routed.expect("routes");
    let part = if routed.leaves_demand(&instance) {
        f64::INFINITY
    } else {
        routed.value / solve(model, Objective::Latency, 1e-4).bound
    };
    report.say("dp_over_lp_latency_95", part, "ratio");
}

/// One chain by dp, at the loads of 5 000 and more others.
fn dp_one_us(att: &Model) -> f64 {
    let model = workload(att, |_| {});
    let instance = Instance::new(&model, Demand::Partial).expect("background fits");
    let (first, last) = (5000, instance.commodities.len());
    let once = |_| {
        let mut state = State::new(&instance, Costs::for_objective(Objective::Throughput), true);
        let mut scratch = te::kernel::Scratch::default();
        for commodity in 0..first {
            heuristic::route_one(&instance, &mut state, commodity, &mut scratch);
        }
        let start = std::time::Instant::now();
        for commodity in first..last {
            heuristic::route_one(&instance, &mut state, commodity, &mut scratch);
        }
        start.elapsed().as_secs_f64() / (last - first) as f64 * 1e6
    };
    median((0..TIMES).map(once))
}

fn placement(att: &Model, report: &mut Report) {
    let model = workload(att, |_| {});
    let each = vec![1; model.vnfs.len()];
    let mut gap: f64 = 0.0;
    let once = |_| {
        let start = std::time::Instant::now();
        let monitor = lp::Monitor::default();
        let plan = te::plan::placement::plan(&model, &each, false, &options(0.02), &monitor);
        let seconds = start.elapsed().as_secs_f64();
        let reached = plan.expect("sites").solution.gap();
        gap = gap.max(reached.unwrap_or(f64::INFINITY));
        seconds
    };
    let seconds = median((0..FEWER).map(once));
    report.say("placement_10k_s", seconds, "s");
    report.say("placement_10k_gap", gap, "ratio");
}

fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok())
        .map_or(f64::NAN, |kb| kb / 1024.0)
}
