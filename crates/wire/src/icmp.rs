//! ICMP (RFC 792) and ICMPv6 (RFC 4443): echoes, errors and the packets they quote.
//!
//! ```text
//!  0      1      2          4                          8
//! +------+------+----------+--------------------------+------------------------------
//! | type | code | checksum | identifier, sequence /   | data / start of the packet
//! |      |      |          | unused, MTU              | the error is about
//! +------+------+----------+--------------------------+------------------------------
//! ```

use crate::ip::{ICMP, ICMPV6};
use crate::{Addresses, FiveTuple, ParseError, checksum, ipv4, ipv6, tcp, udp};

/// Bytes of the header.
pub const HEADER_LENGTH: usize = 8;
/// Bytes of an ICMP error for IPv4 (RFC 1812, section 4.3.2.3).
const ERROR_LIMIT_V4: usize = 576;
/// Bytes of an ICMPv6 error: the minimum MTU (RFC 4443, section 2.4 c).
const ERROR_LIMIT_V6: usize = 1280;
const HOP_LIMIT: u8 = 64;
const NEIGHBOUR_HOP_LIMIT: u8 = 255;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// ICMP type.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// Identifier of an echo request or reply, or another query that has one.
    pub echo_identifier: Option<u16>,
    /// Whether it reports an error about a packet it quotes.
    pub is_error: bool,
}

impl Message {
    /// Reads a message's header.
    ///
    /// # Errors
    /// Too short.
    #[inline]
    pub fn parse(v6: bool, bytes: &[u8]) -> Result<Message, ParseError> {
        let header = bytes
            .first_chunk::<HEADER_LENGTH>()
            .ok_or(ParseError::IcmpTruncated)?;
        let kind = header[0];
        let (has_identifier, is_error) = if v6 {
            (matches!(kind, 128 | 129), kind < 128)
        } else {
            (
                matches!(kind, 0 | 8 | 13 | 14 | 15 | 16 | 17 | 18),
                matches!(kind, 3 | 4 | 5 | 11 | 12),
            )
        };
        Ok(Message {
            kind,
            code: header[1],
            echo_identifier: has_identifier.then(|| u16::from_be_bytes([header[4], header[5]])),
            is_error,
        })
    }

    /// Whether it asks for an echo.
    pub fn is_echo_request(&self, v6: bool) -> bool {
        self.kind == if v6 { 128 } else { 8 }
    }
}

/// The connection of the packet an error quotes, as that packet shows it.
///
/// # Errors
/// The quote is too short for a 5-tuple, or no IP packet.
pub fn quoted_tuple(v6: bool, bytes: &[u8]) -> Result<FiveTuple, ParseError> {
    let quote = bytes
        .get(HEADER_LENGTH..)
        .ok_or(ParseError::IcmpQuoteTruncated)?;
    let (addresses, protocol, offset, later) = if v6 {
        let header =
            ipv6::Header::parse_fields(quote).map_err(|_| ParseError::IcmpQuoteTruncated)?;
        let later = header.fragment.is_some_and(|fragment| fragment.offset > 0);
        let addresses = Addresses::V6 {
            source: header.source,
            destination: header.destination,
        };
        (addresses, header.protocol, header.transport_offset, later)
    } else {
        let header =
            ipv4::Header::parse_fields(quote).map_err(|_| ParseError::IcmpQuoteTruncated)?;
        let addresses = Addresses::V4 {
            source: header.source,
            destination: header.destination,
        };
        (
            addresses,
            header.protocol,
            header.header_length,
            header.fragment_offset > 0,
        )
    };
    let mut tuple = FiveTuple {
        addresses,
        protocol,
        source_port: 0,
        destination_port: 0,
    };
    if later {
        return Ok(tuple);
    }
    let transport = quote
        .get(offset..)
        .and_then(|rest| rest.first_chunk::<8>())
        .ok_or(ParseError::IcmpQuoteTruncated)?;
    match protocol {
        tcp::PROTOCOL | udp::PROTOCOL => {
            tuple.source_port = u16::from_be_bytes([transport[0], transport[1]]);
            tuple.destination_port = u16::from_be_bytes([transport[2], transport[3]]);
        }
        ICMP | ICMPV6 => {
            if let Some(identifier) = Message::parse(v6, transport)?.echo_identifier {
                tuple.source_port = identifier;
                tuple.destination_port = identifier;
            }
        }
        _ => {}
    }
    Ok(tuple)
}

