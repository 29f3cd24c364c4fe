//! Reading the plain packets of a burst: what they are, which connections', and whose those are.

use super::Burst;
use super::at_home::AtHome;
use super::keys::Keys;
use super::packet::{LONG, Lane, Packet};
use super::train::Follow;
use crate::capture::Capture;
use crate::family::Family;
use crate::frame::Frame;
use crate::home::{Homes, PortReach, Reach};
use crate::pipeline::Pipeline;
use crate::plain::{Ip, Located, Plain, Way};
use crate::rules::Rules;
use crate::trace::Sieve;
use flow::{BURST, FETCH, Ipv4Table, Ipv6Table, Work};
use wire::ethernet;

/// How many packets on a frame is asked for from memory, and from another processor's cache.
const AHEAD: usize = 8;
const AHEAD_HANDED: usize = 20;
/// Bursts without a packet of another worker, after which the next one is presumed to have none.
const PATIENCE: u8 = 16;

/// [`Burst::read`], compiled for the processor.
pub(super) struct Read<'a, F: Frame, const SHARED: bool> {
    pub(super) burst: &'a mut Burst,
    pub(super) rules: &'a Rules,
    pub(super) port: usize,
    pub(super) frames: &'a [F],
    /// Whether another worker handed them over.
    pub(super) handed: bool,
    pub(super) pipeline: &'a Pipeline<F>,
}

impl<F: Frame, const SHARED: bool> Work for Read<'_, F, SHARED> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let received = Received {
            frames: self.frames,
            ahead: match self.handed {
                true => AHEAD_HANDED,
                false => AHEAD,
            },
            handed: self.handed,
            captured: self.pipeline.capture.as_ref().map(Capture::sieve),
        };
        self.burst
            .read::<F, SHARED>(self.rules, self.port, &received, self.pipeline);
    }
}

/// Frames to read.
struct Received<'a, F> {
    frames: &'a [F],
    handed: bool,
    /// How many packets on they are asked for.
    ahead: usize,
    /// What a capture under way may want.
    captured: Option<Sieve>,
}

impl<F: Frame> Received<'_, F> {
    #[inline(always)]
    fn prefetch(&self, position: usize) {
        match self.frames.get(position) {
            Some(frame) if self.handed => frame.prefetch_handed(),
            Some(frame) => frame.prefetch(),
            None => {}
        }
    }
}

/// Whose the connections are that arrive at one of several workers.
struct Sharers {
    homes: Homes,
    own: u32,
    /// What is at home with `own`.
    reach: Reach,
}

impl Sharers {
    /// Those outer source ports that mean `own`, where ports tell of homes: both are made of the platform's secret then.
    fn ports(&self, rules: &Rules) -> Option<PortReach> {
        (*self.homes.entropy() == rules.entropy).then(|| self.reach.of_ports())
    }
}

/// Where a burst stood before some of its packets were read: positions among the frames received and among those that stay,
/// and keys.
#[derive(Default)]
struct Marks {
    position: usize,
    at: usize,
    v4: [usize; 2],
    v6: [usize; 2],
}

impl Burst {
    /// Reads the plain packets among some frames, and has their entries come from memory meanwhile. Where frames are
    /// shared among workers, those at home elsewhere are left out: what is known is of the others alone.
    ///
    /// A burst of one connection, or one that was dealt out by homes, has none of others. So packets are read as by a lone worker first, and their
    /// homes are worked out when all are; where some are at home elsewhere, they are read again, and the next bursts at once in that way.
    #[inline(always)]
    fn read<F: Frame, const SHARED: bool>(
        &mut self,
        rules: &Rules,
        port: usize,
        received: &Received<'_, F>,
        pipeline: &Pipeline<F>,
    ) {
        let (homes, own, reach) = match &pipeline.sharing {
            Some(sharing) if SHARED => sharing.homes(),
            _ => (Homes::ONE, 0, Reach::ALL),
        };
        let sharers = Sharers { homes, own, reach };
        if !SHARED || self.parts == 0 {
            self.read_as::<F, false>(rules, port, received, &sharers, pipeline);
            if !SHARED || self.all_at_home(rules, &sharers) {
                return;
            }
            self.parts = PATIENCE;
        }
        self.read_as::<F, true>(rules, port, received, &sharers, pipeline);
        self.parts = match self.homes.some_away() {
            true => PATIENCE,
            false => self.parts - 1,
        };
    }

