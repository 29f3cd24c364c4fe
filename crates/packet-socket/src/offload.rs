//! What is left to do to a packet: fill in a checksum, or cut it into segments.
//!
//! The kernel describes it in front of the packet (`struct virtio_net_hdr`, VIRTIO 1.2 section 5.1.6, in the machine's byte
//! order):
//!
//! ```text
//!  0       1          2               4              6                8                 10
//! +-------+----------+---------------+--------------+----------------+-----------------+--------
//! | flags | GSO type | header length | segment size | checksum start | checksum offset | frame
//! +-------+----------+---------------+--------------+----------------+-----------------+--------
//! ```

use wire::checksum;
use wire::ethernet::HEADER_LENGTH;
use wire::segments::{Segments, Tunnelled};

/// Bytes of the kernel's description.
pub(crate) const DESCRIPTION_LENGTH: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP_SEGMENTS: u8 = 5;
const CONGESTION_NOTIFIED: u8 = 0x80;

/// What a frame that arrived holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// One packet, as a wire would carry it.
    Frame,
    /// A packet of several segments, with so many bytes of payload in each.
    Segments(u16),
    /// A packet of several segments inside a tunnel: to be cut before anybody else gets it.
    Tunnelled(Tunnelled),
}

/// The kernel's description of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) flags: u8,
    pub(crate) kind: u8,
    pub(crate) header_length: u16,
    pub(crate) segment_size: u16,
    pub(crate) checksum_start: u16,
    pub(crate) checksum_offset: u16,
}

impl Description {
    pub(crate) fn from_bytes(bytes: &[u8; DESCRIPTION_LENGTH]) -> Description {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Description {
            flags: bytes[0],
            kind: bytes[1],
            header_length: word(2),
            segment_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; DESCRIPTION_LENGTH] {
        let mut bytes = [0; DESCRIPTION_LENGTH];
        bytes[0] = self.flags;
        bytes[1] = self.kind;
        let words = [
            self.header_length,
            self.segment_size,
            self.checksum_start,
            self.checksum_offset,
        ];
        for (to, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// The description that lets the kernel, or a device, cut a frame into segments of a size.
    pub(crate) fn of(segments: &Segments, size: u16) -> Description {
        let congestion = match segments.congestion_notified() {
            true => CONGESTION_NOTIFIED,
            false => 0,
        };
        Description {
            flags: NEEDS_CHECKSUM,
            kind: kind(segments) | congestion,
            header_length: segments.headers() as u16,
            segment_size: size,
            checksum_start: segments.transport() as u16,
            checksum_offset: segments.checksum_offset() as u16,
        }
    }

    /// Does to a frame what can be done in place, and says what it is then; nothing when the frame makes no sense. `shift`
    /// bytes were put in front of what the description is about.
    pub(crate) fn complete(&self, frame: &mut [u8], shift: usize) -> Option<Contents> {
        let start = usize::from(self.checksum_start) + shift;
        if self.kind != 0 {
            return self.segments(frame, start);
        }
        if self.flags & NEEDS_CHECKSUM != 0 {
            // No checksum is over Ethernet addresses, or in them.
            if usize::from(self.checksum_start) < HEADER_LENGTH {
                return None;
            }
            fill_checksum(frame, start, start + usize::from(self.checksum_offset))?;
        }
        Some(Contents::Frame)
    }

    /// What a frame of several segments is whose TCP or UDP header is at `start`: the innermost, where there are tunnels.
    fn segments(&self, frame: &mut [u8], start: usize) -> Option<Contents> {
        let is_of = |segments: &Segments| self.kind & !CONGESTION_NOTIFIED == kind(segments);
        let size = self.segment_size;
        match Segments::of_frame(frame, size) {
            Some(segments) if segments.transport() == start => {
                is_of(&segments).then(|| segments.begin_checksum(frame))?;
                Some(Contents::Segments(size))
            }
            _ => {
                let tunnelled = Tunnelled::of_frame(frame, size, start)?;
                is_of(tunnelled.inner()).then_some(Contents::Tunnelled(tunnelled))
            }
        }
    }
}

fn kind(segments: &Segments) -> u8 {
    match (segments.is_tcp(), segments.is_v6()) {
        (false, _) => UDP_SEGMENTS,
        (true, false) => TCP_V4,
        (true, true) => TCP_V6,
    }
}

/// Finishes a checksum whose field holds the pseudo-header's sum.
fn fill_checksum(frame: &mut [u8], start: usize, at: usize) -> Option<()> {
    if at + 2 > frame.len() {
        return None;
    }
    let sum = checksum::finish(checksum::sum(frame.get(start..)?));
    // 0 says "no checksum" in UDP, and means the same as all ones.
    let sum = if sum == 0 { 0xffff } else { sum };
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests;
