//! Chains as commodities, and the load that a route puts on the rows.

use super::{Demand, Instance, NONE};
use crate::model::{Chain, Ends, Limits};

/// A part of a chain's demand that is routed on its own.
#[derive(Debug, Clone)]
pub struct Commodity {
    /// Index of the chain.
    pub chain: u32,
    /// Share of the chain's demand.
    pub share: f64,
    /// Offered demand of this part, Mbit/s.
    pub demand: f64,
    /// Worth of carrying it in full under throughput: priority × demand.
    pub worth: f64,
    /// Whether it must be carried.
    pub mandatory: bool,
    /// Index of its first stage.
    pub first_stage: u32,
    /// Number of VNFs; it has one stage more.
    pub vnfs: u32,
    /// Range of its ingress places in [`Instance::ends`].
    pub sources: (u32, u32),
    /// Range of its egress places.
    pub sinks: (u32, u32),
    /// Restrictions on its routes, where it has any.
    pub limits: Option<Box<Limits>>,
}

impl Commodity {
    /// Index of a stage, counted from zero.
    pub fn stage(&self, z: usize) -> usize {
        self.first_stage as usize + z
    }
}

pub(super) fn expand(instance: &mut Instance, index: usize, chain: &Chain) {
    let minimum = match instance.demand {
        Demand::Partial => chain.minimum_share.unwrap_or(0.0),
        // Scale and latency carry everything, whatever the minimum under throughput.
        Demand::Full => 1.0,
    };
    for (sources, source_share) in groups(&chain.ingress) {
        for (sinks, sink_share) in groups(&chain.egress) {
            for (part, mandatory) in [(minimum, true), (1.0 - minimum, false)] {
                let share = source_share * sink_share * part;
                if share > 0.0 {
                    push(instance, index, chain, (&sources, &sinks), share, mandatory);
                }
            }
        }
    }
}

/// The sets of ends between which a fixed share of the demand flows.
fn groups(ends: &Ends) -> Vec<(Vec<usize>, f64)> {
    match ends {
        Ends::Any(nodes) => vec![(nodes.clone(), 1.0)],
        Ends::Shares(shares) => shares
            .iter()
            .map(|&(node, share)| (vec![node], share))
            .collect(),
    }
}

fn push(
    instance: &mut Instance,
    index: usize,
    chain: &Chain,
    ends: (&[usize], &[usize]),
    share: f64,
    mandatory: bool,
) {
    let first_stage = instance.stage_vnf.len() as u32;
    instance
        .stage_vnf
        .extend(chain.vnfs.iter().map(|&f| f as u32));
    instance.stage_vnf.push(NONE);
    instance
        .forward
        .extend(chain.forward_mbps.iter().map(|w| w * share));
    instance
        .reverse
        .extend(chain.reverse_mbps.iter().map(|v| v * share));
    let mut range = |nodes: &[usize]| {
        let first = instance.ends.len() as u32;
        instance
            .ends
            .extend(nodes.iter().map(|&n| instance.place_of[n]));
        (first, instance.ends.len() as u32)
    };
    let (sources, sinks) = (range(ends.0), range(ends.1));
    let demand = chain.demand_mbps() * share;
    instance.commodities.push(Commodity {
        chain: index as u32,
        share,
        demand,
        worth: chain.priority * demand,
        mandatory,
        first_stage,
        vnfs: chain.vnfs.len() as u32,
        sources,
        sinks,
        limits: chain
            .limits
            .restrict_routes()
            .then(|| Box::new(chain.limits.clone())),
    });
}

impl Instance {
    /// The ingress places of a commodity.
    pub fn sources(&self, commodity: &Commodity) -> &[u32] {
        &self.ends[commodity.sources.0 as usize..commodity.sources.1 as usize]
    }

    /// The egress places of a commodity.
    pub fn sinks(&self, commodity: &Commodity) -> &[u32] {
        &self.ends[commodity.sinks.0 as usize..commodity.sinks.1 as usize]
    }

    /// Load factor of the VNF that ends stage `z`, Mbit/s sent plus received in both directions (equation 4).
    pub fn handled(&self, commodity: &Commodity, z: usize) -> f64 {
        let stage = commodity.stage(z);
        self.forward[stage]
            + self.reverse[stage]
            + self.forward[stage + 1]
            + self.reverse[stage + 1]
    }

