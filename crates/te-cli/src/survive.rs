//! `switchboard-te solve --survive`: routes for the normal state and for every single failure.

use std::process::ExitCode;

use te::error::Error;
use te::instance::{Demand, Instance};
use te::json::Writer;
use te::lp::{self, Monitor};
use te::model::Model;
use te::solution::{Objective, Solution, Status};
use te::survive::{Against, Contingency};

use crate::arguments::Arguments;
use crate::files;
use crate::progress::{Printer, interrupt};
use crate::solve::is_quiet;

/// Routes that survive any single failure, with the backup routes of each.
pub fn solve(
    arguments: &Arguments,
    model: &Model,
    options: &lp::Options,
) -> Result<ExitCode, Error> {
    let choices = [("link", Against::Links), ("site", Against::Sites)];
    let against = arguments.choice("--survive", Against::Links, &choices)?;
    let instance = Instance::new(model, Demand::Full)?;
    let printer = Printer::new(is_quiet(arguments));
    let flag = interrupt();
    let report = |progress: &lp::Progress| printer.report(progress);
    let monitor = Monitor {
        report: Some(&report),
        interrupt: Some(&flag),
    };
    let plan = te::survive::solve(model, &instance, against, options, &monitor)?;
    let mut writer = Writer::new();
    writer.object(|w| {
        te::result::write_head(w, model, &instance, &plan.solution);
        w.name("failures").list(|w| {
            plan.failures
                .iter()
                .for_each(|f| write_failure(w, model, f))
        });
        te::result::write_routes(
            w,
            model,
            &te::result::routes(model, &instance, &plan.solution),
        );
    });
    files::write(arguments.get("-o"), &writer.finish())?;
    Ok(ExitCode::SUCCESS)
}

fn write_failure(w: &mut Writer, model: &Model, failure: &Contingency) {
    let moved = Solution {
        status: Status::Feasible,
        objective: Objective::Scale,
        value: failure.value,
        bound: None,
        seconds: 0.0,
        flows: failure.flows.clone(),
    };
    w.line().object(|w| {
        w.name("failed")
            .text(&failure.name)
            .name("value")
            .number(failure.value);
        w.name("from_scratch")
            .number(failure.from_scratch)
            .name("moved_share")
            .number(failure.moved);
        te::result::write_routes(
            w,
            model,
            &te::result::routes(model, &failure.instance, &moved),
        );
    });
}
