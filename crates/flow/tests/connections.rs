//! What a caller sees: a connection is found again, in both directions, until it is removed.

use flow::state::{ACK, FIN, RST, SETTLED, SYN, TCP};
use flow::{
    Config, Direction, FlowEntry, FlowKey, Hit, Hops, Insertion, Ipv4Key, Ipv4Table, State,
    Timeouts, Verdict,
};

fn key(i: u32) -> Ipv4Key {
    Ipv4Key::new(
        3,
        0x0a00_0000 + i / 1000,
        0xc0a8_0001,
        TCP,
        1024 + (i % 1000) as u16,
        443,
    )
}

fn hops(i: u32) -> Hops {
    Hops {
        upstream: i as u16,
        downstream: (i >> 3) as u16,
        opener: 0,
    }
}

#[test]
fn connections_are_found_while_the_table_grows_and_not_once_removed() {
    let mut table = Ipv4Table::new(&Config::new(64 << 20, [7; 16])).unwrap();
    let count = 300_000;
    for i in 0..count {
        let inserted = table.insert(&key(i), hops(i), SYN, Direction::Forward, 0);
        assert!(matches!(inserted, Insertion::New(_)), "{i}: {inserted:?}");
    }
    assert_eq!(table.len(), count as usize);
    for i in (0..count).step_by(2) {
        assert_eq!(table.remove(&key(i)), Some(hops(i)));
    }
    let keys: Vec<_> = (0..count).map(key).collect();
    let mut results = vec![Hit::NONE; keys.len()];
    table.lookup_batch(&keys, &mut results);
    for (i, hit) in results.into_iter().enumerate() {
        let found = hit.found();
        assert_eq!(found, table.get(&keys[i]));
        assert_eq!(
            found.map(|found| found.hops()),
            (i % 2 == 1).then(|| hops(i as u32)),
            "{i}"
        );
        if let Some(found) = found {
            assert_eq!(table.entry(&keys[i], 5).unwrap().key, keys[i]);
            assert_eq!(table.state(found.position), State::New);
        }
    }
}

#[test]
fn an_idle_connection_leaves_when_its_state_says_and_not_before() {
    let mut table = Ipv4Table::new(&Config::new(1 << 20, [9; 16])).unwrap();
    let all = 1 << 20;
    let Insertion::New(position) = table.insert(&key(1), hops(1), SYN, Direction::Forward, 1000)
    else {
        panic!("the table is empty");
    };
    assert_eq!(
        table.on_packet(position, SYN | ACK, Direction::Reverse, 1000),
        State::Handshake
    );
    assert_eq!(
        table.on_packet(position, ACK, Direction::Forward, 1000),
        State::Established
    );
    assert_eq!(table.age_step(1000 + 7440, all, |_| {}).expired, 0);
    assert_eq!(
        table.on_packet(position, FIN, Direction::Forward, 8000),
        State::OpenerClosed
    );
    assert_eq!(
        table.on_packet(position, FIN, Direction::Reverse, 8001),
        State::Closed
    );
    assert_eq!(table.age_step(8061, all, |_| {}).expired, 0);
    assert_eq!(
        table
            .age_step(8062, all, |gone| assert_eq!(gone.key(), key(1)))
            .expired,
        1
    );
    assert!(table.is_empty());
}

#[test]
fn the_connections_of_a_dead_hop_leave_step_by_step_and_the_others_stay() {
    let mut table = Ipv4Table::new(&Config::new(16 << 20, [7; 16])).unwrap();
    let count = 100_000;
    for i in 0..count {
        assert!(matches!(
            table.insert(&key(i), hops(i), SYN, Direction::Forward, 0),
            Insertion::New(_)
        ));
    }
    let dead = hops(4321).downstream;
    let lost = (0..count).filter(|&i| hops(i).downstream == dead).count();
    assert!(lost > 1);
    let scan = table.begin_scan();
    let mut steps = 1;
    while table.retain_step(&scan, 500, |visited| visited.hops().downstream != dead) {
        steps += 1;
    }
    assert!(steps > 50, "{steps} steps");
    assert_eq!(table.len(), count as usize - lost);
    for i in 0..count {
        assert_eq!(table.get(&key(i)).is_some(), hops(i).downstream != dead);
    }
    assert_eq!(table.stats().counters.removed, lost as u64);
}

