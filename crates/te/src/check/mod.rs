//! Verification of a result from its routes alone.
//!
//! Deliberately shares nothing with the solvers but the model and the network's routing: routes are turned into
//! the paper's variables x_{c z n1 n2}, and equations 4 to 7 are evaluated from those.

pub mod series;
pub mod survive;

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::model::{Chain, Ends, Model};
use crate::network::Network;
use crate::result::ResultFile;

/// Largest violation that is accepted, relative to the capacity or demand concerned.
pub const TOLERANCE: f64 = 1e-6;

/// What a result turns out to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Everything that does not hold, in words.
    pub violations: Vec<String>,
    /// The objective's value recomputed.
    pub value: f64,
    /// Demand carried, Mbit/s.
    pub carried_mbps: f64,
    /// Largest link utilisation, background included.
    pub max_link_utilization: f64,
}

/// A stop of a route: a node, or a site at a node.
type Stop = (usize, Option<usize>);

struct Checker<'a> {
    model: &'a Model,
    network: &'a Network,
    factor: f64,
    violations: Vec<String>,
}

/// Checks a result against its model.
pub fn check(model: &Model, result: &ResultFile) -> Report {
    check_with(model, &Network::of(model), result)
}

/// As [`check`], with the network's routing given.
pub fn check_with(model: &Model, network: &Network, result: &ResultFile) -> Report {
    let factor = if result.objective == "scale" {
        result.value
    } else {
        1.0
    };
    let mut checker = Checker {
        model,
        network,
        factor,
        violations: Vec::new(),
    };
    let mut variables: BTreeMap<(usize, usize, Stop, Stop), f64> = BTreeMap::new();
    let mut fractions = vec![0.0; model.chains.len()];
    #[allow(clippy::type_complexity, reason = "a key used in this function only")]
    let mut distinct: HashMap<usize, HashSet<(usize, usize, &[usize])>> = HashMap::new();
    for (index, route) in result.routes.iter().enumerate() {
        let chain = &model.chains[route.chain];
        let stops = checker.stops(index, chain, route);
        checker.limits(index, chain, &stops);
        for (z, hop) in stops.windows(2).enumerate() {
            *variables
                .entry((route.chain, z, hop[0], hop[1]))
                .or_default() += route.fraction;
        }
        fractions[route.chain] += route.fraction;
        distinct.entry(route.chain).or_default().insert((
            route.ingress,
            route.egress,
            &route.sites,
        ));
    }
    checker.conservation(&variables);
    checker.demands(&fractions, result);
    checker.shares(result);
    for (chain, routes) in distinct {
        if let Some(most) = model.chains[chain]
            .limits
            .max_routes
            .filter(|&most| routes.len() > most)
        {
            checker.violate(format!(
                "chain {}: {} routes, at most {most} allowed",
                model.chains[chain].id,
                routes.len()
            ));
        }
    }
    let max_link_utilization = checker.links(&variables);
    checker.compute(&variables);
    let carried_mbps: f64 = model
        .chains
        .iter()
        .zip(&fractions)
        .map(|(chain, share)| share * chain.demand_mbps() * factor)
        .sum();
    let value = checker.value(result, &fractions, &variables);
    Report {
        violations: checker.violations,
        value,
        carried_mbps,
        max_link_utilization,
    }
}

