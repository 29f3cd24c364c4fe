//! Ethernet II (IEEE 802.3, section 3.2.6), with the tags of [`crate::vlan`].
//!
//! ```text
//!  0                   6                   12          14
//! +-------------------+-------------------+-----------+---------
//! |  destination (6)  |    source (6)     | type (2)  | payload
//! +-------------------+-------------------+-----------+---------
//! ```

use crate::ParseError;
use crate::vlan::{self, TAG_LENGTH, Tag};
use std::fmt;

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of MPLS unicast (RFC 5332).
pub const MPLS: u16 = 0x8847;
/// EtherType of MPLS with upstream-assigned labels (RFC 5332).
pub const MPLS_UPSTREAM: u16 = 0x8848;
/// EtherType of NSH (RFC 8300, section 13).
pub const NSH: u16 = 0x894f;
/// Bytes of the header without tags.
pub const HEADER_LENGTH: usize = 14;

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The address of everyone.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);

    /// Whether it names a group, everyone included.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// To whom.
    pub destination: MacAddress,
    /// From whom.
    pub source: MacAddress,
    /// Identifier of the outer tag; 0 without one (or with a priority tag).
    pub vlan: u16,
    /// Identifier of the inner tag of QinQ.
    pub inner_vlan: Option<u16>,
    /// EtherType behind the tags.
    pub ether_type: u16,
    /// Bytes up to the payload.
    pub length: usize,
}

impl Header {
    /// Reads the header of a frame.
    ///
    /// # Errors
    /// The frame ends too early or has more than two tags.
    #[inline(always)]
    pub fn parse(frame: &[u8]) -> Result<Header, ParseError> {
        let bytes = frame
            .first_chunk::<HEADER_LENGTH>()
            .ok_or(ParseError::EthernetTruncated)?;
        let [_, _, _, _, _, _, source @ .., high, low] = bytes;
        let mut header = Header {
            destination: destination(bytes),
            source: MacAddress(*source),
            vlan: 0,
            inner_vlan: None,
            ether_type: u16::from_be_bytes([*high, *low]),
            length: HEADER_LENGTH,
        };
        if Tag::follows(header.ether_type) {
            header.parse_tags(frame)?;
        }
        Ok(header)
    }

    fn parse_tags(&mut self, frame: &[u8]) -> Result<(), ParseError> {
        for depth in 0..vlan::DEPTH_LIMIT {
            let (tag, ether_type) = Tag::parse(frame.get(self.length..).unwrap_or_default())?;
            if depth == 0 {
                self.vlan = tag.identifier;
            } else {
                self.inner_vlan = Some(tag.identifier);
            }
            self.ether_type = ether_type;
            self.length += TAG_LENGTH;
            if !Tag::follows(ether_type) {
                return Ok(());
            }
        }
        Err(ParseError::VlanTooDeep)
    }

    /// Writes the header (with a tag when `vlan` is not 0) at the start of `buffer`; returns its length.
    /// `buffer` must hold 18 bytes; shorter ones are left alone and 0 is returned.
    #[inline]
    pub fn write(
        buffer: &mut [u8],
        destination: MacAddress,
        source: MacAddress,
        vlan: u16,
        ether_type: u16,
    ) -> usize {
        let Some(bytes) = buffer.first_chunk_mut::<18>() else {
            return 0;
        };
        bytes[..6].copy_from_slice(&destination.0);
        bytes[6..12].copy_from_slice(&source.0);
        if vlan == 0 {
            bytes[12..14].copy_from_slice(&ether_type.to_be_bytes());
            return HEADER_LENGTH;
        }
        let tag = Tag {
            identifier: vlan,
            ..Tag::default()
        };
        bytes[12..14].copy_from_slice(&vlan::CUSTOMER.to_be_bytes());
        bytes[14..16].copy_from_slice(&tag.to_bytes());
        bytes[16..18].copy_from_slice(&ether_type.to_be_bytes());
        HEADER_LENGTH + TAG_LENGTH
    }
}

#[inline(always)]
fn destination([address @ .., _, _, _, _, _, _, _, _]: &[u8; HEADER_LENGTH]) -> MacAddress {
    MacAddress(*address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(vlan: u16) -> Vec<u8> {
        let mut buffer = [0u8; 18];
        let length = Header::write(
            &mut buffer,
            MacAddress([1; 6]),
            MacAddress([2; 6]),
            vlan,
            IPV4,
        );
        buffer[..length].to_vec()
    }

    #[test]
    fn reads_what_it_writes() {
        for vlan in [0, 1, 77, 4094] {
            let frame = written(vlan);
            let header = Header::parse(&frame).unwrap();
            assert_eq!(
                (header.vlan, header.ether_type, header.length),
                (vlan, IPV4, frame.len())
            );
            assert_eq!(header.source, MacAddress([2; 6]));
        }
    }

    #[test]
    fn reads_two_tags_and_refuses_three() {
        let mut frame = vec![0u8; 12];
        frame.extend([0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x08, 0x00]);
        let header = Header::parse(&frame).unwrap();
        assert_eq!(
            (header.vlan, header.inner_vlan, header.length),
            (5, Some(6), 22)
        );
        let mut frame = vec![0u8; 12];
        frame.extend([0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x81, 0, 0, 7, 8, 0]);
        assert_eq!(Header::parse(&frame), Err(ParseError::VlanTooDeep));
    }

    #[test]
    fn names_where_a_frame_ends() {
        let frame = written(9);
        for length in 0..frame.len() {
            let expected = if length < 14 {
                ParseError::EthernetTruncated
            } else {
                ParseError::VlanTruncated
            };
            assert_eq!(Header::parse(&frame[..length]), Err(expected));
        }
    }
}
