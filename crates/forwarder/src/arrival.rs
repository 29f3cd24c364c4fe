//! Where an arriving packet is: its service path, stage and direction.

use crate::context::still_alive;
use crate::counters::{At, Drop, Event, Reason, Refused};
use crate::family::{Family, Key, key};
use crate::fragments::Shown;
use crate::frame::Frame;
use crate::neighbours;
use crate::pipeline::{Output, Pipeline, may_open};
use crate::registry::{HopId, PlaceId};
use crate::rules::{
    AttachmentHop, AttachmentKind, Classified, EdgeHop, Hop, Place, Port, Rules, Side, Underlay,
};
use flow::{Found, Hops};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::ip::Fragmentation;
use wire::steering::{self, Direction, Encoding, LOOP_GUARD};
use wire::{FiveTuple, IpPacket, MacAddress, ParseError, ethernet, icmp, ipv4, ipv6, tcp, udp};

/// The forwarder's address on attachments; VNFs have it as their gateway.
pub const ATTACHMENT_GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 1);
/// The same for IPv6.
pub const ATTACHMENT_GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// How an edge's flow entry writes a direction.
pub(crate) const EDGE_FORWARD: u16 = 0;
pub(crate) const EDGE_REVERSE: u16 = 1;

/// A packet at a stage of a service path: all that steering needs to know besides the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The stage.
    pub place: PlaceId,
    /// The hop it came from.
    pub from: HopId,
    /// Bytes of the IP packet.
    pub length: u32,
    /// Bytes in front of the IP packet in its frame.
    pub offset: u16,
    /// The direction.
    pub direction: Direction,
    /// Whether it came from another forwarder.
    pub over_tunnel: bool,
    /// Whether what is in front of the IP packet in its frame is its network service header, with the TTL of whoever is next.
    pub has_service_header: bool,
    /// What is left of its loop guard.
    pub loop_guard: u8,
    /// Byte 13 of the TCP header; 0 for others.
    pub tcp_flags: u8,
    /// Whether it is an ICMP error about the connection.
    pub is_error: bool,
    /// Whether it is a fragment.
    pub fragmentation: Fragmentation,
}

impl Arrival {
    pub(crate) fn new(
        place: PlaceId,
        direction: Direction,
        from: HopId,
        ip: &IpPacket,
        is_error: bool,
    ) -> Arrival {
        Arrival {
            place,
            from,
            length: ip.length as u32,
            offset: 0,
            direction,
            over_tunnel: false,
            has_service_header: false,
            loop_guard: LOOP_GUARD,
            tcp_flags: ip.tcp_flags,
            is_error,
            fragmentation: ip.fragmentation,
        }
    }

    /// The stage and direction.
    #[inline]
    pub(crate) fn at(&self) -> At {
        (self.place, self.direction)
    }
}

/// What became of an arriving frame.
#[derive(Debug)]
pub enum Accepted {
    /// A packet to steer, whose frame holds the IP packet alone or behind its network service header, and the connection it belongs
    /// to, as packets of its direction show it: of errors and later fragments the one they belong to.
    Packet(Arrival, FiveTuple),
    /// Something for the forwarder itself, which is done.
    Control,
}

/// Where a frame arrived.
#[derive(Clone, Copy)]
pub(crate) struct Ingress {
    pub(crate) port: usize,
    pub(crate) vlan: u16,
    pub(crate) mac: MacAddress,
}

impl Ingress {
    /// Refuses frames between other hosts, which a port may show as it takes in everything: a router takes what is for its own
    /// Ethernet address, and for groups.
    fn check_destination(self, header: &ethernet::Header) -> Result<(), Reason> {
        match header.destination == self.mac || header.destination.is_group() {
            true => Ok(()),
            false => Err(Drop::EthernetNotOurs.into()),
        }
    }
}

