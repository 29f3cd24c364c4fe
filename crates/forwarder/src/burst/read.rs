//! Reading the plain packets of a burst: what they are, which connections', and whose those are.

use super::{Burst, LONG, Lane, NO_EDGE, Packet};
use crate::frame::Frame;
use crate::home::Homes;
use crate::pipeline::Pipeline;
use crate::plain::{Ip, Located, Plain};
use crate::rules::Rules;
use flow::{BURST, FETCH, Ipv4Table, Ipv6Table, Work};
use wire::ethernet;

/// How many packets on a frame is asked for from memory, and from another processor's cache.
const AHEAD: usize = 8;
const AHEAD_HANDED: usize = 20;

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
}

impl Burst {
    /// Reads the plain packets among some frames, and has their entries come from memory meanwhile. Where frames are
    /// shared among workers, those at home elsewhere are left out: what is known is of the others alone.
    #[inline(always)]
    fn read<F: Frame, const SHARED: bool>(
        &mut self,
        rules: &Rules,
        port: usize,
        received: &Received<'_, F>,
        pipeline: &Pipeline<F>,
    ) {
        self.v4.clear();
        self.v6.clear();
        self.edge_slots = [NO_EDGE; BURST];
        self.homes.clear();
        let (homes, own) = match &pipeline.sharing {
            Some(sharing) if SHARED => sharing.homes(),
            _ => (Homes::new([0; 16], 1), 0),
        };
        let sharers = Sharers { homes, own };
        let mut remembered = self.remembered.take().unwrap_or_default();
        let tables = (&pipeline.v4, &pipeline.v6);
        match Plain::new(rules, port, &mut remembered) {
            None => self.packets = [LONG; BURST],
            Some(mut plain) if plain.is_underlay() => {
                self.read_plain::<F, SHARED, true>(&mut plain, received, &sharers, tables);
            }
            Some(mut plain) => {
                self.read_plain::<F, SHARED, false>(&mut plain, received, &sharers, tables);
            }
        }
        self.remembered = Some(remembered);
    }

    #[inline(always)]
    fn read_plain<F: Frame, const SHARED: bool, const UNDERLAY: bool>(
        &mut self,
        plain: &mut Plain<'_>,
        received: &Received<'_, F>,
        sharers: &Sharers,
        (v4, v6): (&Ipv4Table, &Ipv6Table),
    ) {
        (0..received.ahead).for_each(|position| received.prefetch(position));
        let frames = received.frames;
        let (mut position, mut left) = (0, 0);
        for part in frames[..frames.len().min(BURST)].chunks(FETCH) {
            for frame in part {
                received.prefetch(position + received.ahead);
                let at = if SHARED { position - left } else { position };
                let packet =
                    self.read_one::<F, SHARED, UNDERLAY>(plain, frame, sharers, (position, at));
                match packet {
                    Some(packet) => self.packets[at % BURST] = packet,
                    None => left += 1,
                }
                position += 1;
            }
            self.v4.fetch(v4);
            self.v6.fetch(v6);
        }
    }

    /// What is to be known of a frame: nothing where it is at home elsewhere. It is the `at`-th that stays.
    #[inline(always)]
    fn read_one<F: Frame, const SHARED: bool, const UNDERLAY: bool>(
        &mut self,
        plain: &mut Plain<'_>,
        frame: &F,
        sharers: &Sharers,
        (position, at): (usize, usize),
    ) -> Option<Packet> {
        if !frame.is_ordinary() {
            return Some(LONG);
        }
        let data = frame.data();
        let Some(located) = plain.locate::<UNDERLAY>(data) else {
            return Some(LONG);
        };
        let Located {
            way,
            ether_type,
            offset,
            end,
        } = located;
        let Some(bytes) = data.get(offset..end) else {
            return Some(LONG);
        };
        let known = |length, tcp_flags, lane, slot| Packet {
            way,
            length,
            offset: offset as u8,
            tcp_flags,
            lane,
            slot,
        };
        match ether_type {
            ethernet::IPV4 => {
                let Some(ip) = Ip::<u64>::read(bytes) else {
                    return Some(LONG);
                };
                if SHARED {
                    let home = sharers.homes.of_v4(ip.addresses, ip.ports, ip.protocol);
                    if !self.homes.note(home, sharers.own, position, at) {
                        return None;
                    }
                }
                if !way.entered() {
                    let slot = self.v4.stages.push(ip.key(way));
                    return Some(known(ip.length, ip.tcp_flags, Lane::V4, slot));
                }
                if plain.may_enter(way, ip.destination(), ip.ttl) {
                    self.v4.edges.push_of(ip.key(way), at);
                }
                Some(known(ip.length, ip.tcp_flags, Lane::Long, 0))
            }
            ethernet::IPV6 => {
                let Some(ip) = Ip::<[u128; 2]>::read(bytes) else {
                    return Some(LONG);
                };
                if SHARED {
                    let home = sharers.homes.of_v6(ip.addresses, ip.ports, ip.protocol);
                    if !self.homes.note(home, sharers.own, position, at) {
                        return None;
                    }
                }
                if !way.entered() {
                    let slot = self.v6.stages.push(ip.key(way));
                    return Some(known(ip.length, ip.tcp_flags, Lane::V6, slot));
                }
                if plain.may_enter(way, ip.destination(), ip.ttl) {
                    self.v6.edges.push_of(ip.key(way), at);
                }
                Some(known(ip.length, ip.tcp_flags, Lane::Long, 0))
            }
            _ => Some(LONG),
        }
    }
}
