//! Bursts: packets are read first, their connections looked up together, then each is sent.
//!
//! A look-up waits for memory when there are many connections; looked up together, packets wait for each other's at once.
//! Only plain packets ([`crate::plain`]) are read ahead, which changes nothing; all others take their turn the long way.
//! So a burst comes to the same as its packets one by one.
//!
//! Packets read ahead whose connections need no decision, and whose way out no question, are sent in runs ([`ahead`]);
//! any other ends the run, takes its turn, and the next run begins behind it.
//!
//! Where there are several workers, a plain packet's home is known as soon as it is read; those of other workers are put
//! away before the others are looked up.

mod ahead;
mod at_home;
mod keys;
mod packet;
mod positions;
mod read;
mod train;

use crate::arrival::{Arrival, edge_entry};
use crate::family::Family;
use crate::frame::Frame;
use crate::pipeline::{Errand, Output, Pipeline};
use crate::plain::Remembered;
use crate::registry::PlaceId;
use crate::rules::{Hop, Rules};
use crate::trace::Sieve;
use at_home::AtHome;
use flow::{BURST, Found, Ipv4Key, Ipv6Key, Work};
use keys::Connections;
use packet::{LONG, Lane, Packet};
use read::Read;
use wire::ip::Fragmentation;
use wire::steering::Direction;

/// Packets of a burst and their connections; kept between bursts for its memory. It shares no line of the cache.
#[repr(align(64))]
pub(crate) struct Burst {
    packets: [Packet; BURST],
    /// Positions of the packets' keys at the edge they enter at.
    edge_slots: [Option<u8>; BURST],
    v4: Connections<Ipv4Key>,
    v6: Connections<Ipv6Key>,
    /// Nothing while packets are read.
    remembered: Option<Box<Remembered>>,
    homes: AtHome,
    /// For how many more bursts packets at home elsewhere are parted from the others as they are read.
    parts: u8,
    /// Whether a trace under way may want some of the packets.
    is_watched: bool,
    /// Whether a capture under way may want some of those received.
    is_captured: bool,
}

impl Default for Burst {
    fn default() -> Self {
        Burst {
            packets: [LONG; BURST],
            edge_slots: [None; BURST],
            v4: Connections::new(Ipv4Key::new(0, 0, 0, 0, 0, 0)),
            v6: Connections::new(Ipv6Key::new(0, 0, 0, 0, 0, 0)),
            remembered: None,
            homes: AtHome::default(),
            parts: 0,
            is_watched: false,
            is_captured: false,
        }
    }
}

impl Burst {
    /// To be called when rules change.
    pub(crate) fn forget_rules(&mut self) {
        self.remembered = None;
    }

    /// A packet as all others are known.
    fn arrival(&self, at: usize) -> Arrival {
        let packet = self.packets[at % BURST];
        let way = packet.way;
        Arrival {
            place: way.place(),
            from: way.hop(),
            length: packet.length(),
            offset: packet.offset() as u16,
            direction: way.direction(),
            over_tunnel: way.over_tunnel(),
            has_service_header: false,
            loop_guard: way.loop_guard(),
            tcp_flags: packet.tcp_flags(),
            is_error: false,
            fragmentation: Fragmentation::Whole,
        }
    }

    /// Looks up all connections: of packets from edges first what path they are on.
    #[inline(always)]
    fn look_up<F>(&mut self, rules: &Rules, pipeline: &Pipeline<F>) {
        if self.v4.edges.count > 0 {
            self.v4.edges.look_up(&pipeline.v4);
            let columns = (&mut self.packets, &mut self.edge_slots);
            enter(rules, &mut self.v4, columns, Lane::V4);
        }
        if self.v6.edges.count > 0 {
            self.v6.edges.look_up(&pipeline.v6);
            let columns = (&mut self.packets, &mut self.edge_slots);
            enter(rules, &mut self.v6, columns, Lane::V6);
        }
        self.v4.stages.look(&pipeline.v4);
        self.v6.stages.look(&pipeline.v6);
        // Meanwhile second buckets come from memory.
        self.v4.stages.work_out_ports(&rules.entropy);
        self.v6.stages.work_out_ports(&rules.entropy);
        self.v4.stages.look_again(&pipeline.v4);
        self.v6.stages.look_again(&pipeline.v6);
        let trace = pipeline.trace.as_ref();
        self.is_watched = trace.is_some_and(|trace| self.may_be_wanted(trace.sieve()));
    }

    /// Whether a trace with a sieve may want some of the packets: one look for all of them, as mostly it wants none.
    #[inline(always)]
    fn may_be_wanted(&self, sieve: Sieve) -> bool {
        let stages = &self.v4.stages;
        self.v6.stages.count > 0 || sieve.lets_some_through(&stages.keys[..stages.count.min(BURST)])
    }
}

