//! Packets of several segments, and with unfinished checksums, inside a tunnel.
//!
//! ```text
//! | Ethernet | IP | UDP | VXLAN | Ethernet | IP | TCP, payload of n segments |      (and what else `tunnels` draws)
//!              |    |                        `---`-- as `Segments` makes them
//!              |    `-- length, and the checksum if there was one
//!              `-- length, IPv4 identification + i, IPv4 checksum; the rest is that of every segment
//! ```

use super::tunnels::{Around, Kind, Layer, walk};
use super::{Segments, addresses, finish_ip, stored, unfinished_behind};
use crate::{IpPacket, checksum, udp};

/// An IP packet that was found in a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walked {
    /// Offset of its header.
    pub(super) ip: usize,
    pub(super) packet: IpPacket,
}

/// How a frame with a packet of several segments inside a tunnel is to be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnelled {
    inner: Segments,
    /// Headers in front of the inner packet, from the inside to the outside.
    layers: Vec<Layer>,
}

impl Tunnelled {
    /// How to cut an Ethernet frame that has, inside a tunnel, a packet of segments with `size` bytes of payload, whose TCP or
    /// UDP header begins at `transport`. Nothing if no headers lead there that all end together, if one of them numbers what
    /// it carries (GRE with sequence numbers), or for the reasons of [`Segments::of_packet`].
    pub fn of_frame(frame: &[u8], size: u16, transport: usize) -> Option<Tunnelled> {
        let (end, tunnelled) = walk(frame, &mut |frame, walked, around| {
            if walked.ip + walked.packet.transport_offset != transport {
                return None;
            }
            let inner = Segments::behind(frame, walked.ip, size)?;
            let layers: Vec<Layer> = around?.layers().collect();
            Some((frame.len(), Tunnelled { inner, layers }))
        })?;
        let can_be_cut = |layer: &Layer| {
            let is_numbered = matches!(layer.kind, Kind::Gre { numbered: true, .. });
            layer.end == end && !is_numbered
        };
        tunnelled.layers.iter().all(can_be_cut).then_some(tunnelled)
    }

    /// How the inner packet is cut; offsets are those in the frame.
    pub fn inner(&self) -> &Segments {
        &self.inner
    }

    /// Cuts the frame this was made from and gives out frames in order, with right headers, each behind `room` bytes of any
    /// value. `segment` is scratch. `sink` says whether it wants more.
    pub fn cut(
        &self,
        frame: &[u8],
        room: usize,
        segment: &mut Vec<u8>,
        mut sink: impl FnMut(&mut [u8]) -> bool,
    ) {
        let mut number = 0;
        self.inner.cut(frame, room, segment, |segment| {
            for layer in &self.layers {
                layer.finish(&mut segment[room..], number);
            }
            number += 1;
            sink(segment)
        });
    }
}

impl Layer {
    /// Makes the header right for a segment, behind which all headers are.
    fn finish(&self, segment: &mut [u8], number: usize) {
        let at = self.at;
        match self.kind {
            Kind::Ip { transport, v6 } => finish_ip(segment, at, transport, v6, number),
            Kind::Udp { .. } => {
                let length = (segment.len() - at) as u16;
                segment[at + 4..at + 6].copy_from_slice(&length.to_be_bytes());
            }
            Kind::Gre { .. } => {}
        }
        if let Some(field) = self.checksum_field() {
            segment[field..field + 2].fill(0);
            let sum = checksum::finish(self.sum(segment));
            segment[field..field + 2].copy_from_slice(&stored(sum));
        }
    }

    /// Where its checksum is over all that is behind it, if it has one.
    fn checksum_field(&self) -> Option<usize> {
        match self.kind {
            Kind::Udp { has_checksum, .. } => has_checksum.then_some(self.at + 6),
            Kind::Gre { has_checksum, .. } => has_checksum.then_some(self.at + 4),
            Kind::Ip { .. } => None,
        }
    }

    /// The sum that such a checksum is of, in a frame that ends with what this is the header of.
    fn sum(&self, frame: &[u8]) -> u64 {
        let bytes = &frame[self.at..];
        let pseudo_header = match self.kind {
            Kind::Udp { ip, v6, .. } => {
                let addresses = &frame[addresses(ip, v6)];
                checksum::pseudo_header(addresses, udp::PROTOCOL, bytes.len())
            }
            _ => 0,
        };
        pseudo_header + checksum::sum(bytes)
    }

    /// Whether its checksum, if it has one, is right in the frame.
    fn is_right(&self, frame: &[u8]) -> bool {
        let sum = || checksum::fold(self.sum(&frame[..self.end]));
        self.checksum_field().is_none() || sum() == 0xffff
    }
}

/// [`super::finish_checksum`] for a packet inside a tunnel. Checksums in front of it are right only once it is finished: where
/// they would not be, it is left alone, for then it is the payload of somebody who carries packets as they were.
pub fn finish_inner_checksum(frame: &mut [u8]) -> bool {
    let Some(found) = walk(frame, &mut |frame, walked, around| {
        let around: &Around<'_> = around?;
        let unfinished = unfinished_behind(frame, walked.ip, &walked.packet)?;
        Some((unfinished, around.layers().collect::<Vec<Layer>>()))
    }) else {
        return false;
    };
    let ((transport, end, at, sum), layers) = found;
    let finished = stored(checksum::finish(checksum::sum(&frame[transport..end])));
    frame[at..at + 2].copy_from_slice(&finished);
    if layers.iter().all(|layer| layer.is_right(frame)) {
        return finished != sum.to_be_bytes();
    }
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    false
}
