//! The dynamic program for commodities whose routes are restricted: labels instead of one cost for each place.
//!
//! A label is a way to reach a site: its cost, its latency and the required sites and links it has used so far.
//! One label dominates another at the same site when it is no worse in all three. The minimum over what remains
//! is exact, so bounds computed from it hold.

use crate::instance::{Commodity, Instance, Route};
use crate::kernel::Scratch;
use crate::model::Limits;
use crate::tables::Tables;

/// Latencies may exceed a limit by this much relatively, for rounding.
pub const LATENCY_SLACK: f64 = 1e-9;

#[derive(Clone, Copy)]
struct Label {
    cost: f64,
    latency: f64,
    used: u128,
    /// Site, or end place for first and last labels.
    at: u32,
    place: u32,
    before: usize,
}

/// What a commodity's whole demand costs, stage by stage.
pub trait Costs {
    /// Stage `z` from one place to another.
    fn hop(&self, z: usize, from: u32, to: u32) -> f64;
    /// Being handled by the VNF that ends stage `z`, at a site; `row` is the VNF's row there.
    fn visit(&self, z: usize, site: u32, row: u32) -> f64;
    /// Number of times at which the route has to keep the limits, each with traffic of its own; at most [`most_times`].
    fn times(&self) -> usize {
        1
    }
    /// Forward and reverse traffic of stage `z` at one of these times; links are used in the directions that have any.
    fn traffic(&self, time: usize, z: usize) -> (f64, f64);
}

/// Costs of a commodity under price tables.
struct Priced<'a> {
    instance: &'a Instance,
    tables: &'a Tables,
    commodity: &'a Commodity,
}

impl Costs for Priced<'_> {
    fn hop(&self, z: usize, from: u32, to: u32) -> f64 {
        let (w, v) = self.traffic(0, z);
        let entry = from as usize * self.instance.stride + to as usize;
        w * self.tables.forward[entry] + v * self.tables.reverse[entry]
    }

    fn visit(&self, z: usize, site: u32, row: u32) -> f64 {
        let vnf = &self.instance.vnfs[self.instance.stage_vnf[self.commodity.stage(z)] as usize];
        let price = self.tables.row_price(self.instance.links + site as usize)
            + self.tables.row_price(row as usize);
        vnf.load_per_mbps * self.instance.handled(self.commodity, z) * price
    }

    fn traffic(&self, _time: usize, z: usize) -> (f64, f64) {
        let stage = self.commodity.stage(z);
        (self.instance.forward[stage], self.instance.reverse[stage])
    }
}

/// At how many times with different traffic a route can be held to these limits at once.
pub fn most_times(limits: &Limits) -> usize {
    let room = u128::BITS as usize - limits.use_sites.len();
    room.checked_div(limits.use_links.len())
        .unwrap_or(usize::MAX)
}

struct Search<'a, C> {
    instance: &'a Instance,
    costs: &'a C,
    commodity: &'a Commodity,
    limits: &'a Limits,
}

/// As [`crate::kernel::cheapest`], for a commodity with limits.
pub fn cheapest(
    instance: &Instance,
    tables: &Tables,
    commodity: &Commodity,
    scratch: &mut Scratch,
) -> f64 {
    let costs = Priced {
        instance,
        tables,
        commodity,
    };
    let Some((cost, route)) = cheapest_by(instance, &costs, commodity) else {
        scratch.sites.clear();
        return f64::INFINITY;
    };
    (scratch.source, scratch.sink) = (route.source, route.sink);
    scratch.sites.clear();
    scratch.sites.extend_from_slice(&route.sites);
    cost
}

/// The cheapest route of a commodity under any costs, within its limits; none where the limits leave no route.
pub fn cheapest_by(
    instance: &Instance,
    costs: &impl Costs,
    commodity: &Commodity,
) -> Option<(f64, Route)> {
    let none = Limits::default();
    let limits = commodity.limits.as_deref().unwrap_or(&none);
    let search = Search {
        instance,
        costs,
        commodity,
        limits,
    };
    let labels = search.run();
    let uses = limits.use_sites.len() + costs.times() * limits.use_links.len();
    let all_used = u128::MAX
        .checked_shl(uses as u32)
        .map_or(u128::MAX, |rest| !rest);
    let complete = labels.last()?.iter().filter(|l| l.used == all_used);
    let best = complete.min_by(|a, b| a.cost.total_cmp(&b.cost))?;
    let mut sites = Vec::with_capacity(commodity.vnfs as usize + 1);
    let mut label = best;
    for list in labels[..labels.len() - 1].iter().rev() {
        label = &list[label.before];
        sites.push(label.at);
    }
    let source = sites.pop()?;
    sites.reverse();
    let route = Route {
        source,
        sink: best.place,
        sites: sites.into(),
    };
    Some((best.cost, route))
}

