//! A model compiled for the algorithms: numbered rows (the capacities) and commodities (what must be routed).
//!
//! Rows are the links (equation 6), then the sites (equation 4), then the VNFs at sites (equation 4 for m_sf).
//! A chain becomes one commodity for each pair of its fixed ingress and egress shares, and two where only a
//! part of it must be carried: a mandatory and an optional one. Nodes are renumbered as *places*, those with a
//! site first, so that the dynamic program runs over a dense prefix.

mod commodity;

use std::collections::HashMap;

use crate::error::Infeasible;
use crate::infeasible;
use crate::model::{Chain, Link, Model};
use crate::network::Network;
pub use commodity::{Commodity, Route, Way};

/// A row that does not exist.
pub const NONE: u32 = u32::MAX;

/// A link whose free capacity is below this share of its bandwidth carries nothing.
pub(crate) const EMPTY: f64 = 1e-9;

/// Vector lanes that tables are padded to.
pub const LANES: usize = 8;

/// What `minimum_share` means where a chain does not state one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// Chains may be carried in part (throughput).
    Partial,
    /// Chains must be carried in full (scale, latency).
    Full,
}

/// The compiled model.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Links, shares and latencies between nodes.
    pub network: Network,
    /// Capacity left for chains, by row; zero blocks the row.
    pub capacity: Vec<f64>,
    /// Number of links: rows `0..links`.
    pub links: usize,
    /// Number of sites: rows `links..links + sites`.
    pub sites: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Places that have a site, padded to whole vectors.
    pub site_places: usize,
    /// All places, padded to whole vectors: the stride of place-indexed tables.
    pub stride: usize,
    /// Place of each node.
    pub place_of: Vec<u32>,
    /// Node of each place.
    pub node_at: Vec<u32>,
    /// Place of each site.
    pub site_place: Vec<u32>,
    /// Where each VNF may run.
    pub vnfs: Vec<VnfSites>,
    /// Row of each VNF at each site; [`NONE`] where it is not.
    vnf_rows: Vec<u32>,
    /// What must be routed.
    pub commodities: Vec<Commodity>,
    /// VNF of each stage's end, for all commodities; [`NONE`] for the stage that ends at the egress.
    pub stage_vnf: Vec<u32>,
    /// Forward traffic of each stage, Mbit/s.
    pub forward: Vec<f64>,
    /// Reverse traffic of each stage, Mbit/s.
    pub reverse: Vec<f64>,
    /// Ends of the commodities, as places.
    pub ends: Vec<u32>,
    /// Most routes, for the chains that limit them.
    pub max_routes: HashMap<u32, usize>,
    /// Load that other traffic puts on each row and that grows with the demands under scale, as a share of the row's
    /// capacity; empty where there is none.
    pub base: Vec<f64>,
    demand: Demand,
}

/// A VNF's deployments in the instance's terms.
#[derive(Debug, Clone)]
pub struct VnfSites {
    /// l_f.
    pub load_per_mbps: f64,
    /// Deployments as (site, row).
    pub deployments: Vec<(u32, u32)>,
    /// Places of the deployments, ascending, each once.
    pub places: Vec<u32>,
}

impl Instance {
    /// Compiles a model.
    ///
    /// # Errors
    /// A link whose background traffic alone breaks equation 6.
    pub fn new(model: &Model, demand: Demand) -> Result<Instance, Infeasible> {
        Self::with_network(model, Network::of(model), demand)
    }

    /// Compiles a model whose network routing is already known, such as after a failure.
    ///
    /// # Errors
    /// As [`Instance::new`].
    pub fn with_network(
        model: &Model,
        network: Network,
        demand: Demand,
    ) -> Result<Instance, Infeasible> {
        let capacity = capacities(model)?;
        let (links, sites, nodes) = (model.links.len(), model.sites.len(), model.nodes.len());
        let (node_at, place_of, with_site) = places(model);
        let site_place: Vec<u32> = model.sites.iter().map(|s| place_of[s.node]).collect();
        let mut row = (links + sites) as u32;
        let vnfs: Vec<VnfSites> = model
            .vnfs
            .iter()
            .map(|vnf| {
                let deployments: Vec<(u32, u32)> = vnf
                    .deployments
                    .iter()
                    .map(|d| {
                        row += 1;
                        (d.site as u32, row - 1)
                    })
                    .collect();
                let mut places: Vec<u32> = deployments
                    .iter()
                    .map(|(s, _)| site_place[*s as usize])
                    .collect();
                places.sort_unstable();
                places.dedup();
                VnfSites {
                    load_per_mbps: vnf.load_per_mbps,
                    deployments,
                    places,
                }
            })
            .collect();
        let mut instance = Instance {
            network,
            capacity,
            links,
            sites,
            nodes,
            site_places: with_site.next_multiple_of(LANES),
            stride: nodes.next_multiple_of(LANES),
            place_of,
            node_at,
            site_place,
            vnf_rows: vnf_rows(&vnfs, sites),
            vnfs,
            commodities: Vec::with_capacity(model.chains.len()),
            stage_vnf: Vec::new(),
            forward: Vec::new(),
            reverse: Vec::new(),
            ends: Vec::new(),
            max_routes: HashMap::new(),
            base: Vec::new(),
            demand,
        };
        for (index, chain) in model.chains.iter().enumerate() {
            instance.push_chain(index, chain);
        }
        Ok(instance)
    }

