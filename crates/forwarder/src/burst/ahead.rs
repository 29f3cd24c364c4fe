//! Packets that need no decision: their connection is known and so is its way out. Packets alike leave in one run.

use super::{AsOf, Burst, Lane};
use crate::arrival::spend_time_to_live;
use crate::counters::Drop;
use crate::exits::{Exit, ExitKind, TUNNEL_V4};
use crate::family::Family;
use crate::frame::Frame;
use crate::pipeline::{Output, Pipeline, ends, flow_direction};
use crate::plain::Way;
use crate::registry::HopId;
use crate::rules::Rules;
use crate::trace::Trace;
use flow::{BURST, FlowTable, Found, Work};
use std::ops::Range;
use wire::{ethernet, tcp};

/// Packets that come one behind the other, by the same way, and leave to the same hop.
#[derive(Clone, Copy)]
struct Run {
    way: Way,
    hop: HopId,
    is_v6: bool,
    packets: u32,
    bytes: u64,
}

/// The runs of a part of a burst.
pub(super) struct Runs {
    runs: [Run; BURST],
    count: usize,
}

impl Default for Runs {
    fn default() -> Self {
        let none = Run {
            way: Way::default(),
            hop: HopId(0),
            is_v6: false,
            packets: 0,
            bytes: 0,
        };
        Runs {
            runs: [none; BURST],
            count: 0,
        }
    }
}

/// [`Pipeline::prepare`], compiled for the processor.
pub(super) struct Prepare<'a, F> {
    pub(super) pipeline: &'a mut Pipeline<F>,
    pub(super) rules: &'a Rules,
    pub(super) burst: &'a mut Burst,
    pub(super) range: Range<usize>,
    pub(super) as_of: AsOf,
    pub(super) now: u32,
}

impl<F: Frame> Work for Prepare<'_, F> {
    type Output = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let Prepare {
            rules,
            burst,
            range,
            as_of,
            now,
            ..
        } = self;
        self.pipeline.prepare(rules, burst, range, as_of, now)
    }
}

/// [`Pipeline::send_prepared`], compiled for the processor.
pub(super) struct Send<'a, F, I> {
    pub(super) pipeline: &'a mut Pipeline<F>,
    pub(super) burst: &'a Burst,
    pub(super) at: usize,
    pub(super) frames: &'a mut I,
    pub(super) out: &'a mut Output<F>,
}

impl<F: Frame, I: Iterator<Item = F>> Work for Send<'_, F, I> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.pipeline
            .send_prepared(self.burst, self.at, self.frames, self.out);
    }
}

impl<F: Frame> Pipeline<F> {
    /// Counts from the start of `range` the packets that can leave without more ado, notes them in their connections' entries, and
    /// puts them in runs. The first of the others has its turn then.
    #[inline(always)]
    fn prepare(
        &mut self,
        rules: &Rules,
        burst: &mut Burst,
        range: Range<usize>,
        as_of: AsOf,
        now: u32,
    ) -> usize {
        let Burst {
            lanes,
            ways,
            shapes,
            slots,
            edge_slots,
            v4,
            v6,
            runs,
            ..
        } = burst;
        let start = range.start;
        runs.count = 0;
        if as_of.moves != self.flow_moves {
            return 0;
        }
        let sieve = self.trace.as_ref().map(Trace::sieve);
        let (mut limit, mut last) = (0, None);
        for at in range.start..range.end.min(BURST) {
            let slot = usize::from(slots[at]) % BURST;
            let found = match lanes[at] {
                Lane::V4 => v4.stages.found[slot],
                Lane::V6 => v6.stages.found[slot],
                Lane::Long => None,
            };
            let Some(found) = found else {
                return at - start;
            };
            let (way, shape) = (ways[at], shapes[at]);
            if let Some(sieve) = sieve {
                let key = &v4.stages.keys[slot];
                let wanted = match lanes[at] {
                    Lane::V6 => self.is_traced(&v6.stages.keys[slot], way),
                    _ if !sieve.lets_through(key.source(), key.destination()) => false,
                    _ => self.is_traced(key, way),
                };
                if wanted {
                    return at - start;
                }
            }
            let (towards, origin) = ends(found.hops, way.direction());
            // A SYN that enters may have to offer less.
            let is_syn = shape.tcp_flags & tcp::SYN != 0;
            if origin != way.hop() || (way.entered() && is_syn) {
                return at - start;
            }
            let is_v6 = lanes[at] == Lane::V6;
            if last != Some((way, towards, is_v6)) {
                let Some(largest) = self.largest(rules, way, towards) else {
                    return at - start;
                };
                limit = largest;
                last = Some((way, towards, is_v6));
                runs.runs[runs.count % BURST] = Run {
                    way,
                    hop: towards,
                    is_v6,
                    packets: 0,
                    bytes: 0,
                };
                runs.count += 1;
            }
            if shape.length > limit {
                return at - start;
            }
            let (direction, flags) = (flow_direction(way.direction()), shape.tcp_flags);
            let edge_slot = usize::from(edge_slots[at]) % BURST;
            if is_v6 {
                let entry = way.entered().then_some(v6.edges.found[edge_slot]);
                note(&mut self.v6, found, entry.flatten(), flags, direction, now);
            } else {
                let entry = way.entered().then_some(v4.edges.found[edge_slot]);
                note(&mut self.v4, found, entry.flatten(), flags, direction, now);
            }
            let run = &mut runs.runs[(runs.count - 1) % BURST];
            run.packets += 1;
            run.bytes += u64::from(shape.length);
        }
        range.end - start
    }

