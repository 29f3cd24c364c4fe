//! Tables that outlive their process: the same memory, but a file's.
//!
//! A forwarder that was killed finds the choices of its connections when it is started again, also those that the rules of today
//! would not make again. The file should lie on a file system in memory (tmpfs, hugetlbfs): on a disk every
//! packet's time stamp would be written out.

use std::fmt;
use std::fs::File;

use crate::bucket::Bucket;
use crate::config::{Config, ConfigError};
use crate::description::Description;
use crate::engine::{Engine, HashFunction, Picked, Task};
use crate::entry::{FIRST, PLACE_MASK};
use crate::key::FlowKey;
use crate::memory::{HUGE, Memory, Pages, ReserveError};
use crate::shape::{MAX_BUCKETS, MIN_BUCKETS, Shape};
use crate::table::FlowTable;
use crate::timers::Units;

/// A file cannot be gone on with. What it holds is of no use; another is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReopenError {
    /// It is no table of this address family, or was never finished.
    NoTable,
    /// It was written with a hash function that this processor does not have.
    OtherProcessor,
    /// It is shorter than it says, or says what cannot be.
    Damaged,
    /// The kernel refused the memory.
    Reserve(ReserveError),
}

impl fmt::Display for ReopenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTable => out.write_str("the file holds no flow table of this kind"),
            Self::OtherProcessor => {
                out.write_str("the flow table was written on a processor with other instructions")
            }
            Self::Damaged => out.write_str("the flow table's description contradicts itself"),
            Self::Reserve(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for ReopenError {}

impl From<ReserveError> for ReopenError {
    fn from(error: ReserveError) -> Self {
        Self::Reserve(error)
    }
}

struct EndSplit<'a, K: FlowKey>(&'a mut FlowTable<K>);

impl<K: FlowKey> Task for EndSplit<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<E: Engine>(self, engine: E) {
        self.0.end_split(engine);
    }
}

impl<K: FlowKey> FlowTable<K> {
    /// An empty table in an empty file that nobody else has open. [`Config::pages`] is the file system's matter.
    ///
    /// # Errors
    /// As for [`FlowTable::new`]; the file system has no room.
    pub fn create_in(config: &Config, file: File) -> Result<Self, ConfigError> {
        let limit = Self::limit_of(config, HUGE)?;
        let mut table = Self::over(config, limit, Self::map(limit, file)?)?;
        let buckets = table.shape.buckets();
        if !table.memory.ensure(buckets) {
            return Err(no_room(buckets as usize * size_of::<K::Bucket>()).into());
        }
        let description = Description {
            bucket: size_of::<K::Bucket>() as u32,
            hash_family: table.engine.family(),
            buckets,
            is_mixed: false,
            bound: config.memory_limit as u64,
            hash_key: config.hash_key,
            timeouts: config.timeouts,
        };
        if let Some(page) = table.memory.description() {
            description.write(page);
        }
        Ok(table)
    }

    /// The table of a file that [`FlowTable::create_in`] made in this process or another, on this machine since it was started.
    /// Bound, key and idle times are those it was made with: [`FlowTable::config`] tells them. The caller sees to it that
    /// nobody else has the file open (a lock), and that the seconds of [`FlowTable::insert`] go on where they were.
    ///
    /// # Errors
    /// See [`ReopenError`].
    pub fn reopen(file: File) -> Result<Self, ReopenError> {
        let length = file.metadata().map_or(0, |file| file.len());
        if length < 2 * HUGE as u64 {
            return Err(ReopenError::NoTable);
        }
        let again = file.try_clone().map_err(|_| ReopenError::NoTable)?;
        let description = Memory::<K::Bucket>::map(again, HUGE)?
            .description()
            .and_then(|page| Description::read(page))
            .filter(|description| description.bucket as usize == size_of::<K::Bucket>())
            .ok_or(ReopenError::NoTable)?;
        let config = Config {
            timeouts: description.timeouts,
            pages: Pages::default(),
            ..Config::new(
                usize::try_from(description.bound).map_err(|_| ReopenError::Damaged)?,
                description.hash_key,
            )
        };
        let config = config.with_family(description.hash_family)?;
        let limit = Self::limit_of(&config, HUGE).map_err(|_| ReopenError::Damaged)?;
        let buckets = description.buckets;
        let fits = (MIN_BUCKETS..=limit.min(MAX_BUCKETS)).contains(&buckets);
        if !fits || length < (Self::bytes(limit) + HUGE) as u64 {
            return Err(ReopenError::Damaged);
        }
        let memory = Self::map(limit, file)?;
        let mut table = Self::over(&config, limit, memory).map_err(|_| ReopenError::Damaged)?;
        table.shape = Shape::new(buckets);
        if !table.memory.ensure(buckets) {
            return Err(no_room(Self::bytes(buckets)).into());
        }
        table.take_stock();
        if description.is_mixed {
            table.begin_retiming(Units::ALL);
        }
        Ok(table)
    }

