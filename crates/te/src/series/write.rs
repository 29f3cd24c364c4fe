//! A routed series as JSON.

use super::{Moment, Series, as_solution};
use crate::json::Writer;
use crate::model::Model;
use crate::result::{figures, routes, write_routes};
use crate::solution::{Objective, relative_gap};

/// Writes a series as the contract's result: `value` and `bound` for the worst matrix, `routes` where one routing serves
/// all, and each matrix with its own factor, what changes, and the comparison with routing it from scratch.
pub fn to_json(model: &Model, series: &Series) -> String {
    let one = series.max_change == 0.0;
    let mut writer = Writer::new();
    writer.object(|w| {
        w.name("status").text(series.status.name());
        w.name("objective").text(Objective::Scale.name());
        w.name("value").number(series.value);
        w.name("bound").number(series.bound);
        w.name("gap")
            .number(relative_gap(Objective::Scale, series.value, series.bound));
        w.name("seconds").number(series.seconds);
        w.name("max_change").number(series.max_change);
        let least =
            |of: fn(&Moment) -> f64| series.moments.iter().map(of).fold(f64::INFINITY, f64::min);
        w.name("from_scratch").number(least(|m| m.from_scratch));
        w.name("matrices").list(|w| {
            for moment in &series.moments {
                w.line().object(|w| write_moment(w, series, moment, !one));
            }
        });
        let first = &series.moments[0];
        let shared = if one {
            routes(model, &first.instance, &as_solution(series, first))
        } else {
            Vec::new()
        };
        write_routes(w, model, &shared);
    });
    writer.finish()
}

fn write_moment(w: &mut Writer, series: &Series, moment: &Moment, own_routes: bool) {
    let solution = as_solution(series, moment);
    let figures = figures(&moment.model, &moment.instance, &solution);
    w.name("matrix").text(&moment.name);
    w.name("value").number(moment.value);
    w.name("moved_share").number(moment.moved);
    w.name("from_scratch").number(moment.from_scratch);
    w.name("from_scratch_bound")
        .number(moment.from_scratch_bound);
    w.name("from_scratch_moved_share")
        .number(moment.from_scratch_moved);
    w.name("carried_mbps").number(figures.carried_mbps);
    w.name("mean_latency_ms").number(figures.mean_latency_ms);
    w.name("max_link_utilization")
        .number(figures.max_link_utilization);
    if own_routes {
        write_routes(
            w,
            &moment.model,
            &routes(&moment.model, &moment.instance, &solution),
        );
    }
}
