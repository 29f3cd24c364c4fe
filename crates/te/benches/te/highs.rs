//! The paper's arc formulation given to HiGHS, on the same models.

use std::time::Instant;

use te::arc::Arc;
use te::highs::{Method, Outcome};
use te::instance::{Demand, Instance};
use te::model::Model;
use te::solution::Objective;

use super::measure::{repeated, workload};
use super::report::Report;

/// Longest run of HiGHS, seconds.
const LIMIT: f64 = 240.0;

/// Gap to which ours is solved: that at which HiGHS ends.
const GAP: f64 = 1e-6;

/// Numbers of chains, their rows, and how often each side is solved. HiGHS's time hardly varies, and its largest program
/// takes more than a minute.
pub const SIZES: [(usize, &str, usize); 4] = [
    (100, "lp_vs_arc_100", 3),
    (200, "lp_vs_arc_200", 3),
    (300, "lp_vs_arc_300", 3),
    (1000, "lp_vs_arc_1000", 1),
];

/// The arc formulation given to HiGHS as suits it best of what was tried: shares between 0 and 1, rows in units of their
/// capacity, a minimisation, interior point without crossover.
pub fn measure(backbone: &Model, (chains, name, times): (usize, &str, usize), out: &mut Report) {
    let model = workload(backbone, |o| o.chains = chains);
    let mine = repeated(&model, Objective::Scale, GAP, 9);
    let mut theirs = Vec::new();
    let (mut note, mut proved) = (String::new(), true);
    for _ in 0..times {
        let start = Instant::now();
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        let arc = Arc::new(&instance, Objective::Scale).expect("no limits");
        let outcome = te::highs::solve(&arc.program, Method::InteriorPoint, LIMIT);
        theirs.push(start.elapsed().as_secs_f64());
        let columns = arc.program.cost.len();
        note = match outcome {
            Outcome::Optimal(other, _) => {
                let other = arc.value(other);
                let apart = (mine.value - other).abs().max((mine.bound - other).abs()) / other;
                assert!(apart <= GAP, "the two optima differ by {apart:e}");
                format!(
                    "HiGHS IPM, arc formulation, {columns} variables; optimal, from our value and bound by {apart:.0e}"
                )
            }
            other => {
                proved = false;
                format!(
                    "HiGHS IPM, arc formulation, {columns} variables; no optimum ({other:?}): the ratio is a lower bound"
                )
            }
        };
        if !proved {
            break;
        }
    }
    let theirs = super::median(theirs);
    let unit = if proved {
        "times as fast"
    } else {
        "times as fast at least"
    };
    out.compare(&format!("lp_arc_{chains}_s"), mine.seconds, note, theirs);
    out.say(name, theirs / mine.seconds, unit);
}
