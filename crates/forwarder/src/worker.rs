//! One worker: a thread that moves packets between ports, and nothing else.

use crate::counters::{Counters, Drop};
use crate::pipeline::{Output, Pipeline};
use crate::registry::{HopId, PlaceId};
use crate::rules::Rules;
use crate::trace::Trace;
use dpdk::{Mbuf, Pool, Queue};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// What the control thread asks of a worker.
pub enum Command {
    /// New rules, with the queues that were opened for them and the names of those to give back.
    Rules {
        /// The rules.
        rules: Arc<Rules>,
        /// Queues of newly opened ports.
        opened: Vec<(String, Queue)>,
        /// Ports to give up.
        closing: Vec<String>,
        /// Gets the queues given up, once no packet follows the old rules.
        done: Sender<Vec<Queue>>,
    },
    /// Tell what happened so far.
    Report(Sender<Report>),
    /// Begin a trace; another one under way ends.
    BeginTrace(Trace),
    /// End the trace and hand it over.
    EndTrace(Sender<Option<Trace>>),
    /// End the thread.
    Stop,
}

/// What a worker has done so far.
#[derive(Debug)]
pub struct Report {
    /// Packets by what happened to them.
    pub counters: Counters,
    /// Connections in the tables.
    pub flow_entries: u64,
    /// Entries that use each hop.
    pub hop_flows: HashMap<HopId, u64>,
    /// Entries of each place.
    pub place_flows: HashMap<PlaceId, u64>,
    /// Packets and bytes of each port.
    pub ports: HashMap<String, PortCount>,
    /// Whether the trace has all it wanted.
    pub trace_full: bool,
}

/// Packets and bytes of a port.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortCount {
    /// Packets received.
    pub received_packets: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets the device did not take.
    pub send_failures: u64,
}

struct WorkerPort {
    name: String,
    queue: Option<Queue>,
}

/// A worker's state.
pub struct Worker {
    pool: Pool,
    pipeline: Pipeline<Mbuf>,
    rules: Arc<Rules>,
    ports: Vec<WorkerPort>,
    counts: HashMap<String, PortCount>,
    commands: Receiver<Command>,
    started: Instant,
}

/// Empty rounds before sleeping, and how long to sleep then: short at first, longer when long idle.
const SPIN_ROUNDS: u32 = 300;
const SLEEPS: [(u32, Duration); 4] = [
    (2_000, Duration::from_micros(20)),
    (4_000, Duration::from_micros(100)),
    (8_000, Duration::from_micros(400)),
    (u32::MAX, Duration::from_millis(1)),
];
/// Rounds between two looks at the commands while busy.
const COMMAND_ROUNDS: u32 = 64;

impl Worker {
    /// A worker without ports.
    pub fn new(pool: Pool, pipeline: Pipeline<Mbuf>, commands: Receiver<Command>) -> Worker {
        Worker {
            pool,
            pipeline,
            rules: Arc::new(Rules::empty()),
            ports: Vec::new(),
            counts: HashMap::new(),
            commands,
            started: Instant::now(),
        }
    }

    /// Moves packets until told to stop.
    pub fn run(mut self) {
        let mut output = Output::default();
        let mut burst = Vec::with_capacity(64);
        let (mut idle, mut round) = (0u32, 0u32);
        loop {
            round = round.wrapping_add(1);
            if (idle > SPIN_ROUNDS || round.is_multiple_of(COMMAND_ROUNDS)) && !self.obey() {
                return;
            }
            let now = self.started.elapsed().as_secs() as u32;
            let received = self.round(now, &mut burst, &mut output);
            self.pipeline.tick(&self.rules, now, &mut output);
            self.flush(&mut output);
            if received > 0 {
                idle = 0;
            } else {
                idle = idle.saturating_add(1);
                rest(idle);
            }
        }
    }

