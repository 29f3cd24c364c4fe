//! The flow table: one choice per connection, found again in both directions.
//!
//! A [`FlowTable`] belongs to one thread, which alone reads and writes it; a forwarder has one per worker and address
//! family. It maps a key (interned service path and stage, and the 5-tuple in forward orientation) to two interned
//! hops and 16 bits of the caller's. Look-ups come in bursts; nothing in here ever stops to walk the whole table:
//! growth, ageing, export and removal by predicate all go in steps.
//!
//! What holds:
//! - Memory never exceeds the bound given. A full table refuses new connections ([`Insertion::Full`]) and keeps
//!   the ones it has; the caller then steers by [`consistent_hash`] alone.
//! - An entry is never removed before its state's idle time is over, whatever the clock's wrap or the sweep's pace.
//! - A table in a file ([`FlowTable::create_in`]) keeps its entries when its process is killed, whatever it was doing.
//! - Buckets are chosen by a keyed hash, so that nobody without the key can aim collisions.
//!
//! ```
//! use flow::{Config, Direction, Hit, Hops, Insertion, Ipv4Key, Ipv4Table, state};
//!
//! let secret = *b"from the system!";
//! let mut table = Ipv4Table::new(&Config::new(64 << 20, secret))?;
//! let key = Ipv4Key::new(7, 0x0a000001, 0xc0a80001, state::TCP, 40000, 443);
//! let (mut hits, now) = ([Hit::NONE], 0);
//!
//! table.lookup_batch(&[key], &mut hits);
//! assert_eq!(hits[0].found(), None);
//! let hops = Hops { upstream: 1, downstream: 2, opener: 0 };
//! assert!(matches!(table.insert(&key, hops, state::SYN, Direction::Forward, now), Insertion::New(_)));
//!
//! table.lookup_batch(&[key], &mut hits);
//! let connection = hits[0].found().expect("just inserted");
//! assert_eq!(connection.hops(), hops);
//! table.on_packet(connection.position, state::SYN | state::ACK, Direction::Reverse, now);
//! // Between bursts:
//! table.age_step(now + 61, 1000, |gone| println!("{:?} was idle for too long", gone.key()));
//! # Ok::<(), flow::ConfigError>(())
//! ```
//!
//! Deliberately absent: locks, threads, I/O, packet parsing, any meaning of the interned ids.

#[cfg(test)]
mod adversary;
mod ahead;
mod bucket;
mod config;
pub mod consistent_hash;
mod description;
mod engine;
mod entry;
mod fetching;
mod file;
mod key;
mod lookup;
mod memory;
mod notes;
mod probe;
mod retime;
mod room;
mod scan;
mod settle;
mod shape;
pub mod siphash;
pub mod state;
mod stats;
#[cfg(feature = "substitute")]
mod substitute;
mod table;
mod timers;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use ahead::PagesAhead;
pub use config::{Config, ConfigError};
pub use engine::{HashFunction, Instructions, Processor, Work};
pub use entry::{FlowEntry, Found, Hit, Hops, Position};
pub use fetching::{FETCH, Fetching};
pub use file::ReopenError;
pub use key::{FlowKey, Ipv4Key, Ipv6Key};
pub use lookup::{BURST, Lookups, Missed};
pub use memory::{Pages, ReserveError};
pub use scan::{AgeStep, Scan, Verdict, Visited};
pub use state::{Direction, Side, State};
pub use stats::{Counters, Stats};
#[cfg(feature = "substitute")]
pub use substitute::Substitute;
pub use table::{FlowTable, Insertion, Ipv4Table, Ipv6Table, Noting};
pub use timers::{InvalidTimeout, MAX_IDLE, Timeouts};
