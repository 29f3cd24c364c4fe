//! What a caller sees: a connection is found again, in both directions, until it is removed.

use flow::state::{ACK, FIN, SYN, TCP};
use flow::{Config, Direction, Hops, Insertion, Ipv4Key, Ipv4Table, State};

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
        tag: !i as u16,
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
    let mut results = vec![None; keys.len()];
    table.lookup_batch(&keys, &mut results);
    for (i, found) in results.into_iter().enumerate() {
        assert_eq!(found, table.get(&keys[i]));
        assert_eq!(
            found.map(|found| found.hops),
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
        State::ForwardClosed
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
