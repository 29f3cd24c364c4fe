//! `switchboard-te solve`.

use std::process::ExitCode;
use std::time::Duration;

use te::error::{Error, InputError, Reason};
use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::lp::{self, Fit};
use te::model::Model;
use te::solution::{Objective, Solution};

use crate::arguments::{Arguments, refuse};
use crate::files;
use crate::progress::watched;
use crate::{series, survive};

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
pub fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let options = options(arguments)?;
    if let Some(beyond) = beyond_one_state(arguments)? {
        let model = files::model(arguments.required("--model")?)?;
        return beyond(arguments, &model, &options);
    }
    let objective = arguments.choice("--objective", &OBJECTIVES)?;
    let algorithm = arguments.choice("--algorithm", &ALGORITHMS)?;
    let model = files::model(arguments.required("--model")?)?;
    let instance = Instance::new(&model, demand(objective))?;
    let solution = watched(arguments, |monitor| match algorithm {
        Algorithm::Heuristic(heuristic) => {
            heuristic::solve(&model, &instance, heuristic, objective, &options, monitor)
        }
        Algorithm::Exact => lp::solve(&model, &instance, objective, &options, monitor),
    })?;
    if solution.leaves_demand(&instance) {
        explain_the_rest(arguments, &model, &instance, &solution, &options)?;
    }
    files::write(
        arguments.given("-o"),
        &te::result::to_json(&model, &instance, &solution),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Demand is left that should have been carried: proves that no routing carries it, or says that one does or may.
fn explain_the_rest(
    arguments: &Arguments,
    model: &Model,
    instance: &Instance,
    solution: &Solution,
    options: &lp::Options,
) -> Result<(), Error> {
    let spent = Duration::from_secs_f64(solution.seconds);
    let rest = lp::Options {
        time_limit: options.time_limit.saturating_sub(spent),
        ..options.clone()
    };
    let fit = watched(arguments, |monitor| {
        lp::fit(model, instance, &rest, monitor)
    });
    let limited = !instance.max_routes.is_empty();
    let others = match fit {
        Fit::DoesNotFit(proof) => return Err(proof.into()),
        Fit::Fits if limited => "another routing carries it, within max_routes too",
        Fit::Fits => "another routing carries it, which --algorithm lp finds",
        Fit::FitsOnMoreRoutes => {
            "without max_routes another routing carries it; with it that is not known"
        }
        Fit::NotKnown => "whether another routing carries it is not known",
    };
    if !arguments.is_quiet() {
        let (left, chain) = solution.rest(instance);
        let chain = &model.chains[chain].id;
        eprintln!(
            "switchboard-te: {left:.6} Mbit/s that should be carried are left, most of the chain '{chain}'; {others}"
        );
    }
    Ok(())
}

type Beyond = fn(&Arguments, &Model, &lp::Options) -> Result<ExitCode, Error>;

/// What solves for several states at once, where options ask for it: it is exact and maximises the factor.
fn beyond_one_state(arguments: &Arguments) -> Result<Option<Beyond>, InputError> {
    let refuse = |option: &str, message: &str| Err(refuse(option, Reason::Contradiction, message));
    let (option, solve): (&str, Beyond) =
        match (arguments.given("--survive"), arguments.given("--demands")) {
            (None, None) => {
                return if arguments.given("--max-change").is_some() {
                    refuse(
                        "--max-change",
                        "bounds the change between matrices; give --demands too",
                    )
                } else {
                    Ok(None)
                };
            }
            (Some(_), Some(_)) => {
                return refuse("--survive", "does not go together with --demands");
            }
            (Some(_), None) => ("--survive", survive::solve),
            (None, Some(_)) => ("--demands", series::solve),
        };
    let algorithm = arguments.optional_choice("--algorithm", &ALGORITHMS)?;
    let objective = arguments.optional_choice("--objective", &OBJECTIVES)?;
    if !matches!(algorithm, None | Some(Algorithm::Exact))
        || !matches!(objective, None | Some(Objective::Scale))
    {
        return refuse(option, "works with --algorithm lp --objective scale");
    }
    Ok(Some(solve))
}

/// More threads than this have nothing to share.
const MOST_THREADS: usize = 64;

/// The exact solver's options. The seed is accepted for symmetry: no algorithm draws random numbers.
pub fn options(arguments: &Arguments) -> Result<lp::Options, Error> {
    arguments.optional_count("--seed", 0)?;
    let threads = match arguments.optional_count("--threads", 1)? {
        Some(threads) if threads > MOST_THREADS as u64 => {
            let message = format!("'{threads}' is above {MOST_THREADS}");
            return Err(refuse("--threads", Reason::OutOfRange, message).into());
        }
        Some(threads) => threads as usize,
        None => std::thread::available_parallelism().map_or(1, |n| n.get().min(MOST_THREADS)),
    };
    Ok(lp::Options {
        gap: arguments.number("--gap", 1e-9)?,
        time_limit: Duration::from_secs_f64(arguments.number("--time-limit", 0.0)?.min(1e9)),
        threads,
        ..lp::Options::default()
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
