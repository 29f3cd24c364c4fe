//! A packet's way through the forwarder: arrival, look-up or choice, departure.

use crate::arrival::{Accepted, Arrival};
use crate::burst::Burst;
use crate::counters::{Counters, Drop, Event, Reason};
use crate::flow_files::Place;
use crate::fragments::Fragments;
use crate::frame::Frame;
use crate::housekeeping::Housekeeping;
use crate::neighbours::{Neighbours, Waiting};
use crate::registry::{HopId, PlaceId};
use crate::rules::{Hop, Rules};
use crate::trace::Trace;
use contracts::forwarder as contract;
use flow::consistent_hash::ConnectionHash;
use flow::{Found, Hops, Insertion, Ipv4Key, Ipv4Table, Ipv6Key, Ipv6Table};
use std::collections::HashMap;
use wire::steering::Direction;
use wire::{Addresses, FiveTuple, tcp};

/// Where frames leave.
pub struct Output<F> {
    /// Frames to send, by port.
    pub ports: Vec<Vec<F>>,
    /// Frames made here (answers, fragments).
    pub made: Vec<Made>,
}

/// A frame made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Port to leave by.
    pub port: usize,
    /// Received frames that leave by this port before it.
    pub behind: usize,
    /// The frame.
    pub bytes: Vec<u8>,
}

impl<F> Default for Output<F> {
    fn default() -> Self {
        Output {
            ports: Vec::new(),
            made: Vec::new(),
        }
    }
}

impl<F> Output<F> {
    /// Sends a frame that was made here, in its turn.
    #[cold]
    pub fn make(&mut self, port: usize, bytes: Vec<u8>) {
        let behind = self.ports.get(port).map_or(0, Vec::len);
        self.made.push(Made {
            port,
            behind,
            bytes,
        });
    }

    /// Turns what was made here into frames among the received ones, in their turn; `frame` may refuse one.
    #[cold]
    pub fn merge(&mut self, mut frame: impl FnMut(&[u8]) -> Option<F>) {
        let made = std::mem::take(&mut self.made);
        let ports = made.iter().map(|made| made.port + 1).max().unwrap_or(0);
        if self.ports.len() < ports {
            self.ports.resize_with(ports, Vec::new);
        }
        for (port, list) in self.ports.iter_mut().enumerate() {
            let mut own = made.iter().filter(|made| made.port == port).peekable();
            if own.peek().is_none() {
                continue;
            }
            let received = std::mem::take(list);
            for (position, received) in received.into_iter().enumerate() {
                while let Some(made) = own.next_if(|made| made.behind <= position) {
                    list.extend(frame(&made.bytes));
                }
                list.push(received);
            }
            list.extend(own.filter_map(|made| frame(&made.bytes)));
        }
    }

    /// Sends a frame that was received.
    #[inline]
    pub fn send(&mut self, port: usize, frame: F) {
        if self.ports.len() <= port {
            self.ports.resize_with(port + 1, Vec::new);
        }
        self.ports[port].push(frame);
    }
}

