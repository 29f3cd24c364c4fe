//! Pages that come before they are needed, as the kernel sees them. Alone in its program, so that nothing else takes memory meanwhile.

#![cfg(target_os = "linux")]

use flow::state::{ACK, TCP};
use flow::{Config, Direction, Hops, Insertion, Ipv4Key, Ipv4Table, Pages, PagesAhead};
use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

const HUGE: usize = 2 << 20;
/// How far ahead of a large table pages come.
const LEAD: usize = 16 << 20;
const HOPS: Hops = Hops {
    upstream: 1,
    downstream: 2,
    opener: 0,
};

/// Bytes of this process that are backed by memory, files included.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages = statm.split_whitespace().nth(1).unwrap();
    pages.parse::<usize>().unwrap() * 4096
}

fn key(i: u32) -> Ipv4Key {
    Ipv4Key::new(1, 0x0a00_0000 + i, 0xc0a8_0001, TCP, 40_000, 443)
}

fn insert(table: &mut Ipv4Table, range: std::ops::Range<u32>) -> usize {
    let new = range.filter(|&i| {
        let inserted = table.insert(&key(i), HOPS, ACK, Direction::Forward, 0);
        matches!(inserted, Insertion::New(_))
    });
    new.count()
}

/// Waits until so many bytes are there.
fn wait_for(bytes: usize) -> usize {
    let end = Instant::now() + Duration::from_secs(20);
    while resident() < bytes && Instant::now() < end {
        thread::sleep(Duration::from_millis(2));
    }
    resident()
}

fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")));
    names
        .filter(|name| name.as_ref().is_ok_and(|name| name.trim() == "pages"))
        .count()
}

/// Fills a table to its bound, and looks now and then how much is there.
fn grow(mut table: Ipv4Table, before: usize, bound: usize) {
    let mut inserted = 0;
    for step in 0..12 {
        inserted += insert(&mut table, step * 100_000..(step + 1) * 100_000);
        let used = table.stats().memory;
        // Half of what was asked for is used up before more is asked for, and a small table asks for as much as it has then.
        let least = (used + (used / 4).min(LEAD / 2)).min(table.stats().memory_limit);
        let there = wait_for(before + least) - before;
        assert!(there >= least, "{there} bytes are there of {used} in use");
        let most = (used + used.clamp(HUGE, LEAD) + 2 * HUGE).min(bound + HUGE);
        assert!(there <= most, "{there} bytes are there of {used} in use");
    }
    assert_eq!(table.len(), inserted);
    assert!(
        inserted > 900_000 && inserted < 1_200_000,
        "it was full: {inserted}"
    );
    let found = (0..1_200_000).filter(|&i| table.get(&key(i)).is_some());
    assert_eq!(found.count(), inserted);
}

#[test]
fn pages_are_there_before_the_table_grows_into_them() {
    let bound = 24 << 20;
    for pages in [Pages::Small, Pages::Transparent] {
        let ahead = PagesAhead::start().unwrap();
        let before = resident();
        let config = Config {
            pages,
            ..Config::new(bound, [1; 16])
        };
        let mut table = Ipv4Table::new(&config).unwrap();
        table.bring_ahead(ahead.clone());
        assert!(resident() - before < 1 << 20, "nothing is there at first");
        drop(ahead);
        // It says its name when it gets its turn.
        let end = Instant::now() + Duration::from_secs(20);
        while threads() == 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(threads(), 1, "the table has it");
        grow(table, before, bound);
        assert_eq!(threads(), 0, "it ends with the table");
    }

    // A table in a file.
    let path = format!("/dev/shm/switchboard-pages-ahead-{}", std::process::id());
    let create = || {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
    };
    let before = resident();
    let mut table = Ipv4Table::create_in(&Config::new(bound, [1; 16]), create().unwrap()).unwrap();
    table.bring_ahead(PagesAhead::start().unwrap());
    fs::remove_file(&path).unwrap();
    // The description has a page of its own.
    grow(table, before, bound + HUGE);

    // One that goes while its pages come.
    for _ in 0..50 {
        let mut table = Ipv4Table::new(&Config::new(1 << 30, [1; 16])).unwrap();
        table.bring_ahead(PagesAhead::start().unwrap());
        assert_eq!(insert(&mut table, 0..20_000), 20_000);
    }
    assert_eq!(threads(), 0);
}
