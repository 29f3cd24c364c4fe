//! Which worker a connection is at home with: the one that has its flow entries, and so steers its packets.
//!
//! The home is made of the upper 14 bits of the connection's entropy ([`crate::entropy`]), which are the same for both directions, and of nothing
//! else: not of rules, not of where a packet arrived. So every worker knows every connection's home, and so does whoever deals packets out that can
//! read the outer UDP source port of a tunnel, or the inner packet ([`crate::dealing`]). Nobody without the key can send all connections to one
//! worker.
//!
//! A packet's connection is the one steering finds: of an ICMP error the quoted one, of a later fragment that of the first.
//! Fragments of one packet can arrive at different workers, so they meet where their addresses alone lead,
//! which all of them show. That worker remembers the ports and sends each fragment on to its connection's home.

use crate::entropy::{Entropy, PORT_BITS, port_of};
use crate::fragments::{Fragments, shown_by_all};
use crate::frame::Frame;
use crate::output::{AwayFrames, Errand};
use crate::pipeline::Pipeline;
use crate::registry::PlaceId;
use crate::rules::{Hop, Rules, Side};
use flow::{Ipv4Key, Ipv6Key};
use wire::ip::Fragmentation;
use wire::steering::{self, Encoding, SteeringContext};
use wire::{FiveTuple, IpPacket, ethernet, nsh};

/// Which function of a connection its home is. Flow files say by which they were dealt out, so it is another one after every change.
pub(crate) const FUNCTION: u32 = 2;
/// Workers there can be.
pub const WORKERS_LIMIT: usize = 64;
/// Bits of the entropy that homes do not depend on.
const REST_BITS: u32 = u32::BITS - PORT_BITS;

/// Those values of a connection's entropy that mean one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    first: u32,
    /// How many more there are.
    more: u32,
}

impl Reach {
    /// All.
    pub(crate) const ALL: Reach = Reach {
        first: 0,
        more: u32::MAX,
    };

    /// The same as outer source ports tell it that are of the entropy that homes are made of.
    pub(crate) fn of_ports(self) -> PortReach {
        PortReach {
            first: port_of(self.first),
            more: (self.more >> REST_BITS) as u16,
        }
    }
}

/// Those outer UDP source ports that mean one worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortReach {
    first: u16,
    /// How many more there are.
    more: u16,
}

impl PortReach {
    /// Whether all ports mean it.
    #[inline(always)]
    pub(crate) fn has_all(self, ports: &[u16]) -> bool {
        let beyond = |port: &u16| port.wrapping_sub(self.first);
        ports.iter().map(beyond).fold(0, u16::max) <= self.more
    }
}

/// The home of every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homes {
    entropy: Entropy,
    workers: u32,
}

impl Homes {
    /// One worker, which is everybody's home.
    pub(crate) const ONE: Homes = Homes {
        entropy: Entropy::OF_NOTHING,
        workers: 1,
    };

    /// Homes with so many workers, up to [`WORKERS_LIMIT`]. The key is secret: it is the platform's, so that outer ports tell of homes
    /// ([`crate::rules::Rules::selection_seed`]), or the forwarder's own.
    pub fn new(key: [u8; 16], workers: usize) -> Homes {
        Homes {
            entropy: Entropy::new(key),
            workers: workers.clamp(1, WORKERS_LIMIT) as u32,
        }
    }

    /// What [`Homes::settle`] makes a worker of.
    fn reach(&self, worker: u32) -> Reach {
        let first_of = |worker: u32| {
            let first = (u64::from(worker) << PORT_BITS).div_ceil(u64::from(self.workers));
            first << REST_BITS
        };
        let (first, next) = (first_of(worker), first_of(worker + 1));
        Reach {
            first: first as u32,
            more: (next - first - 1) as u32,
        }
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers as usize
    }

    /// The function of connections that homes are made of.
    pub(crate) fn entropy(&self) -> &Entropy {
        &self.entropy
    }

    /// The worker that a connection is at home with, from 0.
    pub fn of(&self, tuple: &FiveTuple) -> usize {
        self.settle(self.entropy.of(tuple)) as usize
    }

    /// The homes of several connections over IPv4, whichever end of them comes first, and a number that is 0 if all are `own`: a
    /// loop that is compiled to vectors, which would wait for the homes if it had to read them again.
    #[inline(always)]
    pub(crate) fn of_each_v4<const N: usize>(&self, keys: &[Ipv4Key], own: u32) -> ([u32; N], u32) {
        let (mut homes, mut differs) = ([0; N], 0);
        for (key, home) in keys.iter().zip(&mut homes) {
            *home = self.settle(self.entropy.of_v4(key));
            differs |= *home ^ own;
        }
        (homes, differs)
    }

