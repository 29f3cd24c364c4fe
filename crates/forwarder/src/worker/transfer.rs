//! Between ports and packet buffers.

use super::rooms::Rooms;
use crate::buffers::Buffers;
use crate::counters::{Counters, Drop};
use crate::pipeline::Output;
use crate::ports::Queue;
use dpdk::{KnownThread, Mbuf};
use packet_socket::{BATCH, Outgoing, Socket};
use wire::segments::{self, Segments};

/// Bytes of a frame that a device is given to send at most: some copy it into a buffer of their own and do not look.
const DEVICE_LIMIT: usize = 2_048;

/// What moving packets needs: buffers.
pub(super) struct Transfer {
    buffers: Buffers,
    rooms: Rooms,
    segment: Vec<u8>,
}

impl Transfer {
    pub(super) fn new(buffers: Buffers) -> Transfer {
        Transfer {
            buffers,
            rooms: Rooms::new(buffers),
            segment: Vec::new(),
        }
    }

    /// To be called by the thread that moves packets, which keeps what it gets.
    pub(super) fn register_thread(&self) -> Option<KnownThread> {
        self.buffers.pool().register_thread()
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
            Queue::ChecksumsUnsaid(queue) => {
                let before = burst.len();
                let received = queue.receive(burst);
                for frame in &mut burst[before..] {
                    let bytes = frame.data_mut();
                    if !segments::finish_checksum(bytes) {
                        segments::finish_inner_checksum(bytes);
                    }
                }
                received
            }
            Queue::Socket(queue) => self.rooms.receive(queue, burst, counters),
            Queue::Native(end) => end.receive(burst),
        }
    }

    /// A frame in a buffer.
    #[cold]
    pub(super) fn hold(&self, bytes: &[u8]) -> Result<Mbuf, Drop> {
        self.buffers.hold(bytes)
    }

    /// Puts frames that were made in ordinary memory into buffers.
    #[cold]
    pub(super) fn fill(&mut self, output: &mut Output<Mbuf>, counters: &mut Counters) {
        output.merge(|bytes| match self.buffers.hold(bytes) {
            Ok(mbuf) => Some(mbuf),
            Err(drop) => {
                counters.drop(drop.into());
                None
            }
        });
    }

    /// Makes frames such as a queue takes: only sockets take those of several segments and long ones.
    #[inline]
    pub(super) fn fit(&mut self, queue: &Queue, frames: &mut Vec<Mbuf>, counters: &mut Counters) {
        let fits = |frame: &Mbuf| frame.segment_size() == 0 && frame.data().len() <= DEVICE_LIMIT;
        if !matches!(queue, Queue::Socket(_)) && !frames.iter().all(fits) {
            self.cut(frames, counters);
        }
    }

    /// Cuts frames of several segments, and drops those that are still too long.
    #[cold]
    fn cut(&mut self, frames: &mut Vec<Mbuf>, counters: &mut Counters) {
        for frame in std::mem::take(frames) {
            let size = frame.segment_size();
            let mut take = |made: Result<Mbuf, Drop>| match made {
                Ok(made) if made.data().len() <= DEVICE_LIMIT => frames.push(made),
                Ok(_) => counters.drop(Drop::FrameTooLong.into()),
                Err(drop) => counters.drop(drop.into()),
            };
            match Segments::of_frame(frame.data(), size) {
                None if size == 0 => take(Ok(frame)),
                None => take(Err(Drop::OffloadUnknown)),
                Some(segments) => {
                    segments.cut(frame.data(), 0, &mut self.segment, |segment| {
                        take(self.buffers.hold(segment));
                        true
                    });
                }
            }
        }
    }

    /// Sends packets such as the port takes ([`Transfer::fit`]) and empties the list; returns how many it took.
    #[inline]
    pub(super) fn send(&mut self, queue: &mut Queue, frames: &mut Vec<Mbuf>) -> usize {
        match queue {
            Queue::Device(queue) | Queue::ChecksumsUnsaid(queue) => queue.send(frames),
            Queue::Socket(queue) => send_by_socket(&mut queue.socket, frames),
            Queue::Native(_) => 0, // has frames pass by its functions, see Worker::pass
        }
    }
}

fn send_by_socket(socket: &mut Socket, frames: &[Mbuf]) -> usize {
    let mut sent = 0;
    for batch in frames.chunks(BATCH) {
        let mut outgoing = [Outgoing::default(); BATCH];
        for (out, mbuf) in outgoing.iter_mut().zip(batch) {
            *out = Outgoing {
                bytes: mbuf.data(),
                segment_size: mbuf.segment_size(),
            };
        }
        sent += socket.send(&outgoing[..batch.len()]).frames;
    }
    sent
}