    /// Receives one burst from every port and processes it; returns the number of packets.
    #[inline]
    fn round(&mut self, now: u32, burst: &mut Vec<Mbuf>, output: &mut Output<Mbuf>) -> usize {
        let mut total = 0;
        for index in 0..self.ports.len() {
            let port = &mut self.ports[index];
            let Some(queue) = &mut port.queue else {
                continue;
            };
            let received = queue.receive(burst);
            if received == 0 {
                continue;
            }
            total += received;
            if let Some(count) = self.counts.get_mut(&port.name) {
                count.received_packets += received as u64;
                count.received_bytes += burst
                    .iter()
                    .map(|mbuf| mbuf.data().len() as u64)
                    .sum::<u64>();
            }
            for mbuf in burst.drain(..) {
                self.pipeline.process(&self.rules, index, mbuf, now, output);
            }
        }
        total
    }

    /// Sends everything that was put out.
    #[inline]
    fn flush(&mut self, output: &mut Output<Mbuf>) {
        for (port, bytes) in std::mem::take(&mut output.made) {
            let made = self
                .pool
                .allocate()
                .and_then(|mut mbuf| mbuf.set(&bytes).then_some(mbuf));
            match made {
                Some(mbuf) => output.send(port, mbuf),
                None => self.pipeline.counters.drop(Drop::NoBuffer.into()),
            }
        }
        for (port, frames) in output.ports.iter_mut().enumerate() {
            if frames.is_empty() {
                continue;
            }
            let count = frames.len();
            let bytes: u64 = frames.iter().map(|mbuf| mbuf.data().len() as u64).sum();
            let sent = match self
                .ports
                .get_mut(port)
                .and_then(|port| port.queue.as_mut())
            {
                Some(queue) => queue.send(frames),
                None => 0,
            };
            frames.clear();
            for _ in sent..count {
                self.pipeline.counters.drop(Drop::PortFull.into());
            }
            let name = self.ports.get(port).map(|port| &port.name);
            if let Some(total) = name.and_then(|name| self.counts.get_mut(name)) {
                total.sent_packets += sent as u64;
                total.sent_bytes += bytes * sent as u64 / count as u64;
                total.send_failures += (count - sent) as u64;
            }
        }
    }

    /// Carries out the commands that wait; false when the thread is to end.
    fn obey(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Rules {
                    rules,
                    opened,
                    closing,
                    done,
                }) => {
                    let given_up = self.change(rules, opened, &closing);
                    // Nobody waits for the answer when the control thread has gone.
                    let _ = done.send(given_up);
                }
                Ok(Command::Report(to)) => {
                    let _ = to.send(self.report());
                }
                Ok(Command::BeginTrace(trace)) => self.pipeline.trace = Some(trace),
                Ok(Command::EndTrace(to)) => {
                    let _ = to.send(self.pipeline.trace.take());
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    /// Takes over rules; returns the queues of ports that are given up.
    fn change(
        &mut self,
        rules: Arc<Rules>,
        opened: Vec<(String, Queue)>,
        closing: &[String],
    ) -> Vec<Queue> {
        let mut queues: HashMap<String, Queue> = self
            .ports
            .drain(..)
            .filter_map(|port| Some((port.name, port.queue?)))
            .collect();
        let given_up = closing
            .iter()
            .filter_map(|name| queues.remove(name))
            .collect();
        queues.extend(opened);
        for port in &rules.ports {
            self.counts.entry(port.name.clone()).or_default();
            self.ports.push(WorkerPort {
                name: port.name.clone(),
                queue: queues.remove(&port.name),
            });
        }
        self.pipeline.rules_changed(&rules);
        self.rules = rules;
        given_up
    }

    fn report(&self) -> Report {
        Report {
            counters: self.pipeline.counters.clone(),
            flow_entries: self.pipeline.flow_entries(),
            hop_flows: self.pipeline.hop_flows.clone(),
            place_flows: self.pipeline.place_flows.clone(),
            ports: self.counts.clone(),
            trace_full: self.pipeline.trace.as_ref().is_some_and(Trace::is_full),
        }
    }
}

/// Waits a little after empty rounds, longer after more of them.
#[inline]
fn rest(idle: u32) {
    if idle <= SPIN_ROUNDS {
        std::hint::spin_loop();
        return;
    }
    let sleep = SLEEPS
        .iter()
        .find(|(until, _)| idle < *until)
        .map_or(SLEEPS[3].1, |(_, sleep)| *sleep);
    thread::sleep(sleep);
}
