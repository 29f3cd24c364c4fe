//! Rules as the packet path reads them: numbered, checked, immutable.
//!
//! [`compile`] turns a rule set of the contract into [`Rules`], or refuses it as a whole with the path of
//! the field that is wrong.

mod classifier;
mod compile;
mod error;
mod fields;
mod hop;
mod matching;

pub use classifier::{Classified, Classifier};
pub use compile::compile;
pub use error::RuleError;
pub use hop::{
    AttachmentHop, AttachmentKind, AttachmentState, Context, EdgeHop, Hop, PeerHop, Side,
};
pub use matching::Matching;
pub(crate) use matching::matching;

use crate::entropy::Entropy;
use crate::prefix::Prefix;
use crate::registry::{HopId, PlaceId};
use crate::targets::Targets;
use foldhash::HashMap;
use std::net::IpAddr;
use wire::nsh::ServicePathIdentifier;
use wire::steering::{ServicePath, ServicePathMap};
use wire::vxlan::Vni;
use wire::{Label, MacAddress};

/// Everything the packet path needs to know, for one generation.
#[derive(Debug)]
pub struct Rules {
    /// The rule set's number.
    pub generation: u64,
    /// This forwarder's site.
    pub site: String,
    /// This forwarder.
    pub forwarder: String,
    /// Seed of the weighted consistent hash.
    pub selection_seed: [u8; 16],
    /// What outer source ports are made of, by the same seed.
    pub entropy: Entropy,
    /// The wide-area side, if there is one.
    pub underlay: Option<Underlay>,
    /// Ports, in the order of the rule set.
    pub ports: Vec<Port>,
    /// Hops by number; those of earlier rules that are gone are `None`.
    pub hops: Vec<Option<Hop>>,
    /// Places by number; those of earlier rules that are gone are `None`.
    pub places: Vec<Option<Place>>,
    /// Service paths by chain label (even) and egress label.
    pub paths: HashMap<(Label, Label), Path>,
    /// What service path identifiers stand for.
    pub identified: HashMap<ServicePathIdentifier, ServicePath>,
    /// Peers by tunnel end point.
    pub peers: HashMap<IpAddr, HopId>,
    /// Bytes of the largest inner packet that every tunnel carries.
    pub smallest_inner_mtu: usize,
    /// Idle times.
    pub timeouts: flow::Timeouts,
}

/// The wide-area port and its addresses.
#[derive(Debug)]
pub struct Underlay {
    /// Position in [`Rules::ports`].
    pub port: usize,
    /// Own tunnel end points and their networks.
    pub addresses: Vec<Prefix>,
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    /// VXLAN network identifier.
    pub network: Vni,
}

impl Underlay {
    /// Whether tunnels can end here over IPv4, and over IPv6.
    pub fn families(&self) -> [bool; 2] {
        let addresses = || self.addresses.iter().map(|own| own.address());
        [
            addresses().any(|own| own.is_ipv4()),
            addresses().any(|own| own.is_ipv6()),
        ]
    }
}

/// What a port is for.
#[derive(Debug)]
pub struct Port {
    /// Its name in the rule set.
    pub name: String,
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// Edges on it, by VLAN.
    pub edges: HashMap<u16, HopId>,
    /// Interfaces of gateway attachments, by VLAN and Ethernet address.
    pub gateways: HashMap<(u16, MacAddress), (HopId, Side)>,
    /// Transparent attachments, by VLAN.
    pub transparent: HashMap<u16, (HopId, Side)>,
    /// Label-aware attachments.
    pub label_aware: HashMap<Labelled, HopId>,
    /// Whether VNF instances are attached here.
    pub has_attachments: bool,
    /// Edges on it, by VLAN, whose packets another forwarder takes.
    pub passive_edges: HashMap<u16, HopId>,
    /// Whether there are VNF instances here whose packets another forwarder takes.
    pub has_passive: bool,
}

/// A label-aware VNF instance at a place of a service path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Labelled {
    /// VLAN, 0 for none.
    pub vlan: u16,
    /// The instance's Ethernet address.
    pub mac: MacAddress,
    /// Even chain label.
    pub chain: Label,
    /// Egress label.
    pub egress: Label,
    /// The stage that leads into the VNF.
    pub stage: u8,
}

/// Somewhere that keeps flow entries.
#[derive(Debug)]
pub enum Place {
    /// A stage of a service path.
    Stage(Box<Stage>),
    /// An edge.
    Edge(HopId),
}

/// A service path: which of its stages are here.
#[derive(Debug)]
pub struct Path {
    /// Number of VNFs.
    pub vnf_count: u8,
    /// Service path identifiers, forward and reverse.
    pub identifiers: Option<[ServicePathIdentifier; 2]>,
    /// By stage, from 1 at position 0; `None` where this forwarder takes no part.
    pub stages: Vec<Option<PlaceId>>,
}

