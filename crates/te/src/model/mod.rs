//! The model of the paper's Table 1: network, clouds, virtual network functions (VNFs), chains.
//!
//! A [`Model`] is valid by construction: [`read`](Model::read) checks every reference, range and
//! reachability, so that the algorithms never meet a dangling index or a number that is not finite.
//! Units: traffic and bandwidth in Mbit/s, latency in milliseconds, compute in load units.

mod chains;
mod geography;
pub mod ranges;
mod read;
mod validate;
mod write;

pub use chains::traffic as read_traffic;
pub use geography::{KM_PER_MS, great_circle_km};

/// A node of the backbone.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Unique name.
    pub id: String,
    /// Latitude and longitude in degrees, where known.
    pub coordinates: Option<(f64, f64)>,
}

/// A directed link; parallel links are separate entries.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Unique name.
    pub id: String,
    /// Index of the node it leaves.
    pub from: usize,
    /// Index of the node it enters.
    pub to: usize,
    /// Propagation delay, ms.
    pub latency_ms: f64,
    /// Capacity b_e, Mbit/s, above zero.
    pub bandwidth_mbps: f64,
    /// Traffic g_e that is not Switchboard's, Mbit/s.
    pub background_mbps: f64,
}

/// How the network carries traffic between two nodes: the paper's r.
#[derive(Debug, Clone, PartialEq)]
pub enum Routing {
    /// Shortest paths by latency, split equally over equal next hops, as routers with ECMP do.
    ShortestPath,
    /// Given fractions.
    Fractions(Vec<Fraction>),
}

/// The share of the traffic between two nodes that crosses a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fraction {
    /// Index of the node the traffic enters the network at.
    pub from: usize,
    /// Index of the node it leaves the network at.
    pub to: usize,
    /// Index of the link.
    pub link: usize,
    /// r, between 0 and 1.
    pub fraction: f64,
}

/// A cloud site at a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Unique name.
    pub id: String,
    /// Index of its node.
    pub node: usize,
    /// m_s, load units.
    pub capacity: f64,
}

/// A VNF and where it runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Vnf {
    /// Unique name.
    pub id: String,
    /// l_f: load units for each Mbit/s sent or received.
    pub load_per_mbps: f64,
    /// Where it is deployed, at most once for each site.
    pub deployments: Vec<Deployment>,
}

/// A VNF at a site.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deployment {
    /// Index of the site.
    pub site: usize,
    /// m_sf, load units.
    pub capacity: f64,
}

/// The nodes at one end of a chain.
#[derive(Debug, Clone, PartialEq)]
pub enum Ends {
    /// Traffic may use any of these nodes, in any proportion; usually one.
    Any(Vec<usize>),
    /// Traffic enters (or leaves) in these proportions, which sum to one.
    Shares(Vec<(usize, f64)>),
}

impl Ends {
    /// The node indexes.
    pub fn nodes(&self) -> impl Iterator<Item = usize> + '_ {
        let (any, shares): (&[usize], &[(usize, f64)]) = match self {
            Ends::Any(nodes) => (nodes, &[]),
            Ends::Shares(shares) => (&[], shares),
        };
        any.iter().copied().chain(shares.iter().map(|(n, _)| *n))
    }
}

/// What an operator asks of one chain's routes beyond the paper.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Limits {
    /// Longest one-way latency of any route, ms.
    pub max_latency_ms: Option<f64>,
    /// Sites that no route may use.
    pub avoid_sites: Vec<usize>,
    /// Links that no route's traffic may cross, in either direction of the chain.
    pub avoid_links: Vec<usize>,
    /// Sites that every route must use.
    pub use_sites: Vec<usize>,
    /// Links that some of every route's traffic must cross.
    pub use_links: Vec<usize>,
    /// Most routes the chain may be split over.
    pub max_routes: Option<usize>,
}

impl Limits {
    /// Whether single routes are restricted, so that the plain dynamic program does not suffice.
    pub fn restrict_routes(&self) -> bool {
        self.max_latency_ms.is_some()
            || !self.avoid_sites.is_empty()
            || !self.avoid_links.is_empty()
            || !self.use_sites.is_empty()
            || !self.use_links.is_empty()
    }
}

/// A customer's service chain.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// Unique name.
    pub id: String,
    /// Name of the customer it belongs to, one of [`Model::customers`].
    pub customer: Option<String>,
    /// Where its traffic enters.
    pub ingress: Ends,
    /// Where its traffic leaves.
    pub egress: Ends,
    /// F_c: VNF indexes in order; empty for a chain without VNFs.
    pub vnfs: Vec<usize>,
    /// w_cz, one for each stage: one more than VNFs.
    pub forward_mbps: Vec<f64>,
    /// v_cz, one for each stage.
    pub reverse_mbps: Vec<f64>,
    /// Worth of one carried Mbit/s under the throughput objective: the chain's own, else its customer's, else 1.
    pub priority: f64,
    /// Share of the demand that must be carried under throughput, 0 unless stated; scale and latency carry all of it.
    pub minimum_share: Option<f64>,
    /// Share still carried after any single failure under `--survive`; 1 unless stated.
    pub survive_share: Option<f64>,
    /// Restrictions on its routes.
    pub limits: Limits,
}

impl Chain {
    /// Offered demand, Mbit/s: forward traffic where it enters, at the first stage, plus reverse
    /// traffic where it enters, at the last.
    pub fn demand_mbps(&self) -> f64 {
        self.forward_mbps[0] + self.reverse_mbps[self.reverse_mbps.len() - 1]
    }
}

/// A whole model. See the contract in `docs/traffic-engineering.md`.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Backbone nodes.
    pub nodes: Vec<Node>,
    /// Directed links.
    pub links: Vec<Link>,
    /// β: the most of a link's bandwidth that may be used, background included.
    pub max_link_utilization: f64,
    /// The network's routing.
    pub routing: Routing,
    /// Cloud sites.
    pub sites: Vec<Site>,
    /// VNFs.
    pub vnfs: Vec<Vnf>,
    /// Priority of each customer that has one, by name.
    pub customers: std::collections::HashMap<String, f64>,
    /// Chains.
    pub chains: Vec<Chain>,
}
