//! Packet buffers: many for frames as wires carry them, and some for frames of up to 64 KB that are yet to be cut.

use crate::counters::Drop;
use dpdk::{Environment, Mbuf, Pool};

/// Bytes of a buffer, headroom included. Devices are never given more to send.
const DATA_ROOM: u16 = 2048 + 128 + 128;
/// The same of a long one: as much as a buffer can have.
const LONG_ROOM: u16 = u16::MAX;
/// Long buffers on their way, and more for each worker (a few less with huge pages).
const LONG: u32 = 64;
const LONG_PER_WORKER: u32 = 48;

/// The buffers of a worker: many of its own, and long ones of all workers.
///
/// Where buffers of several workers lie among each other, a processor that fetches ahead of what it has seen takes lines that
/// another one is writing (docs/adr/0062).
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    pool: Pool,
    long: Option<Pool>,
}

impl Buffers {
    /// Takes up to `count` buffers for so many workers, in equal parts, and long ones if there is memory for them; frames of several segments are
    /// cut as they come where there is none. Nothing when the memory does not hold `count`.
    pub fn of_workers(
        environment: &Environment,
        count: u32,
        workers: usize,
    ) -> Option<Vec<Buffers>> {
        let own = count / workers.max(1) as u32;
        let pools = (0..workers).map(|number| {
            Pool::new(
                environment,
                &format!("worker-{number}"),
                own,
                DATA_ROOM,
                workers,
            )
        });
        let pools = pools.collect::<Option<Vec<Pool>>>()?;
        let long = LONG + LONG_PER_WORKER * workers as u32;
        let long = Pool::new(environment, "long", long, LONG_ROOM, workers);
        Some(
            pools
                .into_iter()
                .map(|pool| Buffers { pool, long })
                .collect(),
        )
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