/// A stage of a service path at this forwarder.
#[derive(Debug)]
pub struct Stage {
    /// Even chain label.
    pub chain_label: Label,
    /// Egress label.
    pub egress_label: Label,
    /// From 1.
    pub number: u8,
    /// Number of VNFs of the path.
    pub vnf_count: u8,
    /// Owner of the chain.
    pub customer: String,
    /// Name of the chain.
    pub chain: String,
    /// Where forward packets go.
    pub downstream: End,
    /// Where reverse packets go.
    pub upstream: End,
}

/// One end of a stage.
#[derive(Debug)]
pub struct End {
    /// Targets here: for packets that came over a tunnel.
    pub local: Targets,
    /// Targets here and elsewhere: for packets that came from here.
    pub all: Targets,
    /// Peers that serve nobody at this end any more: their connections choose again if there is anybody else.
    pub withdrawn: Vec<HopId>,
}

impl End {
    /// Whether connections may not keep a hop: it is withdrawn, or moved to who is.
    pub fn withdraws(&self, rules: &Rules, hop: HopId) -> bool {
        if self.withdrawn.is_empty() {
            return false;
        }
        let peer = match rules.hop(hop) {
            Some(Hop::Peer(peer)) => peer.hop,
            _ => hop,
        };
        self.withdrawn.contains(&peer) && !self.all.is_empty()
    }
}

impl Rules {
    /// Rules of a forwarder that knows nothing yet: every packet is dropped.
    pub fn empty() -> Rules {
        Rules {
            generation: 0,
            site: String::new(),
            forwarder: String::new(),
            selection_seed: [0; 16],
            entropy: Entropy::new([0; 16]),
            underlay: None,
            ports: Vec::new(),
            hops: Vec::new(),
            places: Vec::new(),
            paths: HashMap::default(),
            identified: HashMap::default(),
            peers: HashMap::default(),
            smallest_inner_mtu: usize::from(u16::MAX),
            timeouts: flow::Timeouts::default(),
        }
    }

    /// A hop that still exists.
    #[inline]
    pub fn hop(&self, id: HopId) -> Option<&Hop> {
        self.hops.get(id.index())?.as_ref()
    }

    /// A stage that still exists.
    #[inline]
    pub fn stage(&self, id: PlaceId) -> Option<&Stage> {
        match self.places.get(id.index())?.as_ref()? {
            Place::Stage(stage) => Some(stage),
            Place::Edge(_) => None,
        }
    }

    /// What a hop is called in traces: `edge:<id>`, `vnf:<vnf>/<instance>`, `forwarder:<site>/<name>`.
    pub fn hop_name(&self, id: HopId) -> String {
        match self.hop(id) {
            Some(Hop::Attachment(attachment)) => {
                format!("vnf:{}/{}", attachment.vnf, attachment.instance)
            }
            Some(Hop::Edge(edge)) => format!("edge:{}", edge.id),
            Some(Hop::Peer(peer)) => format!("forwarder:{}", peer.id),
            None => "gone".to_string(),
        }
    }
}

impl ServicePathMap for Rules {
    fn path(&self, identifier: ServicePathIdentifier) -> Option<ServicePath> {
        self.identified.get(&identifier).copied()
    }

    fn identifier(&self, path: &ServicePath) -> Option<ServicePathIdentifier> {
        let known = self.paths.get(&(path.chain, path.egress))?;
        Some(known.identifiers?[path.direction as usize])
    }
}

impl Stage {
    /// Service index of packets at this stage: it starts at 255 in either direction and falls by one for each
    /// VNF passed.
    #[inline]
    pub fn service_index(&self, direction: wire::steering::Direction) -> u8 {
        match direction {
            wire::steering::Direction::Forward => 255 - (self.number - 1),
            wire::steering::Direction::Reverse => 255 - (self.vnf_count + 1 - self.number),
        }
    }

    /// The end that packets of a direction go to.
    #[inline]
    pub fn end(&self, direction: wire::steering::Direction) -> &End {
        match direction {
            wire::steering::Direction::Forward => &self.downstream,
            wire::steering::Direction::Reverse => &self.upstream,
        }
    }
}

impl Path {
    /// The stage a packet is at, by its service index; `None` when the index is none of the path's.
    #[inline]
    pub fn stage_number(
        &self,
        service_index: u8,
        direction: wire::steering::Direction,
    ) -> Option<u8> {
        let passed = 255 - service_index;
        if passed > self.vnf_count {
            return None;
        }
        Some(match direction {
            wire::steering::Direction::Forward => passed + 1,
            wire::steering::Direction::Reverse => self.vnf_count + 1 - passed,
        })
    }

    /// The place of a stage, if this forwarder takes part in it.
    #[inline]
    pub fn place(&self, number: u8) -> Option<PlaceId> {
        *self.stages.get(usize::from(number).checked_sub(1)?)?
    }
}