#[test]
fn a_scan_given_up_costs_nothing_and_one_that_ended_stays_ended() {
    let mut table = Ipv4Table::new(&Config::new(1 << 20, [7; 16])).unwrap();
    assert!(matches!(
        table.insert(&key(1), hops(1), SYN, Direction::Forward, 0),
        Insertion::New(_)
    ));
    let (first, second) = (table.begin_scan(), table.begin_scan());
    assert!(table.scan_step(&first, 1, |_| Verdict::Keep));
    table.end_scan(first);
    let mut met = 0;
    let mut count = |visited: flow::Visited<'_, Ipv4Key>| {
        assert_eq!(
            (visited.key(), visited.path(), visited.protocol()),
            (key(1), key(1).path(), TCP)
        );
        met += 1;
        Verdict::Update(hops(2))
    };
    assert!(!table.scan_step(&second, usize::MAX, &mut count));
    assert!(!table.scan_step(&second, usize::MAX, &mut count));
    assert_eq!(met, 1);
    assert_eq!(table.get(&key(1)).map(|found| found.hops()), Some(hops(2)));
}

#[test]
fn a_scan_left_alone_while_the_table_doubles_starts_over_and_misses_nothing() {
    let mut table = Ipv4Table::new(&Config::new(32 << 20, [7; 16])).unwrap();
    let count = 200_000;
    let insert = |table: &mut Ipv4Table, i: u32| {
        assert!(matches!(
            table.insert(&key(i), hops(i), SYN, Direction::Forward, 0),
            Insertion::New(_)
        ));
    };
    (0..count).for_each(|i| insert(&mut table, i));
    let scan = table.begin_scan();
    let mut met = std::collections::HashSet::new();
    let mut visits = 0;
    let mut note = |visited: flow::Visited<'_, Ipv4Key>| {
        met.insert(visited.key());
        visits += 1;
        Verdict::Keep
    };
    assert!(table.scan_step(&scan, 50_000, &mut note));
    (count..5 * count / 2).for_each(|i| insert(&mut table, i));
    while table.scan_step(&scan, 50_000, &mut note) {}
    assert!((0..count).all(|i| met.contains(&key(i))));
    assert!(
        visits > table.len() + 100_000,
        "{visits} visits: it started over"
    );
}

#[test]
fn an_entry_imported_after_a_long_idle_time_leaves_at_once() {
    let timeouts = Timeouts {
        tcp_established: 60,
        ..Timeouts::default()
    };
    let mut table = Ipv4Table::new(&Config {
        timeouts,
        ..Config::new(1 << 20, [7; 16])
    })
    .unwrap();
    for (i, idle) in [0, 59, 62, 127, 128, 7000, u32::MAX]
        .into_iter()
        .enumerate()
    {
        let entry = FlowEntry {
            key: key(i as u32),
            hops: hops(1),
            state: State::Established,
            idle,
        };
        assert!(matches!(table.import(&entry, 5), Insertion::New(_)));
    }
    assert_eq!(table.age_step(5, 1 << 20, |_| {}).expired, 5);
    assert!(table.get(&key(0)).is_some() && table.get(&key(1)).is_some());
}

#[test]
#[should_panic(expected = "one result per key")]
fn a_burst_needs_a_result_for_each_key() {
    let table = Ipv4Table::new(&Config::new(1 << 20, [7; 16])).unwrap();
    table.lookup_batch(&[key(1), key(2)], &mut [Hit::NONE]);
}

#[test]
fn an_empty_burst_is_no_burst() {
    let table = Ipv4Table::new(&Config::new(1 << 20, [7; 16])).unwrap();
    table.lookup_batch(&[], &mut []);
    assert!(table.is_empty());
}

/// A connection whose handshake is over, seen last at `now`.
fn established(table: &mut Ipv4Table, i: u32, now: u32) -> flow::Position {
    let Insertion::New(position) = table.insert(&key(i), hops(i), SYN, Direction::Forward, now)
    else {
        panic!("there is room, and it is not there yet");
    };
    table.on_packet(position, SYN | ACK, Direction::Reverse, now);
    table.on_packet(position, ACK, Direction::Forward, now);
    position
}