    /// Whether connections over IPv4 are all at home with a worker.
    #[inline(always)]
    pub(crate) fn are_all_v4(&self, keys: &[Ipv4Key], reach: Reach) -> bool {
        let beyond = |key: &Ipv4Key| self.entropy.of_v4(key).wrapping_sub(reach.first);
        keys.iter().map(beyond).fold(0, u32::max) <= reach.more
    }

    /// The same over IPv6.
    #[inline(always)]
    pub(crate) fn are_all_v6(&self, keys: &[Ipv6Key], reach: Reach) -> bool {
        let beyond = |key: &Ipv6Key| self.entropy.of_v6(key).wrapping_sub(reach.first);
        keys.iter().map(beyond).fold(0, u32::max) <= reach.more
    }

    /// The homes of several over IPv6.
    #[inline(always)]
    pub(crate) fn of_each_v6<const N: usize>(&self, keys: &[Ipv6Key]) -> [u32; N] {
        let mut homes = [0; N];
        for (key, home) in keys.iter().zip(&mut homes) {
            *home = self.settle(self.entropy.of_v6(key));
        }
        homes
    }

    /// The home of connections of an entropy.
    #[inline(always)]
    pub(crate) fn settle(&self, entropy: u32) -> u32 {
        ((entropy >> REST_BITS) * self.workers) >> PORT_BITS
    }
}

/// What one of several workers knows of the others.
#[derive(Debug)]
pub(crate) struct Sharing {
    homes: Homes,
    own: u32,
    /// What is at home here.
    reach: Reach,
    fragments: Fragments,
}

impl Sharing {
    /// The homes, the own number, and what is at home here.
    #[inline(always)]
    pub(crate) fn homes(&self) -> (Homes, u32, Reach) {
        (self.homes, self.own, self.reach)
    }

    /// The own number.
    pub(crate) fn own(&self) -> usize {
        self.own as usize
    }

    /// Forgets fragments that are too old; returns how many went before their time. `now` is in seconds.
    pub(crate) fn forget_old(&mut self, now: u32) -> u64 {
        self.fragments.forget_old(now);
        self.fragments.take_pushed_out()
    }
}

impl<F: Frame> Pipeline<F> {
    /// Makes it one of several: it steers only connections that are at home with the worker `own`, and puts frames of all
    /// others in [`crate::output::Output::away`].
    pub fn share(&mut self, homes: Homes, own: usize) {
        self.parted.resize_with(homes.workers(), Vec::new);
        self.sharing = (homes.workers() > 1).then(|| {
            Box::new(Sharing {
                homes,
                own: own as u32,
                reach: homes.reach(own as u32),
                fragments: Fragments::default(),
            })
        });
    }

    /// The worker that is to deal with a frame, and what it is to do; nothing when that is this one. A frame that belongs
    /// to no connection is dealt with where it is. `now` is in seconds.
    #[cold]
    pub fn elsewhere(
        &mut self,
        rules: &Rules,
        port: usize,
        frame: &F,
        errand: Errand,
        now: u32,
    ) -> Option<(usize, Errand)> {
        let sharing = self.sharing.as_mut()?;
        let (place, ip) = connection(rules, port, frame)?;
        let own = sharing.own as usize;
        let homes = sharing.homes;
        if errand == Errand::Steer
            && let Some(in_parts) = in_parts(&ip)
        {
            let meeting = homes.of(&shown_by_all(&in_parts));
            if meeting != own {
                return Some((meeting, Errand::Join));
            }
        }
        let shown = sharing.fragments.connection(place, &ip, now);
        let shown = shown.or_else(|| {
            // An error comes back by another place of the path than the packet it quotes, and homes do not depend on places.
            let identification = ip.quoted_fragment?;
            sharing.fragments.anywhere(&ip.quoted?, identification, now)
        });
        // Where the first fragment is not known there is nobody who knows more.
        let home = homes.of(&shown?.tuple);
        (home != own).then_some((home, Errand::Steer))
    }

    /// Takes a frame that another worker handed over, to do what it asked for. `now` is in seconds.
    pub(crate) fn put_away(
        &mut self,
        rules: &Rules,
        port: usize,
        frame: F,
        errand: Errand,
        now: u32,
        away: &mut AwayFrames<F>,
    ) -> Option<F> {
        match self.elsewhere(rules, port, &frame, errand, now) {
            None => Some(frame),
            Some((worker, errand)) => {
                away.push(worker, errand, port, frame);
                None
            }
        }
    }
}

