//! `switchboard-te solve`.

use std::process::ExitCode;
use std::time::Duration;

use te::error::Error;
use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::lp::{self, Monitor};
use te::solution::Objective;

use crate::arguments::Arguments;
use crate::files;
use crate::progress::{Printer, interrupt};

/// Options of everything that solves.
pub const SOLVER: [&str; 6] = [
    "--model",
    "--gap",
    "--time-limit",
    "--threads",
    "--seed",
    "-o",
];

/// Flags of everything that solves.
pub const FLAGS: [&str; 2] = ["-q", "--quiet"];

/// The objectives by name.
pub const OBJECTIVES: [(&str, Objective); 3] = [
    ("throughput", Objective::Throughput),
    ("scale", Objective::Scale),
    ("latency", Objective::Latency),
];

#[derive(Clone, Copy)]
enum Algorithm {
    Exact,
    Heuristic(Heuristic),
}

const ALGORITHMS: [(&str, Algorithm); 6] = [
    ("lp", Algorithm::Exact),
    ("dp", Algorithm::Heuristic(Heuristic::Dp)),
    ("one-hop", Algorithm::Heuristic(Heuristic::OneHop)),
    ("dp-latency", Algorithm::Heuristic(Heuristic::DpLatency)),
    ("anycast", Algorithm::Heuristic(Heuristic::Anycast)),
    (
        "compute-aware",
        Algorithm::Heuristic(Heuristic::ComputeAware),
    ),
];

/// Solves a model and writes the result.
pub fn run(words: &[String]) -> Result<ExitCode, Error> {
    let valued = [&SOLVER[..], &["--algorithm", "--objective"]].concat();
    let arguments = Arguments::parse(words, &valued, &FLAGS)?;
    let objective = arguments.choice("--objective", Objective::Throughput, &OBJECTIVES)?;
    let algorithm = arguments.choice(
        "--algorithm",
        Algorithm::Heuristic(Heuristic::Dp),
        &ALGORITHMS,
    )?;
    let options = options(&arguments)?;
    let model = files::model(arguments.required("--model")?)?;
    let instance = Instance::new(&model, demand(objective))?;
    let solution = match algorithm {
        Algorithm::Heuristic(heuristic) => {
            heuristic::solve(&model, &instance, heuristic, objective)?
        }
        Algorithm::Exact => {
            let printer = Printer::new(is_quiet(&arguments));
            let flag = interrupt();
            let report = |progress: &lp::Progress| printer.report(progress);
            let monitor = Monitor {
                report: Some(&report),
                interrupt: Some(&flag),
            };
            lp::solve(&model, &instance, objective, &options, &monitor)?
        }
    };
    files::write(
        arguments.get("-o"),
        &te::result::to_json(&model, &instance, &solution),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Whether progress is to be silent.
pub fn is_quiet(arguments: &Arguments) -> bool {
    FLAGS.iter().any(|f| arguments.flag(f))
}

/// The exact solver's options. The seed is accepted for symmetry: no algorithm draws random numbers.
pub fn options(arguments: &Arguments) -> Result<lp::Options, Error> {
    arguments.count("--seed", 1, 0)?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    Ok(lp::Options {
        gap: arguments.number("--gap", 1e-4, 1e-9)?,
        time_limit: Duration::from_secs_f64(arguments.number("--time-limit", 60.0, 0.0)?.min(1e9)),
        threads: arguments.count("--threads", cores, 1)?.min(64) as usize,
    })
}

/// What chains demand that do not say how much of them must be carried.
pub fn demand(objective: Objective) -> Demand {
    if objective == Objective::Throughput {
        Demand::Partial
    } else {
        Demand::Full
    }
}
