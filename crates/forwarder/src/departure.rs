//! Sending a packet to a hop.

use crate::arrival::{Arrival, is_group_or_local, is_martian};
use crate::counters::{At, Drop, Event, Reason};
use crate::encoded::{encode, relay, relays};
use crate::exits::{ExitKind, own_address};
use crate::family::Family;
use crate::fragments::Shown;
use crate::frame::Frame;
use crate::neighbours::{Kept, Key, Lookup, Waiting, framed, question};
use crate::pipeline::{Output, Pipeline};
use crate::registry::HopId;
use crate::rules::{EdgeHop, Hop, Rules};
use std::net::IpAddr;
use wire::fragment::fragment_v4;
use wire::ip::Fragmentation;
use wire::segments::Segments;
use wire::steering::Direction;
use wire::{MacAddress, ethernet, nsh, tcp};

/// A neighbour that a frame goes to, and the own address that asks for it.
pub(crate) type NextHop = (Key, IpAddr);

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
        if arrival.tcp_flags & tcp::SYN != 0 {
            self.clamp_for_attachment(rules, arrival, key, hop, &mut frame);
        }
        let exit = self
            .exits
            .fresh(rules, &self.neighbours, hop, arrival.direction)
            .ok_or(Drop::HopGone)?;
        if exit.kind == ExitKind::Edge {
            return self.send_to_edge(rules, arrival, key, hop, frame, now, out);
        }
        if arrival.length > exit.mtu || frame.segment_size() != 0 {
            return self.too_large_for(rules, arrival, key, hop, frame, now, out);
        }
        let port = usize::from(exit.port);
        let length = exit.length();
        let (start, known) = (usize::from(arrival.offset), exit.is_known());
        if exit.kind == ExitKind::Encoded {
            if arrival.length as usize > mtu_behind(exit.mtu, arrival, relays(rules, arrival, hop))
            {
                return self.too_large_for(rules, arrival, key, hop, frame, now, out);
            }
            let way = (port, length);
            return self.send_encoded(rules, arrival, key, hop, frame, way, now, out);
        }
        if exit.kind == ExitKind::Attachment {
            if !frame.reframe(start, arrival.length as usize, length) {
                return Err(Drop::NoHeadroom.into());
            }
            exit.write_ethernet(frame.data_mut(), ether_type::<K>());
        } else {
            let (exits, direction) = (&self.exits, arrival.direction);
            let exit = exits.get(hop, direction).ok_or(Drop::HopGone)?;
            let labels = exits
                .labels(
                    arrival.place,
                    direction,
                    exit.guard(arrival.loop_guard, arrival.over_tunnel),
                )
                .ok_or(Drop::StageUnknown)?;
            if !frame.reframe(start, arrival.length as usize, length) {
                return Err(Drop::NoHeadroom.into());
            }
            exit.write_tunnel(
                frame.data_mut(),
                arrival.length,
                key.entropy_port(&rules.entropy),
                labels,
            );
        }
        if known {
            out.send(port, frame);
            return Ok(());
        }
        self.send_to_unknown(rules, arrival, hop, frame, now, out)
    }

    /// Lowers the segment size that a SYN offers to what fits its VNF: segments of either direction pass it.
    #[cold]
    fn clamp_for_attachment<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        hop: HopId,
        frame: &mut F,
    ) {
        let start = usize::from(arrival.offset);
        let end = start + arrival.length as usize;
        if let Some(Hop::Attachment(attachment)) = rules.hop(hop)
            && key.protocol() == tcp::PROTOCOL
            && let Some(packet) = frame.data_mut().get_mut(start..end)
        {
            self.clamp_syn(attachment.mtu, packet);
        }
    }

    /// Keeps a framed packet until its peer's neighbour is known, and asks for it.
    #[cold]
    pub(crate) fn send_to_unknown(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        hop: HopId,
        frame: F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        let next_hop = peer_way(rules, hop).ok_or(Drop::HopGone)?;
        self.send_resolved(rules, next_hop, arrival, frame, now, out)
    }

    /// A packet that is too large for a peer's tunnel or an attachment, or of several segments.
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
        let relays = relays(rules, arrival, hop);
        let service_header = match relays {
            true => frame.data()[..usize::from(arrival.offset)].to_vec(),
            false => Vec::new(),
        };
        bare(&mut frame, arrival);
        let direction = arrival.direction;
        let exit = self.exits.get(hop, direction).ok_or(Drop::HopGone)?;
        if exit.kind == ExitKind::Gone {
            return Err(Drop::HopGone.into());
        }
        let mtu = mtu_behind(exit.mtu, arrival, relays);
        if exit.kind == ExitKind::Attachment && in_segments(&frame, mtu) {
            // Whole: whoever takes it off the port cuts it.
            if !frame.prepend(exit.length()) {
                return Err(Drop::NoHeadroom.into());
            }
            exit.write_ethernet(frame.data_mut(), ether_type::<K>());
            out.send(usize::from(exit.port), frame);
            return Ok(());
        }
        let send = |this: &mut Self, fragment: &[u8], out: &mut Output<F>| {
            let packet = (&service_header[..], fragment);
            this.send_made_to(rules, arrival, key, hop, packet, now, out)
        };
        self.in_parts(rules, arrival, key, None, &frame, mtu, now, out, send)
    }

    /// Sends a packet made here, which fits, to a peer or an attachment, behind the network service header of the one it is made from if
    /// that is relayed; nothing otherwise.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn send_made_to<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        hop: HopId,
        (service_header, packet): (&[u8], &[u8]),
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        let direction = arrival.direction;
        let exit = self.exits.get(hop, direction).ok_or(Drop::HopGone)?;
        let port = usize::from(exit.port);
        let relays = !service_header.is_empty();
        let room = exit.length() - if relays { nsh::FIXED_LENGTH } else { 0 };
        let mut bytes = vec![0; room];
        bytes.extend_from_slice(service_header);
        nsh::write_ttl(
            &mut bytes[room..],
            exit.guard(arrival.loop_guard, arrival.over_tunnel),
        );
        bytes.extend_from_slice(packet);
        match exit.kind {
            ExitKind::Gone | ExitKind::Edge => return Err(Drop::HopGone.into()),
            ExitKind::Encoded if relays => relay(rules, arrival, key, hop, &mut bytes)?,
            ExitKind::Encoded => encode(rules, arrival, key, hop, &mut bytes)?,
            ExitKind::Attachment => exit.write_ethernet(&mut bytes, ether_type::<K>()),
            ExitKind::TunnelV4 | ExitKind::TunnelV6 => {
                let labels = self
                    .exits
                    .labels(
                        arrival.place,
                        direction,
                        exit.guard(arrival.loop_guard, arrival.over_tunnel),
                    )
                    .ok_or(Drop::StageUnknown)?;
                let length = packet.len() as u32;
                exit.write_tunnel(&mut bytes, length, key.entropy_port(&rules.entropy), labels);
            }
        }
        let Some(next_hop) = peer_way(rules, hop) else {
            out.make(port, bytes);
            return Ok(());
        };
        let at = Some(arrival.at());
        self.send_made(rules, next_hop, at, bytes, now, out)
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
        // What could not be answered does not leave either: so no entry lets in what an edge refuses.
        let source = source(frame.data()).ok_or(Drop::EdgeMartian)?;
        let is_refused = |address| is_martian(address) || is_group_or_local(address);
        if is_refused(source) || is_refused(destination) {
            return Err(Drop::EdgeMartian.into());
        }
        let next_hop = edge.next_hop(destination).ok_or(Drop::EdgeNoNextHop)?;
        let own_mac = rules.ports.get(edge.port).ok_or(Drop::HopGone)?.mac;
        let is_later = matches!(arrival.fragmentation, Fragmentation::Later { .. });
        if !arrival.is_error && !is_later {
            self.expect_answer(edge, arrival, key, now);
        }
        if let Fragmentation::First { identification } = arrival.fragmentation
            && !arrival.is_error
        {
            // Errors that enter here may quote the fragments behind it.
            let (tuple, is_error) = (key.tuple(arrival.direction), false);
            let shown = Shown { tuple, is_error };
            self.fragments
                .remember(edge.place, &tuple, identification, shown, now);
        }
        let protocol = key.protocol();
        self.clamp_segment_size(rules, edge, arrival, protocol, frame.data_mut());
        let own = edge
            .own_address(next_hop.is_ipv6())
            .unwrap_or_else(|| own_link_local(own_mac, next_hop));
        let next_hop = ((edge.port, edge.vlan, next_hop), own);
        let ether_type = ether_type::<K>();
        if arrival.length as usize > edge.mtu && !in_segments(&frame, edge.mtu) {
            let send = |this: &mut Self, fragment: &[u8], out: &mut Output<F>| {
                let nobody = MacAddress::default();
                let bytes = framed(nobody, own_mac, edge.vlan, ether_type, fragment);
                let at = Some(arrival.at());
                this.send_made(rules, next_hop, at, bytes, now, out)
            };
            let at_edge = Some(edge);
            return self.in_parts(
                rules, arrival, key, at_edge, &frame, edge.mtu, now, out, send,
            );
        }
        let nobody = MacAddress::default();
        write_ethernet(&mut frame, nobody, own_mac, edge.vlan, ether_type)?;
        self.send_resolved(rules, next_hop, arrival, frame, now, out)
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
            Some(found) if found.hops().upstream == arrival.place.0 => {
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
        (key, own): NextHop,
        arrival: &Arrival,
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
                self.keep(key, Some(arrival.at()), Kept::Received(frame))
            }
        }
    }

    /// The same for a frame made here.
    #[cold]
    pub(crate) fn send_made(
        &mut self,
        rules: &Rules,
        (key, own): NextHop,
        at: Option<At>,
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
                self.keep(key, at, Kept::Made(bytes))
            }
        }
    }

    fn keep(&mut self, key: Key, at: Option<At>, frame: Kept<F>) -> Result<(), Reason> {
        let port = key.0;
        match self.neighbours.keep(key, Waiting { port, at, frame }) {
            Ok(()) => {
                self.counters.event(Event::NeighbourWait);
                Ok(())
            }
            Err(_) => Err(Drop::NeighbourCrowded.into()),
        }
    }

    fn ask(&mut self, rules: &Rules, lookup: Lookup, key: Key, own: IpAddr, out: &mut Output<F>) {
        if lookup == Lookup::Ask
            && let Some(port) = rules.ports.get(key.0)
        {
            out.make(key.0, question(key, own, port.mac, None));
            self.counters.event(Event::NeighbourAsked);
        }
    }

    /// A packet that does not fit as it is: its segments one by one, where it is of several, and those that do not fit either
    /// as [`Pipeline::too_large`] says. `edge` is where it was to leave, if that is what it does not fit.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    fn in_parts<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        edge: Option<&EdgeHop>,
        frame: &F,
        mtu: usize,
        now: u32,
        out: &mut Output<F>,
        mut send: impl FnMut(&mut Self, &[u8], &mut Output<F>) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        let size = frame.segment_size();
        if size == 0 {
            let (packet, send) = (frame.data(), &mut send);
            return self.too_large(rules, arrival, key, edge, packet, mtu, now, out, send);
        }
        let segments = Segments::of_packet(frame.data(), size).ok_or(Drop::OffloadUnknown)?;
        self.counters.event(Event::Segmented);
        let (mut segment, mut result) = (Vec::new(), Ok(()));
        segments.cut(frame.data(), 0, &mut segment, |segment| {
            if segment.len() > mtu {
                let send = &mut send;
                result = self.too_large(rules, arrival, key, edge, segment, mtu, now, out, send);
            } else if let Err(reason) = send(self, segment, out) {
                self.counters.drop_at(reason, Some(arrival.at()));
            }
            // The others would come to the same.
            result.is_ok()
        });
        result
    }

    /// A packet that does not fit: cut into fragments where that is allowed, answered otherwise.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    fn too_large<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        edge: Option<&EdgeHop>,
        packet: &[u8],
        mtu: usize,
        now: u32,
        out: &mut Output<F>,
        send: &mut impl FnMut(&mut Self, &[u8], &mut Output<F>) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        if let Some(fragments) = fragment_v4(packet, mtu) {
            self.counters.event(Event::Fragmented);
            for fragment in fragments {
                send(self, &fragment, out)?;
            }
            return Ok(());
        }
        self.answer_too_big(rules, arrival, key, edge, packet, mtu, now, out);
        Err(Drop::MtuExceeded.into())
    }
}

