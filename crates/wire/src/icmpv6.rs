//! ICMPv6 (RFC 4443): the messages a forwarder reads and the errors it sends.
//!
//! ```text
//! packet too big (section 3.2)                     time exceeded (section 3.3)
//!  0      1      2          4                8      0      1      2          4        8
//! +------+------+----------+----------------+---   +------+------+----------+--------+---
//! | 2    | 0    | checksum | MTU            | …    | 3    | 0    | checksum | 0      | …
//! +------+------+----------+----------------+---   +------+------+----------+--------+---
//! … the packet it is about, as much as fits in 1280 bytes. The checksum covers a pseudo-header too (section 2.3).
//! ```

use crate::icmp::{Error, HEADER_LENGTH, HOP_LIMIT, Message};
use crate::{checksum, ip, ipv6};

/// Type of an echo request.
pub const ECHO_REQUEST: u8 = 128;
/// Type of an echo reply.
pub const ECHO_REPLY: u8 = 129;
/// Bytes of an error's IP packet at most: the minimum MTU (RFC 4443, section 2.4 c).
pub const ERROR_LIMIT: usize = 1280;

const PACKET_TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const REDIRECT: u8 = 137;
const HEADERS_LENGTH: usize = ipv6::HEADER_LENGTH + HEADER_LENGTH;
/// Hop limit of messages that must come from the same link (RFC 4861, section 7.1).
pub(crate) const LINK_HOP_LIMIT: u8 = 255;

/// Whether messages of a type have an identifier.
#[inline]
pub const fn has_identifier(kind: u8) -> bool {
    matches!(kind, ECHO_REQUEST | ECHO_REPLY)
}

/// Whether messages of a type quote a packet (RFC 4443, section 2.1).
#[inline]
pub const fn is_error(kind: u8) -> bool {
    kind < 128
}

/// Writes an error about an IPv6 packet, from `source` to the packet's source, to the start of `buffer` as a whole
/// IP packet; returns its length, [`ERROR_LIMIT`] at most. Nothing when `buffer` is too short, or the packet must not be
/// answered (RFC 4443, section 2.4 e): it is no IPv6 packet, an error or a redirect itself or may be part of one, for a group
/// (unless it is too big), or from an address that names no single node.
pub fn write_error(
    error: Error,
    source: [u8; 16],
    about: &[u8],
    buffer: &mut [u8],
) -> Option<usize> {
    let header = ipv6::Header::parse_fields(about).ok()?;
    let for_group = is_group(header.destination) && !matches!(error, Error::TooBig { .. });
    if !is_single_node(header.source) || for_group {
        return None;
    }
    if header.protocol == ip::ICMPV6 {
        // A later fragment shows no type.
        if header.fragment.is_some_and(|fragment| fragment.offset > 0) {
            return None;
        }
        let message = Message::parse(true, about.get(header.transport_offset..)?).ok()?;
        if message.is_error || message.kind == REDIRECT {
            return None;
        }
    }
    let (kind, mtu) = match error {
        Error::TooBig { mtu } => (PACKET_TOO_BIG, u32::from(mtu)),
        Error::TimeExceeded => (TIME_EXCEEDED, 0),
    };
    let room = ERROR_LIMIT - HEADERS_LENGTH;
    let quote = &about[..about.len().min(header.total_length).min(room)];
    let packet = buffer.get_mut(..HEADERS_LENGTH + quote.len())?;
    let message = &mut packet[ipv6::HEADER_LENGTH..];
    message[..4].copy_from_slice(&[kind, 0, 0, 0]);
    message[4..HEADER_LENGTH].copy_from_slice(&mtu.to_be_bytes());
    message[HEADER_LENGTH..].copy_from_slice(quote);
    finish_packet(source, header.source, HOP_LIMIT, packet);
    Some(packet.len())
}

/// The checksum of a message whose own is 0 (RFC 4443, section 2.3); of one that has it, 0 if that is right.
pub fn message_checksum(source: [u8; 16], destination: [u8; 16], message: &[u8]) -> u16 {
    let addresses = checksum::sum(&source) + checksum::sum(&destination);
    let pseudo_header = checksum::pseudo_header(&[], ip::ICMPV6, message.len());
    checksum::finish(addresses + pseudo_header + checksum::sum(message))
}

/// Writes the IPv6 header and the checksum of a packet that has its message behind room for the header.
pub(crate) fn finish_packet(
    source: [u8; 16],
    destination: [u8; 16],
    hop_limit: u8,
    packet: &mut [u8],
) {
    let Some((header, message)) = packet.split_first_chunk_mut::<{ ipv6::HEADER_LENGTH }>() else {
        return;
    };
    *header = ipv6::write(source, destination, ip::ICMPV6, hop_limit, message.len());
    if let Some(place) = message.get_mut(2..4) {
        place.fill(0);
        let sum = message_checksum(source, destination, message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Whether an address can be that of one node: not unspecified, loopback or a group.
const fn is_single_node(address: [u8; 16]) -> bool {
    !is_group(address) && u128::from_be_bytes(address) > 1
}

const fn is_group(address: [u8; 16]) -> bool {
    address[0] == 0xff
}
