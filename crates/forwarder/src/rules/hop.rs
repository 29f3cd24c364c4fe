use super::Classifier;
use crate::native::Function;
use crate::prefix::Prefix;
use crate::registry::{HopId, PlaceId};
use std::net::IpAddr;
use wire::MacAddress;
use wire::steering::TunnelTemplate;

/// Where packets come from and go.
#[derive(Debug)]
pub enum Hop {
    /// A VNF instance's interfaces for one service path and stage.
    Attachment(AttachmentHop),
    /// A customer's network.
    Edge(EdgeHop),
    /// Another forwarder.
    Peer(PeerHop),
}

impl Hop {
    /// Whether connections that have it may keep it.
    pub fn is_usable(&self) -> bool {
        match self {
            Hop::Attachment(attachment) => attachment.state != AttachmentState::Dead,
            Hop::Edge(_) => true,
            Hop::Peer(peer) => peer.alive,
        }
    }
}

/// How a VNF exchanges packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentKind {
    /// Layer 3, the forwarder is its next hop.
    Gateway,
    /// Bump in the wire.
    Transparent,
    /// A function in this process, between two native ports.
    Native,
    /// It reads the steering context, on a port that many paths share.
    LabelAware(Context),
}

/// How a label-aware VNF sees the steering context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Two label stack entries (RFC 3032).
    Mpls,
    /// A network service header (RFC 8300).
    Nsh,
}

/// What connections an attachment gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentState {
    /// New ones.
    Active,
    /// Those it has.
    Draining,
    /// None.
    Dead,
}

/// Which of a VNF's interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Forward packets go in here.
    Ingress,
    /// Reverse packets go in here.
    Egress,
}

/// A VNF instance's interfaces for one service path and stage.
#[derive(Debug)]
pub struct AttachmentHop {
    /// Its id in the rule set.
    pub id: String,
    /// Catalogue entry.
    pub vnf: String,
    /// Instance.
    pub instance: String,
    /// How packets are exchanged.
    pub kind: AttachmentKind,
    /// What it does, where it is native.
    pub function: Option<Function>,
    /// What connections it gets.
    pub state: AttachmentState,
    /// Port of the ingress side, position in the rules.
    pub ingress_port: usize,
    /// Port of the egress side.
    pub egress_port: usize,
    /// VLAN of the ingress side, 0 for none.
    pub ingress_vlan: u16,
    /// VLAN of the egress side.
    pub egress_vlan: u16,
    /// Ethernet address of the VNF's ingress-side interface; of the other port when transparent.
    pub ingress_mac: MacAddress,
    /// Ethernet address of the VNF's egress-side interface; of the other port when transparent.
    pub egress_mac: MacAddress,
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    /// The stage that leads into the VNF: where reverse packets come out.
    pub stage_before: PlaceId,
    /// The stage behind the VNF: where forward packets come out.
    pub stage_behind: PlaceId,
}

/// A customer's network at this site.
#[derive(Debug)]
pub struct EdgeHop {
    /// Its id in the rule set.
    pub id: String,
    /// Where its flow entries are.
    pub place: PlaceId,
    /// Port, position in the rules.
    pub port: usize,
    /// VLAN, 0 for none.
    pub vlan: u16,
    /// Own addresses and their networks.
    pub gateways: Vec<Prefix>,
    /// Routers for what is not on link.
    pub next_hops: Vec<IpAddr>,
    /// What enters here.
    pub classifiers: Vec<Classifier>,
    /// Bytes of the largest IP packet.
    pub mtu: usize,
}

impl EdgeHop {
    /// Who gets a packet for `destination`: itself when it is on link, a router otherwise.
    pub fn next_hop(&self, destination: IpAddr) -> Option<IpAddr> {
        if self
            .gateways
            .iter()
            .any(|gateway| gateway.contains(destination))
        {
            return Some(destination);
        }
        self.next_hops
            .iter()
            .copied()
            .find(|router| router.is_ipv4() == destination.is_ipv4())
    }

    /// Whether an address is the forwarder's own on this edge.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.gateways
            .iter()
            .any(|gateway| gateway.address() == address)
    }

    /// The forwarder's own address of a family.
    pub fn own_address(&self, v6: bool) -> Option<IpAddr> {
        self.gateways
            .iter()
            .map(Prefix::address)
            .find(|address| address.is_ipv6() == v6)
    }
}

impl PeerHop {
    /// Its site.
    pub fn site(&self) -> &str {
        self.id.split('/').next().unwrap_or_default()
    }
}

/// Another forwarder.
#[derive(Debug)]
pub struct PeerHop {
    /// `<site>/<forwarder>`.
    pub id: String,
    /// Its own number, also where it stands for what moved to it.
    pub hop: HopId,
    /// Tunnel end point.
    pub address: IpAddr,
    /// Who on the underlay port's link gets packets for it.
    pub next_hop: IpAddr,
    /// Whether it is known to be up; connections that have it choose again otherwise.
    pub alive: bool,
    /// Whether it has been silent for a moment: it gets no new connections.
    pub away: bool,
    /// Outer headers; the destination's Ethernet address is filled in when it is known.
    pub template: TunnelTemplate,
    /// Bytes of the largest inner packet.
    pub inner_mtu: usize,
}
