//! Solutions as the contract's JSON, and results read back for checking.

use std::collections::BTreeMap;

use crate::error::{InputError, Reason};
use crate::instance::Instance;
use crate::json::{Fields, Place, Value, Writer};
use crate::model::{Ends, Model};
use crate::solution::{Objective, Solution, Status, loads};

/// One route of a result file.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteEntry {
    /// Index of the chain in the model.
    pub chain: usize,
    /// Share of the chain's (scaled) demand.
    pub fraction: f64,
    /// Site of each VNF in order.
    pub sites: Vec<usize>,
    /// Ingress node.
    pub ingress: usize,
    /// Egress node.
    pub egress: usize,
}

/// A result file.
#[derive(Debug, Clone, PartialEq)]
pub struct ResultFile {
    /// The objective's name.
    pub objective: String,
    /// Whether it says that demand is left over which should have been carried.
    pub partial: bool,
    /// Stated value.
    pub value: f64,
    /// Stated bound, where there is one.
    pub bound: Option<f64>,
    /// Routes.
    pub routes: Vec<RouteEntry>,
}

/// The routes of a solution by chain; parts of a chain on the same route are added up.
pub fn routes(model: &Model, instance: &Instance, solution: &Solution) -> Vec<RouteEntry> {
    type Key = (usize, usize, usize, Vec<usize>);
    let mut merged: BTreeMap<Key, f64> = BTreeMap::new();
    for flow in &solution.flows {
        let commodity = &instance.commodities[flow.commodity];
        let node = |place: u32| instance.node_at[place as usize] as usize;
        let sites = flow.route.sites.iter().map(|&s| s as usize).collect();
        let key = (
            commodity.chain as usize,
            node(flow.route.source),
            node(flow.route.sink),
            sites,
        );
        *merged.entry(key).or_default() += flow.fraction * commodity.share;
    }
    debug_assert!(merged.keys().all(|k| k.0 < model.chains.len()));
    merged
        .into_iter()
        .filter(|(_, fraction)| *fraction > 0.0)
        .map(|((chain, ingress, egress, sites), fraction)| RouteEntry {
            chain,
            fraction,
            sites,
            ingress,
            egress,
        })
        .collect()
}

/// Figures of a routing that the contract reports beside its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Demand carried, Mbit/s.
    pub carried_mbps: f64,
    /// Mean one-way latency over the carried demand, ms.
    pub mean_latency_ms: f64,
    /// Largest link utilisation, background included.
    pub max_link_utilization: f64,
}

/// Computes the figures of a solution.
pub fn figures(model: &Model, instance: &Instance, solution: &Solution) -> Figures {
    let factor = solution.demand_factor();
    let (mut carried, mut latency) = (0.0, 0.0);
    for flow in &solution.flows {
        let commodity = &instance.commodities[flow.commodity];
        let mbps = flow.fraction * commodity.demand * factor;
        carried += mbps;
        latency += mbps * instance.latency_ms(&flow.route);
    }
    let loads = loads(instance, &solution.flows);
    let utilization = model
        .links
        .iter()
        .zip(&loads)
        .map(|(link, load)| (link.background_mbps + factor * load) / link.bandwidth_mbps);
    Figures {
        carried_mbps: carried,
        mean_latency_ms: if carried > 0.0 {
            latency / carried
        } else {
            0.0
        },
        max_link_utilization: utilization.fold(0.0, f64::max),
    }
}

/// Writes a solution as the contract's result.
pub fn to_json(model: &Model, instance: &Instance, solution: &Solution) -> String {
    let mut writer = Writer::new();
    writer.object(|w| {
        write_head(w, model, instance, solution);
        write_routes(w, model, &routes(model, instance, solution));
    });
    writer.finish()
}

/// Writes the members of a result that come before its routes.
pub fn write_head(w: &mut Writer, model: &Model, instance: &Instance, solution: &Solution) {
    let figures = figures(model, instance, solution);
    let partial = solution.leaves_demand(instance);
    w.name("status").text(solution.status.name());
    if partial && matches!(solution.status, Status::Interrupted | Status::TimeLimit) {
        w.name("partial").bool(true);
    }
    w.name("objective").text(solution.objective.name());
    w.name("value").number(solution.value);
    w.name("bound").number(solution.bound.unwrap_or(f64::NAN));
    // What is carried in part travels less than the bound, which is for all of the demand.
    let comparable = !partial || solution.objective != Objective::Latency;
    let gap = solution.gap().filter(|_| comparable);
    w.name("gap").number(gap.unwrap_or(f64::NAN));
    if solution.bound.is_some() && !instance.max_routes.is_empty() {
        // The proof relaxes what makes the problem one of whole numbers.
        w.name("bound_ignores").texts(["max_routes"]);
    }
    w.name("seconds").number(solution.seconds);
    w.name("carried_mbps").number(figures.carried_mbps);
    w.name("mean_latency_ms").number(figures.mean_latency_ms);
    w.name("max_link_utilization")
        .number(figures.max_link_utilization);
}

/// Writes the member `routes`.
pub fn write_routes(w: &mut Writer, model: &Model, routes: &[RouteEntry]) {
    w.name("routes").list(|w| {
        for route in routes {
            w.line();
            write_route(w, model, route);
        }
    });
}

