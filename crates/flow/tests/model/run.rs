//! One random sequence of operations on both.

use std::collections::HashSet;

use flow::state::{ACK, FIN, RST, SYN};
use flow::{BURST, Config, Counters, Direction, FlowKey, FlowTable, Hit, Hops, Insertion, Verdict};

use crate::Population;
use crate::random::Random;
use crate::reference::{Fate, Reference};

/// More buckets than any table here has.
const EVERYTHING: usize = 1 << 20;

pub struct Run<K: FlowKey> {
    table: FlowTable<K>,
    config: Config,
    reference: Reference<K>,
    population: Population<K>,
    keys: u32,
    random: Random,
    now: u32,
    time_passes: bool,
    context: String,
}

impl<K: FlowKey> Run<K> {
    pub fn new(
        table: FlowTable<K>,
        config: Config,
        population: Population<K>,
        keys: u32,
        random: Random,
        context: String,
    ) -> Self {
        let reference = Reference::new(config.timeouts);
        // The clock wraps after some two hundred seconds.
        Self {
            table,
            config,
            reference,
            population,
            keys,
            random,
            now: u32::MAX - 200,
            time_passes: false,
            context,
        }
    }

    /// Runs the sequence; returns the counters at its end.
    pub fn operations(mut self, count: usize) -> Counters {
        for done in 0..count {
            // Time stands still in the first half, so that the table fills; then it flies.
            self.time_passes = done > count / 2;
            match self.random.below(100) {
                0..45 => self.insert(),
                45..60 => self.packet(),
                60..70 => self.remove(),
                70..80 => self.get(),
                80..85 => self.update(),
                85..90 => self.look_up_burst(),
                90..96 => self.age(),
                96..98 => self.settle(),
                _ if self.random.once_in(60) => self.scan(),
                _ if self.time_passes => self.pass_time(),
                _ => self.insert(),
            }
            assert_eq!(
                self.table.len(),
                self.reference.connections.len(),
                "{}",
                self.context
            );
        }
        self.compare_all();
        let counters = self.table.stats().counters;
        self.move_to_another_table();
        counters
    }

    fn key(&mut self) -> K {
        (self.population)(self.random.below(self.keys))
    }

    fn hops(&mut self) -> Hops {
        let word = self.random.next();
        Hops {
            upstream: word as u16,
            downstream: (word >> 16) as u16,
            opener: 7, // of no consequence
        }
    }

    fn packet_signs(&mut self) -> (u8, Direction) {
        let flags =
            [SYN, SYN | ACK, ACK, ACK, ACK, FIN | ACK, RST, 0xff][self.random.below(8) as usize];
        let direction = if self.random.once_in(2) {
            Direction::Forward
        } else {
            Direction::Reverse
        };
        (flags, direction)
    }

    fn insert(&mut self) {
        let (key, hops, (flags, direction)) = (self.key(), self.hops(), self.packet_signs());
        let known = self.reference.connections.get(&key).copied();
        match self.table.insert(&key, hops, flags, direction, self.now) {
            Insertion::New(position) => {
                assert!(known.is_none(), "{}: {key:?} was there", self.context);
                self.reference.insert(key, hops, flags, direction, self.now);
                assert_eq!(
                    self.table.state(position),
                    self.reference.connections[&key].state
                );
            }
            Insertion::Present(found) => {
                assert_eq!(
                    Some(found.hops()),
                    known.map(|known| known.hops),
                    "{}: {key:?}",
                    self.context
                );
            }
            Insertion::Full => {
                assert!(known.is_none(), "{}: {key:?} was there", self.context);
                let stats = self.table.stats();
                assert_eq!(
                    stats.memory, stats.memory_limit,
                    "{}: full before the bound",
                    self.context
                );
                assert!(
                    stats.entries * 100 >= stats.slots * 83,
                    "{}: full at {stats:?}",
                    self.context
                );
            }
        }
        let stats = self.table.stats();
        assert!(
            stats.memory <= stats.memory_limit && stats.memory_limit <= self.config.memory_limit
        );
        assert!(stats.entries <= stats.slots);
    }

    fn packet(&mut self) {
        let (key, (flags, direction)) = (self.key(), self.packet_signs());
        if let Some(found) = self.table.get(&key) {
            let state = self
                .table
                .on_packet(found.position, flags, direction, self.now);
            assert_eq!(
                state,
                self.reference.on_packet(&key, flags, direction, self.now),
                "{}",
                self.context
            );
        } else {
            assert!(
                !self.reference.connections.contains_key(&key),
                "{}: lost {key:?}",
                self.context
            );
        }
    }

    fn remove(&mut self) {
        let key = self.key();
        let removed = self
            .reference
            .connections
            .remove(&key)
            .map(|connection| connection.hops);
        assert_eq!(
            self.table.remove(&key),
            removed,
            "{}: {key:?}",
            self.context
        );
    }

    fn get(&mut self) {
        let key = self.key();
        let entry = self.table.entry(&key, self.now);
        let known = self.reference.connections.get(&key);
        assert_eq!(
            entry.is_some(),
            known.is_some(),
            "{}: {key:?}",
            self.context
        );
        if let (Some(entry), Some(known)) = (entry, known) {
            assert_eq!(
                (entry.key, entry.hops, entry.state),
                (key, known.hops, known.state),
                "{}",
                self.context
            );
            let idle = self.now.wrapping_sub(known.seen);
            let grain = self.reference.grain(&key, known.state);
            if idle < self.reference.timeouts.idle(key.protocol(), known.state) {
                assert!(
                    entry.idle.abs_diff(idle) < 2 * grain,
                    "{}: {} for {idle}",
                    self.context,
                    entry.idle
                );
            }
        }
    }

