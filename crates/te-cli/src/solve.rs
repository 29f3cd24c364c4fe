//! `switchboard-te solve`.

use std::process::ExitCode;
use std::time::Duration;

use te::error::{Error, InputError, Reason};
use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::json::Writer;
use te::lp::{self, Monitor};
use te::model::Model;
use te::solution::{Objective, Solution, Status};
use te::survive::{Against, Contingency};

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
    let valued = [&SOLVER[..], &["--algorithm", "--objective", "--survive"]].concat();
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
    if arguments.get("--survive").is_some() {
        return survive(
            &arguments,
            &model,
            objective,
            matches!(algorithm, Algorithm::Exact),
            &options,
        );
    }
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

/// Routes that survive any single failure, with the backup routes of each.
fn survive(
    arguments: &Arguments,
    model: &Model,
    objective: Objective,
    exact: bool,
    options: &lp::Options,
) -> Result<ExitCode, Error> {
    let choices = [("link", Against::Links), ("site", Against::Sites)];
    let against = arguments.choice("--survive", Against::Links, &choices)?;
    if !exact || objective != Objective::Scale {
        let message = "works with --algorithm lp --objective scale";
        return Err(InputError::new("--survive", Reason::Contradiction, message)
            .in_source("command line")
            .into());
    }
    let instance = Instance::new(model, Demand::Full)?;
    let flag = interrupt();
    let monitor = Monitor {
        report: None,
        interrupt: Some(&flag),
    };
    let plan = te::survive::solve(model, &instance, against, options, &monitor)?;
    let mut writer = Writer::new();
    writer.object(|w| {
        te::result::write_head(w, model, &instance, &plan.solution);
        w.name("failures").list(|w| {
            plan.failures
                .iter()
                .for_each(|f| write_failure(w, model, f))
        });
        te::result::write_routes(
            w,
            model,
            &te::result::routes(model, &instance, &plan.solution),
        );
    });
    files::write(arguments.get("-o"), &writer.finish())?;
    Ok(ExitCode::SUCCESS)
}

fn write_failure(w: &mut Writer, model: &Model, failure: &Contingency) {
    let moved = Solution {
        status: Status::Feasible,
        objective: Objective::Scale,
        value: failure.value,
        bound: None,
        seconds: 0.0,
        flows: failure.flows.clone(),
    };
    w.line().object(|w| {
        w.name("failed")
            .text(&failure.name)
            .name("value")
            .number(failure.value);
        w.name("from_scratch")
            .number(failure.from_scratch)
            .name("moved_share")
            .number(failure.moved);
        te::result::write_routes(
            w,
            model,
            &te::result::routes(model, &failure.instance, &moved),
        );
    });
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
