//! Several workers come to the same as one, whichever of them receives a packet.
//!
//! Networks of the same drawn platform get the same drawn frames; the forwarders of one have one worker, those of the others
//! two and three, of which any may receive any frame. What leaves must be the same for each connection, plain packets in the same
//! order and others among their like, and so must be the sums of all counters, but for those of neighbours, whom each worker
//! asks itself; and there must be the same flow entries. Which direction of a connection comes first is not the same where both are under way
//! at once: nor is in which of them its choice is counted, and who its entries say spoke first.

use crate::equal::{drawn_again, drawn_frames, sorted};
use crate::frames::{frame, packet, tuple};
use crate::network::{Delivery, HOST_MAC, Network, Service, port_mac};
use crate::plan::{Plan, chain, instance};
use crate::random::{Draw, change, platform};
use contracts::forwarder::TraceRequest;
use flow::{FlowEntry, State};
use forwarder::counters::{Counters, StageCount};
use forwarder::registry::{HopId, PlaceId};
use forwarder::trace::Trace;
use std::collections::BTreeMap;
use wire::steering::Direction;
use wire::{FiveTuple, IpPacket, ipv4, ipv6, tcp, udp};

/// What left, by connection in the order of its packets: the edge, its VLAN and the packet.
type Left = BTreeMap<String, Vec<(String, u16, Vec<u8>)>>;

fn by_connection(deliveries: Vec<Delivery>) -> Left {
    let mut left = Left::new();
    for delivery in deliveries {
        let ip = IpPacket::parse(&delivery.packet).unwrap();
        let shown = ip.quoted.map_or(ip.tuple, FiveTuple::reversed);
        // Plain packets may overtake others: these keep their order among their like.
        let is_plain = matches!(ip.tuple.protocol, tcp::PROTOCOL | udp::PROTOCOL)
            && matches!(
                ip.transport_offset,
                ipv4::HEADER_LENGTH | ipv6::HEADER_LENGTH
            );
        let is_error = ip.quoted.is_some();
        let name = format!("{shown} {:?} {is_plain} {is_error}", ip.fragmentation);
        let packets = left.entry(name).or_default();
        packets.push((delivery.edge, delivery.vlan, delivery.packet));
    }
    left
}

/// Events but those that tell of workers, and whether a connection began in its midst: that depends on which of its packets comes first, where
/// both directions are under way at once.
fn counted<'a>(events: impl Iterator<Item = (&'a str, u64)>) -> Vec<(&'a str, u64)> {
    let depends = ["handed_over", "flow_mid_stream"];
    events
        .filter(|(name, _)| !name.starts_with("neighbour_") && !depends.contains(name))
        .collect()
}

/// What passed a stage in each direction, and how many connections made their choice there: by the packet of which direction depends on
/// which comes first, where both are under way at once.
fn passed(counters: &Counters, place: PlaceId) -> ([StageCount; 2], u64) {
    let counts = counters.stage_counts(place);
    let without = |count: StageCount| StageCount {
        new_flows: 0,
        ..count
    };
    let chosen = counts.iter().map(|count| count.new_flows).sum();
    (counts.map(without), chosen)
}

/// Entries in their order, without who spoke first: of both directions under way at once, which comes first is not promised.
fn whoever_began<K: Copy + Ord>(mut entries: Vec<FlowEntry<K>>) -> Vec<FlowEntry<K>> {
    for entry in &mut entries {
        // States name the ends by who spoke first.
        entry.state = match (entry.hops.opener, entry.state) {
            (1, State::OpenerClosed) => State::AnswererClosed,
            (1, State::AnswererClosed) => State::OpenerClosed,
            // A SYN that is not plain may be overtaken.
            (_, State::PickedUp) => State::Established,
            (_, state) => state,
        };
        entry.hops.opener = 0;
    }
    sorted(entries)
}