/// An error a forwarder sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The packet does not fit in so many bytes (RFC 1191, section 4; RFC 4443, section 3.2).
    TooBig {
        /// Bytes that fit.
        mtu: u16,
    },
    /// The TTL or hop limit ran out (RFC 792; RFC 4443, section 3.3).
    TimeExceeded,
}

/// An ICMP error about an IPv4 packet, from `source` to the packet's source, as a whole IP packet.
/// Nothing when the packet must not be answered (RFC 1812, section 4.3.2.7): it is an error itself, a later
/// fragment, or has a group address.
pub fn error_v4(error: Error, source: [u8; 4], about: &[u8]) -> Option<Vec<u8>> {
    let header = ipv4::Header::parse_fields(about).ok()?;
    let multicast = header.destination[0] >= 224 || header.source[0] >= 224;
    let nobody = header.source == [0; 4];
    if multicast || nobody || header.fragment_offset > 0 {
        return None;
    }
    let transport = about.get(header.header_length..)?;
    if header.protocol == ICMP && Message::parse(false, transport).ok()?.is_error {
        return None;
    }
    let (kind, code, word) = match error {
        Error::TooBig { mtu } => (3u8, 4u8, u32::from(mtu)),
        Error::TimeExceeded => (11, 0, 0),
    };
    let room = ERROR_LIMIT_V4 - ipv4::HEADER_LENGTH - HEADER_LENGTH;
    let quote = &about[..about.len().min(header.total_length).min(room)];
    let mut message = vec![kind, code, 0, 0];
    message.extend_from_slice(&word.to_be_bytes());
    message.extend_from_slice(quote);
    let sum = checksum::finish(checksum::sum(&message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = ipv4::write(&ipv4::Fields {
        source,
        destination: header.source,
        protocol: ICMP,
        ttl: HOP_LIMIT,
        payload_length: message.len(),
        identification: 0,
        dont_fragment: true,
    })
    .to_vec();
    packet.append(&mut message);
    Some(packet)
}

/// An ICMPv6 error about an IPv6 packet; like [`error_v4`] (RFC 4443, section 2.4 e).
pub fn error_v6(error: Error, source: [u8; 16], about: &[u8]) -> Option<Vec<u8>> {
    let header = ipv6::Header::parse_fields(about).ok()?;
    let group_destination = header.destination[0] == 0xff && !matches!(error, Error::TooBig { .. });
    if header.source[0] == 0xff || header.source == [0; 16] || group_destination {
        return None;
    }
    let later = header.fragment.is_some_and(|fragment| fragment.offset > 0);
    if header.protocol == ICMPV6 && !later {
        let transport = about.get(header.transport_offset..)?;
        if Message::parse(true, transport).ok()?.is_error {
            return None;
        }
    }
    let (kind, word) = match error {
        Error::TooBig { mtu } => (2u8, u32::from(mtu)),
        Error::TimeExceeded => (3, 0),
    };
    let room = ERROR_LIMIT_V6 - ipv6::HEADER_LENGTH - HEADER_LENGTH;
    let mut message = vec![kind, 0, 0, 0];
    message.extend_from_slice(&word.to_be_bytes());
    message.extend_from_slice(&about[..about.len().min(header.total_length).min(room)]);
    Some(packet_v6(source, header.source, HOP_LIMIT, message))
}

/// An ICMPv6 message as a whole packet with hop limit 255, as neighbour discovery wants it.
pub fn neighbour_packet(source: [u8; 16], destination: [u8; 16], message: Vec<u8>) -> Vec<u8> {
    packet_v6(source, destination, NEIGHBOUR_HOP_LIMIT, message)
}

fn packet_v6(
    source: [u8; 16],
    destination: [u8; 16],
    hop_limit: u8,
    mut message: Vec<u8>,
) -> Vec<u8> {
    message[2..4].fill(0);
    let addresses = [source, destination].concat();
    let total = checksum::pseudo_header(&addresses, ICMPV6, message.len());
    let sum = checksum::finish(total + checksum::sum(&message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut packet = ipv6::write(source, destination, ICMPV6, hop_limit, message.len()).to_vec();
    packet.append(&mut message);
    packet
}

/// Turns a checked echo request in place into its reply: addresses swapped, type and checksum changed.
/// `transport_offset` is where the ICMP header begins.
pub fn echo_reply_in_place(v6: bool, packet: &mut [u8], transport_offset: usize) {
    let (at, size) = if v6 { (8, 16) } else { (12, 4) };
    for i in at..at + size {
        packet.swap(i, i + size);
    }
    let old = u16::from_be_bytes([packet[transport_offset], packet[transport_offset + 1]]);
    packet[transport_offset] = if v6 { 129 } else { 0 };
    let new = u16::from_be_bytes([packet[transport_offset], packet[transport_offset + 1]]);
    let sum = transport_offset + 2;
    let before = u16::from_be_bytes([packet[sum], packet[sum + 1]]);
    packet[sum..sum + 2].copy_from_slice(&checksum::update(before, old, new).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IpPacket;

    fn udp_v4() -> Vec<u8> {
        let mut packet = ipv4::write(&ipv4::Fields {
            source: [10, 0, 0, 1],
            destination: [10, 0, 0, 2],
            protocol: 17,
            ttl: 1,
            payload_length: 16,
            identification: 0,
            dont_fragment: true,
        })
        .to_vec();
        packet.extend([0x30, 0x39, 0, 53, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        packet
    }

    fn udp_v6() -> Vec<u8> {
        let mut packet = ipv6::write([0x20; 16], [0x21; 16], 17, 1, 16).to_vec();
        packet.extend([0x30, 0x39, 0, 53, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        packet
    }

    #[test]
    fn an_error_quotes_the_connection_it_is_about() {
        for error in [Error::TooBig { mtu: 1400 }, Error::TimeExceeded] {
            let about = udp_v4();
            let answer = error_v4(error, [192, 0, 2, 1], &about).unwrap();
            let parsed = IpPacket::parse(&answer).unwrap();
            assert_eq!(parsed.quoted, Some(IpPacket::parse(&about).unwrap().tuple));
            assert_eq!(checksum::finish(checksum::sum(&answer[20..])), 0);
            let about = udp_v6();
            let answer = error_v6(error, [9; 16], &about).unwrap();
            let parsed = IpPacket::parse(&answer).unwrap();
            assert_eq!(parsed.quoted, Some(IpPacket::parse(&about).unwrap().tuple));
            let total = checksum::pseudo_header(&answer[8..40], ICMPV6, answer.len() - 40);
            assert_eq!(checksum::finish(total + checksum::sum(&answer[40..])), 0);
        }
    }

    #[test]
    fn errors_are_not_answered() {
        let first = error_v4(Error::TimeExceeded, [192, 0, 2, 1], &udp_v4()).unwrap();
        assert_eq!(error_v4(Error::TimeExceeded, [192, 0, 2, 1], &first), None);
        let first = error_v6(Error::TimeExceeded, [9; 16], &udp_v6()).unwrap();
        assert_eq!(error_v6(Error::TimeExceeded, [9; 16], &first), None);
    }

    #[test]
    fn an_echo_becomes_its_reply() {
        let mut packet = ipv4::write(&ipv4::Fields {
            source: [10, 0, 0, 1],
            destination: [10, 0, 0, 2],
            protocol: 1,
            ttl: 64,
            payload_length: 12,
            identification: 0,
            dont_fragment: false,
        })
        .to_vec();
        let mut message = vec![8, 0, 0, 0, 0x12, 0x34, 0, 1, 9, 9, 9, 9];
        let sum = checksum::finish(checksum::sum(&message));
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        packet.extend(message);
        echo_reply_in_place(false, &mut packet, 20);
        let parsed = IpPacket::parse(&packet).unwrap();
        assert_eq!(parsed.tuple.source().to_string(), "10.0.0.2");
        assert_eq!((packet[20], parsed.tuple.source_port), (0, 0x1234));
        assert_eq!(checksum::finish(checksum::sum(&packet[20..])), 0);
    }

    #[test]
    fn short_quotes_are_named() {
        let answer = error_v4(Error::TimeExceeded, [192, 0, 2, 1], &udp_v4()).unwrap();
        for length in 8..8 + 28 {
            assert_eq!(
                quoted_tuple(false, &answer[20..20 + length]),
                Err(ParseError::IcmpQuoteTruncated),
                "{length}"
            );
        }
    }
}
