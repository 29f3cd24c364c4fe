//! `switchboard-te solve --survive`: routes for the normal state and for every single failure.

use std::process::ExitCode;

use te::error::Error;
use te::instance::{Demand, Instance};
use te::lp::{self, Monitor};
use te::model::Model;
use te::survive::Against;

use crate::arguments::Arguments;
use crate::files;
use crate::progress::{Printer, interrupt};

/// Routes that survive any single failure, with the backup routes of each.
pub fn solve(
    arguments: &Arguments,
    model: &Model,
    options: &lp::Options,
) -> Result<ExitCode, Error> {
    let choices = [("link", Against::Links), ("site", Against::Sites)];
    let against = arguments.choice("--survive", &choices)?;
    let instance = Instance::new(model, Demand::Full)?;
    let printer = Printer::new(arguments.is_quiet());
    let flag = interrupt();
    let report = |progress: &lp::Progress| printer.report(progress);
    let monitor = Monitor {
        report: Some(&report),
        interrupt: Some(&flag),
    };
    let plan = te::survive::solve(model, &instance, against, options, &monitor)?;
    let text = te::survive::to_json(model, &instance, against, &plan);
    files::write(arguments.given("-o"), &text)?;
    Ok(ExitCode::SUCCESS)
}
