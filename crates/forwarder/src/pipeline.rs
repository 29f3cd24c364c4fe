//! A packet's way through the forwarder: arrival, look-up or choice, departure.

mod again;
mod record;

use crate::arrival::{Accepted, Arrival};
use crate::burst::Burst;
use crate::capture::Capture;
use crate::counters::{Counters, Drop, Event, Reason};
use crate::errors::ErrorLimit;
use crate::exchange::Export;
use crate::exits::Exits;
use crate::family::{Family, Key, key};
use crate::flow_files::Place;
use crate::fragments::Fragments;
use crate::frame::Frame;
use crate::home::Sharing;
use crate::housekeeping::Housekeeping;
use crate::neighbours::{Neighbours, Waiting};
pub use crate::output::{Away, AwayFrames, Errand, Heard, Made, Output};
use crate::registry::{HopId, PlaceId};
use crate::rules::Rules;
use crate::trace::Trace;
use again::Turn;
use flow::consistent_hash::ConnectionHash;
use flow::{
    FlowEntry, FlowKey, FlowTable, Found, Hops, Insertion, InvalidTimeout, Ipv4Key, Ipv4Table,
    Ipv6Key, Ipv6Table, State, Verdict,
};
use std::collections::HashMap;
use wire::steering::Direction;
use wire::tcp;

/// The state of one worker: flow tables, neighbours, counters.
pub struct Pipeline<F> {
    pub(crate) v4: Ipv4Table,
    pub(crate) v6: Ipv6Table,
    pub(crate) neighbours: Neighbours<Waiting<F>>,
    pub(crate) fragments: Fragments,
    pub(crate) errors: ErrorLimit,
    /// Nothing where there is one worker.
    pub(crate) sharing: Option<Box<Sharing>>,
    /// Frames of a burst by the worker they are at home with, where there are several; empty between bursts.
    pub(crate) parted: Vec<Vec<F>>,
    /// What happened so far.
    pub counters: Counters,
    /// A trace under way.
    pub trace: Option<Trace>,
    /// A capture under way, or one whose reader has gone since the last look.
    pub capture: Option<Capture>,
    hash: ConnectionHash,
    /// Generation of the rules in force when the last count of flow entries began: all connections older than these are in it.
    pub counted_generation: u64,
    /// Flow entries that use each hop, as of the last count.
    pub hop_flows: HashMap<HopId, u64>,
    /// Flow entries of each place, as of the last count.
    pub place_flows: HashMap<PlaceId, u64>,
    pub(crate) exits: Exits,
    /// Nothing while a burst is under way.
    pub(crate) burst: Option<Box<Burst>>,
    /// Grows whenever an entry moves, goes or says something else: what was found before may be elsewhere now.
    pub(crate) flow_moves: u64,
    run: Run,
    /// Whether the last choice was made just now; for traces.
    new_choice: bool,
    /// What becomes of the packet whose hop was found just now, if it goes back or came back.
    turn: Option<Turn>,
    pub(crate) housekeeping: Housekeeping,
    /// A walk over all entries under way, for another forwarder.
    pub(crate) exporting: Option<Export>,
    pub(crate) timeouts: flow::Timeouts,
}

/// Memory and secrets of a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes that IPv4 flow entries may take.
    pub memory_v4: usize,
    /// Bytes that IPv6 flow entries may take.
    pub memory_v6: usize,
    /// Secret key of the flow tables.
    pub hash_key: [u8; 16],
}

impl<F: Frame> Pipeline<F> {
    /// A pipeline with empty tables.
    ///
    /// # Errors
    /// The flow tables' settings contradict each other or there is no memory.
    pub fn new(settings: &Settings, rules: &Rules) -> Result<Pipeline<F>, flow::ConfigError> {
        Self::with_tables(settings, rules, Place::Process, 0)
    }

    /// A pipeline whose tables lie at `place` and hold what they held there. `now` is in seconds.
    ///
    /// # Errors
    /// As for [`Pipeline::new`].
    pub fn with_tables(
        settings: &Settings,
        rules: &Rules,
        place: Place,
        now: u32,
    ) -> Result<Pipeline<F>, flow::ConfigError> {
        let (config_v4, config_v6) = settings.tables(rules.timeouts);
        let v4: Ipv4Table = place.table(&config_v4, now)?;
        let mut v6: Ipv6Table = place.table(&config_v6, now)?;
        let timeouts = v4.config().timeouts;
        v6.set_timeouts(&timeouts, now)?;
        Ok(Pipeline {
            v4,
            v6,
            neighbours: Neighbours::default(),
            fragments: Fragments::default(),
            errors: ErrorLimit::default(),
            sharing: None,
            parted: Vec::new(),
            counters: Counters::default(),
            trace: None,
            capture: None,
            hash: ConnectionHash::new(rules.selection_seed),
            counted_generation: 0,
            hop_flows: HashMap::new(),
            place_flows: HashMap::new(),
            exits: Exits::new(rules),
            burst: Some(Box::default()),
            flow_moves: 0,
            run: Run::default(),
            new_choice: false,
            turn: None,
            housekeeping: Housekeeping::default(),
            exporting: None,
            timeouts,
        })
    }

