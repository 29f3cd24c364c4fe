//! Plans as JSON.

use super::cloud::CloudPlan;
use super::placement::PlacementPlan;
use crate::error::Infeasible;
use crate::instance::{Demand, Instance};
use crate::json::Writer;
use crate::model::Model;
use crate::result::{routes, write_head, write_routes};
use crate::solution::Solution;

/// Writes a plan of cloud capacity as the contract's result.
///
/// # Errors
/// A planned model in which background traffic alone overfills a link.
pub fn cloud(plan: &CloudPlan) -> Result<String, Infeasible> {
    written(&plan.model, &plan.solution, |w| {
        w.name("add_capacity").number(plan.capacity);
        w.name("uniform").number(plan.uniform).line();
        w.name("added").list(|w| {
            for (site, added) in plan.model.sites.iter().zip(&plan.added) {
                w.object(|w| {
                    w.name("site").text(&site.id);
                    w.name("capacity").number(*added);
                });
            }
        });
    })
}

/// Writes a plan of new deployments as the contract's result.
///
/// # Errors
/// As [`cloud`].
pub fn placement(plan: &PlacementPlan) -> Result<String, Infeasible> {
    let vnfs = &plan.model.vnfs;
    written(&plan.model, &plan.solution, |w| {
        w.name("ignore_capacity").bool(!plan.capacitated);
        w.name("before").number(plan.before).line();
        w.name("new_sites").list(|w| {
            for (vnf, sites) in vnfs.iter().zip(&plan.new_sites).filter(|(_, n)| **n > 0) {
                w.object(|w| {
                    w.name("vnf").text(&vnf.id);
                    w.name("sites").number(*sites as f64);
                });
            }
        });
        w.line().name("placed").list(|w| {
            for &(vnf, site, load) in &plan.placed {
                w.object(|w| {
                    w.name("vnf").text(&vnfs[vnf].id);
                    w.name("site").text(&plan.model.sites[site].id);
                    w.name("capacity").number(load);
                });
            }
        });
    })
}

fn written(
    model: &Model,
    solution: &Solution,
    extra: impl FnOnce(&mut Writer),
) -> Result<String, Infeasible> {
    let instance = Instance::new(model, Demand::Full)?;
    let mut writer = Writer::new();
    writer.object(|w| {
        write_head(w, model, &instance, solution);
        extra(w);
        write_routes(w, model, &routes(model, &instance, solution));
    });
    Ok(writer.finish())
}
