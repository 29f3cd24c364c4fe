//! What a table is made from.

use std::fmt;

use crate::engine::{HashFunction, Instructions};
use crate::fetching::Fetching;
use crate::memory::{Pages, ReserveError};
use crate::timers::{InvalidTimeout, Timeouts};

/// Settings of a [`crate::FlowTable`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of memory that entries may take; the table never takes more.
    pub memory_limit: usize,
    /// Entries to make room for at the start; the table grows from there.
    pub expected_entries: usize,
    /// Secret key of the hash function. Draw it from the system's random source, once per process.
    pub hash_key: [u8; 16],
    /// Which hash function.
    pub hash_function: HashFunction,
    /// How wide look-ups are.
    pub instructions: Instructions,
    /// How memory is asked for what a burst looks up.
    pub fetching: Fetching,
    /// How long idle entries stay.
    pub timeouts: Timeouts,
    /// Which pages to take memory in.
    pub pages: Pages,
}

impl Config {
    /// Defaults for everything but the bound on memory and the secret key.
    pub fn new(memory_limit: usize, hash_key: [u8; 16]) -> Self {
        Self {
            memory_limit,
            expected_entries: 0,
            hash_key,
            hash_function: HashFunction::default(),
            instructions: Instructions::default(),
            fetching: Fetching::default(),
            timeouts: Timeouts::default(),
            pages: Pages::default(),
        }
    }
}

/// Why a table could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The bound is smaller than the smallest table.
    MemoryLimitTooSmall {
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        least: usize,
    },
    /// The expected entries do not fit in the bound.
    ExpectedEntriesTooMany {
        /// Entries given.
        given: usize,
        /// Entries that fit.
        most: usize,
    },
    /// An idle time is out of range.
    Timeout(InvalidTimeout),
    /// The kernel refused the memory.
    Reserve(ReserveError),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemoryLimitTooSmall { given, least } => {
                write!(
                    out,
                    "memory_limit is {given} bytes; the smallest flow table takes {least}"
                )
            }
            Self::ExpectedEntriesTooMany { given, most } => {
                write!(
                    out,
                    "expected_entries is {given}, but memory_limit has room for {most}"
                )
            }
            Self::Timeout(error) => error.fmt(out),
            Self::Reserve(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<InvalidTimeout> for ConfigError {
    fn from(error: InvalidTimeout) -> Self {
        Self::Timeout(error)
    }
}

impl From<ReserveError> for ConfigError {
    fn from(error: ReserveError) -> Self {
        Self::Reserve(error)
    }
}