    /// Counts the entries, empties the bucket that a split may have been filling, and ends one that had only copied entries.
    fn take_stock(&mut self) {
        let buckets = self.shape.buckets();
        if buckets < self.limit && self.memory.ensure(buckets + 1) {
            let next = &mut self.memory.buckets_mut()[buckets as usize];
            for slot in 0..K::Bucket::SLOTS {
                next.clear(slot);
            }
        }
        self.engine.run(EndSplit(self));
        let used = |bucket: &K::Bucket| {
            (0..K::Bucket::SLOTS)
                .filter(|&slot| bucket.is_used(slot))
                .count()
        };
        self.entries = self.memory.buckets()[..buckets as usize]
            .iter()
            .map(used)
            .sum();
    }

    /// Empties the slots of the bucket split last whose entries belong to its other half: they are there.
    #[inline(always)]
    fn end_split<E: Engine>(&mut self, engine: E) {
        let old = self.shape.last_split() as usize;
        for slot in 0..K::Bucket::SLOTS {
            let entry = self.memory.buckets()[old].load(slot);
            let (hashes, _) = self.rehash(engine, old as u32, &entry);
            let hash = hashes[usize::from(entry.head & PLACE_MASK != FIRST)];
            let is_copy = self.shape.bucket(hash) as usize != old;
            self.memory.buckets_mut()[old].clear_if(slot, is_copy);
        }
    }

    fn map(limit: u32, file: File) -> Result<Memory<K::Bucket>, ReserveError> {
        Memory::map(file, Self::bytes(limit))
    }

    /// Bytes of so many buckets, in whole huge pages.
    fn bytes(buckets: u32) -> usize {
        (buckets as usize * size_of::<K::Bucket>()).next_multiple_of(HUGE)
    }
}

impl Config {
    /// With a hash function of the family that a file was written with.
    fn with_family(self, family: u32) -> Result<Self, ReopenError> {
        [HashFunction::Detect, HashFunction::Portable]
            .into_iter()
            .find(|&function| {
                Picked::new(self.hash_key, function, self.instructions).family() == family
            })
            .map(|hash_function| Self {
                hash_function,
                ..self
            })
            .ok_or(ReopenError::OtherProcessor)
    }
}

/// `fallocate` found no room.
fn no_room(bytes: usize) -> ReserveError {
    ReserveError {
        bytes,
        os_error: libc::ENOSPC,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Hops;
    use crate::{Direction, Instructions, Ipv4Key, Ipv4Table};

    fn key(i: u32) -> Ipv4Key {
        Ipv4Key::new(3, 0x0a00_0000 + i, 0xc0a8_0001, 17, 1000, 443)
    }

    fn file() -> File {
        let path = format!("/dev/shm/flow-test-{}-split", std::process::id());
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(&path).expect("there is memory");
        std::fs::remove_file(path).expect("it is there");
        file
    }

    #[test]
    fn a_table_written_with_narrower_instructions_is_read_with_wider_ones() {
        for instructions in [Instructions::Aes, Instructions::Avx2] {
            let config = Config {
                instructions,
                ..Config::new(32 << 20, [3; 16])
            };
            let file = file();
            let mut table = Ipv4Table::create_in(&config, file.try_clone().expect("a descriptor"))
                .expect("there is memory");
            let narrow = table.instructions();
            for i in 0..60_000 {
                let _ = table.insert(&key(i), Hops::default(), 0, Direction::Forward, 0);
            }
            let entries = table.len();
            assert!(entries > 59_000 && table.stats().counters.splits > 100);
            drop(table);
            let table = Ipv4Table::reopen(file).expect("it is a table");
            if table.instructions() == Some(Instructions::Widest) {
                assert_eq!(narrow, Some(instructions));
            }
            let found = (0..60_000).filter(|&i| table.get(&key(i)).is_some());
            assert_eq!(found.count(), entries, "{instructions:?}");
        }
    }

    #[test]
    fn a_split_that_had_only_copied_entries_is_ended() {
        let file = file();
        let again = || file.try_clone().expect("a descriptor more");
        let mut table = Ipv4Table::create_in(&Config::new(32 << 20, [3; 16]), again())
            .expect("there is memory");
        let (mut splits, mut copies, mut moved) = (0, 0, 0);
        for i in 0..60_000 {
            let before = (
                table.stats().counters.splits,
                table.memory.buckets()[table.shape.next_split() as usize],
            );
            let _ = table.insert(&key(i), Hops::default(), 0, Direction::Forward, 0);
            if table.stats().counters.splits != before.0 + 1 || i % 50 != 0 {
                continue;
            }
            // As if the process had ended before entries left the bucket, and none had come since.
            let (old, entries) = (table.shape.last_split() as usize, table.entries);
            let after = std::mem::replace(&mut table.memory.buckets_mut()[old], before.1);
            drop(table);
            table = Ipv4Table::reopen(again()).expect("it is a table");
            let left = &table.memory.buckets()[old];
            assert!(
                (0..3).all(|slot| !left.is_used(slot) || left.load(slot) == before.1.load(slot))
            );
            let used = |bucket: &crate::bucket::Bucket4| {
                (0..3).filter(|&slot| bucket.is_used(slot)).count()
            };
            copies += used(&before.1) - used(left);
            moved += used(&after).abs_diff(used(left));
            // What was inserted into that very bucket after the split is overwritten by the test itself.
            assert!(table.len() <= entries && table.len() + 1 >= entries, "{i}");
            splits += 1;
        }
        assert!(
            splits > 50 && copies > 50 && moved <= splits,
            "{splits}, {copies}, {moved}"
        );
    }
}