/// A peer's neighbour on the underlay, and the own address that asks for it.
fn peer_way(rules: &Rules, hop: HopId) -> Option<NextHop> {
    let (Hop::Peer(peer), Some(underlay)) = (rules.hop(hop)?, &rules.underlay) else {
        return None;
    };
    let own = own_address(rules, peer.next_hop)?;
    Some(((underlay.port, 0, peer.next_hop), own))
}

/// Whether a packet, alone in its frame, is of several segments that all fit.
fn in_segments<F: Frame>(frame: &F, mtu: usize) -> bool {
    Segments::of_packet(frame.data(), frame.segment_size())
        .is_some_and(|segments| segments.longest() <= mtu)
}

/// Bytes of the largest IP packet that fits, behind the network service header that it came with if that is relayed.
fn mtu_behind(mtu: u32, arrival: &Arrival, relays: bool) -> usize {
    let longer = match relays {
        true => usize::from(arrival.offset).saturating_sub(nsh::FIXED_LENGTH),
        false => 0,
    };
    (mtu as usize).saturating_sub(longer)
}

/// Leaves the IP packet alone in its frame.
fn bare<F: Frame>(frame: &mut F, arrival: &Arrival) {
    frame.trim_front(usize::from(arrival.offset));
    frame.truncate(arrival.length as usize);
}

/// Where a checked packet comes from.
pub(crate) fn source(packet: &[u8]) -> Option<IpAddr> {
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
pub(crate) const fn ether_type<K: Family>() -> u16 {
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
