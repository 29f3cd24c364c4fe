//! The table against a plain map that does the same the obvious way, over random sequences of operations.
//!
//! Each sequence is a function of its seed; a failure names the seed, and `FLOW_SEED=n` runs that one alone.

mod random;
mod reference;
mod run;

use flow::{
    Config, Counters, Fetching, FlowKey, FlowTable, HashFunction, Instructions, Ipv4Key, Ipv6Key,
};
use random::Random;
use run::Run;

/// Makes the `i`-th key of a population.
type Population<K> = fn(u32) -> K;

fn scattered(i: u32) -> Ipv4Key {
    let mut random = Random::new(u64::from(i));
    let protocol = [6, 17, 1, 47][random.below(4) as usize];
    Ipv4Key::new(
        random.next() as u16,
        random.next() as u32,
        random.next() as u32,
        protocol,
        random.next() as u16,
        i as u16,
    )
}

/// One client and one server: nothing differs but the ports, the source port first.
fn ports_only(i: u32) -> Ipv4Key {
    Ipv4Key::new(1, 0x0a00_0001, 0x0a00_0002, 6, i as u16, (i >> 16) as u16)
}

/// A sweep over addresses: what an unkeyed hash of low bits would put into few buckets.
fn strided(i: u32) -> Ipv4Key {
    Ipv4Key::new(
        1,
        i << 12,
        0x0a00_0000 | i & 0xfff_000,
        [6, 17][i as usize & 1],
        80,
        80,
    )
}

fn scattered6(i: u32) -> Ipv6Key {
    let mut random = Random::new(u64::from(i));
    let mut address = || u128::from(random.next()) << 64 | u128::from(random.next());
    Ipv6Key::new(
        i as u16,
        address(),
        address(),
        [6, 17, 58][i as usize % 3],
        (i >> 3) as u16,
        443,
    )
}

/// Differs in the interface identifier's lowest bits and the port.
fn neighbours6(i: u32) -> Ipv6Key {
    Ipv6Key::new(
        1,
        0x2001_0db8 << 96 | u128::from(i >> 4),
        0x2001_0db8 << 96 | 1,
        6,
        (i & 15) as u16,
        443,
    )
}

/// Runs some sequences; returns what the tables counted, added up.
fn check<K: FlowKey>(
    population: Population<K>,
    memory_limit: usize,
    keys: u32,
    operations: usize,
) -> Counters {
    let mut total = Counters::default();
    let seeds = match std::env::var("FLOW_SEED") {
        Ok(seed) => vec![seed.parse().expect("FLOW_SEED is a number")],
        Err(_) => (0..if cfg!(miri) { 1 } else { 4 }).collect::<Vec<u64>>(),
    };
    for seed in seeds {
        use {HashFunction::*, Instructions::*};
        let ways = [
            (Detect, Widest, Fetching::Spread),
            (Detect, Avx2, Fetching::Dense),
            (Detect, Aes, Fetching::Spread),
            (Portable, Widest, Fetching::Dense),
        ];
        for (hash_function, instructions, fetching) in ways {
            let config = Config {
                hash_function,
                instructions,
                fetching,
                ..Config::new(memory_limit, [seed as u8 ^ 0x5a; 16])
            };
            let table = FlowTable::<K>::new(&config).unwrap();
            let free = Config {
                instructions: Widest,
                ..config
            };
            let best = FlowTable::<K>::new(&free).unwrap().instructions();
            assert_eq!(table.instructions(), expected(best, instructions));
            let keys = if cfg!(miri) { keys / 100 } else { keys };
            let operations = if cfg!(miri) {
                operations / 400
            } else {
                operations
            };
            let context = format!("FLOW_SEED={seed} {hash_function:?} {instructions:?}");
            let counters = Run::new(table, config, population, keys, Random::new(seed), context)
                .operations(operations);
            total.full += counters.full;
            total.splits += counters.splits;
            total.expired += counters.expired;
            total.displaced += counters.displaced;
            total.settled += counters.settled;
        }
    }
    total
}

/// What a table is to use that may use these instructions, where a table that may use all uses `best`.
fn expected(best: Option<Instructions>, widest: Instructions) -> Option<Instructions> {
    use Instructions::{Aes, Avx2, Widest};
    match (best?, widest) {
        (Widest, asked) | (Avx2, asked @ (Avx2 | Aes)) => Some(asked),
        (Avx2, Widest) => Some(Avx2),
        (Aes, _) => Some(Aes),
    }
}

/// Whether too few sequences run for all that they are made for.
fn are_few() -> bool {
    cfg!(miri) || std::env::var("FLOW_SEED").is_ok()
}

/// What the sequences are made for did happen.
fn assert_full(total: Counters) {
    assert!(
        are_few()
            || (total.full > 400
                && total.displaced > 1000
                && total.expired > 1000
                && total.settled > 1000),
        "{total:?}"
    );
}

fn assert_grown(total: Counters) {
    assert!(
        are_few()
            || (total.splits > 20_000
                && total.displaced > 1000
                && total.expired > 1000
                && total.settled > 1000),
        "{total:?}"
    );
}

/// The table grows to several times its first size and never fills.
#[test]
fn ipv4_with_room_to_grow() {
    assert_grown(check(scattered, 4 << 20, 200_000, 100_000));
}

/// Three times as many keys as slots: the table fills.
#[test]
fn ipv4_at_the_bound() {
    assert_full(check(scattered, 400 << 10, 60_000, 120_000));
}

#[test]
fn ipv4_where_only_ports_differ() {
    assert_full(check(ports_only, 400 << 10, 60_000, 120_000));
}

#[test]
fn ipv4_with_regular_addresses() {
    assert_full(check(strided, 400 << 10, 60_000, 120_000));
}

#[test]
fn ipv6_with_room_to_grow() {
    assert_grown(check(scattered6, 8 << 20, 200_000, 120_000));
}

#[test]
fn ipv6_at_the_bound() {
    assert_full(check(neighbours6, 1 << 20, 80_000, 120_000));
}
