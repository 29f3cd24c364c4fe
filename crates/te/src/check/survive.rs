//! Verification of a surviving plan: the state after every single failure, rebuilt from the routes alone.
//!
//! After a failure the network finds its shortest paths anew. A route that the failure touches (it visits the failed
//! site, or a pair of its stops is joined by other links than before) is lost; what the plan lists as routes for the
//! failure comes in its place. Where the plan says `rerouted`, its routes replace all others.

use std::collections::HashSet;

use super::{Report, TOLERANCE, check, check_with};
use crate::error::{InputError, Reason};
use crate::json::{Fields, Place, Value};
use crate::model::{Model, Site};
use crate::network::Network;
use crate::result::{ResultFile, RouteEntry, read_bound, read_routes};

/// A plan with backup routes.
#[derive(Debug, Clone, PartialEq)]
pub struct SurvivalFile {
    /// The normal state.
    pub normal: ResultFile,
    /// Whether sites fail, and not links.
    pub sites: bool,
    /// What the plan says of each failure.
    pub failures: Vec<FailureFile>,
    /// Links or sites for whose failure it says that it does not provide, since it was cut short.
    pub not_covered: Vec<usize>,
}

/// One failure of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureFile {
    /// Index of the link or site that fails.
    pub failed: usize,
    /// Stated factor after it.
    pub value: f64,
    /// Backup routes.
    pub routes: Vec<RouteEntry>,
    /// Shares of the normal routes that stay, where not all that the failure leaves alone do.
    pub keep: f64,
}

/// Whether a document is a plan with backup routes.
pub fn is_survival(document: &Value) -> bool {
    matches!(document, Value::Object(m) if m.iter().any(|(name, _)| name == "failures"))
}

/// Reads a plan against its model.
///
/// # Errors
/// The first mistake found, with its JSON pointer.
pub fn read(document: &Value, model: &Model) -> Result<SurvivalFile, InputError> {
    let normal = crate::result::read(document, model)?;
    let known = crate::result::KNOWN;
    let root = Fields::of(Place::ROOT, document, &known)?;
    let against = root.text("survive")?;
    if !["link", "site"].contains(&against) {
        let message = format!("'{against}' is unknown; known: link, site");
        return Err(root
            .place
            .name("survive")
            .error(Reason::UnknownChoice, message));
    }
    let sites = against == "site";
    let list = root.place.name("failures");
    let mut failures = Vec::new();
    for (i, value) in root.list("failures")?.iter().enumerate() {
        let known = [
            "failed",
            "value",
            "from_scratch",
            "moved_share",
            "keep",
            "routes",
        ];
        let place = list.index(i);
        let fields = Fields::of(place, value, &known)?;
        let id = fields.text("failed")?;
        let failed = find(model, sites, id, place.name("failed"))?;
        failures.push(FailureFile {
            failed,
            value: fields.not_negative("value")?,
            routes: read_routes(&fields, model)?,
            keep: fields.not_negative("keep")?,
        });
    }
    read_bound(&root)?;
    Ok(SurvivalFile {
        normal,
        sites,
        failures,
        not_covered: not_covered(&root, model, sites)?,
    })
}

fn find(model: &Model, sites: bool, id: &str, place: Place<'_>) -> Result<usize, InputError> {
    let (kind, found) = if sites {
        ("site", model.sites.iter().position(|s| s.id == id))
    } else {
        ("link", model.links.iter().position(|l| l.id == id))
    };
    found.ok_or_else(|| {
        let message = format!("there is no {kind} '{id}' in the model");
        place.error(Reason::DanglingReference, message)
    })
}

/// The failures that a plan does not provide for; only one that was cut short may have any.
fn not_covered(root: &Fields<'_>, model: &Model, sites: bool) -> Result<Vec<usize>, InputError> {
    let place = root.place.name("not_covered");
    if root.optional("not_covered").is_none() {
        return Ok(Vec::new());
    }
    let status = root.text("status")?;
    if !["interrupted", "time-limit"].contains(&status) {
        let message = format!("is for plans that were cut short, and the status is '{status}'");
        return Err(place.error(Reason::Contradiction, message));
    }
    let list = root.list("not_covered")?.iter().enumerate();
    let read = |(i, value): (usize, &Value)| {
        let place = place.index(i);
        find(model, sites, place.text(value)?, place)
    };
    list.map(read).collect()
}

/// Checks the normal state and the state after every failure at the plan's value.
pub fn check_all(model: &Model, plan: &SurvivalFile) -> Report {
    check_telling(model, plan, &|_| {})
}

