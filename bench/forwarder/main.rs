//! Speed of the whole pipeline on one core: parse, look up, rewrite, encapsulate.
//!
//! A packet of 64 bytes comes out of a VNF's interface, is told apart by its MAC address, found in the flow table, and
//! leaves in a tunnel: Ethernet, IPv4, UDP, VXLAN, Ethernet and two labels in front of it. Connections are drawn uniformly.
//! Writing the frame is part of what is measured, and measured alone too. Ports are not: frames stay in memory. Rates are
//! packets per second of the core's time; caches and memory are shared with whatever else runs, so the load is told too.

mod frames;
mod rules;

use flow::{Direction, Hops, Ipv4Key};
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::Registry;
use forwarder::rules::{Rules, compile};
use frames::{BenchFrame, Generator};
use std::hint::black_box;
use std::time::Duration;
use wire::MacAddress;

const BURST: usize = 64;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(600);

/// Time that this thread has had a core: others on the machine do not count.
struct CoreTime(u64);

impl CoreTime {
    fn now() -> CoreTime {
        CoreTime(Self::nanoseconds())
    }

    fn nanoseconds() -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat")
            .expect("the kernel counts threads' time");
        let first = text
            .split(' ')
            .next()
            .and_then(|number| number.parse().ok());
        first.expect("nanoseconds come first")
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(Self::nanoseconds() - self.0)
    }
}

struct Subject {
    rules: Rules,
    pipeline: Pipeline<BenchFrame>,
    port: usize,
}

impl Subject {
    /// A forwarder that knows its peer's address and has entries for `flows` connections.
    fn new(flows: u32) -> Subject {
        let set = rules::set();
        let macs: Vec<MacAddress> = (0..set.ports.len())
            .map(|i| MacAddress([2, 0, 0, 0, 0, i as u8]))
            .collect();
        let mut registry = Registry::default();
        let rules = compile(&set, &macs, &mut registry).expect("the rules are right");
        let settings = Settings {
            memory_v4: 64 * flows as usize + (64 << 20),
            memory_v6: 1 << 20,
            hash_key: [5; 16],
        };
        let mut pipeline = Pipeline::new(&settings, &rules).expect("there is memory");
        pipeline
            .rules_changed(&Rules::empty(), &rules, 0)
            .expect("there is memory");
        let port = 1;
        let mut subject = Subject {
            rules,
            pipeline,
            port,
        };
        subject.open(flows);
        subject
    }

    /// Lets every connection send a packet, so that each has an entry and the peer is known.
    fn open(&mut self, flows: u32) {
        let mut pool = frames::pool(BURST);
        let mut out = Output::default();
        for first in (0..flows).step_by(BURST) {
            let mut burst = std::mem::take(&mut pool);
            for (i, frame) in burst.iter_mut().enumerate() {
                frames::write(frame, (first + i as u32) % flows);
            }
            self.pipeline
                .process_burst(&self.rules, self.port, &mut burst, 0, &mut out);
            if !out.made.is_empty() {
                out.made.clear();
                let mut answer = vec![rules::peer_answer()];
                self.pipeline
                    .process_burst(&self.rules, 0, &mut answer, 0, &mut out);
            }
            for list in &mut out.ports {
                list.clear();
            }
            pool = frames::pool(BURST);
        }
    }

    /// Packets a second, in millions.
    fn rate(&mut self, generator: &mut Generator) -> f64 {
        let mut burst = frames::pool(BURST);
        let mut out = Output::default();
        let start = CoreTime::now();
        let mut packets = 0u64;
        while start.elapsed() < ROUND {
            for _ in 0..512 {
                for frame in &mut burst {
                    generator.next(frame);
                }
                self.pipeline
                    .process_burst(&self.rules, self.port, &mut burst, 0, &mut out);
                for list in &mut out.ports {
                    packets += list.len() as u64;
                    black_box(&mut *list);
                    burst.append(list);
                }
                assert_eq!(burst.len(), BURST, "every packet is sent");
            }
        }
        packets as f64 / start.elapsed().as_secs_f64() / 1e6
    }
}

/// Frames written a second, in millions: the share of the generator.
fn generator_rate(generator: &mut Generator) -> f64 {
    let mut burst = frames::pool(BURST);
    let start = CoreTime::now();
    let mut packets = 0u64;
    while start.elapsed() < ROUND {
        for _ in 0..512 {
            for frame in &mut burst {
                generator.next(frame);
                black_box(&mut *frame);
            }
            packets += BURST as u64;
        }
    }
    packets as f64 / start.elapsed().as_secs_f64() / 1e6
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_string()
}

/// New connections a second, in millions, that a table of so many takes in.
fn insert_rate(flows: u32) -> f64 {
    let config = flow::Config::new(64 * flows as usize + (64 << 20), [5; 16]);
    let mut table = flow::Ipv4Table::new(&config).expect("there is memory");
    let hops = Hops::default();
    let start = CoreTime::now();
    for i in 0..flows {
        let key = Ipv4Key::new(1, i, 1, 17, 1, 1);
        let _ = black_box(table.insert(&key, hops, 0, Direction::Forward, 0));
    }
    f64::from(flows) / start.elapsed().as_secs_f64() / 1e6
}

fn main() {
    // `cargo test --benches` only wants to know that it runs.
    let quick = !std::env::args().any(|argument| argument == "--bench");
    let largest = std::env::var("SWITCHBOARD_BENCH_FLOWS")
        .ok()
        .and_then(|text| text.parse().ok());
    let sizes: Vec<u32> = if quick {
        vec![1000]
    } else {
        vec![1, 1000, 512_000, largest.unwrap_or(4_000_000)]
    };
    let rounds = if quick { 1 } else { ROUNDS };
    println!("{{\n  \"load_before\": {},", load());
    for flows in sizes {
        let mut subject = Subject::new(flows);
        let mut generator = Generator::new(flows);
        let alone = median(
            (0..rounds)
                .map(|_| generator_rate(&mut generator))
                .collect(),
        );
        let rate = median((0..rounds).map(|_| subject.rate(&mut generator)).collect());
        let pipeline = 1000.0 / rate - 1000.0 / alone;
        println!(
            "  \"mpps_{flows}\": {rate:.2}, \"ns_{flows}\": {pipeline:.1}, \"generator_ns_{flows}\": {:.1},",
            1000.0 / alone
        );
    }
    let inserts = median((0..rounds).map(|_| insert_rate(1_000_000)).collect());
    println!(
        "  \"table_inserts_1m_per_us\": {inserts:.2},\n  \"load_after\": {}\n}}",
        load()
    );
}
