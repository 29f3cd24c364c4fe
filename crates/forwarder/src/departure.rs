//! Sending a packet to a hop.

use crate::arrival::{Arrival, edge_error};
use crate::counters::{Drop, Event, Reason};
use crate::encoded::encode;
use crate::exits::{ExitKind, own_address, way};
use crate::family::Family;
use crate::frame::Frame;
use crate::neighbours::{Lookup, Waiting, framed, question};
use crate::pipeline::{Output, Pipeline};
use crate::registry::HopId;
use crate::rules::{AttachmentHop, AttachmentKind, EdgeHop, Hop, Rules};
use std::net::IpAddr;
use wire::fragment::fragment_v4;
use wire::steering::Direction;
use wire::{MacAddress, ethernet, icmp};

impl<F: Frame> Pipeline<F> {
    /// Sends a packet.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    pub(crate) fn depart<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        hop: HopId,
        mut frame: F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        let exit = self
            .exits
            .fresh(rules, &self.neighbours, hop, arrival.direction)
            .ok_or(Drop::HopGone)?;
        if exit.kind == ExitKind::Edge {
            return self.send_to_edge(rules, arrival, key, hop, frame, now, out);
        }
        if arrival.length > exit.mtu {
            return self.too_large_for(rules, arrival, key, hop, frame, now, out);
        }
        let port = usize::from(exit.port);
        let length = exit.length();
        let (start, known) = (usize::from(arrival.offset), exit.is_known());
        if exit.kind == ExitKind::Encoded {
            if !frame.reframe(start, arrival.length as usize, length) {
                return Err(Drop::NoHeadroom.into());
            }
            encode(rules, arrival, key, hop, frame.data_mut())?;
            if peer_way(rules, hop).is_some() {
                return self.send_to_unknown(rules, hop, frame, now, out);
            }
        } else if exit.kind == ExitKind::Attachment {
            if !frame.reframe(start, arrival.length as usize, length) {
                return Err(Drop::NoHeadroom.into());
            }
            exit.write_ethernet(frame.data_mut(), ether_type::<K>());
        } else {
            let (exits, place, guard) = (&self.exits, arrival.place, arrival.loop_guard);
            let labels = exits
                .labels(place, arrival.direction, guard)
                .ok_or(Drop::StageUnknown)?;
            let exit = exits.get(hop, arrival.direction).ok_or(Drop::HopGone)?;
            if !frame.reframe(start, arrival.length as usize, length) {
                return Err(Drop::NoHeadroom.into());
            }
            exit.write_tunnel(frame.data_mut(), arrival.length, key.entropy_port(), labels);
        }
        if known {
            out.send(port, frame);
            return Ok(());
        }
        self.send_to_unknown(rules, hop, frame, now, out)
    }

    /// Keeps a framed packet until its peer's neighbour is known, and asks for it.
    #[cold]
    fn send_to_unknown(
        &mut self,
        rules: &Rules,
        hop: HopId,
        frame: F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        let (key, own) = peer_way(rules, hop).ok_or(Drop::HopGone)?;
        self.send_resolved(rules, key, own, frame, now, out)
    }

    /// A packet that is too large for a peer's tunnel or an attachment.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    fn too_large_for<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        hop: HopId,
        mut frame: F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        bare(&mut frame, arrival);
        let direction = arrival.direction;
        let exit = self.exits.get(hop, direction).ok_or(Drop::HopGone)?.clone();
        if exit.kind == ExitKind::Gone {
            return Err(Drop::HopGone.into());
        }
        let mtu = exit.mtu as usize;
        let send = |this: &mut Self, fragment: &[u8], out: &mut Output<F>| {
            let mut bytes = vec![0; exit.length()];
            bytes.extend_from_slice(fragment);
            if exit.kind == ExitKind::Encoded {
                encode(rules, arrival, key, hop, &mut bytes)?;
                let Some((key, own)) = peer_way(rules, hop) else {
                    out.make(usize::from(exit.port), bytes);
                    return Ok(());
                };
                return this.send_made(rules, key, own, bytes, now, out);
            }
            if exit.kind == ExitKind::Attachment {
                exit.write_ethernet(&mut bytes, ether_type::<K>());
                out.make(usize::from(exit.port), bytes);
                return Ok(());
            }
            let labels = this
                .exits
                .labels(arrival.place, direction, arrival.loop_guard)
                .ok_or(Drop::StageUnknown)?;
            let length = fragment.len() as u32;
            exit.write_tunnel(&mut bytes, length, key.entropy_port(), labels);
            let (key, own) = peer_way(rules, hop).ok_or(Drop::HopGone)?;
            this.send_made(rules, key, own, bytes, now, out)
        };
        self.too_large::<K>(rules, arrival, &frame, mtu, now, out, send)
    }

    #[allow(clippy::too_many_arguments)]
    fn send_to_edge<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        hop: HopId,
        mut frame: F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        let Some(Hop::Edge(edge)) = rules.hop(hop) else {
            return Err(Drop::HopGone.into());
        };
        bare(&mut frame, arrival);
        let destination = destination(frame.data()).ok_or(Drop::EdgeNoNextHop)?;
        let next_hop = edge.next_hop(destination).ok_or(Drop::EdgeNoNextHop)?;
        let source = rules.ports.get(edge.port).ok_or(Drop::HopGone)?.mac;
        if !arrival.is_error && !arrival.is_later_fragment {
            self.expect_answer(edge, arrival, key, now);
        }
        let protocol = key.protocol();
        self.clamp_segment_size(rules, edge, arrival, protocol, frame.data_mut());
        let own = edge
            .own_address(next_hop.is_ipv6())
            .unwrap_or_else(|| own_link_local(source, next_hop));
        let neighbour = (edge.port, edge.vlan, next_hop);
        let ether_type = ether_type::<K>();
        if arrival.length as usize > edge.mtu {
            let send = |this: &mut Self, fragment: &[u8], out: &mut Output<F>| {
                let nobody = MacAddress::default();
                let bytes = framed(nobody, source, edge.vlan, ether_type, fragment);
                this.send_made(rules, neighbour, own, bytes, now, out)
            };
            return self.too_large::<K>(rules, arrival, &frame, edge.mtu, now, out, send);
        }
        let nobody = MacAddress::default();
        write_ethernet(&mut frame, nobody, source, edge.vlan, ether_type)?;
        self.send_resolved(rules, neighbour, own, frame, now, out)
    }

    /// Remembers at the edge where the answer to a leaving packet belongs.
    fn expect_answer<K: Family>(&mut self, edge: &EdgeHop, arrival: &Arrival, key: &K, now: u32) {
        // Entries of an edge are keyed as packets that enter there show their connection.
        let answer = match arrival.direction {
            Direction::Forward => key.answer_at(edge.place),
            Direction::Reverse => key.same_at(edge.place),
        };
        let (flags, seen) = (arrival.tcp_flags, flow::Direction::Reverse);
        match K::table(self).get(&answer) {
            Some(found) if found.hops.upstream == arrival.place.0 => {
                K::table_mut(self).on_packet(found.position, flags, seen, now);
            }
            other => {
                // Another path's: a later connection has taken the same addresses and ports.
                if other.is_some() {
                    self.forget(&answer);
                }
                let direction = arrival.direction.opposite();
                self.remember_at_edge(&answer, arrival.place, direction, flags, seen, now);
            }
        }
    }

    /// Sends a frame whose destination address is its neighbour's, once that is known.
    #[inline]
    fn send_resolved(
        &mut self,
        rules: &Rules,
        key: (usize, u16, IpAddr),
        own: IpAddr,
        mut frame: F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        match self.neighbours.look_up(key, own, now) {
            Lookup::Known(mac) => {
                frame.data_mut()[..6].copy_from_slice(&mac.0);
                out.send(key.0, frame);
                Ok(())
            }
            lookup => {
                self.ask(rules, lookup, key, own, out);
                self.keep(key, Waiting::Received(key.0, frame))
            }
        }
    }

    /// The same for a frame made here.
    #[cold]
    fn send_made(
        &mut self,
        rules: &Rules,
        key: (usize, u16, IpAddr),
        own: IpAddr,
        mut bytes: Vec<u8>,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        match self.neighbours.look_up(key, own, now) {
            Lookup::Known(mac) => {
                bytes[..6].copy_from_slice(&mac.0);
                out.make(key.0, bytes);
                Ok(())
            }
            lookup => {
                self.ask(rules, lookup, key, own, out);
                self.keep(key, Waiting::Made(key.0, bytes))
            }
        }
    }

    fn keep(&mut self, key: (usize, u16, IpAddr), waiting: Waiting<F>) -> Result<(), Reason> {
        match self.neighbours.keep(key, waiting) {
            Ok(()) => {
                self.counters.event(Event::NeighbourWait);
                Ok(())
            }
            Err(_) => Err(Drop::NeighbourUnresolved.into()),
        }
    }

    fn ask(
        &mut self,
        rules: &Rules,
        lookup: Lookup,
        key: (usize, u16, IpAddr),
        own: IpAddr,
        out: &mut Output<F>,
    ) {
        if lookup == Lookup::Ask
            && let Some(port) = rules.ports.get(key.0)
        {
            out.make(key.0, question(key, own, port.mac, None));
            self.counters.event(Event::NeighbourAsked);
        }
    }

    /// A packet that does not fit: cut into fragments where that is allowed, answered otherwise.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    fn too_large<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        frame: &F,
        mtu: usize,
        now: u32,
        out: &mut Output<F>,
        mut send: impl FnMut(&mut Self, &[u8], &mut Output<F>) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        let packet = frame.data();
        if let Some(fragments) = fragment_v4(packet, mtu) {
            self.counters.event(Event::Fragmented);
            for fragment in fragments {
                send(self, &fragment, out)?;
            }
            return Ok(());
        }
        self.answer_too_big::<K>(rules, arrival, packet, mtu, now, out);
        Err(Drop::MtuExceeded.into())
    }

    /// Tells the sender of a packet which size fits, by way of the hop it came from.
    fn answer_too_big<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        packet: &[u8],
        mtu: usize,
        now: u32,
        out: &mut Output<F>,
    ) {
        let error = icmp::Error::TooBig { mtu: mtu as u16 };
        let sent = match rules.hop(arrival.from) {
            Some(Hop::Edge(edge)) => self.answer_at_edge(rules, edge, error, packet, now, out),
            Some(Hop::Attachment(attachment)) => {
                attachment_error::<K>(rules, attachment, arrival, error, packet)
                    .map(|(port, bytes)| out.make(port, bytes))
            }
            _ => None,
        };
        if sent.is_some() {
            self.counters.event(Event::IcmpErrorSent);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn answer_at_edge(
        &mut self,
        rules: &Rules,
        edge: &EdgeHop,
        error: icmp::Error,
        packet: &[u8],
        now: u32,
        out: &mut Output<F>,
    ) -> Option<()> {
        let (ether_type, answer) = edge_error(edge, error, packet)?;
        let mac = rules.ports.get(edge.port)?.mac;
        let source = source(packet)?;
        let own = edge.own_address(source.is_ipv6())?;
        let next_hop = edge.next_hop(source)?;
        let bytes = framed(MacAddress::default(), mac, edge.vlan, ether_type, &answer);
        let key = (edge.port, edge.vlan, next_hop);
        self.send_made(rules, key, own, bytes, now, out).ok()
    }
}

/// What an error about a packet that a VNF sent looks like to that VNF: it comes from its gateway, by the interface
/// the packet left by.
fn attachment_error<K: Family>(
    rules: &Rules,
    attachment: &AttachmentHop,
    arrival: &Arrival,
    error: icmp::Error,
    packet: &[u8],
) -> Option<(usize, Vec<u8>)> {
    if matches!(attachment.kind, AttachmentKind::LabelAware(_)) {
        // It would have to come with a context, and there is none towards the VNF itself.
        return None;
    }
    let way = way(attachment, arrival.direction.opposite());
    let mac = rules.ports.get(way.port)?.mac;
    let answer = if K::V6 {
        icmp::error_v6(
            error,
            crate::arrival::ATTACHMENT_GATEWAY_V6.octets(),
            packet,
        )?
    } else {
        icmp::error_v4(
            error,
            crate::arrival::ATTACHMENT_GATEWAY_V4.octets(),
            packet,
        )?
    };
    Some((
        way.port,
        framed(way.mac, mac, way.vlan, ether_type::<K>(), &answer),
    ))
}

/// A peer's neighbour on the underlay, and the own address that asks for it.
fn peer_way(rules: &Rules, hop: HopId) -> Option<((usize, u16, IpAddr), IpAddr)> {
    let (Hop::Peer(peer), Some(underlay)) = (rules.hop(hop)?, &rules.underlay) else {
        return None;
    };
    let own = own_address(rules, peer.next_hop)?;
    Some(((underlay.port, 0, peer.next_hop), own))
}

/// Leaves the IP packet alone in its frame.
fn bare<F: Frame>(frame: &mut F, arrival: &Arrival) {
    frame.trim_front(usize::from(arrival.offset));
    frame.truncate(arrival.length as usize);
}

/// Where a checked packet comes from.
fn source(packet: &[u8]) -> Option<IpAddr> {
    address(packet, 12, 8)
}

/// Where a checked packet goes: for errors not where its connection's packets go.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    address(packet, 16, 24)
}

