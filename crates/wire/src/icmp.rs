//! What ICMP (RFC 792, [`icmpv4`]) and ICMPv6 (RFC 4443, [`icmpv6`]) have in common: the header, and errors that quote
//! the packet they are about.
//!
//! ```text
//!  0      1      2          4                          8
//! +------+------+----------+--------------------------+------------------------------
//! | type | code | checksum | identifier, sequence /   | data / start of the packet
//! |      |      |          | unused, MTU              | the error is about
//! +------+------+----------+--------------------------+------------------------------
//! ```

use crate::ip::{ICMP, ICMPV6};
use crate::{Addresses, FiveTuple, ParseError, checksum, icmpv4, icmpv6, ipv4, ipv6, tcp, udp};

/// Bytes of the header.
pub const HEADER_LENGTH: usize = 8;

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
            (icmpv6::has_identifier(kind), icmpv6::is_error(kind))
        } else {
            (icmpv4::has_identifier(kind), icmpv4::is_error(kind))
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
        let request = if v6 {
            icmpv6::ECHO_REQUEST
        } else {
            icmpv4::ECHO_REQUEST
        };
        self.kind == request
    }
}

/// What an error quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    /// The connection of the quoted packet, as that packet shows it: an answer to it is [`FiveTuple::reversed`].
    pub tuple: FiveTuple,
    /// Of a later fragment, which shows no ports, the identification of the packet it is of.
    pub fragment: Option<u32>,
}

/// The connection of the packet an error quotes.
///
/// # Errors
/// As for [`quote`].
pub fn quoted_tuple(v6: bool, bytes: &[u8]) -> Result<FiveTuple, ParseError> {
    quote(v6, bytes).map(|quote| quote.tuple)
}

/// Reads the packet that an error quotes.
///
/// # Errors
/// The quote is too short for a 5-tuple, or no IP packet.
pub fn quote(v6: bool, bytes: &[u8]) -> Result<Quote, ParseError> {
    let quote = bytes
        .get(HEADER_LENGTH..)
        .ok_or(ParseError::IcmpQuoteTruncated)?;
    let (mut tuple, transport_offset, fragment) = if v6 {
        let header = ipv6::Header::parse_fields(quote).map_err(quote_error)?;
        let addresses = Addresses::V6 {
            source: header.source,
            destination: header.destination,
        };
        let later = header.fragment.filter(|fragment| fragment.offset > 0);
        let tuple = FiveTuple::without_ports(addresses, header.protocol);
        let fragment = later.map(|fragment| fragment.identification);
        (tuple, header.transport_offset, fragment)
    } else {
        let header = ipv4::Header::parse_fields(quote).map_err(quote_error)?;
        let addresses = Addresses::V4 {
            source: header.source,
            destination: header.destination,
        };
        let tuple = FiveTuple::without_ports(addresses, header.protocol);
        let fragment = (header.fragment_offset > 0).then_some(header.identification.into());
        (tuple, header.header_length, fragment)
    };
    if fragment.is_some() {
        return Ok(Quote { tuple, fragment });
    }
    // Others may be shorter than what is quoted at least (RFC 792), and show no ports.
    let transport = || {
        let rest = quote.get(transport_offset..);
        let start = rest.and_then(|rest| rest.first_chunk::<8>());
        start.ok_or(ParseError::IcmpQuoteTruncated)
    };
    (tuple.source_port, tuple.destination_port) = match tuple.protocol {
        tcp::PROTOCOL | udp::PROTOCOL => {
            let [a, b, c, d, ..] = *transport()?;
            (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        }
        ICMP | ICMPV6 if (tuple.protocol == ICMPV6) == v6 => {
            let identifier = Message::parse(v6, transport()?)?.echo_identifier;
            (identifier.unwrap_or(0), identifier.unwrap_or(0))
        }
        _ => (0, 0),
    };
    Ok(Quote { tuple, fragment })
}

#[cold]
fn quote_error(error: ParseError) -> ParseError {
    match error {
        ParseError::Ipv4Truncated
        | ParseError::Ipv6Truncated
        | ParseError::Ipv6ExtensionTruncated => ParseError::IcmpQuoteTruncated,
        _ => ParseError::IcmpQuoteMalformed,
    }
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

/// [`icmpv4::write_error`] into memory of its own.
pub fn error_v4(error: Error, source: [u8; 4], about: &[u8]) -> Option<Vec<u8>> {
    let mut packet = vec![0; icmpv4::ERROR_LIMIT];
    let length = icmpv4::write_error(error, source, about, &mut packet)?;
    packet.truncate(length);
    Some(packet)
}

/// [`icmpv6::write_error`] into memory of its own.
pub fn error_v6(error: Error, source: [u8; 16], about: &[u8]) -> Option<Vec<u8>> {
    let mut packet = vec![0; icmpv6::ERROR_LIMIT];
    let length = icmpv6::write_error(error, source, about, &mut packet)?;
    packet.truncate(length);
    Some(packet)
}

/// An ICMPv6 message as a whole packet with hop limit 255, as neighbour discovery wants it.
pub fn neighbour_packet(source: [u8; 16], destination: [u8; 16], message: Vec<u8>) -> Vec<u8> {
    let mut packet = vec![0; ipv6::HEADER_LENGTH];
    packet.extend(message);
    icmpv6::finish_packet(source, destination, icmpv6::LINK_HOP_LIMIT, &mut packet);
    packet
}

/// Turns a checked echo request in place into its reply: addresses swapped, a hop limit of our own, type and checksums
/// changed. `transport_offset` is where the ICMP header begins. False, and nothing changes, when that is not inside the packet.
pub fn echo_reply_in_place(v6: bool, packet: &mut [u8], transport_offset: usize) -> bool {
    let (addresses_at, size, fixed) = if v6 {
        (8, 16, ipv6::HEADER_LENGTH)
    } else {
        (12, 4, ipv4::HEADER_LENGTH)
    };
    let Some((header, message)) = packet.split_at_mut_checked(transport_offset) else {
        return false;
    };
    if header.len() < fixed || message.len() < HEADER_LENGTH {
        return false;
    }
    for i in addresses_at..addresses_at + size {
        header.swap(i, i + size);
    }
    if v6 {
        header[7] = HOP_LIMIT;
    } else {
        header[8] = HOP_LIMIT;
        ipv4::set_checksum(header);
    }
    let old = u16::from_be_bytes([message[0], message[1]]);
    message[0] = if v6 {
        icmpv6::ECHO_REPLY
    } else {
        icmpv4::ECHO_REPLY
    };
    let new = u16::from_be_bytes([message[0], message[1]]);
    let before = u16::from_be_bytes([message[2], message[3]]);
    message[2..4].copy_from_slice(&checksum::update(before, old, new).to_be_bytes());
    true
}

/// Hop limit and TTL of what we send.
pub(crate) const HOP_LIMIT: u8 = 64;

#[cfg(test)]
mod tests;
