//! Rules change while two workers, each in a thread of its own, steer packets and hand them over: no packet is steered by
//! half of one rule set and half of another.

use contracts::forwarder as contract;
use forwarder::frame::{Frame, HeapFrame};
use forwarder::handover::{Handover, PortWorkers};
use forwarder::home::Homes;
use forwarder::neighbours::{arp_answer, framed};
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::Registry;
use forwarder::rules::{Rules, compile};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;
use wire::arp::{Arp, Operation};
use wire::{IpPacket, MacAddress, ethernet, ipv4};

const WORKERS: usize = 2;
const SWAPS: usize = 150;
const VNF_MAC: MacAddress = MacAddress([2, 0, 0, 0, 1, 2]);
const PORT_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 2, 1]);

/// Everything of a rule set that shows in a packet in a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Shown {
    own: [u8; 4],
    peer: [u8; 4],
    vni: u32,
    chain: u32,
    egress: u32,
}

const VERSIONS: [Shown; 2] = [
    Shown {
        own: [198, 18, 0, 1],
        peer: [198, 18, 0, 2],
        vni: 7,
        chain: 1000,
        egress: 500,
    },
    Shown {
        own: [198, 18, 0, 11],
        peer: [198, 18, 0, 12],
        vni: 9,
        chain: 2000,
        egress: 600,
    },
];

