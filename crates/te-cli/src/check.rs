//! `switchboard-te check`.

use std::process::ExitCode;

use te::check::Report;
use te::error::{Error, InputError};
use te::json::Value;
use te::model::Model;

use crate::arguments::Arguments;
use crate::files;
use crate::progress::telling;

/// Verifies a result; exit 1 on any violation, 3 where the model alone breaks a limit.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let model = files::model(arguments.required("--model")?)?;
    // No result for such a model holds.
    te::infeasible::background(&model)?;
    let path = arguments.required("--result")?;
    let document = files::document(path)?;
    let report = telling(arguments, |told| {
        report(arguments, &model, &document, path, told)
    })?;
    for violation in &report.violations {
        eprintln!("{path}: {violation}");
    }
    if report.violations.is_empty() {
        if !arguments.is_quiet() {
            eprintln!(
                "{path}: holds; value {}, carried {} Mbit/s, largest link utilisation {:.4}",
                report.value, report.carried_mbps, report.max_link_utilization
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{path}: {} violations", report.violations.len());
    Ok(ExitCode::from(1))
}

fn report(
    arguments: &Arguments,
    model: &Model,
    document: &Value,
    path: &str,
    told: &dyn Fn(f64),
) -> Result<Report, InputError> {
    let matrices = match arguments.given("--demands") {
        Some(list) => crate::series::matrices(list, model)?,
        None => Vec::new(),
    };
    te::check::check(model, document, &matrices, told).map_err(|e| e.in_source(path))
}