/// What a packet shows of one in fragments: itself, or the one it quotes.
fn in_parts(ip: &IpPacket) -> Option<FiveTuple> {
    match (ip.fragmentation, ip.quoted_fragment) {
        (Fragmentation::Whole, None) => None,
        (Fragmentation::Whole, Some(_)) => ip.quoted,
        _ => Some(ip.tuple),
    }
}

/// The packet that a frame holds, in tunnels the inner one, and the place it arrives at; nothing when steering would find none.
fn connection<F: Frame>(rules: &Rules, port: usize, frame: &F) -> Option<(PlaceId, IpPacket)> {
    let bytes = frame.data();
    let header = ethernet::Header::parse(bytes).ok()?;
    let role = rules.ports.get(port)?;
    let vlan = frame.stripped_vlan().unwrap_or(header.vlan);
    let payload = bytes.get(header.length..)?;
    if vlan == 0 && rules.underlay.as_ref().is_some_and(|one| one.port == port) {
        return in_tunnel(rules, payload);
    }
    if let Some(Hop::Edge(edge)) = role.edges.get(&vlan).and_then(|&id| rules.hop(id)) {
        let ip = IpPacket::parse_as(header.ether_type, payload).ok()?;
        return Some((edge.place, ip));
    }
    match header.ether_type {
        ethernet::MPLS if !role.label_aware.is_empty() => {
            let context = SteeringContext::from_labels(payload).ok()?;
            let inner = payload.get(2 * wire::mpls::ENTRY_LENGTH..)?;
            let (place, _) = rules.stage_of(&context).ok()?;
            return Some((place, IpPacket::parse(inner).ok()?));
        }
        ethernet::NSH if !role.label_aware.is_empty() => {
            let service = nsh::Header::parse(payload).ok()?;
            let context = SteeringContext::from_nsh(&service, rules).ok()?;
            let inner = payload.get(service.length..)?;
            let (place, _) = rules.stage_of(&context).ok()?;
            return Some((place, IpPacket::parse(inner).ok()?));
        }
        _ => {}
    }
    let gateway = role.gateways.get(&(vlan, header.source));
    let &(id, side) = gateway.or_else(|| role.transparent.get(&vlan))?;
    let Hop::Attachment(attachment) = rules.hop(id)? else {
        return None;
    };
    let place = match side {
        Side::Egress => attachment.stage_behind,
        Side::Ingress => attachment.stage_before,
    };
    Some((place, IpPacket::parse_as(header.ether_type, payload).ok()?))
}

