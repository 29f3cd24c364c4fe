//! DPDK, as far as a forwarder needs it: the only unsafe DPDK code of the project.
//!
//! [`Environment`] starts DPDK once in a process. A [`Pool`] has buffers, a [`Port`] receives and sends
//! [`Mbuf`]s. An `Mbuf` owns its buffer: dropping it gives the buffer back to its pool.
//!
//! Invariants:
//! - Pools and ports outlive nothing: they live until the process ends or they are closed, and buffers belong to pools that are never freed.
//! - One thread at a time uses a queue of a port (`Port::receive` and `Port::send` take `&mut Queue`).

mod cycles;
mod environment;
mod mbuf;
mod port;

pub use cycles::{cycles, cycles_per_second};
pub use environment::{Environment, EnvironmentError};
pub use mbuf::{KnownThread, Mbuf, Pool};
pub use port::{Port, PortError, Queue, RECEIVE_LIMIT};
