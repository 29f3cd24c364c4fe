//! Who has which Ethernet address: learned by ARP and neighbour discovery, asked for when needed.
//!
//! Only answers to our own questions and requests of neighbours we already know teach anything, so that strangers cannot fill
//! the table. While an answer is awaited, a bounded number of frames wait.
//!
//! Each link (port and VLAN) has a share of neighbours and of waiting frames. Once all links together have what there is for
//! them, each still gets what an even division among the links of the rules would give it: what one customer's hosts do not answer
//! for, others do not miss.

use crate::counters::At;
use foldhash::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::arp::{Arp, Operation};
use wire::neighbour_discovery::{self, ALL_NODES, Neighbour, group_mac, solicited_node};
use wire::{MacAddress, ethernet, icmp};

/// A neighbour's place: port, VLAN and address.
pub type Key = (usize, u16, IpAddr);

/// A question to ask: the neighbour, our address, and where it goes (everyone when nothing).
pub type Question = (Key, IpAddr, Option<MacAddress>);

/// Neighbours remembered before links have to keep to an even division (no more than twice as many).
const LIMIT: usize = 16_384;
/// Neighbours of one link whose answer is awaited at most.
const LINK_AWAITED: usize = 256;
/// Frames that wait before links have to keep to an even division (no more than twice as many): an eighth of the packet buffers
/// there are by default.
const WAITING: usize = 1_024;
/// Frames that wait at one link and for one neighbour at most.
const LINK_WAITING: usize = 128;
const WAITING_LIMIT: usize = 32;
/// Seconds after which a known address is asked for again.
const FRESH: u32 = 30;
/// Seconds after which a known address that nobody confirmed is forgotten.
const STALE: u32 = 90;
/// Questions, one a second, before waiting frames are given up.
const QUESTIONS: u8 = 3;

/// A frame that waits for its neighbour's address.
#[derive(Debug)]
pub struct Waiting<F> {
    /// The port it will leave by.
    pub port: usize,
    /// The stage its packet is at, if it is at one.
    pub at: Option<At>,
    /// The frame.
    pub frame: Kept<F>,
}

/// A frame to be sent.
#[derive(Debug)]
pub enum Kept<F> {
    /// One that was received.
    Received(F),
    /// One made here: an answer, or a fragment.
    Made(Vec<u8>),
}

impl<F> Waiting<F> {
    /// The same frame, to leave by a port.
    #[must_use]
    pub fn by(self, port: usize) -> Waiting<F> {
        Waiting { port, ..self }
    }
}

#[derive(Debug)]
struct Entry<F> {
    mac: Option<MacAddress>,
    confirmed: u32,
    asked: u32,
    questions: u8,
    own: IpAddr,
    waiting: Vec<F>,
}

/// What a link has of what all share.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    neighbours: usize,
    awaited: usize,
    waiting: usize,
}

/// Known and awaited neighbours.
#[derive(Debug)]
pub struct Neighbours<F> {
    entries: HashMap<Key, Entry<F>>,
    /// By port and VLAN; those with neighbours alone.
    links: HashMap<(usize, u16), Link>,
    /// Links that share.
    sharing: usize,
    waiting: usize,
    version: u32,
}

impl<F> Default for Neighbours<F> {
    fn default() -> Self {
        Neighbours {
            entries: HashMap::default(),
            links: HashMap::default(),
            sharing: 1,
            waiting: 0,
            version: 1,
        }
    }
}

/// What came of a look-up.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The address is known.
    Known(MacAddress),
    /// It is not; ask now.
    Ask,
    /// It is not, and was asked for a moment ago.
    Wait,
}

impl<F> Neighbours<F> {
    /// Grows whenever an answer of [`Neighbours::known`] may be another; never 0.
    #[inline(always)]
    pub fn version(&self) -> u32 {
        self.version
    }

    fn changed(&mut self) {
        self.version = self.version.wrapping_add(1).max(1);
    }

    /// Tells how many links share what there is.
    pub fn share_among(&mut self, links: usize) {
        self.sharing = links.max(1);
    }

    /// A neighbour's address, if it is known; nobody is asked.
    pub fn known(&self, key: Key) -> Option<MacAddress> {
        self.entries.get(&key)?.mac
    }

