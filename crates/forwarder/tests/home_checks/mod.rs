//! What must hold of several workers for any frames under any rules: the fuzz target `forwarder_homes`, and the replay of its
//! corpus, share this.
//!
//! An input is a platform, a site, and frames. Frames go over the rings that workers have in threads:
//!
//! ```text
//! platform 1 │ site 1 │ port 1 │ worker, burst and segment size 1 │ length 2 │ bytes … │ port 1 │ …
//! ```
//!
//! A frame may wait for others that arrive at the same port and worker, to be of one burst with them.

use crate::pipeline_checks::{port_mac, rule_set};
use flow::{FlowKey, Ipv4Key};
use forwarder::frame::HeapFrame;
use forwarder::handover::{Handover, PortWorkers};
use forwarder::home::Homes;
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::Registry;
use forwarder::rules::{Rules, compile};

const WORKERS: usize = 3;
const KEY: [u8; 16] = *b"who is home here";
/// Rounds until nothing is on its way: a fragment goes to where its packet's fragments meet, and home from there.
const ROUNDS: usize = 4;
const LONGEST: usize = 2_048;

/// Runs an input: what any worker receives comes to its home within a few rounds, and nothing is lost between them.
///
/// # Panics
/// A worker does, or something that must hold does not.
pub fn run(input: &[u8]) {
    let [platform, site, rest @ ..] = input else {
        return;
    };
    let mut workers = Workers::new(usize::from(*platform), usize::from(*site));
    let mut rest = rest;
    while let [port, how, high, low, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let (bytes, after) = after.split_at(length.min(LONGEST).min(after.len()));
        workers.take(usize::from(*port), *how, bytes);
        rest = after;
    }
    workers.process();
    workers.check_homes();
}

struct Workers {
    /// A burst that is not complete: port, worker, frames.
    burst: (usize, usize, Vec<HeapFrame>),
    rules: Rules,
    homes: Homes,
    pipelines: Vec<Pipeline<HeapFrame>>,
    handovers: Vec<Handover<HeapFrame>>,
}

impl Workers {
    fn new(platform: usize, site: usize) -> Workers {
        let set = rule_set(platform, site, 0);
        let macs: Vec<_> = (0..set.ports.len()).map(port_mac).collect();
        let rules = compile(&set, &macs, &mut Registry::default()).expect("rules that hold");
        let settings = Settings {
            memory_v4: 1 << 18,
            memory_v6: 1 << 20,
            hash_key: [3; 16],
        };
        let secret = if platform.is_multiple_of(2) {
            KEY
        } else {
            rules.selection_seed
        };
        let homes = Homes::new(secret, WORKERS);
        let pipelines = (0..WORKERS).map(|number| {
            let none = Rules::empty();
            let mut pipeline = Pipeline::new(&settings, &none).expect("there is memory");
            pipeline.share(homes, number);
            pipeline
                .rules_changed(&none, &rules, 1)
                .expect("there is memory");
            pipeline
        });
        let ports: Vec<PortWorkers> = (0..rules.ports.len() as u32)
            .map(|number| PortWorkers {
                number,
                workers: (0..WORKERS).collect(),
            })
            .collect();
        let pipelines = pipelines.collect();
        let mut handovers = Handover::among(WORKERS).expect("the system has descriptors");
        for handover in &mut handovers {
            handover.rules_changed(&ports);
        }
        Workers {
            burst: (0, 0, Vec::new()),
            rules,
            homes,
            pipelines,
            handovers,
        }
    }

    fn take(&mut self, port: usize, how: u8, bytes: &[u8]) {
        let port = port % (self.rules.ports.len() + 1);
        let (receiver, size) = (usize::from(how) % WORKERS, u16::from(how / 8) * 64);
        let (port_before, receiver_before, _) = self.burst;
        if (port, receiver) != (port_before, receiver_before) {
            self.process();
        }
        (self.burst.0, self.burst.1) = (port, receiver);
        self.burst.2.push(HeapFrame::of_segments(bytes, size));
        let waits = how % 8 >= 4;
        if !waits {
            self.process();
        }
    }

    fn process(&mut self) {
        let (port, receiver, ref mut frames) = self.burst;
        let mut frames = std::mem::take(frames);
        let mut out = Output::default();
        self.pipelines[receiver].process_burst(&self.rules, port, &mut frames, 1, &mut out);
        assert!(frames.is_empty(), "every frame is taken");
        self.hand_over(receiver, out);
        let mut rounds = 0;
        while self.handovers.iter().any(Handover::has_work) {
            rounds += 1;
            assert!(rounds <= ROUNDS, "a frame goes round and round");
            for worker in 0..WORKERS {
                let mut out = Output::default();
                let pipeline = &mut self.pipelines[worker];
                self.handovers[worker].take(pipeline, &self.rules, 1, &mut out);
                self.hand_over(worker, out);
            }
        }
    }

    fn hand_over(&mut self, worker: usize, mut out: Output<HeapFrame>) {
        self.handovers[worker].put(&mut out);
        let counters = &mut self.pipelines[worker].counters;
        self.handovers[worker].flush(counters);
        let mut lost = counters
            .drops()
            .filter(|(name, _)| *name == "handover_full");
        assert!(lost.next().is_none(), "the rings have room");
    }

    /// Every flow entry lies with the worker that its connection is at home with.
    fn check_homes(&mut self) {
        for worker in 0..WORKERS {
            let (v4, v6) = self.pipelines[worker].flows(1);
            for entry in &v4 {
                assert_eq!(self.homes.of(&shown(&entry.key)), worker, "{entry:?}");
            }
            for entry in &v6 {
                let key = &entry.key;
                let tuple = wire::FiveTuple {
                    addresses: wire::Addresses::V6 {
                        source: key.source().octets(),
                        destination: key.destination().octets(),
                    },
                    protocol: key.protocol(),
                    source_port: key.source_port(),
                    destination_port: key.destination_port(),
                };
                assert_eq!(self.homes.of(&tuple), worker, "{entry:?}");
            }
        }
    }
}

fn shown(key: &Ipv4Key) -> wire::FiveTuple {
    wire::FiveTuple {
        addresses: wire::Addresses::V4 {
            source: key.source().octets(),
            destination: key.destination().octets(),
        },
        protocol: key.protocol(),
        source_port: key.source_port(),
        destination_port: key.destination_port(),
    }
}
