//! Packet buffers: many for frames as wires carry them, and some for frames of up to 64 KB that are yet to be cut.

use crate::counters::Drop;
use dpdk::{Environment, Mbuf, Pool};

/// Bytes of a buffer, headroom included. Devices are never given more to send.
const DATA_ROOM: u16 = 2048 + 128 + 128;
/// The same of a long one: as much as a buffer can have.
const LONG_ROOM: u16 = u16::MAX;
/// Long buffers on their way, and more for each worker.
const LONG: u32 = 64;
const LONG_PER_WORKER: u32 = 48;

/// The buffers of a forwarder.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    pool: Pool,
    long: Option<Pool>,
}

impl Buffers {
    /// Takes `count` buffers, and long ones for some workers if there is memory for them; frames of several segments are
    /// cut as they come where there is none. Nothing when the memory does not hold `count`.
    pub fn new(environment: &Environment, count: u32, workers: usize) -> Option<Buffers> {
        let long = LONG + LONG_PER_WORKER * workers as u32;
        Some(Buffers {
            pool: Pool::new(environment, "packets", count, DATA_ROOM)?,
            long: Pool::new(environment, "long", long, LONG_ROOM),
        })
    }

    /// Buffers that devices receive into.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// An empty long buffer, while there are some.
    pub fn long(&self) -> Option<Mbuf> {
        self.long.as_ref()?.allocate()
    }

    /// A frame in a buffer.
    ///
    /// # Errors
    /// Why it is dropped.
    pub fn hold(&self, bytes: &[u8]) -> Result<Mbuf, Drop> {
        let mut mbuf = self.pool.allocate().ok_or(Drop::NoBuffer)?;
        match mbuf.set(bytes) {
            true => Ok(mbuf),
            false => Err(Drop::FrameTooLong),
        }
    }
}
