//! What routes carry in a state of the network: the paper's equations 3 to 7, evaluated from them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::TOLERANCE;
use super::verdict::Verdict;
use crate::model::{Chain, Ends, Model};
use crate::network::Network;
use crate::result::{Figures, RouteEntry};
use crate::solution::Objective;

/// A stop of a route: a node, or a site at a node.
type Stop = (usize, Option<usize>);

/// The paper's variables x_{c z n1 n2} that are not zero.
type Variables = BTreeMap<(usize, usize, Stop, Stop), f64>;

/// A model and how its network carries traffic.
pub struct State<'a> {
    pub model: &'a Model,
    pub network: &'a Network,
    /// Whether capacities hold; plans may leave them out of account.
    pub capacities: bool,
}

/// What is claimed of routes.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    pub objective: Objective,
    /// The factor on all demands, under scale.
    pub value: f64,
    /// Whether demand may be left over that should have been carried.
    pub partial: bool,
}

impl Claim {
    /// That the routes carry all demands with a factor.
    pub fn of_scale(value: f64) -> Claim {
        Claim {
            objective: Objective::Scale,
            value,
            partial: false,
        }
    }

    fn factor(&self) -> f64 {
        match self.objective {
            Objective::Scale => self.value,
            Objective::Throughput | Objective::Latency => 1.0,
        }
    }
}

impl From<&Verdict> for Claim {
    fn from(verdict: &Verdict) -> Claim {
        Claim {
            objective: verdict.objective,
            value: verdict.value,
            partial: verdict.partial,
        }
    }
}

/// What routes turn out to carry.
#[derive(Debug)]
pub struct Found {
    pub violations: Vec<String>,
    /// Under scale the largest factor that they carry; infinite where nothing limits it.
    pub value: f64,
    pub figures: Figures,
    /// Load of each VNF at each site.
    pub vnfs: BTreeMap<(usize, usize), f64>,
}

struct Checker<'a> {
    state: &'a State<'a>,
    claim: Claim,
    /// Pointer of the routes.
    place: &'a str,
    violations: Vec<String>,
    /// Largest factor on the demands for which every capacity holds.
    room: f64,
}

impl State<'_> {
    /// A model as it is.
    pub fn new<'a>(model: &'a Model, network: &'a Network) -> State<'a> {
        State {
            model,
            network,
            capacities: true,
        }
    }

    /// Evaluates routes, which stand at the pointer `place`, against what is claimed of them.
    pub fn evaluate(&self, claim: impl Into<Claim>, routes: &[RouteEntry], place: &str) -> Found {
        let mut checker = Checker {
            state: self,
            claim: claim.into(),
            place,
            violations: Vec::new(),
            room: f64::INFINITY,
        };
        let variables = checker.variables(routes);
        checker.conservation(&variables);
        checker.demands(routes);
        checker.ends(routes);
        checker.numbers_of_routes(routes);
        let max_link_utilization = checker.links(&variables);
        let vnfs = checker.compute(&variables);
        let (carried_mbps, mean_latency_ms) = checker.carried(routes);
        Found {
            value: checker.value(routes, &variables),
            violations: checker.violations,
            figures: Figures {
                carried_mbps,
                mean_latency_ms,
                max_link_utilization,
            },
            vnfs,
        }
    }

    fn stops(&self, route: &RouteEntry) -> Vec<Stop> {
        let mut stops = vec![(route.ingress, None)];
        let sites = route.sites.iter();
        stops.extend(sites.map(|&s| (self.model.sites[s].node, Some(s))));
        stops.push((route.egress, None));
        stops
    }

    fn latency(&self, route: &RouteEntry) -> f64 {
        let stops = self.stops(route);
        let hops = stops.windows(2);
        hops.map(|h| self.network.latency_ms(h[0].0, h[1].0)).sum()
    }
}

