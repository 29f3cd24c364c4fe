//! ICMP for IPv4 (RFC 792): the messages a forwarder reads and the errors it sends.
//!
//! ```text
//! fragmentation needed (RFC 1191, section 4)       time exceeded
//!  0      1      2          4        6       8      0      1      2          4        8
//! +------+------+----------+--------+-------+---   +------+------+----------+--------+---
//! | 3    | 4    | checksum | 0      | MTU   | …    | 11   | 0    | checksum | 0      | …
//! +------+------+----------+--------+-------+---   +------+------+----------+--------+---
//! … the packet it is about, as much as fits in 576 bytes (RFC 1812, section 4.3.2.3)
//! ```

use crate::icmp::{Error, HEADER_LENGTH, HOP_LIMIT, Message};
use crate::{checksum, ip, ipv4};

/// Type of an echo reply.
pub const ECHO_REPLY: u8 = 0;
/// Type of an echo request.
pub const ECHO_REQUEST: u8 = 8;
/// Bytes of an error's IP packet at most (RFC 1812, section 4.3.2.3).
pub const ERROR_LIMIT: usize = 576;

const UNREACHABLE: u8 = 3;
const FRAGMENTATION_NEEDED: u8 = 4;
const TIME_EXCEEDED: u8 = 11;
const HEADERS_LENGTH: usize = ipv4::HEADER_LENGTH + HEADER_LENGTH;

/// Whether messages of a type have an identifier: echo, timestamp, information and address mask.
#[inline]
pub const fn has_identifier(kind: u8) -> bool {
    matches!(kind, ECHO_REPLY | ECHO_REQUEST | 13..=18)
}

/// Whether messages of a type quote a packet: unreachable, source quench, redirect, time exceeded, parameter problem.
#[inline]
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

/// Writes an error about an IPv4 packet, from `source` to the packet's source, to the start of `buffer` as a whole
/// IP packet; returns its length, [`ERROR_LIMIT`] at most. Nothing when `buffer` is too short, or the packet must not be
/// answered (RFC 1812, section 4.3.2.7): it is no IPv4 packet, an error itself or too short to tell, a later fragment, for a
/// group, or from an address that names no single host.
pub fn write_error(
    error: Error,
    source: [u8; 4],
    about: &[u8],
    buffer: &mut [u8],
) -> Option<usize> {
    let header = ipv4::Header::parse_fields(about).ok()?;
    if header.fragment_offset > 0 || !is_single_host(header.source) || is_group(header.destination)
    {
        return None;
    }
    let transport = about.get(header.header_length..)?;
    if header.protocol == ip::ICMP && Message::parse(false, transport).ok()?.is_error {
        return None;
    }
    let (kind, code, mtu) = match error {
        Error::TooBig { mtu } => (UNREACHABLE, FRAGMENTATION_NEEDED, mtu),
        Error::TimeExceeded => (TIME_EXCEEDED, 0, 0),
    };
    let room = ERROR_LIMIT - HEADERS_LENGTH;
    let quote = &about[..about.len().min(header.total_length).min(room)];
    let packet = buffer.get_mut(..HEADERS_LENGTH + quote.len())?;
    let (ip_header, message) = packet.split_at_mut(ipv4::HEADER_LENGTH);
    let [mtu_high, mtu_low] = mtu.to_be_bytes();
    message[..HEADER_LENGTH].copy_from_slice(&[kind, code, 0, 0, 0, 0, mtu_high, mtu_low]);
    message[HEADER_LENGTH..].copy_from_slice(quote);
    let sum = checksum::finish(checksum::sum(message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    ip_header.copy_from_slice(&ipv4::write(&ipv4::Fields {
        source,
        destination: header.source,
        protocol: ip::ICMP,
        ttl: HOP_LIMIT,
        payload_length: message.len(),
        identification: 0,
        dont_fragment: true,
    }));
    Some(packet.len())
}

/// Whether an address can be that of one host: not network 0, loopback, a group or reserved.
const fn is_single_host(address: [u8; 4]) -> bool {
    !matches!(address[0], 0 | 127 | 224..)
}

/// Whether an address is for many: multicast, reserved, broadcast.
const fn is_group(address: [u8; 4]) -> bool {
    address[0] >= 224
}
