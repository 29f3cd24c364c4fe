//! Later fragments follow the first one: the ports it showed, remembered for a while.

use crate::registry::PlaceId;
use foldhash::HashMap;
use std::hash::Hash;
use wire::ip::Fragmentation;
use wire::{Addresses, FiveTuple, IpPacket};

/// Packets in fragments that are remembered at most.
const LIMIT: usize = 8_192;
/// Seconds they are remembered (RFC 791 asks hosts to wait as long at least).
const LIFETIME: u32 = 30;

/// Where the fragments were seen, whose they are, and which packet's.
type Key<P> = (P, Addresses, u8, u32);

/// Ports of packets in fragments, by where they were seen.
#[derive(Debug)]
pub struct Fragments<P = PlaceId> {
    ports: HashMap<Key<P>, (u16, u16, u32)>,
}

impl<P> Default for Fragments<P> {
    fn default() -> Self {
        Fragments {
            ports: HashMap::default(),
        }
    }
}

impl<P: Copy + Eq + Hash> Fragments<P> {
    /// The packet's 5-tuple with its ports: its own, or those its first fragment showed at this place (a stage or
    /// an edge, `place`). Nothing for a later fragment whose first is not known. `now` is in seconds.
    #[inline]
    pub fn tuple(&mut self, place: P, packet: &IpPacket, now: u32) -> Option<FiveTuple> {
        match packet.fragmentation {
            Fragmentation::Whole => Some(packet.tuple),
            Fragmentation::First { identification } => {
                self.remember(place, packet, identification, now);
                Some(packet.tuple)
            }
            Fragmentation::Later { identification } => {
                self.recall(place, packet, identification, now)
            }
        }
    }

    #[cold]
    fn remember(&mut self, place: P, packet: &IpPacket, identification: u32, now: u32) {
        if self.ports.len() >= LIMIT {
            self.forget_old(now);
        }
        if self.ports.len() >= LIMIT {
            self.ports.clear();
        }
        let tuple = packet.tuple;
        let key = (place, tuple.addresses, tuple.protocol, identification);
        self.ports
            .insert(key, (tuple.source_port, tuple.destination_port, now));
    }

    #[cold]
    fn recall(
        &mut self,
        place: P,
        packet: &IpPacket,
        identification: u32,
        now: u32,
    ) -> Option<FiveTuple> {
        let tuple = packet.tuple;
        let key = (place, tuple.addresses, tuple.protocol, identification);
        let &(source_port, destination_port, seen) = self.ports.get(&key)?;
        (now.wrapping_sub(seen) <= LIFETIME).then_some(FiveTuple {
            source_port,
            destination_port,
            ..tuple
        })
    }

    /// Forgets what is too old; `now` is in seconds.
    pub fn forget_old(&mut self, now: u32) {
        self.ports
            .retain(|_, &mut (_, _, seen)| now.wrapping_sub(seen) <= LIFETIME);
    }
}
