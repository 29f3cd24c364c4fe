//! Telling neighbours at once that an edge is there: hosts that asked for their gateway before would ask again only after a
//! second (gratuitous ARP, RFC 5227 section 3; unsolicited advertisements, RFC 4861 section 7.2.6).

use crate::neighbours::{framed, link_local};
use crate::rules::{EdgeHop, Hop, Rules};
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
