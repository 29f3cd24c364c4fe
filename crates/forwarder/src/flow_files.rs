//! Flow tables that outlive the process, and the names of the numbers in them.
//!
//! The directory lies on a file system in memory. A forwarder that was killed, or replaced by a newer one, finds there
//! what its connections chose: also choices that the rules of today would not make again.
//!
//! | file | holds |
//! |---|---|
//! | `lock` | nothing; whoever has it locked owns the directory |
//! | `names.json` | the [`Registry`]: written before a number can be in a table |
//! | `workers.json` | how many workers the tables are of, and the key and the function of their connections' homes ([`crate::home`]) |
//! | `ipv4.0`, `ipv6.0` | the tables of one worker ([`flow::FlowTable::create_in`]) |
//! | `ipv4.<worker>-of-<workers>-by-<function>-<deals>`, `ipv6.…` | the tables of several |
//!
//! A forwarder that starts with another number of workers than the one before, has another function for homes or was left another key for them, deals
//! the entries out anew. The tables before stay until all entries are in the new ones and `workers.json` says so.

mod deal;
mod lock;
mod names;

use crate::registry::Registry;
use flow::{Config, ConfigError, FlowKey, FlowTable, Insertion, Verdict};
use lock::Lock;
use nix::sys::statfs::{FsType, HUGETLBFS_MAGIC, TMPFS_MAGIC, statfs};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// RAMFS_MAGIC of the kernel.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);
/// A directory of flow tables that this process owns.
#[derive(Debug)]
pub struct FlowFiles {
    directory: PathBuf,
    crew: Crew,
    lock: Lock,
}

/// Whose tables there are.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Crew {
    /// How many workers.
    workers: usize,
    /// Key of [`crate::home::Homes`].
    key: [u8; 16],
    /// [`crate::home::FUNCTION`] as it was; the first one was not written down.
    #[serde(default)]
    function: u32,
    /// The key that the next process deals entries out by, if it is another one.
    #[serde(default)]
    next_key: Option<[u8; 16]>,
    /// How often entries have been dealt out anew: tables that are being filled are never those there were.
    #[serde(default)]
    deals: u32,
}

impl Crew {
    /// Whether connections have the homes they have with another one.
    fn deals_like(&self, other: &Crew) -> bool {
        let alike = self.function == other.function && self.key == other.key;
        self.workers == other.workers && (self.workers == 1 || alike)
    }
}

