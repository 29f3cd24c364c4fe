//! Work on numbered things, shared by threads.

use std::ops::Range;

/// Calls `part` for consecutive ranges of `0..count`, one for each thread, and returns what it gave in their order.
/// Below `least` it is not worth threads: the ranges are the same, so that sums over them are too, but one thread
/// works through all of them.
pub fn in_parts<T: Send>(
    count: usize,
    threads: usize,
    least: usize,
    part: impl Fn(Range<usize>) -> T + Sync,
) -> Vec<T> {
    let share = count.div_ceil(threads.max(1)).max(1);
    let ranges = (0..count)
        .step_by(share)
        .map(|first| first..(first + share).min(count));
    if threads <= 1 || count < least {
        return ranges.map(part).collect();
    }
    std::thread::scope(|scope| {
        let part = &part;
        let handles: Vec<_> = ranges
            .map(|range| scope.spawn(move || part(range)))
            .collect();
        handles
            .into_iter()
            .map(|h| h.join().expect("a part does not panic"))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_same_with_and_without_threads() {
        for (count, threads) in [(0, 2), (1, 4), (7, 1), (7, 3), (8, 16)] {
            let alone = in_parts(count, threads, usize::MAX, |range| range);
            let shared = in_parts(count, threads, 0, |range| range);
            assert_eq!(alone, shared);
            assert!(alone.len() <= threads);
            assert!(alone.into_iter().flatten().eq(0..count));
        }
    }
}
