//! Prices of rows turned into what the dynamic program reads: a cost for each pair of places and each VNF at a place.

use crate::aligned::Aligned;
use crate::instance::{Instance, NONE};

/// Cost of what is not allowed. Finite, so that zero traffic times it is zero and not NaN; and so large that hardly any
/// traffic times it is less than [`IMPOSSIBLE`].
pub const BLOCKED: f64 = 1e200;

/// A route that costs at least this much uses something blocked. So large that nothing else within a model's ranges does.
pub const IMPOSSIBLE: f64 = 1e80;

/// Cost tables; all place-indexed rows have the instance's stride.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    /// Cost of one Mbit/s of forward traffic from place to place.
    pub forward: Aligned,
    /// Cost of one Mbit/s of the reverse traffic of the same stage, which flows from the second to the first.
    pub reverse: Aligned,
    /// Cost of one Mbit/s handled by a VNF at a place: the cheapest of its sites there.
    pub vnf: Aligned,
    /// The site that the entry of `vnf` stands for.
    pub site: Vec<u32>,
    pairs: Vec<f64>,
    price: Vec<f64>,
}

impl Tables {
    /// Tables for `price`, by row and per unit of load, plus `latency_weight` times the latency of each stage.
    pub fn new(instance: &Instance, price: &[f64], latency_weight: f64) -> Tables {
        let mut tables = Tables::default();
        tables.fill(instance, price, latency_weight);
        tables
    }

    /// Recomputes the tables in place.
    pub fn fill(&mut self, instance: &Instance, price: &[f64], latency_weight: f64) {
        self.price.clear();
        self.price.extend(
            price
                .iter()
                .zip(&instance.capacity)
                .map(|(&p, &c)| if c > 0.0 { p } else { BLOCKED }),
        );
        let (nodes, stride) = (instance.nodes, instance.stride);
        self.forward.set_all(nodes * stride, BLOCKED);
        self.reverse.set_all(nodes * stride, BLOCKED);
        self.refresh_pairs(instance, latency_weight);
        let width = instance.site_places;
        self.vnf.set_all(instance.vnfs.len() * width, BLOCKED);
        self.site.clear();
        self.site.resize(instance.vnfs.len() * width, NONE);
        self.refresh_vnfs(instance);
    }

    /// Recomputes the entries of all pairs of places at the prices that were set.
    pub fn refresh_pairs(&mut self, instance: &Instance, latency_weight: f64) {
        let mut pairs = std::mem::take(&mut self.pairs);
        instance.network.sum_over_paths(&self.price, &mut pairs);
        let (nodes, stride) = (instance.nodes, instance.stride);
        for from in 0..nodes {
            for to in 0..nodes {
                let latency = instance.network.latency_ms(from, to);
                if latency == f64::INFINITY {
                    continue;
                }
                let at = instance.place_of[from] as usize * stride + instance.place_of[to] as usize;
                let back = instance.network.latency_ms(to, from);
                self.forward[at] = pairs[from * nodes + to] + latency_weight * latency;
                self.reverse[at] = if back.is_finite() {
                    pairs[to * nodes + from] + latency_weight * latency
                } else {
                    BLOCKED
                };
            }
        }
        self.pairs = pairs;
    }

    /// The price of a row that the tables were filled with; [`BLOCKED`] where it has no capacity.
    pub fn row_price(&self, row: usize) -> f64 {
        self.price[row]
    }

    /// Changes one row's price; the entries that depend on it must be refreshed after.
    pub fn set_price(&mut self, row: usize, price: f64) {
        self.price[row] = price;
    }

    /// Recomputes the entries of one ordered pair of nodes.
    pub fn refresh_pair(
        &mut self,
        instance: &Instance,
        from: usize,
        to: usize,
        latency_weight: f64,
    ) {
        let sum: f64 = instance
            .network
            .path(from, to)
            .map(|(link, r)| self.price[link] * r)
            .sum();
        let (a, b) = (
            instance.place_of[from] as usize,
            instance.place_of[to] as usize,
        );
        self.forward[a * instance.stride + b] =
            sum + latency_weight * instance.network.latency_ms(from, to);
        let back = instance.network.latency_ms(to, from);
        if back.is_finite() {
            self.reverse[b * instance.stride + a] = sum + latency_weight * back;
        }
    }

    /// Recomputes the entry of a VNF at a place.
    pub fn refresh_vnf(&mut self, instance: &Instance, vnf: usize, place: usize) {
        let at = vnf * instance.site_places + place;
        (self.vnf[at], self.site[at]) = (BLOCKED, NONE);
        for &(site, row) in &instance.vnfs[vnf].deployments {
            if instance.site_place[site as usize] as usize != place {
                continue;
            }
            let cost = instance.vnfs[vnf].load_per_mbps
                * (self.price[instance.links + site as usize] + self.price[row as usize]);
            if self.site[at] == NONE || cost < self.vnf[at] {
                (self.vnf[at], self.site[at]) = (cost, site);
            }
        }
    }

    /// Recomputes the entries of all VNFs at all places at the prices that were set.
    pub fn refresh_vnfs(&mut self, instance: &Instance) {
        let width = instance.site_places;
        self.site.fill(NONE);
        for vnf in 0..instance.vnfs.len() {
            for &(site, row) in &instance.vnfs[vnf].deployments {
                let cost = instance.vnfs[vnf].load_per_mbps
                    * (self.price[instance.links + site as usize] + self.price[row as usize]);
                let at = vnf * width + instance.site_place[site as usize] as usize;
                if self.site[at] == NONE || cost < self.vnf[at] {
                    (self.vnf[at], self.site[at]) = (cost, site);
                }
            }
        }
    }
}