fn assert_same(one: &mut Network, several: &mut Network, what: &str) {
    let now = one.now;
    for (site, (one, several)) in one.nodes.iter_mut().zip(&mut several.nodes).enumerate() {
        let what = format!("{what}, site {site}");
        let (own, sum) = (one.counters(), several.counters());
        assert_eq!(
            own.drops().collect::<Vec<_>>(),
            sum.drops().collect::<Vec<_>>(),
            "{what}"
        );
        assert_eq!(counted(own.events()), counted(sum.events()), "{what}");
        for number in 0..one.rules.places.len() as u16 {
            let place = PlaceId(number);
            assert_eq!(passed(&own, place), passed(&sum, place), "{what}");
            for direction in [Direction::Forward, Direction::Reverse] {
                let dropped = |counters: &Counters| -> Vec<_> {
                    counters.stage_drops((place, direction)).collect()
                };
                assert_eq!(dropped(&own), dropped(&sum), "{what}");
            }
        }
        let hops = || (0..one.rules.hops.len() as u16).map(HopId);
        for hop in hops() {
            let sent = [&own, &sum].map(|counters| counters.hop_count(hop).packets);
            assert_eq!(sent[0], sent[1], "{what}");
        }
        let chosen = |counters: &Counters| -> u64 {
            hops().map(|hop| counters.hop_count(hop).new_flows).sum()
        };
        assert_eq!(chosen(&own), chosen(&sum), "{what}");
        let ((v4, v6), (other_v4, other_v6)) = (one.flows(now), several.flows(now));
        assert_eq!(whoever_began(v4), whoever_began(other_v4), "{what}");
        assert_eq!(whoever_began(v6), whoever_began(other_v6), "{what}");
    }
}

fn drawn_plan(draw: &mut Draw) -> Plan {
    let mut plan = platform(draw);
    plan.wan_mtu = [1600, 1400, 9000][draw.below(3)];
    if draw.below(3) == 0 {
        plan.chains[0].ingress.vlan = 7;
        plan.chains[0].egress.vlan = 8;
    }
    plan
}

/// Frames that arrive before all is quiet again, at most: a packet in fragments is up to 36. How many may wait for a neighbour, 32, is each
/// worker's own bound, and several workers together keep more.
const AT_ONCE: usize = 16;

/// Compares one worker with several over drawn traffic and changes; returns packets that passed, and that were handed over.
fn compare(seed: u64, workers: usize, service: Service) -> (usize, u64) {
    let mut draw = Draw(seed);
    let plan = drawn_plan(&mut draw);
    let mut one = Network::new(plan.clone());
    let mut several = Network::with_workers(plan.clone(), workers, seed);
    (one.service, several.service) = (service, service);
    let mut passed = 0;
    for step in 0..6 {
        let what = format!("seed {seed}, {workers} workers, step {step}");
        for _ in 0..12 {
            let mut together = vec![Vec::new()];
            for _ in 0..1 + draw.below(8) {
                let chain = &plan.chains[0];
                let last = together.len() - 1;
                match draw.below(8) {
                    // Alone: one that is not quite the same may be read the long way, and be overtaken. And no ARP: it teaches those
                    // workers a false address that have asked for the neighbour, and the others ask themselves.
                    0 => {
                        let again = drawn_again(&mut draw, plan.sites, &one.tunnelled);
                        let again = again.filter(|(.., frame)| frame.get(12..14) != Some(&[8, 6]));
                        together.extend([again.into_iter().collect(), Vec::new()]);
                    }
                    1..4 => together[last].extend(drawn_frames(&mut draw, &chain.egress, true)),
                    _ => together[last].extend(drawn_frames(&mut draw, &chain.ingress, false)),
                }
            }
            for mut frames in together {
                frames.truncate(AT_ONCE);
                let by_one = one.inject_all(&frames);
                let by_several = several.inject_all(&frames);
                passed += by_one.len();
                let (by_one, by_several) = (by_connection(by_one), by_connection(by_several));
                let drops = (one.drops(), several.drops());
                assert_eq!(by_one, by_several, "{what}, dropped {drops:?}");
            }
        }
        assert_same(&mut one, &mut several, &what);
        let start = draw.0;
        for network in [&mut one, &mut several] {
            draw.0 = start;
            for _ in 0..draw.below(12) {
                network.tick();
            }
            network.change(|plan| change(plan, &mut draw, step));
        }
        several.plan = one.plan.clone();
    }
    (passed, several.event("handed_over"))
}