    /// Looks up a neighbour; `own` is our address that asks. `now` is in seconds.
    #[inline]
    pub fn look_up(&mut self, key: Key, own: IpAddr, now: u32) -> Lookup {
        match self.entries.get_mut(&key) {
            Some(Entry { mac: Some(mac), .. }) => Lookup::Known(*mac),
            Some(_) => Lookup::Wait,
            None => self.begin(key, own, now),
        }
    }

    #[cold]
    fn begin(&mut self, key: Key, own: IpAddr, now: u32) -> Lookup {
        let link = self.links.entry((key.0, key.1)).or_default();
        let share = LIMIT.div_ceil(self.sharing);
        let is_fair = self.entries.len() < LIMIT || link.neighbours < share;
        if link.awaited >= LINK_AWAITED || !is_fair {
            return Lookup::Wait;
        }
        link.neighbours += 1;
        link.awaited += 1;
        let entry = Entry {
            mac: None,
            confirmed: now,
            asked: now,
            questions: 1,
            own,
            waiting: Vec::new(),
        };
        self.entries.insert(key, entry);
        Lookup::Ask
    }

    /// Keeps a frame until its neighbour is known; gives it back when the neighbour is not awaited, or too many wait already.
    ///
    /// # Errors
    /// The frame, which has no place to wait.
    pub fn keep(&mut self, key: Key, frame: F) -> Result<(), F> {
        let share = WAITING.div_ceil(self.sharing);
        let (Some(entry), Some(link)) = (
            self.entries.get_mut(&key),
            self.links.get_mut(&(key.0, key.1)),
        ) else {
            return Err(frame);
        };
        let is_fair = self.waiting < WAITING || link.waiting < share;
        if entry.waiting.len() >= WAITING_LIMIT || link.waiting >= LINK_WAITING || !is_fair {
            return Err(frame);
        }
        link.waiting += 1;
        self.waiting += 1;
        entry.waiting.push(frame);
        Ok(())
    }

    /// Counts anew what each link has.
    fn recount(&mut self) {
        self.links.clear();
        self.waiting = 0;
        for (&(port, vlan, _), entry) in &self.entries {
            let link = self.links.entry((port, vlan)).or_default();
            link.neighbours += 1;
            link.awaited += usize::from(entry.mac.is_none());
            link.waiting += entry.waiting.len();
            self.waiting += entry.waiting.len();
        }
    }

    /// Learns an address if it is one we know or wait for; returns the frames that waited for it.
    pub fn learn(&mut self, key: Key, mac: MacAddress, now: u32) -> Vec<F> {
        if mac.is_group() {
            return Vec::new();
        }
        let Some(entry) = self.entries.get_mut(&key) else {
            return Vec::new();
        };
        let before = entry.mac.replace(mac);
        entry.confirmed = now;
        entry.questions = 0;
        let waiting = std::mem::take(&mut entry.waiting);
        self.waiting -= waiting.len();
        if let Some(link) = self.links.get_mut(&(key.0, key.1)) {
            link.waiting -= waiting.len();
            link.awaited -= usize::from(before.is_none());
        }
        if before != Some(mac) {
            self.changed();
        }
        waiting
    }

    /// Follows ports to new positions: what was port `i` is `moved[i]` now. Neighbours of ports that are gone are
    /// forgotten. Waiting frames are told their port; returns those that are lost.
    pub fn move_ports(
        &mut self,
        moved: &[Option<usize>],
        mut tell: impl FnMut(F, usize) -> F,
    ) -> Vec<F> {
        let mut lost = Vec::new();
        self.changed();
        for ((port, vlan, address), mut entry) in std::mem::take(&mut self.entries) {
            match moved.get(port).copied().flatten() {
                Some(port) => {
                    let waiting = std::mem::take(&mut entry.waiting).into_iter();
                    entry.waiting = waiting.map(|frame| tell(frame, port)).collect();
                    self.entries.insert((port, vlan, address), entry);
                }
                None => lost.append(&mut entry.waiting),
            }
        }
        self.recount();
        lost
    }