/// Packets of a burst, and the positions of their keys at edges.
type Columns<'a> = (&'a mut [Packet; BURST], &'a mut [Option<u8>; BURST]);

/// Gives packets from edges the place that their connections have, if they have one.
#[inline]
fn enter<K: Family>(
    rules: &Rules,
    connections: &mut Connections<K>,
    (packets, edge_slots): Columns<'_>,
    lane: Lane,
) {
    let Connections { stages, edges } = connections;
    for slot in 0..edges.count.min(BURST) {
        let at = usize::from(edges.packets[slot]) % BURST;
        let Some(found) = edges.hits[slot].found() else {
            continue;
        };
        let (place, direction) = edge_entry(found.hops());
        if rules.stage(place).is_none() {
            continue;
        }
        let packet = &mut packets[at];
        packet.way = packet.way.moved(place, direction);
        let slot_at_stage = stages.push(stage_key(&edges.keys[slot], place, direction));
        *packet = packet.at(lane, slot_at_stage);
        edge_slots[at] = Some(slot as u8);
    }
}

/// The key at a stage of a connection that enters at an edge in a direction.
#[inline(always)]
fn stage_key<K: Family>(key: &K, place: PlaceId, direction: Direction) -> K {
    match direction {
        Direction::Forward => key.same_at(place),
        Direction::Reverse => key.answer_at(place),
    }
}

/// How far the flow tables had changed when a burst was looked up.
#[derive(Clone, Copy)]
struct AsOf {
    moves: u64,
}

impl AsOf {
    /// What was found then, if it still stands; found anew if not. Whether what was not found has come since tells who adds it.
    #[inline]
    fn still<K: Family, F>(
        self,
        pipeline: &Pipeline<F>,
        key: &K,
        found: Option<Found>,
    ) -> Option<Found> {
        match found {
            Some(_) if self.moves != pipeline.flow_moves => K::table(pipeline).get(key),
            _ => found,
        }
    }
}

/// [`Pipeline::go_through`], compiled for the processor.
struct GoThrough<'a, F, I, const SHARED: bool> {
    pipeline: &'a mut Pipeline<F>,
    rules: &'a Rules,
    port: usize,
    burst: &'a mut Burst,
    count: usize,
    frames: I,
    now: u32,
    out: &'a mut Output<F>,
}

impl<F: Frame, I: Iterator<Item = F>, const SHARED: bool> Work for GoThrough<'_, F, I, SHARED> {
    type Output = I;

    #[inline(always)]
    fn run(self) -> I {
        let (burst, frames) = (self.burst, self.frames);
        let (count, now, out) = (self.count, self.now, self.out);
        self.pipeline
            .go_through::<SHARED, I>(self.rules, self.port, burst, count, frames, now, out)
    }
}

impl<F: Frame> Pipeline<F> {
    /// Takes frames that arrived at a port, in their order, and empties the list. Those that are at home with another
    /// worker are in [`Output::away`] then. `now` is in seconds.
    pub fn process_burst(
        &mut self,
        rules: &Rules,
        port: usize,
        frames: &mut Vec<F>,
        now: u32,
        out: &mut Output<F>,
    ) {
        match self.sharing {
            None => self.process_frames::<false>(rules, port, (frames, false), now, out),
            Some(_) => self.process_frames::<true>(rules, port, (frames, false), now, out),
        }
    }

    /// The same for frames that are at home here, as the worker found that handed them over.
    pub fn process_handed(
        &mut self,
        rules: &Rules,
        port: usize,
        frames: &mut Vec<F>,
        now: u32,
        out: &mut Output<F>,
    ) {
        self.process_frames::<false>(rules, port, (frames, true), now, out);
    }

    #[inline]
    fn process_frames<const SHARED: bool>(
        &mut self,
        rules: &Rules,
        port: usize,
        (frames, handed): (&mut Vec<F>, bool),
        now: u32,
        out: &mut Output<F>,
    ) {
        let mut burst = self.burst.take().unwrap_or_default();
        let own = self.sharing.as_ref().map_or(0, |sharing| sharing.own());
        let mut frames = frames.drain(..);
        let processor = self.v4.processor();
        while frames.len() > 0 {
            let count = frames.len().min(BURST);
            processor.run(Read::<F, SHARED> {
                burst: &mut burst,
                rules,
                port,
                frames: &frames.as_slice()[..count],
                handed,
                pipeline: self,
            });
            if burst.is_captured {
                self.show_arrived(rules, port, &frames.as_slice()[..count], handed);
            }
            if SHARED && burst.homes.some_away() {
                let mut parted = std::mem::take(&mut self.parted);
                let received = frames.by_ref().take(count);
                burst
                    .homes
                    .part(port, received, own, &mut parted, &mut out.away);
                let (count, here) = (parted[own].len(), parted[own].drain(..));
                processor.run(GoThrough::<_, _, SHARED> {
                    pipeline: self,
                    rules,
                    port,
                    burst: &mut burst,
                    count,
                    frames: here,
                    now,
                    out,
                });
                self.parted = parted;
            } else {
                frames = processor.run(GoThrough::<_, _, SHARED> {
                    pipeline: self,
                    rules,
                    port,
                    burst: &mut burst,
                    count,
                    frames,
                    now,
                    out,
                });
            }
        }
        self.count_run();
        self.burst = Some(burst);
    }

