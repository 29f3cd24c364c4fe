//! Cutting a TCP or UDP packet that was made for a device to cut: segmentation in software.
//!
//! Systems hand over packets of up to 64 KB in place of the segments that the wire will carry ("segmentation offload").
//! Such a packet's headers are those of all its segments but for lengths, numbers and checksums:
//!
//! ```text
//! | IP | TCP | payload, segment size n bytes  | … | at most n bytes |
//!    |           `-> one segment: | IP | TCP | n bytes |
//!    `-- IPv4 identification + i, TCP sequence number + i n; FIN and PSH in the last, CWR in the first (RFC 3168, 6.1.2)
//! ```
//! Its checksum field holds the sum of the pseudo-header, to be finished by whoever cuts it. Such a packet inside a tunnel is
//! [`Tunnelled`].

mod tunnelled;
mod tunnels;

pub use tunnelled::{Tunnelled, finish_inner_checksum};

use crate::ip::Fragmentation;
use crate::{IpPacket, checksum, ethernet, ipv4, ipv6, tcp, udp};
use std::ops::Range;
use tunnelled::Walked;

/// Segments of a frame at most: those of 64 KB in segments of 64 bytes. Nobody sends smaller ones for the network's good.
const LIMIT: usize = 1_024;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// How a frame of several segments is to be cut: TCP or UDP, over IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Offset of the IP header.
    ip: usize,
    /// Offset of the TCP or UDP header.
    transport: usize,
    /// Bytes up to the payload.
    headers: usize,
    /// End of the IP packet; padding may be behind it.
    end: usize,
    /// Bytes of payload in a segment; the last may have fewer.
    size: usize,
    v6: bool,
    tcp: bool,
    congestion_notified: bool,
}

impl Segments {
    /// How to cut an IP packet into segments of `size` bytes of payload; nothing for a size of 0 or one
    /// that makes more than 1,024 segments, a packet that is neither TCP nor UDP, a fragment, or one whose headers are wrong.
    pub fn of_packet(packet: &[u8], size: u16) -> Option<Segments> {
        Segments::behind(packet, 0, size)
    }

    /// The same for an Ethernet frame, tags included.
    pub fn of_frame(frame: &[u8], size: u16) -> Option<Segments> {
        let header = ethernet::Header::parse(frame).ok()?;
        match header.ether_type {
            ethernet::IPV4 | ethernet::IPV6 => Segments::behind(frame, header.length, size),
            _ => None,
        }
    }

    fn behind(frame: &[u8], ip: usize, size: u16) -> Option<Segments> {
        if size == 0 {
            return None;
        }
        let packet = IpPacket::parse(frame.get(ip..)?).ok()?;
        if packet.fragmentation != Fragmentation::Whole {
            return None;
        }
        let transport = ip + packet.transport_offset;
        let segment = frame.get(transport..ip + packet.length)?;
        let (tcp, length) = match packet.tuple.protocol {
            tcp::PROTOCOL => (true, tcp::Header::parse(segment).ok()?.header_length),
            udp::PROTOCOL if segment.len() >= udp::HEADER_LENGTH => (false, udp::HEADER_LENGTH),
            _ => return None,
        };
        let segments = Segments {
            ip,
            transport,
            headers: transport + length,
            end: ip + packet.length,
            size: size.into(),
            v6: packet.is_v6(),
            tcp,
            congestion_notified: tcp && segment[13] & CWR != 0,
        };
        (segments.count() <= LIMIT).then_some(segments)
    }

    /// Whether it is TCP; UDP otherwise.
    pub fn is_tcp(&self) -> bool {
        self.tcp
    }

    /// Whether it is IPv6; IPv4 otherwise.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Whether its first segment alone says that the sender has slowed down (CWR).
    pub fn congestion_notified(&self) -> bool {
        self.congestion_notified
    }

    /// Offset of the IP header in the frame.
    pub fn ip(&self) -> usize {
        self.ip
    }

    /// Offset of the TCP or UDP header in the frame.
    pub fn transport(&self) -> usize {
        self.transport
    }

    /// Bytes of the frame up to the payload.
    pub fn headers(&self) -> usize {
        self.headers
    }

    /// Offset of the checksum in the TCP or UDP header.
    pub fn checksum_offset(&self) -> usize {
        if self.tcp { 16 } else { 6 }
    }

    /// Bytes of the longest segment's IP packet.
    pub fn longest(&self) -> usize {
        self.headers - self.ip + self.size.min(self.end - self.headers)
    }

    /// How many segments there are.
    pub fn count(&self) -> usize {
        (self.end - self.headers).div_ceil(self.size).max(1)
    }

