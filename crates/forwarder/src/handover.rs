//! Handing frames over from one worker to another: a ring for each pair of workers, written by one and read by the other.
//!
//! Workers share nothing but these rings. A frame goes to another worker for one of two reasons: its connection is at home
//! there ([`crate::home`]), or the port it leaves by is. Frames go in batches, once in a round, and a frame for which a ring
//! has no room is dropped and counted (`handover_full`): no worker ever waits for another.
//!
//! Ports have other positions in other rules, and workers take over new rules one after the other, so what is in a ring
//! names its port by a number that never changes.

use crate::counters::{Counters, Drop, Event};
use crate::frame::Frame;
use crate::home::WORKERS_LIMIT;
use crate::output::{Errand, Heard, Output};
use crate::pipeline::Pipeline;
use crate::rules::Rules;
use flow::BURST;
use nix::sys::eventfd::{EfdFlags, EventFd};
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Frames that may be on their way from one worker to another.
pub const RING: usize = 1_024;
/// Stands for the position of a port that is not in the rules.
const NOWHERE: u16 = u16::MAX;

/// Wakes a sleeping worker.
#[derive(Debug)]
pub struct Bell {
    asleep: AtomicBool,
    event: EventFd,
}

impl Bell {
    /// A bell of a worker that is awake.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell {
            asleep: AtomicBool::new(false),
            event: EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?,
        })
    }

    /// Wakes the worker, or has its next sleep end at once.
    pub fn ring(&self) {
        // A full counter wakes too.
        let _ = self.event.write(1);
    }

    /// Wakes the worker if it sleeps; a system call only then.
    fn ring_if_asleep(&self) {
        // What was put into the ring before is seen by whoever goes to sleep after this.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Whether the worker may sleep now: not if `has_work` finds something that came just before.
    pub fn lie_down(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !has_work()
    }

    /// Ends a sleep.
    pub fn get_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        // Nothing to read is no harm: what was rung for is looked for anyway.
        let _ = self.event.read();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// The workers that have a queue of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortWorkers {
    /// The port's number, whatever its position in the rules.
    pub number: u32,
    /// Those that have a queue; none while the port is down.
    pub workers: Vec<usize>,
}

/// What one worker hands to another.
#[derive(Debug)]
enum Handed<F> {
    /// Frames that arrived at a port, and what to do with them.
    Arrived {
        port: u32,
        errand: Errand,
        frames: Vec<F>,
    },
    /// Frames to send by a port.
    Leaving { port: u32, frames: Vec<F> },
    /// What a neighbour at a port said.
    Heard(Box<(u32, Heard)>),
}

/// How many frames are in a ring. On lines of the cache of its own: those of other rings change as often.
#[derive(Debug, Default)]
#[repr(align(128))]
struct UnderWay(AtomicUsize);

/// The way to another worker. Both ends remember how far the ring is, and write that at every look: on lines of the cache of their
/// own, as one thread makes those of all workers.
#[repr(align(128))]
struct Line<F> {
    ring: Producer<Handed<F>>,
    /// Frames in the ring.
    under_way: Arc<UnderWay>,
    /// What is put into the ring at the end of the round.
    waiting: Vec<Handed<F>>,
    bell: Arc<Bell>,
}

/// The other end of another worker's [`Line`].
#[repr(align(128))]
struct Source<F> {
    ring: Consumer<Handed<F>>,
    under_way: Arc<UnderWay>,
}

/// A worker's ways to and from all others.
pub struct Handover<F> {
    own: usize,
    /// By worker; nothing at the own place.
    lines: Vec<Option<Line<F>>>,
    from: Vec<Source<F>>,
    bell: Arc<Bell>,
    /// By position in the rules.
    ports: Vec<PortWorkers>,
    /// Positions in the rules, by number.
    positions: Vec<u16>,
    /// Frames of this round that others received, by position of their port.
    arrived: Vec<Vec<F>>,
    /// Frames that others want sent by ports here, by position of the port. The caller empties them.
    pub leaving: Vec<Vec<F>>,
}

impl<F: Frame> Handover<F> {
    /// The number of the worker whose ways these are.
    pub fn own(&self) -> usize {
        self.own
    }

