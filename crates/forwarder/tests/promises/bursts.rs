//! A burst does what its packets do one by one.

use crate::frames::{frame, packet, tuple};
use crate::network::{HOST_MAC, Network, port_mac};
use crate::plan::{Plan, chain, instance, interface_mac};
use crate::random::Draw;
use contracts::forwarder as contract;
use flow::BURST;
use forwarder::capture::{Capture, Filter, LARGEST_SNAP_LENGTH};
use forwarder::frame::{Frame, HeapFrame};
use forwarder::home::Homes;
use forwarder::pipeline::{Errand, Output};
use forwarder::trace;
use wire::{IpPacket, tcp, udp};

fn drawn_frame(draw: &mut Draw) -> Vec<u8> {
    let mut frame = whole_frame(draw, 0);
    if draw.below(10) == 0 {
        frame.truncate(draw.below(frame.len()));
    }
    frame
}

fn whole_frame(draw: &mut Draw, site: usize) -> Vec<u8> {
    let number = draw.below(40);
    let (source, destination) = match draw.below(3) {
        0 => (format!("2001:db8:1::{number:x}"), "2001:db8:2::9"),
        _ => (format!("10.1.0.{}", 2 + number), "10.2.0.9"),
    };
    let flags = if draw.below(3) == 0 {
        tcp::SYN
    } else {
        tcp::ACK
    };
    let tuple = tuple(&source, 1000, destination, 443, tcp::PROTOCOL);
    let packet = packet(&tuple, flags, draw.below(1400));
    frame(port_mac(site, "edge-in"), HOST_MAC, 0, &packet)
}

fn sent(mut out: Output<HeapFrame>) -> Vec<Vec<Vec<u8>>> {
    out.merge(|bytes| Some(HeapFrame::new(bytes)));
    let bytes = |frames: Vec<HeapFrame>| frames.iter().map(|frame| frame.data().to_vec()).collect();
    out.ports.into_iter().map(bytes).collect()
}

/// What the first forwarder makes of frames that arrive at a port.
fn one_by_one<'a>(
    network: &mut Network,
    port: usize,
    frames: impl IntoIterator<Item = &'a Vec<u8>>,
) -> Output<HeapFrame> {
    let (node, mut out) = (&mut network.nodes[0], Output::default());
    for frame in frames {
        let frame = HeapFrame::new(frame);
        node.pipeline
            .process(&node.rules, port, frame, 1000, &mut out);
    }
    out
}

/// The same of all of them in one burst.
fn together(network: &mut Network, port: usize, frames: &[Vec<u8>]) -> Output<HeapFrame> {
    let (node, mut out) = (&mut network.nodes[0], Output::default());
    let mut burst: Vec<HeapFrame> = frames.iter().map(|frame| HeapFrame::new(frame)).collect();
    node.pipeline
        .process_burst(&node.rules, port, &mut burst, 1000, &mut out);
    assert!(burst.is_empty());
    out
}

fn network() -> Network {
    let vnfs = vec![vec![
        instance(0, "a", 100),
        instance(0, "b", 50),
        instance(1, "c", 70),
    ]];
    let mut plan = Plan::new(2, chain(0, vnfs, 1));
    plan.wan_mtu = 1400;
    Network::new(plan)
}

#[test]
fn bursts_and_single_packets_come_to_the_same() {
    for seed in 0..20 {
        let mut draw = Draw(seed);
        let (mut single, mut bursts) = (network(), network());
        let port = single.port(0, "edge-in");
        for _ in 0..20 {
            let frames: Vec<Vec<u8>> = (0..draw.below(2 * BURST))
                .map(|_| drawn_frame(&mut draw))
                .collect();
            let one_by_one = one_by_one(&mut single, port, &frames);
            let together = together(&mut bursts, port, &frames);
            assert_eq!(sent(one_by_one), sent(together), "seed {seed}");
        }
        assert_eq!(single.drops(), bursts.drops());
        assert_same_events(&single, &bursts);
        assert!(single.event("flow_new") > 20 && single.event("fragmented") > 0);
    }
}

fn assert_same_events(one: &Network, other: &Network) {
    for event in ["flow_new", "flow_mid_stream", "mss_clamped", "fragmented"] {
        assert_eq!(one.event(event), other.event(event), "{event}");
    }
}

