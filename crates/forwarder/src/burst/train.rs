//! Trains: packets that come one behind the other from one source, read in a loop that has nothing else to keep in registers.
//!
//! It knows no packet that the reader of single ones does not know: whatever differs from the one before in more than its
//! addresses, ports, length and flags ends the train, and is read on its own.

use super::packet::{Lane, Packet};
use crate::frame::Frame;
use crate::plain::{Ip, Way, in_words};
use flow::{Ipv4Key, Work};
use wire::ethernet;

/// Reads frames up to the first that is not of the train; returns how many it was.
pub(super) struct Follow<'a, F> {
    /// Ethernet header, in words, and way of all packets of the train.
    pub(super) train: ([u64; 2], Way),
    pub(super) frames: &'a [F],
    /// Those to be asked for, one at the turn of each.
    pub(super) ahead: &'a [F],
    /// Room for what is known of each to be read, and for their keys.
    pub(super) packets: &'a mut [Packet],
    pub(super) keys: &'a mut [Ipv4Key],
    /// Position of the first key among those of its family.
    pub(super) slot: usize,
}

impl<F: Frame> Work for Follow<'_, F> {
    type Output = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let (words, way) = self.train;
        let room = self.packets.iter_mut().zip(self.keys);
        for (index, (frame, (packet, key))) in self.frames.iter().zip(room).enumerate() {
            if let Some(later) = self.ahead.get(index) {
                later.prefetch();
            }
            if !frame.is_ordinary() {
                return index;
            }
            let data = frame.data();
            let Some((header, bytes)) = data.split_first_chunk::<{ ethernet::HEADER_LENGTH }>()
            else {
                return index;
            };
            if in_words(header) != words {
                return index;
            }
            let Some(ip) = Ip::<u64>::read(bytes) else {
                return index;
            };
            *key = ip.key(way);
            let offset = ethernet::HEADER_LENGTH as u8;
            let known = Packet::new(way, offset, ip.length, ip.tcp_flags);
            *packet = known.at(Lane::V4, (self.slot + index) as u8);
        }
        self.packets.len().min(self.frames.len())
    }
}