    /// The ways among so many workers, up to [`WORKERS_LIMIT`]: those of each.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn among(workers: usize) -> io::Result<Vec<Handover<F>>> {
        let workers = workers.clamp(1, WORKERS_LIMIT);
        let mut all = Vec::with_capacity(workers);
        for own in 0..workers {
            all.push(Handover {
                own,
                lines: Vec::with_capacity(workers),
                from: Vec::with_capacity(workers - 1),
                bell: Arc::new(Bell::new()?),
                ports: Vec::new(),
                positions: Vec::new(),
                arrived: Vec::new(),
                leaving: Vec::new(),
            });
        }
        for from in 0..workers {
            for to in 0..workers {
                let line = (from != to).then(|| {
                    let (ring, other_end) = RingBuffer::new(RING);
                    let under_way = Arc::new(UnderWay::default());
                    all[to].from.push(Source {
                        ring: other_end,
                        under_way: under_way.clone(),
                    });
                    Line {
                        ring,
                        under_way,
                        waiting: Vec::new(),
                        bell: all[to].bell.clone(),
                    }
                });
                all[from].lines.push(line);
            }
        }
        Ok(all)
    }

    /// What wakes this worker.
    pub fn bell(&self) -> Arc<Bell> {
        self.bell.clone()
    }

    /// To be called when rules have changed: who has the ports, in the order of the rules.
    pub fn rules_changed(&mut self, ports: &[PortWorkers]) {
        let numbers = ports.iter().map(|port| port.number as usize + 1);
        self.positions = vec![NOWHERE; numbers.max().unwrap_or(0)];
        for (position, port) in ports.iter().enumerate() {
            self.positions[port.number as usize] = position as u16;
        }
        self.ports = ports.to_vec();
        self.arrived.resize_with(ports.len(), Vec::new);
        self.leaving.resize_with(ports.len(), Vec::new);
    }

    /// Whether something came from others.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.from.iter().any(|source| !source.ring.is_empty())
    }

    /// Takes what others handed over: steers frames that arrived, and leaves those that are to be sent in
    /// [`Handover::leaving`]. Returns how much there was. `now` is in seconds.
    #[inline]
    pub fn take(
        &mut self,
        pipeline: &mut Pipeline<F>,
        rules: &Rules,
        now: u32,
        out: &mut Output<F>,
    ) -> usize {
        match self.has_work() {
            true => self.take_all(pipeline, rules, now, out),
            false => 0,
        }
    }

    #[inline(never)]
    fn take_all(
        &mut self,
        pipeline: &mut Pipeline<F>,
        rules: &Rules,
        now: u32,
        out: &mut Output<F>,
    ) -> usize {
        let mut total = 0;
        for at in 0..self.from.len() {
            total += self.take_from(at, pipeline, rules, now, out);
        }
        for (port, frames) in self.arrived.iter_mut().enumerate() {
            if frames.is_empty() {
                continue;
            }
            if pipeline.follows_probe() {
                pipeline.follow_probes(rules, port, frames, true, now, out);
            }
            pipeline.process_handed(rules, port, frames, now, out);
        }
        total
    }

    /// Takes what one worker has handed over; returns how much.
    fn take_from(
        &mut self,
        at: usize,
        pipeline: &mut Pipeline<F>,
        rules: &Rules,
        now: u32,
        out: &mut Output<F>,
    ) -> usize {
        let positions = &self.positions;
        let position = |number: u32| {
            let position = positions.get(number as usize).copied();
            position.filter(|&port| port != NOWHERE).map(usize::from)
        };
        let source = &mut self.from[at];
        // As many as a round takes from the ports themselves. With fewer, a ring would fill while its reader keeps up with its own ports.
        let most = BURST * self.ports.len().max(1);
        let (mut total, mut taken) = (0, 0);
        while total < most {
            let Ok(item) = source.ring.pop() else {
                break;
            };
            match item {
                Handed::Arrived {
                    port,
                    errand,
                    mut frames,
                } => {
                    taken += frames.len();
                    total += frames.len();
                    let Some(port) = position(port) else {
                        let lost = frames.drain(..).count() as u64;
                        pipeline.counters.lost(Drop::PortUnused, lost);
                        out.away.keep_list(frames);
                        continue;
                    };
                    let arrived = &mut self.arrived[port];
                    match errand {
                        Errand::Steer if arrived.is_empty() => std::mem::swap(arrived, &mut frames),
                        Errand::Steer => arrived.append(&mut frames),
                        Errand::Join => {
                            arrived.extend(frames.drain(..).filter_map(|frame| {
                                pipeline.put_away(rules, port, frame, errand, now, &mut out.away)
                            }));
                        }
                    }
                    out.away.keep_list(frames);
                }
                Handed::Leaving { port, mut frames } => {
                    taken += frames.len();
                    total += frames.len();
                    match position(port) {
                        Some(port) => self.leaving[port].append(&mut frames),
                        None => {
                            let lost = frames.drain(..).count() as u64;
                            pipeline.counters.lost(Drop::PortFull, lost);
                        }
                    }
                    out.away.keep_list(frames);
                }
                Handed::Heard(news) => {
                    total += 1;
                    let (port, mut heard) = *news;
                    if let Some(port) = position(port) {
                        heard.who.0 = port;
                        pipeline.hear(heard, now, out);
                    }
                }
            }
        }
        if taken > 0 {
            source.under_way.0.fetch_sub(taken, Ordering::Relaxed);
        }
        total
    }

    /// Takes what is for others out of the pipeline's output.
    #[inline]
    pub fn put(&mut self, out: &mut Output<F>) {
        if !out.away.is_empty() || !out.heard.is_empty() {
            self.put_all(out);
        }
    }

    #[inline(never)]
    fn put_all(&mut self, out: &mut Output<F>) {
        for away in out.away.drain() {
            let line = self.lines.get_mut(away.worker).and_then(Option::as_mut);
            if let (Some(line), Some(port)) = (line, self.ports.get(away.port)) {
                line.waiting.push(Handed::Arrived {
                    port: port.number,
                    errand: away.errand,
                    frames: away.frames,
                });
            }
        }
        for heard in out.heard.drain(..) {
            let Some(port) = self.ports.get(heard.who.0) else {
                continue;
            };
            for line in self.lines.iter_mut().flatten() {
                let news = Box::new((port.number, heard));
                line.waiting.push(Handed::Heard(news));
            }
        }
    }

    /// Takes frames that are to leave by a port of which this worker has no queue; false, and nothing is taken, when nobody
    /// has one.
    pub fn leave_to_others(&mut self, port: usize, frames: &mut Vec<F>) -> bool {
        let Some(role) = self.ports.get(port).filter(|port| !port.workers.is_empty()) else {
            return false;
        };
        let worker = role.workers[self.own % role.workers.len()];
        let Some(line) = self.lines.get_mut(worker).and_then(Option::as_mut) else {
            return false;
        };
        line.waiting.push(Handed::Leaving {
            port: role.number,
            frames: std::mem::take(frames),
        });
        true
    }

    /// A worker's round with the others when every worker has a queue of every port: hands over what is theirs, and takes
    /// and steers what is its own. Returns how much it took. `now` is in seconds.
    pub fn exchange(
        &mut self,
        pipeline: &mut Pipeline<F>,
        rules: &Rules,
        now: u32,
        out: &mut Output<F>,
    ) -> usize {
        self.put(out);
        let taken = self.take(pipeline, rules, now, out);
        // Fragments go on from here, and neighbours have spoken.
        self.put(out);
        self.flush(&mut pipeline.counters);
        taken
    }

    /// Puts all that waits into the rings. What finds no room is dropped and counted.
    pub fn flush(&mut self, counters: &mut Counters) {
        for line in self.lines.iter_mut().flatten() {
            if !line.waiting.is_empty() {
                line.flush(counters);
            }
        }
    }
}

