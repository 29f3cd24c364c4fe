//! Rules for all forwarders of a small platform from a description of its chains: what a Local Switchboard does.

#[path = "stages.rs"]
mod stages;

use contracts::forwarder::{self as contract, AttachmentKind};
use std::collections::{BTreeMap, BTreeSet};
use wire::MacAddress;

/// Numbers of a site's forwarders are so far apart: where a site is meant, `n` and `n + SIBLING` are two forwarders of the same.
pub const SIBLING: usize = 8;

/// What a forwarder has to do with an instance that is at home with its sibling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has the instance's ports and learns its connections.
    Preparing,
    /// The same, where it had the instance before.
    Returning,
    /// It gives the instance what others still send it, and takes nothing from it.
    Passing,
    /// It passes on to the home what others still send it.
    Gone,
}

/// A VNF instance's place on one chain.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The forwarder that it is at home with.
    pub site: usize,
    /// What that one's sibling has to do with it, if anything.
    pub sibling: Option<Role>,
    pub name: String,
    pub weight: u32,
    pub state: contract::AttachmentState,
    pub kind: AttachmentKind,
}

/// A customer's network.
#[derive(Clone, Debug)]
pub struct Edge {
    pub site: usize,
    pub name: String,
    /// One of each family.
    pub prefixes: [String; 2],
    pub vlan: u32,
}

/// A route's weight, and the sites of the ingress, of each VNF and of the egress.
pub type Route = (u32, Vec<usize>);

/// A chain: instances of each of its VNFs, in order.
#[derive(Clone, Debug)]
pub struct Chain {
    pub customer: String,
    pub label: u32,
    pub egress_label: u32,
    pub ingress: Edge,
    pub vnfs: Vec<Vec<Instance>>,
    pub egress: Edge,
    /// More ingress edges, at other sites.
    pub more_ingresses: Vec<Edge>,
    /// Where there are none, an instance has the share that its weight is of its VNF's, whatever the path's other elements.
    pub routes: Vec<Route>,
    /// Whether the egress is the way to everywhere.
    pub internet: bool,
    /// Forwarders that have had instances, with their VNFs' positions on the path from 1: others' connections may still have them.
    pub former: BTreeSet<(usize, usize)>,
}

/// Everything.
#[derive(Clone, Debug)]
pub struct Plan {
    pub generation: u64,
    pub sites: usize,
    pub chains: Vec<Chain>,
    /// Versions of chains that get no new connections: they have paths and attachments, but no classifiers.
    pub retired: Vec<Chain>,
    pub wan_mtu: u32,
    /// Drawn from by pair of sites.
    pub encapsulations: Vec<contract::Encapsulation>,
}

/// An instance that takes new connections.
pub fn instance(site: usize, name: &str, weight: u32) -> Instance {
    Instance {
        site,
        sibling: None,
        name: name.into(),
        weight,
        state: contract::AttachmentState::Active,
        kind: AttachmentKind::Gateway,
    }
}

/// An edge with the networks 10.`number`.0.0/24 and 2001:db8:`number`::/64.
pub fn edge(site: usize, name: &str, number: u32) -> Edge {
    Edge {
        site,
        name: name.into(),
        prefixes: [
            format!("10.{number}.0.0/24"),
            format!("2001:db8:{number}::/64"),
        ],
        vlan: 0,
    }
}

/// A chain of the customer "acme" from edge "in" (network 1) to edge "out" (network 2).
pub fn chain(ingress_site: usize, vnfs: Vec<Vec<Instance>>, egress_site: usize) -> Chain {
    Chain {
        customer: "acme".into(),
        label: 1000,
        egress_label: 500,
        ingress: edge(ingress_site, "in", 1),
        vnfs,
        egress: edge(egress_site, "out", 2),
        more_ingresses: Vec::new(),
        routes: Vec::new(),
        internet: true,
        former: BTreeSet::new(),
    }
}

impl Plan {
    /// A plan of one chain.
    pub fn new(sites: usize, chain: Chain) -> Plan {
        Plan {
            generation: 1,
            sites,
            chains: vec![chain],
            retired: Vec::new(),
            wan_mtu: 1600,
            encapsulations: vec![contract::Encapsulation::VxlanMpls],
        }
    }

    /// Chains, and after them versions that are retired.
    pub fn versions(&self) -> impl Iterator<Item = &Chain> {
        self.chains.iter().chain(&self.retired)
    }

