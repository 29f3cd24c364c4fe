//! What the first page of a file with a table says, so that another process can go on with it.
//!
//! ```text
//!  0        8          12       16        20         24       32         48             92
//!  +--------+----------+--------+---------+----------+--------+----------+--------------+
//!  | "name" | bytes of | hash   | buckets | ages are | bytes, | hash key | idle times,  |
//!  |        | a bucket | family | now     | mixed    | bound  |          | 11 numbers   |
//!  +--------+----------+--------+---------+----------+--------+----------+--------------+
//! ```
//! All numbers are little-endian. *Ages are mixed* is 1 while idle times are being changed ([`crate::retime`]), else 0. The name is written last: a file without it never was a table.

use crate::memory::PAGE;
use crate::timers::Timeouts;

const NAME: &[u8; 8] = b"swbflow1";
/// Offset of the number of buckets, a multiple of four.
pub(crate) const BUCKETS_AT: usize = 16;
const MIXED_AT: usize = 20;
const TIMES_AT: usize = 48;

/// The contents of the first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) bucket: u32,
    pub(crate) hash_family: u32,
    pub(crate) buckets: u32,
    pub(crate) is_mixed: bool,
    pub(crate) bound: u64,
    pub(crate) hash_key: [u8; 16],
    pub(crate) timeouts: Timeouts,
}

impl Description {
    /// Reads a page; `None` if it is not that of a table.
    pub(crate) fn read(page: &[u8; PAGE]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("four"));
        let mut timeouts = Timeouts::default();
        for (position, time) in timeouts.each_mut().into_iter().enumerate() {
            *time = number(TIMES_AT + 4 * position);
        }
        (page[..8] == *NAME).then(|| Self {
            bucket: number(8),
            hash_family: number(12),
            buckets: number(BUCKETS_AT),
            is_mixed: number(MIXED_AT) != 0,
            bound: u64::from_le_bytes(page[24..32].try_into().expect("eight")),
            hash_key: page[32..48].try_into().expect("sixteen"),
            timeouts,
        })
    }

    /// Writes a page.
    pub(crate) fn write(self, page: &mut [u8; PAGE]) {
        page[8..12].copy_from_slice(&self.bucket.to_le_bytes());
        page[12..16].copy_from_slice(&self.hash_family.to_le_bytes());
        page[BUCKETS_AT..BUCKETS_AT + 4].copy_from_slice(&self.buckets.to_le_bytes());
        page[24..32].copy_from_slice(&self.bound.to_le_bytes());
        page[32..48].copy_from_slice(&self.hash_key);
        write_mixed(page, self.is_mixed);
        write_times(page, &self.timeouts);
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Release);
        page[..8].copy_from_slice(NAME);
    }
}

/// Writes whether ages are being changed. What was written before is there for whoever reads this.
pub(crate) fn write_mixed(page: &mut [u8; PAGE], is_mixed: bool) {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Release);
    page[MIXED_AT..MIXED_AT + 4].copy_from_slice(&u32::from(is_mixed).to_le_bytes());
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Release);
}

/// Writes idle times.
pub(crate) fn write_times(page: &mut [u8; PAGE], timeouts: &Timeouts) {
    let mut timeouts = *timeouts;
    for (position, time) in timeouts.each_mut().into_iter().enumerate() {
        let at = TIMES_AT + 4 * position;
        page[at..at + 4].copy_from_slice(&time.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_what_was_written_and_another_says_nothing() {
        let mut timeouts = Timeouts::default();
        for (position, time) in timeouts.each_mut().into_iter().enumerate() {
            *time = 100 + position as u32;
        }
        let description = Description {
            bucket: 64,
            hash_family: 1,
            buckets: 77_777,
            is_mixed: true,
            bound: 1 << 33,
            hash_key: *b"sixteen bytes...",
            timeouts,
        };
        let mut page = [0; PAGE];
        assert_eq!(Description::read(&page), None);
        description.write(&mut page);
        assert_eq!(Description::read(&page), Some(description));
    }
}
