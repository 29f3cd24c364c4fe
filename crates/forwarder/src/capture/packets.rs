//! Captured packets on their way to the reader: those of a burst in one piece, as packets are many and small.
//!
//! ```text
//! | length | kept | bytes that were kept | length | kept | ...    length and kept: 4 bytes each, as the processor orders them
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Packets on their way to the reader at most; some more where several workers find room at once.
pub(crate) const PENDING: usize = 4_096;
/// Bytes in front of those of a packet.
const HEAD: usize = 8;

/// A packet that was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// Nanoseconds since the Unix epoch.
    pub time: u64,
    /// The port.
    pub port: &'a str,
    /// Whether it was sent rather than received.
    pub sent: bool,
    /// Bytes it had.
    pub length: usize,
    /// The beginning of it.
    pub bytes: &'a [u8],
}

/// What the ends of a capture share.
#[derive(Debug, Default)]
struct Shared {
    /// Packets on their way.
    pending: AtomicUsize,
    /// Packets left out.
    lost: AtomicU64,
    is_over: AtomicBool,
}

/// Packets that were captured together.
#[derive(Debug)]
struct Batch {
    time: u64,
    port: String,
    sent: bool,
    count: usize,
    packets: Box<[u8]>,
    /// Bytes of them that were read.
    read: usize,
}

/// A worker's end.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    batches: mpsc::Sender<Batch>,
    shared: Arc<Shared>,
    snap_length: usize,
    /// Packets that go together, and how many; kept for its memory.
    packets: Vec<u8>,
    count: usize,
    /// Packets there is room for, as far as is known.
    room: usize,
    lost: u64,
}

/// The reader's end of a capture; the capture is over when it goes.
#[derive(Debug)]
pub struct Captures {
    batches: Receiver<Batch>,
    shared: Arc<Shared>,
    /// The packets that are being read.
    batch: Option<Batch>,
}

/// Both ends for packets of which so many bytes are kept.
pub(super) fn packets(snap_length: usize) -> (Sender, Captures) {
    let (sender, batches) = channel();
    let shared = Arc::new(Shared::default());
    let sender = Sender {
        batches: sender,
        shared: shared.clone(),
        snap_length,
        packets: Vec::new(),
        count: 0,
        room: 0,
        lost: 0,
    };
    let captures = Captures {
        batches,
        shared,
        batch: None,
    };
    (sender, captures)
}

impl Sender {
    /// Whether the reader has gone.
    pub(super) fn is_over(&self) -> bool {
        self.shared.is_over.load(Relaxed)
    }

    /// Adds a packet to those that are sent next, or leaves it out where there is no room.
    #[inline]
    pub(super) fn add(&mut self, frame: &[u8]) {
        if self.count >= self.room {
            self.look_for_room();
        }
        match self.count < self.room {
            true => {
                self.copy(frame);
                self.count += 1;
            }
            false => self.lost += 1,
        }
    }

    /// Adds packets, as many as there is room for.
    pub(super) fn add_all<'a>(&mut self, frames: impl ExactSizeIterator<Item = &'a [u8]>) {
        self.look_for_room();
        let fit = frames.len().min(self.room.saturating_sub(self.count));
        self.lost += (frames.len() - fit) as u64;
        self.count += fit;
        for frame in frames.take(fit) {
            self.copy(frame);
        }
    }

    fn look_for_room(&mut self) {
        self.room = PENDING.saturating_sub(self.shared.pending.load(Relaxed));
    }

    #[inline(always)]
    fn copy(&mut self, frame: &[u8]) {
        let kept = &frame[..frame.len().min(self.snap_length)];
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
        head[4..].copy_from_slice(&(kept.len() as u32).to_ne_bytes());
        self.packets.reserve(HEAD + kept.len());
        self.packets.extend_from_slice(&head);
        self.packets.extend_from_slice(kept);
    }

    /// Sends what was added: packets of a port, which passed just now.
    pub(super) fn send(&mut self, port: &str, sent: bool) {
        if self.lost > 0 {
            self.shared.lost.fetch_add(self.lost, Relaxed);
        }
        if self.count > 0 {
            // What the reader takes away must have been added before.
            self.shared.pending.fetch_add(self.count, Relaxed);
            let batch = Batch {
                time: now(),
                port: port.to_string(),
                sent,
                count: self.count,
                packets: self.packets.as_slice().into(),
                read: 0,
            };
            // A reader that has gone says so itself.
            let _ = self.batches.send(batch);
            self.packets.clear();
        }
        (self.count, self.room, self.lost) = (0, 0, 0);
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as u64)
}

/// The first of some packets: how long it was, and what was kept of it.
fn first(packets: &[u8]) -> Option<(usize, &[u8])> {
    let (&[a, b, c, d, e, f, g, h], rest) = packets.split_first_chunk::<HEAD>()?;
    let kept = u32::from_ne_bytes([e, f, g, h]) as usize;
    Some((u32::from_ne_bytes([a, b, c, d]) as usize, rest.get(..kept)?))
}

impl Captures {
    /// The next packet, if one is there.
    ///
    /// # Errors
    /// There is none now, or there will be none any more: another capture has begun.
    pub fn try_next(&mut self) -> Result<Captured<'_>, TryRecvError> {
        if self.is_read() {
            let batch = self.batches.try_recv()?;
            self.begin(batch);
        }
        self.next().ok_or(TryRecvError::Empty)
    }

    /// The next packet, once there is one.
    ///
    /// # Errors
    /// None came in time, or there will be none any more: another capture has begun.
    pub fn next_within(&mut self, time: Duration) -> Result<Captured<'_>, RecvTimeoutError> {
        if self.is_read() {
            let batch = self.batches.recv_timeout(time)?;
            self.begin(batch);
        }
        self.next().ok_or(RecvTimeoutError::Timeout)
    }

    /// Packets left out because they were not read in time.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }

    /// Whether all packets that were begun with have been read.
    fn is_read(&self) -> bool {
        let batch = self.batch.as_ref();
        batch.is_none_or(|batch| batch.read == batch.packets.len())
    }

    fn begin(&mut self, batch: Batch) {
        self.shared.pending.fetch_sub(batch.count, Relaxed);
        self.batch = Some(batch);
    }

    fn next(&mut self) -> Option<Captured<'_>> {
        let batch = self.batch.as_mut()?;
        let (length, bytes) = first(&batch.packets[batch.read..])?;
        batch.read += HEAD + bytes.len();
        Some(Captured {
            time: batch.time,
            port: &batch.port,
            sent: batch.sent,
            length,
            bytes,
        })
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
    }
}
