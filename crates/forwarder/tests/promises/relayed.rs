//! What RFC 8300, section 2.2, asks of a forwarder between two service functions that read network service headers: the header goes
//! on as it came, but for its TTL, with unassigned bits and context that are for them alone.

use crate::frames::{packet, tuple};
use crate::network::{Delivery, Network};
use crate::plan::{Instance, Plan, chain, instance};
use contracts::forwarder::{AttachmentKind, Encapsulation};
use std::collections::BTreeMap;
use wire::{FiveTuple, ipv4};

/// Where a network service header begins in a frame of a label-aware VNF, and in one over an IPv4 underlay.
const AT_VNF: usize = 14;
const IN_TUNNEL: usize = 14 + 20 + 8 + 8;

fn aware(site: usize, name: &str) -> Instance {
    let mut aware = instance(site, name, 100);
    aware.kind = AttachmentKind::LabelAwareNsh;
    aware
}

/// A chain from site 0, where its first VNF reads NSH, to site 1.
fn network(encapsulation: Encapsulation, behind: Vec<Instance>) -> Network {
    let mut vnfs = vec![vec![aware(0, "writer")]];
    vnfs.extend(behind.into_iter().map(|instance| vec![instance]));
    let mut plan = Plan::new(2, chain(0, vnfs, 1));
    plan.encapsulations = vec![encapsulation];
    Network::new(plan)
}

fn connection() -> FiveTuple {
    tuple("10.1.0.5", 4000, "10.2.0.9", 80, 17)
}

/// What the first VNF returns of a packet, with another context and all unassigned bits set.
fn written(network: &mut Network, about: &[u8], kind: u8, context: &[u8], ttl: u8) -> Vec<u8> {
    let ingress = network.plan.chains[0].ingress.clone();
    network.labelled.clear();
    assert_eq!(network.send(&ingress, about).len(), 1);
    let mut frame = network.labelled.remove(0);
    network.labelled.clear();
    network.tunnelled.clear();
    let length = (8 + context.len()) / 4;
    frame[AT_VNF] = 0x10 | ttl >> 2;
    frame[AT_VNF + 1] = ttl << 6 | length as u8;
    frame[AT_VNF + 2] = 0xf0 | kind;
    frame.splice(AT_VNF + 8..AT_VNF + 24, context.iter().copied());
    frame
}

/// What was written, further on: lower TTL, lower service index.
fn further(frame: &[u8], ttl: u8, index: u8, length: usize) -> Vec<u8> {
    let mut header = frame[AT_VNF..AT_VNF + length].to_vec();
    header[0] = 0x10 | ttl >> 2;
    header[1] = ttl << 6 | header[1] & 0x3f;
    header[7] = index;
    header
}

fn packets(deliveries: &[Delivery]) -> Vec<&[u8]> {
    let packets = deliveries.iter().map(|delivery| &delivery.packet[..]);
    packets.collect()
}

#[test]
fn a_service_header_goes_on_as_it_came_but_for_its_ttl() {
    let fixed: Vec<u8> = (1..=16).collect();
    let variable: Vec<u8> = [0x01, 0x02, 7, 0x85, 1, 2, 3, 4, 5, 0, 0, 0].repeat(4);
    for (kind, context) in [(1, &fixed[..]), (2, &variable[..]), (2, &[])] {
        for (ttl, left) in [(63, 62), (0, 63), (4, 3)] {
            let mut network = network(Encapsulation::VxlanGpeNsh, vec![aware(1, "reader")]);
            let sent = packet(&connection(), 0, 30);
            let frame = written(&mut network, &sent, kind, context, ttl);
            let delivered = network.inject(0, "vnf-writer", frame.clone());
            let length = 8 + context.len();
            let what = format!("MD type {kind}, {length} bytes, TTL {ttl}");
            assert_eq!(delivered.len(), 1, "{what}: {:?}", network.drops());
            assert_eq!(delivered[0].packet[20..], sent[20..], "{what}");
            // The forwarder took one off the TTL and left the service index alone.
            let between = &network.tunnelled[0][IN_TUNNEL..][..length];
            assert_eq!(between, further(&frame, left, 254, length), "{what}");
            // The next one did the same; then the second VNF took one off the service index.
            let read = &network.labelled[0][AT_VNF..][..length];
            assert_eq!(read, further(&frame, left - 1, 253, length), "{what}");
            network.assert_no_drops();
        }
    }
}

