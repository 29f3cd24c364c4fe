//! The bound on memory, as the kernel sees it. Alone in its program, so that nothing else takes memory meanwhile.

#![cfg(target_os = "linux")]

use flow::state::{ACK, TCP};
use flow::{Config, ConfigError, Direction, Hops, Insertion, Ipv4Key, Ipv4Table, Pages};

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 4096
}

fn key(i: u32) -> Ipv4Key {
    Ipv4Key::new(
        1,
        0x0a00_0000 + (i >> 14),
        0xc0a8_0001,
        TCP,
        (i & 0x3fff) as u16,
        443,
    )
}

/// Fills a table to its bound and beyond.
fn fill(pages: Pages) {
    let limit = (23 << 20) + 4095;
    let before = resident();
    let mut table = Ipv4Table::new(&Config {
        pages,
        ..Config::new(limit, [1; 16])
    })
    .unwrap();
    assert!(resident() - before < 1 << 20, "reserving takes no memory");

    let mut accepted = Vec::new();
    let mut refused = 0;
    for i in 0..1_200_000 {
        let hops = Hops {
            upstream: i as u16,
            downstream: 1,
            opener: 0,
        };
        match table.insert(&key(i), hops, ACK, Direction::Forward, 0) {
            Insertion::New(_) => accepted.push(i),
            Insertion::Full => refused += 1,
            Insertion::Present(found) => panic!("{i} is new, but {found:?}"),
        }
    }
    let taken = resident() - before - accepted.capacity() * 4;
    assert!(
        taken <= limit + (1 << 20),
        "{taken} bytes for a bound of {limit}"
    );
    let stats = table.stats();
    assert_eq!(stats.counters.full, refused);
    assert!(
        refused > 100_000 && stats.memory == stats.memory_limit && stats.memory <= limit,
        "{stats:?}"
    );
    assert!(stats.entries * 100 > stats.slots_limit * 86, "{stats:?}");
    for i in accepted {
        assert_eq!(
            table.get(&key(i)).map(|found| found.hops().upstream),
            Some(i as u16),
            "{i} stays"
        );
    }

    // Whoever leaves makes room.
    for i in 0..50_000 {
        table.remove(&key(i));
    }
    let again = (0..30_000).filter(|&i| {
        matches!(
            table.insert(&key(i), Hops::default(), ACK, Direction::Forward, 0),
            Insertion::New(_)
        )
    });
    assert_eq!(again.count(), 30_000);
}

#[test]
fn memory_never_exceeds_the_bound_and_a_full_table_keeps_what_it_has() {
    fill(Pages::Transparent);
    fill(Pages::Small);

    let too_small = Ipv4Table::new(&Config::new(100_000, [1; 16])).err();
    assert_eq!(
        too_small,
        Some(ConfigError::MemoryLimitTooSmall {
            given: 100_000,
            least: 262_144
        })
    );
    let config = Config {
        expected_entries: 40_000,
        ..Config::new(1 << 20, [1; 16])
    };
    let too_many = Ipv4Table::new(&config).err().unwrap();
    assert_eq!(
        too_many,
        ConfigError::ExpectedEntriesTooMany {
            given: 40_000,
            most: 38_400
        }
    );
    assert_eq!(
        too_many.to_string(),
        "expected_entries is 40000, but memory_limit has room for 38400"
    );

    let before = resident();
    let mut table = Ipv4Table::new(&Config::new(64 << 20, [1; 16])).unwrap();
    table.populate(500_000).unwrap();
    assert!(
        resident() - before > 12 << 20,
        "memory for 500 000 connections is there before they come"
    );
    let reserved = Config {
        pages: Pages::Reserved,
        ..Config::new(1 << 46, [1; 16])
    };
    assert!(matches!(
        Ipv4Table::new(&reserved).err(),
        Some(ConfigError::Reserve(_))
    ));
}
