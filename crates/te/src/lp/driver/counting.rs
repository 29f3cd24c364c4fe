//! A first bound by counting: whatever the routes, a VNF handles all traffic of its chains.
//!
//! Prices that cost the same for a unit of load wherever it is put make every route of a chain cost alike, so the
//! certificate becomes load over capacity. Where compute is what binds, and it is divided as the demand is, that is
//! the optimum, and thousands of rows bind at once: the case that is slowest to prove by prices that are searched for.

use super::Instance;
use crate::instance::VnfSites;

/// VNFs count as equally loaded within this.
const ALIKE: f64 = 1e-9;

/// Prices by row, for the row's whole capacity, that make the most of counting, and the bound on t that they prove;
/// `None` without load or capacity.
///
/// All routes cost the same at these prices, so the cheapest need not be searched for: the certificate is a sum.
pub(super) fn prove(instance: &Instance) -> Option<(Vec<f64>, f64)> {
    let load = load_of_vnfs(instance);
    let capacity: Vec<f64> = instance
        .vnfs
        .iter()
        .map(|vnf| rows(vnf).map(|row| instance.capacity[row]).sum())
        .collect();
    let ratio = |vnf: usize| {
        if capacity[vnf] > 0.0 {
            load[vnf] / capacity[vnf]
        } else {
            0.0
        }
    };
    let fullest = (0..load.len()).map(ratio).fold(0.0, f64::max);
    let deployments = instance.vnfs.iter().flat_map(|vnf| &vnf.deployments);
    let hosts = hosts(instance, deployments);
    let all: f64 = hosts.iter().map(|&row| instance.capacity[row]).sum();
    let mut price = vec![0.0; instance.rows()];
    if all > 0.0 && load.iter().sum::<f64>() > fullest * all * (1.0 + ALIKE) {
        hosts
            .iter()
            .for_each(|&row| price[row] = instance.capacity[row] / all);
        let bound = load.iter().sum::<f64>() / all;
        let others = of_others(instance, &price);
        return Some((price, bound + others));
    }
    let (mut cost, mut paid) = (0.0, 0.0);
    for vnf in (0..load.len()).filter(|&v| ratio(v) >= fullest * (1.0 - ALIKE)) {
        rows(&instance.vnfs[vnf])
            .for_each(|row| price[row] = instance.capacity[row] / capacity[vnf]);
        (cost, paid) = (cost + ratio(vnf), paid + 1.0);
    }
    cost += of_others(instance, &price);
    (fullest > 0.0).then(|| (price, cost / paid))
}

/// What the load that is there already costs.
fn of_others(instance: &Instance, price: &[f64]) -> f64 {
    price.iter().zip(&instance.base).map(|(p, b)| p * b).sum()
}

/// Load that each VNF has to bear when every commodity is carried once.
fn load_of_vnfs(instance: &Instance) -> Vec<f64> {
    let mut load = vec![0.0; instance.vnfs.len()];
    for commodity in &instance.commodities {
        for z in 0..commodity.vnfs as usize {
            let vnf = instance.stage_vnf[commodity.stage(z)] as usize;
            load[vnf] += instance.vnfs[vnf].load_per_mbps * instance.handled(commodity, z);
        }
    }
    load
}

/// The deployments of each VNF, as (site, row), that some commodity can pass on its way. Others have capacity that nobody can use.
pub(super) fn passable(instance: &Instance) -> Vec<Vec<(u32, u32)>> {
    let mut left: Vec<Vec<(u32, u32)>> = instance
        .vnfs
        .iter()
        .map(|vnf| vnf.deployments.clone())
        .collect();
    for commodity in &instance.commodities {
        let last = commodity.vnfs as usize;
        for z in 0..last {
            let vnf = instance.stage_vnf[commodity.stage(z)] as usize;
            left[vnf].retain(|&(site, _)| {
                let place = instance.site_place[site as usize];
                let (sources, sinks) = (instance.sources(commodity), instance.sinks(commodity));
                !(sources
                    .iter()
                    .any(|&from| instance.joins(commodity, 0, from, place))
                    && sinks
                        .iter()
                        .any(|&to| instance.joins(commodity, last, place, to)))
            });
        }
    }
    let is_passed = |vnf: usize, deployment: &(u32, u32)| !left[vnf].contains(deployment);
    let of = |(vnf, sites): (usize, &VnfSites)| {
        let all = sites.deployments.iter().copied();
        all.filter(|deployment| is_passed(vnf, deployment))
            .collect()
    };
    instance.vnfs.iter().enumerate().map(of).collect()
}

/// The capacity rows of a VNF.
fn rows(vnf: &VnfSites) -> impl Iterator<Item = usize> + '_ {
    vnf.deployments.iter().map(|&(_, row)| row as usize)
}

/// Rows of the sites of deployments.
pub(super) fn hosts<'a>(
    instance: &Instance,
    deployments: impl Iterator<Item = &'a (u32, u32)>,
) -> Vec<usize> {
    let mut hosts: Vec<usize> = deployments
        .map(|&(site, _)| instance.links + site as usize)
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}
