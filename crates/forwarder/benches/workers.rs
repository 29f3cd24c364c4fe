//! Two workers against one: `cargo bench -p switchboard-forwarder --bench workers`.
//!
//! Frames of 64 bytes out of a VNF's interface go into a tunnel, 64 at a time, of connections drawn uniformly; they lie in
//! packet buffers that were written just before. Each worker has a processor. Two workers are measured twice: with every
//! frame arriving where its connection is at home, as no card can see to, and with frames arriving anywhere, so that half of
//! them are handed over. Time is each thread's processor time in the forwarder's code,
//! rings included; making frames does not count. Rates are medians of rounds in turns.

#[allow(dead_code, reason = "only one of the rule sets is used")]
#[path = "../../../bench/forwarder/src/frames.rs"]
mod frames;
#[allow(dead_code, reason = "only one of the rule sets is used")]
#[path = "../../../bench/forwarder/src/rules.rs"]
mod rules;

use dpdk::{Environment, Mbuf, Pool};
use forwarder::counters::Drop;
use forwarder::handover::{Handover, PortWorkers};
use forwarder::home::Homes;
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::Registry;
use forwarder::rules::{Rules, compile};
use frames::{Draw, Writer};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use rules::{PORT_MAC, VNF_EGRESS_MAC, VNF_PORT, WAN_PORT};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};
use wire::IpPacket;

const KEY: [u8; 16] = *b"who is home here";
const SIZES: [u32; 2] = [1_000, 512_000];
const ROUNDS: u64 = 9;
const ROUND: Duration = Duration::from_millis(250);
/// Frames processed together, and bursts made ready before the clock starts.
const BURST: usize = 64;
const BURSTS: usize = 8;
/// Buffers a worker keeps for its next frames.
const KEPT: usize = 4 * BURST * BURSTS;

/// Which frames arrive at a worker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrive {
    AtHome,
    Anywhere,
}

struct Worker {
    pipeline: Pipeline<Mbuf>,
    handover: Option<Handover<Mbuf>>,
    /// Connections that are at home here.
    own: Vec<u32>,
    /// Buffers for frames to come.
    spare: Vec<Mbuf>,
    out: Output<Mbuf>,
}

struct Bench {
    pool: Pool,
    rules: Rules,
    writer: Writer,
    cores: Vec<usize>,
}