    fn update(&mut self) {
        let (key, hops) = (self.key(), self.hops());
        if let Some(found) = self.table.get(&key) {
            self.table.update(found.position, hops);
            let connections = &mut self.reference.connections;
            let known = &mut connections.get_mut(&key).expect("the table has it").hops;
            let opener = known.opener;
            *known = Hops { opener, ..hops };
        }
    }

    fn look_up_burst(&mut self) {
        let most = if self.random.once_in(4) {
            2 * BURST
        } else {
            BURST / 2
        };
        let count = 1 + self.random.below(most as u32) as usize;
        let keys: Vec<K> = (0..count).map(|_| self.key()).collect();
        let mut results = vec![Hit::NONE; count];
        self.table.lookup_batch(&keys, &mut results);
        for (key, hit) in keys.iter().zip(results) {
            let found = hit.found();
            let known = self.reference.connections.get(key);
            assert_eq!(
                found.map(|found| found.hops()),
                known.map(|known| known.hops),
                "{}: {key:?}",
                self.context
            );
            assert_eq!(found, self.table.get(key), "{}: {key:?}", self.context);
        }
    }

    fn age(&mut self) {
        let budget = if self.random.once_in(50) {
            EVERYTHING
        } else {
            1 << self.random.below(10)
        };
        let mut gone = Vec::new();
        let step = self.table.age_step(self.now, budget, |visited| {
            gone.push((visited.key(), visited.hops()))
        });
        assert_eq!(step.expired, gone.len());
        for (key, hops) in gone {
            assert_ne!(
                self.reference.fate(&key, self.now),
                Fate::MustStay,
                "{}: {key:?}",
                self.context
            );
            let connection = self
                .reference
                .connections
                .remove(&key)
                .expect("it was there");
            assert_eq!(connection.hops, hops);
        }
        if step.wrapped && budget == EVERYTHING {
            for key in self.reference.connections.keys() {
                assert_ne!(
                    self.reference.fate(key, self.now),
                    Fate::MustGo,
                    "{}: {key:?}",
                    self.context
                );
            }
        }
    }

    /// Brings entries home: nothing that a caller can see, but for what moved.
    fn settle(&mut self) {
        let moves = self.table.moves();
        let settled = self.table.stats().counters.settled;
        self.table.settle_step(1 << self.random.below(10));
        let settled = self.table.stats().counters.settled - settled;
        assert_eq!(self.table.moves() - moves, settled, "{}", self.context);
    }

    fn pass_time(&mut self) {
        let seconds = [1, 3, 20, 200][self.random.below(4) as usize];
        self.now = self.now.wrapping_add(self.random.below(seconds));
    }

    /// Walks over the table while connections come and go; removes those with an odd downstream hop.
    fn scan(&mut self) {
        let scan = self.table.begin_scan();
        let mut owed: HashSet<K> = self.reference.connections.keys().copied().collect();
        let mut more = true;
        while more {
            let mut met = Vec::new();
            let budget = 1 + self.random.below(200) as usize;
            more = self.table.scan_step(&scan, budget, |visited| {
                met.push((visited.key(), visited.hops(), visited.path()));
                if visited.hops().downstream % 2 == 1 {
                    Verdict::Remove
                } else {
                    Verdict::Keep
                }
            });
            for (key, hops, path) in met {
                assert_eq!(
                    self.reference.connections[&key].hops, hops,
                    "{}: {key:?}",
                    self.context
                );
                assert_eq!(key.path(), path);
                owed.remove(&key);
                if hops.downstream % 2 == 1 {
                    self.reference.connections.remove(&key);
                }
            }
            for _ in 0..20 {
                self.insert();
            }
            self.settle();
            let key = self.key();
            if self.reference.connections.remove(&key).is_some() {
                self.table.remove(&key);
                owed.remove(&key);
            }
        }
        owed.retain(|key| self.reference.connections.contains_key(key));
        assert!(owed.is_empty(), "{}: not met: {owed:?}", self.context);
    }

    fn compare_all(&mut self) {
        for (key, known) in &self.reference.connections {
            let entry = self
                .table
                .entry(key, self.now)
                .unwrap_or_else(|| panic!("{}: lost {key:?}", self.context));
            assert_eq!(
                (entry.hops, entry.state),
                (known.hops, known.state),
                "{}: {key:?}",
                self.context
            );
        }
    }

    /// Exports everything into a table with another secret and another size.
    fn move_to_another_table(mut self) {
        let config = Config {
            hash_key: [0xee; 16],
            ..Config::new(self.config.memory_limit * 2, [0; 16])
        };
        let mut other = FlowTable::<K>::new(&config).unwrap();
        let scan = self.table.begin_scan();
        let mut exported = Vec::new();
        while self.table.scan_step(&scan, 1000, |visited| {
            exported.push(visited.entry(self.now));
            Verdict::Remove
        }) {}
        assert!(self.table.is_empty());
        for entry in &exported {
            assert!(
                matches!(other.import(entry, self.now), Insertion::New(_)),
                "{}: {entry:?}",
                self.context
            );
        }
        assert_eq!(other.len(), self.reference.connections.len());
        for (key, known) in &self.reference.connections {
            let entry = other
                .entry(key, self.now)
                .unwrap_or_else(|| panic!("{}: lost {key:?}", self.context));
            assert_eq!(
                (entry.hops, entry.state),
                (known.hops, known.state),
                "{}: {key:?}",
                self.context
            );
        }
    }
}
