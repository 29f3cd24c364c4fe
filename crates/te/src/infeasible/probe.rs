//! Whether a commodity has a route when only some of its constraints hold.

use crate::constrained::{Costs, cheapest_by, crossed};
use crate::instance::{Commodity, Instance};
use crate::model::Limits;

/// Room by which a row may be too small, relatively, for rounding.
const ROUNDING: f64 = 1e-9;

/// Latency as the only cost of what is possible.
pub struct Probe<'a> {
    instance: &'a Instance,
    commodity: &'a Commodity,
    /// The share of the commodity's demand that every hop and every visit of the route must have room for.
    need: f64,
    /// Whether the capacity of a row counts.
    counts: &'a dyn Fn(usize) -> bool,
}

impl<'a> Probe<'a> {
    /// A probe for a route with room for the share `need` of the commodity's demand on every row for which `counts` holds;
    /// rows without any capacity carry nothing, however little is needed.
    pub fn new(
        instance: &'a Instance,
        commodity: &'a Commodity,
        need: f64,
        counts: &'a dyn Fn(usize) -> bool,
    ) -> Probe<'a> {
        Probe {
            instance,
            commodity,
            need,
            counts,
        }
    }

    /// The latency of the fastest route within `limits`; none where there is no route.
    pub fn latency(&self, limits: Limits) -> Option<f64> {
        let commodity = Commodity {
            limits: Some(Box::new(limits)),
            ..self.commodity.clone()
        };
        let (cost, _) = cheapest_by(self.instance, self, &commodity)?;
        cost.is_finite().then_some(cost)
    }

    fn fits(&self, row: usize, load: f64) -> bool {
        let room = self.instance.capacity[row] * (1.0 + ROUNDING);
        load <= 0.0 || !(self.counts)(row) || (room > 0.0 && self.need * load <= room)
    }
}

impl Costs for Probe<'_> {
    fn hop(&self, z: usize, from: u32, to: u32) -> f64 {
        let node = |place: u32| self.instance.node_at[place as usize] as usize;
        let (from, to) = (node(from), node(to));
        let (forward, reverse) = self.traffic(0, z);
        let latency = |a, b| self.instance.network.latency_ms(a, b);
        let joined = |a, b, traffic: f64| traffic <= 0.0 || latency(a, b) < f64::INFINITY;
        let way = |a, b, traffic: f64| {
            let mut links = crossed(self.instance, (a, b), (traffic, 0.0));
            joined(a, b, traffic) && links.all(|(link, share)| self.fits(link, share * traffic))
        };
        if way(from, to, forward) && way(to, from, reverse) {
            latency(from, to)
        } else {
            f64::INFINITY
        }
    }

    fn visit(&self, z: usize, site: u32, row: u32) -> f64 {
        let vnf = self.instance.stage_vnf[self.commodity.stage(z)] as usize;
        let handled = self.instance.handled(self.commodity, z);
        let load = self.instance.vnfs[vnf].load_per_mbps * handled;
        let site_row = self.instance.links + site as usize;
        if self.fits(site_row, load) && self.fits(row as usize, load) {
            0.0
        } else {
            f64::INFINITY
        }
    }

    fn traffic(&self, _time: usize, z: usize) -> (f64, f64) {
        let stage = self.commodity.stage(z);
        (self.instance.forward[stage], self.instance.reverse[stage])
    }
}