impl<F> Line<F> {
    fn flush(&mut self, counters: &mut Counters) {
        // Only this side adds to it, so that there is no less room than this.
        let mut room = RING.saturating_sub(self.under_way.0.load(Ordering::Relaxed));
        let mut added = 0;
        for mut item in self.waiting.drain(..) {
            let (mut count, mut steered) = (0, 0);
            if let Handed::Arrived { frames, .. } | Handed::Leaving { frames, .. } = &mut item {
                let lost = frames.len().saturating_sub(room);
                frames.truncate(room);
                counters.lost(Drop::HandoverFull, lost as u64);
                count = frames.len();
                if count == 0 {
                    continue;
                }
            }
            if matches!(item, Handed::Arrived { .. }) {
                steered = count as u64;
            }
            // What the other side takes away must have been added before.
            self.under_way.0.fetch_add(count, Ordering::Relaxed);
            match self.ring.push(item) {
                Ok(()) => {
                    counters.events_add(Event::HandedOver, steered);
                    room -= count;
                    added += 1;
                }
                Err(PushError::Full(item)) => {
                    self.under_way.0.fetch_sub(count, Ordering::Relaxed);
                    match item {
                        Handed::Heard(_) => counters.event(Event::NeighbourUntold),
                        _ => counters.lost(Drop::HandoverFull, count as u64),
                    }
                }
            }
        }
        if added > 0 {
            self.bell.ring_if_asleep();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::HeapFrame;
    use crate::pipeline::Settings;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    fn port(number: u32, workers: &[usize]) -> PortWorkers {
        PortWorkers {
            number,
            workers: workers.to_vec(),
        }
    }

    fn pipeline() -> Pipeline<HeapFrame> {
        let settings = Settings {
            memory_v4: 1 << 18,
            memory_v6: 1 << 20,
            hash_key: [3; 16],
        };
        Pipeline::new(&settings, &Rules::empty()).unwrap()
    }

    fn pair() -> [Handover<HeapFrame>; 2] {
        let all: Result<[_; 2], _> = Handover::among(2).unwrap().try_into();
        all.unwrap_or_else(|_| panic!("two workers"))
    }

    fn count<'a>(counters: impl Iterator<Item = (&'a str, u64)>, name: &str) -> u64 {
        counters
            .filter(|(one, _)| *one == name)
            .map(|(_, count)| count)
            .sum()
    }

