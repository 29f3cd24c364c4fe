//! Sending a packet to a hop.

use crate::arrival::{Arrival, edge_error};
use crate::counters::{Drop, Event, Reason};
use crate::frame::Frame;
use crate::neighbours::{Lookup, Waiting, framed, question};
use crate::pipeline::{Output, Pipeline};
use crate::registry::HopId;
use crate::rules::{AttachmentHop, AttachmentKind, EdgeHop, Hop, PeerHop, Rules, Side, Underlay};
use std::net::IpAddr;
use wire::fragment::fragment_v4;
use wire::ip::Fragmentation;
use wire::nsh::ServiceIndex;
use wire::steering::{Direction, SteeringContext};
use wire::{MacAddress, ethernet, icmp};

impl<F: Frame> Pipeline<F> {
    /// Sends a packet, whose frame holds the IP packet alone.
    #[inline]
    pub(crate) fn depart(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        hop: HopId,
        frame: F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        match rules.hop(hop).ok_or(Drop::HopGone)? {
            Hop::Peer(peer) => self.send_to_peer(rules, arrival, peer, frame, now, out),
            Hop::Attachment(attachment) => {
                self.send_to_attachment(rules, arrival, attachment, frame, now, out)
            }
            Hop::Edge(edge) => self.send_to_edge(rules, arrival, edge, frame, now, out),
        }
    }

    #[inline]
    fn send_to_peer(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        peer: &PeerHop,
        mut frame: F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        if arrival.ip.length > peer.inner_mtu {
            return self.too_large(
                rules,
                arrival,
                &frame,
                peer.inner_mtu,
                now,
                out,
                |this, fragment, out| this.make_tunnelled(rules, arrival, peer, fragment, now, out),
            );
        }
        let underlay = rules.underlay.as_ref().ok_or(Drop::HopGone)?;
        let context = context(rules, arrival)?;
        let length = peer.template.length();
        if !frame.prepend(length) {
            return Err(Drop::NoHeadroom.into());
        }
        let entropy = arrival.tuple.entropy_port();
        peer.template.write(
            &mut frame.data_mut()[..length],
            arrival.ip.length,
            entropy,
            &context,
        );
        let own = underlay_address(underlay, peer).ok_or(Drop::HopGone)?;
        self.send_resolved(
            rules,
            (underlay.port, 0, peer.next_hop),
            own,
            frame,
            now,
            out,
        )
    }

    /// Sends a fragment of a packet over a tunnel.
    #[cold]
    fn make_tunnelled(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        peer: &PeerHop,
        fragment: &[u8],
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        let underlay = rules.underlay.as_ref().ok_or(Drop::HopGone)?;
        let mut bytes = vec![0; peer.template.length()];
        peer.template.write(
            &mut bytes,
            fragment.len(),
            arrival.tuple.entropy_port(),
            &context(rules, arrival)?,
        );
        bytes.extend_from_slice(fragment);
        let own = underlay_address(underlay, peer).ok_or(Drop::HopGone)?;
        let key = (underlay.port, 0, peer.next_hop);
        self.send_made(rules, key, own, bytes, now, out)
    }

    #[inline]
    fn send_to_attachment(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        attachment: &AttachmentHop,
        mut frame: F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        let way = attachment_way(attachment, arrival.direction);
        let source = rules.ports.get(way.port).ok_or(Drop::HopGone)?.mac;
        let ether_type = ether_type(arrival);
        if arrival.ip.length > attachment.mtu {
            return self.too_large(
                rules,
                arrival,
                &frame,
                attachment.mtu,
                now,
                out,
                |_, fragment, out| {
                    out.make(
                        way.port,
                        framed(way.mac, source, way.vlan, ether_type, fragment),
                    );
                    Ok(())
                },
            );
        }
        write_ethernet(&mut frame, way.mac, source, way.vlan, ether_type)?;
        out.send(way.port, frame);
        Ok(())
    }

    fn send_to_edge(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        edge: &EdgeHop,
        mut frame: F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        let destination = arrival.ip.tuple.destination();
        let next_hop = edge.next_hop(destination).ok_or(Drop::EdgeNoNextHop)?;
        let source = rules.ports.get(edge.port).ok_or(Drop::HopGone)?.mac;
        if !arrival.is_error && !matches!(arrival.ip.fragmentation, Fragmentation::Later { .. }) {
            self.expect_answer(edge, arrival, now);
        }
        self.clamp_segment_size(rules, edge, arrival, &mut frame);
        let own = edge
            .own_address(next_hop.is_ipv6())
            .unwrap_or_else(|| own_link_local(source, next_hop));
        let key = (edge.port, edge.vlan, next_hop);
        if arrival.ip.length > edge.mtu {
            let ether_type = ether_type(arrival);
            return self.too_large(
                rules,
                arrival,
                &frame,
                edge.mtu,
                now,
                out,
                |this, fragment, out| {
                    let nobody = MacAddress::default();
                    let bytes = framed(nobody, source, edge.vlan, ether_type, fragment);
                    this.send_made(rules, key, own, bytes, now, out)
                },
            );
        }
        write_ethernet(
            &mut frame,
            MacAddress::default(),
            source,
            edge.vlan,
            ether_type(arrival),
        )?;
        self.send_resolved(rules, key, own, frame, now, out)
    }

