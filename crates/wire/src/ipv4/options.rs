//! IPv4 options (RFC 791, section 3.1).
//!
//! ```text
//! 0: end | 1: no operation | other: | kind (copied 1, class 2, number 5) | length, of all three | data |
//! ```

/// An option of more than one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// Its kind, with the copied flag and the class.
    pub kind: u8,
    /// All its bytes, kind and length included.
    pub bytes: &'a [u8],
}

impl Ipv4Option<'_> {
    /// Whether every fragment carries it, not only the first.
    #[inline]
    pub const fn is_copied(&self) -> bool {
        self.kind & 0x80 != 0
    }
}

/// Goes through the options of a header, without padding; ends early at one whose length makes no sense.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Options<'a> {
    /// The options of a header, which has so many bytes.
    pub fn of(packet: &'a [u8], header_length: usize) -> Options<'a> {
        Options {
            rest: packet
                .get(super::HEADER_LENGTH..header_length)
                .unwrap_or_default(),
        }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Ipv4Option<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&kind, behind) = self.rest.split_first()?;
            match kind {
                0 => self.rest = &[],
                1 => self.rest = behind,
                _ => {
                    let length = usize::from(*behind.first()?);
                    if length < 2 {
                        return None;
                    }
                    let (bytes, rest) = self.rest.split_at_checked(length)?;
                    self.rest = rest;
                    return Some(Ipv4Option { kind, bytes });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(bytes: &[u8]) -> Vec<(u8, usize, bool)> {
        let packet = [&[0; 20], bytes].concat();
        Options::of(&packet, packet.len())
            .map(|option| (option.kind, option.bytes.len(), option.is_copied()))
            .collect()
    }

    #[test]
    fn padding_is_skipped_and_an_end_ends() {
        assert_eq!(
            options(&[1, 0x94, 4, 0, 0, 1, 7, 3, 4, 0, 0x94, 4]),
            [(0x94, 4, true), (7, 3, false)]
        );
        assert_eq!(options(&[]), []);
    }

    #[test]
    fn a_senseless_length_ends_the_reading() {
        for bytes in [[7, 0, 7, 2], [7, 1, 7, 2], [7, 5, 0, 0], [1, 1, 1, 7]] {
            assert_eq!(options(&bytes), [], "{bytes:?}");
        }
    }

    #[test]
    fn a_header_length_beyond_the_packet_has_no_options() {
        assert_eq!(Options::of(&[7, 2], 60).next(), None);
        assert_eq!(Options::of(&[0; 60], 19).next(), None);
    }
}