#[test]
fn a_service_header_whose_ttl_ends_at_a_vnf_is_dropped() {
    let mut network = network(Encapsulation::VxlanGpeNsh, vec![aware(1, "reader")]);
    let sent = packet(&connection(), 0, 30);
    let frame = written(&mut network, &sent, 1, &[9; 16], 1);
    assert!(network.inject(0, "vnf-writer", frame).is_empty());
    assert_eq!(network.drops(), BTreeMap::from([("nsh_ttl_expired", 1)]));
    // The second forwarder takes the last one off.
    let frame = written(&mut network, &sent, 1, &[9; 16], 2);
    assert!(network.inject(0, "vnf-writer", frame).is_empty());
    assert_eq!(network.drops(), BTreeMap::from([("nsh_ttl_expired", 2)]));
}

#[test]
fn context_ends_where_nobody_reads_it() {
    // A VNF that knows no labels, and a tunnel that takes labels.
    let gateway = vec![instance(1, "plain", 100), aware(1, "reader")];
    for (encapsulation, behind) in [
        (Encapsulation::VxlanGpeNsh, gateway),
        (Encapsulation::VxlanMpls, vec![aware(1, "reader")]),
    ] {
        let mut network = network(encapsulation, behind);
        let sent = packet(&connection(), 0, 30);
        let frame = written(&mut network, &sent, 1, &[9; 16], 40);
        let delivered = network.inject(0, "vnf-writer", frame);
        assert_eq!(delivered.len(), 1, "{encapsulation:?}");
        assert_eq!(delivered[0].packet[20..], sent[20..]);
        let header = &network.labelled[0][AT_VNF..][..24];
        assert_eq!((header[0] & 0x30, header[2]), (0, 1), "{encapsulation:?}");
        assert_eq!(header[8..], [0; 16], "{encapsulation:?}");
        network.assert_no_drops();
    }
}

#[test]
fn what_does_not_fit_with_its_context_is_cut_or_answered_for_that_size() {
    let context = [[0, 1, 2, 16].as_slice(), &[7; 16]].concat().repeat(3);
    let length = 8 + context.len();
    let mut network = network(Encapsulation::VxlanGpeNsh, vec![aware(1, "reader")]);
    network.change(|plan| plan.wan_mtu = 20 + 8 + 8 + 24 + 1_500);
    let sent = packet(&connection(), 0, 1_500 - 28);
    let frame = written(&mut network, &sent, 2, &context, 63);
    let delivered = network.inject(0, "vnf-writer", frame.clone());
    assert_eq!(delivered.len(), 2, "{:?}", network.drops());
    for (fragment, read) in packets(&delivered).into_iter().zip(&network.labelled) {
        let ip = ipv4::Header::parse(fragment).unwrap();
        let payload = &fragment[ip.header_length..];
        let from = 20 + ip.fragment_offset;
        assert_eq!(payload, &sent[from..from + payload.len()]);
        let header = &read[AT_VNF..][..length];
        assert_eq!(header, further(&frame, 61, 253, length), "with each");
    }
    assert!(
        network
            .tunnelled
            .iter()
            .all(|frame| frame.len() <= 14 + 1_560)
    );
    network.assert_no_drops();

    // One that may not be cut. The VNF itself gets no answer, the packet is counted.
    let mut whole = sent.clone();
    whole[6] |= 0x40;
    ipv4::set_checksum(&mut whole[..20]);
    let frame = written(&mut network, &whole, 2, &context, 63);
    assert!(network.inject(0, "vnf-writer", frame).is_empty());
    assert_eq!(network.drops(), BTreeMap::from([("mtu_exceeded", 1)]));
}
