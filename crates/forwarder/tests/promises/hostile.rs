//! Frames that nobody should send: each ends in exactly one place, and nothing panics.

use crate::frames::{frame, packet, tuple};
use crate::network::{HOST_MAC, Network, port_mac};
use crate::plan::{Plan, chain, instance};
use contracts::forwarder::{AttachmentKind, Encapsulation};
use forwarder::frame::HeapFrame;
use forwarder::pipeline::Output;
use wire::tcp;

struct Seed {
    site: usize,
    port: &'static str,
    frame: Vec<u8>,
}

fn seeds(network: &mut Network) -> Vec<Seed> {
    let chain = network.plan.chains[0].clone();
    let mut seeds = Vec::new();
    for (source, destination) in [("10.1.0.5", "10.2.0.9"), ("2001:db8:1::5", "2001:db8:2::9")] {
        for (protocol, flags) in [(tcp::PROTOCOL, tcp::SYN), (17, 0), (132, 0)] {
            let tuple = tuple(source, 4000, destination, 80, protocol);
            let packet = packet(&tuple, flags, 30);
            seeds.push(Seed {
                site: 0,
                port: "edge-in",
                frame: frame(port_mac(0, "edge-in"), HOST_MAC, 0, &packet),
            });
            network.send(&chain.ingress, &packet);
            let error = crate::frames::unreachable(&packet);
            seeds.push(Seed {
                site: 1,
                port: "edge-out",
                frame: frame(port_mac(1, "edge-out"), HOST_MAC, 0, &error),
            });
            network.send(&chain.egress, &error);
        }
    }
    for frame in std::mem::take(&mut network.tunnelled) {
        seeds.push(Seed {
            site: 1,
            port: "wan",
            frame: frame.clone(),
        });
        seeds.push(Seed {
            site: 0,
            port: "wan",
            frame,
        });
    }
    for frame in std::mem::take(&mut network.labelled) {
        seeds.push(Seed {
            site: 1,
            port: "vnf-aware",
            frame,
        });
    }
    seeds
}

/// Gives a frame to a forwarder and asserts that it ends in exactly one place.
fn offer(network: &mut Network, site: usize, port: usize, frame: &[u8]) {
    let now = network.now;
    let node = &mut network.nodes[site];
    let account = |pipeline: &forwarder::pipeline::Pipeline<HeapFrame>| {
        let events: u64 = pipeline
            .counters
            .events()
            .filter(|(name, _)| {
                matches!(
                    *name,
                    "neighbour_answered"
                        | "neighbour_heard"
                        | "echo_answered"
                        | "neighbour_wait"
                        | "fragmented"
                )
            })
            .map(|(_, count)| count)
            .sum();
        (pipeline.counters.drop_total(), events)
    };
    let before = account(&node.pipeline);
    let mut out = Output::default();
    node.pipeline
        .process(&node.rules, port, HeapFrame::new(frame), now, &mut out);
    let after = account(&node.pipeline);
    let sent: usize = out.ports.iter().map(Vec::len).sum();
    let ends = after.0 - before.0 + (after.1 - before.1) + sent as u64;
    assert_eq!(
        ends,
        1,
        "{ends} ends: {frame:x?} {:?}",
        node.pipeline.counters.drops().collect::<Vec<_>>()
    );
}

fn network(encapsulation: Encapsulation) -> Network {
    let mut bump = instance(1, "bump", 100);
    bump.kind = AttachmentKind::Transparent;
    let mut aware = instance(1, "aware", 100);
    aware.kind = match encapsulation {
        Encapsulation::VxlanGpeNsh => AttachmentKind::LabelAwareNsh,
        _ => AttachmentKind::LabelAwareMpls,
    };
    let mut plan = Plan::new(
        2,
        chain(
            0,
            vec![vec![instance(1, "a", 100)], vec![bump], vec![aware]],
            1,
        ),
    );
    plan.encapsulations = vec![encapsulation];
    Network::new(plan)
}

const ENCAPSULATIONS: [Encapsulation; 3] = [
    Encapsulation::VxlanMpls,
    Encapsulation::VxlanGpeNsh,
    Encapsulation::MplsInUdp,
];

#[test]
fn frames_cut_at_every_length_end_in_exactly_one_place() {
    for encapsulation in ENCAPSULATIONS {
        let mut network = network(encapsulation);
        for seed in seeds(&mut network) {
            let port = network.port(seed.site, seed.port);
            for length in 0..=seed.frame.len() {
                offer(&mut network, seed.site, port, &seed.frame[..length]);
            }
        }
    }
}

#[test]
fn frames_with_any_byte_changed_end_in_exactly_one_place() {
    for encapsulation in ENCAPSULATIONS {
        let mut network = network(encapsulation);
        for seed in seeds(&mut network) {
            let port = network.port(seed.site, seed.port);
            for at in 0..seed.frame.len() {
                for change in [0x01, 0x80, 0xff] {
                    let mut frame = seed.frame.clone();
                    frame[at] ^= change;
                    offer(&mut network, seed.site, port, &frame);
                }
            }
        }
    }
}

#[test]
fn every_frame_at_every_port_ends_in_exactly_one_place() {
    for encapsulation in ENCAPSULATIONS {
        let mut network = network(encapsulation);
        for seed in seeds(&mut network) {
            for site in 0..2 {
                for port in 0..9 {
                    offer(&mut network, site, port, &seed.frame);
                }
            }
        }
    }
}
