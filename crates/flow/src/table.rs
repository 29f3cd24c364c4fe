//! The table itself: one writer, both directions of a connection in one entry.

use std::hint::select_unpredictable;

use crate::ahead::{Front, PagesAhead};
use crate::bucket::{Bucket, Stored};
use crate::config::{Config, ConfigError};
use crate::engine::{Engine, Instructions, Picked, Processor, Task, multiplier};
use crate::entry::{
    FIRST, FlowEntry, Found, Hops, PLACE_MASK, Position, SECOND, age_of, low_with, state_of,
};
use crate::fetching::Fetching;
use crate::key::{FlowKey, PROTOCOL_SHIFT, QUOTIENT_MASK};
use crate::lookup::{Lookups, look};
use crate::memory::{HUGE, Memory, PAGE, Pages, ReserveError};
use crate::notes::Notes;
use crate::probe::{Hashes, Mixer, Wanted, hashes};
use crate::retime::Retiming;
use crate::room::{COMFORTABLE, Reached, SEARCH};
use crate::scan::OpenScan;
use crate::settle::Settling;
use crate::shape::{MAX_BUCKETS, MIN_BUCKETS, Shape};
use crate::state::{Direction, SETTLED, Side, State, TCP};
use crate::stats::{Counters, Stats};
use crate::timers::Ages;

/// What became of an [`FlowTable::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Insertion {
    /// The connection is in the table now.
    New(Position),
    /// It was there already, with these hops, which stand.
    Present(Found),
    /// The bound on memory leaves no room. Nothing changed, except for [`crate::Counters::full`].
    Full,
}

/// A table of connections of one address family; see the crate's documentation.
pub struct FlowTable<K: FlowKey> {
    pub(crate) memory: Memory<K::Bucket>,
    pub(crate) shape: Shape,
    /// Buckets there may be.
    pub(crate) limit: u32,
    pub(crate) engine: Picked,
    pub(crate) mixer: Mixer,
    pub(crate) fetching: Fetching,
    pub(crate) ages: Ages,
    pub(crate) entries: usize,
    pub(crate) counters: Counters,
    pub(crate) age_cursor: u32,
    pub(crate) settling: Settling,
    /// Buckets that a search for room may visit.
    pub(crate) effort: usize,
    /// Scratch of a search for room.
    pub(crate) reached: Vec<Reached>,
    pub(crate) scans: Vec<OpenScan<K>>,
    pub(crate) scans_opened: u64,
    pub(crate) config: Config,
    pub(crate) moves: u64,
    /// Entries whose state or age a packet has changed: what was found before may say something else.
    pub(crate) noted: u64,
    pub(crate) notes: Notes,
    /// Ages that are being changed.
    pub(crate) retiming: Option<Retiming>,
    #[cfg(feature = "substitute")]
    pub(crate) substitute: Option<Box<dyn crate::Substitute<K>>>,
}

/// A table of IPv4 connections.
pub type Ipv4Table = FlowTable<crate::key::Ipv4Key>;
/// A table of IPv6 connections.
pub type Ipv6Table = FlowTable<crate::key::Ipv6Key>;

/// Notes packets of one second; see [`FlowTable::noting`].
pub struct Noting<'a, K: FlowKey> {
    buckets: &'a mut [K::Bucket],
    notes: &'a Notes,
    noted: &'a mut u64,
    /// Not 0 once entries may say something else than when they were looked up.
    stale: u16,
    #[cfg(feature = "substitute")]
    keeps_notes: bool,
}

