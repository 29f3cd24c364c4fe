//! Captures and traces of what a forwarder does.

use contracts::forwarder::{Match, PortRange, TraceRequest};
use forwarder::capture::{Capture, Captures, Filter, LARGEST_SNAP_LENGTH};
use forwarder::trace::{self, Trace};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Filters there are: everything; hosts over IPv4; hosts over IPv6; one service of TCP, with answers.
const FILTERS: u8 = 4;

/// Whether a capture with a filter has shown anything so far.
pub static SHOWN: [AtomicBool; FILTERS as usize] = [const { AtomicBool::new(false) }; _];
/// Whether a trace with it has told anything.
pub static TOLD: [AtomicBool; FILTERS as usize] = [const { AtomicBool::new(false) }; _];

fn filter(number: u8) -> Option<Match> {
    let hosts = |prefix: &str| Match {
        source_prefixes: vec![prefix.into()],
        ..Match::default()
    };
    match number % FILTERS {
        0 => None,
        1 => Some(hosts("10.1.0.8/31")),
        2 => Some(hosts("2001:db8:1::/64")),
        _ => Some(Match {
            protocols: vec![6],
            destination_ports: vec![PortRange {
                first: 80,
                last: 80,
            }],
            ..Match::default()
        }),
    }
}

/// A trace of what filter `number` lets through.
pub fn trace(number: u8) -> Trace {
    let request = TraceRequest {
        r#match: filter(number),
        both_directions: true,
        limit: 100,
        duration_ms: 1000,
        ..TraceRequest::default()
    };
    Trace::new(&request).expect("a right request")
}

/// A frame that was captured: whether it was sent, its port's name, its bytes.
pub type Seen = (bool, String, Vec<u8>);

/// The reader of a capture.
pub struct Reader {
    captures: Captures,
    /// The filter's number.
    filter: u8,
}

/// A capture of what filter `number` lets through, and its reader.
pub fn capture(number: u8) -> (Capture, Reader) {
    let matched = filter(number);
    let filter = Filter {
        connections: trace::Filter::new(matched.as_ref(), true).expect("a right filter"),
        ..Filter::default()
    };
    let (capture, captures) = Capture::new(filter, LARGEST_SNAP_LENGTH);
    let filter = number % FILTERS;
    (capture, Reader { captures, filter })
}

impl Reader {
    /// Checks that what was captured of a round are frames that passed in it, in their order: all of them, if everything is captured.
    pub fn check(&mut self, passed: &[Seen]) {
        let mut passed = passed.iter();
        let is_whole = self.filter == 0;
        while let Ok(captured) = self.captures.try_next() {
            let is_it = |(sent, port, bytes): &&Seen| {
                (captured.sent, captured.port, captured.bytes) == (*sent, port, bytes)
            };
            assert_eq!(captured.length, captured.bytes.len());
            SHOWN[usize::from(self.filter)].store(true, Relaxed);
            match is_whole {
                true => assert!(passed.next().as_ref().is_some_and(is_it), "what passed"),
                false => assert!(passed.any(|one| is_it(&one)), "what passed"),
            }
        }
        assert_eq!(self.captures.lost(), 0, "there is room");
        assert!(!is_whole || passed.next().is_none(), "all of it");
    }
}
