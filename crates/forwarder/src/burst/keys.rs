//! The keys of a burst's packets, looked up together. A key's position is that of what was found of it.

use crate::entropy::Entropy;
use crate::family::Family;
use flow::{BURST, FlowTable, Found, Hit, Lookups, Missed, Noting};

/// Ports worked out together, by the processors that work out most.
const AT_ONCE: usize = 8;
/// Ports worked out before they are written to where they belong.
const PART: usize = 64;
const _: () = assert!(BURST.is_multiple_of(PART) && PART.is_multiple_of(AT_ONCE));

/// Connections to look up, of one family.
pub(super) struct Connections<K: Family> {
    pub(super) stages: Keys<K>,
    pub(super) edges: Keys<K>,
}

/// Keys and what is found of them.
pub(super) struct Keys<K: Family> {
    pub(super) keys: [K; BURST],
    lookups: Lookups<K>,
    missed: Missed,
    pub(super) hits: [Hit; BURST],
    /// Outer UDP source ports of what is looked up at stages.
    pub(super) ports: [u16; BURST],
    /// How many keys there were when they were worked out.
    ports_known: usize,
    /// Positions in the burst, of those that [`Keys::push_of`] has added.
    pub(super) packets: [u8; BURST],
    pub(super) count: usize,
}

impl<K: Family> Keys<K> {
    pub(super) fn new(none: K) -> Keys<K> {
        Keys {
            lookups: Lookups::new(&none),
            missed: Missed::NONE,
            keys: [none; BURST],
            hits: [Hit::NONE; BURST],
            ports: [0; BURST],
            ports_known: 0,
            packets: [0; BURST],
            count: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        (self.count, self.ports_known) = (0, 0);
        self.lookups.clear();
    }

    /// Adds the key of a packet; returns its position.
    #[inline(always)]
    pub(super) fn push(&mut self, key: K) -> u8 {
        let at = self.count % BURST;
        self.keys[at] = key;
        self.count += 1;
        at as u8
    }

    /// The same, and notes which packet of the burst it is.
    #[inline(always)]
    pub(super) fn push_of(&mut self, key: K, packet: usize) {
        let at = self.push(key);
        self.packets[usize::from(at) % BURST] = packet as u8;
    }

    /// Those behind the first `start`.
    #[inline(always)]
    pub(super) fn since(&self, start: usize) -> &[K] {
        self.keys.get(start..self.count).unwrap_or_default()
    }

    /// The packets of keys that [`Keys::push_of`] has added behind the first `start`.
    #[inline(always)]
    pub(super) fn packets_since(&self, start: usize) -> &[u8] {
        self.packets.get(start..self.count).unwrap_or_default()
    }

    /// Moves a key to the place of one that is not needed any more, `to`, which moves on; returns its new position.
    #[inline(always)]
    pub(super) fn keep(&mut self, slot: usize, to: &mut usize) -> u8 {
        let at = *to % BURST;
        self.put(slot, at);
        *to += 1;
        at as u8
    }

    /// Has a key stand at another place too.
    #[inline(always)]
    pub(super) fn put(&mut self, slot: usize, to: usize) {
        self.keys[to % BURST] = self.keys[slot % BURST];
    }

    /// Asks memory for the entries of keys that have come since, once there are so many.
    #[inline(always)]
    pub(super) fn fetch(&mut self, table: &FlowTable<K>, least: usize) {
        if self.count >= self.lookups.count() + least {
            self.fetch_new(table);
        }
    }

    #[inline(never)]
    fn fetch_new(&mut self, table: &FlowTable<K>) {
        let new = self.lookups.count()..self.count.min(BURST);
        if let Some(keys) = self.keys.get(new) {
            table.fetch(keys, &mut self.lookups);
        }
    }

    pub(super) fn look_up(&mut self, table: &FlowTable<K>) {
        self.look(table);
        self.look_again(table);
    }

    /// The first half of a look-up. What it did not find comes from memory until the second half.
    pub(super) fn look(&mut self, table: &FlowTable<K>) {
        if self.count > 0 {
            self.fetch(table, 1);
            table.look(&mut self.lookups, &mut self.hits, &mut self.missed);
        }
    }

    /// The second half.
    pub(super) fn look_again(&mut self, table: &FlowTable<K>) {
        if self.count > 0 {
            table.look_again(&self.lookups, &mut self.hits, &self.missed);
        }
    }

    /// Works out the outer source ports, if that is still to be done. A loop without anything else in it, which writes to memory that
    /// is nobody else's: only then is it compiled to vectors.
    #[inline(always)]
    pub(super) fn work_out_ports(&mut self, entropy: &Entropy) {
        if self.ports_known == self.count {
            return;
        }
        self.ports_known = self.count;
        let count = self.count.next_multiple_of(AT_ONCE).min(BURST);
        let keys = self.keys[..count].chunks(PART);
        for (keys, all) in keys.zip(self.ports.as_chunks_mut::<PART>().0) {
            let mut ports = [0; PART];
            for (key, port) in keys.iter().zip(&mut ports) {
                *port = key.entropy_port(entropy);
            }
            *all = ports;
        }
    }

    /// The outer source ports that were worked out.
    #[inline(always)]
    pub(super) fn known_ports(&self) -> &[u16] {
        &self.ports[..self.ports_known.min(BURST)]
    }

    /// What notes packets of these connections in their entries. `now` is in seconds.
    #[inline(always)]
    pub(super) fn noting<'a>(&self, table: &'a mut FlowTable<K>, now: u32) -> Noting<'a, K> {
        table.noting_found(&self.lookups, now)
    }

    /// A key and what was found of it.
    #[inline(always)]
    pub(super) fn get(&self, slot: usize) -> (&K, Option<Found>) {
        let slot = slot % BURST;
        (&self.keys[slot], self.hits[slot].found())
    }
}

impl<K: Family> Connections<K> {
    pub(super) fn new(none: K) -> Connections<K> {
        Connections {
            stages: Keys::new(none),
            edges: Keys::new(none),
        }
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.stages.clear();
        self.edges.clear();
    }

    /// How many keys there are, at stages and at edges.
    #[inline(always)]
    pub(super) fn counts(&self) -> [usize; 2] {
        [self.stages.count, self.edges.count]
    }

    /// [`Keys::fetch`] of both.
    #[inline(always)]
    pub(super) fn fetch(&mut self, table: &FlowTable<K>, least: usize) {
        self.stages.fetch(table, least);
        self.edges.fetch(table, least);
    }
}
