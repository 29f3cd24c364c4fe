//! Between ports and packet buffers.

use crate::counters::{Counters, Drop};
use crate::pipeline::Output;
use crate::ports::Queue;
use dpdk::{KnownThread, Mbuf, Pool};
use packet_socket::{BATCH, Frame, Outgoing, Scratch, Socket};

/// What moving packets needs: buffers.
pub(super) struct Transfer {
    pool: Pool,
    scratch: Scratch,
    segment: Vec<u8>,
}

impl Transfer {
    pub(super) fn new(pool: Pool) -> Transfer {
        Transfer {
            pool,
            scratch: Scratch::default(),
            segment: Vec::new(),
        }
    }

    /// To be called by the thread that moves packets, which keeps what it gets.
    pub(super) fn register_thread(&self) -> Option<KnownThread> {
        self.pool.register_thread()
    }

    /// Receives a burst behind what is in `burst`; returns how many packets there were, also such as are dropped here.
    #[inline]
    pub(super) fn receive(
        &mut self,
        queue: &mut Queue,
        burst: &mut Vec<Mbuf>,
        counters: &mut Counters,
    ) -> usize {
        match queue {
            Queue::Device(queue) => queue.receive(burst),
            Queue::Socket(socket) => self.receive_socket(socket, burst, counters),
        }
    }

    fn receive_socket(
        &mut self,
        socket: &mut Socket,
        burst: &mut Vec<Mbuf>,
        counters: &mut Counters,
    ) -> usize {
        let (pool, segment) = (self.pool, &mut self.segment);
        let result = socket.receive(&mut self.scratch, |frame| {
            let Frame { bytes, segments } = frame;
            let mut take = |bytes: &[u8]| match buffer(pool, bytes) {
                Ok(mbuf) => burst.push(mbuf),
                Err(drop) => counters.drop(drop.into()),
            };
            match segments {
                None => take(bytes),
                Some(segments) => segments.cut(bytes, segment, |segment| take(segment)),
            }
        });
        // A port that is down has nothing to receive; its state is the control thread's to watch.
        let received = result.unwrap_or_default();
        for _ in 0..received.refused {
            counters.drop(Drop::OffloadUnknown.into());
        }
        received.frames + received.refused
    }

    /// A frame in a buffer.
    #[cold]
    pub(super) fn buffer(&self, bytes: &[u8]) -> Result<Mbuf, Drop> {
        buffer(self.pool, bytes)
    }

    /// Puts frames that were made in ordinary memory into buffers.
    #[cold]
    pub(super) fn fill(&mut self, output: &mut Output<Mbuf>, counters: &mut Counters) {
        output.merge(|bytes| match buffer(self.pool, bytes) {
            Ok(mbuf) => Some(mbuf),
            Err(drop) => {
                counters.drop(drop.into());
                None
            }
        });
    }

    /// Sends packets and empties the list; returns how many the port took.
    #[inline]
    pub(super) fn send(&mut self, queue: &mut Queue, frames: &mut Vec<Mbuf>) -> usize {
        match queue {
            Queue::Device(queue) => queue.send(frames),
            Queue::Socket(socket) => {
                let mut sent = 0;
                for batch in frames.chunks(BATCH) {
                    let nothing = Outgoing {
                        bytes: &[],
                        segments: None,
                    };
                    let mut outgoing = [nothing; BATCH];
                    for (out, mbuf) in outgoing.iter_mut().zip(batch) {
                        out.bytes = mbuf.data();
                    }
                    sent += socket.send(&outgoing[..batch.len()]).frames;
                }
                sent
            }
        }
    }
}

fn buffer(pool: Pool, bytes: &[u8]) -> Result<Mbuf, Drop> {
    let mut mbuf = pool.allocate().ok_or(Drop::NoBuffer)?;
    match mbuf.set(bytes) {
        true => Ok(mbuf),
        false => Err(Drop::FrameTooLong),
    }
}