impl<C: Costs> Search<'_, C> {
    /// Labels of the ingress, of each VNF and of the egress.
    fn run(&self) -> Vec<Vec<Label>> {
        let start = |&place: &u32| Label {
            cost: 0.0,
            latency: 0.0,
            used: 0,
            at: place,
            place,
            before: 0,
        };
        let mut labels = vec![
            self.instance
                .sources(self.commodity)
                .iter()
                .map(start)
                .collect::<Vec<_>>(),
        ];
        for z in 0..=self.commodity.vnfs as usize {
            let before = &labels[z];
            let mut next = Vec::new();
            for (at, place, visit) in self.targets(z) {
                let mut here: Vec<Label> = Vec::new();
                for (index, label) in before.iter().enumerate() {
                    if let Some(extended) = self.extend(label, index, z, at, place, visit) {
                        insert(&mut here, extended);
                    }
                }
                next.extend(here);
            }
            labels.push(next);
        }
        labels
    }

    /// Where stage `z` may end: (site or place, place, cost of handling there).
    fn targets(&self, z: usize) -> Vec<(u32, u32, f64)> {
        if z == self.commodity.vnfs as usize {
            return self
                .instance
                .sinks(self.commodity)
                .iter()
                .map(|&p| (p, p, 0.0))
                .collect();
        }
        let vnf = &self.instance.vnfs[self.instance.stage_vnf[self.commodity.stage(z)] as usize];
        let allowed = vnf
            .deployments
            .iter()
            .filter(|(s, _)| !self.limits.avoid_sites.contains(&(*s as usize)));
        allowed
            .map(|&(site, row)| {
                let place = self.instance.site_place[site as usize];
                (site, place, self.costs.visit(z, site, row))
            })
            .collect()
    }

    fn extend(
        &self,
        label: &Label,
        before: usize,
        z: usize,
        at: u32,
        place: u32,
        visit: f64,
    ) -> Option<Label> {
        let node = |p: u32| self.instance.node_at[p as usize] as usize;
        let (from, to) = (node(label.place), node(place));
        let latency = label.latency + self.instance.network.latency_ms(from, to);
        if self
            .limits
            .max_latency_ms
            .is_some_and(|most| latency > most * (1.0 + LATENCY_SLACK))
        {
            return None;
        }
        let mut used = label.used;
        if z < self.commodity.vnfs as usize
            && let Some(bit) = self.limits.use_sites.iter().position(|&s| s == at as usize)
        {
            used |= 1 << bit;
        }
        if !self.limits.avoid_links.is_empty() || !self.limits.use_links.is_empty() {
            let (sites, links) = (self.limits.use_sites.len(), self.limits.use_links.len());
            for time in 0..self.costs.times() {
                for (link, _) in crossed(self.instance, (from, to), self.costs.traffic(time, z)) {
                    if self.limits.avoid_links.contains(&link) {
                        return None;
                    }
                    if let Some(bit) = self.limits.use_links.iter().position(|&l| l == link) {
                        used |= 1 << (sites + time * links + bit);
                    }
                }
            }
        }
        let cost = label.cost + self.costs.hop(z, label.place, place) + visit;
        Some(Label {
            cost,
            latency,
            used,
            at,
            place,
            before,
        })
    }
}

/// The links that a stage between two nodes crosses in either direction that carries traffic.
pub fn crossed(
    instance: &Instance,
    (from, to): (usize, usize),
    (w, v): (f64, f64),
) -> impl Iterator<Item = (usize, f64)> + '_ {
    let forward = instance.network.path(from, to).filter(move |_| w > 0.0);
    forward.chain(instance.network.path(to, from).filter(move |_| v > 0.0))
}

/// Whether a route keeps the limits of its commodity.
pub(crate) fn allows(instance: &Instance, commodity: &Commodity, route: &Route) -> bool {
    let Some(limits) = commodity.limits.as_deref() else {
        return true;
    };
    let stops = || {
        let sites = route.sites.iter();
        std::iter::once(route.source)
            .chain(sites.map(|&site| instance.site_place[site as usize]))
            .chain([route.sink])
            .map(|place| instance.node_at[place as usize] as usize)
    };
    let (mut latency, mut links) = (0.0, Vec::new());
    for (z, hop) in stops().zip(stops().skip(1)).enumerate() {
        latency += instance.network.latency_ms(hop.0, hop.1);
        let stage = commodity.stage(z);
        let traffic = (instance.forward[stage], instance.reverse[stage]);
        links.extend(crossed(instance, hop, traffic).map(|(link, _)| link));
    }
    let visits = |site: &usize| route.sites.contains(&(*site as u32));
    let crosses = |link: &usize| links.contains(link);
    limits
        .max_latency_ms
        .is_none_or(|most| latency <= most * (1.0 + LATENCY_SLACK))
        && !limits.avoid_sites.iter().any(visits)
        && !limits.avoid_links.iter().any(crosses)
        && limits.use_sites.iter().all(visits)
        && limits.use_links.iter().all(crosses)
}

/// Keeps the labels of one site that no other dominates.
fn insert(labels: &mut Vec<Label>, new: Label) {
    let dominates = |a: &Label, b: &Label| {
        a.cost <= b.cost && a.latency <= b.latency && a.used & b.used == b.used
    };
    if labels.iter().any(|old| dominates(old, &new)) {
        return;
    }
    labels.retain(|old| !dominates(&new, old));
    labels.push(new);
}
