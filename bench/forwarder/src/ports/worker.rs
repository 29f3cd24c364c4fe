//! The forwarder's loop over two ports with parts that can be switched off: a plain bridge, labels without affinity, and
//! everything. It tells how long a packet takes from its being received to its being sent, both included.

use super::{Helper, Wires, environment, obey};
use crate::bridge::Bridge;
use crate::peers::pause;
use crate::rules;
use crate::substitutes::{self, Always};
use dpdk::{Mbuf, Pool, Port, Queue, RECEIVE_LIMIT};
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::Registry;
use forwarder::rules::{Rules, compile};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The role's name on the command line.
pub const ROLE: &str = "work";
/// A burst that takes longer was interrupted, and does not count.
const LONGEST: Duration = Duration::from_micros(60);

/// What the worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// A learning bridge: the port by the destination's address.
    Bridge,
    /// The same pipeline with one answer for every connection: labels, no affinity.
    Labels,
    /// The forwarder's pipeline: labels and affinity.
    Affinity,
}

impl Mode {
    /// Every one.
    pub const ALL: [Mode; 3] = [Mode::Bridge, Mode::Labels, Mode::Affinity];
}

/// A worker in another process.
pub struct Worker(Helper);

impl Worker {
    /// Starts one.
    pub fn start(wires: &Wires, core: usize) -> Result<Worker, String> {
        Helper::start(ROLE, wires, core, &[]).map(Worker)
    }

    /// Changes what it does; its times begin anew.
    pub fn switch(&mut self, mode: Mode) -> Result<(), String> {
        self.0.ask(&format!("mode {}", mode as u8)).map(drop)
    }

    /// Takes the processor from it, or gives it back.
    pub fn pause(&self, paused: bool) {
        pause(self.0.child.id(), paused);
    }

    /// Nanoseconds per packet since the last call.
    pub fn nanoseconds(&mut self) -> Result<f64, String> {
        self.0.ask("read").map(|numbers| numbers[0])
    }
}

static MODE: AtomicU8 = AtomicU8::new(Mode::Affinity as u8);
static BUSY: AtomicU64 = AtomicU64::new(0);
static PACKETS: AtomicU64 = AtomicU64::new(0);

/// The worker's own process.
pub fn run(directory: &str, core: &str) -> Result<(), String> {
    let environment = environment(core)?;
    let pool = Pool::new(&environment, "worker", 8_191, 2048 + 128, 1).ok_or("no memory")?;
    let wires = Wires::existing(directory);
    let open = |number: usize| {
        let (_, mut queues) =
            Port::open(&wires.client(number), &[pool], 1024).map_err(|error| error.to_string())?;
        Ok::<_, String>(queues.remove(0))
    };
    let queues = [open(rules::WAN_PORT)?, open(rules::VNF_PORT)?];
    // It has this thread's core.
    std::thread::spawn(move || Ports::new(queues, pool).run());
    obey(|line| match line.split_once(' ') {
        Some(("mode", mode)) => {
            MODE.store(mode.parse().unwrap_or(0), Relaxed);
            std::thread::sleep(Duration::from_millis(5));
            reset().to_string()
        }
        _ => reset().to_string(),
    });
    Ok(())
}

/// Nanoseconds per packet since the last call.
fn reset() -> f64 {
    let (busy, packets) = (BUSY.swap(0, Relaxed), PACKETS.swap(0, Relaxed));
    busy as f64 / packets.max(1) as f64
}

struct Ports {
    rules: Rules,
    pipeline: Pipeline<Mbuf>,
    bridge: Bridge,
    /// What the pipeline does now.
    mode: u8,
    queues: [Queue; 2],
    out: Output<Mbuf>,
    pool: Pool,
}

impl Ports {
    fn new(queues: [Queue; 2], pool: Pool) -> Ports {
        // The address that the generator sends to, whatever the devices have.
        let macs = [rules::PORT_MAC; 2];
        let rules =
            compile(&rules::set(), &macs, &mut Registry::default()).expect("the rules are right");
        let settings = Settings {
            memory_v4: 64 << 20,
            memory_v6: 1 << 20,
            hash_key: [5; 16],
        };
        let mut pipeline = Pipeline::new(&settings, &rules).expect("there is memory");
        pipeline
            .rules_changed(&Rules::empty(), &rules, 0)
            .expect("there is memory");
        Ports {
            rules,
            pipeline,
            bridge: Bridge::new(&[rules::PORT_MAC], rules::WAN_PORT),
            mode: Mode::Affinity as u8,
            queues,
            out: Output::default(),
            pool,
        }
    }

    fn run(&mut self) {
        let mut burst = Vec::with_capacity(RECEIVE_LIMIT);
        let (mut time, mut packets, mut rounds) = (Duration::ZERO, 0, 0u32);
        loop {
            let start = Instant::now();
            if self.queues[rules::VNF_PORT].receive(&mut burst) > 0 {
                let count = burst.len() as u64;
                self.work(&mut burst);
                let took = start.elapsed();
                if took < LONGEST {
                    time += took;
                    packets += count;
                }
            }
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(64) {
                self.listen(&mut burst);
                self.switch();
                BUSY.fetch_add(time.as_nanos() as u64, Relaxed);
                PACKETS.fetch_add(packets, Relaxed);
                (time, packets) = (Duration::ZERO, 0);
            }
        }
    }

    #[inline]
    fn work(&mut self, burst: &mut Vec<Mbuf>) {
        if self.mode == Mode::Bridge as u8 {
            let bridge = &mut self.bridge;
            burst.retain(|frame| {
                bridge.port_of(frame.data(), rules::VNF_PORT) == Some(rules::WAN_PORT)
            });
            self.queues[rules::WAN_PORT].send(burst);
        } else {
            let (rules, out) = (&self.rules, &mut self.out);
            self.pipeline
                .process_burst(rules, rules::VNF_PORT, burst, 0, out);
            if let Some(list) = out.ports.get_mut(rules::WAN_PORT) {
                self.queues[rules::WAN_PORT].send(list);
            }
        }
        burst.clear();
    }

    /// Does what is asked for from now on.
    fn switch(&mut self) {
        let mode = MODE.load(Relaxed);
        if mode == self.mode {
            return;
        }
        self.mode = mode;
        let always = || Box::new(Always(substitutes::hops(&self.rules))) as Box<_>;
        let labels_only = mode == Mode::Labels as u8;
        self.pipeline.substitute(labels_only.then(always));
    }

    /// Takes what the wide area says: the peer's address. What the pipeline asks for meanwhile is answered without a port.
    fn listen(&mut self, burst: &mut Vec<Mbuf>) {
        self.queues[rules::WAN_PORT].receive(burst);
        if !burst.is_empty() {
            self.pipeline
                .process_burst(&self.rules, rules::WAN_PORT, burst, 0, &mut self.out);
        }
        burst.clear();
        if !self.out.made.is_empty() {
            self.out.made.clear();
            let mut answer = self.pool.allocate();
            if let Some(frame) = &mut answer {
                frame.set(&rules::answer(self.rules.ports[rules::WAN_PORT].mac));
            }
            burst.extend(answer);
            self.pipeline
                .process_burst(&self.rules, rules::WAN_PORT, burst, 0, &mut self.out);
        }
    }
}