fn address(packet: &[u8], at_v4: usize, at_v6: usize) -> Option<IpAddr> {
    if packet.first()? >> 4 == 6 {
        let bytes: [u8; 16] = *packet.get(at_v6..)?.first_chunk()?;
        return Some(bytes.into());
    }
    let bytes: [u8; 4] = *packet.get(at_v4..)?.first_chunk()?;
    Some(bytes.into())
}

#[inline(always)]
const fn ether_type<K: Family>() -> u16 {
    if K::V6 {
        ethernet::IPV6
    } else {
        ethernet::IPV4
    }
}

#[inline]
fn write_ethernet<F: Frame>(
    frame: &mut F,
    destination: MacAddress,
    source: MacAddress,
    vlan: u16,
    ether_type: u16,
) -> Result<(), Reason> {
    let mut header = [0u8; 18];
    let length = ethernet::Header::write(&mut header, destination, source, vlan, ether_type);
    if !frame.prepend(length) {
        return Err(Drop::NoHeadroom.into());
    }
    frame.data_mut()[..length].copy_from_slice(&header[..length]);
    Ok(())
}

fn own_link_local(mac: MacAddress, next_hop: IpAddr) -> IpAddr {
    match next_hop {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => crate::neighbours::link_local(mac).into(),
    }
}