impl<K: FlowKey> Noting<'_, K> {
    /// [`FlowTable::on_packet`] in this second.
    #[inline(always)]
    pub fn on_packet(&mut self, position: Position, tcp_flags: u8, direction: Direction) -> State {
        #[cfg(feature = "substitute")]
        if !self.keeps_notes {
            return State::New;
        }
        let bucket = &mut self.buckets[position.bucket() as usize];
        let said = bucket.said(position.slot());
        let side = Side::of(direction, said.opener());
        let (low, state) = self.notes.after(said.protocol(), said.low, tcp_flags, side);
        if low != said.low {
            bucket.set_low(position.slot(), low);
            *self.noted += 1;
            self.stale = 1;
        }
        state
    }

    /// Whether entries still say what they said when the burst was looked up ([`FlowTable::noting_found`]), so that
    /// [`Noting::on_packet_found`] is the quicker way.
    #[inline(always)]
    pub fn is_as_found(&self) -> bool {
        self.stale == 0
    }

    /// The same for a connection of the burst: nearly all packets change nothing, which tells what was found, without another
    /// look at the entry.
    #[inline(always)]
    pub fn on_packet_found(&mut self, found: &Found, tcp_flags: u8, direction: Direction) {
        if !self.changes_nothing(found, tcp_flags, direction) {
            self.on_packet_after_all(found.position, tcp_flags, direction);
        }
    }

    /// Whether that changes nothing.
    #[inline(always)]
    pub fn changes_nothing(&self, found: &Found, tcp_flags: u8, direction: Direction) -> bool {
        let said = found.said();
        let side = Side::of(direction, said.opener());
        let (low, _) = self.notes.after(said.protocol(), said.low, tcp_flags, side);
        (low ^ said.low) | self.stale == 0
    }

    #[cold]
    #[inline(never)]
    fn on_packet_after_all(&mut self, position: Position, tcp_flags: u8, direction: Direction) {
        self.on_packet(position, tcp_flags, direction);
    }
}

struct Find<'a, K: FlowKey> {
    table: &'a FlowTable<K>,
    key: &'a K,
}

impl<K: FlowKey> Task for Find<'_, K> {
    type Output = Option<Found>;

    #[inline(always)]
    fn run<E: Engine>(self, engine: E) -> Option<Found> {
        self.table
            .find(engine, &self.table.mixer.probe(engine, self.key))
    }
}

struct Rehash<'a, K: FlowKey> {
    table: &'a FlowTable<K>,
    bucket: u32,
    stored: &'a Stored<K::Addresses>,
}

impl<K: FlowKey> Task for Rehash<'_, K> {
    type Output = (Hashes, u64);

    #[inline(always)]
    fn run<E: Engine>(self, engine: E) -> (Hashes, u64) {
        self.table.rehash(engine, self.bucket, self.stored)
    }
}

struct Insert<'a, K: FlowKey> {
    table: &'a mut FlowTable<K>,
    key: &'a K,
    hops: Hops,
    state: State,
    seen: u32,
}

impl<K: FlowKey> Task for Insert<'_, K> {
    type Output = Insertion;

    #[inline(always)]
    fn run<E: Engine>(self, engine: E) -> Insertion {
        let Self {
            table,
            key,
            hops,
            state,
            seen,
        } = self;
        let (wanted, hashes) = table.mixer.probe(engine, key);
        if let Some(found) = table.find(engine, &(wanted, hashes)) {
            return Insertion::Present(found);
        }
        table.grow_if_loaded(engine);
        let age = table.ages.stamp(key.protocol(), state, seen);
        let head = wanted.head | u64::from(low_with(0, state, age));
        let entry = Stored {
            addresses: wanted.addresses,
            head,
            hops,
        };
        let position = match table.place(hashes, &entry) {
            Some(position) => position,
            None => match table.make_room(hashes) {
                Some((bucket, slot, place)) => table.put(bucket, slot, place, &entry),
                None => {
                    table.counters.full += 1;
                    return Insertion::Full;
                }
            },
        };
        table.entries += 1;
        table.counters.inserted += 1;
        Insertion::New(position)
    }
}