impl Checker<'_> {
    fn violate(&mut self, message: String) {
        self.violations.push(format!("{}: {message}", self.place));
    }

    fn violate_at(&mut self, rest: &str, message: String) {
        self.violations
            .push(format!("{}/{rest}: {message}", self.place));
    }

    fn variables(&mut self, routes: &[RouteEntry]) -> Variables {
        let mut variables = Variables::new();
        for (index, route) in routes.iter().enumerate() {
            let chain = &self.state.model.chains[route.chain];
            let stops = self.state.stops(route);
            self.conformity(index, chain, route);
            self.limits(index, chain, route, &stops);
            for (z, hop) in stops.windows(2).enumerate() {
                *variables
                    .entry((route.chain, z, hop[0], hop[1]))
                    .or_default() += route.fraction;
            }
        }
        variables
    }

    /// The route passes every VNF of its chain, in order, at sites where it is deployed.
    fn conformity(&mut self, index: usize, chain: &Chain, route: &RouteEntry) {
        let model = self.state.model;
        if route.sites.len() != chain.vnfs.len() {
            let (sites, vnfs) = (route.sites.len(), chain.vnfs.len());
            let message = format!("{sites} sites for {vnfs} VNFs of chain {}", chain.id);
            self.violate_at(&format!("{index}/sites"), message);
        }
        for (k, (&site, &vnf)) in route.sites.iter().zip(&chain.vnfs).enumerate() {
            let vnf = &model.vnfs[vnf];
            if !vnf.deployments.iter().any(|d| d.site == site) {
                let message = format!("VNF {} is not deployed at {}", vnf.id, model.sites[site].id);
                self.violate_at(&format!("{index}/sites/{k}"), message);
            }
        }
        for (end, ends, name) in [
            (route.ingress, &chain.ingress, "ingress"),
            (route.egress, &chain.egress, "egress"),
        ] {
            if !ends.nodes().any(|n| n == end) {
                let message = format!("not an {name} of chain {}", chain.id);
                self.violate_at(&format!("{index}/{name}"), message);
            }
        }
    }

    fn limits(&mut self, index: usize, chain: &Chain, route: &RouteEntry, stops: &[Stop]) {
        let (limits, network) = (&chain.limits, self.state.network);
        let latency = self.state.latency(route);
        if let Some(most) = limits.max_latency_ms
            && latency > most * (1.0 + TOLERANCE)
        {
            let message = format!("latency {latency} ms above the limit {most} ms");
            self.violate_at(&index.to_string(), message);
        }
        if !limits.restrict_routes() {
            return;
        }
        let sites: Vec<usize> = stops.iter().filter_map(|s| s.1).collect();
        let mut links = HashSet::new();
        for (z, hop) in stops.windows(2).enumerate() {
            let (a, b) = (hop[0].0, hop[1].0);
            if chain.forward_mbps.get(z).is_some_and(|w| *w > 0.0) {
                links.extend(network.path(a, b).map(|(l, _)| l));
            }
            if chain.reverse_mbps.get(z).is_some_and(|v| *v > 0.0) {
                links.extend(network.path(b, a).map(|(l, _)| l));
            }
        }
        let wrong = limits.avoid_sites.iter().any(|s| sites.contains(s))
            || limits.avoid_links.iter().any(|l| links.contains(l))
            || limits.use_sites.iter().any(|s| !sites.contains(s))
            || limits.use_links.iter().any(|l| !links.contains(l));
        if wrong {
            let message = format!(
                "uses what chain {} must avoid, or misses what it must use",
                chain.id
            );
            self.violate_at(&index.to_string(), message);
        }
    }

    /// Equation 5: what enters a VNF at a site leaves it.
    fn conservation(&mut self, variables: &Variables) {
        let mut balance: BTreeMap<(usize, usize, Stop), f64> = BTreeMap::new();
        for (&(chain, z, from, to), x) in variables {
            *balance.entry((chain, z, to)).or_default() += x;
            if z > 0 {
                *balance.entry((chain, z - 1, from)).or_default() -= x;
            }
        }
        for ((chain, z, _), net) in balance {
            let chain = &self.state.model.chains[chain];
            if z < chain.vnfs.len() && net.abs() > TOLERANCE {
                let stage = z + 1;
                self.violate(format!(
                    "chain {}: stage {stage} does not conserve traffic (off by {net:+e})",
                    chain.id
                ));
            }
        }
    }

    fn shares(&self, routes: &[RouteEntry]) -> Vec<f64> {
        let mut shares = vec![0.0; self.state.model.chains.len()];
        for route in routes {
            shares[route.chain] += route.fraction;
        }
        shares
    }

    /// Every chain is carried as far as it must be, and no further than it demands.
    fn demands(&mut self, routes: &[RouteEntry]) {
        let default = match self.claim.objective {
            Objective::Throughput => 0.0,
            Objective::Scale | Objective::Latency => 1.0,
        };
        let mut missing = false;
        for (chain, share) in self.state.model.chains.iter().zip(self.shares(routes)) {
            let idle = stages(chain).all(|mbps| mbps <= 0.0);
            let asked = if idle {
                0.0
            } else {
                chain.minimum_share.unwrap_or(default).max(default)
            };
            let least = if self.claim.partial { 0.0 } else { asked };
            // What is missing in part is far more than what sums of shares lose by rounding.
            missing |= share < asked - 1e-13;
            if !(least - TOLERANCE..=1.0 + TOLERANCE).contains(&share) {
                self.violate(format!(
                    "chain {}: {share} of its demand is carried, not {least} to 1",
                    chain.id
                ));
            }
        }
        // Under throughput a chain may lack what must be carried and have as much of the rest.
        let whole = self.claim.objective == Objective::Latency && !missing;
        if self.claim.partial && whole {
            self.violations
                .push("/status: demand is left in part, and the routes carry all of it".into());
        }
    }

    /// Fixed ingress and egress shares are met up to what is carried at all.
    fn ends(&mut self, routes: &[RouteEntry]) {
        let mut carried: BTreeMap<(usize, bool, usize), f64> = BTreeMap::new();
        for route in routes {
            for (is_ingress, node) in [(true, route.ingress), (false, route.egress)] {
                *carried.entry((route.chain, is_ingress, node)).or_default() += route.fraction;
            }
        }
        for ((chain, is_ingress, node), share) in carried {
            let chain = &self.state.model.chains[chain];
            let ends = if is_ingress {
                &chain.ingress
            } else {
                &chain.egress
            };
            let Ends::Shares(shares) = ends else { continue };
            let mine = shares.iter().find(|(n, _)| *n == node);
            let most = mine.map_or(0.0, |(_, s)| *s);
            if share > most + TOLERANCE {
                let node = &self.state.model.nodes[node].id;
                self.violate(format!(
                    "chain {}: {share} of its demand at {node}, whose share is {most}",
                    chain.id
                ));
            }
        }
    }

    fn numbers_of_routes(&mut self, routes: &[RouteEntry]) {
        let mut distinct = BTreeSet::new();
        let mut count = vec![0; self.state.model.chains.len()];
        for r in routes {
            if distinct.insert((r.chain, r.ingress, r.egress, &r.sites)) {
                count[r.chain] += 1;
            } else {
                let id = &self.state.model.chains[r.chain].id;
                self.violate(format!("chain {id}: the same route stands twice"));
            }
        }
        for (chain, count) in self.state.model.chains.iter().zip(count) {
            if let Some(most) = chain.limits.max_routes
                && count > most
            {
                self.violate(format!(
                    "chain {}: {count} routes, at most {most} allowed",
                    chain.id
                ));
            }
        }
    }

    /// A load with the demands as they are against what there is room for.
    fn capacity(&mut self, name: impl Fn() -> String, load: f64, room: f64, others: f64) {
        if load <= 0.0 {
            return;
        }
        self.room = self.room.min((room - others) / load);
        let total = others + load * self.claim.factor();
        let fits = total <= room * (1.0 + TOLERANCE);
        if self.state.capacities && !fits {
            self.violate(format!("{}: {total} above its limit of {room}", name()));
        }
    }

    /// Equations 6 and 7. Returns the largest link utilisation.
    fn links(&mut self, variables: &Variables) -> f64 {
        let (model, network) = (self.state.model, self.state.network);
        let mut between: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for (&(chain, z, from, to), x) in variables {
            let chain = &model.chains[chain];
            let traffic = |of: &[f64]| of.get(z).unwrap_or(&0.0) * x;
            *between.entry((from.0, to.0)).or_default() += traffic(&chain.forward_mbps);
            *between.entry((to.0, from.0)).or_default() += traffic(&chain.reverse_mbps);
        }
        let mut load = vec![0.0; model.links.len()];
        for ((from, to), traffic) in between {
            if traffic > 0.0 && network.latency_ms(from, to).is_infinite() {
                let (from, to) = (&model.nodes[from].id, &model.nodes[to].id);
                self.violate(format!(
                    "{traffic} Mbit/s from {from} to {to}, which no link joins"
                ));
            }
            let path = network.path(from, to);
            path.for_each(|(link, r)| load[link] += r * traffic);
        }
        let mut most: f64 = 0.0;
        for (link, load) in model.links.iter().zip(load) {
            let limit = model.max_link_utilization * link.bandwidth_mbps;
            let name = || format!("link {} (equation 6, Mbit/s)", link.id);
            self.capacity(name, load, limit, link.background_mbps);
            let total = link.background_mbps + load * self.claim.factor();
            most = most.max(total / link.bandwidth_mbps);
        }
        most
    }

    /// Equation 4, for sites and for VNFs at sites. Returns the load of each VNF at each site.
    fn compute(&mut self, variables: &Variables) -> BTreeMap<(usize, usize), f64> {
        let model = self.state.model;
        let mut at_site = vec![0.0; model.sites.len()];
        let mut at_vnf: BTreeMap<(usize, usize), f64> = BTreeMap::new();
        for (&(c, z, from, to), x) in variables {
            let chain = &model.chains[c];
            let traffic = stage_traffic(chain, z);
            // The VNF before this stage sends its traffic, the one after it receives it.
            let ends = [(from.1, z.checked_sub(1)), (to.1, Some(z))];
            for (site, position) in ends {
                let vnf = position.and_then(|p| chain.vnfs.get(p));
                if let (Some(site), Some(&vnf)) = (site, vnf) {
                    let load = model.vnfs[vnf].load_per_mbps * traffic * x;
                    at_site[site] += load;
                    *at_vnf.entry((vnf, site)).or_default() += load;
                }
            }
        }
        for (site, load) in model.sites.iter().zip(at_site) {
            let name = || format!("site {} (equation 4, load)", site.id);
            self.capacity(name, load, site.capacity, 0.0);
        }
        for (&(vnf, site), &load) in &at_vnf {
            let mut deployments = model.vnfs[vnf].deployments.iter();
            let here = deployments.find(|d| d.site == site);
            let name = || {
                let (vnf, site) = (&model.vnfs[vnf].id, &model.sites[site].id);
                format!("VNF {vnf} at site {site} (equation 4, load)")
            };
            self.capacity(name, load, here.map_or(0.0, |d| d.capacity), 0.0);
        }
        at_vnf
    }

    /// Demand carried, and its mean latency.
    fn carried(&self, routes: &[RouteEntry]) -> (f64, f64) {
        let (mut carried, mut latency) = (0.0, 0.0);
        for route in routes {
            let demand = self.state.model.chains[route.chain].demand_mbps();
            let mbps = route.fraction * demand * self.claim.factor();
            carried += mbps;
            latency += mbps * self.state.latency(route);
        }
        let mean = if carried > 0.0 {
            latency / carried
        } else {
            0.0
        };
        (carried, mean)
    }

    fn value(&self, routes: &[RouteEntry], variables: &Variables) -> f64 {
        let chains = &self.state.model.chains;
        match self.claim.objective {
            Objective::Scale => self.room,
            Objective::Throughput => {
                let worth = |(c, share): (&Chain, f64)| c.priority * c.demand_mbps() * share;
                chains.iter().zip(self.shares(routes)).map(worth).sum()
            }
            // Equation 3.
            Objective::Latency => variables
                .iter()
                .map(|(&(c, z, from, to), x)| {
                    let latency = self.state.network.latency_ms(from.0, to.0);
                    stage_traffic(&chains[c], z) * latency * x
                })
                .sum(),
        }
    }
}

/// Traffic of all stages in either direction.
fn stages(chain: &Chain) -> impl Iterator<Item = f64> + '_ {
    let both = chain.forward_mbps.iter().chain(&chain.reverse_mbps);
    both.copied()
}

/// Traffic of a stage in both directions.
fn stage_traffic(chain: &Chain, z: usize) -> f64 {
    let of = |traffic: &[f64]| traffic.get(z).copied().unwrap_or(0.0);
    of(&chain.forward_mbps) + of(&chain.reverse_mbps)
}
