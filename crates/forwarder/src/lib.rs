//! The data plane: steers packets through service chains by the rules its site gives it.
//!
//! `docs/forwarding.md` says what the rules mean. The way of a packet through this crate:
//! [`pipeline`] takes a frame, [`arrival`] finds out which service path, stage and direction it is at, the flow
//! table or [`rules`] say where it goes, and [`departure`] sends it there. None of these knows DPDK: they work
//! on anything that is a [`frame::Frame`], so that tests and fuzzers run the same code as ports do.
//! [`worker`] joins them to ports; [`control`] brings rules and takes reports. Where there are several workers, [`home`] says whose a
//! packet is, [`dealing`] has ports see to it that it arrives there, and [`handover`] brings it there if it did not.
//!
//! Invariants:
//! - A frame ends in exactly one of: sent, consumed as control (ARP, echo, …), kept for a neighbour, or one drop counter.
//! - Rules change between two bursts, as a whole.
//! - A connection's flow entries are with one worker, and no two workers share anything but rings.
//! - The packet path allocates only where a packet is answered, fragmented or kept.

mod announce;
mod answers;
pub mod arrival;
pub mod buffers;
mod burst;
pub mod bus;
pub mod capture;
pub mod capture_session;
mod clock;
mod context;
pub mod control;
pub mod cores;
pub mod counters;
pub mod dealing;
pub mod departure;
mod encoded;
pub mod entropy;
mod errors;
pub mod exchange;
mod exits;
mod family;
pub mod flow_files;
pub mod fragments;
pub mod frame;
mod guard;
pub mod handover;
pub mod home;
mod housekeeping;
pub mod latency;
pub mod local;
pub mod metrics;
pub mod native;
pub mod neighbours;
mod output;
pub mod pipeline;
mod plain;
pub mod ports;
pub mod prefix;
pub mod probe;
pub mod registry;
pub mod routes;
pub mod rules;
pub mod rules_file;
pub mod targets;
pub mod trace;
mod whole_file;
pub mod worker;
pub mod workers;
