//! `switchboard-te check`.

use std::process::ExitCode;

use te::error::Error;

use crate::arguments::Arguments;
use crate::files;

/// Verifies a result; exit 1 on any violation.
pub fn run(words: &[String]) -> Result<ExitCode, Error> {
    let arguments = Arguments::parse(words, &["--model", "--result"], &["-q", "--quiet"])?;
    let model = files::model(arguments.required("--model")?)?;
    let path = arguments.required("--result")?;
    let document = files::document(path)?;
    let result = te::result::read(&document, &model).map_err(|e| e.in_source(path))?;
    let report = te::check::check(&model, &result);
    for violation in &report.violations {
        eprintln!("{path}: {violation}");
    }
    if report.violations.is_empty() {
        if !arguments.flag("-q") && !arguments.flag("--quiet") {
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
