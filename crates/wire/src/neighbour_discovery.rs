//! Neighbour solicitations and advertisements (RFC 4861, sections 4.3 and 4.4).
//!
//! ```text
//!  0      1      2          4          8             24
//! +------+------+----------+----------+-------------+----------------------------------
//! | type | 0    | checksum | R S O …  | target (16) | options: | type | length/8 | MAC |
//! +------+------+----------+----------+-------------+----------------------------------
//! ```

use crate::{MacAddress, ipv6};

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_MAC_OPTION: u8 = 1;
const TARGET_MAC_OPTION: u8 = 2;
const MESSAGE_LENGTH: usize = 24;
const ROUTER_SOLICITED_OVERRIDE: u8 = 0xe0;

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
    /// Reads the ICMPv6 message of a checked IPv6 packet. Nothing when it is another message or fails one of the
    /// checks of RFC 4861 section 7.1 (hop limit 255, code 0, lengths).
    pub fn parse(header: &ipv6::Header, message: &[u8]) -> Option<Neighbour> {
        let (&kind, &code) = (message.first()?, message.get(1)?);
        if header.hop_limit != 255 || code != 0 || !matches!(kind, SOLICITATION | ADVERTISEMENT) {
            return None;
        }
        let target: [u8; 16] = message.get(8..MESSAGE_LENGTH)?.try_into().ok()?;
        if target[0] == 0xff {
            return None;
        }
        let solicitation = kind == SOLICITATION;
        let wanted = if solicitation {
            SOURCE_MAC_OPTION
        } else {
            TARGET_MAC_OPTION
        };
        let mut mac = None;
        let mut options = &message[MESSAGE_LENGTH..];
        while !options.is_empty() {
            let length = usize::from(*options.get(1)?) * 8;
            if length == 0 || length > options.len() {
                return None;
            }
            if options[0] == wanted && length == 8 {
                mac = Some(MacAddress(std::array::from_fn(|i| options[2 + i])));
            }
            options = &options[length..];
        }
        Some(Neighbour {
            solicitation,
            target,
            mac,
        })
    }

    /// The ICMPv6 message, checksum 0: for [`crate::icmp::neighbour_packet`].
    pub fn to_message(&self) -> Vec<u8> {
        let mut message = vec![0u8; MESSAGE_LENGTH];
        message[0] = if self.solicitation {
            SOLICITATION
        } else {
            message[4] = ROUTER_SOLICITED_OVERRIDE;
            ADVERTISEMENT
        };
        message[8..24].copy_from_slice(&self.target);
        if let Some(mac) = self.mac {
            let option = if self.solicitation {
                SOURCE_MAC_OPTION
            } else {
                TARGET_MAC_OPTION
            };
            message.extend([option, 1]);
            message.extend(mac.0);
        }
        message
    }
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
mod tests {
    use super::*;
    use crate::icmp;

    #[test]
    fn reads_what_it_writes_and_nothing_less() {
        for solicitation in [true, false] {
            let neighbour = Neighbour {
                solicitation,
                target: [0x20; 16],
                mac: Some(MacAddress([2, 0, 0, 0, 0, 9])),
            };
            let packet = icmp::neighbour_packet([1; 16], [0x20; 16], neighbour.to_message());
            let header = ipv6::Header::parse(&packet).unwrap();
            assert_eq!(Neighbour::parse(&header, &packet[40..]), Some(neighbour));
            for length in 40..packet.len() {
                let cut = Neighbour::parse(&header, &packet[40..length]);
                assert!(cut.is_none_or(|n| n.mac.is_none()), "{length}");
            }
            let far = ipv6::Header {
                hop_limit: 254,
                ..header
            };
            assert_eq!(Neighbour::parse(&far, &packet[40..]), None);
        }
    }

    #[test]
    fn an_option_of_length_zero_ends_the_reading() {
        let mut message = Neighbour {
            solicitation: true,
            target: [0x20; 16],
            mac: None,
        }
        .to_message();
        message.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        let packet = icmp::neighbour_packet([1; 16], [0x20; 16], message.clone());
        let header = ipv6::Header::parse(&packet).unwrap();
        assert_eq!(Neighbour::parse(&header, &message), None);
    }
}
