//! Where packet sockets receive: straight into packet buffers, short and long, so that a frame is copied once.
//!
//! ```text
//! a room:  | short buffer | long buffer, from where the short one's bytes end | ordinary memory |
//! ```
//! A frame fills the pieces in their order. One that fits in the short buffer stays there. A longer one gets the short one's
//! bytes in front of its own in the long buffer. What is longer still, or came to a room without a long buffer, is in ordinary
//! memory in the end: it is copied into a long buffer if there is one, and cut otherwise.
//!
//! Only some rooms have long buffers. A socket gets these alone, until it has filled all of them with short frames.

use crate::buffers::Buffers;
use crate::counters::{Counters, Drop};
use crate::ports::SocketQueue;
use dpdk::Mbuf;
use packet_socket::{Arrived, BATCH, Contents, FRAME_LIMIT, Place};
use wire::segments::Segments;

/// Rooms with long buffers. More long frames at once would not stay in the processor's cache.
const LONG: usize = 16;

/// Rooms for as many frames as a socket receives at once; sockets take turns with them.
pub(super) struct Rooms {
    buffers: Buffers,
    rooms: Vec<Room>,
    arrived: Vec<Arrived>,
    segment: Vec<u8>,
}

struct Room {
    short: Option<Mbuf>,
    long: Option<Mbuf>,
    /// Pages of it are used only as frames need them.
    ordinary: Vec<u8>,
}

impl Rooms {
    pub(super) fn new(buffers: Buffers) -> Rooms {
        let room = || Room {
            short: None,
            long: None,
            ordinary: vec![0; FRAME_LIMIT],
        };
        Rooms {
            buffers,
            rooms: (0..BATCH).map(|_| room()).collect(),
            arrived: Vec::with_capacity(BATCH),
            segment: Vec::new(),
        }
    }

    /// Receives a burst behind what is in `burst`; returns how many frames there were, also such as are dropped here.
    pub(super) fn receive(
        &mut self,
        queue: &mut SocketQueue,
        burst: &mut Vec<Mbuf>,
        counters: &mut Counters,
    ) -> usize {
        let count = if queue.is_short { BATCH } else { LONG };
        for (number, room) in self.rooms[..count].iter_mut().enumerate() {
            if room.short.is_none() {
                room.short = self.buffers.pool().allocate();
            }
            if room.long.is_none() && number < LONG && room.short.is_some() {
                room.long = self.buffers.long();
            }
        }
        self.arrived.clear();
        let mut rooms = self.rooms[..count].iter_mut();
        let mut places: [Place<'_>; BATCH] =
            std::array::from_fn(|_| rooms.next().map(Room::place).unwrap_or_default());
        // A port that is down has nothing to receive; its state is the control thread's to watch.
        let refused = queue
            .socket
            .receive(&mut places[..count], &mut self.arrived)
            .unwrap_or_default();
        counters.lost(Drop::OffloadUnknown, refused as u64);
        let arrived = std::mem::take(&mut self.arrived);
        let mut long_came = false;
        for one in &arrived {
            long_came |= self.take(one, burst, counters);
        }
        let received = arrived.len() + refused;
        self.arrived = arrived;
        if long_came {
            queue.is_short = false;
        } else if received >= LONG {
            queue.is_short = true;
        }
        received
    }

    /// Takes a frame out of its room; whether it was a long one.
    fn take(&mut self, arrived: &Arrived, burst: &mut Vec<Mbuf>, counters: &mut Counters) -> bool {
        let room = &mut self.rooms[arrived.place];
        let is_long = !room.is_short(arrived.length);
        match room.frame(arrived.length) {
            Some(frame) => self.complete(arrived, frame, burst, counters),
            None => self.take_long_way(arrived, burst, counters),
        }
        is_long
    }

    /// Takes a frame that is in a buffer.
    fn complete(
        &mut self,
        arrived: &Arrived,
        mut frame: Mbuf,
        burst: &mut Vec<Mbuf>,
        counters: &mut Counters,
    ) {
        if !frame.prepend(arrived.room()) {
            return counters.drop(Drop::NoHeadroom.into());
        }
        match arrived.complete(frame.data_mut()) {
            Some(Contents::Frame) => burst.push(frame),
            Some(Contents::Segments(size)) => {
                frame.set_segment_size(size);
                burst.push(frame);
            }
            Some(Contents::Tunnelled(tunnelled)) => {
                let (segment, hold) = (&mut self.segment, holder(self.buffers, burst, counters));
                tunnelled.cut(frame.data(), 0, segment, hold);
            }
            None => counters.drop(Drop::OffloadUnknown.into()),
        }
    }

    /// Takes a frame that is in no buffer for itself: in as many as it has segments, if no other buffer holds it.
    #[cold]
    fn take_long_way(&mut self, arrived: &Arrived, burst: &mut Vec<Mbuf>, counters: &mut Counters) {
        let buffers = self.buffers;
        let mut frame = vec![0; arrived.room()];
        let place = self.rooms[arrived.place].place();
        for piece in &place.pieces {
            frame.extend_from_slice(piece);
        }
        frame.truncate(arrived.room() + arrived.length);
        let Some(contents) = arrived.complete(&mut frame) else {
            return counters.drop(Drop::OffloadUnknown.into());
        };
        if let Contents::Segments(size) = contents
            && let Some(mut whole) = buffers.long()
            && whole.set(&frame)
        {
            whole.set_segment_size(size);
            return burst.push(whole);
        }
        let mut hold = holder(buffers, burst, counters);
        match contents {
            Contents::Frame => {
                hold(&mut frame);
            }
            Contents::Segments(size) => {
                if let Some(segments) = Segments::of_frame(&frame, size) {
                    segments.cut(&frame, 0, &mut self.segment, hold);
                }
            }
            Contents::Tunnelled(tunnelled) => {
                tunnelled.cut(&frame, 0, &mut self.segment, hold);
            }
        }
    }
}

/// Takes frames into buffers behind what is in `burst`, and counts those that none is left for.
fn holder(
    buffers: Buffers,
    burst: &mut Vec<Mbuf>,
    counters: &mut Counters,
) -> impl FnMut(&mut [u8]) -> bool {
    move |bytes| {
        match buffers.hold(bytes) {
            Ok(mbuf) => burst.push(mbuf),
            Err(drop) => counters.drop(drop.into()),
        }
        true
    }
}

impl Room {
    fn place(&mut self) -> Place<'_> {
        let short = self.short.as_mut().map(Mbuf::room).unwrap_or_default();
        let long = self.long.as_mut().map(Mbuf::room).unwrap_or_default();
        let behind = long.get_mut(short.len()..).unwrap_or_default();
        Place {
            pieces: [short, behind, &mut self.ordinary],
        }
    }

    /// Whether a frame fits in the short buffer; there may be none when buffers ran out.
    fn is_short(&mut self, length: usize) -> bool {
        let short = self.short.as_mut();
        short.is_none_or(|short| length <= short.room().len())
    }

    /// The frame in its first bytes, if it is in one buffer; the room lacks this buffer then.
    fn frame(&mut self, length: usize) -> Option<Mbuf> {
        let short = self.short.as_mut()?;
        if short.fill(length) {
            return self.short.take();
        }
        let start = short.room();
        let long = self.long.as_mut()?;
        long.room().get_mut(..start.len())?.copy_from_slice(start);
        long.fill(length).then(|| self.long.take())?
    }
}