    /// Once a second: the questions to ask now, and the frames that waited in vain.
    pub fn tick(&mut self, now: u32) -> (Vec<Question>, Vec<F>) {
        let (mut questions, mut given_up) = (Vec::new(), Vec::new());
        let before = self.entries.len();
        self.entries.retain(|&key, entry| {
            let age = now.wrapping_sub(entry.confirmed);
            if entry.mac.is_some() && age > STALE {
                return false;
            }
            let due = entry.mac.is_none() || age > FRESH;
            if !due || entry.asked == now {
                return true;
            }
            if entry.mac.is_none() && entry.questions >= QUESTIONS {
                given_up.append(&mut entry.waiting);
                return false;
            }
            entry.asked = now;
            entry.questions = entry.questions.saturating_add(1);
            questions.push((key, entry.own, entry.mac));
            true
        });
        if self.entries.len() != before {
            self.recount();
            self.changed();
        }
        // In an order of their own, so that what happens does not depend on where entries lie.
        questions.sort_by_key(|&(key, ..)| key);
        (questions, given_up)
    }
}

/// The frame that asks for a neighbour's address; to everyone where `known` is nothing.
pub fn question(
    (_, vlan, address): Key,
    own: IpAddr,
    mac: MacAddress,
    known: Option<MacAddress>,
) -> Vec<u8> {
    match address {
        IpAddr::V4(target) => {
            let sender = match own {
                IpAddr::V4(own) => own.octets(),
                IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED.octets(),
            };
            let arp = Arp {
                operation: Operation::Request,
                sender_mac: mac,
                sender,
                target_mac: MacAddress::default(),
                target: target.octets(),
            };
            let to = known.unwrap_or(MacAddress::BROADCAST);
            framed(to, mac, vlan, ethernet::ARP, &arp.to_bytes())
        }
        IpAddr::V6(target) => {
            let target = target.octets();
            let source = match own {
                IpAddr::V6(own) => own.octets(),
                IpAddr::V4(_) => link_local(mac).octets(),
            };
            let message = Neighbour {
                solicitation: true,
                target,
                mac: Some(mac),
            }
            .to_message();
            let group = solicited_node(target);
            let (destination, to) = match known {
                Some(known) => (target, known),
                None => (group, group_mac(group)),
            };
            let packet = icmp::neighbour_packet(source, destination, message);
            framed(to, mac, vlan, ethernet::IPV6, &packet)
        }
    }
}

/// The answer to an ARP request for an address of ours.
pub fn arp_answer(request: &Arp, mac: MacAddress, vlan: u16) -> Vec<u8> {
    let reply = Arp {
        operation: Operation::Reply,
        sender_mac: mac,
        sender: request.target,
        target_mac: request.sender_mac,
        target: request.sender,
    };
    framed(
        request.sender_mac,
        mac,
        vlan,
        ethernet::ARP,
        &reply.to_bytes(),
    )
}

/// The answer to a neighbour solicitation for an address of ours. One who has no address yet, and asks whether it may take this
/// one, is told before all nodes (RFC 4861, section 7.2.4).
pub fn advertisement(
    asker: [u8; 16],
    asker_mac: MacAddress,
    target: [u8; 16],
    mac: MacAddress,
    vlan: u16,
) -> Vec<u8> {
    let destination = match Ipv6Addr::from(asker).is_unspecified() {
        true => group_mac(ALL_NODES),
        false => asker_mac,
    };
    let packet = neighbour_discovery::advertisement(asker, target, mac);
    framed(destination, mac, vlan, ethernet::IPV6, &packet)
}

/// An Ethernet frame with a payload.
pub fn framed(
    destination: MacAddress,
    source: MacAddress,
    vlan: u16,
    ether_type: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut header = [0u8; 18];
    let length = ethernet::Header::write(&mut header, destination, source, vlan, ether_type);
    let mut frame = header[..length].to_vec();
    frame.extend_from_slice(payload);
    frame
}

