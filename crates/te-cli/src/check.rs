//! `switchboard-te check`.

use std::process::ExitCode;

use te::check::{Report, survive};
use te::error::{Error, InputError, Reason};
use te::json::Value;
use te::model::Model;

use crate::arguments::Arguments;
use crate::files;
use crate::progress::telling;

/// Verifies a result; exit 1 on any violation.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let model = files::model(arguments.required("--model")?)?;
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
) -> Result<Report, Error> {
    let series = te::check::series::is_series(document);
    let Some(list) = arguments.given("--demands") else {
        if series {
            let message = "is the result for a series; give its matrices with --demands";
            return Err(InputError::new("/matrices", Reason::Contradiction, message)
                .in_source(path)
                .into());
        }
        if survive::is_survival(document) {
            let plan = survive::read(document, model).map_err(|e| e.in_source(path))?;
            return Ok(survive::check_telling(model, &plan, told));
        }
        let result = te::result::read(document, model).map_err(|e| e.in_source(path))?;
        return Ok(te::check::check(model, &result));
    };
    if !series {
        let message = "is missing, so this is no result for a series; leave --demands out";
        return Err(InputError::new("/matrices", Reason::MissingField, message)
            .in_source(path)
            .into());
    }
    let matrices = crate::series::matrices(list, model)?;
    let result =
        te::check::series::read(document, model, &matrices).map_err(|e| e.in_source(path))?;
    Ok(te::check::series::check_telling(
        model, &matrices, &result, told,
    ))
}
