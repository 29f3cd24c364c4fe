//! Several workers of one forwarder, one step after the other: what they hand over goes through the rings they have in threads.

use crate::network::{Service, settings};
use crate::random::Draw;
use flow::{FlowEntry, Ipv4Key, Ipv6Key};
use forwarder::counters::Counters;
use forwarder::exchange::Import;
use forwarder::frame::HeapFrame;
use forwarder::handover::{Handover, PortWorkers};
use forwarder::home::Homes;
use forwarder::pipeline::{Output, Pipeline};
use forwarder::rules::Rules;

/// Key of the homes of every team.
const KEY: [u8; 16] = *b"who is home here";

/// The workers.
pub struct Team {
    pub pipelines: Vec<Pipeline<HeapFrame>>,
    handovers: Vec<Handover<HeapFrame>>,
    homes: Homes,
    draw: Draw,
}

impl Team {
    /// So many workers without rules; `seed` decides which of them receive what.
    pub fn new(workers: usize, seed: u64) -> Team {
        let homes = Homes::new(KEY, workers);
        let share = settings().of_one(workers);
        let pipeline = |number| {
            let mut pipeline = Pipeline::new(&share, &Rules::empty()).unwrap();
            pipeline.share(homes, number);
            pipeline
        };
        Team {
            pipelines: (0..workers).map(pipeline).collect(),
            handovers: Handover::among(workers).unwrap(),
            homes,
            draw: Draw(seed),
        }
    }

    pub fn rules_changed(&mut self, old: &Rules, new: &Rules, now: u32) {
        let all: Vec<usize> = (0..self.pipelines.len()).collect();
        // A port's number is its name's, whatever its position.
        let number = |name: &str| {
            name.bytes()
                .fold(7, |sum, byte| (sum * 31 + u32::from(byte)) % 60_000)
        };
        let ports: Vec<PortWorkers> = new
            .ports
            .iter()
            .map(|port| PortWorkers {
                number: number(&port.name),
                workers: all.clone(),
            })
            .collect();
        for (pipeline, handover) in self.pipelines.iter_mut().zip(&mut self.handovers) {
            pipeline.rules_changed(old, new, now).unwrap();
            handover.rules_changed(&ports);
        }
    }

    /// Lets some worker receive frames, and all workers work until nothing is on its way among them.
    pub fn receive(
        &mut self,
        rules: &Rules,
        port: usize,
        frames: Vec<HeapFrame>,
        service: Service,
        now: u32,
    ) -> Output<HeapFrame> {
        let mut all = Output::default();
        let bursts: Vec<Vec<HeapFrame>> = match service {
            Service::Bursts => vec![frames],
            _ => frames.into_iter().map(|frame| vec![frame]).collect(),
        };
        for mut burst in bursts {
            let receiver = self.draw.below(self.pipelines.len());
            let mut out = Output::default();
            let pipeline = &mut self.pipelines[receiver];
            if pipeline.follows_probe() {
                pipeline.follow_probes(rules, port, &mut burst, false, now, &mut out);
            }
            pipeline.process_burst(rules, port, &mut burst, now, &mut out);
            assert!(burst.is_empty(), "every frame is taken");
            self.finish(receiver, out, &mut all);
            self.settle(rules, now, &mut all);
        }
        all
    }

    fn settle(&mut self, rules: &Rules, now: u32, all: &mut Output<HeapFrame>) {
        while self.handovers.iter().any(Handover::has_work) {
            for worker in 0..self.pipelines.len() {
                let mut out = Output::default();
                let pipeline = &mut self.pipelines[worker];
                self.handovers[worker].take(pipeline, rules, now, &mut out);
                self.finish(worker, out, all);
            }
        }
    }

    /// Hands over what is others', and adds what leaves to what left before.
    fn finish(&mut self, worker: usize, mut out: Output<HeapFrame>, all: &mut Output<HeapFrame>) {
        self.handovers[worker].put(&mut out);
        self.handovers[worker].flush(&mut self.pipelines[worker].counters);
        out.merge(|bytes| Some(HeapFrame::new(bytes)));
        for (port, frames) in out.ports.into_iter().enumerate() {
            for frame in frames {
                all.send(port, frame);
            }
        }
    }

    pub fn tick(&mut self, rules: &Rules, now: u32) -> Output<HeapFrame> {
        let mut all = Output::default();
        for worker in 0..self.pipelines.len() {
            let mut out = Output::default();
            while self.pipelines[worker].tick(rules, now, true, &mut out) {}
            self.finish(worker, out, &mut all);
        }
        all
    }

    /// Gives each worker the entries of a sibling that are at home with it.
    pub fn import(&mut self, rules: &Rules, entries: &[Import], now: u32) {
        for import in entries {
            let home = self.homes.of(&import.entry.tuple());
            self.pipelines[home].import(rules, std::slice::from_ref(import), now);
        }
    }

    /// What all workers counted.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for pipeline in &self.pipelines {
            sum.add(&pipeline.counters);
        }
        sum
    }

    /// All flow entries, each of which lies where its connection is at home.
    pub fn flows(&mut self, now: u32) -> (Vec<FlowEntry<Ipv4Key>>, Vec<FlowEntry<Ipv6Key>>) {
        let (mut all_v4, mut all_v6) = (Vec::new(), Vec::new());
        for (worker, pipeline) in self.pipelines.iter_mut().enumerate() {
            let (v4, v6) = pipeline.flows(now);
            for entry in &v4 {
                assert_eq!(self.homes.of(&shown_v4(&entry.key)), worker, "{entry:?}");
            }
            for entry in &v6 {
                assert_eq!(self.homes.of(&shown_v6(&entry.key)), worker, "{entry:?}");
            }
            all_v4.extend(v4);
            all_v6.extend(v6);
        }
        (all_v4, all_v6)
    }
}

fn shown_v4(key: &Ipv4Key) -> wire::FiveTuple {
    use flow::FlowKey;
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

fn shown_v6(key: &Ipv6Key) -> wire::FiveTuple {
    use flow::FlowKey;
    wire::FiveTuple {
        addresses: wire::Addresses::V6 {
            source: key.source().octets(),
            destination: key.destination().octets(),
        },
        protocol: key.protocol(),
        source_port: key.source_port(),
        destination_port: key.destination_port(),
    }
}