    /// To be called when rules have changed: makes room for counters, and follows ports that have other positions now.
    /// `now` is in seconds.
    ///
    /// # Errors
    /// An idle time is none; the rest of the change holds.
    pub fn rules_changed(
        &mut self,
        old: &Rules,
        new: &Rules,
        now: u32,
    ) -> Result<(), InvalidTimeout> {
        self.hash = ConnectionHash::new(new.selection_seed);
        self.counters.reserve(new.places.len(), new.hops.len());
        self.exits = Exits::new(new);
        if let Some(burst) = &mut self.burst {
            burst.forget_rules();
        }
        let moved: Vec<Option<usize>> = old
            .ports
            .iter()
            .map(|port| new.ports.iter().position(|other| other.name == port.name))
            .collect();
        let edges = new.ports.iter().map(|port| port.edges.len());
        self.neighbours.share_among(edges.sum::<usize>() + 1);
        for lost in self.neighbours.move_ports(&moved, Waiting::by) {
            self.counters.drop_at(Drop::HopGone.into(), lost.at);
        }
        if self.timeouts != new.timeouts {
            self.change_timeouts(&new.timeouts, now)?;
        }
        Ok(())
    }

    /// All flow entries, in no order. It stops for as long as it takes: not for the packet path. `now` is in seconds.
    pub fn flows(&mut self, now: u32) -> (Vec<FlowEntry<Ipv4Key>>, Vec<FlowEntry<Ipv6Key>>) {
        (all_flows(&mut self.v4, now), all_flows(&mut self.v6, now))
    }

    /// Connections in the tables.
    pub fn flow_entries(&self) -> u64 {
        (self.v4.len() + self.v6.len()) as u64
    }

    /// Entries that the tables have slots for. Where they lie makes some of these stay empty: from about nine tenths on,
    /// connections may find no room.
    pub fn flow_entries_limit(&self) -> u64 {
        (self.v4.stats().slots_limit + self.v6.stats().slots_limit) as u64
    }

    /// Has bursts of IPv4 connections looked up in something else.
    #[cfg(feature = "substitute")]
    pub fn substitute(&mut self, other: Option<Box<dyn flow::Substitute<Ipv4Key>>>) {
        self.v4.substitute(other);
    }

    /// The entry of a connection over IPv4.
    #[cfg(feature = "substitute")]
    pub fn entry_of(&self, key: &Ipv4Key) -> Option<flow::Found> {
        self.v4.get(key)
    }

    /// Has a thread bring in the memory that the flow tables grow into.
    pub fn bring_ahead(&mut self, ahead: &flow::PagesAhead) {
        self.v4.bring_ahead(ahead.clone());
        self.v6.bring_ahead(ahead.clone());
    }

    /// Takes one frame that arrived at a port and, where there are several workers, is at home here. `now` is in seconds.
    #[inline]
    pub fn process(&mut self, rules: &Rules, port: usize, frame: F, now: u32, out: &mut Output<F>) {
        self.take_in(rules, port, frame, now, out);
        self.count_run();
    }

    /// Takes a frame of any kind; what it adds to counters may still be in the run.
    pub(crate) fn take_in(
        &mut self,
        rules: &Rules,
        port: usize,
        mut frame: F,
        now: u32,
        out: &mut Output<F>,
    ) {
        self.alert_capture();
        match self.accept(rules, port, &mut frame, now, out) {
            Ok(Accepted::Packet(arrival, tuple)) => {
                match key(arrival.place, &tuple, arrival.direction) {
                    Key::V4(key) => {
                        let found = self.v4.get(&key);
                        self.steer(rules, &arrival, &key, found, frame, now, out);
                    }
                    Key::V6(key) => {
                        let found = self.v6.get(&key);
                        self.steer(rules, &arrival, &key, found, frame, now, out);
                    }
                }
            }
            Ok(Accepted::Control) => {}
            Err(refused) => self.counters.drop_at(refused.reason, refused.at),
        }
    }

