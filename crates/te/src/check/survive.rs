//! Verification of a surviving plan: the state after every single failure, rebuilt from the routes alone.
//!
//! After a failure the network finds its shortest paths anew. A route that the failure touches (it visits the failed
//! site, or a pair of its stops is joined by other links than before) is lost; what the plan lists as routes for the
//! failure comes in its place, and of the others the share `keep` stays.

use std::collections::{BTreeMap, HashSet};

use super::Report;
use super::read::{self, ResultFile};
use super::routing::{Claim, State};
use super::verdict::{FromScratch, differs, maybe};
use crate::error::{InputError, Reason};
use crate::json::{Fields, Place, Value};
use crate::model::Model;
use crate::network::Network;
use crate::result::RouteEntry;
use crate::solution::{Objective, Status};

/// A plan with backup routes.
struct Plan {
    /// The normal state; its value is that of every state.
    whole: ResultFile,
    /// Factor of the normal state alone.
    normal: f64,
    /// Whether sites fail, and not links.
    sites: bool,
    failures: Vec<Failure>,
    /// Links or sites for whose failure it says that it does not provide, since it was cut short.
    not_covered: Vec<usize>,
}

/// One failure of a plan.
struct Failure {
    /// Index of the link or site that fails.
    failed: usize,
    value: f64,
    from_scratch: FromScratch,
    moved: f64,
    /// Share of the normal routes that stays, of those that the failure leaves alone.
    keep: f64,
    /// Backup routes.
    routes: Vec<RouteEntry>,
}

fn read(document: &Value, model: &Model) -> Result<Plan, InputError> {
    let more = ["survive", "normal", "failures", "not_covered"];
    let known = [&read::HEAD[..], &more].concat();
    let root = Fields::of(Place::ROOT, document, &known)?;
    let whole = read::result(&root, model)?;
    if whole.verdict.objective != Objective::Scale {
        let message = "plans for failures maximise the factor: must be 'scale'";
        let place = root.place.name("objective");
        return Err(place.error(Reason::Contradiction, message));
    }
    let against = root.text("survive")?;
    if !["link", "site"].contains(&against) {
        let message = format!("'{against}' is unknown; known: link, site");
        let place = root.place.name("survive");
        return Err(place.error(Reason::UnknownChoice, message));
    }
    let sites = against == "site";
    let list = root.place.name("failures");
    let values = root.list("failures")?.iter().enumerate();
    let failures = values.map(|(i, value)| failure(list.index(i), value, model, sites));
    Ok(Plan {
        normal: root.not_negative("normal")?,
        failures: failures.collect::<Result<_, _>>()?,
        not_covered: not_covered(&root, model, sites, whole.verdict.status)?,
        whole,
        sites,
    })
}

