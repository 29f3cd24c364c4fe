//! Pages for tables that grow, brought in before they are needed.
//!
//! Whoever writes to a page first waits until the kernel has cleared it, and in a virtual machine until its host has found it: 0.3 ms, or
//! 7, for each 2 MB. A thread does that for tables instead, so that packets do not wait.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use crate::memory::{HUGE, Mapping};

/// Bytes ahead of a large table; of a smaller one, as many as it has.
const LEAD: usize = 16 << 20;

/// A range of a mapping, in bytes, both multiples of [`HUGE`] or the mapping's end.
struct Request {
    mapping: Arc<Mapping>,
    from: usize,
    to: usize,
}

/// A thread that brings in pages. It ends with the last of these values, and of the tables that have one.
#[derive(Clone, Debug)]
pub struct PagesAhead(Arc<Thread>);

#[derive(Debug)]
struct Thread {
    /// Nothing once it is to end.
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl PagesAhead {
    /// Starts the thread, on the processors of the caller.
    ///
    /// # Errors
    /// The system has no room for a thread.
    pub fn start() -> io::Result<PagesAhead> {
        let (requests, orders) = mpsc::channel::<Request>();
        let thread = thread::Builder::new().name("pages".into()).spawn(move || {
            for Request { mapping, from, to } in orders {
                // One by one: whoever changes the address space meanwhile waits for one page only.
                for start in (from..to).step_by(HUGE) {
                    // Where that fails the table's owner brings it in when it needs it, and says so if it cannot.
                    let _ = mapping.populate(start, to.min(start + HUGE));
                }
            }
        })?;
        Ok(PagesAhead(Arc::new(Thread {
            requests: Some(requests),
            thread: Some(thread),
        })))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // It has panicked when this fails.
            let _ = thread.join();
        }
    }
}

/// How far pages of one mapping were asked for.
pub(crate) struct Front {
    ahead: PagesAhead,
    asked: usize,
}

impl Front {
    pub(crate) fn new(ahead: PagesAhead) -> Front {
        Front { ahead, asked: 0 }
    }

    /// Asks for pages ahead of the first `used` bytes of so many; returns how many may be used until the next call.
    pub(crate) fn ask(&mut self, mapping: &Arc<Mapping>, used: usize, usable: usize) -> usize {
        let lead = used.clamp(HUGE, LEAD);
        let to = (used + lead).next_multiple_of(HUGE).min(usable);
        if to > self.asked {
            let request = Request {
                mapping: mapping.clone(),
                from: self.asked.max(used / HUGE * HUGE),
                to,
            };
            if let Some(requests) = &self.ahead.0.requests {
                // A thread that has panicked asks for no pages any more: they come when they are used.
                let _ = requests.send(request);
            }
            self.asked = to;
        }
        match self.asked < usable {
            true => self.asked - lead / 2,
            false => usable,
        }
    }
}
