//! Several forwarders and VNFs in memory: packets through whole chains.

mod world;

use std::net::Ipv4Addr;
use world::{Packet, two_sites};

const HOST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 10);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 80);

fn udp(source_port: u16) -> Packet {
    Packet::udp(HOST, SERVER, source_port, 53)
}

#[test]
fn both_directions_pass_the_vnf_and_come_out_at_the_other_edge() {
    let mut world = two_sites();
    let request = udp(5000);
    let seen = world.enter("office", "lan", &request);
    assert_eq!(seen.vnfs, ["fw-1"], "{seen:?}");
    assert_eq!(seen.left_at.as_deref(), Some("dc/internet"), "{seen:?}");
    let answer = seen.packet.unwrap().reversed();
    let seen = world.enter("dc", "internet", &answer);
    assert_eq!(seen.vnfs, ["fw-1"], "{seen:?}");
    assert_eq!(seen.left_at.as_deref(), Some("office/lan"), "{seen:?}");
    assert_eq!(world.drop_total(), 0);
}

#[test]
fn a_vnf_that_rewrites_addresses_gets_the_answers_it_can_undo() {
    let mut world = two_sites();
    world.rewrite_sources("fw-1", Ipv4Addr::new(198, 51, 100, 7));
    let seen = world.enter("office", "lan", &udp(5001));
    let outside = seen.packet.unwrap();
    assert_eq!(outside.source(), Ipv4Addr::new(198, 51, 100, 7));
    let seen = world.enter("dc", "internet", &outside.reversed());
    assert_eq!(seen.left_at.as_deref(), Some("office/lan"), "{seen:?}");
    assert_eq!(seen.packet.unwrap().destination(), HOST);
}

#[test]
fn connections_keep_their_instance_when_weights_change() {
    let mut world = two_sites();
    world.add_instance("fw-2");
    let before: Vec<_> = (0..200)
        .map(|port| world.enter("office", "lan", &udp(port)).vnfs)
        .collect();
    let firsts = before.iter().filter(|vnfs| *vnfs == &["fw-1"]).count();
    assert!((70..130).contains(&firsts), "{firsts} of 200");
    world.set_weight("fw-1", 0);
    let after: Vec<_> = (0..200)
        .map(|port| world.enter("office", "lan", &udp(port)).vnfs)
        .collect();
    assert_eq!(before, after);
    let new: Vec<_> = (200..300)
        .map(|port| world.enter("office", "lan", &udp(port)).vnfs)
        .collect();
    assert!(new.iter().all(|vnfs| *vnfs == ["fw-2"]));
}

#[test]
fn connections_of_a_dead_instance_choose_again() {
    let mut world = two_sites();
    world.add_instance("fw-2");
    for port in 0..50 {
        world.enter("office", "lan", &udp(port));
    }
    world.kill("fw-1");
    for port in 0..50 {
        assert_eq!(world.enter("office", "lan", &udp(port)).vnfs, ["fw-2"]);
    }
}

#[test]
fn what_no_classifier_matches_is_dropped_and_counted() {
    let mut world = two_sites();
    let stranger = Packet::udp(Ipv4Addr::new(10, 9, 0, 1), SERVER, 1, 2);
    assert_eq!(world.enter("office", "lan", &stranger).left_at, None);
    assert_eq!(
        world.drops("office"),
        [("edge_unclassified".to_string(), 1)]
    );
}

#[test]
fn truncated_packets_are_counted_once_each() {
    let mut world = two_sites();
    let frame = world.edge_frame("office", "lan", &udp(7));
    for length in 0..frame.len() {
        let before = world.drop_total();
        world.receive("office", "lan", &frame[..length]);
        assert_eq!(world.drop_total(), before + 1, "{length}");
    }
}

#[test]
fn labels_from_an_edge_are_refused() {
    let mut world = two_sites();
    let mut frame = world.edge_frame("office", "lan", &udp(7));
    frame[12..14].copy_from_slice(&[0x88, 0x47]);
    world.receive("office", "lan", &frame);
    assert_eq!(world.drops("office"), [("edge_labelled".to_string(), 1)]);
}

#[test]
fn tunnel_frames_truncated_or_flipped_never_pass_silently() {
    let mut world = two_sites();
    world.enter("office", "lan", &udp(9));
    let frame = world
        .last_tunnel_frame()
        .expect("a packet crossed the underlay");
    for length in 0..frame.len() {
        let before = world.drop_total();
        world.receive("dc", "wan", &frame[..length]);
        assert_eq!(world.drop_total(), before + 1, "{length}");
    }
    for byte in 14..frame.len() {
        for bit in 0..8 {
            let mut flipped = frame.clone();
            flipped[byte] ^= 1 << bit;
            let before = world.drop_total();
            let sent = world.receive("dc", "wan", &flipped);
            let dropped = world.drop_total() - before;
            assert!(
                sent > 0 || dropped == 1,
                "byte {byte}, bit {bit}: neither sent nor counted"
            );
        }
    }
}

#[test]
fn a_looping_packet_ends_at_the_loop_guard() {
    let mut world = two_sites();
    world.enter("office", "lan", &udp(11));
    let mut frame = world.last_tunnel_frame().unwrap();
    // The chain label's TTL: Ethernet 14, IPv4 20, UDP 8, VXLAN 8, Ethernet 14, label 3.
    frame[14 + 20 + 8 + 8 + 14 + 3] = 1;
    world.receive("dc", "wan", &frame);
    assert_eq!(world.drops("dc"), [("loop_guard".to_string(), 1)]);
}
