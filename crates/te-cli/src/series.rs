//! `switchboard-te solve --demands`: routes for a series of demand matrices.

use std::path::Path;
use std::process::ExitCode;

use te::error::{Error, InputError, Reason};
use te::lp;
use te::model::Model;
use te::series::{self, Matrix};

use crate::arguments::{Arguments, refuse};
use crate::files;
use crate::progress::watched;

/// Reads the matrices of a comma-separated list of files.
pub fn matrices(list: &str, model: &Model) -> Result<Vec<Matrix>, InputError> {
    let mut matrices = Vec::new();
    for path in list.split(',') {
        if path.is_empty() {
            let message = format!("'{list}' has an empty file name");
            return Err(refuse("--demands", Reason::MissingField, message));
        }
        let name = Path::new(path)
            .file_stem()
            .map_or(path.into(), |stem| stem.to_string_lossy());
        let document = files::document(path)?;
        matrices.extend(series::read(&document, model, &name).map_err(|e| e.in_source(path))?);
    }
    series::check_names(&matrices).map_err(|e| e.in_source(list))?;
    Ok(matrices)
}

/// Solves a series and writes its result.
pub fn solve(
    arguments: &Arguments,
    model: &Model,
    options: &lp::Options,
) -> Result<ExitCode, Error> {
    let matrices = matrices(arguments.required("--demands")?, model)?;
    let max_change = arguments.optional_share("--max-change")?.unwrap_or(0.0);
    let solved = watched(arguments, |monitor| {
        series::solve(model, &matrices, max_change, options, monitor)
    })?;
    files::write(arguments.given("-o"), &series::to_json(model, &solved))?;
    Ok(ExitCode::SUCCESS)
}