impl Bench {
    fn new() -> Result<Bench, String> {
        let allowed = sched_getaffinity(Pid::this()).map_err(|error| error.to_string())?;
        let cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core) == Ok(true));
        let cores: Vec<usize> = cores.collect();
        if cores.len() < 2 {
            return Err("two workers need two processors".into());
        }
        let core = cores[0].to_string();
        let words = [
            "--no-huge",
            "--no-shconf",
            "--no-telemetry",
            "--no-pci",
            "--log-level=error",
        ];
        let words = words
            .into_iter()
            .chain(["-m", "128", "-l", &core])
            .map(String::from);
        let words: Vec<String> = words.collect();
        let environment = Environment::start(&words).map_err(|error| error.to_string())?;
        let pool = Pool::new(&environment, "packets", 16_383, 2048 + 128).ok_or("no memory")?;
        let set = rules::set();
        let macs = vec![PORT_MAC; set.ports.len()];
        let rules =
            compile(&set, &macs, &mut Registry::default()).map_err(|error| error.to_string())?;
        Ok(Bench {
            pool,
            rules,
            writer: Writer::new(VNF_EGRESS_MAC, PORT_MAC),
            cores,
        })
    }

    fn frame(&self, bytes: &[u8]) -> Mbuf {
        let mut frame = self.pool.allocate().expect("the pool is large enough");
        assert!(frame.set(bytes), "it fits");
        frame
    }

    /// So many workers that know their peer, and have seen every connection.
    fn workers(&self, count: usize, flows: u32) -> Vec<Worker> {
        let homes = Homes::new(KEY, count);
        let mut handovers: Vec<Option<Handover<Mbuf>>> = match count {
            1 => vec![None],
            _ => {
                let all = Handover::among(count).expect("there are descriptors");
                all.into_iter().map(Some).collect()
            }
        };
        let mut own = vec![Vec::new(); count];
        for connection in 0..flows {
            let frame = self.writer.frame(connection);
            let packet = IpPacket::parse(&frame[14..]).expect("a packet of ours");
            own[homes.of(&packet.tuple)].push(connection);
        }
        let ports: Vec<PortWorkers> = (0..self.rules.ports.len() as u32)
            .map(|number| PortWorkers {
                number,
                workers: (0..count).collect(),
            })
            .collect();
        let workers = handovers.drain(..).zip(own).enumerate();
        let workers = workers.map(|(number, (mut handover, own))| {
            let settings = Settings {
                memory_v4: (256 << 20) / count,
                memory_v6: 1 << 20,
                hash_key: [5; 16],
            };
            let mut pipeline = Pipeline::new(&settings, &self.rules).expect("there is memory");
            pipeline
                .rules_changed(&Rules::empty(), &self.rules, 0)
                .expect("there is memory");
            pipeline.share(homes, number);
            if let Some(handover) = &mut handover {
                handover.rules_changed(&ports);
            }
            let mut worker = Worker {
                pipeline,
                handover,
                own,
                spare: Vec::new(),
                out: Output::default(),
            };
            self.open(&mut worker);
            worker
        });
        workers.collect()
    }

    /// Has a worker learn its peer's address, and lets its connections send their first packets.
    fn open(&self, worker: &mut Worker) {
        let first = self.writer.frame(worker.own[0]);
        for (port, bytes) in [(VNF_PORT, first.to_vec()), (WAN_PORT, rules::peer_answer())] {
            let mut burst = vec![self.frame(&bytes)];
            worker
                .pipeline
                .process_handed(&self.rules, port, &mut burst, 0, &mut worker.out);
        }
        worker.out = Output::default();
        for connections in worker.own.chunks(BURST) {
            let frames = connections
                .iter()
                .map(|&connection| self.frame(&self.writer.frame(connection)));
            let mut burst = frames.collect();
            worker
                .pipeline
                .process_burst(&self.rules, VNF_PORT, &mut burst, 0, &mut worker.out);
            assert_eq!(
                worker.out.ports[WAN_PORT].len(),
                connections.len(),
                "all are at home"
            );
            worker.out.ports[WAN_PORT].clear();
        }
    }

    /// Packets a second, in millions, that workers together send.
    fn rate(&self, workers: &mut [Worker], flows: u32, arrive: Arrive, seed: u64) -> f64 {
        let together = Barrier::new(workers.len());
        thread::scope(|scope| {
            let threads = workers.iter_mut().enumerate().map(|(number, worker)| {
                let (together, core) = (&together, self.cores[number]);
                scope.spawn(move || {
                    let mut set = CpuSet::new();
                    set.set(core).expect("the core exists");
                    sched_setaffinity(Pid::from_raw(0), &set).expect("the core is ours");
                    let draw = Draw::new(seed * 7 + number as u64);
                    together.wait();
                    self.work(worker, flows, arrive, draw)
                })
            });
            let threads: Vec<_> = threads.collect();
            let rates = threads
                .into_iter()
                .map(|thread| thread.join().expect("it works"));
            rates.sum()
        })
    }

    fn work(&self, worker: &mut Worker, flows: u32, arrive: Arrive, mut draw: Draw) -> f64 {
        let (mut sent, mut spent) = (0, Duration::ZERO);
        let mut bursts: Vec<Vec<Mbuf>> = (0..BURSTS).map(|_| Vec::with_capacity(BURST)).collect();
        let until = Instant::now() + ROUND;
        while Instant::now() < until {
            for burst in &mut bursts {
                for _ in 0..BURST {
                    let connection = match arrive {
                        Arrive::AtHome => worker.own[draw.below(worker.own.len() as u32) as usize],
                        Arrive::Anywhere => draw.below(flows),
                    };
                    let bytes = self.writer.frame(connection);
                    burst.push(match worker.spare.pop() {
                        Some(mut frame) => {
                            assert!(frame.set(&bytes), "it fits");
                            frame
                        }
                        None => self.frame(&bytes),
                    });
                }
            }
            let start = processor_time();
            for burst in &mut bursts {
                let (pipeline, out) = (&mut worker.pipeline, &mut worker.out);
                pipeline.process_burst(&self.rules, VNF_PORT, burst, 0, out);
                if let Some(handover) = &mut worker.handover {
                    handover.exchange(pipeline, &self.rules, 0, out);
                }
            }
            spent += processor_time() - start;
            let leaving = &mut worker.out.ports[WAN_PORT];
            sent += leaving.len();
            worker.spare.append(leaving);
            worker.spare.truncate(KEPT);
        }
        sent as f64 / spent.as_secs_f64() / 1e6
    }
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("the clock exists")
        .into()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), String> {
    let bench = Bench::new()?;
    println!(
        "connections  one worker  two, all at home  two, arriving anywhere  (Mpps)  dropped at full rings"
    );
    for flows in SIZES {
        let (mut one, mut two) = (bench.workers(1, flows), bench.workers(2, flows));
        let (mut alone, mut at_home, mut anywhere) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 0..ROUNDS {
            alone.push(bench.rate(&mut one, flows, Arrive::Anywhere, seed));
            at_home.push(bench.rate(&mut two, flows, Arrive::AtHome, seed));
            anywhere.push(bench.rate(&mut two, flows, Arrive::Anywhere, seed));
        }
        let full = two
            .iter()
            .flat_map(|worker| worker.pipeline.counters.drops());
        let full: u64 = full
            .filter(|(name, _)| *name == Drop::HandoverFull.name())
            .map(|(_, count)| count)
            .sum();
        let (alone, at_home, anywhere) = (median(alone), median(at_home), median(anywhere));
        println!(
            "{flows:11} {alone:11.1} {at_home:10.1} ({:.2}x) {anywhere:15.1} ({:.2}x) {full:30}",
            at_home / alone,
            anywhere / alone,
        );
    }
    Ok(())
}
