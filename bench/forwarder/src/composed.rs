//! The forwarder's work put together from the project's codecs, with parts that can be left out or exchanged: the flow
//! table for another, the table and the labels for nothing.
//!
//! Both tables are asked the same questions in the same loop: Ethernet and IP are read, a burst of keys is looked up,
//! headers are written. Neither notes the packet for ageing, as `rte_hash` knows no such thing.

use crate::rules::{PEER_MAC, VNF_PORT, WAN_PORT};
use dpdk::Mbuf;
use flow::{Found, Hops, Ipv4Key, Ipv4Table};
use forwarder::registry::{HopId, PlaceId};
use forwarder::rules::{Hop, Rules, Side};
use std::hint::black_box;
use wire::nsh::ServiceIndex;
use wire::steering::{Direction, LOOP_GUARD, SteeringContext};
use wire::{Addresses, FiveTuple, IpPacket, MacAddress, ethernet};

/// A table of connections.
pub trait Connections {
    /// Looks up a burst.
    fn look_up(&mut self, keys: &[Ipv4Key], results: &mut [Option<Hops>]);
}

/// This project's table.
pub struct Own {
    /// The table.
    pub table: Ipv4Table,
    found: [Option<Found>; 64],
}

impl Own {
    /// Around a table.
    pub fn new(table: Ipv4Table) -> Own {
        Own {
            table,
            found: [None; 64],
        }
    }
}

impl Connections for Own {
    #[inline]
    fn look_up(&mut self, keys: &[Ipv4Key], results: &mut [Option<Hops>]) {
        let found = &mut self.found[..keys.len()];
        self.table.lookup_batch(keys, found);
        for (result, found) in results.iter_mut().zip(found) {
            *result = found.map(|found| found.hops);
        }
    }
}

impl Connections for crate::rte_hash::RteHash {
    #[inline]
    fn look_up(&mut self, keys: &[Ipv4Key], results: &mut [Option<Hops>]) {
        crate::rte_hash::RteHash::look_up(self, keys, results);
    }
}

/// Without affinity: every packet takes the one way there is.
pub struct Always(pub Hops);

impl Connections for Always {
    #[inline]
    fn look_up(&mut self, _: &[Ipv4Key], results: &mut [Option<Hops>]) {
        results.fill(Some(self.0));
    }
}

/// The hop that everything goes to.
pub fn peer_hop(rules: &Rules) -> Hops {
    let number = rules
        .hops
        .iter()
        .position(|hop| matches!(hop, Some(Hop::Peer(_))));
    Hops {
        upstream: 0,
        downstream: number.expect("the rules have a peer") as u16,
        tag: 0,
    }
}

/// The key of a frame's connection, as [`encapsulate`] looks it up.
pub fn key_of(rules: &Rules, frame: &[u8]) -> Ipv4Key {
    let header = ethernet::Header::parse(frame).expect("a frame of ours");
    let ip = IpPacket::parse(&frame[header.length..]).expect("a packet of ours");
    let (_, place) = origin(rules, &header).expect("out of the VNF");
    key(place, &ip.tuple).expect("IPv4")
}

#[inline]
fn origin(rules: &Rules, header: &ethernet::Header) -> Option<(HopId, PlaceId)> {
    let &(id, side) = rules.ports[VNF_PORT]
        .gateways
        .get(&(header.vlan, header.source))?;
    let Some(Hop::Attachment(attachment)) = rules.hop(id) else {
        return None;
    };
    let place = match side {
        Side::Egress => attachment.stage_behind,
        Side::Ingress => attachment.stage_before,
    };
    Some((id, place))
}

#[inline]
fn key(place: PlaceId, tuple: &FiveTuple) -> Option<Ipv4Key> {
    let Addresses::V4 {
        source,
        destination,
    } = tuple.addresses
    else {
        return None;
    };
    let (source, destination) = (u32::from_be_bytes(source), u32::from_be_bytes(destination));
    let (from, to) = (tuple.source_port, tuple.destination_port);
    Some(Ipv4Key::new(
        place.0,
        source,
        destination,
        tuple.protocol,
        from,
        to,
    ))
}

/// A packet that was read.
#[derive(Clone, Copy)]
struct Arrival {
    place: PlaceId,
    tuple: FiveTuple,
    length: usize,
}

/// Reads a burst, looks its connections up and writes tunnel headers with labels.
#[inline]
pub fn encapsulate(rules: &Rules, connections: &mut impl Connections, burst: &mut [Mbuf]) {
    let mut arrivals: [Option<Arrival>; 64] = [const { None }; 64];
    let mut keys = [Ipv4Key::new(0, 0, 0, 0, 0, 0); 64];
    let mut results = [None; 64];
    for (index, frame) in burst.iter_mut().enumerate() {
        let header = ethernet::Header::parse(frame.data()).expect("a frame of ours");
        let (_, place) = origin(rules, &header).expect("out of the VNF");
        frame.trim_front(header.length);
        let ip = IpPacket::parse(frame.data()).expect("a packet of ours");
        frame.truncate(ip.length);
        keys[index] = key(place, &ip.tuple).expect("IPv4");
        arrivals[index] = Some(Arrival {
            place,
            tuple: ip.tuple,
            length: ip.length,
        });
    }
    connections.look_up(&keys[..burst.len()], &mut results[..burst.len()]);
    for ((frame, arrival), hops) in burst.iter_mut().zip(&arrivals).zip(&results) {
        let (Some(arrival), Some(hops)) = (arrival, hops) else {
            panic!("every connection is known");
        };
        write_headers(rules, arrival, HopId(hops.downstream), frame);
    }
}

#[inline]
fn write_headers(rules: &Rules, arrival: &Arrival, hop: HopId, frame: &mut Mbuf) {
    let (Some(Hop::Peer(peer)), Some(stage)) = (rules.hop(hop), rules.stage(arrival.place)) else {
        panic!("the rules have the hop and the stage");
    };
    let context = SteeringContext {
        chain: stage.chain_label,
        direction: Direction::Forward,
        egress: stage.egress_label,
        service_index: ServiceIndex::new(stage.service_index(Direction::Forward)),
        loop_guard: LOOP_GUARD,
    };
    let length = peer.template.length();
    assert!(frame.prepend(length), "there is headroom");
    let headroom = &mut frame.data_mut()[..length];
    let entropy = arrival.tuple.entropy_port();
    peer.template
        .write(headroom, arrival.length, entropy, &context);
    headroom[..6].copy_from_slice(&PEER_MAC.0);
}

/// A plain bridge: the port of each frame by its destination address.
#[derive(Default)]
pub struct Bridge {
    ports: std::collections::HashMap<MacAddress, usize, foldhash::fast::FixedState>,
}

impl Bridge {
    /// One that knows these addresses behind the wide-area port.
    pub fn new(known: &[MacAddress]) -> Bridge {
        let mut ports = std::collections::HashMap::default();
        ports.extend(known.iter().map(|&mac| (mac, WAN_PORT)));
        Bridge { ports }
    }

    /// Finds the port of every frame of a burst.
    #[inline]
    pub fn bridge(&self, burst: &mut [Mbuf]) {
        for frame in burst {
            let header = ethernet::Header::parse(frame.data()).expect("a frame of ours");
            black_box(
                self.ports
                    .get(&header.destination)
                    .expect("a known address"),
            );
        }
    }
}
