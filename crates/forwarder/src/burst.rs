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

use crate::arrival::{Arrival, edge_entry};
use crate::family::Family;
use crate::frame::Frame;
use crate::home::Homes;
use crate::pipeline::{Errand, Output, Pipeline};
use crate::plain::{Ip, Plain, Remembered, Way};
use crate::registry::PlaceId;
use crate::rules::{Hop, Rules};
use ahead::{Prepare, Runs, Send};
use at_home::AtHome;
use flow::{BURST, Found, Ipv4Key, Ipv6Key, Work};
use keys::Connections;
use wire::ethernet;
use wire::steering::Direction;

/// How many packets on the bytes of a packet are asked for from memory, and how many on what says where they are.
const AHEAD: usize = 4;
const FAR_AHEAD: usize = 10;
/// Stands for the position of a key at an edge.
const NO_EDGE: u8 = u8::MAX;

/// Which way a packet of a burst goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Not plain, or the first of its connection at an edge.
    Long,
    V4,
    V6,
}

/// What is known of a packet besides its way and its connection.
#[derive(Clone, Copy, Default)]
struct Shape {
    /// Bytes of the IP packet.
    length: u32,
    /// Bytes in front of it.
    offset: u16,
    tcp_flags: u8,
}

/// Packets of a burst, by column; kept between bursts for its memory.
pub(crate) struct Burst {
    lanes: [Lane; BURST],
    ways: [Way; BURST],
    shapes: [Shape; BURST],
    /// Positions of the packets' keys among those of their family.
    slots: [u8; BURST],
    /// The same for their keys at the edge they enter at; [`NO_EDGE`] without one.
    edge_slots: [u8; BURST],
    v4: Connections<Ipv4Key>,
    v6: Connections<Ipv6Key>,
    runs: Runs,
    remembered: Remembered,
    homes: AtHome,
}

impl Default for Burst {
    fn default() -> Self {
        Burst {
            lanes: [Lane::Long; BURST],
            ways: [Way::default(); BURST],
            shapes: [Shape::default(); BURST],
            slots: [0; BURST],
            edge_slots: [NO_EDGE; BURST],
            v4: Connections::new(Ipv4Key::new(0, 0, 0, 0, 0, 0)),
            v6: Connections::new(Ipv6Key::new(0, 0, 0, 0, 0, 0)),
            runs: Runs::default(),
            remembered: Remembered::default(),
            homes: AtHome::default(),
        }
    }
}

impl Burst {
    /// To be called when rules change.
    pub(crate) fn forget_rules(&mut self) {
        self.remembered = Remembered::default();
    }

    /// A packet as all others are known.
    fn arrival(&self, at: usize) -> Arrival {
        let (way, shape) = (self.ways[at], self.shapes[at]);
        Arrival {
            place: way.place(),
            from: way.hop(),
            length: shape.length,
            offset: shape.offset,
            direction: way.direction(),
            over_tunnel: way.over_tunnel(),
            loop_guard: way.loop_guard(),
            tcp_flags: shape.tcp_flags,
            is_error: false,
            is_later_fragment: false,
        }
    }

