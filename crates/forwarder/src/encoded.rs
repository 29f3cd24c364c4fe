//! Packets whose steering context is not two labels in VXLAN: to and from peers with NSH or with MPLS in UDP, and VNFs
//! that read the context themselves.
//!
//! They take the long way: every field is written for every packet. A network service header goes on as it came, but for its TTL,
//! to whoever reads one next: unassigned bits and context are for service functions, and kept (RFC 8300, section 2.2).

use crate::arrival::{Accepted, Arrival, Ingress};
use crate::context::still_alive;
use crate::counters::{Drop, Reason, Refused};
use crate::exits::way;
use crate::family::Family;
use crate::frame::Frame;
use crate::guard;
use crate::pipeline::{Output, Pipeline};
use crate::registry::HopId;
use crate::rules::{AttachmentHop, AttachmentKind, Context, Hop, Labelled, Rules};
use wire::nsh::{self, ServiceIndex};
use wire::steering::{
    self, Direction, EncapsulateError, Encoding, ServicePathMap, SteeringContext,
};
use wire::{ethernet, mpls};

/// Bytes of the context in front of the packets of a label-aware VNF.
pub(crate) const fn context_length(context: Context) -> usize {
    match context {
        Context::Mpls => 2 * mpls::ENTRY_LENGTH,
        Context::Nsh => nsh::FIXED_LENGTH,
    }
}

impl<F: Frame> Pipeline<F> {
    /// A packet that a label-aware VNF returns: with its context, the service index less by one.
    pub(crate) fn accept_labelled(
        &mut self,
        rules: &Rules,
        at: Ingress,
        header: &ethernet::Header,
        frame: &mut F,
        now: u32,
    ) -> Result<Accepted, Refused> {
        let bytes = frame.data().get(header.length..).unwrap_or_default();
        let (context, service_header, labels) = match header.ether_type {
            ethernet::MPLS => {
                let labels = context_length(Context::Mpls);
                (SteeringContext::from_labels(bytes)?, 0, labels)
            }
            _ => {
                let (context, length) = steering::service_header(bytes, rules)?;
                (context, length, 0)
            }
        };
        let context = still_alive(rules, context)?;
        let (place, number) = rules.stage_of(&context)?;
        let labelled = Labelled {
            vlan: at.vlan,
            mac: header.source,
            chain: context.chain,
            egress: context.egress,
            stage: match context.direction {
                Direction::Forward => number.wrapping_sub(1),
                Direction::Reverse => number,
            },
        };
        let port = rules.ports.get(at.port).ok_or(Drop::PortUnused)?;
        let from = *port
            .label_aware
            .get(&labelled)
            .ok_or(Drop::AttachmentUnknown)
            .map_err(Refused::at((place, context.direction)))?;
        frame.trim_front(header.length + labels);
        let (arrival, tuple) = self.arrive(place, from, &context, frame, service_header, now)?;
        Ok(Accepted::Packet(arrival, tuple))
    }

    /// Sends a packet that fits to a hop that reads a context: with the network service header it came with, if the hop reads one.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn send_encoded<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        hop: HopId,
        mut frame: F,
        (port, length): (usize, usize),
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        let (start, relays) = (usize::from(arrival.offset), relays(rules, arrival, hop));
        if relays {
            nsh::write_ttl(frame.data_mut(), guard_towards(rules, arrival, hop));
        }
        let has_room = match relays {
            true => frame.prepend(length - nsh::FIXED_LENGTH),
            false => frame.reframe(start, arrival.length as usize, length),
        };
        if !has_room {
            return Err(Drop::NoHeadroom.into());
        }
        match relays {
            true => relay(rules, arrival, key, hop, frame.data_mut())?,
            false => encode(rules, arrival, key, hop, frame.data_mut())?,
        }
        match rules.hop(hop) {
            Some(Hop::Peer(_)) => self.send_to_unknown(rules, arrival, hop, frame, now, out),
            _ => {
                out.send(port, frame);
                Ok(())
            }
        }
    }
}

/// Whether a packet goes on behind the network service header that it came with.
pub(crate) fn relays(rules: &Rules, arrival: &Arrival, hop: HopId) -> bool {
    arrival.has_service_header
        && match rules.hop(hop) {
            Some(Hop::Peer(peer)) => peer.template.encoding() == Encoding::VxlanGpeNsh,
            Some(Hop::Attachment(attachment)) => {
                attachment.kind == AttachmentKind::LabelAware(Context::Nsh)
            }
            _ => false,
        }
}