    /// Makes the checksum field hold the sum of the pseudo-header, as whoever cuts the frame expects it. `frame` is what
    /// this was made from.
    pub fn begin_checksum(&self, frame: &mut [u8]) {
        let (from, to) = (self.transport, self.end);
        if let Some(frame) = frame.get_mut(..to) {
            let sum = self.pseudo_header(frame, to - from);
            let at = from + self.checksum_offset();
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Cuts the frame this was made from and gives out the segments in order, with right headers: frames as this one, each
    /// behind `room` bytes of any value. `segment` is scratch. `sink` says whether it wants more.
    pub fn cut(
        &self,
        frame: &[u8],
        room: usize,
        segment: &mut Vec<u8>,
        mut sink: impl FnMut(&mut [u8]) -> bool,
    ) {
        let Some((headers, payload)) = frame
            .get(..self.end)
            .and_then(|frame| frame.split_at_checked(self.headers))
        else {
            return;
        };
        let count = self.count();
        segment.clear();
        segment.resize(room, 0);
        for number in 0..count {
            let from = number * self.size;
            let to = payload.len().min(from + self.size);
            segment.truncate(room);
            segment.extend_from_slice(headers);
            segment.extend_from_slice(&payload[from..to]);
            self.finish(&mut segment[room..], number, number + 1 == count);
            if !sink(segment) {
                return;
            }
        }
    }

    /// Makes the headers of a segment right.
    fn finish(&self, segment: &mut [u8], number: usize, last: bool) {
        let transport = self.transport;
        let length = segment.len() - transport;
        finish_ip(segment, self.ip, transport, self.v6, number);
        if self.tcp {
            self.number(&mut segment[transport..], number, last);
        } else {
            segment[transport + 4..transport + 6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        let at = transport + self.checksum_offset();
        segment[at..at + 2].fill(0);
        let sum = u64::from(self.pseudo_header(segment, length));
        let sum = checksum::finish(sum + checksum::sum(&segment[transport..]));
        segment[at..at + 2].copy_from_slice(&stored(sum));
    }

    /// Sequence number and flags of a TCP segment.
    fn number(&self, segment: &mut [u8], number: usize, last: bool) {
        let sequence = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
        let sequence = sequence.wrapping_add((number * self.size) as u32);
        segment[4..8].copy_from_slice(&sequence.to_be_bytes());
        if !last {
            segment[13] &= !(tcp::FIN | PSH);
        }
        if number > 0 {
            segment[13] &= !CWR;
        }
    }

    /// The folded sum of the pseudo-header of a segment with so many bytes from its TCP or UDP header on.
    fn pseudo_header(&self, frame: &[u8], length: usize) -> u16 {
        let protocol = if self.tcp {
            tcp::PROTOCOL
        } else {
            udp::PROTOCOL
        };
        let sum = checksum::pseudo_header(&frame[addresses(self.ip, self.v6)], protocol, length);
        checksum::fold(sum)
    }
}

/// Makes an IP header at `ip` right, which reaches to `transport`: its packet ends where the segment does.
fn finish_ip(segment: &mut [u8], ip: usize, transport: usize, v6: bool, number: usize) {
    if v6 {
        let payload = (segment.len() - ip - ipv6::HEADER_LENGTH) as u16;
        segment[ip + 4..ip + 6].copy_from_slice(&payload.to_be_bytes());
        return;
    }
    let total = (segment.len() - ip) as u16;
    segment[ip + 2..ip + 4].copy_from_slice(&total.to_be_bytes());
    let identification = u16::from_be_bytes([segment[ip + 4], segment[ip + 5]]);
    let identification = identification.wrapping_add(number as u16);
    segment[ip + 4..ip + 6].copy_from_slice(&identification.to_be_bytes());
    ipv4::set_checksum(&mut segment[ip..transport]);
}

/// Where source and destination address of an IP header are.
fn addresses(ip: usize, v6: bool) -> Range<usize> {
    match v6 {
        true => ip + 8..ip + 40,
        false => ip + 12..ip + 20,
    }
}

/// A checksum as it is stored: 0 says "none" in UDP, and means the same as all ones.
fn stored(sum: u16) -> [u8; 2] {
    if sum == 0 {
        [0xff; 2]
    } else {
        sum.to_be_bytes()
    }
}

/// Finishes the TCP or UDP checksum of an Ethernet frame where a system left that to its device: the field holds the
/// pseudo-header's sum then. Whether it does is all there is to see, so this is for frames from interfaces that may have
/// left it; a finished checksum that has the same value by chance stays as it is, as finishing it changes nothing.
///
/// Fragments are left alone: theirs is the checksum of the whole packet. Says whether the frame was changed.
pub fn finish_checksum(frame: &mut [u8]) -> bool {
    let Some((transport, end, at, sum)) = unfinished(frame) else {
        return false;
    };
    let Some(segment) = frame.get(transport..end) else {
        return false;
    };
    let finished = stored(checksum::finish(checksum::sum(segment)));
    let changed = frame[at..at + 2] != finished;
    debug_assert_eq!(frame[at..at + 2], sum.to_be_bytes());
    frame[at..at + 2].copy_from_slice(&finished);
    changed
}

/// Of a frame whose checksum is the pseudo-header's sum: start and end of the TCP or UDP segment, where the checksum is, and
/// that sum.
fn unfinished(frame: &[u8]) -> Option<(usize, usize, usize, u16)> {
    let ip = ethernet::Header::parse(frame).ok()?.length;
    let packet = IpPacket::parse(frame.get(ip..)?).ok()?;
    unfinished_behind(frame, ip, &packet)
}

/// The same of the packet at `ip`.
fn unfinished_behind(
    frame: &[u8],
    ip: usize,
    packet: &IpPacket,
) -> Option<(usize, usize, usize, u16)> {
    if packet.fragmentation != Fragmentation::Whole {
        return None;
    }
    let field = match packet.tuple.protocol {
        tcp::PROTOCOL => 16,
        udp::PROTOCOL => 6,
        _ => return None,
    };
    let length = packet.length - packet.transport_offset;
    let (transport, end) = (ip + packet.transport_offset, ip + packet.length);
    let at = transport + field;
    let stands = frame.get(at..at + 2).filter(|_| at + 2 <= end)?;
    let addresses = frame.get(addresses(ip, packet.is_v6()))?;
    let sum = checksum::fold(checksum::pseudo_header(
        addresses,
        packet.tuple.protocol,
        length,
    ));
    (stands == sum.to_be_bytes()).then_some((transport, end, at, sum))
}

#[cfg(test)]
mod tests;
