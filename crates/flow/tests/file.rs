//! Tables in files: what a killed process had noted is there for the next one.

#[path = "../../../test/needs.rs"]
mod needs;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flow::state::{ACK, SYN, TCP};
use flow::{
    Config, ConfigError, Direction, FlowKey, Hops, Insertion, Ipv4Key, Ipv4Table, Ipv6Key,
    Ipv6Table, ReopenError, State, Timeouts, Verdict,
};

/// Set in the process that is to be killed, to the directory of its files.
const VICTIM: &str = "FLOW_TEST_VICTIM";
/// Connections in the table at a time: each new one replaces the one so many before it.
const WINDOW: u64 = 30_000;

/// A directory in memory, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/dev/shm/flow-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(directory: &Path, name: &str) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(directory.join(name))
        .unwrap()
}

fn key(i: u64) -> Ipv4Key {
    let (address, port) = (0x0a00_0000 + (i >> 14) as u32, (i & 0x3fff) as u16);
    Ipv4Key::new(3, address, 0xc0a8_0001, TCP, 1024 + port, 443)
}

fn hops(i: u64) -> Hops {
    Hops {
        upstream: i as u16,
        downstream: (i >> 3) as u16,
        opener: 0,
    }
}

#[test]
fn a_reopened_table_goes_on_where_it_was() {
    let directory = Directory::new("reopen");
    let config = Config::new(64 << 20, *b"a secret of ours");
    let mut table = Ipv4Table::create_in(&config, open(&directory.0, "table")).unwrap();
    for i in 0..300_000 {
        let inserted = table.insert(&key(i), hops(i), SYN, Direction::Forward, 100);
        assert!(matches!(inserted, Insertion::New(_)), "{i}: {inserted:?}");
    }
    let found = table.get(&key(7)).unwrap();
    table.on_packet(found.position, SYN | ACK, Direction::Reverse, 103);
    let slots = table.stats().slots;
    drop(table);

    let mut table = Ipv4Table::reopen(open(&directory.0, "table")).unwrap();
    assert_eq!((table.len(), table.stats().slots), (300_000, slots));
    assert_eq!(table.config().hash_key, config.hash_key);
    assert_eq!(table.config().memory_limit, config.memory_limit);
    assert_eq!(table.config().timeouts, config.timeouts);
    for i in 0..300_000 {
        assert_eq!(
            table.get(&key(i)).map(|found| found.hops()),
            Some(hops(i)),
            "{i}"
        );
    }
    let entry = table.entry(&key(7), 110).unwrap();
    assert_eq!((entry.state, entry.idle), (State::Handshake, 7));
    for i in 300_000..900_000 {
        let _ = table.insert(&key(i), hops(i), SYN, Direction::Forward, 120);
    }
    assert_eq!(table.len(), 900_000);
}

#[test]
fn a_change_of_idle_times_that_was_interrupted_ends_nothing_early() {
    let directory = Directory::new("retime");
    let with = |seconds| Timeouts {
        tcp_unanswered: seconds,
        ..Timeouts::default()
    };
    // At this time, ages in units of the one and of the other say quite different things.
    let start = 1_000_000;
    for (before, after) in [(7440, 300), (300, 7440)] {
        let name = format!("table-{before}");
        let config = Config {
            timeouts: with(before),
            ..Config::new(32 << 20, [5; 16])
        };
        let mut table = Ipv4Table::create_in(&config, open(&directory.0, &name)).unwrap();
        for i in 0..100_000 {
            let inserted = table.insert(&key(i), hops(i), SYN, Direction::Forward, start);
            assert!(matches!(inserted, Insertion::New(_)));
        }
        table.set_timeouts(&with(after), start + 100).unwrap();
        // A step of what takes hundreds, and the process is gone.
        table.age_step(start + 100, 64, |_| {});
        drop(table);
        let mut table = Ipv4Table::reopen(open(&directory.0, &name)).unwrap();
        assert_eq!(table.config().timeouts, with(after));
        let all = table.stats().slots;
        for second in [101, 102, 110, 130, 200, 399] {
            table.age_step(start + second, all, |_| {});
            assert_eq!(
                table.len(),
                100_000,
                "{before} to {after}, after {second} s"
            );
        }
        drop(table);
        let mut table = Ipv4Table::reopen(open(&directory.0, &name)).unwrap();
        let late = start + 101 + after + after / 8;
        table.age_step(late, all, |_| {});
        assert!(table.is_empty(), "{before} to {after}: {}", table.len());
    }
}

/// Not a test by itself: the process that the next one kills.
#[test]
fn victim() {
    let Ok(directory) = std::env::var(VICTIM) else {
        return;
    };
    let directory = PathBuf::from(directory);
    let progress = open(&directory, "progress");
    let mut first = read_progress(&progress) + 1;
    let file = open(&directory, "table");
    let mut table = if first == 1 {
        Ipv4Table::create_in(&Config::new(32 << 20, [3; 16]), file).unwrap()
    } else {
        Ipv4Table::reopen(file).unwrap()
    };
    println!("ready");
    loop {
        let inserted = table.insert(&key(first), hops(first), SYN, Direction::Forward, 9);
        assert!(!matches!(inserted, Insertion::Full));
        progress.write_all_at(&first.to_le_bytes(), 0).unwrap();
        if let Some(old) = first.checked_sub(WINDOW) {
            table.remove(&key(old));
        }
        table.settle_step(64);
        first += 1;
    }
}

fn read_progress(file: &File) -> u64 {
    let mut bytes = [0; 8];
    match file.read_at(&mut bytes, 0).unwrap() {
        8 => u64::from_le_bytes(bytes),
        _ => 0,
    }
}