    /// Finds where a packet goes, and sends it.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    pub(crate) fn steer<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        found: Option<Found>,
        frame: F,
        now: u32,
        out: &mut Output<F>,
    ) {
        self.new_choice = false;
        let decision = self.decide(rules, arrival, key, found, now);
        if self.trace.is_some() {
            self.record(rules, arrival, key, decision);
        }
        let sent = match decision {
            Ok(hop) => {
                self.count(arrival, hop);
                match self.turn.take() {
                    None => self.depart(rules, arrival, key, hop, frame, now, out),
                    Some(turn) => self.depart_on(rules, arrival, key, hop, turn, frame, now, out),
                }
            }
            Err(reason) => Err(reason),
        };
        if let Err(reason) = sent {
            self.counters.drop_at(reason, Some(arrival.at()));
        }
    }

    /// The hop of a packet's connection: the one it has, or a new choice.
    #[inline(always)]
    fn decide<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        found: Option<Found>,
        now: u32,
    ) -> Result<HopId, Reason> {
        match found {
            Some(found) => self.follow(rules, arrival, key, found, now),
            None => self.choose(rules, arrival, key, now),
        }
    }

    /// The hop that a connection has, or a new choice if that is of no use.
    #[inline(always)]
    fn follow<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        found: Found,
        now: u32,
    ) -> Result<HopId, Reason> {
        let (towards, origin) = ends(found.hops(), arrival.direction);
        if self.leads_on(rules, arrival, towards, origin) {
            if !arrival.is_error {
                let (flags, direction) = (arrival.tcp_flags, flow_direction(arrival.direction));
                if self.begins_anew::<K>(found, flags, now) {
                    return self.open_anew(rules, arrival, key, now);
                }
                let table = K::table_mut(self);
                let state = table.on_packet(found.position, flags, direction, now);
                if origin != arrival.from {
                    self.move_origin::<K>(arrival, found, state);
                }
            }
            return Ok(towards);
        }
        self.choose_again(rules, arrival, key, found, now)
    }

    /// A connection whose packets come from another hop than before, not from where that has moved to. A reset, or a SYN of a connection that is open
    /// already, says nothing of where it comes from: either can be anybody's.
    #[cold]
    fn move_origin<K: Family>(&mut self, arrival: &Arrival, found: Found, state: State) {
        let (towards, origin) = ends(found.hops(), arrival.direction);
        if !self.has_moved(arrival, origin) {
            return;
        }
        let flags = arrival.tcp_flags;
        if flags & tcp::RST != 0 || (may_open(flags) && state != State::New) {
            return;
        }
        self.counters.event(Event::FlowHopMoved);
        let hops = hops(arrival.from, towards, arrival.direction);
        self.update::<K>(found, hops);
    }

    /// A SYN with the ports of a connection that has ended: whatever that one chose, this one chooses by today's rules.
    #[cold]
    fn open_anew<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        now: u32,
    ) -> Result<HopId, Reason> {
        self.counters.event(Event::FlowReopened);
        self.forget(key);
        self.choose(rules, arrival, key, now)
    }

    /// A connection's first packet at this stage, or one of a connection that has come since this packet's was looked up.
    #[inline(never)]
    fn choose<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        now: u32,
    ) -> Result<HopId, Reason> {
        let Some(hop) = self.pick(rules, arrival, key) else {
            return match K::table(self).get(key) {
                Some(found) => self.follow(rules, arrival, key, found, now),
                None => self.find_nobody(arrival),
            };
        };
        if arrival.is_error {
            // An error opens no connection: it goes where the connection it is about would go.
            return Ok(hop);
        }
        let hops = hops(arrival.from, hop, arrival.direction);
        let direction = flow_direction(arrival.direction);
        match self.insert(key, hops, arrival.tcp_flags, direction, now) {
            Insertion::Present(found) => return self.follow(rules, arrival, key, found, now),
            Insertion::Full => {
                // Each of its packets comes here: none says whether the connection is new.
                self.counters.event(Event::FlowTableFullHashed);
                self.new_choice = true;
                return Ok(hop);
            }
            Insertion::New(_) => self.counters.event(Event::FlowNew),
        }
        if key.protocol() == tcp::PROTOCOL && !may_open(arrival.tcp_flags) {
            self.counters.event(Event::FlowMidStream);
        }
        self.count_new(arrival, hop);
        Ok(hop)
    }

    fn pick<K: Family>(&self, rules: &Rules, arrival: &Arrival, key: &K) -> Option<HopId> {
        let end = rules.stage(arrival.place)?.end(arrival.direction);
        let targets = if arrival.over_tunnel {
            &end.local
        } else {
            &end.all
        };
        if let Some(hop) = targets.sole() {
            return Some(hop);
        }
        targets.choose(
            self.hash.of(key),
            || key.destination_of(Direction::Reverse),
            || key.destination_of(arrival.direction),
        )
    }

    fn update<K: Family>(&mut self, found: Found, hops: Hops) {
        self.flow_moves += 1;
        K::table_mut(self).update(found.position, hops);
    }

    /// Adds an entry.
    pub(crate) fn insert<K: Family>(
        &mut self,
        key: &K,
        hops: Hops,
        flags: u8,
        direction: flow::Direction,
        now: u32,
    ) -> Insertion {
        let table = K::table_mut(self);
        let before = table.moves();
        let insertion = table.insert(key, hops, flags, direction, now);
        let moved = table.moves() != before;
        self.flow_moves += u64::from(moved);
        insertion
    }

    /// Removes an entry.
    pub(crate) fn forget<K: Family>(&mut self, key: &K) {
        self.flow_moves += 1;
        K::table_mut(self).remove(key);
    }

    /// Counts a packet in the run of packets alike.
    #[inline(always)]
    fn count(&mut self, arrival: &Arrival, hop: HopId) {
        let kind = RunKind {
            place: arrival.place,
            hop,
            direction: arrival.direction,
            over_tunnel: arrival.over_tunnel,
        };
        if self.run.kind != kind {
            self.count_run();
            self.run.kind = kind;
        }
        self.run.packets += 1;
        self.run.bytes += u64::from(arrival.length);
    }

    /// Adds the run of packets alike to the counters.
    #[inline]
    pub(crate) fn count_run(&mut self) {
        let Run {
            kind,
            packets,
            bytes,
        } = std::mem::take(&mut self.run);
        if packets > 0 {
            let stage = (kind.place, kind.direction);
            self.counters
                .passed(stage, kind.hop, kind.over_tunnel, packets, bytes);
        }
    }

    fn count_new(&mut self, arrival: &Arrival, hop: HopId) {
        self.new_choice = true;
        if let Some(stage) = self.counters.stage(arrival.place, arrival.direction) {
            stage.new_flows += 1;
        }
        if let Some(hop) = self.counters.hop(hop) {
            hop.new_flows += 1;
        }
    }
}