    /// The same; with `PARTS`, packets of others are left out as soon as some are read.
    #[inline(always)]
    fn read_as<F: Frame, const PARTS: bool>(
        &mut self,
        rules: &Rules,
        port: usize,
        received: &Received<'_, F>,
        sharers: &Sharers,
        pipeline: &Pipeline<F>,
    ) {
        self.v4.clear();
        self.v6.clear();
        let count = received.frames.len().min(BURST);
        self.edge_slots[..count].fill(None);
        self.homes.clear(sharers.own as u8);
        self.is_captured = false;
        let mut remembered = self.remembered.take().unwrap_or_default();
        let tables = (&pipeline.v4, &pipeline.v6);
        match Plain::new(rules, port, &mut remembered) {
            None => {
                self.packets = [LONG; BURST];
                self.is_captured = received.captured.is_some();
            }
            Some(mut plain) if plain.is_underlay() => {
                self.read_plain::<F, PARTS, true>(&mut plain, received, sharers, tables);
            }
            Some(mut plain) => {
                self.read_plain::<F, PARTS, false>(&mut plain, received, sharers, tables);
            }
        }
        self.remembered = Some(remembered);
    }

    /// Whether all packets that were read are at home here, those without a key apart; notes that they are.
    #[inline(always)]
    fn all_at_home(&mut self, rules: &Rules, sharers: &Sharers) -> bool {
        let Sharers { homes, reach, .. } = *sharers;
        let others = self.v4.edges.count + self.v6.stages.count + self.v6.edges.count;
        let stages = &mut self.v4.stages;
        let are_here = match sharers.ports(rules) {
            Some(reach) => {
                // They are needed in any case.
                stages.work_out_ports(&rules.entropy);
                reach.has_all(stages.known_ports())
            }
            None => homes.are_all_v4(stages.since(0), reach),
        };
        are_here && (others == 0 || self.others_at_home(sharers))
    }

    /// The same of those that are not over IPv4 at stages.
    #[inline(never)]
    fn others_at_home(&mut self, sharers: &Sharers) -> bool {
        let Sharers { homes, reach, .. } = *sharers;
        let (edges, edges_v6) = (&self.v4.edges, &self.v6.edges);
        let all = homes.are_all_v4(edges.since(0), reach)
            && homes.are_all_v6(self.v6.stages.since(0), reach)
            && homes.are_all_v6(edges_v6.since(0), reach);
        if all {
            let entered = edges.packets_since(0).iter();
            for &at in entered.chain(edges_v6.packets_since(0)) {
                self.homes.stays(at.into());
            }
        }
        all
    }

    #[inline(always)]
    fn read_plain<F: Frame, const PARTS: bool, const UNDERLAY: bool>(
        &mut self,
        plain: &mut Plain<'_>,
        received: &Received<'_, F>,
        sharers: &Sharers,
        (v4, v6): (&Ipv4Table, &Ipv6Table),
    ) {
        (0..received.ahead).for_each(|position| received.prefetch(position));
        let frames = received.frames;
        let (mut position, mut at) = (0, 0);
        let at_once = v4.fetch_at_once();
        for part in frames[..frames.len().min(BURST)].chunks(at_once) {
            let marks = Marks {
                position,
                at,
                v4: self.v4.counts(),
                v6: self.v6.counts(),
            };
            let end = position + part.len();
            while position < end {
                if !UNDERLAY && let Some(train) = plain.train() {
                    let ahead = frames.get(position + received.ahead..).unwrap_or_default();
                    let count = self.follow(train, &frames[position..end], ahead, at, v4);
                    (position, at) = (position + count, at + count);
                }
                if position < end {
                    received.prefetch(position + received.ahead);
                    let packet = self.read_one::<F, UNDERLAY>(plain, &frames[position], at);
                    self.packets[at % BURST] = packet;
                    (position, at) = (position + 1, at + 1);
                }
            }
            if PARTS {
                at = self.keep_own(sharers, &marks, at, received.captured);
            }
            // Where others' packets were left out, two parts together have as many keys as one.
            let least = if PARTS { at_once } else { 1 };
            self.v4.fetch(v4, least);
            self.v6.fetch(v6, least);
        }
        if let Some(sieve) = received.captured.filter(|_| !PARTS) {
            self.is_captured = self.may_be_captured(sieve, &Marks::default(), at);
        }
    }