impl Checker<'_> {
    fn violate(&mut self, message: String) {
        self.violations.push(message);
    }

    /// Conformity: the route passes every VNF of its chain, in order, at sites where it is deployed.
    fn stops(
        &mut self,
        index: usize,
        chain: &Chain,
        route: &crate::result::RouteEntry,
    ) -> Vec<Stop> {
        if route.sites.len() != chain.vnfs.len() {
            let message = format!(
                "{} sites for {} VNFs of chain {}",
                route.sites.len(),
                chain.vnfs.len(),
                chain.id
            );
            self.violate(format!("/routes/{index}/sites: {message}"));
        }
        for (k, (&site, &vnf)) in route.sites.iter().zip(&chain.vnfs).enumerate() {
            if !self.model.vnfs[vnf]
                .deployments
                .iter()
                .any(|d| d.site == site)
            {
                let (vnf, site) = (&self.model.vnfs[vnf].id, &self.model.sites[site].id);
                self.violate(format!(
                    "/routes/{index}/sites/{k}: VNF {vnf} is not deployed at {site}"
                ));
            }
        }
        for (end, ends, name) in [
            (route.ingress, &chain.ingress, "ingress"),
            (route.egress, &chain.egress, "egress"),
        ] {
            if !ends.nodes().any(|n| n == end) {
                self.violate(format!(
                    "/routes/{index}/{name}: not an {name} of chain {}",
                    chain.id
                ));
            }
        }
        let mut stops = vec![(route.ingress, None)];
        stops.extend(
            route
                .sites
                .iter()
                .map(|&s| (self.model.sites[s].node, Some(s))),
        );
        stops.push((route.egress, None));
        stops
    }

    fn limits(&mut self, index: usize, chain: &Chain, stops: &[Stop]) {
        let limits = &chain.limits;
        let latency: f64 = stops
            .windows(2)
            .map(|h| self.network.latency_ms(h[0].0, h[1].0))
            .sum();
        if let Some(most) = limits
            .max_latency_ms
            .filter(|most| latency > most * (1.0 + TOLERANCE))
        {
            self.violate(format!(
                "/routes/{index}: latency {latency} ms above the limit {most} ms"
            ));
        }
        if !limits.restrict_routes() {
            return;
        }
        let sites: Vec<usize> = stops.iter().filter_map(|s| s.1).collect();
        let mut links = HashSet::new();
        for (z, hop) in stops.windows(2).enumerate() {
            let (a, b) = (hop[0].0, hop[1].0);
            if chain.forward_mbps.get(z).is_some_and(|w| *w > 0.0) {
                links.extend(self.network.path(a, b).map(|(l, _)| l));
            }
            if chain.reverse_mbps.get(z).is_some_and(|v| *v > 0.0) {
                links.extend(self.network.path(b, a).map(|(l, _)| l));
            }
        }
        let wrong = limits.avoid_sites.iter().any(|s| sites.contains(s))
            || limits.avoid_links.iter().any(|l| links.contains(l))
            || limits.use_sites.iter().any(|s| !sites.contains(s))
            || limits.use_links.iter().any(|l| !links.contains(l));
        if wrong {
            self.violate(format!(
                "/routes/{index}: uses what chain {} must avoid, or misses what it must use",
                chain.id
            ));
        }
    }

    /// Equation 5: what enters a VNF at a site leaves it.
    fn conservation(&mut self, variables: &BTreeMap<(usize, usize, Stop, Stop), f64>) {
        let mut balance: BTreeMap<(usize, usize, Stop), f64> = BTreeMap::new();
        for (&(chain, z, from, to), x) in variables {
            *balance.entry((chain, z, to)).or_default() += x;
            if z > 0 {
                *balance.entry((chain, z - 1, from)).or_default() -= x;
            }
        }
        for ((chain, z, _), net) in balance {
            let last = self.model.chains[chain].vnfs.len();
            if z < last && net.abs() > TOLERANCE {
                let id = &self.model.chains[chain].id;
                self.violate(format!(
                    "chain {id}: stage {} does not conserve traffic (off by {net:+e})",
                    z + 1
                ));
            }
        }
    }

    fn demands(&mut self, fractions: &[f64], result: &ResultFile) {
        for (chain, &share) in self.model.chains.iter().zip(fractions) {
            let default = if result.objective == "throughput" {
                0.0
            } else {
                1.0
            };
            let least = if result.partial {
                0.0
            } else {
                chain.minimum_share.unwrap_or(default)
            };
            if share > 1.0 + TOLERANCE || share < least - TOLERANCE {
                self.violations.push(format!(
                    "chain {}: {share} of its demand is carried, not {least} to 1",
                    chain.id
                ));
            }
        }
    }

    /// Fixed ingress and egress shares are met up to what is carried at all.
    fn shares(&mut self, result: &ResultFile) {
        let mut carried: HashMap<(usize, bool, usize), f64> = HashMap::new();
        for route in &result.routes {
            *carried
                .entry((route.chain, true, route.ingress))
                .or_default() += route.fraction;
            *carried
                .entry((route.chain, false, route.egress))
                .or_default() += route.fraction;
        }
        for ((chain, is_ingress, node), share) in carried {
            let ends = if is_ingress {
                &self.model.chains[chain].ingress
            } else {
                &self.model.chains[chain].egress
            };
            if let Ends::Shares(shares) = ends {
                let most = shares
                    .iter()
                    .find(|(n, _)| *n == node)
                    .map_or(0.0, |(_, s)| *s);
                if share > most + TOLERANCE {
                    let (id, node) = (&self.model.chains[chain].id, &self.model.nodes[node].id);
                    self.violations.push(format!(
                        "chain {id}: {share} of its demand at {node}, whose share is {most}"
                    ));
                }
            }
        }
    }

    /// Equations 6 and 7. Returns the largest link utilisation.
    fn links(&mut self, variables: &BTreeMap<(usize, usize, Stop, Stop), f64>) -> f64 {
        let mut between: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for (&(chain, z, from, to), x) in variables {
            let chain = &self.model.chains[chain];
            *between.entry((from.0, to.0)).or_default() +=
                chain.forward_mbps.get(z).unwrap_or(&0.0) * x;
            *between.entry((to.0, from.0)).or_default() +=
                chain.reverse_mbps.get(z).unwrap_or(&0.0) * x;
        }
        let mut load = vec![0.0; self.model.links.len()];
        for ((from, to), traffic) in between {
            if traffic > 0.0 && self.network.latency_ms(from, to).is_infinite() {
                let (from, to) = (&self.model.nodes[from].id, &self.model.nodes[to].id);
                self.violate(format!(
                    "{traffic} Mbit/s from {from} to {to}, which no link joins"
                ));
            }
            self.network
                .path(from, to)
                .for_each(|(link, r)| load[link] += r * traffic * self.factor);
        }
        let mut most: f64 = 0.0;
        for (index, link) in self.model.links.iter().enumerate() {
            let total = link.background_mbps + load[index];
            let limit = self.model.max_link_utilization * link.bandwidth_mbps;
            if load[index] > 0.0 && total > limit * (1.0 + TOLERANCE) {
                self.violate(format!(
                    "link {}: {total} Mbit/s above its limit of {limit} (equation 6)",
                    link.id
                ));
            }
            most = most.max(total / link.bandwidth_mbps);
        }
        most
    }

    /// Equation 4, for sites and for VNFs at sites.
    fn compute(&mut self, variables: &BTreeMap<(usize, usize, Stop, Stop), f64>) {
        let mut at_site = vec![0.0; self.model.sites.len()];
        let mut at_vnf: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for (&(c, z, from, to), x) in variables {
            let chain = &self.model.chains[c];
            let traffic = chain.forward_mbps.get(z).unwrap_or(&0.0)
                + chain.reverse_mbps.get(z).unwrap_or(&0.0);
            // The VNF before this stage sends its traffic, the one after it receives it.
            let ends = [(from.1, z.checked_sub(1)), (to.1, Some(z))];
            for (site, position) in ends {
                let vnf = position.and_then(|p| chain.vnfs.get(p));
                if let (Some(site), Some(&vnf)) = (site, vnf) {
                    let load = self.model.vnfs[vnf].load_per_mbps * traffic * x * self.factor;
                    at_site[site] += load;
                    *at_vnf.entry((vnf, site)).or_default() += load;
                }
            }
        }
        for (site, load) in self.model.sites.iter().zip(at_site) {
            if load > site.capacity * (1.0 + TOLERANCE) {
                self.violations.push(format!(
                    "site {}: load {load} above its capacity {}",
                    site.id, site.capacity
                ));
            }
        }
        for ((vnf, site), load) in at_vnf {
            let capacity = self.model.vnfs[vnf]
                .deployments
                .iter()
                .find(|d| d.site == site)
                .map_or(0.0, |d| d.capacity);
            if load > capacity * (1.0 + TOLERANCE) {
                let (vnf, site) = (&self.model.vnfs[vnf].id, &self.model.sites[site].id);
                self.violate(format!(
                    "VNF {vnf} at site {site}: load {load} above its capacity {capacity}"
                ));
            }
        }
    }

    fn value(
        &mut self,
        result: &ResultFile,
        fractions: &[f64],
        variables: &BTreeMap<(usize, usize, Stop, Stop), f64>,
    ) -> f64 {
        let chains = &self.model.chains;
        let value = match result.objective.as_str() {
            "throughput" => chains
                .iter()
                .zip(fractions)
                .map(|(c, x)| c.priority * c.demand_mbps() * x)
                .sum(),
            "latency" => variables
                .iter()
                .map(|(&(c, z, from, to), x)| {
                    let traffic = chains[c].forward_mbps.get(z).unwrap_or(&0.0)
                        + chains[c].reverse_mbps.get(z).unwrap_or(&0.0);
                    traffic * self.network.latency_ms(from.0, to.0) * x
                })
                .sum(),
            _ => result.value,
        };
        if (value - result.value).abs() > TOLERANCE * value.abs().max(1e-9) {
            self.violate(format!(
                "/value: stated {}, recomputed {value}",
                result.value
            ));
        }
        // What is carried in part travels less than the bound, which is for all of the demand.
        let comparable = !(result.partial && result.objective == "latency");
        if let Some(bound) = result.bound.filter(|_| comparable) {
            let beaten = if result.objective == "latency" {
                value < bound - TOLERANCE * bound.abs()
            } else {
                value > bound + TOLERANCE * bound.abs()
            };
            if beaten {
                self.violate(format!(
                    "/bound: {bound} is beaten by the value {value}, so it is no bound"
                ));
            }
        }
        value
    }
}