#[test]
fn no_connection_is_lost_whenever_the_process_is_killed() {
    let directory = Directory::new("kill");
    let (mut last, mut round) = (0, 0u64);
    while round < 40 || last < 3 * WINDOW {
        assert!(round < 1000, "the victims do nothing: {last}");
        round += 1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim", "--nocapture", "--quiet"])
            .env(VICTIM, &directory.0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut seen = String::new();
        let mut byte = [0];
        while !seen.contains("ready") {
            assert_eq!(
                output.read(&mut byte).unwrap(),
                1,
                "the victim ended: {seen}"
            );
            seen.push(byte[0] as char);
        }
        std::thread::sleep(Duration::from_micros(700 * (1 + round * 37 % 40)));
        child.kill().unwrap();
        child.wait().unwrap();

        last = read_progress(&open(&directory.0, "progress"));
        let mut table = Ipv4Table::reopen(open(&directory.0, "table")).unwrap();
        for i in (last + 1).saturating_sub(WINDOW).max(1)..=last {
            let found = table.get(&key(i)).map(|found| found.hops());
            assert_eq!(
                found,
                Some(hops(i)),
                "round {round}: connection {i} of {last}"
            );
        }
        check_entries(&mut table, last, round);
    }
}

/// What the table says of every entry is true, except for copies that a move left behind, one per kill at most.
fn check_entries(table: &mut Ipv4Table, last: u64, round: u64) {
    let scan = table.begin_scan();
    let mut met = 0u64;
    while table.scan_step(&scan, 10_000, |visited| {
        let (key, said) = (visited.key(), visited.hops());
        let i = (u64::from(u32::from(key.source()) - 0x0a00_0000) << 14)
            | u64::from(key.source_port() - 1024);
        assert_eq!(said, hops(i), "round {round}: {key:?}");
        assert!(i <= last + 1, "round {round}: {i} of {last}");
        met += 1;
        Verdict::Keep
    }) {}
    assert_eq!(table.len() as u64, met);
    let due = last.min(WINDOW);
    assert!(
        (due - 1..=due + 4 * (round + 1)).contains(&met),
        "round {round}: {met} of {due}"
    );
}

#[test]
fn files_that_are_no_table_are_refused() {
    let directory = Directory::new("refuse");
    let refused = |name: &str| Ipv4Table::reopen(open(&directory.0, name)).err();
    assert_eq!(refused("empty"), Some(ReopenError::NoTable));
    open(&directory.0, "zeroes").set_len(8 << 20).unwrap();
    assert_eq!(refused("zeroes"), Some(ReopenError::NoTable));

    let config = Config::new(8 << 20, [1; 16]);
    drop(Ipv6Table::create_in(&config, open(&directory.0, "other")).unwrap());
    assert_eq!(refused("other"), Some(ReopenError::NoTable));

    let damage = |name: &str, at: u64, bytes: &[u8]| {
        drop(Ipv4Table::create_in(&config, open(&directory.0, name)).unwrap());
        open(&directory.0, name).write_all_at(bytes, at).unwrap();
        refused(name)
    };
    assert_eq!(
        damage("buckets", 16, &[0xff; 4]),
        Some(ReopenError::Damaged)
    );
    assert_eq!(damage("none", 16, &[0; 4]), Some(ReopenError::Damaged));
    assert_eq!(damage("bound", 24, &[0xff; 8]), Some(ReopenError::Damaged));
    assert_eq!(damage("small", 24, &[0; 8]), Some(ReopenError::Damaged));
    assert_eq!(damage("times", 48, &[0; 4]), Some(ReopenError::Damaged));
    assert_eq!(
        damage("family", 12, &[9]),
        Some(ReopenError::OtherProcessor)
    );
    assert_eq!(damage("name", 0, b"swbflow0"), Some(ReopenError::NoTable));

    drop(Ipv4Table::create_in(&config, open(&directory.0, "cut")).unwrap());
    open(&directory.0, "cut").set_len(4 << 20).unwrap();
    assert_eq!(refused("cut"), Some(ReopenError::Damaged));
}

#[test]
fn a_file_system_without_room_makes_the_table_full_and_not_the_process_dead() {
    let directory = Directory::new("room");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"])
        .arg(&directory.0)
        .output()
        .is_ok_and(|done| done.status.success());
    if !mounted {
        needs::missing("root, to mount a file system of 6 MB");
        return;
    }
    let config = Config::new(64 << 20, [5; 16]);
    let mut table = Ipv6Table::create_in(&config, open(&directory.0, "table")).unwrap();
    let key = |i: u32| Ipv6Key::new(3, u128::from(i) << 64, 7, 17, 9, 9);
    let mut count = 0;
    while !matches!(
        table.insert(
            &key(count),
            hops(u64::from(count)),
            0,
            Direction::Forward,
            0
        ),
        Insertion::Full
    ) {
        count += 1;
    }
    assert!((30_000..100_000).contains(&count), "{count}");
    for i in 0..count {
        assert_eq!(
            table.get(&key(i)).map(|found| found.hops()),
            Some(hops(u64::from(i)))
        );
    }
    let refused = Ipv4Table::create_in(&config, open(&directory.0, "second")).err();
    drop(table);
    let unmounted = Command::new("umount").arg(&directory.0).status().unwrap();
    assert!(unmounted.success());
    assert!(
        matches!(refused, Some(ConfigError::Reserve(error)) if error.to_string().contains("No space left")),
        "{refused:?}"
    );
}
