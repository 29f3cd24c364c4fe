//! Ways out: for every hop and direction the header to put in front of a packet, made once.
//!
//! Rules say what the header is, neighbours which Ethernet address it begins with. Both change seldom, so a packet costs a copy
//! and a few numbers. An exit knows the version of the neighbours it was made from and looks again when that is old.

use crate::encoded::context_length;
use crate::guard;
use crate::neighbours;
use crate::registry::{HopId, PlaceId};
use crate::rules::{AttachmentHop, AttachmentKind, Hop, PeerHop, Place, Rules, Side, Stage};
use std::net::IpAddr;
use wire::nsh::ServiceIndex;
use wire::steering::{Direction, Encoding, SteeringContext};
use wire::{Label, MacAddress, checksum, ethernet, ipv4, mpls, vxlan};

/// Bytes of a header at most.
const HEADER_LIMIT: usize = 96;
/// Bytes of a tunnel's headers with labels, over IPv4 and over IPv6.
pub(crate) const TUNNEL_V4: usize = 72;
const TUNNEL_V6: usize = 92;
/// Bytes of a tunnel's headers over IPv4 in front of the labels.
const LABELS_V4: usize = 64;
/// Stands in a header until a packet's labels do.
const ANY_LABEL: Label = Label::new(mpls::FIRST_UNRESERVED).expect("it is not reserved");

/// What a hop is, and whether it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitKind {
    /// Not in the rules any more.
    Gone,
    /// A forwarder, by a tunnel with labels over IPv4.
    TunnelV4,
    /// The same over IPv6.
    TunnelV6,
    /// A tunnel or a VNF whose header is written field by field ([`crate::encoded`]).
    Encoded,
    /// A VNF's interface.
    Attachment,
    /// A customer's network: who gets a packet depends on its destination.
    Edge,
}

/// The way to a hop for packets of a direction.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Exit {
    header: [u8; HEADER_LIMIT],
    /// Bytes of the largest IP packet that fits.
    pub(crate) mtu: u32,
    /// Sum of the outer IPv4 header with length 0.
    sum: u32,
    /// Version of the neighbours that `is_known` is as of.
    version: u32,
    /// Port, position in the rules.
    pub(crate) port: u16,
    length: u8,
    pub(crate) kind: ExitKind,
    /// The forwarder that it leads to; [`HopId::WITHDRAWN`] where it leads to no other.
    pub(crate) peer: HopId,
    /// Whether connections may keep it.
    pub(crate) is_usable: bool,
    /// Whether it stands for what the forwarder has taken over.
    passes_on: bool,
    /// Whether the header's first address is the neighbour's; always so where there is none to ask.
    is_known: bool,
}

/// All ways out, and the labels of all stages.
#[derive(Debug, Default)]
pub(crate) struct Exits {
    exits: Vec<[Exit; 2]>,
    /// Label stacks with a loop guard of 0, by place and direction; 0 where there is no stage.
    labels: Vec<[u64; 2]>,
}

const GONE: Exit = Exit {
    header: [0; HEADER_LIMIT],
    mtu: 0,
    sum: 0,
    version: 0,
    port: 0,
    length: 0,
    kind: ExitKind::Gone,
    peer: HopId::WITHDRAWN,
    is_usable: false,
    passes_on: false,
    is_known: false,
};

impl Exits {
    /// The ways that rules tell.
    pub(crate) fn new(rules: &Rules) -> Exits {
        let both = |(number, hop): (usize, &Option<Hop>)| {
            [Direction::Forward, Direction::Reverse].map(|direction| match hop {
                Some(hop) => Exit::new(rules, number, hop, direction),
                None => GONE,
            })
        };
        let labels = |place: &Option<Place>| match place {
            Some(Place::Stage(stage)) => {
                [Direction::Forward, Direction::Reverse].map(|direction| labels(stage, direction))
            }
            _ => [0; 2],
        };
        Exits {
            exits: rules.hops.iter().enumerate().map(both).collect(),
            labels: rules.places.iter().map(labels).collect(),
        }
    }

    /// The way to a hop; nothing for a number that no rules gave yet.
    #[inline(always)]
    pub(crate) fn get(&self, hop: HopId, direction: Direction) -> Option<&Exit> {
        Some(&self.exits.get(hop.index())?[direction as usize])
    }

    /// The label stack of packets at a stage; nothing where there is no stage.
    #[inline(always)]
    pub(crate) fn labels(&self, place: PlaceId, direction: Direction, guard: u8) -> Option<u64> {
        let labels = self.labels.get(place.index())?[direction as usize];
        (labels != 0).then_some(labels | u64::from(guard) << 32)
    }

