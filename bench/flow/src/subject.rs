//! The tables that are measured, behind one interface.

pub use flow::BURST;
use flow::{Config, Direction, Hit, Hops, Insertion, Ipv4Key, Ipv4Table};

/// A table of connections.
pub trait Subject {
    /// Its name in the results.
    fn name(&self) -> &'static str;
    /// Looks up a burst of at most [`BURST`]; returns the sum of what was found.
    fn lookup(&mut self, keys: &[Ipv4Key]) -> u64;
    /// Adds a burst of connections as a forwarder does after a burst of look-ups that found nothing.
    fn insert(&mut self, keys: &[Ipv4Key]);
    /// Removes a connection.
    fn remove(&mut self, key: &Ipv4Key);
}

/// The value of a key.
pub fn value(key: &Ipv4Key) -> u16 {
    u32::from(key.destination()) as u16
}

/// This project's table.
pub struct Switchboard {
    /// The table.
    pub table: Ipv4Table,
    results: [Hit; BURST],
}

impl Switchboard {
    /// An empty table.
    pub fn new(memory_limit: usize) -> Self {
        let table =
            Ipv4Table::new(&Config::new(memory_limit, *b"0123456789abcdef")).expect("a table");
        Self {
            table,
            results: [Hit::NONE; BURST],
        }
    }
}

impl Subject for Switchboard {
    fn name(&self) -> &'static str {
        "switchboard"
    }

    fn lookup(&mut self, keys: &[Ipv4Key]) -> u64 {
        let results = &mut self.results[..keys.len()];
        self.table.lookup_batch(keys, results);
        results
            .iter()
            .filter_map(|hit| hit.found())
            .map(|found| u64::from(found.hops().downstream))
            .sum()
    }

    fn insert(&mut self, keys: &[Ipv4Key]) {
        for key in keys {
            let hops = Hops {
                upstream: 1,
                downstream: value(key),
                opener: 0,
            };
            let inserted = self.table.insert(key, hops, 2, Direction::Forward, 0);
            assert!(matches!(inserted, Insertion::New(_)), "{inserted:?}");
        }
    }

    fn remove(&mut self, key: &Ipv4Key) {
        self.table.remove(key).expect("was inserted");
    }
}

/// hashbrown's map with its default hash function.
#[derive(Default)]
pub struct Hashbrown {
    map: hashbrown::HashMap<Ipv4Key, Hops>,
}

impl Subject for Hashbrown {
    fn name(&self) -> &'static str {
        "hashbrown"
    }

    fn lookup(&mut self, keys: &[Ipv4Key]) -> u64 {
        keys.iter()
            .filter_map(|key| self.map.get(key))
            .map(|hops| u64::from(hops.downstream))
            .sum()
    }

    fn insert(&mut self, keys: &[Ipv4Key]) {
        for key in keys {
            self.map.insert(
                *key,
                Hops {
                    upstream: 1,
                    downstream: value(key),
                    opener: 0,
                },
            );
        }
    }

    fn remove(&mut self, key: &Ipv4Key) {
        self.map.remove(key).expect("was inserted");
    }
}