    /// Reads the frames of a train, up to the first that is not of it; returns how many, the first of which is the `at`-th packet.
    #[inline(always)]
    fn follow<F: Frame>(
        &mut self,
        train: ([u64; 2], Way),
        frames: &[F],
        ahead: &[F],
        at: usize,
        table: &Ipv4Table,
    ) -> usize {
        let slot = self.v4.stages.count;
        let packets = self.packets.get_mut(at..).unwrap_or_default();
        let keys = self.v4.stages.keys.get_mut(slot..).unwrap_or_default();
        let count = table.processor().run(Follow {
            train,
            frames,
            ahead,
            packets,
            keys,
            slot,
        });
        self.v4.stages.count += count;
        count
    }

    /// Whether a capture may want some of `count` packets, read since `marks`: those with keys over IPv4 are asked together, and any others
    /// need a closer look. Not right after they were read: keys are read in larger pieces than they were written.
    #[inline(always)]
    fn may_be_captured(&self, sieve: Sieve, marks: &Marks, count: usize) -> bool {
        let stages = self.v4.stages.since(marks.v4[0]);
        let edges = self.v4.edges.since(marks.v4[1]);
        sieve.lets_all_through()
            || stages.len() + edges.len() < count
            || sieve.lets_some_through(stages)
            || sieve.lets_some_through(edges)
    }

    /// What is to be known of a frame, which becomes the `at`-th packet.
    #[inline(always)]
    fn read_one<F: Frame, const UNDERLAY: bool>(
        &mut self,
        plain: &mut Plain<'_>,
        frame: &F,
        at: usize,
    ) -> Packet {
        if !frame.is_ordinary() {
            return LONG;
        }
        let data = frame.data();
        let Some(located) = plain.locate::<UNDERLAY>(data) else {
            return LONG;
        };
        let Located {
            way,
            ether_type,
            offset,
            end,
        } = located;
        let Some(bytes) = data.get(offset..end) else {
            return LONG;
        };
        let known = |length, tcp_flags, lane, slot| {
            Packet::new(way, offset as u8, length, tcp_flags).at(lane, slot)
        };
        match ether_type {
            ethernet::IPV4 => {
                let Some(ip) = Ip::<u64>::read(bytes) else {
                    return LONG;
                };
                if !way.entered() {
                    let slot = self.v4.stages.push(ip.key(way));
                    return known(ip.length, ip.tcp_flags, Lane::V4, slot);
                }
                if plain.may_enter(way, ip.destination(), ip.ttl) {
                    self.v4.edges.push_of(ip.key(way), at);
                }
                known(ip.length, ip.tcp_flags, Lane::Long, 0)
            }
            ethernet::IPV6 => {
                let Some(ip) = Ip::<[u128; 2]>::read(bytes) else {
                    return LONG;
                };
                if !way.entered() {
                    let slot = self.v6.stages.push(ip.key(way));
                    return known(ip.length, ip.tcp_flags, Lane::V6, slot);
                }
                if plain.may_enter(way, ip.destination(), ip.ttl) {
                    self.v6.edges.push_of(ip.key(way), at);
                }
                known(ip.length, ip.tcp_flags, Lane::Long, 0)
            }
            _ => LONG,
        }
    }

    /// Leaves out packets, read since `marks`, that are at home elsewhere; returns the position of the next packet.
    #[inline(always)]
    fn keep_own(
        &mut self,
        sharers: &Sharers,
        marks: &Marks,
        at: usize,
        captured: Option<Sieve>,
    ) -> usize {
        let Sharers { homes, own, .. } = sharers;
        let (theirs, differs) = homes.of_each_v4(self.v4.stages.since(marks.v4[0]), *own);
        if let Some(sieve) = captured {
            self.is_captured |= self.may_be_captured(sieve, marks, at - marks.at);
        }
        let stages = self.v4.stages.since(marks.v4[0]);
        let others = self.v4.edges.count - marks.v4[1] + self.v6.stages.count - marks.v6[0]
            + self.v6.edges.count
            - marks.v6[1];
        match (differs == 0, others == 0) {
            (true, true) => at,
            (_, true) if stages.len() == at - marks.at => self.part_v4(*own, marks, at, &theirs),
            _ => self.part(sharers, marks, at, &theirs),
        }
    }

