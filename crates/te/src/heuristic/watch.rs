//! What watches a heuristic at work: says how far it is, and when to come to an end.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::{Clock, OFTEN};
use crate::lp::{Monitor, Options, Progress};

/// Least time between two reports.
const INTERVAL: Duration = Duration::from_millis(200);

/// A heuristic's clock and the one who wants to know.
pub(super) struct Watch<'a> {
    pub clock: Clock<'a>,
    monitor: &'a Monitor<'a>,
    last: Cell<Duration>,
    cut_short: Cell<bool>,
}

impl<'a> Watch<'a> {
    pub fn new(options: &Options, monitor: &'a Monitor<'a>) -> Watch<'a> {
        Watch {
            clock: Clock::new(options, monitor),
            monitor,
            last: Cell::new(Duration::ZERO),
            cut_short: Cell::new(false),
        }
    }

    /// Whether to come to an end; asked once in some pieces of work. Whoever is told so leaves something undone.
    pub fn is_over_at(&self, piece: usize) -> bool {
        let over = self.clock.is_over_at(piece);
        self.cut_short.set(self.cut_short.get() || over);
        over
    }

    /// Whether anybody was told to come to an end.
    pub fn was_cut_short(&self) -> bool {
        self.cut_short.get()
    }

    /// Says, if it is time, how far the work is, and the value so far; looks at the clock once in some pieces of work.
    pub fn report(&self, piece: usize, done: f64, value: impl FnOnce() -> f64) {
        let Some(report) = self.monitor.report.filter(|_| piece.is_multiple_of(OFTEN)) else {
            return;
        };
        let elapsed = self.clock.elapsed();
        if elapsed < self.last.get() + INTERVAL {
            return;
        }
        self.last.set(elapsed);
        report(&Progress {
            value: value(),
            done: Some(done),
            ..Progress::at(elapsed)
        });
    }
}
