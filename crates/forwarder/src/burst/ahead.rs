//! Packets that need no decision: their connection is known and so is its way out. Packets alike leave in one run.

use super::keys::Connections;
use super::packet::{Lane, Packet};
use super::positions::Positions;
use super::{AsOf, Burst};
use crate::arrival::spend_time_to_live;
use crate::counters::{Counters, Drop};
use crate::exits::{Exit, ExitKind, Exits, TUNNEL_V4};
use crate::family::Family;
use crate::frame::Frame;
use crate::neighbours::Neighbours;
use crate::pipeline::{Output, Pipeline, ends, flow_direction};
use crate::plain::Way;
use crate::registry::HopId;
use crate::rules::Rules;
use crate::trace::{Sieve, Trace};
use flow::{BURST, FlowTable, Noting, Work};
use std::ops::Range;
use wire::{Addresses, ethernet};

/// Packets that are compared at once.
const TOGETHER: usize = 8;

/// What sending packets of one family takes.
struct Ahead<'a, K: Family, T> {
    rules: &'a Rules,
    burst: &'a Burst,
    connections: &'a Connections<K>,
    table: &'a mut FlowTable<K>,
    exits: &'a mut Exits,
    neighbours: &'a Neighbours<T>,
    counters: &'a mut Counters,
    trace: Option<(&'a Trace, Sieve)>,
    now: u32,
}

/// Packets that come one behind the other by the same way and whose entries say the same, and their way out.
struct Run<'a, K: Family> {
    burst: &'a Burst,
    connections: &'a Connections<K>,
    table: Noting<'a, K>,
    trace: Option<(&'a Trace, Sieve)>,
    /// The first of them.
    first: Packet,
    way: Way,
    /// Both hops of their entries.
    ends: u32,
    exit: &'a Exit,
    labels: u64,
}

/// [`Run::leave`], compiled for the processor, on its own: its loop needs all registers.
struct Leave<'a, 'b, K: Family, F, I, const SIMPLE: bool> {
    run: Run<'a, K>,
    range: Range<usize>,
    frames: I,
    list: &'b mut Vec<F>,
}

impl<K: Family, F: Frame, I: Iterator<Item = F>, const SIMPLE: bool> Work
    for Leave<'_, '_, K, F, I, SIMPLE>
{
    type Output = (Gone, I);

    #[inline(always)]
    fn run(self) -> (Gone, I) {
        let mut frames = self.frames;
        let gone = self
            .run
            .leave::<F, SIMPLE>(self.range, &mut frames, self.list);
        (gone, frames)
    }
}

/// What became of a run.
struct Gone {
    packets: usize,
    bytes: u64,
    /// Those whose buffers had no room.
    unsent: u64,
}

impl<F: Frame> Pipeline<F> {
    /// Sends packets from the start of `range`, as many as can leave without more ado; the first of the others has its turn
    /// then. Returns how many these were.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    pub(super) fn go_along<I: Iterator<Item = F>>(
        &mut self,
        rules: &Rules,
        burst: &Burst,
        mut range: Range<usize>,
        as_of: AsOf,
        mut frames: I,
        now: u32,
        out: &mut Output<F>,
    ) -> (usize, I) {
        let start = range.start;
        range.end = range.end.min(BURST);
        if as_of.moves != self.flow_moves {
            return (0, frames);
        }
        while range.start < range.end {
            let lane = burst.packets[range.start % BURST].lane();
            let trace = match burst.is_watched {
                true => sifted(&self.trace),
                false => None,
            };
            let (exits, neighbours) = (&mut self.exits, &self.neighbours);
            let counters = &mut self.counters;
            let gone;
            (gone, frames) = match lane {
                Lane::Long => (0, frames),
                Lane::V4 => Ahead {
                    rules,
                    burst,
                    connections: &burst.v4,
                    table: &mut self.v4,
                    exits,
                    neighbours,
                    counters,
                    trace,
                    now,
                }
                .leave(range.clone(), frames, out),
                Lane::V6 => Ahead {
                    rules,
                    burst,
                    connections: &burst.v6,
                    table: &mut self.v6,
                    exits,
                    neighbours,
                    counters,
                    trace,
                    now,
                }
                .leave(range.clone(), frames, out),
            };
            if gone == 0 {
                break;
            }
            range.start += gone;
        }
        (range.start - start, frames)
    }
}