/// As [`check_all`]; `told` hears after every state what share of them is done.
pub fn check_telling(model: &Model, plan: &SurvivalFile, told: &dyn Fn(f64)) -> Report {
    let mut report = check(model, &plan.normal);
    let before = Network::of(model);
    let mut covered = HashSet::new();
    for (i, failure) in plan.failures.iter().enumerate() {
        let (name, gone) = if plan.sites {
            covered.insert(failure.failed);
            (&model.sites[failure.failed].id, Vec::new())
        } else {
            let gone = fibre(model, failure.failed);
            covered.extend(&gone);
            (&model.links[failure.failed].id, gone)
        };
        if failure.value < plan.normal.value * (1.0 - TOLERANCE) {
            let message = format!("{} after it, {} in all", failure.value, plan.normal.value);
            report
                .violations
                .push(format!("/failures/{i}/value: {message}"));
        }
        let after = State::new(model, &before, plan.sites.then_some(failure.failed), &gone);
        let violations = after.check(&plan.normal, failure);
        report.violations.extend(
            violations
                .into_iter()
                .map(|v| format!("after the failure of {name}: {v}")),
        );
        told((i + 1) as f64 / plan.failures.len() as f64);
    }
    for &failed in &plan.not_covered {
        covered.extend(if plan.sites {
            vec![failed]
        } else {
            fibre(model, failed)
        });
    }
    let all = if plan.sites {
        model.sites.len()
    } else {
        model.links.len()
    };
    for missing in (0..all).filter(|f| !covered.contains(f)) {
        let name = if plan.sites {
            &model.sites[missing].id
        } else {
            &model.links[missing].id
        };
        report
            .violations
            .push(format!("/failures: the failure of {name} is missing"));
    }
    report
}

/// A link and the one of the opposite direction that shares its fibre: the links that stand in the same place among
/// those of their direction, of the same ends and latency.
fn fibre(model: &Model, link: usize) -> Vec<usize> {
    let one = &model.links[link];
    let among = |from: usize, to: usize| -> Vec<usize> {
        let alike = |l: &usize| {
            let l = &model.links[*l];
            (l.from, l.to, l.latency_ms) == (from, to, one.latency_ms)
        };
        (0..model.links.len()).filter(alike).collect()
    };
    let place = among(one.from, one.to).iter().position(|l| *l == link);
    let twin = place.and_then(|p| among(one.to, one.from).get(p).copied());
    std::iter::once(link).chain(twin).collect()
}

/// The network and the model after a failure.
struct State<'a> {
    before: &'a Network,
    after: Network,
    model: Model,
    site: Option<usize>,
}

impl<'a> State<'a> {
    fn new(model: &Model, before: &'a Network, site: Option<usize>, links: &[usize]) -> State<'a> {
        let alive: Vec<bool> = (0..model.links.len())
            .map(|l| !links.contains(&l))
            .collect();
        let mut changed = model.clone();
        for vnf in &mut changed.vnfs {
            vnf.deployments.retain(|d| Some(d.site) != site);
        }
        for chain in &mut changed.chains {
            let share = chain.survive_share.unwrap_or(1.0);
            let both = chain.forward_mbps.iter_mut().chain(&mut chain.reverse_mbps);
            both.for_each(|mbps| *mbps *= share);
            chain.minimum_share = Some(if share > 0.0 { 1.0 } else { 0.0 });
            chain.limits.max_routes = None;
        }
        State {
            before,
            after: Network::without(model, &alive),
            model: changed,
            site,
        }
    }

    /// Whether a normal route still works as it did.
    fn stands(&self, route: &RouteEntry) -> bool {
        let place = |s: &usize| self.model.sites.get(*s).map_or(0, |site: &Site| site.node);
        let mut stops = vec![route.ingress];
        stops.extend(route.sites.iter().map(place));
        stops.push(route.egress);
        let same = |a: usize, b: usize| self.before.path(a, b).eq(self.after.path(a, b));
        !route.sites.iter().any(|s| Some(*s) == self.site)
            && stops
                .windows(2)
                .all(|h| same(h[0], h[1]) && same(h[1], h[0]))
    }

    fn check(&self, normal: &ResultFile, failure: &FailureFile) -> Vec<String> {
        let survives = |r: &&RouteEntry| self.model.chains[r.chain].survive_share != Some(0.0);
        let kept = normal
            .routes
            .iter()
            .filter(|r| self.stands(r))
            .filter(survives)
            .map(|r| RouteEntry {
                fraction: failure.keep * r.fraction,
                ..r.clone()
            });
        let state = ResultFile {
            objective: "scale".into(),
            partial: false,
            value: failure.value,
            bound: None,
            routes: kept.chain(failure.routes.iter().cloned()).collect(),
        };
        check_with(&self.model, &self.after, &state).violations
    }
}