    /// Remembers at the edge where the answer to a leaving packet belongs.
    fn expect_answer(&mut self, edge: &EdgeHop, arrival: &Arrival, now: u32) {
        let answer = arrival.tuple.reversed();
        match self.find(edge.place, &answer) {
            Some(found) if found.hops.upstream == arrival.place.0 => self.note_at_edge(
                &answer,
                found,
                arrival.ip.tcp_flags,
                flow::Direction::Reverse,
                now,
            ),
            other => {
                // Another path's: a later connection has taken the same addresses and ports.
                if other.is_some() {
                    self.forget(edge.place, &answer);
                }
                let direction = arrival.direction.opposite();
                self.remember_at_edge(
                    edge,
                    &answer,
                    arrival.place,
                    direction,
                    arrival.ip.tcp_flags,
                    flow::Direction::Reverse,
                    now,
                );
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
    fn too_large(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        frame: &F,
        mtu: usize,
        now: u32,
        out: &mut Output<F>,
        mut send: impl FnMut(&mut Self, &[u8], &mut Output<F>) -> Result<(), Reason>,
    ) -> Result<(), Reason> {
        let packet = &frame.data()[..arrival.ip.length];
        if let Some(fragments) = fragment_v4(packet, mtu) {
            self.counters.event(Event::Fragmented);
            for fragment in fragments {
                send(self, &fragment, out)?;
            }
            return Ok(());
        }
        self.answer_too_big(rules, arrival, packet, mtu, now, out);
        Err(Drop::MtuExceeded.into())
    }

    /// Tells the sender of a packet which size fits, by way of the hop it came from.
    fn answer_too_big(
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
            Some(Hop::Edge(edge)) => {
                self.answer_at_edge(rules, edge, arrival, error, packet, now, out)
            }
            Some(Hop::Attachment(attachment)) => {
                attachment_error(rules, attachment, arrival, error, packet)
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
        arrival: &Arrival,
        error: icmp::Error,
        packet: &[u8],
        now: u32,
        out: &mut Output<F>,
    ) -> Option<()> {
        let (ether_type, answer) = edge_error(edge, error, packet)?;
        let mac = rules.ports.get(edge.port)?.mac;
        let own = edge.own_address(arrival.ip.is_v6())?;
        let next_hop = edge.next_hop(arrival.ip.tuple.source())?;
        let bytes = framed(MacAddress::default(), mac, edge.vlan, ether_type, &answer);
        let key = (edge.port, edge.vlan, next_hop);
        self.send_made(rules, key, own, bytes, now, out).ok()
    }
}

/// What an error about a packet that a VNF sent looks like to that VNF: it comes from its gateway, by the interface
/// the packet left by.
fn attachment_error(
    rules: &Rules,
    attachment: &AttachmentHop,
    arrival: &Arrival,
    error: icmp::Error,
    packet: &[u8],
) -> Option<(usize, Vec<u8>)> {
    let way = attachment_way(attachment, arrival.direction.opposite());
    let mac = rules.ports.get(way.port)?.mac;
    let answer = if arrival.ip.is_v6() {
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
        framed(way.mac, mac, way.vlan, ether_type(arrival), &answer),
    ))
}

/// How packets of a direction reach a VNF.
#[derive(Clone, Copy)]
struct Way {
    port: usize,
    vlan: u16,
    mac: MacAddress,
}

#[inline]
fn attachment_way(attachment: &AttachmentHop, direction: Direction) -> Way {
    let side = match direction {
        Direction::Forward => Side::Ingress,
        Direction::Reverse => Side::Egress,
    };
    debug_assert!(matches!(
        attachment.kind,
        AttachmentKind::Gateway | AttachmentKind::Transparent
    ));
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

fn underlay_address(underlay: &Underlay, peer: &PeerHop) -> Option<IpAddr> {
    underlay
        .addresses
        .iter()
        .map(|own| own.address())
        .find(|own| own.is_ipv4() == peer.next_hop.is_ipv4())
}

fn context(rules: &Rules, arrival: &Arrival) -> Result<SteeringContext, Reason> {
    let stage = rules.stage(arrival.place).ok_or(Drop::StageUnknown)?;
    Ok(SteeringContext {
        chain: stage.chain_label,
        direction: arrival.direction,
        egress: stage.egress_label,
        service_index: ServiceIndex::new(stage.service_index(arrival.direction)),
        loop_guard: arrival.loop_guard,
    })
}

#[inline]
fn ether_type(arrival: &Arrival) -> u16 {
    if arrival.ip.is_v6() {
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