    /// Reads the plain packets among some frames, and has their entries come from memory meanwhile. Where frames are
    /// shared among workers, those at home elsewhere are left out: columns are of the others alone.
    #[inline(always)]
    fn read<F: Frame, const SHARED: bool>(
        &mut self,
        rules: &Rules,
        port: usize,
        frames: &[F],
        pipeline: &Pipeline<F>,
    ) {
        self.v4.stages.clear();
        self.v4.edges.clear();
        self.v6.stages.clear();
        self.v6.edges.clear();
        self.lanes = [Lane::Long; BURST];
        self.edge_slots = [NO_EDGE; BURST];
        self.homes.clear();
        let (homes, own) = match &pipeline.sharing {
            Some(sharing) if SHARED => sharing.homes(),
            _ => (Homes::new([0; 16], 1), 0),
        };
        let Some(mut plain) = Plain::new(rules, port, &mut self.remembered) else {
            return;
        };
        frames
            .iter()
            .take(FAR_AHEAD)
            .for_each(Frame::prefetch_description);
        frames.iter().take(AHEAD).for_each(Frame::prefetch);
        let mut left = 0;
        for (position, frame) in frames.iter().enumerate().take(BURST) {
            if let Some(next) = frames.get(position + FAR_AHEAD) {
                next.prefetch_description();
            }
            if let Some(next) = frames.get(position + AHEAD) {
                next.prefetch();
            }
            let at = if SHARED { position - left } else { position };
            if frame.has_stripped_vlan() {
                continue;
            }
            let data = frame.data();
            let Some(located) = plain.locate(data) else {
                continue;
            };
            let Some(bytes) = data.get(located.offset..located.end) else {
                continue;
            };
            let way = located.way;
            self.ways[at] = way;
            match located.ether_type {
                ethernet::IPV4 => {
                    let Some(ip) = Ip::<u64>::read(bytes) else {
                        continue;
                    };
                    if SHARED {
                        let home = homes.of_v4(ip.addresses, ip.ports, ip.protocol);
                        if !self.homes.note(home, own, position, at) {
                            left += 1;
                            continue;
                        }
                    }
                    self.shapes[at] = Shape::new(located.offset, ip.length, ip.tcp_flags);
                    if !way.entered() {
                        self.slots[at] = self.v4.stages.push(ip.key(way), at);
                        self.lanes[at] = Lane::V4;
                        self.v4.stages.fetch_some(&pipeline.v4);
                    } else if plain.may_enter(way, ip.destination(), ip.ttl) {
                        self.v4.edges.push(ip.key(way), at);
                        self.v4.edges.fetch_some(&pipeline.v4);
                    }
                }
                ethernet::IPV6 => {
                    let Some(ip) = Ip::<[u128; 2]>::read(bytes) else {
                        continue;
                    };
                    if SHARED {
                        let home = homes.of_v6(ip.addresses, ip.ports, ip.protocol);
                        if !self.homes.note(home, own, position, at) {
                            left += 1;
                            continue;
                        }
                    }
                    self.shapes[at] = Shape::new(located.offset, ip.length, ip.tcp_flags);
                    if !way.entered() {
                        self.slots[at] = self.v6.stages.push(ip.key(way), at);
                        self.lanes[at] = Lane::V6;
                        self.v6.stages.fetch_some(&pipeline.v6);
                    } else if plain.may_enter(way, ip.destination(), ip.ttl) {
                        self.v6.edges.push(ip.key(way), at);
                        self.v6.edges.fetch_some(&pipeline.v6);
                    }
                }
                _ => {}
            }
        }
    }

    /// Looks up all connections: of packets from edges first what path they are on.
    fn look_up<F>(&mut self, rules: &Rules, pipeline: &Pipeline<F>) {
        if self.v4.edges.count > 0 {
            self.v4.edges.look_up(&pipeline.v4);
            let columns = (&mut self.ways, &mut self.slots, &mut self.edge_slots);
            enter(rules, &mut self.v4, columns, |at| {
                self.lanes[at] = Lane::V4;
            });
        }
        if self.v6.edges.count > 0 {
            self.v6.edges.look_up(&pipeline.v6);
            let columns = (&mut self.ways, &mut self.slots, &mut self.edge_slots);
            enter(rules, &mut self.v6, columns, |at| {
                self.lanes[at] = Lane::V6;
            });
        }
        self.v4.stages.look_up(&pipeline.v4);
        self.v6.stages.look_up(&pipeline.v6);
        pipeline.v4.processor().run(OuterPorts(self));
    }
}

impl Shape {
    #[inline(always)]
    fn new(offset: usize, length: u32, tcp_flags: u8) -> Shape {
        Shape {
            length,
            offset: offset as u16,
            tcp_flags,
        }
    }
}

/// Columns of a burst that say where packets are: ways, and positions of their keys at stages and edges.
type Columns<'a> = (
    &'a mut [Way; BURST],
    &'a mut [u8; BURST],
    &'a mut [u8; BURST],
);

