//! MPLS label stacks (RFC 3032, section 2.1).
//!
//! ```text
//!  0                            20         23   24          32 bits
//! +----------------------------+----------+----+-----------+
//! | label                      | class    | S  | TTL       |   S: bottom of stack
//! +----------------------------+----------+----+-----------+
//! ```
//!
//! [`Entry`] is what steering reads and writes: it knows no reserved labels. [`Stack`] goes through any label stack.

use crate::ParseError;
use std::fmt;

/// Bytes of an entry.
pub const ENTRY_LENGTH: usize = 4;
/// Labels below this one are reserved (RFC 3032, section 2.1; RFC 7274).
pub const FIRST_UNRESERVED: u32 = 16;
/// Entries of a stack that are read at most.
pub const DEPTH_LIMIT: usize = 16;
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

/// Goes through a label stack from its top, and ends behind its bottom or the first error.
#[derive(Clone, Debug)]
pub struct Stack<'a> {
    bytes: &'a [u8],
    depth: usize,
    ended: bool,
}

impl<'a> Stack<'a> {
    /// The stack at the start of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Stack<'a> {
        Stack {
            bytes,
            depth: 0,
            ended: false,
        }
    }

    /// Bytes of the entries read so far.
    #[inline]
    pub const fn length(&self) -> usize {
        self.depth * ENTRY_LENGTH
    }
}

impl Iterator for Stack<'_> {
    type Item = Result<StackEntry, ParseError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let rest = self.bytes.get(self.length()..).unwrap_or_default();
        let entry = if self.depth == DEPTH_LIMIT {
            Err(ParseError::MplsTooDeep)
        } else if rest.is_empty() {
            Err(ParseError::MplsNoBottomOfStack)
        } else {
            StackEntry::parse(rest)
        };
        match entry {
            Ok(entry) => {
                self.depth += 1;
                self.ended = entry.bottom_of_stack;
            }
            Err(_) => self.ended = true,
        }
        Some(entry)
    }
}

/// Lowers the TTL of the entry at the start of `bytes` in place (RFC 3032, section 2.4.2); returns what is left.
///
/// # Errors
/// Too short, or nothing would be left: the packet must not be forwarded.
#[inline]
pub fn decrement_ttl(bytes: &mut [u8]) -> Result<u8, ParseError> {
    let entry = bytes
        .first_chunk_mut::<ENTRY_LENGTH>()
        .ok_or(ParseError::MplsTruncated)?;
    match entry[3] {
        0 | 1 => Err(ParseError::MplsTtlExpired),
        ttl => {
            entry[3] = ttl - 1;
            Ok(ttl - 1)
        }
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

    fn stack(depth: usize) -> Vec<u8> {
        (0..depth)
            .flat_map(|i| {
                StackEntry {
                    label: i as u32,
                    traffic_class: i as u8 & 7,
                    bottom_of_stack: i + 1 == depth,
                    ttl: 255 - i as u8,
                }
                .to_bytes()
            })
            .chain([0x45; 4])
            .collect()
    }

    #[test]
    fn a_stack_is_read_to_its_bottom_and_no_further() {
        for depth in 1..=DEPTH_LIMIT {
            let bytes = stack(depth);
            let mut walk = Stack::new(&bytes);
            let entries: Vec<_> = walk.by_ref().map(Result::unwrap).collect();
            assert_eq!((entries.len(), walk.length()), (depth, 4 * depth));
            assert_eq!(entries[depth - 1].label as usize, depth - 1);
            assert_eq!(entries[depth - 1].traffic_class as usize, (depth - 1) & 7);
        }
    }

    #[test]
    fn a_stack_without_a_bottom_is_named() {
        let bytes = stack(3);
        for (length, error) in [
            (0, ParseError::MplsNoBottomOfStack),
            (3, ParseError::MplsTruncated),
            (4, ParseError::MplsNoBottomOfStack),
            (7, ParseError::MplsTruncated),
            (8, ParseError::MplsNoBottomOfStack),
        ] {
            let last = Stack::new(&bytes[..length]).last().unwrap();
            assert_eq!(last, Err(error), "{length}");
        }
        let last = Stack::new(&stack(DEPTH_LIMIT + 1)).last().unwrap();
        assert_eq!(last, Err(ParseError::MplsTooDeep));
    }

    #[test]
    fn the_ttl_falls_to_one_and_changes_nothing_else() {
        let mut bytes = [0xff; 5];
        for left in (1..255).rev() {
            assert_eq!(decrement_ttl(&mut bytes), Ok(left));
            assert_eq!(bytes, [0xff, 0xff, 0xff, left, 0xff]);
        }
        for ttl in [1, 0] {
            bytes[3] = ttl;
            assert_eq!(decrement_ttl(&mut bytes), Err(ParseError::MplsTtlExpired));
            assert_eq!(bytes[3], ttl);
        }
        assert_eq!(
            decrement_ttl(&mut bytes[..3]),
            Err(ParseError::MplsTruncated)
        );
    }
}
