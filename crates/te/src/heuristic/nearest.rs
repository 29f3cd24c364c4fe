//! A route in no time: each VNF at the site nearest to the one before. For chains that are left when an answer is wanted
//! at once.

use super::baseline::hop_by_hop;
use super::state::{State, Used};
use crate::constrained;
use crate::instance::{Commodity, Instance, Route};
use crate::kernel::{Scratch, cheapest};
use crate::solution::Flow;
use crate::tables::{IMPOSSIBLE, Tables};

/// Routes that look at latency alone, and at no load.
pub(crate) struct Nearest {
    latency: Tables,
    scratch: Scratch,
}

impl Nearest {
    /// Tables for an instance.
    pub fn new(instance: &Instance) -> Nearest {
        Nearest {
            latency: Tables::new(instance, &vec![0.0; instance.rows()], 1.0),
            scratch: Scratch::default(),
        }
    }

    /// A route that keeps the chain's limits; none where there is no route at all. Where going from site to nearest site
    /// ends nowhere, the fastest route of all is searched.
    pub fn route(&mut self, instance: &Instance, commodity: &Commodity) -> Option<Route> {
        let limits = commodity.limits.as_deref();
        let avoided = |site: u32| limits.is_some_and(|l| l.avoid_sites.contains(&(site as usize)));
        let hops = hop_by_hop(instance, commodity, |z, from, (site, row)| {
            let stage = commodity.stage(z);
            let vnf = instance.stage_vnf[stage] as usize;
            let load = instance.vnfs[vnf].load_per_mbps * instance.handled(commodity, z);
            let site_row = instance.links + site as usize;
            let price = self.latency.row_price(site_row) + self.latency.row_price(row);
            let to = instance.site_place[site as usize];
            let cost = self.hop(instance, stage, from, to) + load * price;
            (cost < IMPOSSIBLE && !avoided(site)).then_some(cost)
        });
        let arrives = |route: &Route| {
            let last = route.sites.last();
            let from = last.map_or(route.source, |&s| instance.site_place[s as usize]);
            let stage = commodity.stage(commodity.vnfs as usize);
            self.hop(instance, stage, from, route.sink) < IMPOSSIBLE
        };
        hops.filter(|route| arrives(route) && constrained::allows(instance, commodity, route))
            .or_else(|| {
                let cost = cheapest(instance, &self.latency, commodity, &mut self.scratch);
                (cost < IMPOSSIBLE).then(|| self.scratch.route())
            })
    }

    fn hop(&self, instance: &Instance, stage: usize, from: u32, to: u32) -> f64 {
        let at = from as usize * instance.stride + to as usize;
        instance.forward[stage] * self.latency.forward[at]
            + instance.reverse[stage] * self.latency.reverse[at]
    }
}

/// Gives each of these commodities, of which a share is left, its nearest route as far as that has room; prices are not kept
/// up to date.
pub(super) fn fill(
    instance: &Instance,
    state: &mut State,
    commodities: &[usize],
    left: &[f64],
    used: &mut Used,
    flows: &mut Vec<Flow>,
) {
    let mut nearest = Nearest::new(instance);
    for &index in commodities {
        let commodity = &instance.commodities[index];
        let Some(route) = nearest.route(instance, commodity) else {
            continue;
        };
        let used = used.of(instance, commodity.chain);
        let needs = state.needs(instance, commodity, &route);
        let (share, _) = state.room(instance, &needs, left[index]);
        if share <= 0.0 || !used.allows(&route) {
            continue;
        }
        for (row, load) in needs {
            state.load[row as usize] += share * load;
        }
        used.insert(&route);
        flows.push(Flow {
            commodity: index,
            route,
            fraction: share,
        });
    }
}
