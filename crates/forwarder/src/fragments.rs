//! Fragments follow the first one: the connection it showed, remembered for a while.
//!
//! Each place has a share of what is remembered. A flood of first fragments at one pushes out its own, and where there is no room
//! for all places together, those of the place that has most.

use crate::registry::PlaceId;
use foldhash::HashMap;
use std::collections::VecDeque;
use std::hash::Hash;
use wire::ip::Fragmentation;
use wire::{Addresses, FiveTuple, IpPacket};

/// Packets in fragments that are remembered at most, in all and of one place.
const LIMIT: usize = 32_768;
const SHARE: usize = 1_024;
/// Seconds they are remembered (RFC 791 asks hosts to wait as long at least).
const LIFETIME: u32 = 30;

/// Which packet fragments are of. Over IPv6 the protocol does not count: a later fragment may show that of an extension header,
/// which only the first one has (RFC 8200, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
    addresses: Addresses,
    protocol: u8,
    identification: u32,
}

impl Name {
    fn of(tuple: &FiveTuple, identification: u32) -> Name {
        let all_show = shown_by_all(tuple);
        Name {
            addresses: all_show.addresses,
            protocol: all_show.protocol,
            identification,
        }
    }
}

/// What every fragment of a packet shows of its connection, given what one of them shows.
pub(crate) fn shown_by_all(tuple: &FiveTuple) -> FiveTuple {
    let protocol = match tuple.addresses {
        Addresses::V4 { .. } => tuple.protocol,
        Addresses::V6 { .. } => 0,
    };
    FiveTuple::without_ports(tuple.addresses, protocol)
}

/// What a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The connection, as packets of the packet's direction show it.
    pub tuple: FiveTuple,
    /// Whether the packet is an ICMP error about it.
    pub is_error: bool,
}

/// What is remembered of one place.
#[derive(Debug, Default)]
struct Share {
    records: HashMap<Name, (Shown, u32)>,
    /// The same, the oldest first, with the time each was noted here; it may have been seen again since.
    order: VecDeque<(Name, u32)>,
}

impl Share {
    /// Removes the oldest, if there is one; returns which that was.
    fn forget_oldest(&mut self) -> Option<Name> {
        let (name, _) = self.order.pop_front()?;
        self.records.remove(&name).map(|_| name)
    }

    /// Removes what is too old, and names it.
    fn forget_old(&mut self, now: u32, mut gone: impl FnMut(Name)) {
        let is_old = |seen: u32| now.wrapping_sub(seen) > LIFETIME;
        while let Some(&(name, noted)) = self.order.front().filter(|(_, noted)| is_old(*noted)) {
            self.order.pop_front();
            match self.records.get(&name) {
                Some(&(_, seen)) if seen != noted && !is_old(seen) => {
                    self.order.push_back((name, seen));
                }
                _ => {
                    if self.records.remove(&name).is_some() {
                        gone(name);
                    }
                }
            }
        }
    }
}

/// Connections of packets in fragments, by the place (a stage or an edge) where they were seen.
#[derive(Debug)]
pub struct Fragments<P = PlaceId> {
    shares: HashMap<P, Share>,
    /// The place where a packet was noted last.
    newest: HashMap<Name, P>,
    count: usize,
    pushed_out: u64,
}

impl<P> Default for Fragments<P> {
    fn default() -> Self {
        Fragments {
            shares: HashMap::default(),
            newest: HashMap::default(),
            count: 0,
            pushed_out: 0,
        }
    }
}

impl<P: Copy + Eq + Hash> Fragments<P> {
    /// What a packet at a place belongs to: of a later fragment what the first one showed there, of an ICMP error the
    /// connection it quotes. Nothing where that takes a first fragment that is not known. `now` is in seconds.
    #[inline]
    pub fn connection(&mut self, place: P, packet: &IpPacket, now: u32) -> Option<Shown> {
        if packet.quoted.is_none() && packet.fragmentation == Fragmentation::Whole {
            return Some(Shown {
                tuple: packet.tuple,
                is_error: false,
            });
        }
        self.connection_in_parts(place, packet, now)
    }

