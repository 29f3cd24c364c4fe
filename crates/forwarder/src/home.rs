//! Which worker a connection is at home with: the one that has its flow entries, and so steers its packets.
//!
//! The home is a keyed hash of the inner 5-tuple that is the same for both directions, and of nothing else: not of rules,
//! not of where a packet arrived. So every worker knows every connection's home, whatever a card or the kernel made of the
//! outer headers, and nobody without the key can send all connections to one worker.
//!
//! A packet's connection is the one steering finds: of an ICMP error the quoted one, of a later fragment that of the first.
//! Fragments of one packet can arrive at different workers, so they meet where their addresses and protocol alone lead,
//! which all of them show. That worker remembers the ports and sends each fragment on to its connection's home.

use crate::fragments::{Fragments, shown_by_all};
use crate::frame::Frame;
use crate::output::{AwayFrames, Errand};
use crate::pipeline::Pipeline;
use crate::registry::PlaceId;
use crate::rules::{Hop, Rules, Side};
use flow::siphash::SipHash13;
use flow::{FlowKey, Ipv4Key, Ipv6Key};
use wire::ip::Fragmentation;
use wire::steering::{self, Encoding, SteeringContext};
use wire::{Addresses, FiveTuple, IpPacket, ethernet, nsh};

/// Workers there can be.
pub const WORKERS_LIMIT: usize = 64;
/// An odd number without pattern, from SplitMix64.
const MIX: u64 = 0xbf58_476d_1ce4_e5b9;

/// The home of every connection.
#[derive(Clone, Copy, Debug)]
pub struct Homes {
    keys: [u64; 2],
    workers: u32,
}

impl Homes {
    /// One worker, which is everybody's home.
    pub(crate) const ONE: Homes = Homes {
        keys: [0; 2],
        workers: 1,
    };

    /// Homes with so many workers, up to [`WORKERS_LIMIT`]. The key is secret.
    pub fn new(key: [u8; 16], workers: usize) -> Homes {
        let sip = SipHash13::new(key);
        Homes {
            keys: [1, 2].map(|word| sip.hash_words([word])),
            workers: workers.clamp(1, WORKERS_LIMIT) as u32,
        }
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers as usize
    }

    /// The worker that a connection is at home with, from 0.
    pub fn of(&self, tuple: &FiveTuple) -> usize {
        let ports = u32::from(tuple.source_port) << 16 | u32::from(tuple.destination_port);
        let home = match tuple.addresses {
            Addresses::V4 {
                source,
                destination,
            } => {
                let [source, destination] = [source, destination].map(u32::from_be_bytes);
                let addresses = u64::from(source) << 32 | u64::from(destination);
                self.of_v4(addresses, ports, tuple.protocol)
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                let addresses = [source, destination].map(u128::from_be_bytes);
                self.of_v6(addresses, ports, tuple.protocol)
            }
        };
        home as usize
    }

    /// The same over IPv4: source and destination address in one word, source and destination port in the other.
    #[inline(always)]
    pub(crate) fn of_v4(&self, addresses: u64, ports: u32, protocol: u8) -> u32 {
        let one = addresses >> 32 << 16 | u64::from(ports >> 16);
        let other = (addresses & 0xffff_ffff) << 16 | u64::from(ports & 0xffff);
        self.meet(one, other, protocol)
    }

    /// The homes of several connections over IPv4, whichever end of them comes first, and a number that is 0 if all are `own`: a
    /// loop that is compiled to vectors, which would wait for the homes if it had to read them again.
    #[inline(always)]
    pub(crate) fn of_each_v4<const N: usize>(&self, keys: &[Ipv4Key], own: u32) -> ([u32; N], u32) {
        let (mut homes, mut differs) = ([0; N], 0);
        for (key, home) in keys.iter().zip(&mut homes) {
            let [one, other] = key.ends().map(|end| end ^ self.keys[0]);
            *home = self.settle(product_of_halves(one, other), key.protocol());
            differs |= *home ^ own;
        }
        (homes, differs)
    }

    /// The same over IPv6, one by one.
    #[inline(always)]
    pub(crate) fn of_each_v6<const N: usize>(&self, keys: &[Ipv6Key]) -> [u32; N] {
        let mut homes = [0; N];
        for (key, home) in keys.iter().zip(&mut homes) {
            let addresses = [key.source().to_bits(), key.destination().to_bits()];
            let ports = u32::from(key.source_port()) << 16 | u32::from(key.destination_port());
            *home = self.of_v6(addresses, ports, key.protocol());
        }
        homes
    }

    /// Over IPv6, as [`Homes::of_v4`] over IPv4.
    #[inline(always)]
    pub(crate) fn of_v6(&self, [one, other]: [u128; 2], ports: u32, protocol: u8) -> u32 {
        let one = self.fold(one) ^ u64::from(ports >> 16) << 48;
        let other = self.fold(other) ^ u64::from(ports & 0xffff) << 48;
        self.meet(one, other, protocol)
    }

    #[inline(always)]
    fn fold(&self, address: u128) -> u64 {
        let (high, low) = ((address >> 64) as u64, address as u64);
        folded_product(high ^ self.keys[1], low ^ self.keys[0]).rotate_left(21) ^ low
    }

    /// A product does not tell which end came first.
    #[inline(always)]
    fn meet(&self, one: u64, other: u64, protocol: u8) -> u32 {
        let product = folded_product(one ^ self.keys[0], other ^ self.keys[0]);
        self.settle(product, protocol)
    }

    #[inline(always)]
    fn settle(&self, product: u64, protocol: u8) -> u32 {
        let word = (product ^ u64::from(protocol) ^ self.keys[1]).wrapping_mul(MIX);
        (((word >> 32) * u64::from(self.workers)) >> 32) as u32
    }
}

#[inline(always)]
fn folded_product(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

/// [`folded_product`] by products of halves, which vectors have.
#[inline(always)]
fn product_of_halves(one: u64, other: u64) -> u64 {
    const HALF: u64 = u32::MAX as u64;
    let ([a, b], [c, d]) = ([one >> 32, one & HALF], [other >> 32, other & HALF]);
    let (high, left, right, low) = (a * c, a * d, b * c, b * d);
    let middle = (low >> 32) + (left & HALF) + (right & HALF);
    let high = high + (left >> 32) + (right >> 32) + (middle >> 32);
    high ^ (middle << 32 | low & HALF)
}

/// What one of several workers knows of the others.
#[derive(Debug)]
pub(crate) struct Sharing {
    homes: Homes,
    own: u32,
    fragments: Fragments,
}

impl Sharing {
    /// The homes and the own number.
    #[inline(always)]
    pub(crate) fn homes(&self) -> (Homes, u32) {
        (self.homes, self.own)
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
        // Where the first fragment is not known there is nobody who knows more.
        let shown = sharing.fragments.connection(place, &ip, now)?;
        let home = homes.of(&shown.tuple);
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
        for one in [0, 1, u64::MAX, 0x1234_5678_9abc_def0, 1 << 32] {
            for other in [0, 7, u64::MAX, 0xffff_ffff, 0x8000_0000_0000_0001] {
                assert_eq!(product_of_halves(one, other), folded_product(one, other));
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
