//! Bursts: packets are read first, their connections looked up together, then each is sent.
//!
//! A look-up waits for memory when there are many connections; looked up together, packets wait for each other's at once.
//! Only plain packets ([`crate::plain`]) are read ahead, which changes nothing; all others take their turn the long way.
//! So a burst comes to the same as its packets one by one.

use crate::arrival::{Arrival, edge_entry};
use crate::family::Family;
use crate::frame::Frame;
use crate::pipeline::{Output, Pipeline};
use crate::plain::{Plain, Remembered, Shown};
use crate::registry::{HopId, PlaceId};
use crate::rules::{Hop, Rules};
use flow::{BURST, FlowTable, Found, Ipv4Key, Ipv6Key};
use wire::steering::Direction;

/// Which way a packet of a burst goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Not plain, or the first of its connection at an edge.
    Long,
    V4,
    V6,
}

/// Packets read ahead whose packets are this many places on are asked for from memory.
const AHEAD: usize = 4;

/// Stands for the position of a key at an edge.
const NO_EDGE: u8 = u8::MAX;

/// Packets of a burst, by column; kept between bursts for its memory.
pub(crate) struct Burst {
    lanes: [Lane; BURST],
    arrivals: [Arrival; BURST],
    /// Positions of the packets' keys among those of their family.
    slots: [u8; BURST],
    /// The same for their keys at the edge they enter at; [`NO_EDGE`] without one.
    edge_slots: [u8; BURST],
    v4: Connections<Ipv4Key>,
    v6: Connections<Ipv6Key>,
    remembered: Remembered,
}

/// Connections to look up, of one family.
struct Connections<K> {
    stages: Keys<K>,
    edges: Keys<K>,
}

/// Keys and what is found of them.
struct Keys<K> {
    keys: [K; BURST],
    found: [Option<Found>; BURST],
    /// Positions in the burst.
    packets: [u8; BURST],
    count: usize,
}

impl<K: Copy> Keys<K> {
    fn new(none: K) -> Keys<K> {
        Keys {
            keys: [none; BURST],
            found: [None; BURST],
            packets: [0; BURST],
            count: 0,
        }
    }

    /// Adds the key of a packet; returns its position.
    #[inline(always)]
    fn push(&mut self, key: K, packet: usize) -> u8 {
        let at = self.count % BURST;
        self.keys[at] = key;
        self.packets[at] = packet as u8;
        self.count += 1;
        at as u8
    }
}

impl<K: Family> Keys<K> {
    fn look_up(&mut self, table: &FlowTable<K>) {
        let count = self.count.min(BURST);
        if count > 0 {
            table.lookup_batch(&self.keys[..count], &mut self.found[..count]);
        }
    }
}

impl<K: Copy> Connections<K> {
    fn new(none: K) -> Connections<K> {
        Connections {
            stages: Keys::new(none),
            edges: Keys::new(none),
        }
    }
}

