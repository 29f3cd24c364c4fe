//! Two workers against one, each with a processor.
//!
//! Frames of 64 bytes out of a VNF's interface go into a tunnel, a burst at a time, of connections drawn uniformly; they lie in
//! packet buffers that were written just before. Two workers are measured twice: with every frame arriving where its connection is
//! at home, as ports that know homes deal them out ([`forwarder::dealing`]), and with frames arriving anywhere, as from ports that
//! do not, so that half of them are handed over. Time is each thread's processor time in the
//! forwarder's code, rings included; making frames does not count. Rates are those of the middle stretch of 512 frames, and of these the
//! medians of rounds in turns.

use super::{Bench, stay_on};
use crate::DATA_ROOM;
use crate::clock::{median, processor_time, reading_cost};
use crate::frames::{Draw, Writer};
use crate::results::{Better, Results};
use crate::rules::{self, PORT_MAC, VNF_EGRESS_MAC, VNF_PORT, WAN_PORT};
use crate::subject::{BURST, BURSTS};
use contracts::forwarder as contract;
use dpdk::{Mbuf, Pool};
use forwarder::counters::Drop;
use forwarder::handover::{Handover, PortWorkers};
use forwarder::home::Homes;
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::Registry;
use forwarder::rules::{Rules, compile};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Barrier};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};
use wire::IpPacket;

/// The platform's secret: homes are made of it, and so are outer source ports.
const KEY: [u8; 16] = *b"who is home here";
/// Connections, and what is behind the names of their figures.
const SIZES: [(u32, &str); 2] = [(1_000, ""), (512_000, "_512k")];
/// Rounds for each repetition of other rows: they are many because not all count.
const ROUNDS: u64 = 4;
/// Part of the best rate by which a processor counts as whole.
const WHOLE: f64 = 0.95;
/// Buffers a worker keeps for its next frames.
const KEPT: usize = 3 * BURST * BURSTS;
/// Buffers there are for each worker: the other may keep some of them, and some wait in rings.
const BUFFERS: u32 = 4_095;

/// Which frames arrive at a worker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrive {
    AtHome,
    Anywhere,
}

/// What a worker is made of.
struct Place {
    homes: Homes,
    number: usize,
    handover: Option<Handover<Mbuf>>,
    /// Connections that are at home here.
    own: Vec<u32>,
    pool: Pool,
}

struct Worker {
    pipeline: Pipeline<Mbuf>,
    /// What it makes frames in.
    pool: Pool,
    handover: Option<Handover<Mbuf>>,
    /// Connections that are at home here.
    own: Vec<u32>,
    /// Buffers for frames to come.
    spare: Vec<Mbuf>,
    out: Output<Mbuf>,
}

impl Worker {
    /// Frames that found the ring to the other worker full.
    fn full(&self) -> u64 {
        let drops = self.pipeline.counters.drops();
        let full = drops.filter(|(name, _)| *name == Drop::HandoverFull.name());
        full.map(|(_, count)| count).sum()
    }
}

/// A round of a worker.
struct Order {
    /// They begin at once.
    together: Arc<Barrier>,
    arrive: Arrive,
    draw: Draw,
}

/// The way to a worker in its thread, which ends with it.
struct Commands {
    order: Sender<Order>,
    /// Its rate in a round, and [`Worker::full`].
    results: Receiver<(f64, u64)>,
}

/// Packets a second, in millions, that workers together send in a round, and [`Worker::full`] of all.
fn rate(workers: &[Commands], arrive: Arrive, seed: u64) -> (f64, u64) {
    let together = Arc::new(Barrier::new(workers.len()));
    for (number, worker) in workers.iter().enumerate() {
        let order = Order {
            together: together.clone(),
            arrive,
            draw: Draw::new(seed * 7 + number as u64),
        };
        worker.order.send(order).expect("it waits for orders");
    }
    let results = workers
        .iter()
        .map(|worker| worker.results.recv().expect("it works"));
    results.fold((0.0, 0), |(rate, full), one| (rate + one.0, full + one.1))
}

/// What all workers are measured with.
struct Team {
    /// Of workers: each has one of its own, as in the product.
    pools: [Pool; 6],
    rules: Rules,
    writer: Writer,
    cores: [usize; 2],
    round: Duration,
    /// What the clock adds to every stretch.
    clock: Duration,
}

