//! Solutions as the contract's JSON.

use std::collections::BTreeMap;

use crate::instance::Instance;
use crate::json::Writer;
use crate::model::Model;
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
    // What is carried in part travels less than a bound for all of the demand: none on this routing.
    let comparable = !partial || solution.objective != Objective::Latency;
    let bound = solution.bound.filter(|b| comparable && b.is_finite());
    w.name("bound").number(bound.unwrap_or(f64::NAN));
    let gap = bound.and_then(|_| solution.gap());
    w.name("gap").number(gap.unwrap_or(f64::NAN));
    if bound.is_some() && !instance.max_routes.is_empty() {
        // Most proofs relax what makes the problem one of whole numbers.
        let ignored: &[&str] = match solution.relaxed {
            None => &["max_routes"],
            Some(_) => &[],
        };
        w.name("bound_ignores").texts(ignored.iter().copied());
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