    #[test]
    fn what_finds_no_room_is_dropped_and_counted() {
        let [mut from, _to] = pair();
        from.rules_changed(&[port(0, &[0, 1])]);
        let mut out = Output::default();
        for _ in 0..RING + 10 {
            out.away.push(1, Errand::Steer, 0, HeapFrame::new(&[0; 60]));
        }
        let mut counters = Counters::default();
        from.put(&mut out);
        from.flush(&mut counters);
        assert_eq!(count(counters.events(), "handed_over"), RING as u64);
        assert_eq!(
            counters.drops().collect::<Vec<_>>(),
            [("handover_full", 10)]
        );
    }

    #[test]
    fn frames_leave_by_the_worker_that_has_the_port() {
        let [mut from, mut to] = pair();
        from.rules_changed(&[port(5, &[1]), port(6, &[])]);
        // The other worker has newer rules, in which the port has another position.
        to.rules_changed(&[port(9, &[0]), port(5, &[1])]);
        let (mut pipeline, mut out) = (pipeline(), Output::default());
        let mut frames = vec![HeapFrame::new(&[7; 60])];
        assert!(from.leave_to_others(0, &mut frames) && frames.is_empty());
        from.flush(&mut Counters::default());
        assert_eq!(to.take(&mut pipeline, &Rules::empty(), 1, &mut out), 1);
        assert_eq!(to.leaving[1].len(), 1);
        assert_eq!(to.leaving[1][0].data(), [7; 60]);

        let mut frames = vec![HeapFrame::new(&[8; 60])];
        assert!(!from.leave_to_others(1, &mut frames), "nobody has it");
        assert_eq!(frames.len(), 1, "it is still the caller's");
        // The port is gone when the frame is there.
        assert!(from.leave_to_others(0, &mut frames));
        from.flush(&mut Counters::default());
        to.rules_changed(&[port(9, &[0])]);
        to.take(&mut pipeline, &Rules::empty(), 1, &mut out);
        assert_eq!(count(pipeline.counters.drops(), "port_full"), 1);
    }

    #[test]
    fn a_sleeping_worker_is_woken_and_a_waking_one_left_alone() {
        let bell = Bell::new().unwrap();
        let rings = |bell: &Bell| {
            let mut descriptors = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
            poll(&mut descriptors, PollTimeout::ZERO).unwrap() == 1
        };
        bell.ring_if_asleep();
        assert!(!rings(&bell));
        assert!(!bell.lie_down(|| true), "there is work");
        assert!(bell.lie_down(|| false));
        bell.ring_if_asleep();
        assert!(rings(&bell));
        bell.get_up();
        assert!(!rings(&bell));
    }
}
