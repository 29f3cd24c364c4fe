//! Context headers of MD type 2 (RFC 8300, section 2.5.1).
//!
//! ```text
//!  0                2        3          4
//! +----------------+--------+----------+------------------------------------
//! | metadata class | type   |U| length | value, padded to a multiple of 4 bytes
//! +----------------+--------+----------+------------------------------------
//! ```

use crate::ParseError;

const HEADER_LENGTH: usize = 4;

/// A context header; its bit marked U is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextHeader<'a> {
    /// Whose types these are.
    pub class: u16,
    /// What the value means.
    pub kind: u8,
    /// The value without padding.
    pub value: &'a [u8],
}

/// Goes through context headers and ends behind the first one that is wrong.
#[derive(Clone, Debug)]
pub struct ContextHeaders<'a> {
    rest: &'a [u8],
}

impl<'a> ContextHeaders<'a> {
    pub(super) fn new(context: &'a [u8]) -> ContextHeaders<'a> {
        ContextHeaders { rest: context }
    }
}

impl<'a> Iterator for ContextHeaders<'a> {
    type Item = Result<ContextHeader<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let rest = std::mem::take(&mut self.rest);
        let header = rest.split_first_chunk::<HEADER_LENGTH>();
        let Some((&[class_high, class_low, kind, length], values)) = header else {
            return Some(Err(ParseError::NshBadContextHeader));
        };
        let length = usize::from(length & 0x7f);
        let Some(behind) = values.get(length.next_multiple_of(4)..) else {
            return Some(Err(ParseError::NshBadContextHeader));
        };
        self.rest = behind;
        Some(Ok(ContextHeader {
            class: u16::from_be_bytes([class_high, class_low]),
            kind,
            value: &values[..length],
        }))
    }
}