/// Gives packets from edges the place that their connections have, if they have one, and says which these are.
#[inline]
fn enter<K: Family>(
    rules: &Rules,
    connections: &mut Connections<K>,
    (ways, slots, edge_slots): Columns<'_>,
    mut placed: impl FnMut(usize),
) {
    let Connections { stages, edges } = connections;
    for slot in 0..edges.count.min(BURST) {
        let packet = usize::from(edges.packets[slot]) % BURST;
        let Some(found) = edges.found[slot] else {
            continue;
        };
        let (place, direction) = edge_entry(found.hops);
        if rules.stage(place).is_none() {
            continue;
        }
        ways[packet] = ways[packet].moved(place, direction);
        slots[packet] = stages.push(stage_key(&edges.keys[slot], place, direction), packet);
        edge_slots[packet] = slot as u8;
        placed(packet);
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
    changes: u64,
    moves: u64,
}

impl AsOf {
    /// What was found then, if it still stands; found anew if not.
    #[inline]
    fn still<K: Family, F>(
        self,
        pipeline: &Pipeline<F>,
        key: &K,
        found: Option<Found>,
    ) -> Option<Found> {
        let stands = match found {
            Some(_) => self.moves == pipeline.flow_moves,
            None => self.changes == pipeline.flow_changes,
        };
        if stands {
            found
        } else {
            K::table(pipeline).get(key)
        }
    }
}

/// [`Burst::read`], compiled for the processor.
struct Read<'a, F: Frame, const SHARED: bool> {
    burst: &'a mut Burst,
    rules: &'a Rules,
    port: usize,
    frames: &'a [F],
    pipeline: &'a Pipeline<F>,
}

impl<F: Frame, const SHARED: bool> Work for Read<'_, F, SHARED> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (rules, frames) = (self.rules, self.frames);
        self.burst
            .read::<F, SHARED>(rules, self.port, frames, self.pipeline);
    }
}

/// [`keys::Keys::work_out_ports`] of all that was looked up at stages.
struct OuterPorts<'a>(&'a mut Burst);

impl Work for OuterPorts<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.0.v4.stages.work_out_ports();
        self.0.v6.stages.work_out_ports();
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
            None => self.process_frames::<false>(rules, port, frames, now, out),
            Some(_) => self.process_frames::<true>(rules, port, frames, now, out),
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
        self.process_frames::<false>(rules, port, frames, now, out);
    }

    #[inline]
    fn process_frames<const SHARED: bool>(
        &mut self,
        rules: &Rules,
        port: usize,
        frames: &mut Vec<F>,
        now: u32,
        out: &mut Output<F>,
    ) {
        let mut burst = self.burst.take().unwrap_or_default();
        let mut frames = frames.drain(..);
        let processor = self.v4.processor();
        while frames.len() > 0 {
            let count = frames.len().min(BURST);
            processor.run(Read::<F, SHARED> {
                burst: &mut burst,
                rules,
                port,
                frames: &frames.as_slice()[..count],
                pipeline: self,
            });
            if SHARED && burst.homes.some_away() {
                let mut staying = std::mem::take(&mut self.staying);
                let received = frames.by_ref().take(count);
                burst
                    .homes
                    .part(port, received, &mut staying, &mut out.away);
                let (count, mut here) = (staying.len(), staying.drain(..));
                self.go_through::<SHARED>(rules, port, &mut burst, count, &mut here, now, out);
                drop(here);
                self.staying = staying;
            } else {
                self.go_through::<SHARED>(rules, port, &mut burst, count, &mut frames, now, out);
            }
        }
        self.count_run();
        self.burst = Some(burst);
    }

    /// Looks up and sends the next `count` frames, which were read.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    fn go_through<const SHARED: bool>(
        &mut self,
        rules: &Rules,
        port: usize,
        burst: &mut Burst,
        count: usize,
        frames: &mut impl Iterator<Item = F>,
        now: u32,
        out: &mut Output<F>,
    ) {
        let processor = self.v4.processor();
        burst.look_up(rules, self);
        let as_of = AsOf {
            changes: self.flow_changes,
            moves: self.flow_moves,
        };
        let mut at = 0;
        while at < count {
            let ready = processor.run(Prepare {
                pipeline: self,
                rules,
                burst,
                range: at..count,
                as_of,
                now,
            });
            processor.run(Send {
                pipeline: self,
                burst,
                at,
                frames,
                out,
            });
            at += ready;
            if at < count
                && let Some(frame) = frames.next()
            {
                self.turn::<SHARED>(rules, port, as_of, burst, at, frame, now, out);
                at += 1;
            }
        }
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
        match burst.lanes[at] {
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
        let (key, found) = connections.stages.get(burst.slots[at]);
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
        let slot = burst.edge_slots[at];
        if slot == NO_EDGE {
            return true;
        }
        let arrival = burst.arrival(at);
        let (key, found) = connections.edges.get(slot);
        let (Some(found), Some(Hop::Edge(edge))) =
            (as_of.still(self, key, found), rules.hop(arrival.from))
        else {
            return false;
        };
        if edge_entry(found.hops) != (arrival.place, arrival.direction) {
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
