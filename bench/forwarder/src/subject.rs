//! The forwarder's pipeline, as a worker calls it: a burst of frames in packet buffers at a time.

use crate::clock::{processor_time, reading_cost};
use crate::frames::{Draw, Writer};
use crate::rows::Bench;
use crate::rules;
use dpdk::{Mbuf, Pool};
pub use flow::BURST;
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::Registry;
use forwarder::rules::{Rules, compile};
use std::time::Duration;
use wire::MacAddress;

/// Bursts made ready before the clock starts: they lie in the second-level cache, as what a device has just written.
pub const BURSTS: usize = 512 / BURST;

/// Frames ready to be received.
pub struct Load {
    bursts: Vec<Vec<Mbuf>>,
    writer: Writer,
    /// What the clock adds to every measurement.
    clock: Duration,
}

impl Load {
    /// Buffers for all bursts.
    pub fn new(pool: &Pool) -> Load {
        let burst = || (0..BURST).map(|_| pool.allocate().expect("the pool is large enough"));
        Load {
            bursts: (0..BURSTS).map(|_| burst().collect()).collect(),
            writer: Writer::new(rules::VNF_EGRESS_MAC, rules::PORT_MAC),
            clock: reading_cost(),
        }
    }

    /// Fills every buffer with the frame of a connection.
    pub fn fill(&mut self, mut connection: impl FnMut() -> u32) {
        for frame in self.bursts.iter_mut().flatten() {
            assert!(frame.set(&self.writer.frame(connection())), "it fits");
        }
    }

    /// Hands every burst to `take`, which leaves what it sends in the second list; returns the time taken.
    #[inline]
    pub fn offer(&mut self, mut take: impl FnMut(&mut Vec<Mbuf>)) -> Duration {
        let start = processor_time();
        for burst in &mut self.bursts {
            take(burst);
        }
        (processor_time() - start).saturating_sub(self.clock)
    }

    /// Frames in all bursts.
    pub fn len(&self) -> usize {
        BURST * BURSTS
    }
}

/// Calls `take` over and over for so long a time of the processor; returns nanoseconds per packet: the median.
pub fn nanoseconds(
    load: &mut Load,
    flows: u32,
    seed: u64,
    round: Duration,
    take: impl FnMut(&mut Vec<Mbuf>),
) -> f64 {
    crate::clock::median(samples(load, flows, seed, round, take))
}

/// The same, but all that was measured, each of as many packets: what is rare has its part in the mean only.
pub fn samples(
    load: &mut Load,
    flows: u32,
    seed: u64,
    round: Duration,
    mut take: impl FnMut(&mut Vec<Mbuf>),
) -> Vec<f64> {
    let mut draw = Draw::new(seed);
    let (mut spent, mut each) = (Duration::ZERO, Vec::new());
    while spent < round {
        load.fill(|| draw.below(flows));
        let took = load.offer(&mut take);
        spent += took;
        each.push(took.as_secs_f64() * 1e9 / load.len() as f64);
    }
    each
}

/// A forwarder.
pub struct Subject {
    /// Its rules.
    pub rules: Rules,
    /// Its state.
    pub pipeline: Pipeline<Mbuf>,
    out: Output<Mbuf>,
    pool: Pool,
    /// The forwarder's clock, in seconds.
    now: u32,
}

/// How often connections send in the minute that they are left for, and how many seconds they are silent in between: fewer than
/// their entries would stay for.
const REFRESHED: (u32, u32) = (3, 20);

impl Subject {
    /// One that knows its peer's address and has room for so many connections.
    pub fn new(bench: &Bench, memory: usize) -> Subject {
        let set = rules::set();
        let macs: Vec<MacAddress> = set.ports.iter().map(|_| rules::PORT_MAC).collect();
        let rules = compile(&set, &macs, &mut Registry::default()).expect("the rules are right");
        let settings = Settings {
            memory_v4: memory,
            memory_v6: 1 << 20,
            hash_key: [5; 16],
        };
        let mut pipeline = Pipeline::new(&settings, &rules).expect("there is memory");
        pipeline
            .rules_changed(&Rules::empty(), &rules, 0)
            .expect("there is memory");
        pipeline.bring_ahead(&bench.ahead);
        let mut subject = Subject {
            rules,
            pipeline,
            out: Output::default(),
            pool: bench.pool,
            now: 0,
        };
        subject.learn_peer();
        subject
    }

    /// Sends one packet, which has the forwarder ask for its peer, and answers.
    fn learn_peer(&mut self) {
        let frame = |bytes: &[u8]| {
            let mut mbuf = self.pool.allocate().expect("the pool is large enough");
            assert!(mbuf.set(bytes), "it fits");
            vec![mbuf]
        };
        let writer = Writer::new(rules::VNF_EGRESS_MAC, rules::PORT_MAC);
        let (mut first, mut answer) = (frame(&writer.frame(0)), frame(&rules::peer_answer()));
        for (port, burst) in [
            (rules::VNF_PORT, &mut first),
            (rules::WAN_PORT, &mut answer),
        ] {
            self.pipeline
                .process_burst(&self.rules, port, burst, 0, &mut self.out);
        }
        self.out = Output::default();
    }

    /// Processes a burst; what is sent is in `burst` afterwards.
    #[inline]
    pub fn take(&mut self, burst: &mut Vec<Mbuf>) {
        let count = burst.len();
        self.pipeline
            .process_burst(&self.rules, rules::VNF_PORT, burst, self.now, &mut self.out);
        burst.append(&mut self.out.ports[rules::WAN_PORT]);
        assert_eq!(burst.len(), count, "every packet is sent");
    }

    /// Lets a minute of the forwarder's clock pass, in which it does what it does besides packets; the first `flows` connections, which are open,
    /// stay so. A forwarder in use is in the state that this leaves.
    pub fn live(&mut self, load: &mut Load, flows: u32) {
        let (times, seconds) = REFRESHED;
        for _ in 0..times {
            for _ in 0..seconds {
                self.keep_house();
            }
            self.open(load, 0, flows);
        }
    }

    /// Does what is due in the next second besides packets, ageing, settling and counting of entries, in the steps that go between bursts;
    /// returns what share of the second that takes, in percent.
    pub fn keep_house(&mut self) -> f64 {
        self.now += 1;
        let start = processor_time();
        while self
            .pipeline
            .tick(&self.rules, self.now, false, &mut self.out)
        {}
        100.0 * (processor_time() - start).as_secs_f64()
    }

    /// Lets connections of consecutive numbers send their first packets; returns how long the pipeline took.
    pub fn open(&mut self, load: &mut Load, first: u32, count: u32) -> Duration {
        let (mut next, mut spent) = (first, Duration::ZERO);
        while next < first + count {
            load.fill(|| {
                next += 1;
                next - 1
            });
            spent += load.offer(|burst| self.take(burst));
        }
        spent
    }
}
