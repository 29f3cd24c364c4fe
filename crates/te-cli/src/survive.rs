//! `switchboard-te solve --survive`: routes for the normal state and for every single failure.

use std::process::ExitCode;

use te::error::Error;
use te::instance::{Demand, Instance};
use te::lp;
use te::model::Model;
use te::survive::Against;

use crate::arguments::Arguments;
use crate::files;
use crate::progress::watched;

/// Routes that survive any single failure, with the backup routes of each.
pub fn solve(
    arguments: &Arguments,
    model: &Model,
    options: &lp::Options,
) -> Result<ExitCode, Error> {
    let choices = [("link", Against::Links), ("site", Against::Sites)];
    let against = arguments.choice("--survive", &choices)?;
    let instance = Instance::new(model, Demand::Full)?;
    let plan = watched(arguments, |monitor| {
        te::survive::solve(model, &instance, against, options, monitor)
    })?;
    let text = te::survive::to_json(model, &instance, against, &plan);
    files::write(arguments.given("-o"), &text)?;
    Ok(ExitCode::SUCCESS)
}
