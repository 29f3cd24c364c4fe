//! Neighbour solicitations and advertisements (RFC 4861, sections 4.3, 4.4 and 7), and the checks of all messages of neighbour
//! discovery.
//!
//! ```text
//!  0          1   2          4          8             24
//! +----------+---+----------+----------+-------------+----------------------------------
//! | 135 / 136| 0 | checksum | R S O …  | target (16) | options: | type | length/8 | MAC |
//! +----------+---+----------+----------+-------------+----------------------------------
//! ```
//!
//! R: the sender is a router. S: sent because of a solicitation. O: overrides what is known. Option 1 is the source's
//! Ethernet address (in solicitations), option 2 the target's (in advertisements).

use crate::{MacAddress, ParseError, icmpv6, ipv6};

/// Bytes of a packet made here: IPv6 header, message, one option.
pub const PACKET_LENGTH: usize = ipv6::HEADER_LENGTH + MESSAGE_LENGTH + OPTION_LENGTH;
/// The group of every node on a link (RFC 4291, section 2.7.1).
pub const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const REDIRECT: u8 = 137;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_MAC_OPTION: u8 = 1;
const TARGET_MAC_OPTION: u8 = 2;
const MESSAGE_LENGTH: usize = 24;
const OPTION_LENGTH: usize = 8;
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const UNSPECIFIED: [u8; 16] = [0; 16];

/// A solicitation or an advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Whether it asks (solicitation) or tells (advertisement).
    pub solicitation: bool,
    /// The address in question.
    pub target: [u8; 16],
    /// Source (in solicitations) or target (in advertisements) Ethernet address, if given.
    pub mac: Option<MacAddress>,
}

impl Neighbour {
    /// Reads the ICMPv6 message of a checked IPv6 packet. Nothing when it is another message, or [`Neighbour::check`] has an
    /// error.
    pub fn parse(header: &ipv6::Header, message: &[u8]) -> Option<Neighbour> {
        Neighbour::check(header, message).ok().flatten()
    }

    /// Reads the ICMPv6 message of a checked IPv6 packet, with the checks of RFC 4861, sections 6.1, 7.1 and 8.1, and of RFC 6980.
    /// Nothing when it is no solicitation and no advertisement of a neighbour.
    ///
    /// # Errors
    /// Names the check that failed.
    pub fn check(header: &ipv6::Header, message: &[u8]) -> Result<Option<Neighbour>, ParseError> {
        // What a later fragment begins with is no type.
        let later = header.fragment.is_some_and(|fragment| fragment.offset > 0);
        let Some(&kind) = message.first().filter(|_| !later) else {
            return Ok(None);
        };
        let length = match kind {
            ROUTER_SOLICITATION => 8,
            ROUTER_ADVERTISEMENT => 16,
            SOLICITATION | ADVERTISEMENT => MESSAGE_LENGTH,
            REDIRECT => 40,
            _ => return Ok(None),
        };
        if header.fragment.is_some() {
            return Err(ParseError::NeighbourFragmented);
        }
        if header.hop_limit != icmpv6::LINK_HOP_LIMIT {
            return Err(ParseError::NeighbourBadHopLimit);
        }
        let Some((fixed, options)) = message.split_at_checked(length) else {
            return Err(ParseError::NeighbourTruncated);
        };
        if icmpv6::message_checksum(header.source, header.destination, message) != 0 {
            return Err(ParseError::NeighbourBadChecksum);
        }
        if fixed[1] != 0 {
            return Err(ParseError::NeighbourBadCode);
        }
        let wanted = match kind {
            ADVERTISEMENT => TARGET_MAC_OPTION,
            _ => SOURCE_MAC_OPTION,
        };
        let mac = find_mac(options, wanted)?;
        if !matches!(kind, SOLICITATION | ADVERTISEMENT) {
            return check_router(kind, header).map(|()| None);
        }
        let neighbour = Neighbour {
            solicitation: kind == SOLICITATION,
            target: std::array::from_fn(|i| fixed[8 + i]),
            mac,
        };
        neighbour.check_addresses(header, fixed[4] & SOLICITED != 0)?;
        Ok(Some(neighbour))
    }

    fn check_addresses(&self, header: &ipv6::Header, solicited: bool) -> Result<(), ParseError> {
        let for_group = header.destination[0] == 0xff;
        // Who has no address yet asks the target's group, and cannot say where the answer goes.
        let nameless = self.solicitation && header.source == UNSPECIFIED;
        let wrong = self.target[0] == 0xff
            || self.mac.is_some_and(MacAddress::is_group)
            || nameless
                && (self.mac.is_some() || header.destination != solicited_node(self.target))
            || !self.solicitation && solicited && for_group;
        if wrong {
            return Err(ParseError::NeighbourBadAddress);
        }
        Ok(())
    }