impl<K: FlowKey> FlowTable<K> {
    /// An empty table. Address space for [`Config::memory_limit`] is reserved; memory is taken as entries come.
    ///
    /// # Errors
    /// The settings contradict each other, or the kernel refuses.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let unit = if config.pages == Pages::Reserved || config.memory_limit >= HUGE {
            HUGE
        } else {
            PAGE
        };
        let limit = Self::limit_of(config, unit)?;
        let bytes = (limit as usize * size_of::<K::Bucket>()).next_multiple_of(unit);
        Self::over(config, limit, Memory::reserve(bytes, config.pages)?)
    }

    /// Buckets that the bound on memory, in whole units, has room for.
    pub(crate) fn limit_of(config: &Config, unit: usize) -> Result<u32, ConfigError> {
        let bucket = size_of::<K::Bucket>();
        let bytes = config.memory_limit / unit * unit;
        let limit =
            u32::try_from(bytes / bucket).map_or(MAX_BUCKETS, |buckets| buckets.min(MAX_BUCKETS));
        if limit < MIN_BUCKETS {
            let least = (MIN_BUCKETS as usize * bucket).next_multiple_of(unit);
            return Err(ConfigError::MemoryLimitTooSmall {
                given: config.memory_limit,
                least,
            });
        }
        let most = limit as usize * K::Bucket::SLOTS / COMFORTABLE.1 * COMFORTABLE.0;
        if config.expected_entries > most {
            return Err(ConfigError::ExpectedEntriesTooMany {
                given: config.expected_entries,
                most,
            });
        }
        Ok(limit)
    }

    /// A table over memory for `limit` buckets that is empty.
    pub(crate) fn over(
        config: &Config,
        limit: u32,
        memory: Memory<K::Bucket>,
    ) -> Result<Self, ConfigError> {
        let ages = Ages::new(&config.timeouts)?;
        let notes = Notes::new(&ages, 0);
        Ok(Self {
            memory,
            shape: Shape::new((Self::buckets_for(config.expected_entries) as u32).min(limit)),
            limit,
            engine: Picked::new(config.hash_key, config.hash_function, config.instructions),
            mixer: Mixer {
                multiplier: multiplier(config.hash_key),
            },
            fetching: config.fetching.decided(),
            ages,
            entries: 0,
            counters: Counters::default(),
            age_cursor: 0,
            settling: Settling::default(),
            effort: SEARCH,
            reached: Vec::with_capacity(SEARCH),
            scans: Vec::new(),
            scans_opened: 0,
            config: *config,
            moves: 0,
            noted: 0,
            notes,
            retiming: None,
            #[cfg(feature = "substitute")]
            substitute: None,
        })
    }

    /// What the table was made from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The kind of processor that look-ups are compiled for.
    #[inline]
    pub fn processor(&self) -> Processor {
        Processor::new(self.engine)
    }

    /// Connections in the table.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Grows whenever an entry leaves its slot: what was found before need not lie where it was. New entries that
    /// displace nobody, and packets of old ones, do not count.
    #[inline]
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// The processor's instructions that look-ups use; nothing where the hash function is the portable one.
    pub fn instructions(&self) -> Option<Instructions> {
        self.engine.instructions()
    }

    /// Figures about the table.
    pub fn stats(&self) -> Stats {
        let bucket = size_of::<K::Bucket>();
        Stats {
            entries: self.entries,
            buckets: self.shape.buckets() as usize,
            slots: self.shape.buckets() as usize * K::Bucket::SLOTS,
            slots_limit: self.limit as usize * K::Bucket::SLOTS,
            memory: self.shape.buckets() as usize * bucket,
            memory_limit: self.limit as usize * bucket,
            counters: self.counters,
        }
    }

    /// Brings in the memory for `entries` connections now, so that growing up to there never waits for the kernel
    /// to clear pages.
    ///
    /// # Errors
    /// The kernel has no memory, or knows no `MADV_POPULATE_WRITE` (before Linux 5.14).
    pub fn populate(&mut self, entries: usize) -> Result<(), ReserveError> {
        let buckets = Self::buckets_for(entries).min(self.limit as usize);
        self.memory.populate(buckets * size_of::<K::Bucket>())
    }

    /// Has a thread bring in the memory that the table grows into, up to 16 MB ahead of what is used, from the next time it grows.
    pub fn bring_ahead(&mut self, ahead: PagesAhead) {
        self.memory.bring_ahead(Front::new(ahead));
    }

    /// Buckets that hold this many entries comfortably.
    fn buckets_for(entries: usize) -> usize {
        entries.div_ceil(K::Bucket::SLOTS * COMFORTABLE.0) * COMFORTABLE.1
    }

    /// The connection of `key`, if it is in the table. For bursts, [`FlowTable::lookup_batch`] is much faster.
    pub fn get(&self, key: &K) -> Option<Found> {
        self.engine.run(Find { table: self, key })
    }

    /// Whole entry of `key`; `now` in seconds tells its idle time.
    pub fn entry(&self, key: &K, now: u32) -> Option<FlowEntry<K>> {
        let found = self.get(key)?;
        Some(self.export(found.position.bucket(), found.position.slot(), now))
    }

    /// The state of an entry.
    #[inline]
    pub fn state(&self, position: Position) -> State {
        state_of(self.memory.buckets()[position.bucket() as usize].head(position.slot()))
    }

    /// Whether a packet of an entry's connection with these TCP flags is the first of a new one, which uses the ports of a
    /// connection that ended and was silent since ([`State::opens_anew`]). `now` is in seconds.
    #[inline]
    pub fn opens_anew(&self, position: Position, tcp_flags: u8, now: u32) -> bool {
        let head = self.memory.buckets()[position.bucket() as usize].head(position.slot());
        let (protocol, state) = ((head >> PROTOCOL_SHIFT) as u8, state_of(head));
        protocol == TCP
            && state.opens_anew(tcp_flags)
            && !self.is_retiming()
            && self
                .ages
                .is_silent(protocol, state, age_of(head), now, SETTLED)
    }

    /// Adds a connection after its first packet, unless it is there already. `now` is in seconds.
    pub fn insert(
        &mut self,
        key: &K,
        hops: Hops,
        tcp_flags: u8,
        direction: Direction,
        now: u32,
    ) -> Insertion {
        let state = State::first(key.protocol(), tcp_flags);
        let hops = Hops {
            opener: direction as u16,
            ..hops
        };
        self.insert_with(key, hops, state, now)
    }

    /// Adds an entry that another table exported, unless its connection is here already.
    pub fn import(&mut self, entry: &FlowEntry<K>, now: u32) -> Insertion {
        let seen = self
            .ages
            .seen(entry.key.protocol(), entry.state, entry.idle, now);
        self.insert_with(&entry.key, entry.hops, entry.state, seen)
    }

    fn insert_with(&mut self, key: &K, hops: Hops, state: State, seen: u32) -> Insertion {
        self.engine.run(Insert {
            table: self,
            key,
            hops,
            state,
            seen,
        })
    }

    /// Stores into a free slot of one of the two buckets, the first by preference.
    #[inline(always)]
    fn place(&mut self, hashes: Hashes, entry: &Stored<K::Addresses>) -> Option<Position> {
        let buckets = hashes.map(|hash| self.shape.bucket(hash));
        let [first, second] = buckets.map(|bucket| self.memory.buckets()[bucket as usize].free());
        // The lowest bit says where: whether the first bucket has room is a coin toss.
        let free = first | second << K::Bucket::SLOTS;
        if free == 0 {
            return None;
        }
        let at = free.trailing_zeros() as usize;
        let is_first = at < K::Bucket::SLOTS;
        let bucket = select_unpredictable(is_first, buckets[0], buckets[1]);
        let slot = select_unpredictable(is_first, at, at.wrapping_sub(K::Bucket::SLOTS));
        let place = select_unpredictable(is_first, FIRST, SECOND);
        Some(self.put(bucket, slot, place, entry))
    }

    #[inline(always)]
    fn put(
        &mut self,
        bucket: u32,
        slot: usize,
        place: u64,
        entry: &Stored<K::Addresses>,
    ) -> Position {
        let entry = Stored {
            head: entry.head & !PLACE_MASK | place,
            ..*entry
        };
        self.memory.buckets_mut()[bucket as usize].store(slot, &entry);
        Position::new(bucket, slot)
    }

    /// Replaces the hops of an entry.
    pub fn update(&mut self, position: Position, hops: Hops) {
        let (bucket, slot) = (position.bucket() as usize, position.slot());
        let bucket = &mut self.memory.buckets_mut()[bucket];
        let opener = bucket.hops(slot).opener;
        bucket.set_hops(slot, Hops { opener, ..hops });
    }

    /// Removes a connection and tells what its entry said.
    pub fn remove(&mut self, key: &K) -> Option<Hops> {
        let found = self.get(key)?;
        self.clear(found.position.bucket(), found.position.slot());
        self.counters.removed += 1;
        Some(found.hops())
    }

    /// Notes a packet of a connection: its TCP state moves on and its idle time starts again. `now` is in seconds;
    /// `tcp_flags` is byte 13 of the TCP header and not read for other protocols. Returns the state after it.
    #[inline(always)]
    pub fn on_packet(
        &mut self,
        position: Position,
        tcp_flags: u8,
        direction: Direction,
        now: u32,
    ) -> State {
        self.noting(now).on_packet(position, tcp_flags, direction)
    }

    /// What notes packets of one second, `now`, one after the other.
    #[inline(always)]
    pub fn noting(&mut self, now: u32) -> Noting<'_, K> {
        self.noting_since(None, now)
    }

    /// The same for packets of a burst that was looked up since entries last moved.
    #[inline(always)]
    pub fn noting_found(&mut self, lookups: &Lookups<K>, now: u32) -> Noting<'_, K> {
        self.noting_since(Some(lookups.noted), now)
    }

    #[inline(always)]
    fn noting_since(&mut self, noted: Option<u64>, now: u32) -> Noting<'_, K> {
        if !self.notes.is_of(now) {
            self.renew_notes(now);
        }
        Noting {
            buckets: self.memory.buckets_mut(),
            notes: &self.notes,
            stale: u16::from(noted != Some(self.noted)),
            noted: &mut self.noted,
            #[cfg(feature = "substitute")]
            keeps_notes: self
                .substitute
                .as_ref()
                .is_none_or(|other| other.keeps_notes()),
        }
    }

    #[cold]
    fn renew_notes(&mut self, now: u32) {
        self.notes = Notes::new(&self.ages, now);
    }

    /// Empties a slot that is in use.
    pub(crate) fn clear(&mut self, bucket: u32, slot: usize) {
        self.memory.buckets_mut()[bucket as usize].clear(slot);
        self.entries -= 1;
        self.moves += 1;
    }

    #[inline(always)]
    pub(crate) fn find<E: Engine>(
        &self,
        engine: E,
        probe: &(Wanted<K::Addresses>, Hashes),
    ) -> Option<Found> {
        let (wanted, hashes) = probe;
        let [first, second] = hashes.map(|hash| self.shape.bucket(hash));
        let buckets = self.memory.buckets();
        let hit = look(engine, buckets, wanted, first, FIRST);
        hit.found()
            .or_else(|| look(engine, buckets, wanted, second, SECOND).found())
    }

    /// A stored entry's hashes, and its key's quotient.
    #[inline(always)]
    pub(crate) fn rehash<E: Engine>(
        &self,
        engine: E,
        bucket: u32,
        entry: &Stored<K::Addresses>,
    ) -> (Hashes, u64) {
        let wanted = Wanted {
            addresses: entry.addresses,
            head: entry.head & !QUOTIENT_MASK,
        };
        let [first, second] = hashes::<K, E>(engine, &wanted, 0);
        let is_first = entry.head & PLACE_MASK == FIRST;
        let here = select_unpredictable(is_first, first, second);
        let quotient = (here ^ bucket) & QUOTIENT_MASK as u32;
        ([first ^ quotient, second ^ quotient], u64::from(quotient))
    }

    /// The entry of a slot that is in use, with its key.
    pub(crate) fn export(&self, bucket: u32, slot: usize, now: u32) -> FlowEntry<K> {
        let stored = self.memory.buckets()[bucket as usize].load(slot);
        let (state, age) = (state_of(stored.head), age_of(stored.head));
        let key = self.key_of(bucket, &stored);
        FlowEntry {
            key,
            hops: stored.hops,
            state,
            idle: match self.is_retiming() {
                true => 0,
                false => self.ages.idle(key.protocol(), state, age, now),
            },
        }
    }

    pub(crate) fn key_of(&self, bucket: u32, stored: &Stored<K::Addresses>) -> K {
        let (_, quotient) = self.engine.run(Rehash {
            table: self,
            bucket,
            stored,
        });
        let head = stored.head & !QUOTIENT_MASK | quotient;
        K::from_parts(head, self.mixer.mix::<K>(stored.addresses, quotient))
    }
}
