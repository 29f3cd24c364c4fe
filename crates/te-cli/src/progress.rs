//! Progress on standard error.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use te::lp::{Monitor, Phase, Progress};

use crate::arguments::Arguments;
use crate::interruption;

/// Solves shorter than this say nothing.
const QUIET_FOR: Duration = Duration::from_secs(2);

/// Least time between two lines.
const INTERVAL: Duration = Duration::from_millis(500);

/// Most time between two lines: where nothing new is known after it, what is known is said again.
const SILENCE: Duration = Duration::from_secs(2);

/// Does work that says how far it is, unless the arguments want it quiet, and ends early when somebody asks for it.
pub fn watched<T>(arguments: &Arguments, work: impl FnOnce(&Monitor<'_>) -> T) -> T {
    interruption::answered();
    printing(arguments, |printer| {
        let report = |progress: &Progress| printer.report(progress);
        work(&Monitor {
            report: Some(&report),
            interrupt: Some(&interruption::asked),
        })
    })
}

/// Does work that has no answer before it is done, and says how much of it is done, unless the arguments want it quiet.
pub fn telling<T>(arguments: &Arguments, work: impl FnOnce(&dyn Fn(f64)) -> T) -> T {
    let start = Instant::now();
    printing(arguments, |printer| {
        work(&|done| {
            printer.report(&Progress {
                done: Some(done),
                ..Progress::at(start.elapsed())
            });
        })
    })
}

/// Does work with a printer on standard error, silent if the arguments want it quiet.
fn printing<T>(arguments: &Arguments, work: impl FnOnce(&Printer) -> T) -> T {
    let quiet = arguments.is_quiet();
    let printer = Printer::new(move |text: &str| {
        if !quiet {
            eprintln!("{text}");
        }
    });
    printer.while_at_work(|| work(&printer))
}

/// Prints the progress of work that takes long.
struct Printer {
    print: Box<dyn Fn(&str) + Sync>,
    state: Mutex<State>,
}

/// What a printer has heard and said.
struct State {
    /// What was reported last,
    known: Progress,
    /// and when.
    heard: Instant,
    /// When a line was printed last.
    said: Option<Instant>,
}

impl State {
    /// What is known, as of now.
    fn now(&self) -> Progress {
        Progress {
            elapsed: self.known.elapsed + self.heard.elapsed(),
            ..self.known
        }
    }

    fn was_silent_for(&self, time: Duration) -> bool {
        self.said.is_none_or(|said| said.elapsed() >= time)
    }
}

impl Printer {
    /// A printer of lines of work that begins now.
    fn new(print: impl Fn(&str) + Sync + 'static) -> Printer {
        Printer {
            print: Box::new(print),
            state: Mutex::new(State {
                known: Progress::at(Duration::ZERO),
                heard: Instant::now(),
                said: None,
            }),
        }
    }

    /// Does some work, and says again what is known whenever nothing was said of it for long.
    fn while_at_work<T>(&self, work: impl FnOnce() -> T) -> T {
        let (at_work, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    self.say(SILENCE);
                }
            });
            let result = work();
            drop(at_work);
            result
        })
    }

    /// Prints a line, if it is time for one. What explains an answer is a solve of its own, with a clock that begins anew.
    fn report(&self, progress: &Progress) {
        if let Ok(mut state) = self.state.lock() {
            (state.known, state.heard) = (*progress, Instant::now());
        }
        self.say(INTERVAL);
    }

    /// Prints what is known, unless a line was printed in the time before, or the work is still short.
    fn say(&self, pause: Duration) {
        let Ok(mut state) = self.state.lock() else {
            return;
        };
        let now = state.now();
        if now.elapsed >= QUIET_FOR && state.was_silent_for(pause) {
            state.said = Some(Instant::now());
            (self.print)(&line(&now));
        }
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
    use std::sync::Arc;

    use super::*;

    fn at(seconds: u64) -> Progress {
        Progress {
            value: 1.0,
            bound: 2.0,
            gap: 0.5,
            ..Progress::at(Duration::from_secs(seconds))
        }
    }

    /// A printer whose lines are kept.
    fn kept() -> (Printer, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&lines);
        let printer = Printer::new(move |text: &str| {
            to.lock().expect("nothing panicked").push(text.to_owned());
        });
        (printer, lines)
    }

    #[test]
    fn a_clock_that_begins_anew_is_no_accident() {
        let (printer, lines) = kept();
        for seconds in [5, 3, 9, 1] {
            printer.report(&at(seconds));
            printer.state.lock().expect("nothing panicked").said = None;
        }
        let lines = lines.lock().expect("nothing panicked");
        let begin: Vec<&str> = lines.iter().map(|line| &line[..8]).collect();
        assert_eq!(begin, ["     5.0", "     3.0", "     9.0"]);
    }

    #[test]
    fn what_is_known_is_said_again_while_nothing_is_reported() {
        let (printer, lines) = kept();
        printer.report(&Progress {
            elapsed: QUIET_FOR / 2,
            ..at(0)
        });
        assert_eq!(lines.lock().expect("nothing panicked").len(), 0);
        printer.while_at_work(|| {
            let start = Instant::now();
            while lines.lock().expect("nothing panicked").is_empty() {
                assert!(start.elapsed() < 20 * SILENCE, "nothing is said");
                thread::sleep(INTERVAL / 10);
            }
        });
        let lines = lines.lock().expect("nothing panicked");
        let end = "best 1.000000  bound 2.000000  gap 5.00e-1";
        assert!(lines[0].ends_with(end), "{lines:?}");
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
