//! Workloads, and how long a solve of one takes.

use std::time::Instant;

use te::generate::{Options, generate};
use te::instance::{Demand, Instance};
use te::lp;
use te::model::Model;
use te::solution::Objective;

/// A workload on a backbone: the generator's usual one, changed.
pub fn workload(backbone: &Model, change: impl FnOnce(&mut Options)) -> Model {
    let mut options = Options::default();
    change(&mut options);
    generate(backbone, &options).expect("options in range")
}

/// Options of the exact solver.
pub fn options(gap: f64) -> lp::Options {
    lp::Options {
        gap,
        threads: cores(),
        ..lp::Options::default()
    }
}

/// Cores of this machine.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processor time of this process so far, seconds (proc(5): utime and stime in hundredths).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or("");
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// How long a solve took, infinite where the gap was not proved; and its value.
#[derive(Clone, Copy)]
pub struct Solve {
    /// Time by the clock, compiling the model included.
    pub seconds: f64,
    /// Processor time of all threads.
    pub cpu_seconds: f64,
    /// Value in the objective's unit.
    pub value: f64,
    /// Its proved bound.
    pub bound: f64,
}

/// Solves a model, compiling it included.
pub fn solve(model: &Model, objective: Objective, gap: f64) -> Solve {
    let demand = if objective == Objective::Throughput {
        Demand::Partial
    } else {
        Demand::Full
    };
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let instance = Instance::new(model, demand).expect("background fits");
    let monitor = lp::Monitor::default();
    let solution =
        lp::solve(model, &instance, objective, &options(gap), &monitor).expect("feasible");
    let mut solve = Solve {
        seconds: start.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        value: solution.value,
        bound: solution.bound.unwrap_or(f64::NAN),
    };
    if !solution.gap().is_some_and(|reached| reached <= gap) {
        let (reached, after) = (solution.gap(), solve.seconds);
        eprintln!("  not proved: gap {reached:?} after {after:.1} s");
        (solve.seconds, solve.cpu_seconds) = (f64::INFINITY, f64::INFINITY);
    }
    solve
}

/// The median; of an even number of values the greater of the two in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Solves a model so many times; the medians of the times.
pub fn repeated(model: &Model, objective: Objective, gap: f64, times: usize) -> Solve {
    let runs: Vec<Solve> = (0..times).map(|_| solve(model, objective, gap)).collect();
    Solve {
        seconds: median(runs.iter().map(|r| r.seconds)),
        cpu_seconds: median(runs.iter().map(|r| r.cpu_seconds)),
        ..runs[0]
    }
}
