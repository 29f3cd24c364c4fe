//! One worker: a thread that moves packets between ports, and nothing else.
//!
//! Where there are several, each has its own queues of ports, flow tables, copy of the rules and counters; what is not its own
//! goes through [`crate::handover`].

mod command;
mod rooms;
mod transfer;

pub use command::{Command, Commands, NewRules, PortCount, Report, WorkerEnded};

use crate::announce;
use crate::buffers::Buffers;
use crate::clock;
use crate::counters::Drop;
use crate::exchange;
use crate::handover::{Bell, Handover, PortWorkers};
use crate::latency::{Latency, Timer};
use crate::native;
use crate::pipeline::{Errand, Output, Pipeline};
use crate::ports::{Queue, SocketQueue};
use crate::probe;
use crate::rules::Rules;
use crate::trace::Trace;
use contracts::forwarder as contract;
use dpdk::Mbuf;
use flow::BURST;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;
use transfer::Transfer;

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
    /// Ways to the other workers, if there are any.
    handover: Option<Handover<Mbuf>>,
    /// Counters of ports that are not in the rules now.
    former: HashMap<String, PortCount>,
    transfer: Transfer,
    /// Probes that wait for their turn, by port.
    injected: Vec<(usize, Mbuf)>,
    /// Frames that tell neighbours of new edges, by port.
    announced: Vec<(usize, Vec<u8>)>,
    timer: Timer,
    latency: Latency,
    commands: Receiver<Command>,
    bell: Arc<Bell>,
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
/// What a device has is received for one burst.
const _: () = assert!(dpdk::RECEIVE_LIMIT == BURST);

impl Worker {
    /// A worker without ports, and the way to it. With `handover` it is one of several, and its pipeline knows that
    /// ([`Pipeline::share`]).
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(
        buffers: Buffers,
        pipeline: Pipeline<Mbuf>,
        handover: Option<Handover<Mbuf>>,
    ) -> io::Result<(Worker, Commands)> {
        let (sender, commands) = mpsc::channel();
        let bell = match &handover {
            Some(handover) => handover.bell(),
            None => Arc::new(Bell::new()?),
        };
        let worker = Worker {
            pipeline,
            rules: Arc::new(Rules::empty()),
            ports: Vec::new(),
            handover,
            former: HashMap::new(),
            transfer: Transfer::new(buffers),
            injected: Vec::new(),
            announced: Vec::new(),
            timer: Timer::new(),
            latency: Latency::default(),
            commands,
            bell: bell.clone(),
        };
        Ok((worker, Commands { sender, bell }))
    }

    /// Moves packets until told to stop. What it gives back moves none any more, and has its ports still open.
    pub fn run(mut self) -> Worker {
        let _known = self.transfer.register_thread();
        let mut output = Output::default();
        let mut burst = Vec::with_capacity(BURST);
        let (mut idle, mut round) = (0u32, 0u32);
        loop {
            round = round.wrapping_add(1);
            let look = idle > SPIN_ROUNDS_WAKEABLE || round.is_multiple_of(COMMAND_ROUNDS);
            if look && !self.obey() {
                return self;
            }
            let now = clock::seconds();
            if !self.injected.is_empty() {
                self.take_injected(now, &mut output);
            }
            for (port, frame) in self.announced.drain(..) {
                output.make(port, frame);
            }
            let mut received = self.round(now, &mut burst, &mut output);
            if let Some(handover) = &mut self.handover {
                received += handover.take(&mut self.pipeline, &self.rules, now, &mut output);
            }
            let busy = self
                .pipeline
                .tick(&self.rules, now, received == 0, &mut output);
            self.flush(&mut output);
            self.timer.sent(&mut self.latency);
            if received > 0 {
                idle = 0;
            } else if !busy {
                idle = idle.saturating_add(1);
                self.rest(idle);
            }
        }
    }

