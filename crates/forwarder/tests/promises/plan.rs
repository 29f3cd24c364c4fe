//! Rules for all forwarders of a small platform from a description of its chains: what a Local Switchboard does.

use contract::local_target::Target;
use contracts::forwarder::{self as contract, AttachmentKind};
use std::collections::BTreeMap;
use wire::MacAddress;

/// A VNF instance's place on one chain.
#[derive(Clone, Debug)]
pub struct Instance {
    pub site: usize,
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

/// A chain: instances of each of its VNFs, in order.
#[derive(Clone, Debug)]
pub struct Chain {
    pub customer: String,
    pub label: u32,
    pub egress_label: u32,
    pub ingress: Edge,
    pub vnfs: Vec<Vec<Instance>>,
    pub egress: Edge,
    /// Whether the egress is the way to everywhere.
    pub internet: bool,
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
        internet: true,
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

    /// The rules of one site.
    pub fn rules(&self, site: usize) -> contract::RuleSet {
        let mut ports = BTreeMap::from([("wan".to_string(), ())]);
        let mut attachments = Vec::new();
        let mut edges = Vec::new();
        let mut paths = Vec::new();
        for chain in &self.chains {
            for (edge, direction) in [
                (&chain.ingress, contract::Direction::Forward),
                (&chain.egress, contract::Direction::Reverse),
            ] {
                if edge.site == site {
                    ports.insert(edge_port(edge), ());
                    edges.push(chain.edge(edge, direction));
                }
            }
        }
        for chain in self.versions() {
            for (position, instances) in chain.vnfs.iter().enumerate() {
                for instance in instances.iter().filter(|instance| instance.site == site) {
                    let attachment = chain.attachment(position, instance);
                    ports.insert(attachment.ingress_port.clone(), ());
                    ports.insert(attachment.egress_port.clone(), ());
                    attachments.push(attachment);
                }
            }
            paths.extend(chain.path(site));
        }
        contract::RuleSet {
            generation: self.generation,
            site: site_name(site),
            forwarder: "f1".into(),
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
            ..Default::default()
        }
    }
}

pub fn site_name(site: usize) -> String {
    format!("site{site}")
}

fn peer_name(site: usize) -> String {
    format!("site{site}/f1")
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
    fn edge(&self, edge: &Edge, direction: contract::Direction) -> contract::Edge {
        let gateways = edge
            .prefixes
            .iter()
            .map(|prefix| prefix.replace(".0/24", ".1/24").replace("::/64", "::1/64"));
        let matched = match direction {
            contract::Direction::Forward => contract::Match {
                source_prefixes: self.ingress.prefixes.to_vec(),
                ..Default::default()
            },
            _ => contract::Match {
                destination_prefixes: self.ingress.prefixes.to_vec(),
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

    fn attachment_id(&self, position: usize, instance: &Instance) -> String {
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

    /// The elements at an end of stages: VNF `position`, or an edge.
    fn elements(&self, position: Option<usize>, edge: &Edge) -> Vec<(usize, Target, u32)> {
        match position.and_then(|position| {
            self.vnfs
                .get(position)
                .map(|instances| (position, instances))
        }) {
            Some((position, instances)) => instances
                .iter()
                .map(|instance| {
                    let id = self.attachment_id(position, instance);
                    let weight = match instance.state {
                        contract::AttachmentState::Active => instance.weight,
                        _ => 0,
                    };
                    (instance.site, Target::Attachment(id), weight)
                })
                .collect(),
            None => vec![(
                edge.site,
                Target::Edge(format!("{}-{}", self.customer, edge.name)),
                100,
            )],
        }
    }

    fn path(&self, site: usize) -> Option<contract::ServicePath> {
        let mut stages = Vec::new();
        for stage in 0..=self.vnfs.len() {
            let upstream = self.elements(stage.checked_sub(1), &self.ingress);
            let downstream =
                self.elements((stage < self.vnfs.len()).then_some(stage), &self.egress);
            if upstream
                .iter()
                .chain(&downstream)
                .any(|(at, ..)| *at == site)
            {
                stages.push(contract::Stage {
                    number: stage as u32 + 1,
                    downstream: Some(end(site, &downstream)),
                    upstream: Some(end(site, &upstream)),
                });
            }
        }
        (!stages.is_empty()).then(|| contract::ServicePath {
            chain_label: self.label,
            egress_label: self.egress_label,
            customer: self.customer.clone(),
            chain: "chain".into(),
            vnf_count: self.vnfs.len() as u32,
            stages,
            nsh_forward_path: identifier(self.label, false),
            nsh_reverse_path: identifier(self.label, true),
        })
    }
}

fn end(site: usize, elements: &[(usize, Target, u32)]) -> contract::StageEnd {
    let mut end = contract::StageEnd::default();
    let mut remote = BTreeMap::new();
    for (at, target, weight) in elements {
        if *at == site {
            end.local.push(contract::LocalTarget {
                target: Some(target.clone()),
                weight: *weight,
                prefixes: Vec::new(),
            });
        } else {
            *remote.entry(*at).or_insert(0) += weight;
        }
    }
    end.remote = remote
        .into_iter()
        .map(|(at, weight)| contract::RemoteTarget {
            peer: peer_name(at),
            weight,
            prefixes: Vec::new(),
        })
        .collect();
    end
}
