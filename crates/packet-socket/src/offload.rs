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

use wire::{checksum, ethernet, ipv4, ipv6, tcp, udp};

/// Bytes of the kernel's description.
pub(crate) const DESCRIPTION_LENGTH: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP_SEGMENTS: u8 = 5;
const CONGESTION_NOTIFIED: u8 = 0x80;
const CWR: u8 = 0x80;

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

    /// Does to a frame what can be done in place. `shift` bytes were put in front of what the description is about.
    /// Says how the frame is to be cut if it is of several segments; nothing at all when the frame makes no sense.
    pub(crate) fn complete(&self, frame: &mut [u8], shift: usize) -> Option<Option<Segments>> {
        if self.kind != 0 {
            return Segments::new(self, frame, shift).map(Some);
        }
        if self.flags & NEEDS_CHECKSUM != 0 {
            let start = usize::from(self.checksum_start) + shift;
            fill_checksum(frame, start, start + usize::from(self.checksum_offset))?;
        }
        Some(None)
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

/// How a frame of several segments is to be cut: TCP or UDP, over IPv4 or IPv6.
///
/// Its transport checksum is not complete; whoever cuts the frame makes those of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Offset of the IP header.
    ip: u16,
    /// Offset of the TCP or UDP header.
    transport: u16,
    /// Bytes up to the payload.
    headers: u16,
    /// Bytes of payload in a segment; the last may have fewer.
    size: u16,
    v6: bool,
    tcp: bool,
    congestion_notified: bool,
}

impl Segments {
    fn new(description: &Description, frame: &[u8], shift: usize) -> Option<Segments> {
        let (tcp, family) = match description.kind & !CONGESTION_NOTIFIED {
            TCP_V4 => (true, Some(false)),
            TCP_V6 => (true, Some(true)),
            UDP_SEGMENTS => (false, None),
            _ => return None,
        };
        let header = ethernet::Header::parse(frame).ok()?;
        let ip = header.length;
        let v6 = match header.ether_type {
            ethernet::IPV4 => false,
            ethernet::IPV6 => true,
            _ => return None,
        };
        let transport = usize::from(description.checksum_start) + shift;
        // Tunnelled packets describe their inner headers: those are not cut here.
        let (protocol, expected) = if v6 {
            let header = ipv6::Header::parse_fields(&frame[ip..]).ok()?;
            (header.protocol, header.transport_offset)
        } else {
            let header = ipv4::Header::parse_fields(&frame[ip..]).ok()?;
            (header.protocol, header.header_length)
        };
        let wanted = if tcp { tcp::PROTOCOL } else { udp::PROTOCOL };
        if protocol != wanted
            || transport != ip + expected
            || family.is_some_and(|family| family != v6)
        {
            return None;
        }
        let segment = frame.get(transport..)?;
        let length = if tcp {
            tcp::Header::parse(segment).ok()?.header_length
        } else {
            udp::HEADER_LENGTH
        };
        if description.segment_size == 0 || segment.len() < length {
            return None;
        }
        Some(Segments {
            ip: ip as u16,
            transport: transport as u16,
            headers: (transport + length) as u16,
            size: description.segment_size,
            v6,
            tcp,
            congestion_notified: description.kind & CONGESTION_NOTIFIED != 0,
        })
    }

    /// The same for a frame whose front was made `longer` bytes longer, or shorter when negative.
    #[must_use]
    pub fn moved(self, longer: i32) -> Segments {
        let moved = |offset: u16| (i32::from(offset) + longer).max(0) as u16;
        Segments {
            ip: moved(self.ip),
            transport: moved(self.transport),
            headers: moved(self.headers),
            ..self
        }
    }

    /// Bytes of the longest segment's IP packet.
    pub fn longest(&self) -> usize {
        usize::from(self.headers - self.ip) + usize::from(self.size)
    }

    /// How many segments a frame of so many bytes has.
    pub fn count(&self, length: usize) -> usize {
        length
            .saturating_sub(usize::from(self.headers))
            .div_ceil(usize::from(self.size))
            .max(1)
    }

    /// The description that lets the kernel, or a device, cut the frame.
    pub(crate) fn describe(&self) -> Description {
        let kind = match (self.tcp, self.v6) {
            (false, _) => UDP_SEGMENTS,
            (true, false) => TCP_V4,
            (true, true) => TCP_V6,
        };
        Description {
            flags: NEEDS_CHECKSUM,
            kind: kind
                | if self.congestion_notified {
                    CONGESTION_NOTIFIED
                } else {
                    0
                },
            header_length: self.headers,
            segment_size: self.size,
            checksum_start: self.transport,
            checksum_offset: if self.tcp { 16 } else { 6 },
        }
    }

    /// Cuts a frame and gives out each segment, a frame with right checksums, in order. `segment` is scratch.
    pub fn cut(&self, frame: &[u8], segment: &mut Vec<u8>, mut sink: impl FnMut(&mut [u8])) {
        let headers = usize::from(self.headers).min(frame.len());
        let (headers, payload) = frame.split_at(headers);
        let mut sent = 0;
        let mut number = 0;
        loop {
            let part = &payload[sent..payload.len().min(sent + usize::from(self.size))];
            segment.clear();
            segment.extend_from_slice(headers);
            segment.extend_from_slice(part);
            let last = sent + part.len() == payload.len();
            self.finish(segment, sent, number, last);
            sink(segment);
            if last {
                return;
            }
            sent += part.len();
            number += 1;
        }
    }

    /// Makes the headers of a segment right.
    fn finish(&self, segment: &mut [u8], sent: usize, number: u16, last: bool) {
        let (ip, transport) = (usize::from(self.ip), usize::from(self.transport));
        let addresses = if self.v6 {
            let length = (segment.len() - ip - ipv6::HEADER_LENGTH) as u16;
            segment[ip + 4..ip + 6].copy_from_slice(&length.to_be_bytes());
            ip + 8..ip + 40
        } else {
            let length = (segment.len() - ip) as u16;
            segment[ip + 2..ip + 4].copy_from_slice(&length.to_be_bytes());
            let identification = u16::from_be_bytes([segment[ip + 4], segment[ip + 5]]);
            let identification = identification.wrapping_add(number);
            segment[ip + 4..ip + 6].copy_from_slice(&identification.to_be_bytes());
            ipv4::set_checksum(&mut segment[ip..transport]);
            ip + 12..ip + 20
        };
        let length = segment.len() - transport;
        let (protocol, at) = if self.tcp {
            self.finish_tcp(&mut segment[transport..], sent, number, last);
            (tcp::PROTOCOL, transport + 16)
        } else {
            segment[transport + 4..transport + 6].copy_from_slice(&(length as u16).to_be_bytes());
            (udp::PROTOCOL, transport + 6)
        };
        let pseudo = checksum::fold(checksum::pseudo_header(
            &segment[addresses],
            protocol,
            length,
        ));
        segment[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        fill_checksum(segment, transport, at);
    }

    /// Sequence number and flags: FIN and PSH belong to the last segment, CWR to the first (RFC 3168, section 6.1.2).
    fn finish_tcp(&self, segment: &mut [u8], sent: usize, number: u16, last: bool) {
        let sequence = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
        let sequence = sequence.wrapping_add(sent as u32);
        segment[4..8].copy_from_slice(&sequence.to_be_bytes());
        const PSH: u8 = 0x08;
        if !last {
            segment[13] &= !(tcp::FIN | PSH);
        }
        if number > 0 {
            segment[13] &= !CWR;
        }
    }
}

#[cfg(test)]
mod tests;