/// A frame out of either side of an instance, of a few connections; most are like the one before, but for the connection.
fn frame_out_of_instance(network: &Network, draw: &mut Draw, before: &mut [usize; 3]) -> Vec<u8> {
    // The side, the protocol and the flags.
    for (what, most) in before.iter_mut().zip([2, 2, 4]) {
        if draw.below(60) == 0 {
            *what = draw.below(most);
        }
    }
    let [side, protocol, flags] = *before;
    let number = draw.below(40);
    let (client, server) = match draw.below(100) {
        0 => (format!("2001:db8:1::{number:x}"), "2001:db8:2::9"),
        _ => (format!("10.1.0.{}", 2 + number), "10.2.0.9"),
    };
    let protocol = [tcp::PROTOCOL, udp::PROTOCOL][protocol];
    let flags = [tcp::ACK, tcp::SYN, tcp::FIN | tcp::ACK, tcp::RST][flags];
    let mut tuple = tuple(&client, 1000, server, 443, protocol);
    if side == 0 {
        tuple = tuple.reversed();
    }
    let payload = match draw.below(100) {
        0 => 1_400,
        _ => draw.below(60),
    };
    let label = network
        .plan
        .versions()
        .next()
        .expect("it has a chain")
        .label;
    let source = interface_mac(label, 0, "a", side == 1);
    let packet = packet(&tuple, flags, payload);
    frame(port_mac(0, "vnf-a"), source, 0, &packet)
}

#[test]
fn packets_that_are_alike_leave_together_as_they_do_one_by_one() {
    let network = || {
        let mut plan = Plan::new(3, chain(1, vec![vec![instance(0, "a", 100)]], 2));
        plan.wan_mtu = 1400;
        Network::new(plan)
    };
    for seed in 0..20 {
        let mut draw = Draw(seed);
        let (mut single, mut bursts) = (network(), network());
        // Connections begin at the edge, and neighbours are learned.
        for _ in 0..200 {
            let frame = whole_frame(&mut draw, 1);
            for network in [&mut single, &mut bursts] {
                network.now = 1000;
                network.inject(1, "edge-in", frame.clone());
            }
        }
        for side in [0, 1] {
            let frame = frame_out_of_instance(&single, &mut draw, &mut [side, 0, 0]);
            for network in [&mut single, &mut bursts] {
                network.inject(0, "vnf-a", frame.clone());
            }
        }
        let port = single.port(0, "vnf-a");
        let (mut kind, mut sent_all) = ([1, 0, 0], 0);
        for number in 0..40 {
            let frames: Vec<Vec<u8>> = (0..draw.below(2 * BURST))
                .map(|_| frame_out_of_instance(&single, &mut draw, &mut kind))
                .collect();
            let one_by_one = sent(one_by_one(&mut single, port, &frames));
            let together = sent(together(&mut bursts, port, &frames));
            assert_eq!(one_by_one, together, "seed {seed}, burst {number}");
            sent_all += together.iter().map(Vec::len).sum::<usize>();
            let flows = [&mut single, &mut bursts].map(|network| network.nodes[0].flows(1000));
            assert_eq!(flows[0], flows[1], "seed {seed}, burst {number}");
        }
        assert!(sent_all > 5_000, "{sent_all} {:?}", single.drops());
        assert_eq!(single.drops(), bursts.drops());
        assert_same_events(&single, &bursts);
    }
}

#[test]
fn one_of_two_workers_does_with_its_own_what_a_lone_one_does_whoever_else_s_are_among_them() {
    let homes = Homes::new([9; 16], 2);
    let home = |frame: &[u8]| homes.of(&IpPacket::parse(&frame[14..]).unwrap().tuple);
    for seed in 0..20 {
        let mut draw = Draw(seed);
        let (mut lone, mut shared) = (network(), network());
        let port = lone.port(0, "edge-in");
        shared.nodes[0].pipeline.share(homes, 0);
        let mut handed_over = 0;
        for number in 0..120 {
            // They are dealt out by homes, and for a while they are not.
            let dealt_out = number % 40 < 30;
            let most = if number % 4 == 0 { 2 * BURST } else { 100 };
            let frames: Vec<Vec<u8>> = (0..draw.below(most))
                .map(|_| whole_frame(&mut draw, 0))
                .filter(|frame| !dealt_out || home(frame) == 0)
                .collect();
            let own = frames.iter().filter(|frame| home(frame) == 0);
            let alone = one_by_one(&mut lone, port, own);
            let mut together = together(&mut shared, port, &frames);
            let mut away = Vec::new();
            for batch in together.away.drain() {
                assert_eq!(
                    (batch.worker, batch.errand, batch.port),
                    (1, Errand::Steer, port)
                );
                away.extend(batch.frames.iter().map(|frame| frame.data().to_vec()));
            }
            let theirs: Vec<_> = frames.iter().filter(|frame| home(frame) == 1).collect();
            assert!(away.iter().eq(theirs), "seed {seed}, burst {number}");
            handed_over += away.len();
            assert_eq!(sent(alone), sent(together), "seed {seed}, burst {number}");
        }
        assert!(handed_over > 200, "{handed_over}");
        assert_eq!(lone.drops(), shared.drops());
        assert!(lone.event("flow_new") > 10);
        assert_eq!(lone.event("flow_new"), shared.event("flow_new"));
    }
}

