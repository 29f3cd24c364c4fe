//! Solves that are stopped at a question of their own counting: the same one on every machine, however busy.
#![allow(dead_code)] // Each test binary uses its own part.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use te::lp::{Monitor, Options};

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Options under which nothing but the monitor ends a solve, and what makes an answer whole is left away at once.
pub fn patient(gap: f64) -> Options {
    Options {
        gap,
        time_limit: FOR_EVER,
        grace: Duration::ZERO,
        threads: 1,
    }
}

/// As [`patient`], with as much time as it takes to make an answer whole.
pub fn graceful(gap: f64) -> Options {
    Options {
        grace: FOR_EVER,
        ..patient(gap)
    }
}

/// Does work that is told to stop at its question number `n`, counted from 0, and ever after. Also whether it asked so
/// often.
pub fn stopped_at<T>(n: usize, work: impl FnOnce(&Monitor<'_>) -> T) -> (T, bool) {
    let count = AtomicUsize::new(0);
    let asked = || count.fetch_add(1, Ordering::Relaxed) >= n;
    let result = work(&Monitor {
        report: None,
        interrupt: Some(&asked),
    });
    (result, count.into_inner() > n)
}

/// Does work again and again, stopped at each of its first questions, then at ever larger steps that differ from seed to
/// seed, until it ends by itself. `look` gets what came of it, and whether it was stopped. Returns how often it was.
pub fn stopped_everywhere<T>(
    seed: u64,
    work: impl Fn(&Monitor<'_>) -> T,
    mut look: impl FnMut(usize, T, bool),
) -> usize {
    let (mut n, mut times) = (0, 0);
    loop {
        let (result, stopped) = stopped_at(n, &work);
        look(n, result, stopped);
        if !stopped {
            return times;
        }
        times += 1;
        n += 1 + if n < 24 { 0 } else { n / 6 + seed as usize % 5 };
    }
}