    /// Notes who has instances now.
    pub fn remember(&mut self) {
        for chain in self.chains.iter_mut().chain(&mut self.retired) {
            let at = |(position, one): (usize, &Instance)| (position + 1, one.site);
            let positions = chain.vnfs.iter().enumerate();
            let all =
                positions.flat_map(|(position, list)| list.iter().map(move |one| (position, one)));
            chain.former.extend(all.map(at));
        }
    }

    /// The rules of one site.
    pub fn rules(&self, site: usize) -> contract::RuleSet {
        let mut ports = BTreeMap::from([("wan".to_string(), ())]);
        let mut attachments = Vec::new();
        let mut edges = Vec::new();
        let mut paths = Vec::new();
        let mut moved = Vec::new();
        for chain in &self.chains {
            let ingresses = chain.ingresses();
            let ingresses = ingresses.map(|edge| (edge, contract::Direction::Forward));
            let egress = (&chain.egress, contract::Direction::Reverse);
            for (edge, direction) in ingresses.chain([egress]) {
                if edge.site == site {
                    ports.insert(edge_port(edge), ());
                    edges.push(chain.edge(edge, direction));
                }
            }
        }
        for chain in self.versions() {
            for (position, instances) in chain.vnfs.iter().enumerate() {
                for instance in instances.iter().filter(|one| one.is_attached(site)) {
                    let attachment = chain.attachment(position, instance);
                    ports.insert(attachment.ingress_port.clone(), ());
                    ports.insert(attachment.egress_port.clone(), ());
                    attachments.push(contract::Attachment {
                        passive: instance.site != site,
                        ..attachment
                    });
                }
                for instance in instances.iter().filter(|one| one.has_left(site)) {
                    let id = chain.attachment_id(position, instance);
                    moved.push(contract::MovedHop {
                        hop: Some(contract::moved_hop::Hop::Attachment(id)),
                        to: peer_name(instance.site),
                    });
                }
            }
            paths.extend(chain.path(site));
        }
        contract::RuleSet {
            generation: self.generation,
            site: site_name(site),
            forwarder: forwarder_name(site).into(),
            underlay: Some(contract::Underlay {
                port: "wan".into(),
                addresses: vec![format!("198.18.0.{}/24", site + 1)],
                mtu: self.wan_mtu,
                vni: 7,
                ..Default::default()
            }),
            ports: ports
                .into_keys()
                .map(|name| contract::Port {
                    device: Some(contract::port::Device::AfPacket(name.clone())),
                    name,
                })
                .collect(),
            peers: (0..self.sites)
                .filter(|&other| other != site)
                .map(|other| contract::Peer {
                    id: peer_name(other),
                    address: format!("198.18.0.{}", other + 1),
                    encapsulation: self.encapsulations[(site + other) % self.encapsulations.len()]
                        .into(),
                    alive: true,
                    ..Default::default()
                })
                .collect(),
            attachments,
            edges,
            paths,
            moved,
            ..Default::default()
        }
    }
}

impl Instance {
    /// Whether a forwarder has its ports.
    pub fn is_attached(&self, forwarder: usize) -> bool {
        self.site == forwarder
            || self.is_beside(forwarder) && !matches!(self.sibling, None | Some(Role::Gone))
    }

    fn is_beside(&self, forwarder: usize) -> bool {
        self.site != forwarder && self.site % SIBLING == forwarder % SIBLING
    }

    fn has_left(&self, forwarder: usize) -> bool {
        self.is_beside(forwarder) && self.sibling == Some(Role::Gone)
    }

    /// Whether packets of others reach it by a forwarder.
    pub fn is_served(&self, forwarder: usize) -> bool {
        self.site == forwarder || self.is_beside(forwarder) && self.sibling == Some(Role::Passing)
    }
}

pub fn site_name(site: usize) -> String {
    format!("site{}", site % SIBLING)
}

fn forwarder_name(site: usize) -> &'static str {
    ["f1", "f2"][site / SIBLING]
}

pub fn peer_name(site: usize) -> String {
    format!("{}/{}", site_name(site), forwarder_name(site))
}

/// The port an edge is on: edges that differ in their VLAN share one.
pub fn edge_port(edge: &Edge) -> String {
    if edge.vlan == 0 {
        format!("edge-{}", edge.name)
    } else {
        "edge-shared".into()
    }
}

