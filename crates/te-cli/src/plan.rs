//! `switchboard-te plan cloud` and `plan placement`.

use std::process::ExitCode;

use te::error::{Error, InputError, Reason};
use te::instance::{Demand, Instance};
use te::json::Writer;
use te::lp::{self, Monitor};
use te::model::Model;
use te::plan::{cloud, placement};
use te::solution::Solution;

use crate::arguments::Arguments;
use crate::files;
use crate::progress::{Printer, interrupt};
use crate::solve::{FLAGS, SOLVER, is_quiet, options};

/// Runs the plan named by the first word.
pub fn run(words: &[String]) -> Result<ExitCode, Error> {
    match words.first().map(String::as_str) {
        Some("cloud") => run_cloud(&words[1..]),
        Some("placement") => run_placement(&words[1..]),
        other => {
            let message = format!(
                "'{}' is no plan; known: cloud, placement",
                other.unwrap_or("")
            );
            Err(InputError::new("plan", Reason::UnknownChoice, message)
                .in_source("command line")
                .into())
        }
    }
}

fn with_monitor<T>(arguments: &Arguments, work: impl FnOnce(&Monitor<'_>) -> T) -> T {
    let printer = Printer::new(is_quiet(arguments));
    let flag = interrupt();
    let report = |progress: &lp::Progress| printer.report(progress);
    work(&Monitor {
        report: Some(&report),
        interrupt: Some(&flag),
    })
}

fn run_cloud(words: &[String]) -> Result<ExitCode, Error> {
    let valued = [&SOLVER[..], &["--add-capacity", "--planned-model"]].concat();
    let arguments = Arguments::parse(words, &valued, &FLAGS)?;
    arguments.required("--add-capacity")?;
    let capacity = arguments.number("--add-capacity", 0.0, 1e-9)?;
    let options = options(&arguments)?;
    let model = files::model(arguments.required("--model")?)?;
    let plan = with_monitor(&arguments, |monitor| {
        cloud::plan(&model, capacity, &options, monitor)
    })?;
    let text = result(&plan.model, &plan.solution, |w| {
        w.name("uniform").number(plan.uniform).line();
        w.name("added").list(|w| {
            for (site, added) in plan.model.sites.iter().zip(&plan.added) {
                w.object(|w| {
                    w.name("site")
                        .text(&site.id)
                        .name("capacity")
                        .number(*added);
                });
            }
        });
    })?;
    finish(&arguments, &plan.model, &text)
}

fn run_placement(words: &[String]) -> Result<ExitCode, Error> {
    let valued = [&SOLVER[..], &["--new-sites", "--planned-model"]].concat();
    let flags = [&FLAGS[..], &["--ignore-capacity"]].concat();
    let arguments = Arguments::parse(words, &valued, &flags)?;
    let options = options(&arguments)?;
    let model = files::model(arguments.required("--model")?)?;
    let new_sites = new_sites(&model, arguments.required("--new-sites")?)?;
    let capacitated = !arguments.flag("--ignore-capacity");
    let plan = with_monitor(&arguments, |monitor| {
        placement::plan(&model, &new_sites, capacitated, &options, monitor)
    })?;
    let text = result(&plan.model, &plan.solution, |w| {
        w.name("before").number(plan.before).line();
        w.name("placed").list(|w| {
            for &(vnf, site, load) in &plan.placed {
                w.object(|w| {
                    w.name("vnf")
                        .text(&model.vnfs[vnf].id)
                        .name("site")
                        .text(&model.sites[site].id);
                    w.name("capacity").number(load);
                });
            }
        });
    })?;
    finish(&arguments, &plan.model, &text)
}

/// `vnf=N,vnf=N`, or `*=N` for all.
fn new_sites(model: &Model, text: &str) -> Result<Vec<usize>, InputError> {
    let refuse = |reason, message: String| {
        Err(InputError::new("--new-sites", reason, message).in_source("command line"))
    };
    let mut counts = vec![0; model.vnfs.len()];
    for part in text.split(',') {
        let Some((vnf, count)) = part.split_once('=') else {
            return refuse(Reason::Syntax, format!("'{part}' is not of the form vnf=N"));
        };
        let Ok(count) = count.parse::<usize>() else {
            return refuse(
                Reason::OutOfRange,
                format!("'{count}' is no number of sites"),
            );
        };
        if vnf == "*" {
            counts.fill(count);
            continue;
        }
        match model.vnfs.iter().position(|v| v.id == vnf) {
            Some(index) => counts[index] = count,
            None => {
                return refuse(
                    Reason::DanglingReference,
                    format!("there is no VNF '{vnf}' in this model"),
                );
            }
        }
    }
    Ok(counts)
}

fn result(
    model: &Model,
    solution: &Solution,
    extra: impl FnOnce(&mut Writer),
) -> Result<String, Error> {
    let instance = Instance::new(model, Demand::Full)?;
    let mut writer = Writer::new();
    writer.object(|w| {
        te::result::write_head(w, model, &instance, solution);
        extra(w);
        te::result::write_routes(w, model, &te::result::routes(model, &instance, solution));
    });
    Ok(writer.finish())
}

fn finish(arguments: &Arguments, model: &Model, text: &str) -> Result<ExitCode, Error> {
    if let Some(path) = arguments.get("--planned-model") {
        files::write(Some(path), &model.to_json())?;
    }
    files::write(arguments.get("-o"), text)?;
    Ok(ExitCode::SUCCESS)
}
