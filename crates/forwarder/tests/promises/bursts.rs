//! A burst does what its packets do one by one.

use crate::frames::{frame, packet, tuple};
use crate::network::{HOST_MAC, Network, port_mac};
use crate::plan::{Plan, chain, instance};
use crate::random::Draw;
use forwarder::frame::{Frame, HeapFrame};
use forwarder::pipeline::Output;
use wire::tcp;

fn drawn_frame(draw: &mut Draw) -> Vec<u8> {
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
    let mut frame = frame(
        port_mac(0, "edge-in"),
        HOST_MAC,
        0,
        &packet(&tuple, flags, draw.below(1400)),
    );
    if draw.below(10) == 0 {
        frame.truncate(draw.below(frame.len()));
    }
    frame
}

fn sent(mut out: Output<HeapFrame>) -> Vec<Vec<Vec<u8>>> {
    out.merge(|bytes| Some(HeapFrame::new(bytes)));
    let bytes = |frames: Vec<HeapFrame>| frames.iter().map(|frame| frame.data().to_vec()).collect();
    out.ports.into_iter().map(bytes).collect()
}

#[test]
fn bursts_and_single_packets_come_to_the_same() {
    let network = || {
        let vnfs = vec![vec![
            instance(0, "a", 100),
            instance(0, "b", 50),
            instance(1, "c", 70),
        ]];
        let mut plan = Plan::new(2, chain(0, vnfs, 1));
        plan.wan_mtu = 1400;
        Network::new(plan)
    };
    for seed in 0..20 {
        let mut draw = Draw(seed);
        let (mut single, mut bursts) = (network(), network());
        let port = single.port(0, "edge-in");
        for _ in 0..20 {
            let frames: Vec<Vec<u8>> = (0..draw.below(150))
                .map(|_| drawn_frame(&mut draw))
                .collect();
            let mut one_by_one = Output::default();
            let node = &mut single.nodes[0];
            for frame in &frames {
                let frame = HeapFrame::new(frame);
                node.pipeline
                    .process(&node.rules, port, frame, 1000, &mut one_by_one);
            }
            let mut together = Output::default();
            let node = &mut bursts.nodes[0];
            let mut burst: Vec<HeapFrame> =
                frames.iter().map(|frame| HeapFrame::new(frame)).collect();
            node.pipeline
                .process_burst(&node.rules, port, &mut burst, 1000, &mut together);
            assert!(burst.is_empty());
            assert_eq!(sent(one_by_one), sent(together), "seed {seed}");
        }
        assert_eq!(single.drops(), bursts.drops());
        for event in ["flow_new", "flow_mid_stream", "mss_clamped", "fragmented"] {
            assert_eq!(single.event(event), bursts.event(event), "{event}");
        }
        assert!(single.event("flow_new") > 20 && single.event("fragmented") > 0);
    }
}
