//! ARP for IPv4 over Ethernet (RFC 826, "Packet format").
//!
//! ```text
//!  0        2        4    5    6           8            14          18           24
//! +--------+--------+----+----+-----------+------------+-----------+------------+-----------+
//! | 1      | 0x0800 | 6  | 4  | operation | sender MAC | sender IP | target MAC | target IP |
//! +--------+--------+----+----+-----------+------------+-----------+------------+-----------+
//! ```

use crate::{MacAddress, ParseError};

/// Bytes of a packet.
pub const LENGTH: usize = 28;
const FIXED: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// What an ARP packet wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target address?
    Request,
    /// The sender has the sender address.
    Reply,
}

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Request or reply.
    pub operation: Operation,
    /// The sender's Ethernet address.
    pub sender_mac: MacAddress,
    /// The sender's IPv4 address.
    pub sender: [u8; 4],
    /// The target's Ethernet address; zero in requests.
    pub target_mac: MacAddress,
    /// The target's IPv4 address.
    pub target: [u8; 4],
}

impl Arp {
    /// Reads the payload of an Ethernet frame.
    ///
    /// # Errors
    /// Too short, or not IPv4 over Ethernet.
    pub fn parse(bytes: &[u8]) -> Result<Arp, ParseError> {
        let bytes = bytes
            .first_chunk::<LENGTH>()
            .ok_or(ParseError::ArpTruncated)?;
        if bytes[..6] != FIXED {
            return Err(ParseError::ArpUnsupported);
        }
        let operation = match [bytes[6], bytes[7]] {
            [0, 1] => Operation::Request,
            [0, 2] => Operation::Reply,
            _ => return Err(ParseError::ArpUnsupported),
        };
        let mac = |at: usize| MacAddress(std::array::from_fn(|i| bytes[at + i]));
        let ip = |at: usize| std::array::from_fn(|i| bytes[at + i]);
        Ok(Arp {
            operation,
            sender_mac: mac(8),
            sender: ip(14),
            target_mac: mac(18),
            target: ip(24),
        })
    }

    /// The same, if its sender may be believed (RFC 1812, section 3.3.2). 0.0.0.0 is the sender of a probe (RFC 5227).
    ///
    /// # Errors
    /// The sender gives an address that no host has.
    pub fn checked(self) -> Result<Arp, ParseError> {
        let nobody = self.sender_mac.is_group() || self.sender_mac == MacAddress::default();
        if nobody || matches!(self.sender[0], 127 | 224..) {
            return Err(ParseError::ArpBadAddress);
        }
        Ok(self)
    }

    /// What answers a request for an address of ours, which has this Ethernet address.
    pub fn answered(&self, mac: MacAddress) -> Arp {
        Arp {
            operation: Operation::Reply,
            sender_mac: mac,
            sender: self.target,
            target_mac: self.sender_mac,
            target: self.sender,
        }
    }

    /// The packet's bytes.
    pub fn to_bytes(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..6].copy_from_slice(&FIXED);
        bytes[7] = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        bytes[8..14].copy_from_slice(&self.sender_mac.0);
        bytes[14..18].copy_from_slice(&self.sender);
        bytes[18..24].copy_from_slice(&self.target_mac.0);
        bytes[24..28].copy_from_slice(&self.target);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_refuses_less() {
        let arp = Arp {
            operation: Operation::Reply,
            sender_mac: MacAddress([2, 0, 0, 0, 0, 1]),
            sender: [192, 0, 2, 1],
            target_mac: MacAddress([2, 0, 0, 0, 0, 2]),
            target: [192, 0, 2, 2],
        };
        let bytes = arp.to_bytes();
        assert_eq!(Arp::parse(&bytes), Ok(arp));
        for length in 0..LENGTH {
            assert_eq!(Arp::parse(&bytes[..length]), Err(ParseError::ArpTruncated));
        }
        for (at, value) in [(1, 6), (2, 9), (4, 8), (5, 16), (7, 3), (6, 1)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(Arp::parse(&other), Err(ParseError::ArpUnsupported), "{at}");
        }
        for (at, values) in [
            (8, &[0x33; 6][..]),
            (8, &[0; 6]),
            (14, &[127]),
            (14, &[224]),
        ] {
            let mut other = bytes;
            other[at..at + values.len()].copy_from_slice(values);
            let read = Arp::parse(&other).expect("it is read");
            assert_eq!(read.checked(), Err(ParseError::ArpBadAddress), "{at}");
        }
        let probe = Arp {
            sender: [0; 4],
            ..arp
        };
        assert_eq!(probe.checked(), Ok(probe));
    }

    #[test]
    fn an_answer_goes_back_to_who_asked() {
        let request = Arp {
            operation: Operation::Request,
            sender_mac: MacAddress([2, 0, 0, 0, 0, 1]),
            sender: [192, 0, 2, 1],
            target_mac: MacAddress::default(),
            target: [192, 0, 2, 2],
        };
        let answer = request.answered(MacAddress([2, 0, 0, 0, 0, 2]));
        assert_eq!(answer.operation, Operation::Reply);
        assert_eq!(
            (answer.sender, answer.target),
            (request.target, request.sender)
        );
        assert_eq!(answer.sender_mac, MacAddress([2, 0, 0, 0, 0, 2]));
        assert_eq!(answer.target_mac, request.sender_mac);
    }
}
