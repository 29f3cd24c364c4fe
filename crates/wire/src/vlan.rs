//! IEEE 802.1Q tags, one or two deep (IEEE 802.1ad, "QinQ").
//!
//! ```text
//!  0                    2                                   4
//! +--------------------+-----------------------------------+-----------
//! | 0x8100 or 0x88a8   | priority 3 | DEI 1 | identifier 12 | EtherType …
//! +--------------------+-----------------------------------+-----------
//! ```
//!
//! DEI: drop eligible. Identifier 0 is a priority tag: no VLAN is named. 4095 is reserved and must not be sent.

use crate::ParseError;

/// Tag protocol identifier of IEEE 802.1Q.
pub const CUSTOMER: u16 = 0x8100;
/// Tag protocol identifier of IEEE 802.1ad, the outer tag of QinQ.
pub const PROVIDER: u16 = 0x88a8;
/// Bytes of one tag.
pub const TAG_LENGTH: usize = 4;
/// Tags that are read at most.
pub const DEPTH_LIMIT: usize = 2;
const RESERVED: u16 = 0xfff;

/// What a tag says, without its protocol identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tag {
    /// Priority code point, 0 to 7.
    pub priority: u8,
    /// May be dropped before others.
    pub drop_eligible: bool,
    /// Names the VLAN, 0 for none.
    pub identifier: u16,
}

impl Tag {
    /// Whether an EtherType is that of a tag.
    #[inline]
    pub const fn follows(ether_type: u16) -> bool {
        matches!(ether_type, CUSTOMER | PROVIDER)
    }

    /// Reads what follows a tag's protocol identifier: the tag, and the next EtherType.
    ///
    /// # Errors
    /// Too short, or the identifier is the reserved one.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Tag, u16), ParseError> {
        let &[high, low, type_high, type_low] = bytes
            .first_chunk::<TAG_LENGTH>()
            .ok_or(ParseError::VlanTruncated)?;
        let word = u16::from_be_bytes([high, low]);
        let tag = Tag {
            priority: (word >> 13) as u8,
            drop_eligible: word & 0x1000 != 0,
            identifier: word & 0xfff,
        };
        if tag.identifier == RESERVED {
            return Err(ParseError::VlanReservedIdentifier);
        }
        Ok((tag, u16::from_be_bytes([type_high, type_low])))
    }

    /// The two bytes behind the protocol identifier; bits that do not fit are cut off.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 2] {
        let word = (self.priority as u16) << 13
            | (self.drop_eligible as u16) << 12
            | self.identifier & 0xfff;
        word.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for priority in 0..8 {
            for drop_eligible in [false, true] {
                for identifier in [0, 1, 77, 4094] {
                    let tag = Tag {
                        priority,
                        drop_eligible,
                        identifier,
                    };
                    let [high, low] = tag.to_bytes();
                    assert_eq!(Tag::parse(&[high, low, 0x08, 0x06]), Ok((tag, 0x0806)));
                }
            }
        }
    }

    #[test]
    fn names_what_is_wrong() {
        for length in 0..TAG_LENGTH {
            assert_eq!(
                Tag::parse(&[0; TAG_LENGTH][..length]),
                Err(ParseError::VlanTruncated)
            );
        }
        assert_eq!(
            Tag::parse(&[0x0f, 0xff, 8, 0]),
            Err(ParseError::VlanReservedIdentifier)
        );
    }
}
