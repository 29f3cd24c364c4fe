//! Progress on standard error, and Ctrl-C.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use te::lp::Progress;

/// Solves shorter than this say nothing.
const QUIET_FOR: Duration = Duration::from_secs(2);

/// Least time between two lines.
const INTERVAL: Duration = Duration::from_millis(500);

/// A flag that Ctrl-C or a termination signal sets; a second signal ends the process.
pub fn interrupt() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Order matters: the second signal finds the flag set and ends the process.
        let registered =
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)));
        if let Err(e) = registered {
            eprintln!("switchboard-te: Ctrl-C will end this without an answer: {e}");
        }
    }
    flag
}

/// Prints the progress of a solve that takes long.
pub struct Printer {
    last: Mutex<Duration>,
    quiet: bool,
}

impl Printer {
    /// A printer; a quiet one prints nothing.
    pub fn new(quiet: bool) -> Printer {
        Printer {
            last: Mutex::new(Duration::ZERO),
            quiet,
        }
    }

    /// Prints a line, if it is time for one. A plan is several solves, each with a clock that begins anew.
    pub fn report(&self, progress: &Progress) {
        if self.quiet || progress.elapsed < QUIET_FOR {
            return;
        }
        let Ok(mut last) = self.last.lock() else {
            return;
        };
        if !last.is_zero() && progress.elapsed.abs_diff(*last) < INTERVAL {
            return;
        }
        *last = progress.elapsed;
        eprintln!(
            "{:8.1} s  best {:.6}  bound {:.6}  gap {:.2e}",
            progress.elapsed.as_secs_f64(),
            progress.value,
            progress.bound,
            progress.gap
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_begins_anew_is_no_accident() {
        let printer = Printer::new(false);
        let at = |seconds: u64| Progress {
            elapsed: Duration::from_secs(seconds),
            value: 1.0,
            bound: 2.0,
            gap: 0.5,
        };
        for seconds in [5, 3, 9, 2] {
            printer.report(&at(seconds));
            let last = *printer.last.lock().expect("nothing panicked");
            assert_eq!(last, Duration::from_secs(seconds));
        }
    }
}
