//! One worker: a thread that moves packets between ports, and nothing else.

mod transfer;

use crate::announce;
use crate::capture::Capture;
use crate::clock;
use crate::counters::{Counters, Drop};
use crate::pipeline::{Output, Pipeline};
use crate::ports::Queue;
use crate::probe;
use crate::registry::{HopId, PlaceId};
use crate::rules::Rules;
use crate::trace::Trace;
use contracts::forwarder as contract;
use dpdk::{Mbuf, Pool};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::Duration;
use transfer::Transfer;

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
    /// Take a probe as if it had come from an edge; its trace must be under way.
    Inject {
        /// What was asked for.
        request: contract::InjectRequest,
        /// Gets why it cannot be.
        done: Sender<Result<(), String>>,
    },
    /// Begin a capture; another one under way ends.
    Capture(Capture),
    /// End the thread.
    Stop,
}

/// There is no worker any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerEnded;

/// The control thread's way to a worker; wakes it when it sleeps.
#[derive(Clone)]
pub struct Commands {
    sender: Sender<Command>,
    wake: Arc<EventFd>,
}

impl Commands {
    /// Sends a command.
    ///
    /// # Errors
    /// The worker has ended.
    pub fn send(&self, command: Command) -> Result<(), WorkerEnded> {
        self.sender.send(command).map_err(|_| WorkerEnded)?;
        // A full counter wakes too.
        let _ = self.wake.write(1);
        Ok(())
    }
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
    count: PortCount,
}

/// A worker's state.
pub struct Worker {
    pipeline: Pipeline<Mbuf>,
    rules: Arc<Rules>,
    ports: Vec<WorkerPort>,
    /// Counters of ports that are not in the rules now.
    former: HashMap<String, PortCount>,
    transfer: Transfer,
    /// Probes that wait for their turn, by port.
    injected: Vec<(usize, Mbuf)>,
    /// Frames that tell neighbours of new edges, by port.
    announced: Vec<(usize, Vec<u8>)>,
    /// A capture under way, or one whose reader has gone since the last look.
    capture: Option<Capture>,
    commands: Receiver<Command>,
    wake: Arc<EventFd>,
}

/// Empty rounds before sleeping. Where every port can wake the worker it waits for them; where some must be polled it
/// sleeps, a little at first, longer when long idle.
const SPIN_ROUNDS: u32 = 300;
const SPIN_ROUNDS_WAKEABLE: u32 = 16;
const SLEEPS: [(u32, Duration); 4] = [
    (2_000, Duration::from_micros(20)),
    (4_000, Duration::from_micros(100)),
    (8_000, Duration::from_micros(400)),
    (u32::MAX, Duration::from_millis(1)),
];
/// Milliseconds to wait for ports at most: the clock must go on.
const LONGEST_WAIT: u16 = 500;
/// Rounds between two looks at the commands while busy.
const COMMAND_ROUNDS: u32 = 64;