/// What a capture sees of some bursts at a forwarder of so many workers: whether each frame was sent, and its bytes.
fn captured(workers: usize, seed: u64, filter: Filter) -> Vec<(bool, Vec<u8>)> {
    let (mut network, mut draw) = (network(), Draw(seed));
    let port = network.port(0, "edge-in");
    // So that neighbours are known.
    for _ in 0..20 {
        network.inject(0, "edge-in", whole_frame(&mut draw, 0));
    }
    let node = &mut network.nodes[0];
    node.pipeline.share(Homes::new([7; 16], workers), 0);
    let (capture, mut captures) = Capture::new(filter, LARGEST_SNAP_LENGTH);
    node.pipeline.capture = Some(capture);
    let mut seen = Vec::new();
    for _ in 0..20 {
        let count = draw.below(2 * BURST);
        let mut burst: Vec<HeapFrame> = (0..count)
            .map(|_| HeapFrame::new(&whole_frame(&mut draw, 0)))
            .collect();
        let mut out = Output::default();
        node.pipeline
            .process_burst(&node.rules, port, &mut burst, 1000, &mut out);
        if !out.made.is_empty() {
            node.pipeline.alert_capture();
            out.merge(|bytes| Some(HeapFrame::new(bytes)));
        }
        for (port, frames) in out.ports.iter().enumerate() {
            node.pipeline.show_leaving(&node.rules, port, frames);
        }
        node.pipeline.end_round();
        while let Ok(captured) = captures.try_next() {
            seen.push((captured.sent, captured.bytes.to_vec()));
        }
    }
    assert_eq!(captures.lost(), 0);
    seen
}

#[test]
fn a_capture_of_some_connections_sees_of_bursts_what_one_of_everything_sees_of_them() {
    let matched = contract::Match {
        source_prefixes: vec!["10.1.0.7/32".into()],
        ..Default::default()
    };
    let of_host = Filter {
        connections: trace::Filter::new(Some(&matched), true).expect("a filter"),
        ..Filter::default()
    };
    for (workers, seed) in [(1, 1), (1, 2), (2, 3), (3, 4)] {
        let all = captured(workers, seed, Filter::default());
        let is_of_host = |(_, bytes): &(bool, Vec<u8>)| {
            let addresses = [10, 1, 0, 7, 10, 2, 0, 9];
            bytes.windows(8).any(|window| window == addresses)
        };
        let wanted: Vec<_> = all.iter().filter(|one| is_of_host(one)).cloned().collect();
        let seen = captured(workers, seed, of_host.clone());
        assert!(seen == wanted, "{workers} workers, seed {seed}");
        let sent = seen.iter().filter(|(sent, _)| *sent).count();
        assert!((10..all.len() / 10).contains(&seen.len()), "{}", seen.len());
        // Of several workers another one may send them.
        assert!(workers > 1 || sent > 10, "{sent} sent");
        assert!(seen.len() - sent > 10, "received too");
    }
}

#[test]
fn a_capture_of_a_chain_sees_its_packets_and_nothing_of_others() {
    let of = |customer: &str, chain: &str| {
        let filter = Filter {
            chain: Some((customer.into(), chain.into())),
            ..Filter::default()
        };
        captured(1, 5, filter)
    };
    let all = captured(1, 5, Filter::default());
    let seen = of("acme", "chain");
    // What arrives from outside at an edge is of no chain yet.
    assert!(seen.len() > 1000 && seen.iter().all(|(sent, _)| *sent));
    assert!(seen.iter().all(|one| all.contains(one)));
    assert!(of("globex", "chain").is_empty() && of("acme", "another").is_empty());
}
