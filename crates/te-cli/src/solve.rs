//! `switchboard-te solve`.

use std::process::ExitCode;

use te::error::Error;
use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::solution::Objective;

use crate::arguments::Arguments;
use crate::files;

const VALUED: [&str; 8] = [
    "--model",
    "--algorithm",
    "--objective",
    "--gap",
    "--time-limit",
    "--threads",
    "--seed",
    "-o",
];

const OBJECTIVES: [(&str, Objective); 3] = [
    ("throughput", Objective::Throughput),
    ("scale", Objective::Scale),
    ("latency", Objective::Latency),
];

const ALGORITHMS: [(&str, Heuristic); 5] = [
    ("dp", Heuristic::Dp),
    ("one-hop", Heuristic::OneHop),
    ("dp-latency", Heuristic::DpLatency),
    ("anycast", Heuristic::Anycast),
    ("compute-aware", Heuristic::ComputeAware),
];

/// Solves a model and writes the result.
pub fn run(words: &[String]) -> Result<ExitCode, Error> {
    let arguments = Arguments::parse(words, &VALUED, &["-q", "--quiet"])?;
    let objective = arguments.choice("--objective", Objective::Throughput, &OBJECTIVES)?;
    let algorithm = arguments.choice("--algorithm", Heuristic::Dp, &ALGORITHMS)?;
    let model = files::model(arguments.required("--model")?)?;
    let instance = Instance::new(&model, demand(objective))?;
    let solution = heuristic::solve(&instance, algorithm, objective);
    files::write(
        arguments.get("-o"),
        &te::result::to_json(&model, &instance, &solution),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// What chains demand that do not say how much of them must be carried.
pub fn demand(objective: Objective) -> Demand {
    if objective == Objective::Throughput {
        Demand::Partial
    } else {
        Demand::Full
    }
}