/// What is left of the loop guard of a packet that goes to a hop.
fn guard_towards(rules: &Rules, arrival: &Arrival, hop: HopId) -> u8 {
    match rules.hop(hop) {
        Some(Hop::Peer(peer)) if peer.hop != hop && arrival.over_tunnel => {
            guard::passed_on(arrival.loop_guard)
        }
        _ => arrival.loop_guard,
    }
}

/// Writes what is in front of the network service header of a packet that is relayed. A peer's Ethernet address is left for whoever
/// knows it.
pub(crate) fn relay<K: Family>(
    rules: &Rules,
    arrival: &Arrival,
    key: &K,
    hop: HopId,
    frame: &mut [u8],
) -> Result<(), Reason> {
    match rules.hop(hop) {
        Some(Hop::Peer(peer)) => {
            let relayed = peer.template.relay(frame, key.entropy_port(&rules.entropy));
            relayed.map_err(|error| reason(error).into())
        }
        Some(Hop::Attachment(attachment)) => {
            let way = way(attachment, arrival.direction);
            let mac = rules.ports.get(way.port).ok_or(Drop::HopGone)?.mac;
            let mut header = [0; 18];
            let length =
                ethernet::Header::write(&mut header, way.mac, mac, way.vlan, ethernet::NSH);
            let start = frame.get_mut(..length).ok_or(Drop::NoHeadroom)?;
            start.copy_from_slice(&header[..length]);
            Ok(())
        }
        _ => Err(Drop::HopGone.into()),
    }
}

/// Writes what is in front of a packet towards a hop at the start of `frame`; the packet is the rest. A peer's Ethernet
/// address is left for whoever knows it.
pub(crate) fn encode<K: Family>(
    rules: &Rules,
    arrival: &Arrival,
    key: &K,
    hop: HopId,
    frame: &mut [u8],
) -> Result<(), Reason> {
    let stage = rules.stage(arrival.place).ok_or(Drop::StageUnknown)?;
    let context = SteeringContext {
        chain: stage.chain_label,
        direction: arrival.direction,
        egress: stage.egress_label,
        service_index: ServiceIndex::new(stage.service_index(arrival.direction)),
        loop_guard: guard_towards(rules, arrival, hop),
    };
    match rules.hop(hop) {
        Some(Hop::Peer(peer)) => peer
            .template
            .encapsulate(frame, key.entropy_port(&rules.entropy), &context, rules)
            .map_err(|error| reason(error).into()),
        Some(Hop::Attachment(attachment)) => {
            encode_for_vnf(rules, attachment, &context, K::V6, frame)
        }
        _ => Err(Drop::HopGone.into()),
    }
}

fn encode_for_vnf(
    rules: &Rules,
    attachment: &AttachmentHop,
    context: &SteeringContext,
    v6: bool,
    frame: &mut [u8],
) -> Result<(), Reason> {
    let way = way(attachment, context.direction);
    let mac = rules.ports.get(way.port).ok_or(Drop::HopGone)?.mac;
    let mut header = [0; 18 + nsh::FIXED_LENGTH];
    let ethernet = |header: &mut [u8], ether_type| {
        ethernet::Header::write(header, way.mac, mac, way.vlan, ether_type)
    };
    let length = match attachment.kind {
        AttachmentKind::LabelAware(Context::Nsh) => {
            let identifier = rules.identifier(&context.path()).ok_or(Drop::PathUnknown)?;
            let at = ethernet(&mut header, ethernet::NSH);
            let service = context.to_nsh(identifier, v6).to_fixed_bytes(&[0; 16]);
            header[at..at + service.len()].copy_from_slice(&service);
            at + service.len()
        }
        _ => {
            let at = ethernet(&mut header, ethernet::MPLS);
            let labels = context.to_labels();
            header[at..at + labels.len()].copy_from_slice(&labels);
            at + labels.len()
        }
    };
    let start = frame.get_mut(..length).ok_or(Drop::NoHeadroom)?;
    start.copy_from_slice(&header[..length]);
    Ok(())
}

fn reason(error: EncapsulateError) -> Drop {
    match error {
        EncapsulateError::TooLong => Drop::MtuExceeded,
        EncapsulateError::PathUnnamed => Drop::PathUnknown,
        _ => Drop::NoHeadroom,
    }
}
