//! `switchboard-te plan cloud` and `plan placement`.

use std::process::ExitCode;

use te::error::{Error, InputError, Reason};
use te::instance::{Demand, Instance};
use te::json::Writer;
use te::model::Model;
use te::solution::Solution;

use crate::arguments::Arguments;
use crate::files;
use crate::progress::watched;
use crate::solve::options;

/// Plans where to add compute.
pub fn cloud(arguments: &Arguments) -> Result<ExitCode, Error> {
    let capacity = arguments.number("--add-capacity", 1e-9)?;
    let options = options(arguments)?;
    let model = files::model(arguments.required("--model")?)?;
    let plan = watched(arguments, |monitor| {
        te::plan::cloud::plan(&model, capacity, &options, monitor)
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
    finish(arguments, &plan.model, &text)
}

/// Plans where to deploy VNFs anew.
pub fn placement(arguments: &Arguments) -> Result<ExitCode, Error> {
    let options = options(arguments)?;
    let model = files::model(arguments.required("--model")?)?;
    let new_sites = new_sites(&model, arguments.required("--new-sites")?)?;
    let capacitated = !arguments.flag("--ignore-capacity");
    let plan = watched(arguments, |monitor| {
        te::plan::placement::plan(&model, &new_sites, capacitated, &options, monitor)
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
    finish(arguments, &plan.model, &text)
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
    if let Some(path) = arguments.given("--planned-model") {
        files::write(Some(path), &model.to_json())?;
    }
    files::write(arguments.given("-o"), text)?;
    Ok(ExitCode::SUCCESS)
}
