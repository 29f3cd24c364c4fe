//! Progress on standard error.

use std::fmt::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use te::lp::{Monitor, Phase, Progress};

use crate::arguments::Arguments;
use crate::interruption;

/// Solves shorter than this say nothing.
const QUIET_FOR: Duration = Duration::from_secs(2);

/// Least time between two lines.
const INTERVAL: Duration = Duration::from_millis(500);

/// Does work that says how far it is, unless the arguments want it quiet, and ends early when somebody asks for it.
pub fn watched<T>(arguments: &Arguments, work: impl FnOnce(&Monitor<'_>) -> T) -> T {
    let printer = Printer::new(arguments.is_quiet());
    let report = |progress: &Progress| printer.report(progress);
    interruption::answered();
    work(&Monitor {
        report: Some(&report),
        interrupt: Some(&interruption::asked),
    })
}

/// Does work that has no answer before it is done, and says how much of it is done, unless the arguments want it quiet.
pub fn telling<T>(arguments: &Arguments, work: impl FnOnce(&dyn Fn(f64)) -> T) -> T {
    let (printer, start) = (Printer::new(arguments.is_quiet()), Instant::now());
    work(&|done| {
        printer.report(&Progress {
            done: Some(done),
            ..Progress::at(start.elapsed())
        });
    })
}

/// Prints the progress of a solve that takes long.
struct Printer {
    last: Mutex<Duration>,
    quiet: bool,
}

impl Printer {
    /// A printer; a quiet one prints nothing.
    fn new(quiet: bool) -> Printer {
        Printer {
            last: Mutex::new(Duration::ZERO),
            quiet,
        }
    }

    /// Prints a line, if it is time for one. What explains an answer is a solve of its own, with a clock that begins anew.
    fn report(&self, progress: &Progress) {
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
        eprintln!("{}", line(progress));
    }
}

/// A line of progress; what is not known yet is `none`, and left out where nothing of the kind will be known in this part of
/// the work.
fn line(progress: &Progress) -> String {
    let known = |value: f64| {
        if value.is_finite() {
            format!("{value:.6}")
        } else {
            "none".into()
        }
    };
    let mut line = format!("{:8.1} s", progress.elapsed.as_secs_f64());
    let phase = progress.phase.name();
    if !phase.is_empty() {
        write!(line, "  {phase}:").expect("a string takes all");
    }
    let only_done = progress.done.is_some() || progress.phase == Phase::Fit;
    let gap = if progress.gap.is_finite() {
        format!("{:.2e}", progress.gap)
    } else {
        "none".into()
    };
    let (best, bound) = (known(progress.value), known(progress.bound));
    if !only_done || progress.value.is_finite() || progress.bound.is_finite() {
        write!(line, "  best {best}  bound {bound}  gap {gap}").expect("a string takes all");
    }
    if let Some(done) = progress.done {
        write!(line, "  done {:.0} %", 100.0 * done).expect("a string takes all");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Progress {
        Progress {
            value: 1.0,
            bound: 2.0,
            gap: 0.5,
            ..Progress::at(Duration::from_secs(seconds))
        }
    }

    #[test]
    fn a_clock_that_begins_anew_is_no_accident() {
        let printer = Printer::new(false);
        for seconds in [5, 3, 9, 2] {
            printer.report(&at(seconds));
            let last = *printer.last.lock().expect("nothing panicked");
            assert_eq!(last, Duration::from_secs(seconds));
        }
    }

    #[test]
    fn what_is_not_known_is_not_printed_as_a_number() {
        let known = line(&at(3));
        assert_eq!(
            known,
            "     3.0 s  best 1.000000  bound 2.000000  gap 5.00e-1"
        );
        let unknown = Progress {
            value: f64::INFINITY,
            bound: f64::NAN,
            gap: f64::NAN,
            ..at(12)
        };
        assert_eq!(
            line(&unknown),
            "    12.0 s  best none  bound none  gap none"
        );
        let even = Progress {
            phase: Phase::EvenSpread,
            bound: f64::NAN,
            gap: f64::NAN,
            ..at(5)
        };
        assert_eq!(
            line(&even),
            "     5.0 s  even spread:  best 1.000000  bound none  gap none"
        );
        let fit = Progress {
            phase: Phase::Fit,
            ..Progress::at(Duration::from_secs(5))
        };
        assert_eq!(line(&fit), "     5.0 s  whether all demand fits:");
        let part = |value| Progress {
            value,
            done: Some(0.25),
            ..unknown
        };
        assert_eq!(line(&part(f64::NAN)), "    12.0 s  done 25 %");
        let text = "    12.0 s  best 7.000000  bound none  gap none  done 25 %";
        assert_eq!(line(&part(7.0)), text);
    }
}
