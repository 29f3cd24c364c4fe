//! Packets whose steering context is not two labels in VXLAN: to and from peers with NSH or with MPLS in UDP, and VNFs
//! that read the context themselves.
//!
//! They take the long way: every field is written for every packet.

use crate::arrival::{Accepted, Arrival, Ingress};
use crate::counters::{Drop, Reason};
use crate::exits::way;
use crate::family::Family;
use crate::frame::Frame;
use crate::pipeline::Pipeline;
use crate::registry::HopId;
use crate::rules::{AttachmentHop, AttachmentKind, Context, Hop, Labelled, Rules};
use wire::nsh::{self, ServiceIndex};
use wire::steering::{self, Direction, EncapsulateError, ServicePathMap, SteeringContext};
use wire::{IpPacket, ethernet, mpls};

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
    ) -> Result<Accepted, Reason> {
        let bytes = frame.data().get(header.length..).unwrap_or_default();
        let (context, length) = match header.ether_type {
            ethernet::MPLS => (
                SteeringContext::from_labels(bytes)?,
                context_length(Context::Mpls),
            ),
            _ => steering::service_header(bytes, rules)?,
        };
        let context = context.passed().ok_or(Drop::LoopGuard)?;
        let path = rules
            .paths
            .get(&(context.chain, context.egress))
            .ok_or(Drop::PathUnknown)?;
        let number = path
            .stage_number(context.service_index.get(), context.direction)
            .ok_or(Drop::StageUnknown)?;
        let place = path.place(number).ok_or(Drop::StageUnknown)?;
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
            .ok_or(Drop::AttachmentUnknown)?;
        frame.trim_front(header.length + length);
        let ip = IpPacket::parse(frame.data())?;
        frame.truncate(ip.length);
        let shown = self.connection(place, &ip, now)?;
        let arrival = Arrival {
            loop_guard: context.loop_guard,
            ..Arrival::new(place, context.direction, from, &ip, shown.is_error)
        };
        Ok(Accepted::Packet(arrival, shown.tuple))
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
        loop_guard: arrival.loop_guard,
    };
    match rules.hop(hop) {
        Some(Hop::Peer(peer)) => peer
            .template
            .encapsulate(frame, key.entropy_port(), &context, rules)
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
            let identifier = rules
                .identifier(&context.path())
                .ok_or(Drop::PathUnidentified)?;
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
        EncapsulateError::PathUnnamed => Drop::PathUnidentified,
        _ => Drop::NoHeadroom,
    }
}
