//! Plain packets take a quick way: whatever arrives, it comes to the same as the long way of each packet alone.
//!
//! Two networks of the same drawn platform get the same drawn frames. One takes them one by one, which never takes the quick
//! way, the other in bursts. What leaves, every counter and every flow entry must be equal after each step.

use crate::frames::{frame, packet, tuple, unreachable};
use crate::network::{Delivery, HOST_MAC, Network, Service, port_mac};
use crate::plan::{Edge, edge_port};
use crate::random::{Draw, change, platform};
use flow::FlowEntry;
use wire::fragment::fragment_v4;
use wire::{FiveTuple, ipv4, tcp, udp};

type Frame = (usize, String, Vec<u8>);

fn drawn_tuple(draw: &mut Draw) -> FiveTuple {
    let number = draw.below(25);
    let protocol = [tcp::PROTOCOL, udp::PROTOCOL, tcp::PROTOCOL, 1, 47][draw.below(5)];
    let (source, destination) = match draw.below(3) {
        0 => (format!("2001:db8:1::{number:x}"), "2001:db8:2::9"),
        _ => (format!("10.1.0.{}", 2 + number), "10.2.0.9"),
    };
    let protocol = match (protocol, destination.contains(':')) {
        (1, _) => udp::PROTOCOL,
        (protocol, _) => protocol,
    };
    let (from, to) = match protocol {
        47 => (0, 0),
        _ => (1000 + draw.below(2) as u16, 443),
    };
    tuple(&source, from, destination, to, protocol)
}

/// An option of no meaning in an IPv4 header.
fn with_options(packet: &mut Vec<u8>) {
    packet.splice(20..20, [1, 1, 1, 0]);
    packet[0] = 0x46;
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    ipv4::set_checksum(&mut packet[..24]);
}

/// Packets that a host sends at once: mostly one, or the fragments of one.
fn drawn_packets(draw: &mut Draw, reverse: bool) -> Vec<Vec<u8>> {
    let forward = drawn_tuple(draw);
    let (shown, other) = match reverse {
        false => (forward, forward.reversed()),
        true => (forward.reversed(), forward),
    };
    let flags = [tcp::SYN, tcp::ACK, tcp::ACK, tcp::FIN | tcp::ACK, tcp::RST][draw.below(5)];
    let payload = match draw.below(8) {
        0 => 16 + draw.below(1700),
        _ => 16 + draw.below(200),
    };
    let mut one = packet(&shown, flags, payload);
    let v4 = one[0] >> 4 == 4;
    match draw.below(24) {
        0 => one = unreachable(&packet(&other, tcp::ACK, 20)),
        1 if v4 => with_options(&mut one),
        2 if v4 => {
            let mut fragments = fragment_v4(&one, 68).unwrap_or_else(|| vec![one]);
            if draw.below(3) == 0 {
                fragments.swap_remove(0);
            }
            return fragments;
        }
        3 => {
            // The end of its life.
            one[if v4 { 8 } else { 7 }] = draw.below(3) as u8;
            if v4 {
                ipv4::set_checksum(&mut one[..20]);
            }
        }
        4 if v4 => {
            // To the forwarder, to a group, to everyone.
            let to = [[10, 1, 0, 1], [224, 0, 0, 9], [255; 4], [169, 254, 3, 3]][draw.below(4)];
            one[16..20].copy_from_slice(&to);
            ipv4::set_checksum(&mut one[..20]);
        }
        5 => one.truncate(draw.below(one.len())),
        6 => one.extend([0xee; 9]),
        7 | 8 => {
            let byte = draw.below(one.len().min(60));
            one[byte] ^= 1 << draw.below(8);
            if v4 && byte < 20 && draw.below(2) == 0 {
                ipv4::set_checksum(&mut one[..20]);
            }
        }
        _ => {}
    }
    vec![one]
}

pub fn drawn_frames(draw: &mut Draw, edge: &Edge, reverse: bool) -> Vec<Frame> {
    let port = edge_port(edge);
    let mut frames = Vec::new();
    for packet in drawn_packets(draw, reverse) {
        let vlan = match draw.below(20) {
            0 => 9,
            _ => edge.vlan as u16,
        };
        let packet = if packet.is_empty() {
            vec![0x45]
        } else {
            packet
        };
        let mut bytes = frame(port_mac(edge.site, &port), HOST_MAC, vlan, &packet);
        match draw.below(40) {
            0 => bytes[0] |= 1,
            1 => bytes[13] ^= 1 << draw.below(8),
            2 => {
                // A tag that names no VLAN.
                bytes.splice(12..12, [0x81, 0, 0x20, 0]);
            }
            // For another host.
            3 => bytes[5] ^= 1 << draw.below(8),
            _ => {}
        }
        frames.push((edge.site, port.clone(), bytes));
    }
    frames
}