impl<K: Family, T> Ahead<'_, K, T> {
    /// Sends the packets of a range that are like its first, up to one that needs a decision; returns how many.
    #[inline(always)]
    fn leave<F: Frame, I: Iterator<Item = F>>(
        self,
        range: Range<usize>,
        frames: I,
        out: &mut Output<F>,
    ) -> (usize, I) {
        let first = self.burst.packets[range.start % BURST];
        let (way, direction) = (first.way, first.way.direction());
        let Some(found) = self.connections.stages.hits[first.slot()].found() else {
            return (0, frames);
        };
        let (towards, origin) = ends(found.hops(), direction);
        if origin != way.hop() {
            return (0, frames);
        }
        let exits = self.exits;
        let exit = exits.fresh(self.rules, self.neighbours, towards, direction);
        if !is_ready(exit, origin) {
            return (0, frames);
        }
        let Some(exit) = exits.get(towards, direction) else {
            return (0, frames);
        };
        let guard = exit.guard(way.loop_guard(), way.over_tunnel());
        let labels = exits.labels(way.place(), direction, guard);
        let labels = match exit.kind {
            ExitKind::Attachment => 0,
            _ => match labels {
                Some(labels) => labels,
                None => return (0, frames),
            },
        };
        let list = out.list(usize::from(exit.port));
        list.reserve(range.len());
        let processor = self.table.processor();
        let run = Run {
            burst: self.burst,
            connections: self.connections,
            table: self.connections.stages.noting(self.table, self.now),
            trace: self.trace,
            first,
            way,
            ends: found.ends(),
            exit,
            labels,
        };
        let simple = exit.kind == ExitKind::TunnelV4 && !way.entered();
        let (gone, frames) = match simple && self.trace.is_none() {
            true => processor.run(Leave::<_, _, _, true> {
                run,
                range,
                frames,
                list,
            }),
            false => processor.run(Leave::<_, _, _, false> {
                run,
                range,
                frames,
                list,
            }),
        };
        let stage = (way.place(), direction);
        let packets = gone.packets as u64;
        let counters = self.counters;
        counters.passed(stage, towards, way.over_tunnel(), packets, gone.bytes);
        for _ in 0..gone.unsent {
            counters.drop_at(Drop::NoHeadroom.into(), Some(stage));
        }
        (gone.packets, frames)
    }
}

/// A trace under way, and its sieve.
#[inline(always)]
fn sifted(trace: &Option<Trace>) -> Option<(&Trace, Sieve)> {
    let trace = trace.as_ref()?;
    Some((trace, trace.sieve()))
}

/// Whether packets that come from a hop may take a way out without more ado, as far as it depends on the way alone.
#[inline(always)]
fn is_ready(exit: Option<&Exit>, from: HopId) -> bool {
    exit.is_some_and(|exit| {
        let kind = match exit.kind {
            ExitKind::Attachment | ExitKind::TunnelV4 | ExitKind::TunnelV6 => true,
            ExitKind::Encoded | ExitKind::Edge | ExitKind::Gone => false,
        };
        kind && exit.is_usable && exit.is_known() && exit.peer != from
    })
}