impl Team {
    fn new(bench: &Bench) -> Team {
        let set = contract::RuleSet {
            selection_seed: KEY.to_vec(),
            ..rules::set()
        };
        let macs = vec![PORT_MAC; set.ports.len()];
        Team {
            pools: std::array::from_fn(|number| {
                let name = format!("two-cores-{number}");
                Pool::new(&bench.environment, &name, BUFFERS, DATA_ROOM, 2)
                    .expect("there is memory")
            }),
            rules: compile(&set, &macs, &mut Registry::default()).expect("the rules are right"),
            writer: Writer::new(VNF_EGRESS_MAC, PORT_MAC),
            cores: [bench.core, bench.other_core],
            round: bench.round / 2,
            clock: reading_cost(),
        }
    }

    /// What workers with such pools are made of that know each other.
    fn places(&self, pools: &[Pool], flows: u32) -> Vec<Place> {
        let count = pools.len();
        let homes = Homes::new(KEY, count);
        let handovers: Vec<Option<Handover<Mbuf>>> = match count {
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
        let places = handovers.into_iter().zip(own).zip(pools).enumerate();
        let places = places.map(|(number, ((handover, own), &pool))| Place {
            homes,
            number,
            handover,
            own,
            pool,
        });
        places.collect()
    }

    /// A worker that knows its peer, and has seen every connection.
    fn worker(&self, place: Place) -> Worker {
        let Place {
            homes,
            number,
            mut handover,
            own,
            pool,
        } = place;
        let settings = Settings {
            memory_v4: (256 << 20) / homes.workers(),
            memory_v6: 1 << 20,
            hash_key: [5; 16],
        };
        let mut pipeline = Pipeline::new(&settings, &self.rules).expect("there is memory");
        pipeline
            .rules_changed(&Rules::empty(), &self.rules, 0)
            .expect("there is memory");
        pipeline.share(homes, number);
        if let Some(handover) = &mut handover {
            let ports = (0..self.rules.ports.len() as u32).map(|number| PortWorkers {
                number,
                workers: (0..homes.workers()).collect(),
            });
            handover.rules_changed(&ports.collect::<Vec<_>>());
        }
        let mut worker = Worker {
            pipeline,
            pool,
            handover,
            own,
            spare: Vec::new(),
            out: Output::default(),
        };
        self.open(&mut worker);
        worker
    }

    /// Has a worker learn its peer's address, and lets its connections send their first packets.
    fn open(&self, worker: &mut Worker) {
        let first = self.writer.frame(worker.own[0]);
        for (port, bytes) in [(VNF_PORT, first.to_vec()), (WAN_PORT, rules::peer_answer())] {
            let mut burst = vec![frame(worker.pool, &bytes)];
            worker
                .pipeline
                .process_handed(&self.rules, port, &mut burst, 0, &mut worker.out);
        }
        worker.out = Output::default();
        for connections in worker.own.chunks(BURST) {
            let frames = connections
                .iter()
                .map(|&connection| frame(worker.pool, &self.writer.frame(connection)));
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

    /// Starts the workers, each in a thread with its own processor, where it stays: what one thread makes for two workers may share a line
    /// of the cache.
    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        places: Vec<Place>,
        flows: u32,
    ) -> Vec<Commands> {
        let places = places.into_iter().zip(self.cores);
        let commands = places.map(|(place, core)| {
            let (order, orders) = mpsc::channel::<Order>();
            let (done, results) = mpsc::channel();
            scope.spawn(move || {
                stay_on(core);
                let mut worker = self.worker(place);
                done.send((0.0, 0)).expect("somebody waits");
                for Order {
                    together,
                    arrive,
                    draw,
                } in orders
                {
                    together.wait();
                    let rate = self.work(&mut worker, flows, arrive, draw);
                    done.send((rate, worker.full())).expect("somebody asked");
                }
            });
            // One after the other: they share the processor until they are bound.
            results.recv().expect("it is ready");
            Commands { order, results }
        });
        commands.collect()
    }

    fn work(&self, worker: &mut Worker, flows: u32, arrive: Arrive, mut draw: Draw) -> f64 {
        let mut stretches = Vec::new();
        let mut bursts: Vec<Vec<Mbuf>> = (0..BURSTS).map(|_| Vec::with_capacity(BURST)).collect();
        let until = Instant::now() + self.round;
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
                        None => frame(worker.pool, &bytes),
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
            let spent = (processor_time() - start).saturating_sub(self.clock);
            let leaving = &mut worker.out.ports[WAN_PORT];
            stretches.push(leaving.len() as f64 / spent.as_secs_f64() / 1e6);
            worker.spare.append(leaving);
            worker.spare.truncate(KEPT);
        }
        median(stretches)
    }
}

/// A frame in a buffer of a pool.
fn frame(pool: Pool, bytes: &[u8]) -> Mbuf {
    let mut frame = pool.allocate().expect("the pool is large enough");
    assert!(frame.set(bytes), "it fits");
    frame
}

/// Measures both sizes.
pub fn measure(bench: &Bench, results: &mut Results) {
    if bench.core == bench.other_core {
        results.leave_out("two_cores", "two workers need two processors");
        return;
    }
    let team = Team::new(bench);
    for (flows, label) in SIZES {
        measure_size(bench, &team, flows, label, results);
    }
}

/// Packets a second of two workers alone, in millions, with all frames at home or half of them handed over: for a profiler.
pub fn profile(bench: &Bench, flows: u32, round: Duration, at_home: bool) -> f64 {
    let team = Team {
        round,
        ..Team::new(bench)
    };
    let arrive = match at_home {
        true => Arrive::AtHome,
        false => Arrive::Anywhere,
    };
    thread::scope(|scope| {
        let workers = team.start(scope, team.places(&team.pools[..2], flows), flows);
        let rates = (0..5).map(|seed| rate(&workers, arrive, seed).0);
        median(rates.collect())
    })
}

/// Rates of one round, in millions of packets a second.
struct Round {
    alone: f64,
    /// Two workers of two forwarders, each of which has all connections to itself: what the machine gives.
    apart: f64,
    at_home: f64,
    anywhere: f64,
}

impl Round {
    /// Whether the machine had two whole processors for it, by the best rate of one worker. A virtual machine's two may share one
    /// core of the host for a while; what then takes longer is not the forwarder.
    fn is_whole(&self, best: f64) -> bool {
        self.alone >= WHOLE * best && self.apart >= 2.0 * WHOLE * best
    }
}

fn measure_size(bench: &Bench, team: &Team, flows: u32, label: &str, results: &mut Results) {
    let (rounds, full) = thread::scope(|scope| {
        let places = |pools: &[Pool]| team.places(pools, flows);
        // Those that hand frames over are others: it mixes the buffers of both, which then lie in no order.
        let (two, others) = team.pools.split_at(2);
        let (mixed, apart) = others.split_at(2);
        let two = team.start(scope, places(two), flows);
        let mixed = team.start(scope, places(mixed), flows);
        let apart = apart.chunks(1).flat_map(places).collect();
        let apart = team.start(scope, apart, flows);
        let mut full = 0;
        let rounds: Vec<Round> = (0..ROUNDS * bench.repetitions)
            .map(|seed| {
                let alone = rate(&apart[..1], Arrive::Anywhere, seed).0;
                let both = rate(&apart, Arrive::Anywhere, seed).0;
                let at_home = rate(&two, Arrive::AtHome, seed).0;
                let anywhere;
                (anywhere, full) = rate(&mixed, Arrive::Anywhere, seed);
                Round {
                    alone,
                    apart: both,
                    at_home,
                    anywhere,
                }
            })
            .collect();
        (rounds, full)
    });
    let best = rounds.iter().map(|round| round.alone).fold(0.0, f64::max);
    let whole: Vec<&Round> = rounds.iter().filter(|round| round.is_whole(best)).collect();
    let all = rounds.len();
    let (counted, text) = match whole.len() {
        0 => (
            rounds.iter().collect(),
            format!("none of {all} rounds had two whole processors: all count"),
        ),
        some => (
            whole,
            format!("{some} of {all} rounds had two whole processors, and count"),
        ),
    };
    results.note(&format!("two_cores{label}"), text);
    if full > 0 {
        let text = format!("{full} frames found a ring full");
        results.note(&format!("two_cores_anywhere{label}"), text);
    }
    let every: Vec<&Round> = rounds.iter().collect();
    let mut say = |name: &str, rounds: &[&Round], rate: fn(&Round) -> f64| {
        let median_of = |rate: fn(&Round) -> f64| median(rounds.iter().map(|r| rate(r)).collect());
        results.against(
            &format!("two_cores{name}{label}"),
            median_of(rate),
            "Mpps",
            ("one worker", median_of(|round| round.alone)),
            Better::Larger,
        );
    };
    say("", &counted, |round| round.at_home);
    say("_anywhere", &counted, |round| round.anywhere);
    say("_apart_of_all_rounds", &every, |round| round.apart);
    say("_of_all_rounds", &every, |round| round.at_home);
}
