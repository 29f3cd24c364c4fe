//! Telling neighbours at once that an edge is there: hosts that asked for their gateway before would ask again only after a
//! second (gratuitous ARP, RFC 5227 section 3; unsolicited advertisements, RFC 4861 section 7.2.6). And asking for neighbours before
//! the first packet for them comes.

use crate::counters::Event;
use crate::exchange::Import;
use crate::neighbours::{Key, Lookup, framed, link_local, question};
use crate::pipeline::Pipeline;
use crate::rules::{EdgeHop, Hop, Place, Rules};
use std::net::IpAddr;
use wire::arp::{Arp, Operation};
use wire::neighbour_discovery::{self, ALL_NODES, group_mac};
use wire::{MacAddress, ethernet};

/// Frames to send, with their ports: one for each own address of edges that are new, or whose port was opened just now.
#[cold]
pub fn announcements(old: &Rules, new: &Rules, opened: &[String]) -> Vec<(usize, Vec<u8>)> {
    let mut frames = Vec::new();
    for edge in edges(new) {
        let port = &new.ports[edge.port];
        let known = edges(old).any(|before| {
            before.id == edge.id
                && before.vlan == edge.vlan
                && old.ports[before.port].name == port.name
                && old.ports[before.port].mac == port.mac
                && before.gateways == edge.gateways
        });
        if !known || opened.contains(&port.name) {
            let own = addresses(edge, port.mac);
            frames.extend(own.map(|own| (edge.port, announcement(own, port.mac, edge.vlan))));
        }
    }
    frames
}

impl<F> Pipeline<F> {
    /// Frames that ask for the Ethernet addresses of peers, with their ports: a connection may move to any of them at any time,
    /// and its packets shall not wait then. `now` is in seconds.
    #[cold]
    pub(crate) fn ask_for_peers(&mut self, rules: &Rules, now: u32) -> Vec<(usize, Vec<u8>)> {
        let mut frames = Vec::new();
        let Some(underlay) = &rules.underlay else {
            return frames;
        };
        for hop in rules.hops.iter().flatten() {
            let Hop::Peer(peer) = hop else { continue };
            let next = peer.next_hop;
            let mut own = underlay.addresses.iter().map(|own| own.address());
            if let Some(own) = own.find(|own| own.is_ipv4() == next.is_ipv4()) {
                frames.extend(self.ask_ahead(rules, (underlay.port, 0, next), own, now));
            }
        }
        frames
    }

    /// The same for hosts behind edges whose connections another forwarder handed over.
    #[cold]
    pub(crate) fn ask_for_hosts(
        &mut self,
        rules: &Rules,
        taken: &[Import],
        now: u32,
    ) -> Vec<(usize, Vec<u8>)> {
        let mut frames = Vec::new();
        for import in taken {
            let Some(Place::Edge(id)) = rules.place(import.entry.place()) else {
                continue;
            };
            let Some(Hop::Edge(edge)) = rules.hop(*id) else {
                continue;
            };
            let host = import.entry.tuple().source();
            let Some(next) = edge.next_hop(host) else {
                continue;
            };
            if let Some(own) = edge.own_address(next.is_ipv6()) {
                frames.extend(self.ask_ahead(rules, (edge.port, edge.vlan, next), own, now));
            }
        }
        frames
    }

    fn ask_ahead(
        &mut self,
        rules: &Rules,
        key: Key,
        own: IpAddr,
        now: u32,
    ) -> Option<(usize, Vec<u8>)> {
        let port = rules.ports.get(key.0)?;
        match self.neighbours.look_up(key, own, now) {
            Lookup::Ask => {
                self.counters.event(Event::NeighbourAsked);
                Some((key.0, question(key, own, port.mac, None)))
            }
            Lookup::Known(_) | Lookup::Wait => None,
        }
    }
}

fn edges(rules: &Rules) -> impl Iterator<Item = &EdgeHop> {
    rules.hops.iter().flatten().filter_map(|hop| match hop {
        Hop::Edge(edge) => Some(edge),
        _ => None,
    })
}

/// The addresses that an edge answers for.
fn addresses(edge: &EdgeHop, mac: MacAddress) -> impl Iterator<Item = IpAddr> {
    let own = edge.gateways.iter().map(|gateway| gateway.address());
    let has_v6 = edge
        .gateways
        .iter()
        .any(|gateway| gateway.address().is_ipv6());
    own.chain(has_v6.then(|| link_local(mac).into()))
}

fn announcement(own: IpAddr, mac: MacAddress, vlan: u16) -> Vec<u8> {
    match own {
        IpAddr::V4(own) => {
            let arp = Arp {
                operation: Operation::Reply,
                sender_mac: mac,
                sender: own.octets(),
                target_mac: MacAddress::BROADCAST,
                target: own.octets(),
            };
            framed(
                MacAddress::BROADCAST,
                mac,
                vlan,
                ethernet::ARP,
                &arp.to_bytes(),
            )
        }
        IpAddr::V6(own) => {
            let packet = neighbour_discovery::advertisement([0; 16], own.octets(), mac);
            framed(group_mac(ALL_NODES), mac, vlan, ethernet::IPV6, &packet)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use crate::rules::compile;
    use contracts::forwarder as contract;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

    fn rules(edges: &[(&str, u32)]) -> Rules {
        let set = contract::RuleSet {
            site: "s".into(),
            forwarder: "f".into(),
            ports: vec![contract::Port {
                name: "lan0".into(),
                device: Some(contract::port::Device::AfPacket("lan0".into())),
            }],
            edges: edges
                .iter()
                .map(|(id, vlan)| contract::Edge {
                    id: id.to_string(),
                    kind: contract::EdgeKind::Vlan.into(),
                    port: "lan0".into(),
                    vlan: *vlan,
                    gateway_addresses: vec!["10.1.0.1/24".into(), "2001:db8::1/64".into()],
                    mtu: 1500,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        };
        compile(&set, &[MAC], &mut Registry::default()).unwrap()
    }

    #[test]
    fn new_edges_are_announced_once() {
        let (none, one, two) = (rules(&[]), rules(&[("a", 7)]), rules(&[("a", 7), ("b", 8)]));
        let first = announcements(&none, &one, &[]);
        assert_eq!(first.len(), 3, "IPv4, IPv6 and link-local");
        assert!(first.iter().all(|(port, _)| *port == 0));
        let arp = Arp::parse(&first[0].1[18..]).unwrap();
        assert_eq!((arp.sender, arp.sender_mac), ([10, 1, 0, 1], MAC));
        assert_eq!(first[0].1[..6], MacAddress::BROADCAST.0);
        assert_eq!(first[0].1[14..16], [0, 7], "VLAN");
        assert!(announcements(&one, &one, &[]).is_empty());
        assert_eq!(announcements(&one, &two, &[]).len(), 3);
        assert_eq!(announcements(&two, &two, &["lan0".to_string()]).len(), 6);
    }
}