    /// Looks up and sends the next `count` frames, which were read.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    fn go_through<const SHARED: bool, I: Iterator<Item = F>>(
        &mut self,
        rules: &Rules,
        port: usize,
        burst: &mut Burst,
        count: usize,
        mut frames: I,
        now: u32,
        out: &mut Output<F>,
    ) -> I {
        burst.look_up(rules, self);
        let as_of = AsOf {
            moves: self.flow_moves,
        };
        let mut at = 0;
        while at < count {
            let gone;
            (gone, frames) = self.go_along(rules, burst, at..count, as_of, frames, now, out);
            at += gone;
            if at < count
                && let Some(frame) = frames.next()
            {
                self.turn::<SHARED>(rules, port, as_of, burst, at, frame, now, out);
                at += 1;
            }
        }
        frames
    }

    /// Deals with one packet whose turn it is.
    #[allow(clippy::too_many_arguments)]
    #[inline(never)]
    fn turn<const SHARED: bool>(
        &mut self,
        rules: &Rules,
        port: usize,
        as_of: AsOf,
        burst: &Burst,
        at: usize,
        mut frame: F,
        now: u32,
        out: &mut Output<F>,
    ) {
        match burst.packets[at % BURST].lane() {
            Lane::V4 if self.go_in(rules, as_of, burst, &burst.v4, at, &mut frame, now) => {
                self.go_on(rules, as_of, burst, &burst.v4, at, frame, now, out);
            }
            Lane::V6 if self.go_in(rules, as_of, burst, &burst.v6, at, &mut frame, now) => {
                self.go_on(rules, as_of, burst, &burst.v6, at, frame, now, out);
            }
            _ if SHARED && !burst.homes.is_here(at) => {
                let (errand, away) = (Errand::Steer, &mut out.away);
                if let Some(frame) = self.put_away(rules, port, frame, errand, now, away) {
                    self.take_in(rules, port, frame, now, out);
                }
            }
            _ => self.take_in(rules, port, frame, now, out),
        }
    }

    /// Sends a packet that was read ahead, wherever its connection goes.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn go_on<K: Family>(
        &mut self,
        rules: &Rules,
        as_of: AsOf,
        burst: &Burst,
        connections: &Connections<K>,
        at: usize,
        frame: F,
        now: u32,
        out: &mut Output<F>,
    ) {
        let (key, found) = connections.stages.get(burst.packets[at % BURST].slot());
        let found = as_of.still(self, key, found);
        self.steer(rules, &burst.arrival(at), key, found, frame, now, out);
    }

    /// What entering at an edge does to a packet that was read ahead, if that is where it comes from; false, and nothing is
    /// done, when its connection is on another path by now.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn go_in<K: Family>(
        &mut self,
        rules: &Rules,
        as_of: AsOf,
        burst: &Burst,
        connections: &Connections<K>,
        at: usize,
        frame: &mut F,
        now: u32,
    ) -> bool {
        let Some(slot) = burst.edge_slots[at] else {
            return true;
        };
        let arrival = burst.arrival(at);
        let (key, found) = connections.edges.get(slot.into());
        let (Some(found), Some(Hop::Edge(edge))) =
            (as_of.still(self, key, found), rules.hop(arrival.from))
        else {
            return false;
        };
        let is_new = self.begins_anew::<K>(found, arrival.tcp_flags, now);
        if is_new || edge_entry(found.hops()) != (arrival.place, arrival.direction) {
            return false;
        }
        let seen = flow::Direction::Forward;
        K::table_mut(self).on_packet(found.position, arrival.tcp_flags, seen, now);
        let start = usize::from(arrival.offset);
        let end = start + arrival.length as usize;
        if let Some(packet) = frame.data_mut().get_mut(start..end) {
            self.enter(rules, edge, &arrival, key.protocol(), packet);
        }
        true
    }
}