    /// Adds the commodities of a chain; `index` is its number in results.
    pub fn push_chain(&mut self, index: usize, chain: &Chain) {
        commodity::expand(self, index, chain);
        if let Some(most) = chain.limits.max_routes {
            self.max_routes.insert(index as u32, most);
        }
    }

    /// Multiplies the traffic of each commodity's stages. Commodities must not share stages.
    pub fn scale_stages(&mut self, factors: &[f64]) {
        for (commodity, factor) in self.commodities.iter().zip(factors) {
            let stages = commodity.stage(0)..=commodity.stage(commodity.vnfs as usize);
            self.forward[stages.clone()]
                .iter_mut()
                .for_each(|w| *w *= factor);
            self.reverse[stages].iter_mut().for_each(|v| *v *= factor);
        }
    }

    /// Takes the last commodities back until `count` are left.
    pub fn truncate(&mut self, count: usize) {
        let Some(first) = self.commodities.get(count) else {
            return;
        };
        let (stage, end, chain) = (
            first.first_stage as usize,
            first.sources.0 as usize,
            first.chain,
        );
        self.stage_vnf.truncate(stage);
        self.forward.truncate(stage);
        self.reverse.truncate(stage);
        self.ends.truncate(end);
        self.commodities.truncate(count);
        self.max_routes.remove(&chain);
    }

    /// Whether a route visits only sites where its VNFs are, between ends that the commodity has.
    pub fn allows(&self, commodity: &Commodity, route: &Route) -> bool {
        let deployed = |(z, &site): (usize, &u32)| {
            self.vnf_row(self.stage_vnf[commodity.stage(z)] as usize, site as usize)
                .is_some()
        };
        route.sites.len() == commodity.vnfs as usize
            && self.sources(commodity).contains(&route.source)
            && self.sinks(commodity).contains(&route.sink)
            && route.sites.iter().enumerate().all(deployed)
    }

    /// Takes a VNF away from the sites for which `closed` holds; its rows stay, unused.
    pub fn close(&mut self, vnf: usize, closed: impl Fn(&u32) -> bool) {
        let sites = &mut self.vnfs[vnf];
        sites.deployments.retain(|(site, _)| !closed(site));
        let place = |(site, _): &(u32, u32)| self.site_place[*site as usize];
        sites.places = sites.deployments.iter().map(place).collect();
        sites.places.sort_unstable();
        sites.places.dedup();
        self.vnf_rows = vnf_rows(&self.vnfs, self.sites);
    }

    /// What an unstated `minimum_share` means here.
    pub fn demand(&self) -> Demand {
        self.demand
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.capacity.len()
    }

    /// What a row stands for, in the model's names.
    pub fn row_name(&self, model: &Model, row: usize) -> String {
        if row < self.links {
            return format!("link {}", model.links[row].id);
        }
        if row < self.links + self.sites {
            return format!("site {}", model.sites[row - self.links].id);
        }
        for (vnf, sites) in model.vnfs.iter().zip(&self.vnfs) {
            if let Some((site, _)) = sites.deployments.iter().find(|(_, r)| *r as usize == row) {
                return format!("VNF {} at site {}", vnf.id, model.sites[*site as usize].id);
            }
        }
        format!("row {row}")
    }

    /// Row of a VNF at a site.
    pub fn vnf_row(&self, vnf: usize, site: usize) -> Option<usize> {
        let row = self.vnf_rows[vnf * self.sites + site];
        (row != NONE).then_some(row as usize)
    }
}

/// The rows of VNFs at sites as a table.
fn vnf_rows(vnfs: &[VnfSites], sites: usize) -> Vec<u32> {
    let mut rows = vec![NONE; vnfs.len() * sites];
    for (vnf, deployed) in vnfs.iter().enumerate() {
        for &(site, row) in &deployed.deployments {
            rows[vnf * sites + site as usize] = row;
        }
    }
    rows
}

/// Places with a site first, in node order; then the others. Also the number of places with a site.
fn places(model: &Model) -> (Vec<u32>, Vec<u32>, usize) {
    let mut has_site = vec![false; model.nodes.len()];
    for site in &model.sites {
        has_site[site.node] = true;
    }
    let mut node_at: Vec<u32> = (0..model.nodes.len() as u32).collect();
    node_at.sort_by_key(|&n| !has_site[n as usize]);
    let mut place_of = vec![0; node_at.len()];
    for (place, &node) in node_at.iter().enumerate() {
        place_of[node as usize] = place as u32;
    }
    (node_at, place_of, has_site.iter().filter(|h| **h).count())
}

fn capacities(model: &Model) -> Result<Vec<f64>, Infeasible> {
    infeasible::background(model)?;
    let free = |link: &Link| {
        let free = model.max_link_utilization * link.bandwidth_mbps - link.background_mbps;
        if free <= EMPTY * link.bandwidth_mbps {
            0.0
        } else {
            free
        }
    };
    let deployments = model.vnfs.iter().flat_map(|v| &v.deployments);
    Ok(model
        .links
        .iter()
        .map(free)
        .chain(model.sites.iter().map(|s| s.capacity))
        .chain(deployments.map(|d| d.capacity))
        .collect())
}
