//! Verification of plans: they are carried out on the model that they were made for, and their routes checked on that.

use std::collections::BTreeSet;

use super::read::{self, ResultFile};
use super::routing::State;
use super::verdict::{differs, maybe};
use super::{Report, TOLERANCE, whole};
use crate::error::{InputError, Reason};
use crate::json::{Fields, Place, Value};
use crate::model::{Deployment, Model};
use crate::network::Network;
use crate::solution::Objective;

fn result(
    root: &Fields<'_>,
    model: &Model,
    objective: Objective,
) -> Result<ResultFile, InputError> {
    let result = read::result(root, model)?;
    if result.verdict.objective == objective {
        return Ok(result);
    }
    let message = format!("must be '{}' for this plan", objective.name());
    let place = root.place.name("objective");
    Err(place.error(Reason::Contradiction, message))
}

/// Checks a plan of cloud capacity against the model without it.
pub fn cloud(model: &Model, document: &Value) -> Result<Report, InputError> {
    let more = ["add_capacity", "uniform", "added"];
    let root = Fields::of(Place::ROOT, document, &[&read::HEAD[..], &more].concat())?;
    let result = result(&root, model, Objective::Scale)?;
    let (asked, uniform) = (
        root.positive("add_capacity")?,
        root.not_negative("uniform")?,
    );
    let mut added: Vec<Option<f64>> = vec![None; model.sites.len()];
    let list = root.place.name("added");
    for (i, value) in root.list("added")?.iter().enumerate() {
        let fields = Fields::of(list.index(i), value, &["site", "capacity"])?;
        let site = read::site(&fields, "site", model)?;
        if added[site]
            .replace(fields.not_negative("capacity")?)
            .is_some()
        {
            let place = fields.place.name("site");
            return Err(place.error(Reason::Duplicate, "the site is already in this list"));
        }
    }
    let mut planned = model.clone();
    for vnf in &mut planned.vnfs {
        for deployment in &mut vnf.deployments {
            let more = added[deployment.site].unwrap_or(0.0);
            // A VNF keeps its share of its site.
            deployment.capacity +=
                deployment.capacity * more / model.sites[deployment.site].capacity;
        }
    }
    for (site, more) in planned.sites.iter_mut().zip(&added) {
        site.capacity += more.unwrap_or(0.0);
    }
    let network = Network::of(model);
    let (mut report, _) = whole(&State::new(&planned, &network), &result);
    let total: f64 = added.iter().flatten().sum();
    report
        .violations
        .extend(differs("/add_capacity", asked, total));
    if let Some(missing) = added.iter().position(Option::is_none) {
        let id = &model.sites[missing].id;
        report
            .violations
            .push(format!("/added: the site {id} is missing"));
    }
    // An even spread is a plan too.
    let bound = result.verdict.bound.unwrap_or(f64::INFINITY);
    let most = result.verdict.value.min(bound);
    if uniform > most * (1.0 + TOLERANCE) {
        let message = format!("{uniform} with an even spread is better than the plan, {most}");
        report.violations.push(format!("/uniform: {message}"));
    }
    Ok(report)
}

/// A new deployment and the load that the routes put there.
struct Placed {
    vnf: usize,
    site: usize,
    load: f64,
}

/// Checks a plan of new deployments against the model without it.
pub fn placement(model: &Model, document: &Value) -> Result<Report, InputError> {
    let more = ["new_sites", "ignore_capacity", "before", "placed"];
    let root = Fields::of(Place::ROOT, document, &[&read::HEAD[..], &more].concat())?;
    let result = result(&root, model, Objective::Latency)?;
    let before = maybe(&root, "before")?;
    let place = root.place.name("ignore_capacity");
    let Value::Bool(ignore) = root.required("ignore_capacity")? else {
        return Err(place.error(Reason::WrongType, "must be true or false"));
    };
    let asked = asked(&root, model)?;
    let placed = placed(&root, model)?;
    let mut planned = model.clone();
    for new in &placed {
        planned.vnfs[new.vnf].deployments.push(Deployment {
            site: new.site,
            capacity: model.sites[new.site].capacity,
        });
    }
    let network = Network::of(model);
    let state = State {
        capacities: !ignore,
        ..State::new(&planned, &network)
    };
    let (mut report, found) = whole(&state, &result);
    for (i, new) in placed.iter().enumerate() {
        let load = found.vnfs.get(&(new.vnf, new.site)).copied();
        let pointer = format!("/placed/{i}/capacity");
        let wrong = differs(&pointer, new.load, load.unwrap_or(0.0));
        report.violations.extend(wrong);
    }
    for (vnf, asked) in asked.iter().enumerate() {
        let found = placed.iter().filter(|p| p.vnf == vnf).count();
        if found != *asked {
            let id = &model.vnfs[vnf].id;
            let message = format!("{found} new sites of VNF {id}, {asked} are asked for");
            report.violations.push(format!("/placed: {message}"));
        }
    }
    // To leave the new sites unused is a plan too.
    if let (Some(before), Some(bound)) = (before, result.verdict.bound)
        && before < bound * (1.0 - TOLERANCE)
    {
        let message = format!("{before} is less than the bound {bound} on any plan");
        report.violations.push(format!("/before: {message}"));
    }
    Ok(report)
}

/// How many new sites each VNF was to get.
fn asked(root: &Fields<'_>, model: &Model) -> Result<Vec<usize>, InputError> {
    let mut asked = vec![0; model.vnfs.len()];
    let list = root.place.name("new_sites");
    for (i, value) in root.list("new_sites")?.iter().enumerate() {
        let fields = Fields::of(list.index(i), value, &["vnf", "sites"])?;
        let (vnf, sites) = (read::vnf(&fields, "vnf", model)?, fields.positive("sites")?);
        if asked[vnf] > 0 {
            let place = fields.place.name("vnf");
            return Err(place.error(Reason::Duplicate, "the VNF is already in this list"));
        }
        if sites.fract() != 0.0 || sites > model.sites.len() as f64 {
            let place = fields.place.name("sites");
            let message = format!("{sites} is no number of the model's sites");
            return Err(place.error(Reason::OutOfRange, message));
        }
        asked[vnf] = sites as usize;
    }
    Ok(asked)
}

fn placed(root: &Fields<'_>, model: &Model) -> Result<Vec<Placed>, InputError> {
    let mut placed = Vec::new();
    let mut known = BTreeSet::new();
    let list = root.place.name("placed");
    for (i, value) in root.list("placed")?.iter().enumerate() {
        let fields = Fields::of(list.index(i), value, &["vnf", "site", "capacity"])?;
        let new = Placed {
            vnf: read::vnf(&fields, "vnf", model)?,
            site: read::site(&fields, "site", model)?,
            load: fields.not_negative("capacity")?,
        };
        let mut there = model.vnfs[new.vnf].deployments.iter();
        if there.any(|d| d.site == new.site) || !known.insert((new.vnf, new.site)) {
            let place = fields.place.name("site");
            return Err(place.error(Reason::Duplicate, "the VNF is already deployed there"));
        }
        placed.push(new);
    }
    Ok(placed)
}