/// A frame that crossed the underlay, once more and mostly not quite the same.
pub fn drawn_again(draw: &mut Draw, sites: usize, tunnelled: &[Vec<u8>]) -> Option<Frame> {
    let mut frame = tunnelled.get(draw.below(tunnelled.len().max(1)))?.clone();
    match draw.below(6) {
        0 => frame.truncate(draw.below(frame.len())),
        1 => frame.extend([0xee; 5]),
        2 => {}
        _ => {
            let byte = draw.below(frame.len().min(120));
            frame[byte] ^= 1 << draw.below(8);
            if frame.len() > 34 && frame[14] == 0x45 && draw.below(2) == 0 {
                ipv4::set_checksum(&mut frame[14..34]);
            }
        }
    }
    Some((draw.below(sites), "wan".into(), frame))
}

pub fn sorted<K: Copy + Ord>(mut entries: Vec<FlowEntry<K>>) -> Vec<FlowEntry<K>> {
    entries.sort_by_key(|entry| entry.key);
    entries
}

fn delivered(deliveries: &[Delivery]) -> Vec<(&str, u16, &[u8])> {
    deliveries
        .iter()
        .map(|delivery| (delivery.edge.as_str(), delivery.vlan, &delivery.packet[..]))
        .collect()
}

fn assert_equal(single: &mut Network, bursts: &mut Network, what: &str) {
    let now = single.now;
    assert_eq!(
        single.tunnelled, bursts.tunnelled,
        "{what}: over the underlay"
    );
    for (site, (one, other)) in single.nodes.iter_mut().zip(&mut bursts.nodes).enumerate() {
        let what = format!("{what}, site {site}");
        let (counters, others) = (&one.pipeline.counters, &other.pipeline.counters);
        assert_eq!(counters, others, "{what}");
        let ((v4, v6), (other_v4, other_v6)) = (one.pipeline.flows(now), other.pipeline.flows(now));
        assert_eq!(sorted(v4), sorted(other_v4), "{what}");
        assert_eq!(sorted(v6), sorted(other_v6), "{what}");
    }
}

#[test]
fn the_quick_way_and_the_long_way_come_to_the_same() {
    let rounds = std::env::var("SWITCHBOARD_TEST_ROUNDS");
    let rounds: u64 = rounds.map_or(5, |text| text.parse().expect("a number of rounds"));
    let (mut passed, mut over_underlay) = (0, 0);
    for seed in 0..rounds {
        let mut draw = Draw(seed);
        let mut plan = platform(&mut draw);
        plan.wan_mtu = [1600, 1400, 9000][draw.below(3)];
        if draw.below(3) == 0 {
            plan.chains[0].ingress.vlan = 7;
            plan.chains[0].egress.vlan = 8;
        }
        let (mut single, mut bursts) = (Network::new(plan.clone()), Network::new(plan.clone()));
        single.service = Service::PortByPort;
        bursts.service = Service::Bursts;
        for step in 0..6 {
            let mut frames = Vec::new();
            for _ in 0..draw.below(120) {
                let chain = &plan.chains[0];
                match draw.below(8) {
                    0 => frames.extend(drawn_again(&mut draw, plan.sites, &single.tunnelled)),
                    1..4 => frames.extend(drawn_frames(&mut draw, &chain.egress, true)),
                    _ => frames.extend(drawn_frames(&mut draw, &chain.ingress, false)),
                }
            }
            let one_by_one = single.inject_all(&frames);
            let together = bursts.inject_all(&frames);
            let what = format!("seed {seed}, step {step}");
            assert_eq!(delivered(&one_by_one), delivered(&together), "{what}");
            assert_equal(&mut single, &mut bursts, &what);
            passed += one_by_one.len();
            let mut changed = draw.0;
            for network in [&mut single, &mut bursts] {
                let mut draw = Draw(draw.0);
                network.silent = draw.below(5) == 0;
                for _ in 0..draw.below(12) {
                    network.tick();
                }
                network.change(|plan| change(plan, &mut draw, step));
                changed = draw.0;
            }
            draw.0 = changed;
        }
        over_underlay += single.tunnelled.len();
    }
    assert!(passed > 50 * rounds as usize, "{passed} packets passed");
    assert!(over_underlay > 50 * rounds as usize, "{over_underlay}");
}
