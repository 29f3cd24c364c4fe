//! Bringing entries home: from their second bucket to their first, once there is room.
//!
//! An entry lies in its second bucket where its first was full when it came, or when it made room for another one. Splits and entries that
//! go make room in first buckets, and nobody who looks from there knows whose they are: of a table that has grown, four entries in ten are
//! in their second bucket, where only another line from memory finds them. This walk leaves two and a half to three (docs/adr/0061).

use crate::bucket::Bucket;
use crate::engine::{Engine, Task};
use crate::entry::{FIRST, PLACE_MASK, SECOND};
use crate::key::FlowKey;
use crate::probe::Wanted;
use crate::table::FlowTable;

/// Entries whose first buckets are asked for at once.
const TOGETHER: usize = 64;
/// How far ahead of the walk buckets are fetched.
const AHEAD: u32 = 8;
/// A walk over the table that has brought home fewer than one in so many entries is the last one for a while...
const WORTH: usize = 128;
/// ...until as many connections have come or gone as one in so many of the table's slots.
const CHANGED: u64 = 16;

/// How far the walk is.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    cursor: u32,
    /// Entries that this walk has brought home.
    settled: usize,
    /// Changes of the table, as [`FlowTable::changes`] counts them, until which there is nothing to do.
    rests_until: u64,
}

/// An entry in its second bucket, and its first.
#[derive(Clone, Copy, Debug, Default)]
struct Guest {
    bucket: u32,
    slot: u8,
    home: u32,
}

struct SettleSome<'a, K: FlowKey> {
    table: &'a mut FlowTable<K>,
    budget: u32,
}

impl<K: FlowKey> Task for SettleSome<'_, K> {
    type Output = u32;

    #[inline(always)]
    fn run<E: Engine>(self, engine: E) -> u32 {
        self.table.settle_some(engine, self.budget)
    }
}

impl<K: FlowKey> FlowTable<K> {
    /// Looks at the next `budget` buckets, and brings home entries that are in their second bucket while there is room in their
    /// first. Returns how many buckets were looked at: none while few entries have come or gone since a whole walk found little to do.
    ///
    /// Positions change, as [`FlowTable::moves`] tells. A [`crate::Scan`] under way meets every connection as if nothing had moved: this
    /// stays behind it, where no entry can move past it, and so waits for one that is left standing.
    pub fn settle_step(&mut self, budget: usize) -> usize {
        let budget = budget.min(self.shape.buckets() as usize) as u32;
        let mut visited = 0;
        while visited < budget && self.changes() >= self.settling.rests_until {
            let left = budget - visited;
            let looked_at = self.engine.run(SettleSome {
                table: self,
                budget: left,
            });
            if looked_at == 0 {
                break;
            }
            visited += looked_at;
            self.end_of_walk();
        }
        visited as usize
    }

    /// Connections that have come or gone.
    fn changes(&self) -> u64 {
        let counters = &self.counters;
        counters.inserted + counters.removed + counters.expired
    }

    /// Begins again at the table's start where the walk is at its end, at once or later.
    fn end_of_walk(&mut self) {
        if self.settling.cursor < self.shape.buckets() {
            return;
        }
        let slots = u64::from(self.shape.buckets()) * K::Bucket::SLOTS as u64;
        let rests_until = match self.settling.settled * WORTH <= self.entries {
            true => self.changes() + slots / CHANGED,
            false => 0,
        };
        self.settling = Settling {
            rests_until,
            ..Settling::default()
        };
    }

    /// Goes on until there are some guests, or as many buckets were looked at; returns how many.
    #[inline(always)]
    fn settle_some<E: Engine>(&mut self, engine: E, budget: u32) -> u32 {
        let mut guests = [Guest::default(); TOGETHER];
        let (mut count, start) = (0, self.settling.cursor);
        let end = start.saturating_add(budget).min(self.scanned());
        let mut bucket = start;
        while bucket < end && count <= TOGETHER - K::Bucket::SLOTS {
            self.memory.prefetch(bucket + AHEAD);
            for slot in 0..K::Bucket::SLOTS {
                if self.memory.buckets()[bucket as usize].head(slot) & PLACE_MASK == SECOND {
                    guests[count] = self.guest(engine, bucket, slot);
                    self.memory.prefetch(guests[count].home);
                    count += 1;
                }
            }
            bucket += 1;
        }
        self.settling.cursor = bucket;
        for &guest in &guests[..count] {
            self.settle(engine, guest);
        }
        bucket - start
    }

