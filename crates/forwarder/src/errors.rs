//! ICMP errors that the forwarder makes: whether one is due, by which way it goes, and how many there may be.

use crate::arrival::{ATTACHMENT_GATEWAY_V6, Arrival, Ingress};
use crate::counters::Event;
use crate::departure::{ether_type, source};
use crate::exits::way;
use crate::family::Family;
use crate::frame::Frame;
use crate::neighbours::framed;
use crate::pipeline::{Output, Pipeline};
use crate::registry::HopId;
use crate::rules::{AttachmentHop, AttachmentKind, EdgeHop, Hop, Rules};
use foldhash::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use wire::ip::Fragmentation;
use wire::steering::LOOP_GUARD;
use wire::{MacAddress, ethernet, icmp};

/// Whom an IPv4 error comes from that is due where the forwarder has no address (RFC 7600, section 4.8).
const NAMELESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// ICMP errors to one hop in a second at most (RFC 4443, section 2.4 f; RFC 1812, section 4.3.2.8).
const PER_SECOND: u32 = 100;

/// How many errors went to each hop in this second.
#[derive(Debug, Default)]
pub(crate) struct ErrorLimit {
    second: u32,
    sent: HashMap<HopId, u32>,
}

impl ErrorLimit {
    /// Takes one error to a hop; false when it has had as many as it may. `now` is in seconds.
    fn take(&mut self, to: HopId, now: u32) -> bool {
        if self.second != now {
            self.second = now;
            self.sent.clear();
        }
        let sent = self.sent.entry(to).or_insert(0);
        *sent += 1;
        *sent <= PER_SECOND
    }
}

impl<F: Frame> Pipeline<F> {
    /// Whether one more ICMP error may go to a hop in this second; it is counted where not. `now` is in seconds.
    fn may_send_error(&mut self, to: HopId, now: u32) -> bool {
        let may = self.errors.take(to, now);
        if !may {
            self.counters.event(Event::IcmpErrorLimited);
        }
        may
    }

    /// Answers a packet that entered at an edge with an ICMP error.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn send_error(
        &mut self,
        (id, edge): (HopId, &EdgeHop),
        at: Ingress,
        to: MacAddress,
        error: icmp::Error,
        about: &[u8],
        now: u32,
        out: &mut Output<F>,
    ) {
        if let Some((ether_type, packet)) = edge_error(edge, error, about)
            && self.may_send_error(id, now)
        {
            out.make(at.port, framed(to, at.mac, at.vlan, ether_type, &packet));
            self.counters.event(Event::IcmpErrorSent);
        }
    }

    /// Tells the sender of a packet which size fits, by way of the hop it came from: what is behind a tunnel hears of it by the
    /// way that answers take. `edge` is where the packet was to leave, if that is what it does not fit.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn answer_too_big<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        edge: Option<&EdgeHop>,
        packet: &[u8],
        mtu: usize,
        now: u32,
        out: &mut Output<F>,
    ) {
        let error = icmp::Error::TooBig { mtu: mtu as u16 };
        let (from, left_at) = (arrival.from, edge.and_then(|edge| edge.own_address(K::V6)));
        let sent = match rules.hop(from) {
            Some(Hop::Edge(edge)) => {
                self.answer_at_edge(rules, (from, edge), error, packet, now, out)
            }
            Some(Hop::Attachment(attachment)) => {
                let own = left_at.unwrap_or(match K::V6 {
                    true => ATTACHMENT_GATEWAY_V6.into(),
                    false => NAMELESS.into(),
                });
                let answer = error_from(own, error, packet);
                answer
                    .and_then(|answer| for_attachment::<K>(rules, attachment, arrival, &answer))
                    .filter(|_| self.may_send_error(from, now))
                    .map(|(port, bytes)| out.make(port, bytes))
            }
            Some(Hop::Peer(peer)) => {
                let own = left_at.or((!K::V6).then_some(NAMELESS.into()));
                let answer = own.and_then(|own| error_from(own, error, packet));
                answer
                    .filter(|answer| answer.len() <= peer.inner_mtu)
                    .filter(|_| self.may_send_error(from, now))
                    .and_then(|answer| {
                        self.answer_by_tunnel(rules, arrival, key, &answer, now, out)
                    })
            }
            None => None,
        };
        if sent.is_some() {
            self.counters.event(Event::IcmpErrorSent);
        }
    }

    /// Sends an error about a packet that came over a tunnel back through it, as the connection's packets of the other
    /// direction go.
    fn answer_by_tunnel<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        answer: &[u8],
        now: u32,
        out: &mut Output<F>,
    ) -> Option<()> {
        let back = Arrival {
            length: answer.len() as u32,
            offset: 0,
            direction: arrival.direction.opposite(),
            over_tunnel: false,
            has_service_header: false,
            loop_guard: LOOP_GUARD,
            tcp_flags: 0,
            is_error: true,
            fragmentation: Fragmentation::Whole,
            ..*arrival
        };
        let answer = (&[][..], answer);
        self.send_made_to(rules, &back, key, arrival.from, answer, now, out)
            .ok()
    }

    fn answer_at_edge(
        &mut self,
        rules: &Rules,
        (id, edge): (HopId, &EdgeHop),
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
        if !self.may_send_error(id, now) {
            return None;
        }
        let bytes = framed(MacAddress::default(), mac, edge.vlan, ether_type, &answer);
        let next_hop = ((edge.port, edge.vlan, next_hop), own);
        self.send_made(rules, next_hop, None, bytes, now, out).ok()
    }
}

/// The ICMP error about a packet from an address of the packet's family.
fn error_from(own: IpAddr, error: icmp::Error, about: &[u8]) -> Option<Vec<u8>> {
    match own {
        IpAddr::V4(own) => icmp::error_v4(error, own.octets(), about),
        IpAddr::V6(own) => icmp::error_v6(error, own.octets(), about),
    }
}

/// The ICMP error about a packet, from the edge's own address, and its EtherType.
fn edge_error(edge: &EdgeHop, error: icmp::Error, about: &[u8]) -> Option<(u16, Vec<u8>)> {
    let own = edge.own_address(about.first()? >> 4 == 6)?;
    let ether_type = match own {
        IpAddr::V4(_) => ethernet::IPV4,
        IpAddr::V6(_) => ethernet::IPV6,
    };
    Some((ether_type, error_from(own, error, about)?))
}

/// The frame with an error about a packet that a VNF sent, by the interface the packet left by.
fn for_attachment<K: Family>(
    rules: &Rules,
    attachment: &AttachmentHop,
    arrival: &Arrival,
    answer: &[u8],
) -> Option<(usize, Vec<u8>)> {
    if matches!(attachment.kind, AttachmentKind::LabelAware(_)) {
        // It would have to come with a context, and there is none towards the VNF itself.
        return None;
    }
    let way = way(attachment, arrival.direction.opposite());
    let mac = rules.ports.get(way.port)?.mac;
    let bytes = framed(way.mac, mac, way.vlan, ether_type::<K>(), answer);
    Some((way.port, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hop_has_its_errors_each_second() {
        let mut limit = ErrorLimit::default();
        let mut sent = |hop, now| (0..500).filter(|_| limit.take(HopId(hop), now)).count();
        assert_eq!(sent(1, 7), PER_SECOND as usize);
        assert_eq!(sent(2, 7), PER_SECOND as usize, "another hop has its own");
        assert_eq!(sent(1, 7), 0);
        assert_eq!(sent(1, 8), PER_SECOND as usize);
    }
}