/// The state of one worker: flow tables, neighbours, counters.
pub struct Pipeline<F> {
    pub(crate) v4: Ipv4Table,
    pub(crate) v6: Ipv6Table,
    pub(crate) place: Place,
    pub(crate) neighbours: Neighbours<Waiting<F>>,
    pub(crate) fragments: Fragments,
    /// What happened so far.
    pub counters: Counters,
    /// A trace under way.
    pub trace: Option<Trace>,
    hash: ConnectionHash,
    /// Flow entries that use each hop, as of the last count.
    pub hop_flows: HashMap<HopId, u64>,
    /// Flow entries of each place, as of the last count.
    pub place_flows: HashMap<PlaceId, u64>,
    pub(crate) burst: Burst<F>,
    /// Grows whenever entries may move in the flow tables.
    pub(crate) flow_changes: u64,
    pub(crate) housekeeping: Housekeeping,
    pub(crate) settings: Settings,
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
        if v6.config().timeouts != timeouts {
            v6 = place.replace(&mut v6, &settings.tables(timeouts).1, now)?;
        }
        Ok(Pipeline {
            v4,
            v6,
            place,
            neighbours: Neighbours::default(),
            fragments: Fragments::default(),
            counters: Counters::default(),
            trace: None,
            hash: ConnectionHash::new(rules.selection_seed),
            hop_flows: HashMap::new(),
            place_flows: HashMap::new(),
            burst: Burst::default(),
            flow_changes: 0,
            housekeeping: Housekeeping::default(),
            settings: *settings,
            timeouts,
        })
    }

    /// To be called when rules have changed: makes room for counters, and follows ports that have other positions now.
    /// `now` is in seconds.
    ///
    /// # Errors
    /// There is no memory to give the flow tables other idle times; the rest of the change holds.
    pub fn rules_changed(
        &mut self,
        old: &Rules,
        new: &Rules,
        now: u32,
    ) -> Result<(), flow::ConfigError> {
        self.hash = ConnectionHash::new(new.selection_seed);
        self.counters.reserve(new.places.len(), new.hops.len());
        let moved: Vec<Option<usize>> = old
            .ports
            .iter()
            .map(|port| new.ports.iter().position(|other| other.name == port.name))
            .collect();
        let lost = self.neighbours.move_ports(&moved, Waiting::by);
        for _ in 0..lost {
            self.counters.drop(Drop::HopGone.into());
        }
        if self.timeouts != new.timeouts {
            self.change_timeouts(new.timeouts, now)?;
        }
        Ok(())
    }

    /// Connections in the tables.
    pub fn flow_entries(&self) -> u64 {
        (self.v4.len() + self.v6.len()) as u64
    }

    /// Takes one frame that arrived at a port. `now` is in seconds.
    #[inline]
    pub fn process(&mut self, rules: &Rules, port: usize, frame: F, now: u32, out: &mut Output<F>) {
        let mut frame = frame;
        match self.accept(rules, port, &mut frame, now, out) {
            Ok(Accepted::Packet(arrival)) => {
                let found = self.find(arrival.place, &arrival.forward_tuple());
                self.steer(rules, &arrival, found, frame, now, out);
            }
            Ok(Accepted::Control) => {}
            Err(reason) => self.counters.drop(reason),
        }
    }

    /// Finds where a packet goes, and sends it.
    #[inline]
    pub(crate) fn steer(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        found: Option<Found>,
        frame: F,
        now: u32,
        out: &mut Output<F>,
    ) {
        let decision = self.decide(rules, arrival, found, now);
        if self.trace.is_some() {
            self.record(rules, arrival, decision);
        }
        let sent = decision.and_then(|decision| {
            self.count(arrival, decision);
            self.depart(rules, arrival, decision.hop, frame, now, out)
        });
        if let Err(reason) = sent {
            self.counters.drop(reason);
        }
    }

    /// The hop of a packet's connection: the one it has, or a new choice.
    #[inline]
    fn decide(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        found: Option<Found>,
        now: u32,
    ) -> Result<Decision, Reason> {
        let tuple = arrival.forward_tuple();
        let Some(found) = found else {
            return self.choose(rules, arrival, &tuple, now);
        };
        let (towards, origin) = ends(found.hops, arrival.direction);
        if rules.hop(towards).is_some_and(Hop::is_usable) {
            if !arrival.is_error {
                self.note_packet(&tuple, found, arrival, now);
                if origin != arrival.from {
                    self.counters.event(Event::FlowHopMoved);
                    let hops = hops(arrival.from, towards, arrival.direction);
                    self.update(&tuple, found, hops);
                }
            }
            return Ok(Decision {
                hop: towards,
                new: false,
            });
        }
        self.choose_again(rules, arrival, &tuple, found, towards)
    }

    /// A connection's first packet at this stage.
    #[cold]
    fn choose(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        tuple: &FiveTuple,
        now: u32,
    ) -> Result<Decision, Reason> {
        let hop = self.pick(rules, arrival, tuple).ok_or(Drop::NoTarget)?;
        if arrival.is_error {
            // An error opens no connection: it goes where the connection it is about would go.
            return Ok(Decision { hop, new: false });
        }
        let mid_stream = tuple.protocol == tcp::PROTOCOL && arrival.ip.tcp_flags & tcp::SYN == 0;
        if mid_stream {
            self.counters.event(Event::FlowMidStream);
        }
        let hops = hops(arrival.from, hop, arrival.direction);
        match self.insert(arrival, tuple, hops, now) {
            Insertion::Full => self.counters.event(Event::FlowTableFullHashed),
            _ => self.counters.event(Event::FlowNew),
        }
        Ok(Decision { hop, new: true })
    }

    /// A connection whose hop went away or died.
    #[cold]
    fn choose_again(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        tuple: &FiveTuple,
        found: Found,
        old: HopId,
    ) -> Result<Decision, Reason> {
        match self.pick(rules, arrival, tuple) {
            Some(hop) => {
                self.counters.event(Event::FlowRechosen);
                self.update(tuple, found, hops(arrival.from, hop, arrival.direction));
                Ok(Decision { hop, new: true })
            }
            // Nobody else: a peer that is said to be down may still be there.
            None if matches!(rules.hop(old), Some(Hop::Peer(_))) => Ok(Decision {
                hop: old,
                new: false,
            }),
            None => Err(Drop::HopGone.into()),
        }
    }

    fn pick(&self, rules: &Rules, arrival: &Arrival, tuple: &FiveTuple) -> Option<HopId> {
        let stage = rules.stage(arrival.place)?;
        let end = stage.end(arrival.direction);
        let targets = if arrival.over_tunnel {
            &end.local
        } else {
            &end.all
        };
        let destination = match arrival.direction {
            Direction::Forward => tuple.destination(),
            Direction::Reverse => tuple.source(),
        };
        let connection = match keys(arrival.place, tuple) {
            Key::V4(key) => self.hash.of(&key),
            Key::V6(key) => self.hash.of(&key),
        };
        targets.choose(connection, destination)
    }

    /// The flow entry of a connection at a place.
    #[inline]
    pub(crate) fn find(&self, place: PlaceId, tuple: &FiveTuple) -> Option<Found> {
        match keys(place, tuple) {
            Key::V4(key) => self.v4.get(&key),
            Key::V6(key) => self.v6.get(&key),
        }
    }

    #[inline]
    fn note_packet(&mut self, tuple: &FiveTuple, found: Found, arrival: &Arrival, now: u32) {
        let direction = flow_direction(arrival.direction);
        let flags = arrival.ip.tcp_flags;
        if is_v6(tuple) {
            self.v6.on_packet(found.position, flags, direction, now);
        } else {
            self.v4.on_packet(found.position, flags, direction, now);
        }
    }

    fn update(&mut self, tuple: &FiveTuple, found: Found, hops: Hops) {
        if is_v6(tuple) {
            self.v6.update(found.position, hops);
        } else {
            self.v4.update(found.position, hops);
        }
    }

    fn insert(&mut self, arrival: &Arrival, tuple: &FiveTuple, hops: Hops, now: u32) -> Insertion {
        let direction = flow_direction(arrival.direction);
        self.insert_at(
            arrival.place,
            tuple,
            hops,
            arrival.ip.tcp_flags,
            direction,
            now,
        )
    }

    /// Adds an entry at any place.
    pub(crate) fn insert_at(
        &mut self,
        place: PlaceId,
        tuple: &FiveTuple,
        hops: Hops,
        flags: u8,
        direction: flow::Direction,
        now: u32,
    ) -> Insertion {
        self.flow_changes += 1;
        match keys(place, tuple) {
            Key::V4(key) => self.v4.insert(&key, hops, flags, direction, now),
            Key::V6(key) => self.v6.insert(&key, hops, flags, direction, now),
        }
    }

    /// Notes a packet of an edge's entry.
    pub(crate) fn note_at_edge(
        &mut self,
        tuple: &FiveTuple,
        found: Found,
        flags: u8,
        direction: flow::Direction,
        now: u32,
    ) {
        if is_v6(tuple) {
            self.v6.on_packet(found.position, flags, direction, now);
        } else {
            self.v4.on_packet(found.position, flags, direction, now);
        }
    }

    #[inline]
    fn count(&mut self, arrival: &Arrival, decision: Decision) {
        let bytes = arrival.ip.length as u64;
        if let Some(stage) = self.counters.stage(arrival.place, arrival.direction) {
            stage.packets += 1;
            stage.bytes += bytes;
            if !arrival.over_tunnel {
                stage.origin_packets += 1;
                stage.origin_bytes += bytes;
            }
            stage.new_flows += u64::from(decision.new);
        }
        if let Some(hop) = self.counters.hop(decision.hop) {
            hop.packets += 1;
            hop.new_flows += u64::from(decision.new);
        }
    }

    #[cold]
    fn record(&mut self, rules: &Rules, arrival: &Arrival, decision: Result<Decision, Reason>) {
        let tuple = arrival.tuple;
        let Some(trace) = self.trace.as_mut().filter(|trace| trace.wants(&tuple)) else {
            return;
        };
        let Some(stage) = rules.stage(arrival.place) else {
            return;
        };
        let (to, text) = match decision {
            Ok(Decision { hop, new: true }) => (rules.hop_name(hop), "new flow"),
            Ok(Decision { hop, new: false }) => (rules.hop_name(hop), "flow entry"),
            Err(reason) => (String::new(), reason.name()),
        };
        if !trace.wants_chain(&stage.customer, &stage.chain) {
            return;
        }
        trace.add(contract::TraceHop {
            time_unix_ns: unix_nanoseconds(),
            site: rules.site.clone(),
            forwarder: rules.forwarder.clone(),
            customer: stage.customer.clone(),
            chain: stage.chain.clone(),
            chain_label: stage.chain_label.get(),
            egress_label: stage.egress_label.get(),
            service_index: u32::from(stage.service_index(arrival.direction)),
            stage: u32::from(stage.number),
            direction: match arrival.direction {
                Direction::Forward => contract::Direction::Forward,
                Direction::Reverse => contract::Direction::Reverse,
            }
            .into(),
            from: rules.hop_name(arrival.from),
            to,
            decision: text.to_string(),
            source: tuple.source().to_string(),
            destination: tuple.destination().to_string(),
            protocol: u32::from(tuple.protocol),
            source_port: u32::from(tuple.source_port),
            destination_port: u32::from(tuple.destination_port),
        });
    }
}