/// The link-local address that belongs to an Ethernet address (RFC 4291, appendix A).
pub fn link_local(mac: MacAddress) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let mut address = [0u8; 16];
    address[..2].copy_from_slice(&[0xfe, 0x80]);
    address[8..].copy_from_slice(&[a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
    Ipv6Addr::from(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 7]);

    fn key() -> Key {
        (0, 0, "192.0.2.9".parse().unwrap())
    }

    fn own() -> IpAddr {
        "192.0.2.1".parse().unwrap()
    }

    #[test]
    fn frames_wait_for_the_answer() {
        let mut neighbours = Neighbours::default();
        assert_eq!(neighbours.look_up(key(), own(), 0), Lookup::Ask);
        neighbours.keep(key(), "frame").unwrap();
        assert_eq!(neighbours.look_up(key(), own(), 0), Lookup::Wait);
        assert_eq!(neighbours.learn(key(), MAC, 0), ["frame"]);
        assert_eq!(neighbours.look_up(key(), own(), 0), Lookup::Known(MAC));
    }

    #[test]
    fn strangers_teach_nothing() {
        let mut neighbours = Neighbours::<()>::default();
        neighbours.learn(key(), MAC, 0);
        assert_eq!(neighbours.look_up(key(), own(), 0), Lookup::Ask);
    }

    #[test]
    fn silence_gives_frames_up() {
        let mut neighbours = Neighbours::default();
        neighbours.look_up(key(), own(), 0);
        neighbours.keep(key(), "frame").unwrap();
        let mut asked = 1;
        for now in 1..10 {
            let (questions, given_up) = neighbours.tick(now);
            asked += questions.len();
            if given_up == ["frame"] {
                assert_eq!((now, asked), (3, 3));
                return;
            }
        }
        panic!("the frame still waits");
    }

    #[test]
    fn a_known_address_is_confirmed_or_forgotten() {
        let mut neighbours = Neighbours::<()>::default();
        neighbours.look_up(key(), own(), 0);
        neighbours.learn(key(), MAC, 0);
        assert!(neighbours.tick(FRESH).0.is_empty());
        assert_eq!(neighbours.tick(FRESH + 1).0, [(key(), own(), Some(MAC))]);
        assert_eq!(neighbours.look_up(key(), own(), 40), Lookup::Known(MAC));
        neighbours.tick(STALE + 1);
        assert_eq!(neighbours.look_up(key(), own(), 100), Lookup::Ask);
    }

    #[test]
    fn waiting_frames_are_bounded() {
        let mut neighbours = Neighbours::default();
        neighbours.look_up(key(), own(), 0);
        let kept = (0..100)
            .filter(|&i| neighbours.keep(key(), i).is_ok())
            .count();
        assert_eq!(kept, WAITING_LIMIT);
    }

    /// Asks for so many silent neighbours of a link; returns how many frames wait for them.
    fn flood(neighbours: &mut Neighbours<u32>, vlan: u16, silent: u32) -> usize {
        let wait = |number: u32| {
            let key = (0, vlan, Ipv4Addr::from_bits(0x0a00_0000 + number).into());
            neighbours.look_up(key, own(), 0);
            (0..40)
                .filter(|&frame| neighbours.keep(key, frame).is_ok())
                .count()
        };
        (0..silent).map(wait).sum()
    }

    #[test]
    fn a_link_keeps_to_its_share_and_others_have_theirs() {
        let mut neighbours = Neighbours::default();
        neighbours.share_among(200);
        assert_eq!(flood(&mut neighbours, 1, 500), LINK_WAITING);
        assert_eq!(neighbours.entries.len(), LINK_AWAITED);
        let full = (2..200)
            .map(|vlan| flood(&mut neighbours, vlan, 500))
            .sum::<usize>()
            + LINK_WAITING;
        assert!((WAITING..=2 * WAITING + 200).contains(&full), "{full} wait");
        assert_eq!(neighbours.look_up((0, 4000, own()), own(), 0), Lookup::Ask);
        assert_eq!(neighbours.keep((0, 4000, own()), 7), Ok(()));
        assert_eq!(neighbours.learn((0, 4000, own()), MAC, 0), [7]);
    }

    #[test]
    fn what_is_told_or_given_up_makes_room() {
        let mut neighbours = Neighbours::default();
        for round in 0..3 {
            assert_eq!(flood(&mut neighbours, 1, 500), LINK_WAITING, "{round}");
            for now in 1..=u32::from(QUESTIONS) {
                neighbours.tick(now);
            }
            assert!(neighbours.entries.is_empty() && neighbours.links.is_empty());
        }
        for number in 0..2 * LIMIT as u32 {
            let key = (0, 1, Ipv4Addr::from_bits(0x0a00_0000 + number).into());
            neighbours.look_up(key, own(), 0);
            neighbours.learn(key, MAC, 0);
        }
        assert_eq!(neighbours.entries.len(), LIMIT);
        neighbours.share_among(4);
        assert_eq!(neighbours.look_up((0, 2, own()), own(), 0), Lookup::Ask);
    }
}