#[test]
fn ports_are_used_again_only_of_a_connection_that_ended_and_is_silent() {
    let mut table = Ipv4Table::new(&Config::new(1 << 20, [9; 16])).unwrap();
    let open = established(&mut table, 1, 1000);
    assert!(!table.opens_anew(open, SYN, 1000 + 7000), "it goes on");
    for (i, ended_by) in [(2, RST), (3, FIN)] {
        let ended = established(&mut table, i, 1000);
        table.on_packet(ended, ended_by | ACK, Direction::Forward, 1001);
        table.on_packet(ended, ended_by | ACK, Direction::Reverse, 1001);
        for flags in [ACK, SYN | ACK, FIN, RST, SYN | RST] {
            assert!(!table.opens_anew(ended, flags, 1050), "{flags:#x}");
        }
        for now in 1001..1001 + SETTLED {
            assert!(!table.opens_anew(ended, SYN, now), "{i}, {now}");
        }
        // A SYN in between begins the silence anew.
        table.on_packet(ended, ACK | RST, Direction::Forward, 1003);
        assert!(!table.opens_anew(ended, SYN, 1005));
        assert!(table.opens_anew(ended, SYN, 1012));
    }
}

#[test]
fn a_forged_reset_ends_no_connection_that_goes_on() {
    let mut table = Ipv4Table::new(&Config::new(1 << 20, [9; 16])).unwrap();
    let all = 1 << 20;
    let position = established(&mut table, 1, 1000);
    for forged in [RST, RST | ACK, SYN, SYN | RST] {
        assert_eq!(
            table.on_packet(position, RST, Direction::Forward, 1000),
            State::Reset
        );
        table.on_packet(position, forged, Direction::Forward, 1000);
        assert_eq!(table.age_step(1239, all, |_| {}).expired, 0, "four minutes");
        let answered = table.on_packet(position, ACK, Direction::Reverse, 1239);
        assert_eq!(answered, State::Established, "after {forged:#x}");
        assert_eq!(table.age_step(1239 + 7440, all, |_| {}).expired, 0);
    }
}

#[test]
fn idle_times_change_in_place_and_end_no_connection_early() {
    let all = 1 << 20;
    for (before, after) in [(7440, 300), (300, 7440), (600, 590), (60, 50)] {
        let with = |seconds| Timeouts {
            tcp_unanswered: seconds,
            ..Timeouts::default()
        };
        let config = Config {
            timeouts: with(before),
            ..Config::new(16 << 20, [7; 16])
        };
        let mut table = Ipv4Table::new(&config).unwrap();
        // The clock is one at which ages in units of the one and of the other say quite different things.
        let start = 1_000_000;
        let count = 20_000;
        for i in 0..count {
            let inserted = table.insert(&key(i), hops(i), SYN, Direction::Forward, start);
            assert!(matches!(inserted, Insertion::New(_)));
        }
        let changed = start + before.min(after) / 2;
        table.set_timeouts(&with(after), changed).unwrap();
        assert_eq!(table.config().timeouts, with(after));
        let (mut now, mut steps, mut displaced) = (changed, 0, count);
        // Packets come, and entries move, while ages are being changed.
        while table.age_step(now, 64, |_| {}).visited == 64 && steps < 200 {
            for i in displaced..displaced + 50 {
                let _ = table.insert(&key(i), hops(i), SYN, Direction::Forward, now);
            }
            displaced += 50;
            let seen = table.get(&key(steps)).expect("it goes on").position;
            table.on_packet(seen, SYN, Direction::Forward, now);
            steps += 1;
            now += u32::from(steps % 100 == 0);
        }
        assert_eq!(table.len(), displaced as usize, "{before} to {after}");
        for second in now..changed + after / 2 {
            table.age_step(second, all, |_| {});
        }
        assert_eq!(table.len(), displaced as usize, "{before} to {after}");
        for second in (changed..changed + 2 * after + 600).step_by(after as usize / 50) {
            table.age_step(second, all, |_| {});
        }
        assert!(table.is_empty(), "{before} to {after}: {}", table.len());
    }
    let mut table = Ipv4Table::new(&Config::new(1 << 20, [7; 16])).unwrap();
    let wrong = Timeouts {
        icmp: 0,
        ..Timeouts::default()
    };
    assert_eq!(table.set_timeouts(&wrong, 0).unwrap_err().field, "icmp");
    assert_eq!(table.config().timeouts, Timeouts::default());
}