impl<F: Frame> Pipeline<F> {
    /// Finds out what a frame is. A packet's frame is left with the IP packet, and its network service header if it came with one.
    #[inline]
    pub(crate) fn accept(
        &mut self,
        rules: &Rules,
        port: usize,
        frame: &mut F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<Accepted, Refused> {
        let stripped = frame.take_stripped_vlan();
        let header = ethernet::Header::parse(frame.data())?;
        let role = rules.ports.get(port).ok_or(Drop::PortUnused)?;
        let is_tagged = header.length > ethernet::HEADER_LENGTH;
        if header.inner_vlan.is_some() || (stripped.is_some() && is_tagged) {
            return Err(Drop::VlanNested.into());
        }
        let at = Ingress {
            port,
            vlan: stripped.unwrap_or(header.vlan),
            mac: role.mac,
        };
        if let Some(underlay) = rules
            .underlay
            .as_ref()
            .filter(|underlay| underlay.port == port && at.vlan == 0)
        {
            return self.accept_underlay(rules, underlay, at, &header, frame, now, out);
        }
        if let Some(&id) = role.edges.get(&at.vlan)
            && let Some(Hop::Edge(edge)) = rules.hop(id)
        {
            at.check_destination(&header)?;
            return self.accept_edge(rules, id, edge, at, &header, frame, now, out);
        }
        let is_labelled = matches!(header.ether_type, ethernet::MPLS | ethernet::NSH);
        if is_labelled && !role.label_aware.is_empty() {
            return self.accept_labelled(rules, at, &header, frame, now);
        }
        let known = role
            .gateways
            .get(&(at.vlan, header.source))
            .or_else(|| role.transparent.get(&at.vlan));
        if let Some(&(id, side)) = known
            && let Some(Hop::Attachment(attachment)) = rules.hop(id)
        {
            return self.accept_attachment(id, attachment, side, at, &header, frame, now, out);
        }
        if role.has_passive || role.passive_edges.contains_key(&at.vlan) {
            return self.accept_passive(role, at, &header, frame, now, out);
        }
        // Before its attachment is in the rules, a VNF's system chatters already.
        Err(match role.has_attachments {
            true => Drop::AttachmentUnknown,
            false => Drop::VlanUnknown,
        }
        .into())
    }

    /// A frame whose packet another forwarder takes. What neighbours of edges say is heard: packets still leave there.
    #[cold]
    fn accept_passive(
        &mut self,
        role: &Port,
        at: Ingress,
        header: &ethernet::Header,
        frame: &F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<Accepted, Refused> {
        let nobody = |_: IpAddr| false;
        if role.passive_edges.contains_key(&at.vlan) {
            match header.ether_type {
                ethernet::ARP => return self.arp(at, header, frame, now, out, nobody),
                ethernet::IPV6 => {
                    let packet = &frame.data()[header.length..];
                    if self.neighbour_discovery(at, header, packet, now, out, nobody)? {
                        return Ok(Accepted::Control);
                    }
                }
                _ => {}
            }
        }
        self.counters.event(Event::TakenElsewhere);
        Ok(Accepted::Control)
    }

    #[allow(clippy::too_many_arguments)]
    fn accept_underlay(
        &mut self,
        rules: &Rules,
        underlay: &Underlay,
        at: Ingress,
        header: &ethernet::Header,
        frame: &mut F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<Accepted, Refused> {
        let own = |address: IpAddr| {
            underlay
                .addresses
                .iter()
                .any(|own| own.address() == address)
        };
        match header.ether_type {
            ethernet::IPV4 | ethernet::IPV6 => {}
            ethernet::ARP => return self.arp(at, header, frame, now, out, own),
            _ => return Err(Drop::UnderlayNotOurs.into()),
        }
        let packet = &frame.data()[header.length..];
        let parsed = IpPacket::parse_as(header.ether_type, packet)?;
        if parsed.is_v6() && self.neighbour_discovery(at, header, packet, now, out, own)? {
            return Ok(Accepted::Control);
        }
        if !own(parsed.tuple.destination()) {
            return Err(Drop::UnderlayNotOurs.into());
        }
        let is_whole = parsed.fragmentation == Fragmentation::Whole;
        if !is_whole
            && parsed.tuple.protocol == udp::PROTOCOL
            && rules.peers.contains_key(&parsed.tuple.source())
        {
            return Err(ParseError::TunnelFragmented.into());
        }
        let Some(encoding) = Encoding::of(&parsed).filter(|_| is_whole) else {
            return self.answer_echo(at, header, frame, &parsed, Drop::UnderlayNotOurs, out);
        };
        let taken = steering::decapsulate(encoding, packet, &parsed, rules)?;
        let from = *rules
            .peers
            .get(&taken.peer)
            .ok_or(Drop::TunnelUnknownPeer)?;
        // MPLS in UDP names no network.
        if taken
            .network
            .is_some_and(|network| network != underlay.network)
        {
            return Err(ParseError::VxlanUnknownNetwork.into());
        }
        let context = still_alive(rules, taken.context)?;
        let (place, _) = rules.stage_of(&context)?;
        let start = taken.nsh_offset.unwrap_or(taken.inner_offset);
        frame.truncate(header.length + taken.end);
        frame.trim_front(header.length + start);
        let offset = taken.inner_offset - start;
        let (mut arrival, tuple) = self.arrive(place, from, &context, frame, offset, now)?;
        arrival.over_tunnel = true;
        Ok(Accepted::Packet(arrival, tuple))
    }

    #[allow(clippy::too_many_arguments)]
    fn accept_attachment(
        &mut self,
        id: HopId,
        attachment: &AttachmentHop,
        side: Side,
        at: Ingress,
        header: &ethernet::Header,
        frame: &mut F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<Accepted, Refused> {
        if attachment.kind == AttachmentKind::Gateway {
            at.check_destination(header)?;
            let own = |address: IpAddr| {
                address == ATTACHMENT_GATEWAY_V4 || address == ATTACHMENT_GATEWAY_V6
            };
            if header.ether_type == ethernet::ARP {
                return self.arp(at, header, frame, now, out, own);
            }
            if header.ether_type == ethernet::IPV6 {
                let packet = &frame.data()[header.length..];
                if self.neighbour_discovery(at, header, packet, now, out, own)? {
                    return Ok(Accepted::Control);
                }
            }
        }
        let (place, direction) = match side {
            Side::Egress => (attachment.stage_behind, Direction::Forward),
            Side::Ingress => (attachment.stage_before, Direction::Reverse),
        };
        let here = (place, direction);
        if !matches!(header.ether_type, ethernet::IPV4 | ethernet::IPV6) {
            return Err(Refused::at(here)(Drop::NotIp));
        }
        if header.destination.is_group() {
            return Err(Refused::at(here)(Drop::AttachmentMulticast));
        }
        frame.trim_front(header.length);
        let ip = IpPacket::parse_as(header.ether_type, frame.data()).map_err(Refused::at(here))?;
        frame.truncate(ip.length);
        let shown = self
            .connection(place, &ip, now)
            .map_err(Refused::at(here))?;
        let arrival = Arrival::new(place, direction, id, &ip, shown.is_error);
        Ok(Accepted::Packet(arrival, shown.tuple))
    }

    #[allow(clippy::too_many_arguments)]
    fn accept_edge(
        &mut self,
        rules: &Rules,
        id: HopId,
        edge: &EdgeHop,
        at: Ingress,
        header: &ethernet::Header,
        frame: &mut F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<Accepted, Refused> {
        let own =
            |address: IpAddr| edge.is_own(address) || address == neighbours::link_local(at.mac);
        match header.ether_type {
            ethernet::IPV4 | ethernet::IPV6 => {}
            ethernet::ARP => return self.arp(at, header, frame, now, out, own),
            ethernet::MPLS | ethernet::MPLS_UPSTREAM | ethernet::NSH => {
                return Err(Drop::EdgeLabelled.into());
            }
            _ => return Err(Drop::NotIp.into()),
        }
        let packet = &frame.data()[header.length..];
        let ip = IpPacket::parse_as(header.ether_type, packet)?;
        if ip.is_v6() && self.neighbour_discovery(at, header, packet, now, out, own)? {
            return Ok(Accepted::Control);
        }
        let (source, destination) = (ip.tuple.source(), ip.tuple.destination());
        if is_group_or_local(destination) || header.destination.is_group() {
            return Err(Drop::EdgeMulticast.into());
        }
        if is_martian(source) || is_group_or_local(source) || is_martian(destination) {
            return Err(Drop::EdgeMartian.into());
        }
        if own(ip.tuple.destination()) {
            return self.answer_echo(at, header, frame, &ip, Drop::EdgeToGateway, out);
        }
        if ip.ttl <= 1 {
            let (error, to) = (icmp::Error::TimeExceeded, header.source);
            self.send_error((id, edge), at, to, error, packet, now, out);
            return Err(Drop::TtlExceeded.into());
        }
        frame.trim_front(header.length);
        frame.truncate(ip.length);
        let shown = self.connection(edge.place, &ip, now)?;
        let tuple = shown.tuple;
        // An edge's entries are keyed as packets that enter show their connection.
        let (place, direction) = match key(edge.place, &tuple, Direction::Forward) {
            Key::V4(key) => self.classify(rules, edge, ip.tcp_flags, &key, &shown, now)?,
            Key::V6(key) => self.classify(rules, edge, ip.tcp_flags, &key, &shown, now)?,
        };
        if let Fragmentation::First { identification } = ip.fragmentation {
            // Errors come back by the stage, and may quote the fragments behind it.
            self.fragments
                .remember(place, &ip.tuple, identification, shown, now);
        }
        let arrival = Arrival::new(place, direction, id, &ip, shown.is_error);
        self.enter(rules, edge, &arrival, tuple.protocol, frame.data_mut());
        Ok(Accepted::Packet(arrival, tuple))
    }

    /// What is done to a packet that enters at an edge and has its place: a router's part.
    #[inline(always)]
    pub(crate) fn enter(
        &mut self,
        rules: &Rules,
        edge: &EdgeHop,
        arrival: &Arrival,
        protocol: u8,
        packet: &mut [u8],
    ) {
        let is_v6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
        spend_time_to_live(packet, is_v6);
        self.clamp_segment_size(rules, edge, arrival, protocol, packet);
    }

    /// The service path of a packet that enters at an edge: its connection's, or a classifier's.
    fn classify<K: Family>(
        &mut self,
        rules: &Rules,
        edge: &EdgeHop,
        tcp_flags: u8,
        key: &K,
        shown: &Shown,
        now: u32,
    ) -> Result<(PlaceId, Direction), Reason> {
        let is_error = shown.is_error;
        if let Some(found) = K::table(self).get(key) {
            let (place, direction) = edge_entry(found.hops());
            let is_new = !is_error && self.begins_anew::<K>(found, tcp_flags, now);
            if rules.stage(place).is_some() && !is_new {
                if !is_error {
                    let seen = flow::Direction::Forward;
                    K::table_mut(self).on_packet(found.position, tcp_flags, seen, now);
                }
                return Ok((place, direction));
            }
            // The path is gone from the rules, or the ports are used again: the connection begins anew, with a packet of its own.
            if !is_error {
                self.forget(key);
            }
        }
        let classified = edge
            .classifiers
            .iter()
            .find_map(|classifier| classifier.classify(&shown.tuple));
        let (chain_label, egress_label, direction) = match classified {
            Some(Classified::Path {
                chain_label,
                egress_label,
                direction,
            }) => (chain_label, egress_label, direction),
            Some(Classified::Unrouted) => return Err(Drop::EgressUnrouted.into()),
            None => return Err(Drop::EdgeUnclassified.into()),
        };
        let path = rules
            .paths
            .get(&(chain_label, egress_label))
            .ok_or(Drop::PathUnknown)?;
        let number = match direction {
            Direction::Forward => 1,
            Direction::Reverse => path.vnf_count + 1,
        };
        let place = path.place(number).ok_or(Drop::StageUnknown)?;
        if !is_error {
            let seen = flow::Direction::Forward;
            self.remember_at_edge(key, place, direction, tcp_flags, seen, now);
        }
        Ok((place, direction))
    }

    /// Whether a packet uses the ports of a connection that has ended for a new one.
    #[inline]
    pub(crate) fn begins_anew<K: Family>(&self, found: Found, tcp_flags: u8, now: u32) -> bool {
        may_open(tcp_flags) && K::table(self).opens_anew(found.position, tcp_flags, now)
    }

    /// Notes that a connection entering at an edge is on a service path.
    pub(crate) fn remember_at_edge<K: Family>(
        &mut self,
        key: &K,
        place: PlaceId,
        direction: Direction,
        flags: u8,
        seen: flow::Direction,
        now: u32,
    ) {
        let hops = Hops {
            upstream: place.0,
            downstream: match direction {
                Direction::Forward => EDGE_FORWARD,
                Direction::Reverse => EDGE_REVERSE,
            },
            opener: 0,
        };
        // A full table costs the memory of the path, not the packet: the classifiers answer again.
        let _ = self.insert(key, hops, flags, seen, now);
    }

    /// The connection a packet belongs to.
    #[inline]
    pub(crate) fn connection(
        &mut self,
        place: PlaceId,
        ip: &IpPacket,
        now: u32,
    ) -> Result<Shown, Reason> {
        let shown = self.fragments.connection(place, ip, now);
        shown.ok_or(Drop::FragmentWithoutFirst.into())
    }

    /// Lowers the segment size a SYN offers to what fits through the tunnels and the edge.
    #[inline(always)]
    pub(crate) fn clamp_segment_size(
        &mut self,
        rules: &Rules,
        edge: &EdgeHop,
        arrival: &Arrival,
        protocol: u8,
        packet: &mut [u8],
    ) {
        if arrival.tcp_flags & tcp::SYN != 0 && protocol == tcp::PROTOCOL {
            self.clamp_syn(edge.mtu.min(rules.inner_mtu()), packet);
        }
    }

    /// Lowers the segment size a SYN offers to what fits in IP packets of `mtu` bytes.
    #[cold]
    pub(crate) fn clamp_syn(&mut self, mtu: usize, packet: &mut [u8]) {
        let Ok(ip) = IpPacket::parse(packet) else {
            return;
        };
        let headers = ip.transport_offset + tcp::HEADER_LENGTH;
        let limit = mtu.saturating_sub(headers) as u16;
        let segment = &mut packet[ip.transport_offset..];
        if tcp::clamp_maximum_segment_size(segment, limit) {
            self.counters.event(Event::MssClamped);
        }
    }
}

/// Takes one from a packet's time to live, as a router does.
#[inline(always)]
pub(crate) fn spend_time_to_live(packet: &mut [u8], is_v6: bool) {
    if is_v6 {
        ipv6::decrement_hop_limit(packet);
    } else {
        ipv4::decrement_ttl(packet);
    }
}

/// What an edge's flow entry says: the stage and the direction of packets that enter.
pub(crate) fn edge_entry(hops: Hops) -> (PlaceId, Direction) {
    let direction = match hops.downstream {
        EDGE_FORWARD => Direction::Forward,
        _ => Direction::Reverse,
    };
    (PlaceId(hops.upstream), direction)
}

/// Whether no packet between networks may have an address, as its source or its destination: network 0, loopback, reserved, and
/// what stands for IPv4 in IPv6 (RFC 1812, section 5.3.7; RFC 6890, section 2.2).
pub(crate) fn is_martian(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, ..] = address.octets();
            matches!(first, 0 | 127) || first >= 240 && !address.is_broadcast()
        }
        IpAddr::V6(address) => {
            address.is_unspecified() || address.is_loopback() || address.to_ipv4_mapped().is_some()
        }
    }
}

pub(crate) fn is_group_or_local(destination: IpAddr) -> bool {
    match destination {
        IpAddr::V4(address) => {
            address.is_multicast() || address.is_broadcast() || address.is_link_local()
        }
        IpAddr::V6(address) => address.is_multicast() || address.is_unicast_link_local(),
    }
}

impl Rules {
    /// Bytes of the largest inner packet that every tunnel carries; that of an edge where there are none.
    #[inline]
    pub fn inner_mtu(&self) -> usize {
        self.smallest_inner_mtu
    }

    /// The stage or edge a place is, for reports.
    pub fn place(&self, id: PlaceId) -> Option<&Place> {
        self.places.get(id.index())?.as_ref()
    }
}