fn failure(
    place: Place<'_>,
    value: &Value,
    model: &Model,
    sites: bool,
) -> Result<Failure, InputError> {
    let known = [
        "failed",
        "value",
        "from_scratch",
        "from_scratch_bound",
        "moved_share",
        "keep",
        "routes",
    ];
    let fields = Fields::of(place, value, &known)?;
    Ok(Failure {
        from_scratch: FromScratch {
            value: maybe(&fields, "from_scratch")?.unwrap_or(f64::INFINITY),
            bound: maybe(&fields, "from_scratch_bound")?.unwrap_or(f64::INFINITY),
        },
        failed: find(model, sites, fields.text("failed")?, place.name("failed"))?,
        value: fields.not_negative("value")?,
        moved: fields.not_negative("moved_share")?,
        keep: fields.not_negative("keep")?,
        routes: read::routes(&fields, model)?,
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
fn not_covered(
    root: &Fields<'_>,
    model: &Model,
    sites: bool,
    status: Status,
) -> Result<Vec<usize>, InputError> {
    let place = root.place.name("not_covered");
    if root.optional("not_covered").is_none() {
        return Ok(Vec::new());
    }
    if !matches!(status, Status::Interrupted | Status::TimeLimit) {
        let status = status.name();
        let message = format!("is for plans that were cut short, and the status is '{status}'");
        return Err(place.error(Reason::Contradiction, message));
    }
    let list = root.list("not_covered")?;
    if list.is_empty() {
        return Err(place.error(Reason::WrongLength, "is empty; leave it out"));
    }
    let read = |(i, value): (usize, &Value)| {
        let place = place.index(i);
        find(model, sites, place.text(value)?, place)
    };
    list.iter().enumerate().map(read).collect()
}

/// Checks the normal state and the state after every failure at the plan's value.
pub fn check(model: &Model, document: &Value, told: &dyn Fn(f64)) -> Result<Report, InputError> {
    let plan = read(document, model)?;
    let before = Network::of(model);
    let normal = State::new(model, &before);
    let verdict = &plan.whole.verdict;
    let found = normal.evaluate(verdict, &plan.whole.routes, "/routes");
    let mut violations = verdict.contradictions();
    violations.extend(plan.whole.ignored(model));
    violations.extend(plan.whole.figures.differ(&found, ""));
    violations.extend(differs("/normal", plan.normal, found.value));
    let values = plan.failures.iter().map(|f| f.value);
    let least = values.fold(plan.normal, f64::min);
    violations.extend(differs("/value", verdict.value, least));
    for (i, failure) in plan.failures.iter().enumerate() {
        let after = After::new(model, &before, &plan, failure);
        violations.extend(after.check(i, &plan, failure));
        told((i + 1) as f64 / plan.failures.len() as f64);
    }
    violations.extend(covered(model, &plan));
    Ok(Report {
        value: least,
        carried_mbps: found.figures.carried_mbps,
        max_link_utilization: found.figures.max_link_utilization,
        violations: found.violations.into_iter().chain(violations).collect(),
    })
}

/// Every link or site is provided for, or named as one that is not; once.
fn covered(model: &Model, plan: &Plan) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut covered = HashSet::new();
    let name = |failed: usize| {
        if plan.sites {
            &model.sites[failed].id
        } else {
            &model.links[failed].id
        }
    };
    let stated = |list: &'static str| move |(i, failed)| (format!("/{list}/{i}"), failed);
    let failures = plan.failures.iter().map(|f| f.failed).enumerate();
    let left = plan.not_covered.iter().copied().enumerate();
    let all = failures.map(stated("failures"));
    for (pointer, failed) in all.chain(left.map(stated("not_covered"))) {
        if covered.contains(&failed) {
            let name = name(failed);
            wrong.push(format!("{pointer}: the failure of {name} stands twice"));
        }
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
        let name = name(missing);
        wrong.push(format!("/failures: the failure of {name} is missing"));
    }
    wrong
}

/// A link and the one of the opposite direction that shares its fibre: the links that stand in the same place among
/// those of their direction, of the same ends and latency, or among those that have no such partner.
fn fibre(model: &Model, link: usize) -> Vec<usize> {
    let one = &model.links[link];
    let joining = |from: usize, to: usize| -> Vec<usize> {
        let ends = |l: &usize| (model.links[*l].from, model.links[*l].to) == (from, to);
        (0..model.links.len()).filter(ends).collect()
    };
    let (mine, other) = (joining(one.from, one.to), joining(one.to, one.from));
    let equal = |latency: f64, of: &[usize]| -> Vec<usize> {
        let same = |l: &usize| model.links[*l].latency_ms == latency;
        of.iter().copied().filter(same).collect()
    };
    // How many of a latency have partners of it.
    let paired = |latency: f64| {
        equal(latency, &mine)
            .len()
            .min(equal(latency, &other).len())
    };
    let alone = |of: &[usize]| -> Vec<usize> {
        let place = |l: usize| {
            let latency = model.links[l].latency_ms;
            let before = equal(latency, of).iter().position(|e| *e == l);
            before.is_some_and(|place| place >= paired(latency))
        };
        of.iter().copied().filter(|&l| place(l)).collect()
    };
    let same = equal(one.latency_ms, &mine);
    let place = same.iter().position(|l| *l == link);
    let twin = match place.filter(|p| *p < paired(one.latency_ms)) {
        Some(place) => equal(one.latency_ms, &other).get(place).copied(),
        None => {
            let place = alone(&mine).iter().position(|l| *l == link);
            place.and_then(|place| alone(&other).get(place).copied())
        }
    };
    std::iter::once(link).chain(twin).collect()
}

/// The network and the model after a failure.
struct After<'a> {
    name: &'a str,
    before: &'a Network,
    network: Network,
    model: Model,
    site: Option<usize>,
}

impl<'a> After<'a> {
    fn new(model: &'a Model, before: &'a Network, plan: &Plan, failure: &Failure) -> After<'a> {
        let (name, site, links) = if plan.sites {
            let site = failure.failed;
            (&model.sites[site].id, Some(site), Vec::new())
        } else {
            let link = failure.failed;
            (&model.links[link].id, None, fibre(model, link))
        };
        let alive = (0..model.links.len()).map(|l| !links.contains(&l));
        let alive: Vec<bool> = alive.collect();
        let mut changed = model.clone();
        for vnf in &mut changed.vnfs {
            vnf.deployments.retain(|d| Some(d.site) != site);
        }
        for chain in &mut changed.chains {
            let share = chain.survive_share.unwrap_or(1.0);
            let both = chain.forward_mbps.iter_mut().chain(&mut chain.reverse_mbps);
            both.for_each(|mbps| *mbps *= share);
            chain.limits.max_routes = None;
        }
        After {
            name,
            before,
            network: Network::without(model, &alive),
            model: changed,
            site,
        }
    }

    /// Whether a normal route still works as it did.
    fn stands(&self, route: &RouteEntry) -> bool {
        let mut stops = vec![route.ingress];
        stops.extend(route.sites.iter().map(|s| self.model.sites[*s].node));
        stops.push(route.egress);
        let same = |a: usize, b: usize| self.before.path(a, b).eq(self.network.path(a, b));
        !route.sites.iter().any(|s| Some(*s) == self.site)
            && stops
                .windows(2)
                .all(|h| same(h[0], h[1]) && same(h[1], h[0]))
    }

    fn check(&self, index: usize, plan: &Plan, failure: &Failure) -> Vec<String> {
        let place = format!("/failures/{index}");
        let survives = |r: &&RouteEntry| self.model.chains[r.chain].survive_share != Some(0.0);
        let normal = plan.whole.routes.iter().filter(survives);
        let kept = normal.clone().filter(|r| self.stands(r));
        let mut routes: BTreeMap<Key<'_>, f64> = BTreeMap::new();
        for route in kept.clone().filter(|_| failure.keep > 0.0) {
            *routes.entry(key(route)).or_default() += failure.keep * route.fraction;
        }
        let mut wrong = Vec::new();
        let mut backups = HashSet::new();
        for (i, route) in failure.routes.iter().enumerate() {
            *routes.entry(key(route)).or_default() += route.fraction;
            if !backups.insert(key(route)) {
                wrong.push(format!("{place}/routes/{i}: the same route stands twice"));
            }
            if !survives(&route) {
                wrong.push(format!("{place}/routes/{i}: the chain need not survive"));
            }
        }
        let state = State::new(&self.model, &self.network);
        let all: Vec<RouteEntry> = routes.iter().map(|(key, x)| entry(key, *x)).collect();
        let claim = Claim::of_scale(failure.value);
        let found = state.evaluate(claim, &all, &format!("{place}/routes"));
        let after = |v: String| format!("{v} (after the failure of {})", self.name);
        wrong.extend(found.violations.into_iter().map(after));
        // Where nothing is left to carry any factor holds, and that of the plan is stated.
        let bound = plan.whole.verdict.bound;
        wrong.extend(
            failure
                .from_scratch
                .contradictions(&place, found.value, bound),
        );
        let value = if found.value.is_finite() {
            found.value
        } else {
            plan.whole.verdict.value
        };
        wrong.extend(differs(&format!("{place}/value"), failure.value, value));
        if kept.count() == 0 && failure.keep != 1.0 {
            let message = "the failure leaves no route alone, so 1 is to be stated";
            wrong.push(format!("{place}/keep: {message}"));
        }
        let before: BTreeMap<Key<'_>, f64> = normal.map(|r| (key(r), r.fraction)).collect();
        let moved = moved(&self.model, &before, &routes);
        let pointer = format!("{place}/moved_share");
        wrong.extend(differs(&pointer, failure.moved, moved));
        wrong
    }
}

/// Chain, ends and sites of a route.
type Key<'a> = (usize, usize, usize, &'a [usize]);

fn key(route: &RouteEntry) -> Key<'_> {
    (route.chain, route.ingress, route.egress, &route.sites)
}

fn entry(&(chain, ingress, egress, sites): &Key<'_>, fraction: f64) -> RouteEntry {
    RouteEntry {
        chain,
        fraction,
        sites: sites.to_vec(),
        ingress,
        egress,
    }
}

/// Share of the demand that is not on the routes of the normal state, of the chains that have routes.
fn moved(model: &Model, before: &BTreeMap<Key<'_>, f64>, now: &BTreeMap<Key<'_>, f64>) -> f64 {
    let demand = |chain: usize| model.chains[chain].demand_mbps();
    let more = |(key, share): (&Key<'_>, &f64)| {
        demand(key.0) * (share - before.get(key).copied().unwrap_or(0.0)).max(0.0)
    };
    let chains: HashSet<usize> = now.keys().map(|k| k.0).collect();
    let total: f64 = chains.into_iter().map(demand).sum();
    if total > 0.0 {
        now.iter().map(more).sum::<f64>() / total
    } else {
        0.0
    }
}