/// The Ethernet address of an instance's interface for a chain's label and position.
pub fn interface_mac(label: u32, position: usize, instance: &str, egress: bool) -> MacAddress {
    let hash = instance.bytes().fold(7u16, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u16::from(byte))
    });
    let [high, low] = hash.to_be_bytes();
    MacAddress([
        2,
        high,
        low,
        (label / 2) as u8,
        position as u8,
        u8::from(egress),
    ])
}

/// The Ethernet address of the one interface of a label-aware instance.
pub fn shared_mac(instance: &str) -> MacAddress {
    interface_mac(0, 0, instance, false)
}

/// The service path identifier of a direction of the path with a label.
pub fn identifier(label: u32, reverse: bool) -> u32 {
    (label + u32::from(reverse)) * 16 + 3
}

/// The VLAN of a transparent instance for a chain's label and position.
pub fn interface_vlan(label: u32, position: usize) -> u32 {
    2 + label / 2 % 200 * 16 + position as u32
}

impl Chain {
    /// Its ingress edges.
    pub fn ingresses(&self) -> impl Iterator<Item = &Edge> {
        std::iter::once(&self.ingress).chain(&self.more_ingresses)
    }

    fn edge(&self, edge: &Edge, direction: contract::Direction) -> contract::Edge {
        let gateways = edge
            .prefixes
            .iter()
            .map(|prefix| prefix.replace(".0/24", ".1/24").replace("::/64", "::1/64"));
        let matched = match direction {
            contract::Direction::Forward => contract::Match {
                source_prefixes: edge.prefixes.to_vec(),
                ..Default::default()
            },
            _ => contract::Match {
                destination_prefixes: self.ingresses().flat_map(|e| e.prefixes.clone()).collect(),
                ..Default::default()
            },
        };
        let everywhere = ["0.0.0.0/0".to_string(), "::/0".to_string()];
        let destinations = match (direction, self.internet) {
            (contract::Direction::Forward, false) => self.egress.prefixes.clone(),
            _ => everywhere,
        };
        contract::Edge {
            id: format!("{}-{}", self.customer, edge.name),
            kind: contract::EdgeKind::Lan.into(),
            port: edge_port(edge),
            vlan: edge.vlan,
            gateway_addresses: gateways.collect(),
            next_hops: Vec::new(),
            classifiers: vec![contract::Classifier {
                r#match: Some(matched),
                chain_label: self.label,
                direction: direction.into(),
                egress_routes: destinations
                    .into_iter()
                    .map(|destination| contract::EgressRoute {
                        destination,
                        egress_label: self.egress_label,
                    })
                    .collect(),
            }],
            mtu: 1500,
            ..Default::default()
        }
    }

    pub fn attachment_id(&self, position: usize, instance: &Instance) -> String {
        format!(
            "{}-{}-{}-{}",
            self.customer, self.label, position, instance.name
        )
    }

    fn attachment(&self, position: usize, instance: &Instance) -> contract::Attachment {
        let port = format!("vnf-{}", instance.name);
        let (ports, macs, vlan) = match instance.kind {
            AttachmentKind::Transparent => {
                let ports = ["in", "out"].map(|side| format!("{}-{side}", instance.name));
                let vlan = interface_vlan(self.label, position);
                (ports, [Vec::new(), Vec::new()], vlan)
            }
            AttachmentKind::LabelAwareMpls | AttachmentKind::LabelAwareNsh => {
                let mac = shared_mac(&instance.name).0.to_vec();
                ([port.clone(), port], [mac.clone(), mac], 0)
            }
            _ => {
                let macs = [false, true].map(|egress| {
                    interface_mac(self.label, position, &instance.name, egress)
                        .0
                        .to_vec()
                });
                ([port.clone(), port], macs, 0)
            }
        };
        let [ingress_port, egress_port] = ports;
        let [ingress_mac, egress_mac] = macs;
        contract::Attachment {
            id: self.attachment_id(position, instance),
            vnf: format!("vnf{position}"),
            instance: instance.name.clone(),
            kind: instance.kind.into(),
            state: instance.state.into(),
            ingress_port,
            egress_port,
            ingress_mac,
            egress_mac,
            ingress_vlan: vlan,
            egress_vlan: vlan,
            mtu: 1500,
            chain_label: self.label,
            egress_label: self.egress_label,
            stage: position as u32 + 1,
            ..Default::default()
        }
    }
}
