//! What a forwarder answers itself: questions for its addresses, and echoes.

use crate::arrival::{Accepted, Ingress};
use crate::counters::{Drop, Event, Reason, Refused};
use crate::frame::Frame;
use crate::neighbours::{self, Kept, Waiting, framed};
use crate::pipeline::{Heard, Output, Pipeline};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::arp::{Arp, Operation};
use wire::ip::{Fragmentation, ICMP, ICMPV6};
use wire::neighbour_discovery::Neighbour;
use wire::{IpPacket, MacAddress, ethernet, icmp, ipv6};

impl<F: Frame> Pipeline<F> {
    #[cold]
    pub(crate) fn arp(
        &mut self,
        at: Ingress,
        header: &ethernet::Header,
        frame: &F,
        now: u32,
        out: &mut Output<F>,
        own: impl Fn(IpAddr) -> bool,
    ) -> Result<Accepted, Refused> {
        let arp = Arp::parse(&frame.data()[header.length..])?.checked()?;
        let sender = Ipv4Addr::from(arp.sender).into();
        self.heard(at, sender, arp.sender_mac, now, out);
        if arp.operation == Operation::Request && own(Ipv4Addr::from(arp.target).into()) {
            out.make(at.port, neighbours::arp_answer(&arp, at.mac, at.vlan));
            self.counters.event(Event::NeighbourAnswered);
        } else {
            self.counters.event(Event::NeighbourHeard);
        }
        Ok(Accepted::Control)
    }

    /// Answers and learns from neighbour discovery; true when the packet was that, or another message between routers and
    /// hosts of a link. Broken ones are errors.
    #[inline]
    pub(crate) fn neighbour_discovery(
        &mut self,
        at: Ingress,
        header: &ethernet::Header,
        packet: &[u8],
        now: u32,
        out: &mut Output<F>,
        own: impl Fn(IpAddr) -> bool,
    ) -> Result<bool, Reason> {
        let ip = ipv6::Header::parse(packet)?;
        let message = &packet[ip.transport_offset..ip.total_length];
        // A later fragment begins with anything.
        let is_later = ip.fragment.is_some_and(|fragment| fragment.offset > 0);
        let is_one = |kind: &u8| (133..=137).contains(kind);
        if ip.protocol != ICMPV6 || is_later || !message.first().is_some_and(is_one) {
            return Ok(false);
        }
        let asker: IpAddr = Ipv6Addr::from(ip.source).into();
        let Some(neighbour) = Neighbour::check(&ip, message)? else {
            self.counters.event(Event::NeighbourHeard);
            return Ok(true);
        };
        let target: IpAddr = Ipv6Addr::from(neighbour.target).into();
        let mac = neighbour.mac.unwrap_or(header.source);
        self.heard(
            at,
            if neighbour.solicitation {
                asker
            } else {
                target
            },
            mac,
            now,
            out,
        );
        let answer = (neighbour.solicitation && own(target))
            .then(|| neighbours::advertisement(ip.source, mac, neighbour.target, at.mac, at.vlan));
        match answer {
            Some(answer) => {
                out.make(at.port, answer);
                self.counters.event(Event::NeighbourAnswered);
            }
            None => self.counters.event(Event::NeighbourHeard),
        }
        Ok(true)
    }

    /// Learns a neighbour's address, sends what waited for it, and has the other workers told.
    fn heard(&mut self, at: Ingress, who: IpAddr, mac: MacAddress, now: u32, out: &mut Output<F>) {
        let heard = Heard {
            who: (at.port, at.vlan, who),
            mac,
        };
        if self.sharing.is_some() {
            out.heard.push(heard);
        }
        self.hear(heard, now, out);
    }

    /// Learns a neighbour's address, also from another worker, and sends what waited for it. `now` is in seconds.
    pub(crate) fn hear(&mut self, Heard { who, mac }: Heard, now: u32, out: &mut Output<F>) {
        self.alert_capture();
        for Waiting { port, frame, .. } in self.neighbours.learn(who, mac, now) {
            match frame {
                Kept::Received(mut frame) => {
                    if let Some(destination) = frame.data_mut().first_chunk_mut::<6>() {
                        *destination = mac.0;
                    }
                    out.send(port, frame);
                }
                Kept::Made(mut bytes) => {
                    bytes[..6].copy_from_slice(&mac.0);
                    out.make(port, bytes);
                }
            }
        }
    }

    #[cold]
    pub(crate) fn answer_echo(
        &mut self,
        at: Ingress,
        header: &ethernet::Header,
        frame: &mut F,
        ip: &IpPacket,
        otherwise: Drop,
        out: &mut Output<F>,
    ) -> Result<Accepted, Refused> {
        let v6 = ip.is_v6();
        let icmp_protocol = if v6 { ICMPV6 } else { ICMP };
        let packet = &mut frame.data_mut()[header.length..][..ip.length];
        let is_echo = ip.tuple.protocol == icmp_protocol
            && ip.fragmentation == Fragmentation::Whole
            && icmp::Message::parse(v6, &packet[ip.transport_offset..])
                .is_ok_and(|message| message.is_echo_request(v6));
        if !is_echo {
            return Err(otherwise.into());
        }
        icmp::echo_reply_in_place(v6, packet, ip.transport_offset);
        let ether_type = if v6 { ethernet::IPV6 } else { ethernet::IPV4 };
        out.make(
            at.port,
            framed(header.source, at.mac, at.vlan, ether_type, packet),
        );
        self.counters.event(Event::EchoAnswered);
        Ok(Accepted::Control)
    }
}