    #[inline(always)]
    fn guest<E: Engine>(&self, engine: E, bucket: u32, slot: usize) -> Guest {
        let entry = self.memory.buckets()[bucket as usize].load(slot);
        let (hashes, _) = self.rehash(engine, bucket, &entry);
        Guest {
            bucket,
            slot: slot as u8,
            home: self.shape.bucket(hashes[0]),
        }
    }

    /// Brings an entry home, if there is room. Of two copies, which a process may leave that ends in the midst of a move, the one at home is
    /// found: the other one goes.
    #[inline(always)]
    fn settle<E: Engine>(&mut self, engine: E, guest: Guest) {
        let (bucket, slot, home) = (guest.bucket, usize::from(guest.slot), guest.home);
        if bucket == home {
            return;
        }
        let buckets = self.memory.buckets();
        let (there, entry) = (&buckets[home as usize], buckets[bucket as usize].load(slot));
        let wanted = Wanted {
            addresses: entry.addresses,
            head: entry.head & !PLACE_MASK,
        };
        if there.find(engine, &wanted, FIRST).is_found() {
            return self.clear(bucket, slot);
        }
        let free = there.free();
        if free == 0 {
            return;
        }
        let to = (home, free.trailing_zeros() as usize);
        self.relocate((bucket, slot), to, FIRST);
        self.counters.settled += 1;
        self.settling.settled += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Hops, Position};
    use crate::{Config, Direction, Insertion, Ipv4Key, Ipv4Table};

    const EVERYTHING: usize = 1 << 20;

    fn key(i: u32) -> Ipv4Key {
        Ipv4Key::new(
            3,
            0x0a00_0000 + i / 1000,
            0xc0a8_0001,
            17,
            (i % 1000) as u16,
            443,
        )
    }

    fn hops(i: u32) -> Hops {
        let (upstream, downstream) = (i as u16, (i >> 3) as u16);
        Hops {
            upstream,
            downstream,
            opener: 0,
        }
    }

    fn table(count: u32) -> Ipv4Table {
        let mut table = Ipv4Table::new(&Config::new(16 << 20, [7; 16])).expect("there is memory");
        for i in 0..count {
            let added = table.insert(&key(i), hops(i), 0, Direction::Forward, 0);
            assert!(matches!(added, Insertion::New(_)));
        }
        table
    }

    /// Share of the entries that are in their second bucket, in percent.
    fn guests(table: &Ipv4Table) -> usize {
        let buckets = &table.memory.buckets()[..table.shape.buckets() as usize];
        let slots = buckets
            .iter()
            .flat_map(|bucket| [0, 1, 2].map(|slot| bucket.head(slot)));
        100 * slots.filter(|head| head & PLACE_MASK == SECOND).count() / table.len()
    }

    fn assert_all(table: &Ipv4Table, count: u32) {
        assert_eq!(table.len(), count as usize);
        for i in 0..count {
            assert_eq!(table.get(&key(i)).map(|found| found.hops()), Some(hops(i)));
        }
    }

    #[test]
    fn entries_come_home_and_the_walk_rests_until_the_table_has_changed() {
        let mut table = table(200_000);
        assert!(guests(&table) > 40, "{} %", guests(&table));
        let mut walks = 0;
        while table.settle_step(EVERYTHING) > 0 {
            walks += 1;
        }
        assert!((3..8).contains(&walks), "{walks} walks");
        assert!(guests(&table) < 33, "{} %", guests(&table));
        let settled = table.stats().counters.settled;
        assert!(settled > 20_000, "{settled}");
        assert_all(&table, 200_000);

        for i in 200_000..212_000 {
            assert_eq!(table.settle_step(100), 0, "{i}");
            let _ = table.insert(&key(i), hops(i), 0, Direction::Forward, 0);
        }
        for i in 212_000..220_000 {
            let _ = table.insert(&key(i), hops(i), 0, Direction::Forward, 0);
        }
        assert_eq!(table.settle_step(100), 100);
        assert_all(&table, 220_000);
    }

    #[test]
    fn an_entry_that_goes_makes_room_for_one_to_come_home() {
        let mut table = table(50_000);
        while table.settle_step(EVERYTHING) > 0 {}
        let before = guests(&table);
        for i in 0..25_000 {
            assert_eq!(table.remove(&key(i)), Some(hops(i)));
        }
        while table.settle_step(EVERYTHING) > 0 {}
        assert!(
            guests(&table) < before / 2,
            "{before} %, then {} %",
            guests(&table)
        );
    }