    /// Calls `add(row, load)` for everything that the commodity's whole demand loads on a route
    /// (equations 4 and 7); a row may come several times.
    pub fn loads(&self, commodity: &Commodity, route: &Route, add: impl FnMut(usize, f64)) {
        self.loads_on(commodity, route.way(), add);
    }

    /// As [`Instance::loads`], of a route that belongs to somebody else.
    #[inline]
    pub fn loads_on(&self, commodity: &Commodity, route: Way<'_>, mut add: impl FnMut(usize, f64)) {
        let mut at = route.source as usize;
        for z in 0..=commodity.vnfs as usize {
            let stage = commodity.stage(z);
            let next = match route.sites.get(z) {
                Some(&site) => {
                    let (vnf, site) = (self.stage_vnf[stage] as usize, site as usize);
                    let load = self.vnfs[vnf].load_per_mbps * self.handled(commodity, z);
                    if load > 0.0 {
                        add(self.links + site, load);
                        if let Some(row) = self.vnf_row(vnf, site) {
                            add(row, load);
                        }
                    }
                    self.site_place[site] as usize
                }
                None => route.sink as usize,
            };
            let (from, to) = (self.node_at[at] as usize, self.node_at[next] as usize);
            if self.forward[stage] > 0.0 {
                self.network
                    .path(from, to)
                    .for_each(|(link, r)| add(link, r * self.forward[stage]));
            }
            if self.reverse[stage] > 0.0 {
                self.network
                    .path(to, from)
                    .for_each(|(link, r)| add(link, r * self.reverse[stage]));
            }
            at = next;
        }
    }

    /// Whether the traffic of a commodity's stage gets from one place to another, and what answers it back.
    pub fn joins(&self, commodity: &Commodity, z: usize, from: u32, to: u32) -> bool {
        let node = |place: u32| self.node_at[place as usize] as usize;
        let (from, to) = (node(from), node(to));
        self.network.latency_ms(from, to).is_finite()
            && (self.reverse[commodity.stage(z)] == 0.0
                || self.network.latency_ms(to, from).is_finite())
    }

    /// One-way latency of a route, ms.
    pub fn latency_ms(&self, route: &Route) -> f64 {
        self.hops(route)
            .map(|(a, b)| self.network.latency_ms(a, b))
            .sum()
    }

    /// Equation 3 for the commodity's whole demand on a route, Mbit/s · ms.
    pub fn weighted_latency(&self, commodity: &Commodity, route: &Route) -> f64 {
        let first = commodity.first_stage as usize;
        self.hops(route)
            .enumerate()
            .map(|(z, (a, b))| {
                (self.forward[first + z] + self.reverse[first + z]) * self.network.latency_ms(a, b)
            })
            .sum()
    }

    /// The pairs of nodes that a route joins, stage by stage.
    pub fn hops<'a>(&'a self, route: &'a Route) -> impl Iterator<Item = (usize, usize)> + 'a {
        let node = |place: u32| self.node_at[place as usize] as usize;
        let stops = route
            .sites
            .iter()
            .map(move |&s| node(self.site_place[s as usize]));
        let from = std::iter::once(node(route.source)).chain(stops.clone());
        from.zip(stops.chain(std::iter::once(node(route.sink))))
    }
}

/// A route of a commodity: the site of every VNF, and the ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    /// Ingress place.
    pub source: u32,
    /// Egress place.
    pub sink: u32,
    /// Site of each VNF in order.
    pub sites: Box<[u32]>,
}

impl Route {
    /// The route, lent.
    pub fn way(&self) -> Way<'_> {
        Way {
            source: self.source,
            sink: self.sink,
            sites: &self.sites,
        }
    }
}

/// A route whose sites somebody else keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way<'a> {
    /// Ingress place.
    pub source: u32,
    /// Egress place.
    pub sink: u32,
    /// Site of each VNF in order.
    pub sites: &'a [u32],
}

impl Way<'_> {
    /// A route of one's own.
    pub fn route(&self) -> Route {
        Route {
            source: self.source,
            sink: self.sink,
            sites: self.sites.into(),
        }
    }
}