    #[cold]
    fn take_injected(&mut self, now: u32, output: &mut Output<Mbuf>) {
        for (port, frame) in std::mem::take(&mut self.injected) {
            let (errand, away) = (Errand::Steer, &mut output.away);
            let pipeline = &mut self.pipeline;
            let frame = pipeline.put_away(&self.rules, port, frame, errand, now, away);
            if let Some(frame) = frame {
                pipeline.follow_probe(&self.rules, port, frame, now, output);
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
            self.timer.receive(received);
            total += received;
            port.count.received_packets += burst.len() as u64;
            let bytes: usize = burst.iter().map(|mbuf| mbuf.data().len()).sum();
            port.count.received_bytes += bytes as u64;
            if self.pipeline.follows_probe() {
                self.pipeline
                    .follow_probes(&self.rules, index, burst, false, now, output);
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
            self.pipeline.alert_capture();
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
            self.pipeline.show_leaving(&self.rules, index, frames);
            self.send(index, frames);
        }
        self.pipeline.end_round();
        if self.handover.is_some() {
            self.hand_over(output);
        }
    }

    /// Sends frames by a port, or has a worker send them that has a queue of it.
    #[inline]
    fn send(&mut self, index: usize, frames: &mut Vec<Mbuf>) {
        let queue = self.ports.get(index).and_then(|port| port.queue.as_ref());
        if let Some(Queue::Native(_)) = queue {
            return self.pass(index, frames);
        }
        let port = self.ports.get_mut(index);
        let own = port.and_then(|port| Some((port.queue.as_mut()?, &mut port.count)));
        let mut count = frames.len();
        let sent = match (own, &mut self.handover) {
            (Some((queue, total)), _) => {
                let counters = &mut self.pipeline.counters;
                self.transfer.fit(queue, frames, counters);
                count = frames.len();
                let bytes: u64 = frames.iter().map(|mbuf| mbuf.data().len() as u64).sum();
                let sent = self.transfer.send(queue, frames);
                total.sent_packets += sent as u64;
                total.sent_bytes += bytes * sent as u64 / count.max(1) as u64;
                total.send_failures += (count - sent) as u64;
                sent
            }
            (None, Some(handover)) => match handover.leave_to_others(index, frames) {
                true => count,
                false => 0,
            },
            (None, None) => 0,
        };
        frames.clear();
        for _ in sent..count {
            self.pipeline.counters.drop(Drop::PortFull.into());
        }
    }

    /// Has frames pass the native functions at a port; they come in where the functions let them out.
    fn pass(&mut self, index: usize, frames: &mut Vec<Mbuf>) {
        for frame in frames.drain(..) {
            let bytes = frame.data().len() as u64;
            let passed =
                native::pass(&self.rules, index, frame.data()).and_then(|other| {
                    match self
                        .ports
                        .get_mut(other)
                        .and_then(|port| port.queue.as_mut())
                    {
                        Some(Queue::Native(end)) => end.put(frame),
                        _ => Err(Drop::HopGone),
                    }
                });
            let count = &mut self.ports[index].count;
            match passed {
                Err(Drop::PortFull) => count.send_failures += 1,
                _ => {
                    count.sent_packets += 1;
                    count.sent_bytes += bytes;
                }
            }
            if let Err(drop) = passed {
                self.pipeline.counters.drop(drop.into());
            }
        }
    }

    /// Sends what other workers want sent here, and hands over what is theirs.
    fn hand_over(&mut self, output: &mut Output<Mbuf>) {
        let Some(mut handover) = self.handover.take() else {
            return;
        };
        handover.put(output);
        let mut leaving = std::mem::take(&mut handover.leaving);
        // A queue that was given up since is nobody's: what is for it must not go round.
        for (index, frames) in leaving.iter_mut().enumerate() {
            if !frames.is_empty() {
                self.send(index, frames);
            }
        }
        handover.leaving = leaving;
        handover.flush(&mut self.pipeline.counters);
        self.handover = Some(handover);
    }

    /// Carries out the commands that wait; false when the thread is to end.
    fn obey(&mut self) -> bool {
        let capture = &mut self.pipeline.capture;
        capture.take_if(|capture| capture.is_over());
        loop {
            match self.commands.try_recv() {
                Ok(Command::Rules(new)) => self.change(new),
                Ok(Command::Report(to)) => {
                    let _ = to.send(self.report());
                }
                Ok(Command::Capture(capture)) => self.pipeline.capture = Some(capture),
                Ok(Command::BeginTrace(trace, begun)) => {
                    self.pipeline.trace = Some(trace);
                    let _ = begun.send(());
                }
                Ok(Command::EndTrace(to)) => {
                    let _ = to.send(self.pipeline.trace.take());
                }
                Ok(Command::Inject { request, done }) => {
                    let _ = done.send(self.inject(&request));
                }
                Ok(Command::Export { begin, to }) => {
                    let met = self
                        .pipeline
                        .export(begin, exchange::STEP, clock::seconds());
                    let _ = to.send(met);
                }
                Ok(Command::Import { entries, done }) => {
                    let now = clock::seconds();
                    let _ = done.send(self.pipeline.import(&self.rules, &entries, now));
                    let ask = self.pipeline.ask_for_hosts(&self.rules, &entries, now);
                    self.announced.extend(ask);
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
            .hold(&frame)
            .map_err(|drop| format!("packet: {}", drop.name()))?;
        self.injected.push((port, frame));
        Ok(())
    }

    /// Takes over rules, and gives back the queues of ports that are given up.
    fn change(&mut self, new: NewRules) {
        let mut queues = HashMap::new();
        self.count_overruns();
        for port in self.ports.drain(..) {
            queues.extend(port.queue.map(|queue| (port.name.clone(), queue)));
            self.former.insert(port.name, port.count);
        }
        let given_up = new
            .closing
            .iter()
            .filter_map(|name| queues.remove(name))
            .collect();
        let rules = new.rules;
        self.announced = match &new.announce {
            Some(opened) => announce::announcements(&self.rules, &rules, opened),
            None => Vec::new(),
        };
        // A port that is down is told of when it opens.
        let is_down = |ports: &[PortWorkers], port: usize| ports[port].workers.is_empty();
        self.announced
            .retain(|&(port, _)| !is_down(&new.ports, port));
        queues.extend(new.opened);
        for port in &rules.ports {
            self.ports.push(WorkerPort {
                name: port.name.clone(),
                queue: queues.remove(&port.name),
                count: self.former.remove(&port.name).unwrap_or_default(),
            });
        }
        if let Some(handover) = &mut self.handover {
            if let Some(homes) = new.homes {
                self.pipeline.share(homes, handover.own());
            }
            handover.rules_changed(&new.ports);
        }
        let now = clock::seconds();
        if let Err(error) = self.pipeline.rules_changed(&self.rules, &rules, now) {
            eprintln!("switchboard-forwarder: idle times stay as they were: {error}");
        }
        let ask = self.pipeline.ask_for_peers(&rules, now);
        self.announced.extend(ask);
        self.rules = rules;
        // Nobody waits for the answer when the control thread has gone.
        let _ = new.done.send(given_up);
    }

    /// Counts what was lost because it was not received in time, or fits no buffer.
    fn count_overruns(&mut self) {
        for queue in self.ports.iter_mut().filter_map(|port| port.queue.as_mut()) {
            let counters = &mut self.pipeline.counters;
            counters.lost(Drop::PortOverrun, queue.overruns());
            counters.lost(Drop::FrameTooLong, queue.too_long());
        }
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
            flow_entries_limit: self.pipeline.flow_entries_limit(),
            counted_generation: Some(self.pipeline.counted_generation),
            hop_flows: self.pipeline.hop_flows.clone(),
            place_flows: self.pipeline.place_flows.clone(),
            ports: ports.collect(),
            latencies: vec![(
                self.handover.as_ref().map_or(0, Handover::own),
                self.latency.clone(),
            )],
            traced: self.pipeline.trace.as_ref().map_or(0, Trace::hop_count),
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
            .all(|port| matches!(port.queue, None | Some(Queue::Socket(_) | Queue::Native(_))))
    }

    /// Sleeps until a port has packets, a command or another worker's frame comes, or the clock must go on.
    fn wait(&self) {
        let handed = || self.handover.as_ref().is_some_and(Handover::has_work);
        if self.bell.lie_down(handed) {
            let mut descriptors = vec![PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
            for port in &self.ports {
                if let Some(Queue::Socket(SocketQueue { socket, .. })) = &port.queue {
                    descriptors.push(PollFd::new(socket.as_fd(), PollFlags::POLLIN));
                }
            }
            // An interrupted wait is a short one.
            let _ = poll(&mut descriptors, PollTimeout::from(LONGEST_WAIT));
        }
        self.bell.get_up();
    }
}