    #[cold]
    fn connection_in_parts(&mut self, place: P, packet: &IpPacket, now: u32) -> Option<Shown> {
        if let Fragmentation::Later { identification } = packet.fragmentation {
            return self.recall(place, &packet.tuple, identification, now);
        }
        let shown = match (packet.quoted, packet.quoted_fragment) {
            (None, _) => Shown {
                tuple: packet.tuple,
                is_error: false,
            },
            (Some(quoted), None) => Shown {
                tuple: quoted.reversed(),
                is_error: true,
            },
            (Some(quoted), Some(identification)) => {
                let about = self.recall(place, &quoted, identification, now)?;
                Shown {
                    tuple: about.tuple.reversed(),
                    is_error: true,
                }
            }
        };
        if let Fragmentation::First { identification } = packet.fragmentation {
            self.remember(place, &packet.tuple, identification, shown, now);
        }
        Some(shown)
    }

    /// Notes what a first fragment, which itself shows `tuple`, belongs to.
    #[cold]
    pub(crate) fn remember(
        &mut self,
        place: P,
        tuple: &FiveTuple,
        identification: u32,
        shown: Shown,
        now: u32,
    ) {
        let name = Name::of(tuple, identification);
        self.newest.insert(name, place);
        let share = self.shares.entry(place).or_default();
        if let Some(record) = share.records.get_mut(&name) {
            *record = (shown, now);
            return;
        }
        let pushed_out = match share.records.len() >= SHARE {
            true => share.forget_oldest(),
            false => None,
        };
        share.records.insert(name, (shown, now));
        share.order.push_back((name, now));
        self.count += 1;
        self.note_pushed_out(place, pushed_out);
        if self.count > LIMIT {
            self.push_out();
        }
    }

    /// Forgets the oldest of the place that has most.
    #[cold]
    fn push_out(&mut self) {
        let shares = self.shares.iter_mut();
        let largest = shares.max_by_key(|(_, share)| share.records.len());
        if let Some((&place, share)) = largest {
            let pushed_out = share.forget_oldest();
            self.note_pushed_out(place, pushed_out);
        }
    }

    fn note_pushed_out(&mut self, place: P, name: Option<Name>) {
        if let Some(name) = name {
            self.count -= 1;
            self.pushed_out += 1;
            forget_place(&mut self.newest, name, place);
        }
    }

    /// What the first fragment of a packet showed at the place where one of that name was noted last, which may be any. It may be of another
    /// packet, of somebody else.
    #[cold]
    pub(crate) fn anywhere(
        &self,
        tuple: &FiveTuple,
        identification: u32,
        now: u32,
    ) -> Option<Shown> {
        let &place = self.newest.get(&Name::of(tuple, identification))?;
        self.recall(place, tuple, identification, now)
    }

    fn recall(&self, place: P, tuple: &FiveTuple, identification: u32, now: u32) -> Option<Shown> {
        let share = self.shares.get(&place)?;
        let &(shown, seen) = share.records.get(&Name::of(tuple, identification))?;
        (now.wrapping_sub(seen) <= LIFETIME).then_some(shown)
    }

    /// Forgets what is too old; `now` is in seconds.
    pub fn forget_old(&mut self, now: u32) {
        let (count, newest) = (&mut self.count, &mut self.newest);
        self.shares.retain(|&place, share| {
            share.forget_old(now, |name| {
                *count -= 1;
                forget_place(newest, name, place);
            });
            !share.records.is_empty()
        });
    }

    /// How many were forgotten before their time since this was last asked.
    pub fn take_pushed_out(&mut self) -> u64 {
        std::mem::take(&mut self.pushed_out)
    }
}