    /// The ICMPv6 message, checksum 0: for [`crate::icmp::neighbour_packet`]. Advertisements are a router's, solicited, and
    /// override.
    pub fn to_message(&self) -> Vec<u8> {
        let mut message = vec![0; MESSAGE_LENGTH + OPTION_LENGTH];
        let length = self.write(ROUTER | SOLICITED | OVERRIDE, &mut message);
        message.truncate(length);
        message
    }

    /// Writes the message; `flags` only counts for advertisements.
    fn write(&self, flags: u8, message: &mut [u8]) -> usize {
        let (kind, flags, option) = if self.solicitation {
            (SOLICITATION, 0, SOURCE_MAC_OPTION)
        } else {
            (ADVERTISEMENT, flags, TARGET_MAC_OPTION)
        };
        message[..8].copy_from_slice(&[kind, 0, 0, 0, flags, 0, 0, 0]);
        message[8..MESSAGE_LENGTH].copy_from_slice(&self.target);
        let Some(mac) = self.mac else {
            return MESSAGE_LENGTH;
        };
        message[MESSAGE_LENGTH..MESSAGE_LENGTH + 2].copy_from_slice(&[option, 1]);
        message[MESSAGE_LENGTH + 2..].copy_from_slice(&mac.0);
        MESSAGE_LENGTH + OPTION_LENGTH
    }
}

/// The IPv6 packet that answers a solicitation for an address of ours, which has this Ethernet address (RFC 4861, section 7.2.4).
/// It goes to whoever asked, or to [`ALL_NODES`] when that one has no address yet.
pub fn advertisement(asked_by: [u8; 16], target: [u8; 16], mac: MacAddress) -> [u8; PACKET_LENGTH] {
    let (destination, flags) = if asked_by == UNSPECIFIED {
        (ALL_NODES, ROUTER | OVERRIDE)
    } else {
        (asked_by, ROUTER | SOLICITED | OVERRIDE)
    };
    let neighbour = Neighbour {
        solicitation: false,
        target,
        mac: Some(mac),
    };
    packet(target, destination, &neighbour, flags)
}

/// The IPv6 packet that asks for the Ethernet address of `target` (RFC 4861, section 7.2.2); it goes to
/// [`solicited_node`] of it.
pub fn solicitation(source: [u8; 16], target: [u8; 16], mac: MacAddress) -> [u8; PACKET_LENGTH] {
    let neighbour = Neighbour {
        solicitation: true,
        target,
        mac: Some(mac),
    };
    packet(source, solicited_node(target), &neighbour, 0)
}

fn packet(
    source: [u8; 16],
    destination: [u8; 16],
    neighbour: &Neighbour,
    flags: u8,
) -> [u8; PACKET_LENGTH] {
    let mut packet = [0; PACKET_LENGTH];
    neighbour.write(flags, &mut packet[ipv6::HEADER_LENGTH..]);
    icmpv6::finish_packet(source, destination, icmpv6::LINK_HOP_LIMIT, &mut packet);
    packet
}

/// What routers say comes from an address of the link (RFC 4861, sections 6.1.2 and 8.1).
fn check_router(kind: u8, header: &ipv6::Header) -> Result<(), ParseError> {
    let [first, second, ..] = header.source;
    let from_link = first == 0xfe && second & 0xc0 == 0x80;
    match kind {
        ROUTER_ADVERTISEMENT | REDIRECT if !from_link => Err(ParseError::NeighbourBadAddress),
        _ => Ok(()),
    }
}

fn find_mac(mut options: &[u8], wanted: u8) -> Result<Option<MacAddress>, ParseError> {
    let mut mac = None;
    while let Some(&kind) = options.first() {
        let length = options.get(1).map_or(0, |&length| usize::from(length) * 8);
        let Some((option, rest)) = options.split_at_checked(length) else {
            return Err(ParseError::NeighbourBadOption);
        };
        if length == 0 {
            return Err(ParseError::NeighbourBadOption);
        }
        if kind == wanted && length == OPTION_LENGTH {
            mac = Some(MacAddress(std::array::from_fn(|i| option[2 + i])));
        }
        options = rest;
    }
    Ok(mac)
}

/// The solicited-node multicast address of an address (RFC 4291, section 2.7.1).
pub fn solicited_node(address: [u8; 16]) -> [u8; 16] {
    let mut group = [0u8; 16];
    group[0] = 0xff;
    group[1] = 0x02;
    group[11] = 1;
    group[12] = 0xff;
    group[13..].copy_from_slice(&address[13..]);
    group
}

/// The Ethernet address of an IPv6 group (RFC 2464, section 7).
pub fn group_mac(group: [u8; 16]) -> MacAddress {
    MacAddress([0x33, 0x33, group[12], group[13], group[14], group[15]])
}

#[cfg(test)]
mod tests;
