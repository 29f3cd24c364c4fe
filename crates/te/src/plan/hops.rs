//! The step that all of placement's dynamic programs are made of: the cheapest way from several sites to each site.

use crate::instance::{Instance, LANES};
use crate::tables::Tables;

/// Costs of hops between sites and of visits, laid out so that a step reads them in order.
pub struct Hops {
    /// Entries of a row: the number of sites, filled up to whole vectors.
    pub width: usize,
    /// From each site to all others, for one Mbit/s forward and one back.
    onward: [Vec<f64>; 2],
    /// To each site from all others.
    inward: [Vec<f64>; 2],
    /// For each VNF at each site the cost of one Mbit/s handled; zero where it is not deployed.
    visit: Vec<f64>,
}

impl Hops {
    /// Lays out the costs of tables.
    pub fn new(instance: &Instance, tables: &Tables) -> Hops {
        let (sites, width) = (instance.sites, instance.sites.next_multiple_of(LANES));
        let mut hops = Hops {
            width,
            onward: [vec![0.0; sites * width], vec![0.0; sites * width]],
            inward: [vec![0.0; sites * width], vec![0.0; sites * width]],
            visit: vec![0.0; instance.vnfs.len() * width],
        };
        for from in 0..sites {
            for to in 0..sites {
                let (a, b) = (instance.site_place[from], instance.site_place[to]);
                let at = a as usize * instance.stride + b as usize;
                for (way, cost) in [tables.forward[at], tables.reverse[at]]
                    .into_iter()
                    .enumerate()
                {
                    hops.onward[way][from * width + to] = cost;
                    hops.inward[way][to * width + from] = cost;
                }
            }
        }
        for (vnf, at) in instance.vnfs.iter().enumerate() {
            for &(site, row) in &at.deployments {
                let site_row = instance.links + site as usize;
                hops.visit[vnf * width + site as usize] = at.load_per_mbps
                    * (tables.row_price(site_row) + tables.row_price(row as usize));
            }
        }
        hops
    }

    /// Cost of one Mbit/s handled by a VNF, by site.
    pub fn visits(&self, vnf: usize) -> &[f64] {
        &self.visit[vnf * self.width..(vnf + 1) * self.width]
    }

    /// Cost of a hop for traffic there and back.
    pub fn hop(&self, traffic: [f64; 2], from: usize, to: usize) -> f64 {
        let at = from * self.width + to;
        traffic[0] * self.onward[0][at] + traffic[1] * self.onward[1][at]
    }

    /// For every site the cheapest way to it from those given with what it costs to be there.
    pub fn reach(
        &self,
        traffic: [f64; 2],
        from: impl Iterator<Item = (usize, f64)>,
        into: &mut [f64],
    ) {
        nearest(&self.onward, self.width, traffic, from, into);
    }

    /// For every site the cheapest way from it to those given with what it costs to go on.
    pub fn leave(
        &self,
        traffic: [f64; 2],
        to: impl Iterator<Item = (usize, f64)>,
        into: &mut [f64],
    ) {
        nearest(&self.inward, self.width, traffic, to, into);
    }
}

fn nearest(
    costs: &[Vec<f64>; 2],
    width: usize,
    traffic: [f64; 2],
    ends: impl Iterator<Item = (usize, f64)>,
    into: &mut [f64],
) {
    into.fill(f64::INFINITY);
    for (site, base) in ends {
        let row = site * width..(site + 1) * width;
        lower(base, traffic, &costs[0][row.clone()], &costs[1][row], into);
    }
}

/// Lowers each entry to base + traffic · cost where that is less.
fn lower(base: f64, traffic: [f64; 2], forward: &[f64], reverse: &[f64], into: &mut [f64]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has just been asked for the feature.
        return unsafe { lower_avx2(base, traffic, forward, reverse, into) };
    }
    lower_anywhere(base, traffic, forward, reverse, into);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn lower_avx2(base: f64, traffic: [f64; 2], forward: &[f64], reverse: &[f64], into: &mut [f64]) {
    lower_anywhere(base, traffic, forward, reverse, into);
}

#[inline(always)]
fn lower_anywhere(
    base: f64,
    traffic: [f64; 2],
    forward: &[f64],
    reverse: &[f64],
    into: &mut [f64],
) {
    for ((into, forward), reverse) in into.iter_mut().zip(forward).zip(reverse) {
        let cost = base + traffic[0] * forward + traffic[1] * reverse;
        *into = if cost < *into { cost } else { *into };
    }
}