impl FlowFiles {
    /// Takes a directory, which is made where it does not exist, and reads the names that its tables' numbers have. Tables
    /// of another number of workers are dealt out anew, into ones made from `tables` (IPv4 and IPv6). Where another process owns
    /// the directory, `waits` says to wait until it has ended. `now` tells the time in seconds, then.
    ///
    /// # Errors
    /// It is not on a file system in memory, another process owns it, it cannot be used, or there is no room for both the
    /// tables there are and those of this number of workers.
    pub fn open(
        directory: &Path,
        workers: usize,
        tables: &(Config, Config),
        waits: bool,
        now: impl FnOnce() -> u32,
    ) -> io::Result<(FlowFiles, Registry)> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let in_memory = [TMPFS_MAGIC, HUGETLBFS_MAGIC, RAMFS_MAGIC];
        if !in_memory.contains(&statfs(directory)?.filesystem_type()) {
            return Err(io::Error::other(
                "the flow directory is not on a file system in memory; give one on tmpfs (/dev/shm, /run) or hugetlbfs",
            ));
        }
        let lock = Lock::take(file(&directory.join("lock"), false)?, waits)?;
        let mut files = FlowFiles {
            directory: directory.to_path_buf(),
            crew: Crew {
                workers,
                key: tables.0.hash_key,
                function: crate::home::FUNCTION,
                next_key: None,
                deals: 0,
            },
            lock,
        };
        let mut registry = files.names()?;
        files.settle(tables, now())?;
        files.forget_unused(&mut registry);
        Ok((files, registry))
    }

    /// Lets the next owner have the directory before this process has ended. No table may be in use any more.
    pub fn hand_over(&self) {
        self.lock.release();
    }

    /// Key of the homes that entries were dealt out by when the directory was opened.
    pub fn key(&self) -> [u8; 16] {
        self.crew.key
    }

    /// Writes down the key of homes, and the one that the next process is to deal entries out by, if it is another one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_keys(&self, key: [u8; 16], next_key: Option<[u8; 16]>) -> io::Result<()> {
        self.keep_crew(&Crew {
            key,
            next_key,
            ..self.crew
        })
    }

    /// A worker's table of a family, with what it held, and then with the idle times it had. `now` is in seconds.
    ///
    /// # Errors
    /// As for [`FlowTable::create_in`].
    fn table<K: FlowKey>(
        &self,
        worker: usize,
        config: &Config,
        now: u32,
    ) -> Result<FlowTable<K>, ConfigError> {
        let path = self.path::<K>(worker);
        match file(&path, false).map(FlowTable::reopen) {
            Ok(Ok(table)) if table.config().memory_limit == config.memory_limit => Ok(table),
            Ok(Ok(mut table)) => {
                let timeouts = table.config().timeouts;
                let config = Config {
                    timeouts,
                    ..*config
                };
                self.replace(worker, &mut table, &config, now)
            }
            _ => self.create(&path, config),
        }
    }

    /// A table made from other settings, with the entries of the one it replaces.
    ///
    /// # Errors
    /// As for [`FlowTable::create_in`]; nothing has changed then.
    fn replace<K: FlowKey>(
        &self,
        worker: usize,
        old: &mut FlowTable<K>,
        config: &Config,
        now: u32,
    ) -> Result<FlowTable<K>, ConfigError> {
        let path = self.path::<K>(worker);
        let unfinished = path.with_extension(format!("{worker}.new"));
        let mut table = self.create(&unfinished, config)?;
        move_entries(old, &mut table, now);
        fs::rename(&unfinished, &path).map_err(cannot)?;
        Ok(table)
    }

    fn create<K: FlowKey>(
        &self,
        path: &Path,
        config: &Config,
    ) -> Result<FlowTable<K>, ConfigError> {
        FlowTable::create_in(config, file(path, true).map_err(cannot)?)
    }

    fn path<K: FlowKey>(&self, worker: usize) -> PathBuf {
        self.path_among::<K>(worker, &self.crew)
    }

    fn path_among<K: FlowKey>(&self, worker: usize, crew: &Crew) -> PathBuf {
        let family = if size_of::<K>() > 16 { "ipv6" } else { "ipv4" };
        self.directory.join(match (crew.workers, crew.function) {
            (1, _) => format!("{family}.{worker}"),
            (workers, 0) => format!("{family}.{worker}-of-{workers}"),
            (workers, 1) => format!("{family}.{worker}-of-{workers}-by-1"),
            (workers, function) => {
                let deals = crew.deals;
                format!("{family}.{worker}-of-{workers}-by-{function}-{deals}")
            }
        })
    }
}

/// Where a worker's tables lie.
#[derive(Clone, Debug, Default)]
pub enum Place {
    /// In memory of the process.
    #[default]
    Process,
    /// In files, as those of a worker.
    Files(Arc<FlowFiles>, usize),
}

impl Place {
    /// A table, with what it held if it lies in a file. `now` is in seconds.
    ///
    /// # Errors
    /// As for [`FlowTable::new`] and [`FlowTable::create_in`].
    pub(crate) fn table<K: FlowKey>(
        &self,
        config: &Config,
        now: u32,
    ) -> Result<FlowTable<K>, ConfigError> {
        match self {
            Place::Process => FlowTable::new(config),
            Place::Files(files, worker) => files.table(*worker, config, now),
        }
    }
}

/// Moves all entries of a table, those that fit, into another.
fn move_entries<K: FlowKey>(from: &mut FlowTable<K>, to: &mut FlowTable<K>, now: u32) {
    let scan = from.begin_scan();
    let everything = from.stats().buckets;
    while from.scan_step(&scan, everything, |visited| {
        match to.import(&visited.entry(now), now) {
            Insertion::New(_) | Insertion::Present(_) | Insertion::Full => Verdict::Keep,
        }
    }) {}
}

fn file(path: &Path, empty: bool) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(empty)
        .mode(0o600)
        .open(path)
}

fn cannot(error: io::Error) -> ConfigError {
    ConfigError::Reserve(flow::ReserveError {
        bytes: 0,
        os_error: error.raw_os_error().unwrap_or(0),
    })
}