    /// The way to a hop, with what the neighbours know now. `version` is theirs.
    #[inline(always)]
    pub(crate) fn fresh<T>(
        &mut self,
        rules: &Rules,
        neighbours: &neighbours::Neighbours<T>,
        hop: HopId,
        direction: Direction,
    ) -> Option<&Exit> {
        let exit = &mut self.exits.get_mut(hop.index())?[direction as usize];
        if exit.version != neighbours.version() {
            exit.refresh(rules, neighbours, hop);
        }
        Some(exit)
    }
}

impl Exit {
    fn new(rules: &Rules, number: usize, hop: &Hop, direction: Direction) -> Exit {
        let exit = match hop {
            Hop::Peer(peer) => Exit::to_peer(rules, peer),
            Hop::Attachment(attachment) => Exit::to_attachment(rules, attachment, direction),
            Hop::Edge(edge) => Exit {
                mtu: edge.mtu as u32,
                port: edge.port as u16,
                kind: ExitKind::Edge,
                ..GONE
            },
        };
        Exit {
            is_usable: hop.is_usable(),
            peer: match hop {
                Hop::Peer(peer) => peer.hop,
                _ => HopId::WITHDRAWN,
            },
            passes_on: matches!(hop, Hop::Peer(peer) if peer.hop.index() != number),
            ..exit
        }
    }

    fn to_peer(rules: &Rules, peer: &PeerHop) -> Exit {
        let length = peer.template.length();
        let Some(underlay) = &rules.underlay else {
            return GONE;
        };
        let kind = match (peer.template.encoding(), length) {
            (Encoding::VxlanMpls, TUNNEL_V4) => ExitKind::TunnelV4,
            (Encoding::VxlanMpls, TUNNEL_V6) => ExitKind::TunnelV6,
            _ => {
                return Exit {
                    mtu: peer.inner_mtu as u32,
                    port: underlay.port as u16,
                    length: length as u8,
                    kind: ExitKind::Encoded,
                    ..GONE
                };
            }
        };
        let context = SteeringContext {
            chain: ANY_LABEL,
            direction: Direction::Forward,
            egress: ANY_LABEL,
            service_index: ServiceIndex::new(0),
            loop_guard: 0,
        };
        let mut header = [0; HEADER_LIMIT];
        peer.template.write(&mut header[..length], 0, 0, &context);
        let ip = &mut header[ethernet::HEADER_LENGTH..][..ipv4::HEADER_LENGTH];
        if length == TUNNEL_V4 {
            ip[2..4].fill(0);
            ip[10..12].fill(0);
        }
        Exit {
            sum: u32::from(checksum::fold(checksum::sum(ip))),
            header,
            mtu: peer.inner_mtu as u32,
            version: 0,
            port: underlay.port as u16,
            length: length as u8,
            kind,
            ..GONE
        }
    }

    fn to_attachment(rules: &Rules, attachment: &AttachmentHop, direction: Direction) -> Exit {
        let way = way(attachment, direction);
        let Some(port) = rules.ports.get(way.port) else {
            return GONE;
        };
        let mut header = [0; HEADER_LIMIT];
        let length = ethernet::Header::write(&mut header, way.mac, port.mac, way.vlan, 0);
        let (kind, context) = match attachment.kind {
            AttachmentKind::LabelAware(context) => (ExitKind::Encoded, context_length(context)),
            AttachmentKind::Gateway | AttachmentKind::Transparent | AttachmentKind::Native => {
                (ExitKind::Attachment, 0)
            }
        };
        Exit {
            header,
            mtu: attachment.mtu as u32,
            port: way.port as u16,
            length: (length + context) as u8,
            kind,
            is_known: true,
            ..GONE
        }
    }

    #[cold]
    fn refresh<T>(&mut self, rules: &Rules, neighbours: &neighbours::Neighbours<T>, hop: HopId) {
        self.version = neighbours.version();
        if let (Some(Hop::Peer(peer)), Some(underlay)) = (rules.hop(hop), &rules.underlay) {
            let mac = neighbours.known((underlay.port, 0, peer.next_hop));
            self.is_known = mac.is_some();
            self.header[..6].copy_from_slice(&mac.unwrap_or_default().0);
        }
    }

    /// What is left of the loop guard of a packet that goes this way.
    #[inline(always)]
    pub(crate) fn guard(&self, guard: u8, over_tunnel: bool) -> u8 {
        match self.passes_on && over_tunnel {
            true => guard::passed_on(guard),
            false => guard,
        }
    }