/// Forgets that a packet was noted last at a place, if it was.
fn forget_place<P: Copy + Eq>(newest: &mut HashMap<Name, P>, name: Name, place: P) {
    if newest.get(&name) == Some(&place) {
        newest.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(identification: u32) -> (FiveTuple, Shown) {
        let tuple = FiveTuple {
            addresses: Addresses::V4 {
                source: identification.to_be_bytes(),
                destination: [10, 0, 0, 1],
            },
            protocol: 17,
            source_port: 5,
            destination_port: 6,
        };
        let shown = Shown {
            tuple,
            is_error: false,
        };
        (tuple, shown)
    }

    fn remember(fragments: &mut Fragments<u32>, place: u32, number: u32, now: u32) {
        let (tuple, shown) = first(number);
        fragments.remember(place, &tuple, number, shown, now);
    }

    fn knows(fragments: &Fragments<u32>, place: u32, number: u32, now: u32) -> bool {
        let (tuple, shown) = first(number);
        let later = FiveTuple::without_ports(tuple.addresses, 17);
        let recalled = fragments.recall(place, &later, number, now);
        assert!(recalled.is_none_or(|recalled| recalled == shown));
        recalled.is_some()
    }

    #[test]
    fn a_place_keeps_to_its_share() {
        let mut fragments = Fragments::default();
        remember(&mut fragments, 1, 0, 0);
        let most = SHARE as u32;
        for number in 0..5 * most {
            remember(&mut fragments, 2, number, 0);
        }
        assert!(knows(&fragments, 1, 0, 0), "another place's is untouched");
        assert!(!knows(&fragments, 2, 4 * most - 1, 0));
        assert!((4 * most..5 * most).all(|number| knows(&fragments, 2, number, 0)));
        assert_eq!(fragments.take_pushed_out(), u64::from(4 * most));
        assert_eq!(fragments.take_pushed_out(), 0);
        assert_eq!(fragments.count, SHARE + 1);
    }

    #[test]
    fn where_all_is_full_the_place_that_has_most_gives_way() {
        let mut fragments = Fragments::default();
        remember(&mut fragments, 99, 0, 0);
        for place in 0..2 * (LIMIT / SHARE) as u32 {
            for number in 0..SHARE as u32 {
                remember(&mut fragments, 100 + place, number, 0);
            }
        }
        assert_eq!(fragments.count, LIMIT);
        let held: usize = fragments
            .shares
            .values()
            .map(|share| share.records.len())
            .sum();
        assert_eq!(held, LIMIT);
        assert!(knows(&fragments, 99, 0, 0), "a small share is untouched");
    }

    #[test]
    fn what_is_seen_again_stays_and_what_is_not_goes() {
        let mut fragments = Fragments::default();
        for number in 0..100 {
            remember(&mut fragments, 1, number, 0);
        }
        remember(&mut fragments, 1, 7, 20);
        assert!(knows(&fragments, 1, 8, LIFETIME));
        assert!(!knows(&fragments, 1, 8, LIFETIME + 1));
        fragments.forget_old(LIFETIME + 1);
        assert_eq!(fragments.count, 1);
        assert!(knows(&fragments, 1, 7, 20 + LIFETIME));
        fragments.forget_old(21 + LIFETIME);
        assert_eq!((fragments.count, fragments.shares.len()), (0, 0));
    }

    #[test]
    fn a_packet_is_found_where_it_was_noted_last_and_nothing_stays_of_it() {
        let mut fragments = Fragments::default();
        let anywhere = |fragments: &Fragments<u32>, number: u32| {
            let (tuple, shown) = first(number);
            let found = fragments.anywhere(&tuple, number, 0);
            assert!(found.is_none_or(|found| found == shown));
            found.is_some()
        };
        remember(&mut fragments, 1, 0, 0);
        remember(&mut fragments, 2, 0, 0);
        for number in 1..=SHARE as u32 {
            remember(&mut fragments, 1, number, 0);
        }
        assert!(!knows(&fragments, 1, 0, 0) && anywhere(&fragments, 0));
        remember(&mut fragments, 1, 0, 0);
        assert!(!anywhere(&fragments, 1) && anywhere(&fragments, 2));
        for place in 100..100 + 2 * (LIMIT / SHARE) as u32 {
            for number in 0..SHARE as u32 {
                remember(&mut fragments, place, 10_000 * place + number, 0);
            }
        }
        assert_eq!(fragments.count, LIMIT);
        assert!(fragments.newest.len() <= LIMIT);
        fragments.forget_old(LIFETIME + 1);
        assert_eq!((fragments.count, fragments.newest.len()), (0, 0));
    }

    #[test]
    fn over_ipv6_the_protocol_does_not_name_a_packet() {
        let addresses = Addresses::V6 {
            source: [1; 16],
            destination: [2; 16],
        };
        let tuple = FiveTuple {
            addresses,
            protocol: 17,
            source_port: 5,
            destination_port: 6,
        };
        let shown = Shown {
            tuple,
            is_error: false,
        };
        let mut fragments = Fragments::default();
        fragments.remember(1, &tuple, 9, shown, 0);
        let later = FiveTuple::without_ports(addresses, 60);
        assert_eq!(fragments.recall(1, &later, 9, 0), Some(shown));
        assert_eq!(fragments.recall(1, &later, 8, 0), None);
    }
}