    /// [`Burst::part`] where all packets are over IPv4 at stages, so that their keys lie as they do.
    #[inline(never)]
    fn part_v4(&mut self, own: u32, marks: &Marks, end: usize, homes: &[u32; FETCH]) -> usize {
        let (mut at, mut kept) = (marks.at, marks.v4[0]);
        for (index, &home) in homes.iter().enumerate().take(end - marks.at) {
            self.homes.note(marks.position + index, home, home != own);
            // What goes is written over by what comes next.
            let packet = self.packets[(marks.at + index) % BURST];
            self.packets[at % BURST] = packet.at(Lane::V4, kept as u8);
            self.v4.stages.put(marks.v4[0] + index, kept);
            let stays = usize::from(home == own);
            (at, kept) = (at + stays, kept + stays);
        }
        self.v4.stages.count = kept;
        at
    }

    /// Parts packets, read since `marks`, of which some may be at home elsewhere; `stages` are the homes of those over IPv4 at
    /// stages.
    #[inline(never)]
    fn part(
        &mut self,
        sharers: &Sharers,
        marks: &Marks,
        end: usize,
        stages: &[u32; FETCH],
    ) -> usize {
        let (own, all) = (sharers.own, &sharers.homes);
        let stages_v6: [u32; FETCH] = all.of_each_v6(self.v6.stages.since(marks.v6[0]));
        let (edges, _) = all.of_each_v4::<FETCH>(self.v4.edges.since(marks.v4[1]), own);
        let edges_v6: [u32; FETCH] = all.of_each_v6(self.v6.edges.since(marks.v6[1]));
        // Of packets that enter at an edge. Those without a key stay.
        let mut homes = [own; FETCH];
        let entered = self.v4.edges.packets_since(marks.v4[1]).iter().zip(edges);
        let entered_v6 = self.v6.edges.packets_since(marks.v6[1]).iter();
        for (&at, home) in entered.chain(entered_v6.zip(edges_v6)) {
            homes[(usize::from(at) - marks.at) % FETCH] = home;
        }
        let (mut at, mut v4, mut v6) = (marks.at, marks.v4, marks.v6);
        let mut places = [0; FETCH];
        for index in 0..end - marks.at {
            let mut packet = self.packets[(marks.at + index) % BURST];
            let slot = packet.slot();
            let home = match packet.lane() {
                Lane::V4 => stages[(slot - marks.v4[0]) % FETCH],
                Lane::V6 => stages_v6[(slot - marks.v6[0]) % FETCH],
                Lane::Long => homes[index % FETCH],
            };
            if home != own {
                self.homes.note(marks.position + index, home, true);
                continue;
            }
            packet = match packet.lane() {
                Lane::V4 => packet.at(Lane::V4, self.v4.stages.keep(slot, &mut v4[0])),
                Lane::V6 => packet.at(Lane::V6, self.v6.stages.keep(slot, &mut v6[0])),
                Lane::Long => packet,
            };
            places[index % FETCH] = at as u8;
            self.packets[at % BURST] = packet;
            at += 1;
        }
        (self.v4.stages.count, self.v6.stages.count) = (v4[0], v6[0]);
        let parted = Parted {
            own,
            first: marks.at,
            places,
        };
        parted.edges(&mut self.v4.edges, marks.v4[1], &edges, &mut self.homes);
        parted.edges(&mut self.v6.edges, marks.v6[1], &edges_v6, &mut self.homes);
        at
    }
}

/// Where packets that stay are after others have gone.
struct Parted {
    own: u32,
    first: usize,
    places: [u8; FETCH],
}

impl Parted {
    /// Keeps the keys of packets that stay, at edges.
    #[inline(always)]
    fn edges<K: Family>(
        &self,
        edges: &mut Keys<K>,
        start: usize,
        theirs: &[u32; FETCH],
        homes: &mut AtHome,
    ) {
        let mut kept = start;
        for slot in start..edges.count {
            if theirs[(slot - start) % FETCH] != self.own {
                continue;
            }
            let at = usize::from(edges.packets[slot % BURST]) - self.first;
            let place = self.places[at % FETCH];
            let to = edges.keep(slot, &mut kept);
            edges.packets[usize::from(to)] = place;
            homes.stays(place.into());
        }
        edges.count = kept;
    }
}
