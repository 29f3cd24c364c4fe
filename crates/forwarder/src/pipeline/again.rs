//! Connections that cannot go where their entries say, and packets for whom there is nobody here: the choice that is made again.
//!
//! An entry is of no use where its hop is gone, dead or withdrawn; where it leads back to the forwarder that the packet comes from, which
//! has nobody for the connection either, or believes it to be here; and where it is left from another way of the connection, that led on
//! from here. Then somebody here is chosen. Where there is nobody, a packet that came over a tunnel goes back to who sent it, and so
//! on until it is where it came from no tunnel: that forwarder knows all who can be chosen, and takes another one. That happens to
//! a packet twice at most, so that rules which contradict each other drop it soon.

use super::{Output, Pipeline, ends, flow_direction, hops};
use crate::arrival::Arrival;
use crate::counters::{Drop, Event, Reason};
use crate::family::Family;
use crate::frame::Frame;
use crate::guard;
use crate::registry::HopId;
use crate::rules::{Hop, Rules};
use flow::Found;
use wire::steering::Direction;

/// What becomes of a packet that does not go straight on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    loop_guard: u8,
    /// Whether it goes back, and not elsewhere after it came back.
    pub(super) is_back: bool,
}

impl Arrival {
    /// Whether it is on its way back: the forwarder that it comes from has nobody for it.
    fn is_back(&self) -> bool {
        self.over_tunnel && guard::is_back(self.loop_guard)
    }

    /// Whether it comes from where its connection's packets do, and not by a detour.
    fn is_straight(&self) -> bool {
        !self.over_tunnel
            || !guard::is_back(self.loop_guard) && !guard::was_passed_on(self.loop_guard)
    }

    /// It goes back; nothing where that has happened too often.
    fn back(&self) -> Option<Turn> {
        let loop_guard = guard::back(self.loop_guard)?;
        let is_back = true;
        Some(Turn {
            loop_guard,
            is_back,
        })
    }

    /// It came back and goes elsewhere.
    fn again(&self) -> Turn {
        let loop_guard = guard::again(self.loop_guard);
        let is_back = false;
        Turn {
            loop_guard,
            is_back,
        }
    }
}

impl<F: Frame> Pipeline<F> {
    /// A connection whose hop is of no use: it went away or died, or the packet comes from there.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn choose_again<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        found: Found,
        now: u32,
    ) -> Result<HopId, Reason> {
        let (old, origin) = ends(found.hops(), arrival.direction);
        let is_back = arrival.is_back() && self.peer(old) == Some(arrival.from);
        let from = if is_back { origin } else { arrival.from };
        let before = self.peer(from);
        let picked = match before {
            None if is_back => self.pick_other(rules, arrival, key),
            _ => self.pick(rules, arrival, key),
        };
        self.turn = is_back.then(|| arrival.again());
        match (picked, before) {
            (Some(hop), _) if arrival.is_error => Ok(hop),
            (Some(hop), _) => {
                let direction = flow_direction(arrival.direction);
                let table = K::table_mut(self);
                table.on_packet(found.position, arrival.tcp_flags, direction, now);
                self.counters.event(Event::FlowRechosen);
                self.update::<K>(found, hops(from, hop, arrival.direction));
                self.count_new(arrival, hop);
                Ok(hop)
            }
            (None, Some(peer)) if peer != arrival.from || !arrival.is_back() => {
                self.give_back(arrival, peer)
            }
            // Nobody else: a peer that is said to be down may still be there.
            (None, None) if !is_back && matches!(rules.hop(old), Some(Hop::Peer(_))) => Ok(old),
            _ => {
                self.turn = None;
                Err(Drop::HopGone.into())
            }
        }
    }

    /// A packet without an entry, for whom there is nobody.
    #[cold]
    pub(super) fn find_nobody(&mut self, arrival: &Arrival) -> Result<HopId, Reason> {
        match arrival.over_tunnel && !arrival.is_back() {
            true => self.give_back(arrival, arrival.from),
            false => Err(Drop::NoTarget.into()),
        }
    }

    fn give_back(&mut self, arrival: &Arrival, peer: HopId) -> Result<HopId, Reason> {
        self.turn = arrival.back();
        self.turn.ok_or(Drop::HopGone)?;
        self.counters.event(Event::GivenBack);
        Ok(peer)
    }

    /// Sends a packet that goes back, or that came back and goes elsewhere.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn depart_on<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        hop: HopId,
        Turn { loop_guard, .. }: Turn,
        frame: F,
        now: u32,
        out: &mut Output<F>,
    ) -> Result<(), Reason> {
        let arrival = Arrival {
            loop_guard,
            ..*arrival
        };
        self.depart(rules, &arrival, key, hop, frame, now, out)
    }

    /// The forwarder that a hop is or leads to.
    pub(super) fn peer(&self, hop: HopId) -> Option<HopId> {
        let exit = self.exits.get(hop, Direction::Forward)?;
        Some(exit.peer).filter(|&peer| peer != HopId::WITHDRAWN)
    }

    /// Whether a packet may go where its connection's entry says: `origin` is where the entry has packets come from.
    #[inline(always)]
    pub(super) fn leads_on(
        &self,
        rules: &Rules,
        arrival: &Arrival,
        towards: HopId,
        origin: HopId,
    ) -> bool {
        let exit = self.exits.get(towards, arrival.direction);
        exit.is_some_and(|exit| {
            let is_elsewhere = exit.peer != HopId::WITHDRAWN;
            exit.is_usable
                && exit.peer != arrival.from
                && (origin == arrival.from
                    || !(is_elsewhere && self.is_left(rules, arrival, origin)))
        })
    }

    /// Whether an entry that leads to another forwarder is left from a time when its connection's packets came from another site, or
    /// from here: what comes over a tunnel is for somebody here, or for who was here when it came from there.
    #[cold]
    fn is_left(&self, rules: &Rules, arrival: &Arrival, origin: HopId) -> bool {
        let site = |hop| match rules.hop(hop) {
            Some(Hop::Peer(peer)) => Some(peer.site()),
            _ => None,
        };
        arrival.over_tunnel && !arrival.is_back() && site(origin) != site(arrival.from)
    }

    /// Whether packets of a connection come from elsewhere than its entry says, and not just by a detour or from where that has moved to.
    #[cold]
    pub(super) fn has_moved(&self, arrival: &Arrival, origin: HopId) -> bool {
        let exit = self.exits.get(origin, arrival.direction.opposite());
        let is_usable = exit.is_some_and(|exit| exit.is_usable);
        self.peer(origin) != Some(arrival.from) && (arrival.is_straight() || !is_usable)
    }

    /// Somebody here or elsewhere, but not the forwarder that the packet comes from.
    fn pick_other<K: Family>(&self, rules: &Rules, arrival: &Arrival, key: &K) -> Option<HopId> {
        let end = rules.stage(arrival.place)?.end(arrival.direction);
        let destination = key.destination_of(arrival.direction);
        end.all
            .choose_other(self.hash.of(key), destination, arrival.from)
    }
}