impl Default for Burst {
    fn default() -> Self {
        let nowhere = Arrival {
            place: PlaceId(0),
            from: HopId(0),
            length: 0,
            offset: 0,
            direction: Direction::Forward,
            over_tunnel: false,
            loop_guard: 0,
            tcp_flags: 0,
            is_error: false,
            is_later_fragment: false,
        };
        Burst {
            lanes: [Lane::Long; BURST],
            arrivals: [nowhere; BURST],
            slots: [0; BURST],
            edge_slots: [NO_EDGE; BURST],
            v4: Connections::new(Ipv4Key::new(0, 0, 0, 0, 0, 0)),
            v6: Connections::new(Ipv6Key::new(0, 0, 0, 0, 0, 0)),
            remembered: Remembered::default(),
        }
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
    #[inline(always)]
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

impl Burst {
    /// To be called when rules change.
    pub(crate) fn forget_rules(&mut self) {
        self.remembered = Remembered::default();
    }

    /// Reads the plain packets among some frames.
    fn read<F: Frame>(&mut self, rules: &Rules, port: usize, frames: &[F]) {
        for keys in [&mut self.v4.stages.count, &mut self.v4.edges.count] {
            *keys = 0;
        }
        for keys in [&mut self.v6.stages.count, &mut self.v6.edges.count] {
            *keys = 0;
        }
        let Some(mut plain) = Plain::new(rules, port, &mut self.remembered) else {
            self.lanes = [Lane::Long; BURST];
            return;
        };
        for (at, frame) in frames.iter().enumerate().take(BURST) {
            if let Some(next) = frames.get(at + AHEAD) {
                next.prefetch();
            }
            self.lanes[at] = Lane::Long;
            self.edge_slots[at] = NO_EDGE;
            if frame.has_stripped_vlan() {
                continue;
            }
            let Some(packet) = plain.read(frame.data()) else {
                continue;
            };
            let Arrival {
                place, direction, ..
            } = packet.arrival;
            self.arrivals[at] = packet.arrival;
            match (packet.shown, packet.edge) {
                (Shown::V4(words), None) => {
                    self.slots[at] = self.v4.stages.push(words.key(place, direction), at);
                    self.lanes[at] = Lane::V4;
                }
                (Shown::V4(words), Some(edge)) => {
                    self.v4.edges.push(words.key(edge, direction), at);
                }
                (Shown::V6(words), None) => {
                    self.slots[at] = self.v6.stages.push(words.key(place, direction), at);
                    self.lanes[at] = Lane::V6;
                }
                (Shown::V6(words), Some(edge)) => {
                    self.v6.edges.push(words.key(edge, direction), at);
                }
            }
        }
    }
    /// Looks up all connections: of packets from edges first what path they are on.
    fn look_up<F>(&mut self, rules: &Rules, pipeline: &Pipeline<F>) {
        if self.v4.edges.count > 0 {
            self.v4.edges.look_up(&pipeline.v4);
            let Connections { stages, edges } = &mut self.v4;
            for at in 0..edges.count {
                let columns = (&mut self.arrivals, &mut self.slots, &mut self.edge_slots);
                if let Some(packet) = place(rules, edges, stages, at, columns) {
                    self.lanes[packet] = Lane::V4;
                }
            }
        }
        if self.v6.edges.count > 0 {
            self.v6.edges.look_up(&pipeline.v6);
            let Connections { stages, edges } = &mut self.v6;
            for at in 0..edges.count {
                let columns = (&mut self.arrivals, &mut self.slots, &mut self.edge_slots);
                if let Some(packet) = place(rules, edges, stages, at, columns) {
                    self.lanes[packet] = Lane::V6;
                }
            }
        }
        self.v4.stages.look_up(&pipeline.v4);
        self.v6.stages.look_up(&pipeline.v6);
    }
}

/// Columns of a burst that say where packets are: arrivals, and positions of their keys at stages and edges.
type Columns<'a> = (
    &'a mut [Arrival; BURST],
    &'a mut [u8; BURST],
    &'a mut [u8; BURST],
);

/// Gives a packet from an edge the place that its connection has, if it has one; returns its position in the burst.
#[inline(always)]
fn place<K: Family>(
    rules: &Rules,
    edges: &Keys<K>,
    stages: &mut Keys<K>,
    at: usize,
    (arrivals, slots, edge_slots): Columns<'_>,
) -> Option<usize> {
    let at = at % BURST;
    let packet = usize::from(edges.packets[at]) % BURST;
    let (place, direction) = edge_entry(edges.found[at]?.hops);
    rules.stage(place)?;
    let key = stage_key(&edges.keys[at], place, direction);
    arrivals[packet].place = place;
    arrivals[packet].direction = direction;
    slots[packet] = stages.push(key, packet);
    edge_slots[packet] = at as u8;
    Some(packet)
}

/// The key at a stage of a connection that enters at an edge in a direction.
#[inline(always)]
fn stage_key<K: Family>(key: &K, place: PlaceId, direction: Direction) -> K {
    match direction {
        Direction::Forward => key.same_at(place),
        Direction::Reverse => key.answer_at(place),
    }
}

impl<F: Frame> Pipeline<F> {
    /// Takes frames that arrived at a port, in their order, and empties the list. `now` is in seconds.
    pub fn process_burst(
        &mut self,
        rules: &Rules,
        port: usize,
        frames: &mut Vec<F>,
        now: u32,
        out: &mut Output<F>,
    ) {
        let mut burst = self.burst.take().unwrap_or_default();
        let mut frames = frames.drain(..);
        while frames.len() > 0 {
            let count = frames.len().min(BURST);
            burst.read(rules, port, &frames.as_slice()[..count]);
            burst.look_up(rules, self);
            let as_of = AsOf {
                changes: self.flow_changes,
                moves: self.flow_moves,
            };
            for (at, frame) in frames.by_ref().take(count).enumerate() {
                let at = at % BURST;
                match burst.lanes[at] {
                    Lane::V4 => {
                        let packet = Ahead::new(&burst, &burst.v4, at);
                        self.go_on(rules, port, as_of, packet, frame, now, out);
                    }
                    Lane::Long => self.take_in(rules, port, frame, now, out),
                    Lane::V6 => {
                        let packet = Ahead::new(&burst, &burst.v6, at);
                        self.go_on(rules, port, as_of, packet, frame, now, out);
                    }
                }
            }
        }
        self.count_run();
        self.burst = Some(burst);
    }

    /// Sends a packet that was read ahead.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    fn go_on<K: Family>(
        &mut self,
        rules: &Rules,
        port: usize,
        as_of: AsOf,
        packet: Ahead<'_, K>,
        mut frame: F,
        now: u32,
        out: &mut Output<F>,
    ) {
        let Ahead {
            arrival,
            key,
            found,
            edge,
        } = packet;
        if let Some((key, found)) = edge
            && !self.go_on_from_edge(rules, as_of, arrival, key, found, &mut frame, now)
        {
            return self.take_in(rules, port, frame, now, out);
        }
        let found = as_of.still(self, key, found);
        self.steer(rules, arrival, key, found, frame, now, out);
    }

    /// What entering at an edge does to a packet that was read ahead; false, and nothing is done, when its connection is on
    /// another path by now.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    fn go_on_from_edge<K: Family>(
        &mut self,
        rules: &Rules,
        as_of: AsOf,
        arrival: &Arrival,
        key: &K,
        found: Option<Found>,
        frame: &mut F,
        now: u32,
    ) -> bool {
        let Some(found) = as_of.still(self, key, found) else {
            return false;
        };
        let Some(Hop::Edge(edge)) = rules.hop(arrival.from) else {
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
            self.enter(rules, edge, arrival, key.protocol(), packet);
        }
        true
    }
}

/// A packet that was read ahead.
struct Ahead<'a, K> {
    arrival: &'a Arrival,
    key: &'a K,
    found: Option<Found>,
    edge: Option<(&'a K, Option<Found>)>,
}

impl<'a, K> Ahead<'a, K> {
    #[inline(always)]
    fn new(burst: &'a Burst, connections: &'a Connections<K>, at: usize) -> Ahead<'a, K> {
        let slot = usize::from(burst.slots[at]) % BURST;
        let edge_slot = burst.edge_slots[at];
        Ahead {
            arrival: &burst.arrivals[at],
            key: &connections.stages.keys[slot],
            found: connections.stages.found[slot],
            edge: (edge_slot != NO_EDGE).then(|| {
                let slot = usize::from(edge_slot) % BURST;
                (&connections.edges.keys[slot], connections.edges.found[slot])
            }),
        }
    }
}