    /// Whether a trace wants a packet.
    #[cold]
    fn is_traced<K: Family>(&self, key: &K, way: Way) -> bool {
        let tuple = key.tuple(way.direction());
        let mut trace = self.trace.iter();
        trace.any(|trace| trace.wants(&tuple))
    }

    /// Bytes of the largest packet that may leave to a hop without more ado; none when there is some.
    #[inline(always)]
    fn largest(&mut self, rules: &Rules, way: Way, hop: HopId) -> Option<u32> {
        let direction = way.direction();
        let neighbours = &self.neighbours;
        let exit = self.exits.fresh(rules, neighbours, hop, direction)?;
        if !exit.is_usable || !exit.is_known() {
            return None;
        }
        let (kind, largest) = (exit.kind, exit.mtu);
        match kind {
            ExitKind::Attachment => Some(largest),
            ExitKind::TunnelV4 | ExitKind::TunnelV6 => {
                self.exits.labels(way.place(), direction, 0)?;
                Some(largest)
            }
            ExitKind::Encoded | ExitKind::Edge | ExitKind::Gone => None,
        }
    }

    /// Sends the runs that were prepared, from the packet `at` of the burst, and counts them.
    #[inline(always)]
    fn send_prepared(
        &mut self,
        burst: &Burst,
        mut at: usize,
        frames: &mut impl Iterator<Item = F>,
        out: &mut Output<F>,
    ) {
        for run in &burst.runs.runs[..burst.runs.count.min(BURST)] {
            let (way, packets) = (run.way, run.packets as usize);
            if packets == 0 {
                continue;
            }
            self.count_packets(
                (way.place(), way.direction()),
                run.hop,
                way.over_tunnel(),
                run.packets.into(),
                run.bytes,
            );
            let Some(exit) = self.exits.get(run.hop, way.direction()) else {
                continue;
            };
            let guard = way.loop_guard();
            let labels = self.exits.labels(way.place(), way.direction(), guard);
            let list = out.list(usize::from(exit.port));
            list.reserve(packets);
            let (mut unsent, labels) = (0, labels.unwrap_or(0));
            let plainest = exit.kind == ExitKind::TunnelV4 && !run.is_v6 && !way.entered();
            for (frame, at) in frames.by_ref().take(packets).zip(at..) {
                let left = match plainest {
                    true => leave_by_tunnel(burst, at % BURST, exit, labels, frame),
                    false => leave(burst, at % BURST, exit, labels, frame),
                };
                match left {
                    Some(frame) => list.push(frame),
                    None => unsent += 1,
                }
            }
            at += packets;
            for _ in 0..unsent {
                self.counters.drop(Drop::NoHeadroom.into());
            }
        }
    }
}

/// Notes a packet in its connection's entry, and in that of the edge it entered at.
#[inline(always)]
fn note<K: Family>(
    table: &mut FlowTable<K>,
    found: Found,
    at_edge: Option<Found>,
    tcp_flags: u8,
    direction: flow::Direction,
    now: u32,
) {
    if let Some(at_edge) = at_edge {
        let seen = flow::Direction::Forward;
        table.on_packet(at_edge.position, tcp_flags, seen, now);
    }
    table.on_packet(found.position, tcp_flags, direction, now);
}

/// [`leave`] as most packets do: IPv4 that did not enter at an edge, by a tunnel over IPv4.
#[inline(always)]
fn leave_by_tunnel<F: Frame>(
    burst: &Burst,
    at: usize,
    exit: &Exit,
    labels: u64,
    mut frame: F,
) -> Option<F> {
    let shape = burst.shapes[at];
    let length = shape.length;
    if !frame.reframe(usize::from(shape.offset), length as usize, TUNNEL_V4) {
        return None;
    }
    let slot = usize::from(burst.slots[at]) % BURST;
    let port = burst.v4.stages.ports[slot];
    exit.write_tunnel_v4(frame.data_mut(), length, port, labels);
    Some(frame)
}

/// Puts the header of a way out in front of a packet; nothing when its buffer has no room.
#[inline(always)]
fn leave<F: Frame>(burst: &Burst, at: usize, exit: &Exit, labels: u64, mut frame: F) -> Option<F> {
    let shape = burst.shapes[at];
    let length = shape.length;
    let is_v6 = burst.lanes[at] == Lane::V6;
    if burst.ways[at].entered()
        && let Some(packet) = frame.data_mut().get_mut(usize::from(shape.offset)..)
    {
        spend_time_to_live(packet, is_v6);
    }
    if !frame.reframe(usize::from(shape.offset), length as usize, exit.length()) {
        return None;
    }
    let slot = usize::from(burst.slots[at]) % BURST;
    if exit.kind == ExitKind::Attachment {
        let ether_type = if is_v6 {
            ethernet::IPV6
        } else {
            ethernet::IPV4
        };
        exit.write_ethernet(frame.data_mut(), ether_type);
    } else {
        let port = if is_v6 {
            burst.v6.stages.ports[slot]
        } else {
            burst.v4.stages.ports[slot]
        };
        exit.write_tunnel(frame.data_mut(), length, port, labels);
    }
    Some(frame)
}
