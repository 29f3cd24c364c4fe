//! Chains spread over every deployment as its capacity is: the routing that fills all of them alike.
//!
//! Each commodity's demand is the interval from 0 to 1. Each of its VNFs cuts it into the parts that its deployments get, in the
//! order of their sites; what lies between two cuts goes one route. So a deployment bears of its VNF's load the share that it has
//! of the VNF's capacity, on at most as many routes as the chain's VNFs have deployments together; and where VNFs are deployed
//! alike, whole parts stay at one site. What sites have for all VNFs together, and links, are left to whoever uses it. Chains that are larger than a deployment are no harder than others.

use super::counting::passable;
use super::rationing::LEAST;
use super::*;
use crate::instance::{Commodity, Route};
use crate::solution::Flow;

/// Parts of a demand below this are rounding of the cuts.
const NO_PART: f64 = 1e-12;

/// A VNF's deployments: where the part of each ends, and its site.
struct Cuts(Vec<(f64, u32)>);

impl Cuts {
    /// None where nothing is free.
    fn new(instance: &Instance, mut deployments: Vec<(u32, u32)>) -> Option<Cuts> {
        let free = |row: usize| {
            let taken = instance.base.get(row).unwrap_or(&0.0);
            instance.capacity[row] * (1.0 - taken).max(0.0)
        };
        deployments.sort_unstable();
        let all: f64 = deployments.iter().map(|&(_, row)| free(row as usize)).sum();
        let mut sum = 0.0;
        let cut = |(site, row): (u32, u32)| {
            sum += free(row as usize);
            (sum / all, site)
        };
        (all > 0.0).then(|| Cuts(deployments.into_iter().map(cut).collect()))
    }

    /// The site that gets the demand just above `at`, and where its part ends.
    fn part(&self, at: f64) -> (f64, u32) {
        let next = self.0.partition_point(|(end, _)| *end <= at + NO_PART);
        self.0[next.min(self.0.len() - 1)]
    }
}

/// Shares of the commodities on routes that fill every VNF's deployments alike; none where a commodity restricts
/// its routes, or no links join what is spread over.
pub(super) fn spread(instance: &Instance, shares: &[f64]) -> Option<Vec<Flow>> {
    let cuts: Vec<Option<Cuts>> = passable(instance)
        .into_iter()
        .map(|deployments| Cuts::new(instance, deployments))
        .collect();
    let mut flows = Vec::new();
    for (index, commodity) in instance.commodities.iter().enumerate() {
        if shares[index] <= LEAST {
            continue;
        }
        if commodity.limits.is_some() {
            return None;
        }
        let (mut sites, mut at) = (Vec::new(), 0.0);
        while at < 1.0 - NO_PART {
            sites.clear();
            let mut end = 1.0;
            for z in 0..commodity.vnfs as usize {
                let vnf = instance.stage_vnf[commodity.stage(z)] as usize;
                let (until, site) = cuts[vnf].as_ref()?.part(at);
                end = f64::min(end, until);
                sites.push(site);
            }
            // The last cut may lie below one by rounding.
            if end <= at + NO_PART {
                end = 1.0;
            }
            flows.push(Flow {
                commodity: index,
                route: between_nearest_ends(instance, commodity, &sites)?,
                fraction: shares[index] * (end - at),
            });
            at = end;
        }
    }
    Some(flows)
}

/// The route over sites from the nearest ingress to the nearest egress that links join with them.
fn between_nearest_ends(
    instance: &Instance,
    commodity: &Commodity,
    sites: &[u32],
) -> Option<Route> {
    let joined = |route: &Route| {
        let stops = route.sites.iter().map(|&s| instance.site_place[s as usize]);
        let from = std::iter::once(route.source).chain(stops.clone());
        let to = stops.chain(std::iter::once(route.sink));
        let mut hops = from.zip(to).enumerate();
        hops.all(|(z, (from, to))| instance.joins(commodity, z, from, to))
    };
    let (sources, sinks) = (instance.sources(commodity), instance.sinks(commodity));
    let ways = sources.iter().flat_map(|&source| {
        sinks.iter().map(move |&sink| Route {
            source,
            sink,
            sites: sites.into(),
        })
    });
    let latency = |route: &Route| instance.latency_ms(route);
    ways.filter(joined)
        .min_by(|a, b| latency(a).total_cmp(&latency(b)))
}

/// The fullest row of a routing, with the load that is there already.
pub(super) fn fullest(instance: &Instance, flows: &[Flow]) -> f64 {
    let mut load = vec![0.0; instance.rows()];
    for flow in flows {
        let commodity = &instance.commodities[flow.commodity];
        instance.loads(commodity, &flow.route, |row, add| {
            load[row] += flow.fraction * add;
        });
    }
    let part = |(row, load): (usize, &f64)| {
        let base = instance.base.get(row).unwrap_or(&0.0);
        if *load > 0.0 {
            base + load / instance.capacity[row]
        } else {
            *base
        }
    };
    load.iter().enumerate().map(part).fold(0.0, f64::max)
}