fn in_tunnel(rules: &Rules, packet: &[u8]) -> Option<(PlaceId, IpPacket)> {
    let outer = IpPacket::parse(packet).ok()?;
    let encoding = Encoding::of(&outer).filter(|_| outer.fragmentation == Fragmentation::Whole)?;
    let taken = steering::decapsulate(encoding, packet, &outer, rules).ok()?;
    let inner = IpPacket::parse(packet.get(taken.inner_offset..taken.end)?).ok()?;
    let (place, _) = rules.stage_of(&taken.context).ok()?;
    Some((place, inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use wire::Addresses;

    fn tuple(number: u32, v6: bool) -> FiveTuple {
        let mut end = [0; 16];
        end[12..].copy_from_slice(&(0x0a00_0000 + number).to_be_bytes());
        let addresses = match v6 {
            true => Addresses::V6 {
                source: end,
                destination: [7; 16],
            },
            false => Addresses::V4 {
                source: (0x0a00_0000 + number).to_be_bytes(),
                destination: [192, 0, 2, 1],
            },
        };
        FiveTuple {
            addresses,
            protocol: 6,
            source_port: 40_000 + (number % 7) as u16,
            destination_port: 443,
        }
    }

    #[test]
    fn both_directions_have_one_home_and_homes_are_even() {
        for workers in [2, 3, 7] {
            for v6 in [false, true] {
                for key in 0..4 {
                    let homes = Homes::new([key; 16], workers);
                    let mut counts = vec![0; workers];
                    for number in 0..7_000 {
                        let tuple = tuple(number, v6);
                        let home = homes.of(&tuple);
                        assert_eq!(home, homes.of(&tuple.reversed()));
                        counts[home] += 1;
                    }
                    let even = 7_000 / workers;
                    let fair = even * 9 / 10..even * 11 / 10;
                    let all_fair = counts.iter().all(|count| fair.contains(count));
                    assert!(all_fair, "{workers} workers, v6 {v6}: {counts:?}");
                }
            }
        }
    }

    #[test]
    fn several_at_once_have_the_homes_that_each_has() {
        let homes = Homes::new([9; 16], 7);
        let words = |number: u32| {
            let word = number.wrapping_mul(0x9e37_79b9);
            (
                word,
                !word.rotate_left(11),
                word as u16,
                (word >> 16) as u16,
            )
        };
        let v4: [Ipv4Key; 16] = std::array::from_fn(|number| {
            let (one, other, from, to) = words(number as u32);
            Ipv4Key::new(3, one, other, 6, from, to)
        });
        let v6: [Ipv6Key; 16] = std::array::from_fn(|number| {
            let (one, other, from, to) = words(number as u32);
            Ipv6Key::new(3, u128::from(one) << 70, u128::from(other), 17, from, to)
        });
        let tuple = |key: &dyn Fn(usize) -> FiveTuple| {
            std::array::from_fn::<u32, 16, _>(|at| homes.of(&key(at)) as u32)
        };
        let forward = |at: usize| v4[at].tuple(steering::Direction::Forward);
        let (each, differs) = homes.of_each_v4::<16>(&v4, 3);
        assert_eq!(each, tuple(&forward));
        assert_ne!(differs, 0, "they are at home with several");
        let alone = Homes::new([9; 16], 1).of_each_v4::<16>(&v4, 0);
        assert_eq!(alone, ([0; 16], 0));
        let reverse = |at: usize| v6[at].tuple(steering::Direction::Reverse);
        assert_eq!(homes.of_each_v6::<16>(&v6), tuple(&reverse));
    }

    /// Sets of connections that a network or an attacker makes: by their number.
    const SETS: [fn(u32) -> Ipv4Key; 6] = [
        |n| between([n, 0], [4_000, 53]),
        |n| between([0, 0], [53, 4_000 + n]),
        |n| between([n >> 6, 0], [53, 4_000 + (n & 63)]),
        |n| between([n << 8, 0], [53, 4_000]),
        |n| between([n & 63, n >> 6], [53, 4_000]),
        |n| between([0, 0], [n, n]),
    ];

    fn between([source, destination]: [u32; 2], [from, to]: [u32; 2]) -> Ipv4Key {
        let (source, destination) = (0x0a00_0000 + source, 0xc000_0000 + destination);
        Ipv4Key::new(3, source, destination, 17, from as u16, to as u16)
    }

    #[test]
    fn no_regular_set_of_connections_gathers_at_one_home() {
        const CONNECTIONS: u32 = 2_048;
        for workers in [2, 3, 64] {
            let share = 1.0 / workers as f64;
            let expected = f64::from(CONNECTIONS) * share;
            let deviation = (expected * (1.0 - share)).sqrt();
            for key in 0..100 {
                let homes = Homes::new([key; 16], workers);
                for (number, set) in SETS.iter().enumerate() {
                    let keys: Vec<Ipv4Key> = (0..CONNECTIONS).map(set).collect();
                    let (all, _) = homes.of_each_v4::<{ CONNECTIONS as usize }>(&keys, 0);
                    let count = all.iter().filter(|&&home| home == 0).count();
                    // Thrown by dice, one in some millions is so far from what is expected.
                    let off = (count as f64 - expected).abs() / deviation;
                    assert!(
                        off < 6.5,
                        "set {number}, {workers} workers, key {key}: {count}"
                    );
                }
            }
        }
    }

    #[test]
    fn whether_all_are_at_home_is_what_each_says() {
        for workers in [1, 2, 3, 7, WORKERS_LIMIT] {
            let homes = Homes::new([5; 16], workers);
            for number in 0..2_000u32 {
                let number = number.wrapping_mul(0x9e37_79b9);
                let v4 = Ipv4Key::new(3, number, 0xc000_0201, 6, number as u16, 443);
                let v6 = Ipv6Key::new(3, number.into(), 1 << 90, 6, 1, number as u16);
                let home = homes.of(&v4.tuple(steering::Direction::Forward)) as u32;
                let home_v6 = homes.of(&v6.tuple(steering::Direction::Forward)) as u32;
                for own in 0..workers as u32 {
                    let reach = homes.reach(own);
                    assert_eq!(homes.are_all_v4(&[v4], reach), own == home);
                    let port = v4.entropy_port(homes.entropy());
                    assert_eq!(reach.of_ports().has_all(&[port]), own == home);
                    assert_eq!(homes.are_all_v6(&[v6], reach), own == home_v6);
                }
            }
        }
    }

    #[test]
    fn another_key_gives_other_homes() {
        let (one, other) = (Homes::new([1; 16], 2), Homes::new([2; 16], 2));
        let same = (0..1_000).filter(|&number| {
            let tuple = tuple(number, false);
            one.of(&tuple) == other.of(&tuple)
        });
        assert!((400..600).contains(&same.count()));
    }
}
