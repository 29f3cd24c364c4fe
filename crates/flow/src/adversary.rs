//! Tests: what someone can do who picks connections on purpose, with and without the secret key.

use crate::config::Config;
use crate::engine::{Engine, HashFunction, Task};
use crate::entry::Hops;
use crate::key::Ipv4Key;
use crate::probe::{Hashes, Mixer};
use crate::state::{Direction, SYN};
use crate::table::{Insertion, Ipv4Table};

const LIMIT: usize = 1 << 20;
const CROWD: usize = 2_000;
const INTO: u32 = 400;

struct HashesOf(Mixer, Ipv4Key);

impl Task for HashesOf {
    type Output = Hashes;

    fn run<E: Engine>(self, engine: E) -> Hashes {
        self.0.probe(engine, &self.1).1
    }
}

fn table(hash_key: [u8; 16], hash_function: HashFunction) -> Ipv4Table {
    Ipv4Table::new(&Config {
        hash_function,
        ..Config::new(LIMIT, hash_key)
    })
    .unwrap()
}

fn insert_all(table: &mut Ipv4Table, keys: &[Ipv4Key]) -> usize {
    let new = |key: &&Ipv4Key| {
        matches!(
            table.insert(key, Hops::default(), SYN, Direction::Forward, 0),
            Insertion::New(_)
        )
    };
    keys.iter().filter(new).count()
}

/// Keys whose two buckets are both among the first few of a table of full size with this key.
fn aimed_at(hash_key: [u8; 16], hash_function: HashFunction) -> Vec<Ipv4Key> {
    let mut full = table(hash_key, hash_function);
    while full.shape.buckets() < full.limit {
        full.shape.grow();
    }
    let mut keys = Vec::new();
    for i in 0u64.. {
        let key = Ipv4Key::new(1, i as u32, (i >> 32) as u32, 6, (i * 40_503) as u16, 80);
        let hashes = full.engine.run(HashesOf(full.mixer, key));
        if hashes.iter().all(|&hash| full.shape.bucket(hash) < INTO) {
            keys.push(key);
            if keys.len() == CROWD {
                break;
            }
        }
    }
    keys
}

#[test]
fn keys_aimed_with_the_secret_crowd_out_each_other_but_not_without_it() {
    for function in [HashFunction::Detect, HashFunction::Portable] {
        let (known, secret) = ([1; 16], [2; 16]);
        let keys = aimed_at(known, function);
        let accepted = insert_all(&mut table(known, function), &keys);
        assert!(
            accepted <= INTO as usize * 3,
            "the aim was good: {accepted}"
        );
        // The same keys are nothing special to a table with another secret, in its smallest size already.
        let mut other = table(secret, function);
        assert_eq!(insert_all(&mut other, &keys), CROWD);
        assert_eq!(other.stats().counters.splits, 0);
    }
}

#[test]
fn an_aimed_crowd_costs_bounded_work_and_leaves_others_alone() {
    let known = [1; 16];
    let keys = aimed_at(known, HashFunction::Detect);
    let mut table = table(known, HashFunction::Detect);
    let others: Vec<_> = (0..20_000)
        .map(|i| Ipv4Key::new(9, i, 7, 17, i as u16, 53))
        .collect();
    assert_eq!(insert_all(&mut table, &others), others.len());
    insert_all(&mut table, &keys);
    assert!(table.stats().memory <= LIMIT);
    for key in &others {
        assert!(table.get(key).is_some(), "{key:?}");
    }
}