#[test]
fn several_workers_come_to_the_same_as_one() {
    let rounds = std::env::var("SWITCHBOARD_TEST_ROUNDS");
    let rounds: u64 = rounds.map_or(4, |text| text.parse().expect("a number of rounds"));
    let (mut passed, mut handed) = (0, 0);
    for seed in 0..rounds {
        for workers in [2, 3] {
            for service in [Service::AtOnce, Service::Bursts] {
                let (some, over) = compare(seed, workers, service);
                passed += some;
                handed += over;
            }
        }
    }
    assert!(passed > 200 * rounds as usize, "{passed} packets passed");
    assert!(handed > 200 * rounds, "{handed} packets were handed over");
}

#[test]
fn packets_with_a_priority_tag_keep_their_order_among_those_without() {
    let vnfs = vec![vec![instance(1, "a", 100)]];
    let plan = Plan::new(2, chain(0, vnfs, 1));
    let mut network = Network::with_workers(plan, 2, 5);
    network.service = Service::Bursts;
    for number in 0..20u8 {
        let shown = tuple(&format!("10.1.0.{}", 2 + number), 1000, "10.2.0.9", 443, 17);
        let frames: Vec<_> = [0, 5, 0, 3]
            .into_iter()
            .zip(20..)
            .map(|(priority, payload)| {
                let mac = port_mac(0, "edge-in");
                let mut bytes = frame(mac, HOST_MAC, 0, &packet(&shown, 0, payload));
                if priority > 0 {
                    bytes.splice(12..12, [0x81, 0, priority << 5, 0]);
                }
                (0, "edge-in".to_string(), bytes)
            })
            .collect();
        for _ in 0..3 {
            let delivered = network.inject_all(&frames);
            let lengths: Vec<_> = delivered.iter().map(|one| one.packet.len()).collect();
            assert_eq!(lengths, [48, 49, 50, 51], "{shown}");
        }
    }
    network.assert_no_drops();
    assert!(network.event("handed_over") > 20);
}

#[test]
fn a_probe_is_followed_through_whichever_workers_it_passes() {
    let vnfs = vec![vec![instance(1, "a", 100)]];
    let plan = Plan::new(2, chain(0, vnfs, 1));
    let mut network = Network::with_workers(plan.clone(), 3, 5);
    for number in 0..20u8 {
        let mark = [number + 1; 16];
        let request = TraceRequest {
            probe: mark.to_vec(),
            limit: 100,
            ..Default::default()
        };
        let trace = Trace::new(&request).unwrap();
        for node in &mut network.nodes {
            for pipeline in &mut node.team.as_mut().unwrap().pipelines {
                pipeline.trace = Some(trace.clone());
            }
        }
        let source = format!("10.1.0.{}", 2 + number);
        let shown = tuple(&source, 1000, "10.2.0.9", 443, wire::udp::PROTOCOL);
        let mut probe = packet(&shown, 0, 40);
        let end = probe.len() - 16;
        probe[end..].copy_from_slice(&mark);
        let delivered = network.send(&plan.chains[0].ingress, &probe);
        assert_eq!(delivered.len(), 1, "probe {number}");
        let mut hops: Vec<(String, u32, bool)> = Vec::new();
        for node in &mut network.nodes {
            for pipeline in &mut node.team.as_mut().unwrap().pipelines {
                let trace = pipeline.trace.take().unwrap();
                let told = trace.into_hops().into_iter();
                hops.extend(told.map(|hop| (hop.site, hop.stage, hop.dropped)));
            }
        }
        hops.sort();
        let hop = |site: &str, stage| (site.to_string(), stage, false);
        let expected = [hop("site0", 1), hop("site1", 1), hop("site1", 2)];
        assert_eq!(hops, expected, "probe {number}");
    }
    assert!(network.event("handed_over") > 20);
}