impl<K: Family> Run<'_, K> {
    /// Sends the packets of a range that belong to the run, up to the first that does not. `SIMPLE`: by a tunnel over IPv4,
    /// without having entered at an edge, while nobody is traced.
    #[inline(always)]
    fn leave<F: Frame, const SIMPLE: bool>(
        mut self,
        range: Range<usize>,
        frames: &mut impl Iterator<Item = F>,
        list: &mut Vec<F>,
    ) -> Gone {
        let start = range.start;
        let packets = self.burst.packets.get(range).unwrap_or_default();
        let (count, bytes) = match self.table.is_as_found() {
            true => self.note_together::<SIMPLE>(start, packets),
            false => self.note::<SIMPLE, false>(start, packets),
        };
        let first = list.len();
        // All together: one by one each frame would cost a look at both lists' ends.
        list.extend(frames.take(count));
        let mut stuck = Positions::NONE;
        for (at, (packet, frame)) in packets.iter().zip(&mut list[first..]).enumerate() {
            let slot = packet.slot();
            let framed = match SIMPLE {
                true => self.tunnelled(packet, slot, frame),
                false => self.frame(packet, slot, frame),
            };
            if !framed {
                add_stuck(&mut stuck, at);
            }
        }
        let unsent = match stuck.is_empty() {
            true => 0,
            false => take_out(list, first, &stuck),
        };
        Gone {
            packets: count,
            bytes,
            unsent,
        }
    }

    /// [`Run::note`], several at a time while they are alike and change nothing in their connections' entries.
    #[inline(always)]
    fn note_together<const SIMPLE: bool>(
        &mut self,
        start: usize,
        packets: &[Packet],
    ) -> (usize, u64) {
        let may_be_alike = SIMPLE || self.trace.is_none() && !self.way.entered();
        let (mut count, mut bytes) = (0, 0);
        for packets in packets.chunks(TOGETHER) {
            let some = match packets.as_array::<TOGETHER>() {
                Some(packets) if may_be_alike => self.bytes_if_alike(packets),
                _ => None,
            };
            let (gone, length) = match some {
                Some(length) => (TOGETHER, length),
                None => self.note::<SIMPLE, true>(start + count, packets),
            };
            (count, bytes) = (count + gone, bytes + length);
            if gone < packets.len() {
                break;
            }
        }
        (count, bytes)
    }

    /// The bytes of several packets, if all belong to the run, and noting them changes nothing.
    #[inline(always)]
    fn bytes_if_alike(&self, packets: &[Packet; TOGETHER]) -> Option<u64> {
        let (first, slot) = (packets[0], packets[0].slot());
        let hits = self.connections.stages.hits.get(slot..)?;
        let hits = hits.first_chunk::<TOGETHER>()?;
        let found = hits[0].found()?;
        let differs = first.differs_from(self.first) | u64::from(found.ends() ^ self.ends);
        let direction = flow_direction(self.way.direction());
        let flags = first.tcp_flags();
        if differs != 0 || !self.table.changes_nothing(&found, flags, direction) {
            return None;
        }
        let (mut unlike, mut longest, mut bytes) = (0, 0, 0);
        for (distance, (packet, hit)) in packets.iter().zip(hits).enumerate() {
            unlike |= packet.is_unlike(first, distance) | hit.differs_from(hits[0]);
            longest = longest.max(packet.length());
            bytes += u64::from(packet.length());
        }
        (unlike == 0 && longest <= self.exit.mtu).then_some(bytes)
    }

    /// Counts the packets that belong to the run, up to the first that does not, and their bytes, and notes them in their
    /// connections' entries. A loop of its own: what it waits for is not the frames.
    #[inline(always)]
    fn note<const SIMPLE: bool, const AS_FOUND: bool>(
        &mut self,
        start: usize,
        packets: &[Packet],
    ) -> (usize, u64) {
        let (direction, mut bytes) = (flow_direction(self.way.direction()), 0);
        let (first, ends) = (self.first, self.ends);
        let mut count = 0;
        for packet in packets {
            let slot = packet.slot();
            let Some(found) = self.connections.stages.hits[slot].found() else {
                break;
            };
            // A SYN that enters may have to offer less, and any may begin a connection anew. All in one word: few packets differ.
            let differs = packet.differs_from(first) | u64::from(found.ends() ^ ends);
            if differs != 0 || packet.length() > self.exit.mtu {
                break;
            }
            if !SIMPLE {
                if self.is_traced(slot) {
                    break;
                }
                if self.way.entered() {
                    self.note_at_edge(start + count, packet.tcp_flags());
                }
            }
            let flags = packet.tcp_flags();
            match AS_FOUND {
                true => self.table.on_packet_found(&found, flags, direction),
                false => _ = self.table.on_packet(found.position, flags, direction),
            }
            bytes += u64::from(packet.length());
            count += 1;
        }
        (count, bytes)
    }

    /// Whether a trace wants the packet whose key is at `slot`.
    #[inline]
    fn is_traced(&self, slot: usize) -> bool {
        let Some((trace, sieve)) = self.trace else {
            return false;
        };
        let key = &self.connections.stages.keys[slot];
        let passes = match key.addresses_of() {
            Addresses::V4 {
                source,
                destination,
            } => sieve.lets_through(source.into(), destination.into()),
            Addresses::V6 { .. } => true,
        };
        passes && trace.wants(&key.tuple(self.way.direction()))
    }

    /// Notes a packet in its connection's entry of the edge it entered at.
    #[inline]
    fn note_at_edge(&mut self, at: usize, tcp_flags: u8) {
        let Some(slot) = self.burst.edge_slots[at % BURST] else {
            return;
        };
        if let (_, Some(found)) = self.connections.edges.get(slot.into()) {
            let seen = flow::Direction::Forward;
            self.table.on_packet(found.position, tcp_flags, seen);
        }
    }

    /// Puts a tunnel's header over IPv4 in front of a packet; false when its buffer has no room.
    #[inline(always)]
    fn tunnelled<F: Frame>(&self, packet: &Packet, slot: usize, frame: &mut F) -> bool {
        let (offset, length) = (packet.offset(), packet.length());
        let Some(header) = frame.reframe_with::<TUNNEL_V4>(offset, length as usize) else {
            return false;
        };
        let port = self.connections.stages.ports[slot];
        self.exit.fill_tunnel_v4(header, length, port, self.labels);
        true
    }

    /// Puts the header of a way out in front of a packet; false when its buffer has no room.
    #[inline(always)]
    fn frame<F: Frame>(&self, packet: &Packet, slot: usize, frame: &mut F) -> bool {
        let (offset, length) = (packet.offset(), packet.length());
        if self.way.entered()
            && let Some(packet) = frame.data_mut().get_mut(offset..)
        {
            spend_time_to_live(packet, K::V6);
        }
        if !frame.reframe(offset, length as usize, self.exit.length()) {
            return false;
        }
        if self.exit.kind == ExitKind::Attachment {
            let ether_type = if K::V6 {
                ethernet::IPV6
            } else {
                ethernet::IPV4
            };
            self.exit.write_ethernet(frame.data_mut(), ether_type);
        } else {
            let port = self.connections.stages.ports[slot];
            let (bytes, labels) = (frame.data_mut(), self.labels);
            self.exit.write_tunnel(bytes, length, port, labels);
        }
        true
    }
}

/// Adds a packet of a run whose buffer had no room.
#[cold]
#[inline(never)]
fn add_stuck(stuck: &mut Positions, at: usize) {
    stuck.add(at);
}

/// Takes those packets of a run out of the end of a list, where the run begins at `first`; returns how many these were.
#[cold]
fn take_out<F>(list: &mut Vec<F>, first: usize, stuck: &Positions) -> u64 {
    let frames = list.split_off(first);
    let all = frames.len();
    let frames = frames.into_iter().enumerate();
    list.extend(frames.filter_map(|(at, frame)| (!stuck.has(at)).then_some(frame)));
    (first + all - list.len()) as u64
}
