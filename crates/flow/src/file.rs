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
use crate::engine::{HashFunction, Picked};
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

    /// Counts the entries, and empties the bucket that a split may have been filling.
    fn take_stock(&mut self) {
        let buckets = self.shape.buckets();
        if buckets < self.limit && self.memory.ensure(buckets + 1) {
            let next = &mut self.memory.buckets_mut()[buckets as usize];
            for slot in 0..K::Bucket::SLOTS {
                next.clear(slot);
            }
        }
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
            .find(|&function| Picked::new(self.hash_key, function).family() == family)
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