    /// Bytes of the header.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        usize::from(self.length)
    }

    /// Whether nobody needs to be asked for an Ethernet address.
    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Writes the tunnel's headers at the start of a frame, in front of an inner packet of `inner` bytes, no more than
    /// fit. A frame that is too short is left alone.
    #[inline(always)]
    pub(crate) fn write_tunnel(&self, frame: &mut [u8], inner: u32, port: u16, labels: u64) {
        match self.kind {
            ExitKind::TunnelV4 => self.write_tunnel_v4(frame, inner, port, labels),
            _ => self.write_tunnel_v6(frame, inner, port, labels),
        }
    }

    /// Writes the tunnel's headers over IPv4.
    #[inline(always)]
    fn write_tunnel_v4(&self, frame: &mut [u8], inner: u32, port: u16, labels: u64) {
        if let Some(bytes) = frame.first_chunk_mut() {
            self.fill_tunnel_v4(bytes, inner, port, labels);
        }
    }

    /// [`Exit::write_tunnel`] over IPv4, where there is room for sure.
    #[inline(always)]
    pub(crate) fn fill_tunnel_v4(
        &self,
        bytes: &mut [u8; TUNNEL_V4],
        inner: u32,
        port: u16,
        labels: u64,
    ) {
        let Some(header) = self.header.first_chunk::<LABELS_V4>() else {
            return;
        };
        let ip_packet = inner as u16 + (TUNNEL_V4 - ethernet::HEADER_LENGTH) as u16;
        // Both are less than 2^16, so that one carry is all there can be.
        let sum = self.sum + u32::from(ip_packet);
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        let (start, stack) = bytes.split_at_mut(LABELS_V4);
        start.copy_from_slice(header);
        start[16..18].copy_from_slice(&ip_packet.to_be_bytes());
        start[24..26].copy_from_slice(&sum.to_be_bytes());
        // Ports, length and checksum in one piece; there is no checksum over IPv4 (RFC 7348, section 5).
        let to = u64::from(vxlan::PORT);
        let udp = u64::from(port) << 48 | to << 32 | u64::from(ip_packet - 20) << 16;
        start[34..42].copy_from_slice(&udp.to_be_bytes());
        stack.copy_from_slice(&labels.to_be_bytes());
    }

    /// Writes the tunnel's headers over IPv6.
    #[inline]
    fn write_tunnel_v6(&self, frame: &mut [u8], inner: u32, port: u16, labels: u64) {
        if let (Some(bytes), Some(header)) = (
            frame.first_chunk_mut::<TUNNEL_V6>(),
            self.header.first_chunk::<TUNNEL_V6>(),
        ) {
            let datagram = inner as u16 + (TUNNEL_V6 - 54) as u16;
            *bytes = *header;
            bytes[18..20].copy_from_slice(&datagram.to_be_bytes());
            bytes[54..56].copy_from_slice(&port.to_be_bytes());
            bytes[58..60].copy_from_slice(&datagram.to_be_bytes());
            bytes[84..92].copy_from_slice(&labels.to_be_bytes());
        }
    }

    /// Writes an attachment's Ethernet header at the start of a frame.
    #[inline(always)]
    pub(crate) fn write_ethernet(&self, frame: &mut [u8], ether_type: u16) {
        let ether_type = ether_type.to_be_bytes();
        if self.length() == ethernet::HEADER_LENGTH {
            if let (Some(bytes), Some(header)) =
                (frame.first_chunk_mut::<14>(), self.header.first_chunk())
            {
                *bytes = *header;
                bytes[12..14].copy_from_slice(&ether_type);
            }
        } else if let (Some(bytes), Some(header)) =
            (frame.first_chunk_mut::<18>(), self.header.first_chunk())
        {
            *bytes = *header;
            bytes[16..18].copy_from_slice(&ether_type);
        }
    }
}

fn labels(stage: &Stage, direction: Direction) -> u64 {
    let context = SteeringContext {
        chain: stage.chain_label,
        direction,
        egress: stage.egress_label,
        service_index: ServiceIndex::new(stage.service_index(direction)),
        loop_guard: 0,
    };
    u64::from_be_bytes(context.to_labels())
}

/// How packets of a direction reach a VNF.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) port: usize,
    pub(crate) vlan: u16,
    pub(crate) mac: MacAddress,
}

/// The side of a VNF's that packets of a direction go into.
#[inline]
pub(crate) fn way(attachment: &AttachmentHop, direction: Direction) -> Way {
    let side = match direction {
        Direction::Forward => Side::Ingress,
        Direction::Reverse => Side::Egress,
    };
    match side {
        Side::Ingress => Way {
            port: attachment.ingress_port,
            vlan: attachment.ingress_vlan,
            mac: attachment.ingress_mac,
        },
        Side::Egress => Way {
            port: attachment.egress_port,
            vlan: attachment.egress_vlan,
            mac: attachment.egress_mac,
        },
    }
}

/// The underlay's own address that speaks to a next hop.
pub(crate) fn own_address(rules: &Rules, next_hop: IpAddr) -> Option<IpAddr> {
    let addresses = rules.underlay.as_ref()?.addresses.iter();
    addresses
        .map(|own| own.address())
        .find(|own| own.is_ipv4() == next_hop.is_ipv4())
}
