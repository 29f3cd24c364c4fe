//! Plans for failures as JSON.

use super::{Against, Contingency, Survivable};
use crate::instance::Instance;
use crate::json::Writer;
use crate::model::Model;
use crate::result::{routes, write_head, write_routes};
use crate::solution::{Objective, Solution, Status};

/// Writes a plan as the contract's result: the normal routing, and for each failure its backup routes.
pub fn to_json(model: &Model, instance: &Instance, against: Against, plan: &Survivable) -> String {
    let mut writer = Writer::new();
    writer.object(|w| {
        write_head(w, model, instance, &plan.solution);
        w.name("survive").text(match against {
            Against::Links => "link",
            Against::Sites => "site",
        });
        w.name("normal").number(plan.normal);
        if !plan.not_covered.is_empty() {
            w.name("not_covered")
                .texts(plan.not_covered.iter().map(String::as_str));
        }
        w.name("failures").list(|w| {
            for failure in &plan.failures {
                w.line().object(|w| write_failure(w, model, failure));
            }
        });
        write_routes(w, model, &routes(model, instance, &plan.solution));
    });
    writer.finish()
}

fn write_failure(w: &mut Writer, model: &Model, failure: &Contingency) {
    let backup = Solution {
        relaxed: None,
        status: Status::Feasible,
        objective: Objective::Scale,
        value: failure.value,
        bound: None,
        seconds: 0.0,
        flows: failure.flows.clone(),
    };
    w.name("failed").text(&failure.name);
    w.name("value").number(failure.value);
    w.name("from_scratch").number(failure.from_scratch);
    w.name("from_scratch_bound")
        .number(failure.from_scratch_bound);
    w.name("moved_share").number(failure.moved);
    w.name("keep").number(failure.keep);
    write_routes(w, model, &routes(model, &failure.instance, &backup));
}