/// Writes one route; the ends are named where the chain has several.
pub fn write_route(w: &mut Writer, model: &Model, route: &RouteEntry) {
    let chain = &model.chains[route.chain];
    w.object(|w| {
        w.name("chain")
            .text(&chain.id)
            .name("fraction")
            .number(route.fraction);
        w.name("sites")
            .texts(route.sites.iter().map(|&s| model.sites[s].id.as_str()));
        if chain.ingress.nodes().count() > 1 {
            w.name("ingress").text(&model.nodes[route.ingress].id);
        }
        if chain.egress.nodes().count() > 1 {
            w.name("egress").text(&model.nodes[route.egress].id);
        }
    });
}

pub(crate) const KNOWN: [&str; 20] = [
    "status",
    "partial",
    "objective",
    "value",
    "bound",
    "gap",
    "bound_ignores",
    "seconds",
    "carried_mbps",
    "mean_latency_ms",
    "max_link_utilization",
    "routes",
    "survive",
    "normal",
    "uniform",
    "added",
    "before",
    "placed",
    "failures",
    "not_covered",
];

/// Reads a result file against its model.
///
/// # Errors
/// The first mistake found, with its JSON pointer.
pub fn read(document: &Value, model: &Model) -> Result<ResultFile, InputError> {
    let root = Fields::of(Place::ROOT, document, &KNOWN)?;
    let objective = root.text("objective")?;
    if !["throughput", "scale", "latency"].contains(&objective) {
        let message = format!("'{objective}' is no objective; known: throughput, scale, latency");
        return Err(root
            .place
            .name("objective")
            .error(Reason::UnknownChoice, message));
    }
    let entries = read_routes(&root, model)?;
    let value = root.place.name("value").number(root.required("value")?)?;
    let bound = read_bound(&root)?;
    let partial = root.text("status")? == "partial" || is_partial(&root)?;
    Ok(ResultFile {
        objective: objective.to_owned(),
        partial,
        value,
        bound,
        routes: entries,
    })
}

/// Whether a result says that it was cut short before it carried what must be carried.
fn is_partial(root: &Fields<'_>) -> Result<bool, InputError> {
    let Some(value) = root.optional("partial") else {
        return Ok(false);
    };
    let place = root.place.name("partial");
    let status = root.text("status")?;
    match value {
        Value::Bool(true) if ["interrupted", "time-limit"].contains(&status) => Ok(true),
        Value::Bool(_) => {
            let message = "stands, as true, in results that were cut short only";
            Err(place.error(Reason::Contradiction, message))
        }
        _ => Err(place.error(Reason::WrongType, "must be true")),
    }
}

/// Reads the member `bound`, where there is one.
///
/// # Errors
/// A bound that is no number.
pub fn read_bound(root: &Fields<'_>) -> Result<Option<f64>, InputError> {
    match root.optional("bound") {
        None | Some(Value::Null) => Ok(None),
        Some(bound) => Ok(Some(root.place.name("bound").number(bound)?)),
    }
}

/// Reads the member `routes`.
///
/// # Errors
/// The first mistake found, with its JSON pointer.
pub fn read_routes(root: &Fields<'_>, model: &Model) -> Result<Vec<RouteEntry>, InputError> {
    let index =
        |ids: &mut dyn Iterator<Item = &String>| -> std::collections::HashMap<String, usize> {
            ids.enumerate().map(|(i, id)| (id.clone(), i)).collect()
        };
    let chains = index(&mut model.chains.iter().map(|c| &c.id));
    let sites = index(&mut model.sites.iter().map(|s| &s.id));
    let nodes = index(&mut model.nodes.iter().map(|n| &n.id));
    let list = root.place.name("routes");
    let mut entries = Vec::new();
    for (i, value) in root.list("routes")?.iter().enumerate() {
        let place = list.index(i);
        let fields = Fields::of(
            place,
            value,
            &["chain", "fraction", "sites", "ingress", "egress"],
        )?;
        let find = |place: Place<'_>,
                    kind: &str,
                    map: &std::collections::HashMap<String, usize>,
                    value: &Value| {
            let id = place.text(value)?;
            map.get(id).copied().ok_or_else(|| {
                place.error(
                    Reason::DanglingReference,
                    format!("there is no {kind} '{id}' in the model"),
                )
            })
        };
        let chain = find(
            place.name("chain"),
            "chain",
            &chains,
            fields.required("chain")?,
        )?;
        let site_list = place.name("sites");
        let mut route_sites = Vec::new();
        for (k, site) in fields.list("sites")?.iter().enumerate() {
            route_sites.push(find(site_list.index(k), "site", &sites, site)?);
        }
        let end = |name: &str, ends: &Ends| match fields.optional(name) {
            Some(value) => find(place.name(name), "node", &nodes, value),
            None if ends.nodes().count() == 1 => Ok(ends.nodes().next().unwrap_or(0)),
            None => Err(place.error(
                Reason::MissingField,
                format!("the chain has several ends: '{name}' is missing"),
            )),
        };
        entries.push(RouteEntry {
            chain,
            fraction: fields.not_negative("fraction")?,
            sites: route_sites,
            ingress: end("ingress", &model.chains[chain].ingress)?,
            egress: end("egress", &model.chains[chain].egress)?,
        });
    }
    Ok(entries)
}