    #[test]
    fn a_walk_under_way_meets_every_connection_while_others_come_home() {
        let mut table = table(100_000);
        let scan = table.begin_scan();
        let (mut met, mut more) = (vec![0; 100_000], true);
        while more {
            more = table.scan_step(&scan, 300, |visited| {
                let key = visited.key();
                let i =
                    (u32::from(key.source()) - 0x0a00_0000) * 1000 + u32::from(key.source_port());
                met[i as usize] += 1;
                crate::Verdict::Keep
            });
            table.settle_step(EVERYTHING);
        }
        assert!(met.iter().all(|&times| times > 0));
        assert!(table.stats().counters.settled > 10_000);
    }

    struct BucketsOf<'a>(&'a Ipv4Table, Position);

    impl Task for BucketsOf<'_> {
        type Output = [u32; 2];

        fn run<E: Engine>(self, engine: E) -> [u32; 2] {
            let BucketsOf(table, at) = self;
            let entry = table.memory.buckets()[at.bucket() as usize].load(at.slot());
            let (hashes, _) = table.rehash(engine, at.bucket(), &entry);
            hashes.map(|hash| table.shape.bucket(hash))
        }
    }

    /// Puts a copy of an entry into another bucket, if it has room, as a process leaves one that ends in a move.
    fn leave_copy(table: &mut Ipv4Table, at: Position, bucket: u32) -> bool {
        let (bucket, mut copy) = (
            bucket as usize,
            table.memory.buckets()[at.bucket() as usize].load(at.slot()),
        );
        let free = table.memory.buckets()[bucket].free();
        if free == 0 || bucket == at.bucket() as usize {
            return false;
        }
        copy.head = copy.head & !PLACE_MASK | SECOND;
        copy.hops = hops(77);
        table.memory.buckets_mut()[bucket].store(free.trailing_zeros() as usize, &copy);
        table.entries += 1;
        true
    }

    #[test]
    fn copies_of_entries_at_home_go_and_connections_keep_their_entries() {
        let mut table = table(100_000);
        let mut copies = 0;
        for i in 0..100_000 {
            let at = table.get(&key(i)).expect("it is there").position;
            let [first, second] = table.engine.run(BucketsOf(&table, at));
            if i % 10 == 0 && at.bucket() == first {
                copies += u32::from(leave_copy(&mut table, at, second));
            }
        }
        assert!(copies > 1000, "{copies}");
        assert_eq!(table.len() as u32, 100_000 + copies);
        while table.settle_step(EVERYTHING) > 0 {}
        assert_all(&table, 100_000);
    }

    #[test]
    fn a_walk_that_is_left_standing_stops_settling_until_it_ends() {
        let mut table = table(100_000);
        let scan = table.begin_scan();
        assert!(table.scan_step(&scan, 1000, |_| crate::Verdict::Keep));
        assert_eq!(table.settle_step(EVERYTHING), 1000);
        assert_eq!(table.settle_step(EVERYTHING), 0);
        table.end_scan(scan);
        while table.settle_step(EVERYTHING) > 0 {}
        assert!(guests(&table) < 33, "{} %", guests(&table));
    }

    #[test]
    fn walks_one_after_the_other_keep_nobody_from_home() {
        let mut table = table(200_000);
        let mut rested = 0;
        // At the pace of a walk that begins anew a while after its end, as the forwarder's count of entries does.
        while rested < 3 {
            let scan = table.begin_scan();
            let mut looked_at = 0;
            while table.scan_step(&scan, 256, |_| crate::Verdict::Keep) {
                looked_at += table.settle_step(256);
            }
            for _ in 0..100 {
                looked_at += table.settle_step(256);
            }
            rested += usize::from(looked_at == 0);
        }
        assert!(guests(&table) < 33, "{} %", guests(&table));
    }

    #[test]
    fn an_empty_table_has_nothing_to_do() {
        let mut table = table(100_000);
        for i in 0..100_000 {
            assert!(table.remove(&key(i)).is_some());
        }
        let slots = table.stats().slots;
        let mut looked_at = 0;
        for _ in 0..100 {
            looked_at += table.settle_step(EVERYTHING);
        }
        assert!(looked_at < 3 * slots, "{looked_at} of {slots}");
    }
}