/// Where a packet goes, and whether its connection chose just now.
#[derive(Clone, Copy, Debug)]
struct Decision {
    hop: HopId,
    new: bool,
}

pub(crate) enum Key {
    V4(Ipv4Key),
    V6(Ipv6Key),
}

#[inline]
pub(crate) fn keys(place: PlaceId, tuple: &FiveTuple) -> Key {
    let (protocol, from, to) = (tuple.protocol, tuple.source_port, tuple.destination_port);
    match tuple.addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            let (source, destination) =
                (u32::from_be_bytes(source), u32::from_be_bytes(destination));
            Key::V4(Ipv4Key::new(
                place.0,
                source,
                destination,
                protocol,
                from,
                to,
            ))
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let (source, destination) = (
                u128::from_be_bytes(source),
                u128::from_be_bytes(destination),
            );
            Key::V6(Ipv6Key::new(
                place.0,
                source,
                destination,
                protocol,
                from,
                to,
            ))
        }
    }
}

fn is_v6(tuple: &FiveTuple) -> bool {
    matches!(tuple.addresses, Addresses::V6 { .. })
}

fn hops(from: HopId, towards: HopId, direction: Direction) -> Hops {
    let (upstream, downstream) = match direction {
        Direction::Forward => (from, towards),
        Direction::Reverse => (towards, from),
    };
    Hops {
        upstream: upstream.0,
        downstream: downstream.0,
        tag: 0,
    }
}

/// Where packets of a direction go, and where they come from.
#[inline]
fn ends(hops: Hops, direction: Direction) -> (HopId, HopId) {
    match direction {
        Direction::Forward => (HopId(hops.downstream), HopId(hops.upstream)),
        Direction::Reverse => (HopId(hops.upstream), HopId(hops.downstream)),
    }
}

pub(crate) fn flow_direction(direction: Direction) -> flow::Direction {
    match direction {
        Direction::Forward => flow::Direction::Forward,
        Direction::Reverse => flow::Direction::Reverse,
    }
}

fn unix_nanoseconds() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as i64)
}