impl Worker {
    /// A worker without ports, and the way to it.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(pool: Pool, pipeline: Pipeline<Mbuf>) -> io::Result<(Worker, Commands)> {
        let (sender, commands) = mpsc::channel();
        let wake = Arc::new(EventFd::from_flags(
            EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC,
        )?);
        let worker = Worker {
            pipeline,
            rules: Arc::new(Rules::empty()),
            ports: Vec::new(),
            former: HashMap::new(),
            transfer: Transfer::new(pool),
            injected: Vec::new(),
            announced: Vec::new(),
            capture: None,
            commands,
            wake: wake.clone(),
        };
        Ok((worker, Commands { sender, wake }))
    }

    /// Moves packets until told to stop.
    pub fn run(mut self) {
        let mut output = Output::default();
        let mut burst = Vec::with_capacity(64);
        let (mut idle, mut round) = (0u32, 0u32);
        loop {
            round = round.wrapping_add(1);
            let look = idle > SPIN_ROUNDS_WAKEABLE || round.is_multiple_of(COMMAND_ROUNDS);
            if look && !self.obey() {
                return;
            }
            let now = clock::seconds();
            for (port, frame) in std::mem::take(&mut self.injected) {
                self.pipeline
                    .follow_probe(&self.rules, port, frame, now, &mut output);
            }
            for (port, frame) in self.announced.drain(..) {
                output.make(port, frame);
            }
            let received = self.round(now, &mut burst, &mut output);
            let busy = self
                .pipeline
                .tick(&self.rules, now, received == 0, &mut output);
            self.flush(&mut output);
            if received > 0 {
                idle = 0;
            } else if !busy {
                idle = idle.saturating_add(1);
                self.rest(idle);
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
            let received = self
                .transfer
                .receive(queue, burst, &mut self.pipeline.counters);
            if received == 0 {
                continue;
            }
            total += received;
            port.count.received_packets += burst.len() as u64;
            let bytes: usize = burst.iter().map(|mbuf| mbuf.data().len()).sum();
            port.count.received_bytes += bytes as u64;
            if let Some(capture) = &mut self.capture {
                capture.take(&self.rules, index, false, burst.iter().map(Mbuf::data));
            }
            if self.pipeline.follows_probe() {
                self.pipeline
                    .follow_probes(&self.rules, index, burst, now, output);
            }
            self.pipeline
                .process_burst(&self.rules, index, burst, now, output);
        }
        total
    }

    /// Sends everything that was put out.
    #[inline]
    fn flush(&mut self, output: &mut Output<Mbuf>) {
        if !output.made.is_empty() {
            self.transfer.fill(output, &mut self.pipeline.counters);
        }
        let follows_probe = self.pipeline.follows_probe();
        for (index, frames) in output.ports.iter_mut().enumerate() {
            if follows_probe {
                self.pipeline.hold_probes(&self.rules, index, frames);
            }
            if frames.is_empty() {
                continue;
            }
            if let Some(capture) = &mut self.capture {
                capture.take(&self.rules, index, true, frames.iter().map(Mbuf::data));
            }
            let count = frames.len();
            let bytes: u64 = frames.iter().map(|mbuf| mbuf.data().len() as u64).sum();
            let port = self.ports.get_mut(index);
            let sent = match port.and_then(|port| Some((port.queue.as_mut()?, &mut port.count))) {
                Some((queue, total)) => {
                    let sent = self.transfer.send(queue, frames);
                    total.sent_packets += sent as u64;
                    total.sent_bytes += bytes * sent as u64 / count as u64;
                    total.send_failures += (count - sent) as u64;
                    sent
                }
                None => 0,
            };
            frames.clear();
            for _ in sent..count {
                self.pipeline.counters.drop(Drop::PortFull.into());
            }
        }
    }

    /// Carries out the commands that wait; false when the thread is to end.
    fn obey(&mut self) -> bool {
        self.capture.take_if(|capture| capture.is_over());
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
                Ok(Command::Capture(capture)) => self.capture = Some(capture),
                Ok(Command::BeginTrace(trace)) => self.pipeline.trace = Some(trace),
                Ok(Command::EndTrace(to)) => {
                    let _ = to.send(self.pipeline.trace.take());
                }
                Ok(Command::Inject { request, done }) => {
                    let _ = done.send(self.inject(&request));
                }
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    /// Queues a probe; without a packet, says whether its trace is under way.
    #[cold]
    fn inject(&mut self, request: &contract::InjectRequest) -> Result<(), String> {
        let trace = self.pipeline.trace.as_ref();
        if !trace.is_some_and(|trace| trace.is_of_probe(&request.probe)) {
            return Err("probe: no trace follows it".to_string());
        }
        if request.packet.is_empty() {
            return Ok(());
        }
        let (port, frame) = probe::as_from_edge(&self.rules, &request.edge, &request.packet)?;
        let frame = self
            .transfer
            .buffer(&frame)
            .map_err(|drop| format!("packet: {}", drop.name()))?;
        self.injected.push((port, frame));
        Ok(())
    }

    /// Takes over rules; returns the queues of ports that are given up.
    fn change(
        &mut self,
        rules: Arc<Rules>,
        opened: Vec<(String, Queue)>,
        closing: &[String],
    ) -> Vec<Queue> {
        let mut queues = HashMap::new();
        self.count_overruns();
        for port in self.ports.drain(..) {
            queues.extend(port.queue.map(|queue| (port.name.clone(), queue)));
            self.former.insert(port.name, port.count);
        }
        let given_up = closing
            .iter()
            .filter_map(|name| queues.remove(name))
            .collect();
        let new: Vec<String> = opened.iter().map(|(name, _)| name.clone()).collect();
        self.announced = announce::announcements(&self.rules, &rules, &new);
        queues.extend(opened);
        for port in &rules.ports {
            self.ports.push(WorkerPort {
                name: port.name.clone(),
                queue: queues.remove(&port.name),
                count: self.former.remove(&port.name).unwrap_or_default(),
            });
        }
        // A port that is down is told of when it opens.
        self.announced
            .retain(|&(port, _)| self.ports[port].queue.is_some());
        let now = clock::seconds();
        if let Err(error) = self.pipeline.rules_changed(&self.rules, &rules, now) {
            eprintln!("switchboard-forwarder: idle times stay as they were: {error}");
        }
        self.rules = rules;
        given_up
    }

    /// Counts what was lost because it was not received in time.
    fn count_overruns(&mut self) {
        let queues = self.ports.iter_mut().filter_map(|port| port.queue.as_mut());
        let lost = queues.map(Queue::overruns).sum();
        self.pipeline.counters.lost(Drop::PortOverrun, lost);
    }

    fn report(&mut self) -> Report {
        self.count_overruns();
        let ports = self
            .ports
            .iter()
            .map(|port| (port.name.clone(), port.count));
        Report {
            counters: self.pipeline.counters.clone(),
            flow_entries: self.pipeline.flow_entries(),
            hop_flows: self.pipeline.hop_flows.clone(),
            place_flows: self.pipeline.place_flows.clone(),
            ports: ports.collect(),
            trace_full: self.pipeline.trace.as_ref().is_some_and(Trace::is_full),
        }
    }

    /// Waits a little after empty rounds, longer after more of them.
    #[inline]
    fn rest(&self, idle: u32) {
        if idle <= SPIN_ROUNDS_WAKEABLE {
            std::hint::spin_loop();
        } else if self.all_wake() {
            self.wait();
        } else if idle > SPIN_ROUNDS {
            let sleep = SLEEPS
                .iter()
                .find(|(until, _)| idle < *until)
                .map_or(SLEEPS[3].1, |(_, sleep)| *sleep);
            thread::sleep(sleep);
        }
    }

    fn all_wake(&self) -> bool {
        self.ports
            .iter()
            .all(|port| !matches!(port.queue, Some(Queue::Device(_))))
    }

    /// Sleeps until a port has packets, a command comes, or the clock must go on.
    fn wait(&self) {
        let mut descriptors = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
        for port in &self.ports {
            if let Some(Queue::Socket(socket)) = &port.queue {
                descriptors.push(PollFd::new(socket.as_fd(), PollFlags::POLLIN));
            }
        }
        // An interrupted wait is a short one.
        if poll(&mut descriptors, PollTimeout::from(LONGEST_WAIT)).is_ok() {
            // Nothing to read is no harm: commands are looked for anyway.
            let _ = self.wake.read();
        }
    }
}
