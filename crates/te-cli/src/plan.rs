//! `switchboard-te plan cloud` and `plan placement`.

use std::process::ExitCode;

use te::error::{Error, InputError, Reason};
use te::model::Model;

use crate::arguments::{Arguments, refuse};
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
    finish(arguments, &plan.model, &te::plan::write::cloud(&plan)?)
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
    finish(arguments, &plan.model, &te::plan::write::placement(&plan)?)
}

/// `vnf=N,vnf=N`, and `*=N` for all that are not named.
fn new_sites(model: &Model, text: &str) -> Result<Vec<usize>, InputError> {
    let refuse = |reason, message: String| Err(refuse("--new-sites", reason, message));
    let mut all = None;
    let mut counts = vec![None; model.vnfs.len()];
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
        let named = match model.vnfs.iter().position(|v| v.id == vnf) {
            _ if vnf == "*" => &mut all,
            Some(index) => &mut counts[index],
            None => {
                return refuse(
                    Reason::DanglingReference,
                    format!("there is no VNF '{vnf}' in this model"),
                );
            }
        };
        if named.replace(count).is_some() {
            return refuse(Reason::Duplicate, format!("'{vnf}' is given twice"));
        }
    }
    let count = |named: Option<usize>| named.or(all).unwrap_or(0);
    Ok(counts.into_iter().map(count).collect())
}

fn finish(arguments: &Arguments, model: &Model, text: &str) -> Result<ExitCode, Error> {
    if let Some(path) = arguments.given("--planned-model") {
        files::write(Some(path), &model.to_json())?;
    }
    files::write(arguments.given("-o"), text)?;
    Ok(ExitCode::SUCCESS)
}