/// Rules of a forwarder beside a VNF whose next stage leads to a peer. Ports have another order in each version.
fn rule_set(shown: Shown, generation: u64) -> contract::RuleSet {
    let dotted = |address: [u8; 4]| std::net::Ipv4Addr::from(address).to_string();
    let port = |name: &str| contract::Port {
        name: name.into(),
        device: Some(contract::port::Device::AfPacket(name.into())),
    };
    let mut ports = vec![port("wan"), port("vnf"), port("spare")];
    if generation.is_multiple_of(2) {
        ports.reverse();
    }
    let attachment = contract::local_target::Target::Attachment("firewall".into());
    let end = |local, remote| Some(contract::StageEnd { local, remote });
    contract::RuleSet {
        generation,
        underlay: Some(contract::Underlay {
            port: "wan".into(),
            addresses: vec![format!("{}/24", dotted(shown.own))],
            mtu: 1600,
            vni: shown.vni,
            ..Default::default()
        }),
        ports,
        peers: vec![contract::Peer {
            id: format!("west/{}", shown.vni),
            address: dotted(shown.peer),
            encapsulation: contract::Encapsulation::VxlanMpls.into(),
            alive: true,
            ..Default::default()
        }],
        attachments: vec![contract::Attachment {
            id: "firewall".into(),
            vnf: "firewall".into(),
            instance: "a".into(),
            kind: contract::AttachmentKind::Gateway.into(),
            state: contract::AttachmentState::Active.into(),
            ingress_port: "vnf".into(),
            egress_port: "vnf".into(),
            ingress_mac: vec![2, 0, 0, 0, 1, 1],
            egress_mac: VNF_MAC.0.to_vec(),
            mtu: 1500,
            chain_label: shown.chain,
            egress_label: shown.egress,
            stage: 1,
            ..Default::default()
        }],
        paths: vec![contract::ServicePath {
            chain_label: shown.chain,
            egress_label: shown.egress,
            customer: "acme".into(),
            chain: "web".into(),
            vnf_count: 1,
            stages: vec![contract::Stage {
                number: 2,
                upstream: end(
                    vec![contract::LocalTarget {
                        target: Some(attachment),
                        weight: 100,
                        prefixes: Vec::new(),
                    }],
                    Vec::new(),
                ),
                downstream: end(
                    Vec::new(),
                    vec![contract::RemoteTarget {
                        peer: format!("west/{}", shown.vni),
                        weight: 100,
                        prefixes: Vec::new(),
                        ..Default::default()
                    }],
                ),
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn packet(connection: u32) -> Vec<u8> {
    let [_, a, b, c] = connection.to_be_bytes();
    let header = ipv4::write(&ipv4::Fields {
        source: [10, a, b, c],
        destination: [203, 0, 113, 9],
        protocol: 17,
        ttl: 64,
        payload_length: 8,
        identification: 0,
        dont_fragment: true,
    });
    let mut packet = header.to_vec();
    packet.extend([0x0f, 0xa0, 0, 53, 0, 8, 0, 0]);
    packet
}

/// What a tunnel frame shows of the rules it was made by.
fn shown(frame: &[u8]) -> Shown {
    let header = ethernet::Header::parse(frame).unwrap();
    let outer = &frame[header.length..];
    let ip = IpPacket::parse(outer).unwrap();
    let four = |at: usize| -> [u8; 4] { outer[at..at + 4].try_into().unwrap() };
    let word = |at: usize| u32::from_be_bytes(four(at));
    let vxlan = ip.transport_offset + 8;
    let labels = vxlan + 8 + 14;
    Shown {
        own: four(12),
        peer: four(16),
        vni: word(vxlan + 4) >> 8,
        chain: word(labels) >> 12,
        egress: word(labels + 4) >> 12,
    }
}

/// New rules, and whom to tell that they are in force.
type Change = (Arc<Rules>, Vec<PortWorkers>, Sender<()>);

struct Worker {
    number: usize,
    pipeline: Pipeline<HeapFrame>,
    handover: Handover<HeapFrame>,
    rules: Arc<Rules>,
    changes: Receiver<Change>,
    seen: BTreeMap<Shown, u64>,
}

impl Worker {
    /// Steers packets of drawn connections until nobody changes rules any more; returns what left, and the counters.
    fn run(mut self) -> (BTreeMap<Shown, u64>, forwarder::counters::Counters) {
        let mut drawn = self.number as u32;
        let mut answers: Vec<HeapFrame> = Vec::new();
        loop {
            match self.changes.try_recv() {
                Ok((rules, ports, done)) => {
                    self.pipeline.rules_changed(&self.rules, &rules, 1).unwrap();
                    self.handover.rules_changed(&ports);
                    self.rules = rules;
                    // The answers were to questions at other positions.
                    answers.clear();
                    done.send(()).unwrap();
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return (self.seen, self.pipeline.counters),
            }
            if self.rules.ports.is_empty() {
                thread::yield_now();
                continue;
            }
            let mut frames: Vec<HeapFrame> = Vec::new();
            for _ in 0..32 {
                drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let packet = packet(drawn >> 16 & 0x3ff);
                let frame = framed(PORT_MAC, VNF_MAC, 0, ethernet::IPV4, &packet);
                frames.push(HeapFrame::new(&frame));
            }
            self.round("vnf", &mut frames, &mut answers);
            let mut asked = std::mem::take(&mut answers);
            self.round("wan", &mut asked, &mut answers);
            thread::yield_now();
        }
    }

    fn round(&mut self, port: &str, frames: &mut Vec<HeapFrame>, answers: &mut Vec<HeapFrame>) {
        let mut out = Output::default();
        let (rules, pipeline) = (&self.rules, &mut self.pipeline);
        let mut ports = rules.ports.iter();
        let position = ports.position(|known| known.name == port).unwrap();
        pipeline.process_burst(rules, position, frames, 1, &mut out);
        self.handover.exchange(pipeline, rules, 1, &mut out);
        for made in out.made {
            let header = ethernet::Header::parse(&made.bytes).unwrap();
            let request = Arp::parse(&made.bytes[header.length..]).unwrap();
            assert_eq!(request.operation, Operation::Request);
            answers.push(HeapFrame::new(&arp_answer(&request, PEER_MAC, 0)));
        }
        for (position, frames) in out.ports.iter().enumerate() {
            assert!(frames.is_empty() || rules.ports[position].name == "wan");
            for frame in frames {
                *self.seen.entry(shown(frame.data())).or_default() += 1;
            }
        }
    }
}

#[test]
fn no_packet_is_steered_by_parts_of_two_rule_sets() {
    let homes = Homes::new([7; 16], WORKERS);
    let (mut senders, mut threads) = (Vec::new(), Vec::new());
    for (number, handover) in Handover::among(WORKERS).unwrap().into_iter().enumerate() {
        let settings = Settings {
            memory_v4: 4 << 20,
            memory_v6: 1 << 20,
            hash_key: [3; 16],
        };
        let mut pipeline = Pipeline::new(&settings, &Rules::empty()).unwrap();
        pipeline.share(homes, number);
        let (sender, changes) = channel();
        let worker = Worker {
            number,
            pipeline,
            handover,
            rules: Arc::new(Rules::empty()),
            changes,
            seen: BTreeMap::new(),
        };
        senders.push(sender);
        threads.push(thread::spawn(move || worker.run()));
    }
    let mut registry = Registry::default();
    for swap in 0..SWAPS {
        let set = rule_set(VERSIONS[swap % 2], swap as u64 + 1);
        let macs = vec![PORT_MAC; set.ports.len()];
        let rules = Arc::new(compile(&set, &macs, &mut registry).unwrap());
        let number = |port: &contract::Port| {
            ["wan", "vnf", "spare"]
                .iter()
                .position(|name| *name == port.name)
        };
        let ports = set.ports.iter().map(|port| PortWorkers {
            number: number(port).unwrap() as u32,
            workers: vec![0, 1],
        });
        let ports: Vec<_> = ports.collect();
        let (done, all) = channel();
        for sender in &senders {
            sender
                .send((rules.clone(), ports.clone(), done.clone()))
                .unwrap();
            // One goes on by the old rules for a while.
            thread::sleep(Duration::from_micros(300 * (swap as u64 % 7)));
        }
        for _ in &senders {
            all.recv_timeout(Duration::from_secs(60))
                .expect("every worker follows");
        }
        thread::sleep(Duration::from_millis(3));
    }
    drop(senders);
    let mut sum = forwarder::counters::Counters::default();
    let mut seen: BTreeMap<Shown, u64> = BTreeMap::new();
    for thread in threads {
        let (left, counters) = thread.join().unwrap();
        sum.add(&counters);
        for (shown, count) in left {
            *seen.entry(shown).or_default() += count;
        }
    }
    let versions: Vec<Shown> = seen.keys().copied().collect();
    assert_eq!(
        versions, VERSIONS,
        "each packet shows one rule set alone: {seen:?}"
    );
    assert!(seen.values().all(|&count| count > 1_000), "{seen:?}");
    let handed = sum.events().find(|(name, _)| *name == "handed_over");
    assert!(handed.is_some_and(|(_, count)| count > 1_000), "{handed:?}");
    for (reason, count) in sum.drops() {
        // Rings fill while a thread has no processor, and packets wait for a peer that was never asked for.
        let known = ["handover_full", "neighbour_crowded", "neighbour_unresolved"];
        assert!(known.contains(&reason), "{reason}: {count}");
    }
}
