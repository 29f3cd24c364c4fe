//! MPLS label stacks (RFC 3032, section 2.1).
//!
//! ```text
//!  0                            20         23   24          32 bits
//! +----------------------------+----------+----+-----------+
//! | label                      | class    | S  | TTL       |   S: bottom of stack
//! +----------------------------+----------+----+-----------+
//! ```
//!
//! [`Entry`] is what steering reads and writes: it knows no reserved labels.

use crate::ParseError;
use std::fmt;

/// Bytes of an entry.
pub const ENTRY_LENGTH: usize = 4;
/// Labels below this one are reserved (RFC 3032, section 2.1; RFC 7274).
pub const FIRST_UNRESERVED: u32 = 16;
const LABEL_LIMIT: u32 = 1 << 20;
/// The S bit of an entry.
pub(crate) const BOTTOM_OF_STACK: u32 = 0x100;

/// A label: 20 bits, not reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(u32);

impl Label {
    /// A label, unless the number is reserved or has more than 20 bits.
    #[inline]
    pub const fn new(value: u32) -> Option<Label> {
        if value < FIRST_UNRESERVED || value >= LABEL_LIMIT {
            None
        } else {
            Some(Label(value))
        }
    }

    /// Its number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}

/// A label stack entry of a service path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The label.
    pub label: Label,
    /// Whether it is the last of the stack.
    pub bottom_of_stack: bool,
    /// Time to live.
    pub ttl: u8,
}

impl Entry {
    /// Reads an entry; its traffic class is ignored.
    ///
    /// # Errors
    /// Too short, or a reserved label.
    #[inline(always)]
    pub fn parse(bytes: &[u8]) -> Result<Entry, ParseError> {
        let entry = StackEntry::parse(bytes)?;
        Ok(Entry {
            label: Label::new(entry.label).ok_or(ParseError::MplsReservedLabel)?,
            bottom_of_stack: entry.bottom_of_stack,
            ttl: entry.ttl,
        })
    }

    /// The entry's bytes; traffic class 0.
    #[inline]
    pub const fn to_bytes(self) -> [u8; ENTRY_LENGTH] {
        let entry = StackEntry {
            label: self.label.0,
            traffic_class: 0,
            bottom_of_stack: self.bottom_of_stack,
            ttl: self.ttl,
        };
        entry.to_bytes()
    }
}

/// Any label stack entry, reserved labels included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackEntry {
    /// The label, 20 bits.
    pub label: u32,
    /// Traffic class, 3 bits (RFC 5462).
    pub traffic_class: u8,
    /// Whether it is the last of the stack.
    pub bottom_of_stack: bool,
    /// Time to live.
    pub ttl: u8,
}

impl StackEntry {
    /// Reads an entry.
    ///
    /// # Errors
    /// Too short.
    #[inline(always)]
    pub fn parse(bytes: &[u8]) -> Result<StackEntry, ParseError> {
        let bytes = bytes
            .first_chunk::<ENTRY_LENGTH>()
            .ok_or(ParseError::MplsTruncated)?;
        let word = u32::from_be_bytes(*bytes);
        Ok(StackEntry {
            label: word >> 12,
            traffic_class: (word >> 9 & 7) as u8,
            bottom_of_stack: word & BOTTOM_OF_STACK != 0,
            ttl: word as u8,
        })
    }

    /// The entry's bytes; bits that do not fit are cut off.
    #[inline]
    pub const fn to_bytes(self) -> [u8; ENTRY_LENGTH] {
        let word = self.label << 12
            | (self.traffic_class as u32 & 7) << 9
            | if self.bottom_of_stack {
                BOTTOM_OF_STACK
            } else {
                0
            }
            | self.ttl as u32;
        word.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for value in [16, 17, 0x12345, LABEL_LIMIT - 1] {
            for bottom_of_stack in [false, true] {
                let entry = Entry {
                    label: Label::new(value).unwrap(),
                    bottom_of_stack,
                    ttl: 250,
                };
                assert_eq!(Entry::parse(&entry.to_bytes()), Ok(entry));
            }
        }
    }

    #[test]
    fn reserved_and_large_labels_are_none() {
        for value in (0..16).chain([LABEL_LIMIT, u32::MAX]) {
            assert_eq!(Label::new(value), None);
        }
        assert_eq!(
            Entry::parse(&[0, 0, 0x31, 64]),
            Err(ParseError::MplsReservedLabel)
        );
        assert_eq!(Entry::parse(&[0; 3]), Err(ParseError::MplsTruncated));
    }
}