fn all_flows<K: FlowKey>(table: &mut FlowTable<K>, now: u32) -> Vec<FlowEntry<K>> {
    let mut entries = Vec::with_capacity(table.len());
    let scan = table.begin_scan();
    let everything = table.stats().buckets;
    while table.scan_step(&scan, everything, |visited| {
        entries.push(visited.entry(now));
        Verdict::Keep
    }) {}
    entries
}

/// What packets have in common that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunKind {
    place: PlaceId,
    hop: HopId,
    direction: Direction,
    over_tunnel: bool,
}

/// Packets alike that came one behind the other, not in the counters yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    kind: RunKind,
    packets: u64,
    bytes: u64,
}

impl Default for Run {
    fn default() -> Self {
        Run {
            kind: RunKind {
                place: PlaceId(0),
                hop: HopId(0),
                direction: Direction::Forward,
                over_tunnel: false,
            },
            packets: 0,
            bytes: 0,
        }
    }
}

fn hops(from: HopId, towards: HopId, direction: Direction) -> Hops {
    let (upstream, downstream) = match direction {
        Direction::Forward => (from, towards),
        Direction::Reverse => (towards, from),
    };
    Hops {
        upstream: upstream.0,
        downstream: downstream.0,
        opener: 0,
    }
}

/// Where packets of a direction go, and where they come from.
#[inline(always)]
pub(crate) fn ends(hops: Hops, direction: Direction) -> (HopId, HopId) {
    match direction {
        Direction::Forward => (HopId(hops.downstream), HopId(hops.upstream)),
        Direction::Reverse => (HopId(hops.upstream), HopId(hops.downstream)),
    }
}

/// Whether TCP flags are those of a connection's first packet: a SYN without an ACK.
#[inline(always)]
pub(crate) const fn may_open(tcp_flags: u8) -> bool {
    tcp_flags & (tcp::SYN | tcp::ACK) == tcp::SYN
}

pub(crate) fn flow_direction(direction: Direction) -> flow::Direction {
    match direction {
        Direction::Forward => flow::Direction::Forward,
        Direction::Reverse => flow::Direction::Reverse,
    }
}
