//! What takes the flow table's place in the pipeline: DPDK's `rte_hash`, or one answer for everything.
//!
//! All else of the pipeline stays as it is: headers are read, packets counted, tunnel headers written, and packets noted for
//! ageing, each in its connection's entry. `rte_hash` has no such notes: it says where the entry is, as a program around it would
//! have it. In a second measurement it is spared that, and all notes go to one entry.

use crate::rte_hash::{MOST, RteHash};
use crate::rules::VNF_PORT;
use flow::{Found, Hit, Hops, Ipv4Key, Position, Substitute};
use forwarder::rules::{Hop, Rules, Side};
use std::num::NonZeroU32;
use wire::{Addresses, IpPacket, ethernet};

/// Without affinity: every packet takes the one way there is.
pub struct Always(pub Hops);

impl Substitute<Ipv4Key> for Always {
    #[inline]
    fn look_up(&self, _: &[Ipv4Key], results: &mut [Hit]) {
        let position = Position::of_number(NonZeroU32::MIN);
        results.fill(Some(Found::elsewhere(position, self.0)).into());
    }

    fn keeps_notes(&self) -> bool {
        false
    }
}

impl Substitute<Ipv4Key> for RteHash {
    #[inline]
    fn look_up(&self, keys: &[Ipv4Key], results: &mut [Hit]) {
        for (keys, results) in keys.chunks(MOST).zip(results.chunks_mut(MOST)) {
            RteHash::look_up(self, keys, results);
        }
    }
}

/// What every connection's entry says: from the VNF, to the peer.
pub fn hops(rules: &Rules) -> Hops {
    let number = |wanted: fn(&Hop) -> bool| {
        let found = rules
            .hops
            .iter()
            .position(|hop| hop.as_ref().is_some_and(wanted));
        found.expect("the rules have a VNF and a peer") as u16
    };
    Hops {
        upstream: number(|hop| matches!(hop, Hop::Attachment(_))),
        downstream: number(|hop| matches!(hop, Hop::Peer(_))),
        opener: 0,
    }
}

/// The key of a frame's connection, as the pipeline looks it up.
pub fn key_of(rules: &Rules, frame: &[u8]) -> Ipv4Key {
    let header = ethernet::Header::parse(frame).expect("a frame of ours");
    let ip = IpPacket::parse(&frame[header.length..]).expect("a packet of ours");
    let (id, side) = rules.ports[VNF_PORT].gateways[&(header.vlan, header.source)];
    let (Some(Hop::Attachment(attachment)), Side::Egress) = (rules.hop(id), side) else {
        panic!("frames of ours come out of the VNF's egress side");
    };
    let Addresses::V4 {
        source,
        destination,
    } = ip.tuple.addresses
    else {
        panic!("packets of ours are of IPv4");
    };
    let (source, destination) = (u32::from_be_bytes(source), u32::from_be_bytes(destination));
    let (from, to) = (ip.tuple.source_port, ip.tuple.destination_port);
    let place = attachment.stage_behind.0;
    Ipv4Key::new(place, source, destination, ip.tuple.protocol, from, to)
}
