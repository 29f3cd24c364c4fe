//! The grid: coverage × CPU per byte × division of compute × seeds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use te::generate::Division;
use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::lp::{self, Monitor, Options};
use te::model::Model;
use te::solution::Objective;

use super::measure::{Solve, median, options, repeated, solve, workload};
use super::report::Report;

const COVERAGE: [f64; 4] = [0.25, 0.5, 0.75, 1.0];
const CPU_PER_BYTE: [f64; 4] = [0.1, 0.5, 1.0, 3.0];
const DIVISIONS: [(Division, &str); 2] = [
    (Division::Overbooked, "overbooked"),
    (Division::Proportional, "proportional"),
];
const SEEDS: [u64; 3] = [1, 2, 3];

const GAP: f64 = 1e-4;

/// So many of the slowest cells are solved `REPEATS` times more, and the median counts.
const SLOWEST: usize = 6;
const REPEATS: usize = 2;

/// A workload of the grid. Written as `0.5/0.5/proportional/3`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    coverage: f64,
    cpu_per_byte: f64,
    division: (Division, &'static str),
    seed: u64,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (coverage, cpu, seed) = (self.coverage, self.cpu_per_byte, self.seed);
        write!(f, "{coverage}/{cpu}/{}/{seed}", self.division.1)
    }
}

impl FromStr for Cell {
    type Err = ();

    fn from_str(text: &str) -> Result<Cell, ()> {
        cells().find(|cell| cell.to_string() == text).ok_or(())
    }
}

impl Cell {
    fn model(&self, backbone: &Model) -> Model {
        self.model_of(backbone, 1.0)
    }

    /// With a factor on all demands.
    fn model_of(&self, backbone: &Model, demand: f64) -> Model {
        workload(backbone, |o| {
            (o.coverage, o.cpu_per_byte) = (self.coverage, self.cpu_per_byte);
            (o.division, o.seed, o.demand) = (self.division.0, self.seed, demand);
        })
    }

    /// Solves the cell so many times by lp, once by dp; prints and returns the first and dp's part of lp.
    pub fn measure(&self, backbone: &Model, times: usize) -> (Solve, f64) {
        let model = self.model(backbone);
        let exact = repeated(&model, Objective::Scale, GAP, times);
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        let monitor = Monitor::default();
        let (dp, scale) = (Heuristic::Dp, Objective::Scale);
        let dp = heuristic::solve(&model, &instance, dp, scale, &options(GAP), &monitor);
        let part = dp.expect("routes").value / exact.value;
        let (seconds, cpu) = (exact.seconds, exact.cpu_seconds);
        eprintln!("  {self}: {seconds:.3} s, {cpu:.2} cpu s, dp {part:.4}");
        (exact, part)
    }
}

fn cells() -> impl Iterator<Item = Cell> {
    let of_seed = |seed: u64| {
        COVERAGE.into_iter().flat_map(move |coverage| {
            CPU_PER_BYTE.into_iter().flat_map(move |cpu_per_byte| {
                DIVISIONS.into_iter().map(move |division| Cell {
                    coverage,
                    cpu_per_byte,
                    division,
                    seed,
                })
            })
        })
    };
    SEEDS.into_iter().flat_map(of_seed)
}

/// Factors on the demands of the grid at which SB-DP has to choose what it carries; one seed of each cell.
const OVERLOADS: [f64; 2] = [2.0, 5.0];

/// Gap and most seconds of the exact solver there; SB-DP's part is of what is proved.
const GAP_CARRIED: f64 = 1e-3;
const MOST_SECONDS: u64 = 5;

/// With this share of the demand carried there is nothing to choose.
const FITS: f64 = 0.999;

/// SB-DP under throughput as a part of the exact solver's bound, in cells with more demand than fits.
pub fn measure_carried(backbone: &Model, report: &mut Report) {
    let mut measured: Vec<(String, f64)> = Vec::new();
    for cell in cells().filter(|cell| cell.seed == SEEDS[0]) {
        for demand in OVERLOADS {
            let model = cell.model_of(backbone, demand);
            if let Some(part) = carried(&model) {
                eprintln!("  {cell}, demand {demand}: dp {part:.4}");
                measured.push((format!("{cell}, demand {demand}"), part));
            }
        }
    }
    let least = measured.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let (cell, part) = least.expect("some cells are overloaded").clone();
    report.say_of("dp_over_lp_carried_min", part, "ratio", Some(cell));
    let parts = measured.iter().map(|(_, part)| *part);
    report.say("dp_over_lp_carried_median", median(parts), "ratio");
}

/// SB-DP's part of what can be carried; none where that is everything, or not known.
fn carried(model: &Model) -> Option<f64> {
    let instance = Instance::new(model, Demand::Partial).expect("background fits");
    let (monitor, throughput) = (Monitor::default(), Objective::Throughput);
    let exact = Options {
        time_limit: Duration::from_secs(MOST_SECONDS),
        ..options(GAP_CARRIED)
    };
    let exact = lp::solve(model, &instance, throughput, &exact, &monitor).expect("an answer");
    if !exact.gap().is_some_and(|gap| gap <= 10.0 * GAP_CARRIED) {
        eprintln!("  left out, as lp proved too little: gap {:?}", exact.gap());
        return None;
    }
    let most = exact.bound.expect("a bound");
    let offered: f64 = model.chains.iter().map(|c| c.demand_mbps()).sum();
    if most > FITS * offered {
        return None;
    }
    let (dp, usual) = (Heuristic::Dp, options(GAP));
    let dp = heuristic::solve(model, &instance, dp, throughput, &usual, &monitor);
    Some(dp.expect("an answer").value / most)
}

/// The whole grid: the slowest cell, and dp's part of lp.
pub fn measure(backbone: &Model, report: &mut Report) {
    let mut measured: Vec<(Cell, Solve, f64)> = cells()
        .map(|cell| {
            let (solve, part) = cell.measure(backbone, 1);
            (cell, solve, part)
        })
        .collect();
    measured.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    report.begin("the slowest cells again");
    for (cell, first, _) in &mut measured[..SLOWEST] {
        let model = cell.model(backbone);
        let mut runs = vec![*first];
        runs.extend((0..REPEATS).map(|_| solve(&model, Objective::Scale, GAP)));
        first.seconds = median(runs.iter().map(|r| r.seconds));
        first.cpu_seconds = median(runs.iter().map(|r| r.cpu_seconds));
        let each: Vec<String> = runs.iter().map(|r| format!("{:.3}", r.seconds)).collect();
        eprintln!("  {cell}: {} s", each.join(", "));
    }
    let slowest = |by: fn(&Solve) -> f64| {
        let worst = measured.iter().max_by(|a, b| by(&a.1).total_cmp(&by(&b.1)));
        let (cell, solve, _) = worst.expect("the grid has cells");
        (by(solve), Some(cell.to_string()))
    };
    let (seconds, cell) = slowest(|s| s.seconds);
    report.say_of("lp_grid_worst_s", seconds, "s", cell);
    let (seconds, cell) = slowest(|s| s.cpu_seconds);
    report.say_of("lp_grid_worst_cpu_s", seconds, "s", cell);
    let least = measured.iter().min_by(|a, b| a.2.total_cmp(&b.2));
    let (cell, _, part) = least.expect("the grid has cells");
    report.say_of("dp_over_lp_min", *part, "ratio", Some(cell.to_string()));
    let parts = measured.iter().map(|(_, _, part)| *part);
    report.say("dp_over_lp_median", median(parts), "ratio");
    let times = measured.iter().map(|(_, solve, _)| solve.seconds);
    report.say("lp_grid_median_s", median(times), "s");
}
