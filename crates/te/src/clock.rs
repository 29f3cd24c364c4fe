//! When a solve ends before its work is done: its time is up, or somebody asks for what there is.
//!
//! Every loop that may take long asks [`Clock::is_over`] now and then and leaves what it holds in a state from which an
//! answer can be given. Asking is a question to the monitor and a look at the clock, some tens of nanoseconds.

use std::time::{Duration, Instant};

use crate::lp::{Interrupt, Monitor, Options};
use crate::solution::Status;

/// Pieces of work of some microseconds between two questions.
pub(crate) const OFTEN: usize = 16;

/// The clock of one solve.
pub(crate) struct Clock<'a> {
    start: Instant,
    limit: Duration,
    grace: Duration,
    interrupt: Option<Interrupt<'a>>,
}

impl<'a> Clock<'a> {
    /// A clock that starts now.
    pub fn new(options: &Options, monitor: &Monitor<'a>) -> Clock<'a> {
        Clock {
            start: Instant::now(),
            limit: options.time_limit,
            grace: options.grace,
            interrupt: monitor.interrupt,
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether somebody asked for what there is.
    pub fn interrupted(&self) -> bool {
        self.interrupt.is_some_and(|asked| asked())
    }

    /// Whether to stop.
    pub fn is_over(&self) -> bool {
        self.interrupted() || self.elapsed() >= self.limit
    }

    /// Whether to stop, asked once in some pieces of work; `piece` counts them.
    #[inline]
    pub fn is_over_at(&self, piece: usize) -> bool {
        piece.is_multiple_of(OFTEN) && self.is_over()
    }

    /// The time there is beyond the end for what makes an answer whole; it runs from when that is first asked for in vain.
    pub fn grace(&self) -> Grace<'_> {
        Grace {
            clock: self,
            until: None,
        }
    }

    /// Options for a part of the work: an `n`-th of the time that is left.
    pub fn share(&self, options: &Options, n: usize) -> Options {
        Options {
            time_limit: self.limit.saturating_sub(self.elapsed()) / n.max(1) as u32,
            ..options.clone()
        }
    }

    /// How a solve ended whose answer has this gap, where `wanted` was asked for.
    pub fn status(&self, gap: Option<f64>, wanted: f64) -> Status {
        match gap {
            Some(gap) if gap <= wanted => Status::Optimal,
            _ => self.ended(Status::Feasible),
        }
    }

    /// How a solve ended: `done`, unless it was stopped.
    pub fn ended(&self, done: Status) -> Status {
        if self.interrupted() {
            Status::Interrupted
        } else if self.is_over() {
            Status::TimeLimit
        } else {
            done
        }
    }
}

/// See [`Clock::grace`].
pub(crate) struct Grace<'a> {
    clock: &'a Clock<'a>,
    until: Option<Instant>,
}

impl Grace<'_> {
    /// Whether to stop, and to stop even what makes the answer whole.
    pub fn is_over(&mut self) -> bool {
        if !self.clock.is_over() {
            return false;
        }
        let now = Instant::now();
        *self.until.get_or_insert(now + self.clock.grace) <= now
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_clock_is_over_by_time_or_by_word() {
        let flag = AtomicBool::new(false);
        let asked = || flag.load(Ordering::Relaxed);
        let monitor = Monitor {
            interrupt: Some(&asked),
            ..Monitor::default()
        };
        let long = Options::default();
        let none = Options {
            time_limit: Duration::ZERO,
            ..Options::default()
        };
        let clock = Clock::new(&long, &monitor);
        assert!(!clock.is_over() && clock.ended(Status::Feasible) == Status::Feasible);
        assert!(clock.share(&long, 2).time_limit <= long.time_limit / 2);
        let over = Clock::new(&none, &monitor);
        assert!(over.is_over() && over.ended(Status::Feasible) == Status::TimeLimit);
        assert_eq!(over.status(Some(0.1), 0.2), Status::Optimal);
        assert!(over.is_over_at(OFTEN) && !over.is_over_at(OFTEN + 1));
        flag.store(true, Ordering::Relaxed);
        assert!(clock.is_over() && clock.status(None, 1.0) == Status::Interrupted);
    }

    #[test]
    fn grace_begins_when_the_clock_is_over() {
        let (flag, none) = (AtomicBool::new(false), Duration::ZERO);
        let asked = || flag.load(Ordering::Relaxed);
        let monitor = Monitor {
            interrupt: Some(&asked),
            ..Monitor::default()
        };
        for (grace, over) in [(none, true), (Duration::from_secs(3600), false)] {
            flag.store(false, Ordering::Relaxed);
            let options = Options {
                grace,
                ..Options::default()
            };
            let clock = Clock::new(&options, &monitor);
            let mut grace = clock.grace();
            assert!(!grace.is_over());
            flag.store(true, Ordering::Relaxed);
            assert_eq!((grace.is_over(), grace.is_over()), (over, over));
        }
    }
}
