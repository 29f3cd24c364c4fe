//! A master's blocks dealt out to threads.

use std::ops::Range;

use super::Master;

/// Entries below which starting a thread costs more than it saves.
const WORTHWHILE: usize = 100_000;

/// Consecutive blocks and their columns.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub blocks: Range<usize>,
    pub columns: Range<usize>,
}

impl Master {
    /// Parts of about equally many entries, one for each thread.
    pub(super) fn parts(&self) -> Vec<Part> {
        let blocks = self.blocks.len() - 1;
        let first_entry = |block: usize| self.start[self.blocks[block] as usize] as usize;
        let entries = first_entry(blocks);
        let count = if entries < WORTHWHILE {
            1
        } else {
            self.threads.max(1)
        };
        let mut ends = vec![0];
        for block in 0..blocks {
            if first_entry(block + 1) * count >= entries * ends.len() && ends.len() < count {
                ends.push(block + 1);
            }
        }
        ends.push(blocks);
        ends.windows(2)
            .map(|end| Part {
                blocks: end[0]..end[1],
                columns: self.blocks[end[0]] as usize..self.blocks[end[1]] as usize,
            })
            .collect()
    }
}

/// Does the work of every part, the first on this thread; results in the order of the parts.
pub(super) fn in_parts<T: Send, S: Send>(
    parts: &[Part],
    scratch: &mut [S],
    work: impl Fn(&Part, &mut S) -> T + Sync,
) -> Vec<T> {
    let mut pairs = parts.iter().zip(scratch);
    let Some((first, mine)) = pairs.next() else {
        return Vec::new();
    };
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = pairs
            .map(|(part, scratch)| scope.spawn(move || work(part, scratch)))
            .collect();
        let mut results = vec![work(first, mine)];
        results.extend(
            others
                .into_iter()
                .map(|thread| thread.join().expect("a part does not panic")),
        );
        results
    })
}
