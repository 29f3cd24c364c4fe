//! Where frames leave the pipeline: lists by port, frames made here in their turn, and what other workers are to get.

use crate::neighbours;
use wire::MacAddress;

/// Where frames leave.
pub struct Output<F> {
    /// Frames to send, by port.
    pub ports: Vec<Vec<F>>,
    /// Frames made here (answers, fragments).
    pub made: Vec<Made>,
    /// Frames that other workers are to deal with; none where there is one worker.
    pub away: AwayFrames<F>,
    /// What neighbours said; nothing where there is one worker.
    pub heard: Vec<Heard>,
}

/// What a worker is to do with a frame that another one received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Steer it: its connection is at home there.
    Steer,
    /// Find out which connection a fragment belongs to.
    Join,
}

/// Frames that another worker is to deal with, in their order: alike but for what is in them.
#[derive(Debug)]
pub struct Away<F> {
    /// The worker.
    pub worker: usize,
    /// What it is to do.
    pub errand: Errand,
    /// The port the frames arrived at, position in the rules.
    pub port: usize,
    /// The frames, as they arrived.
    pub frames: Vec<F>,
}

/// Frames that other workers are to deal with.
#[derive(Debug)]
pub struct AwayFrames<F> {
    batches: Vec<Away<F>>,
    /// Empty lists, kept for their memory.
    spare: Vec<Vec<F>>,
}

/// Empty lists that are kept at most.
const SPARE: usize = 64;

impl<F> Default for AwayFrames<F> {
    fn default() -> Self {
        AwayFrames {
            batches: Vec::new(),
            spare: Vec::new(),
        }
    }
}

impl<F> AwayFrames<F> {
    /// Adds a frame behind those for the same worker.
    pub fn push(&mut self, worker: usize, errand: Errand, port: usize, frame: F) {
        self.list(worker, errand, port).push(frame);
    }

    /// Adds frames behind those for the same worker, and empties their list.
    pub(crate) fn append(
        &mut self,
        worker: usize,
        errand: Errand,
        port: usize,
        frames: &mut Vec<F>,
    ) {
        self.list(worker, errand, port).append(frames);
    }

    /// The frames for a worker that are alike.
    fn list(&mut self, worker: usize, errand: Errand, port: usize) -> &mut Vec<F> {
        let alike =
            |away: &Away<F>| away.worker == worker && away.port == port && away.errand == errand;
        let at = self.batches.iter().position(alike).unwrap_or_else(|| {
            let frames = self.spare.pop().unwrap_or_default();
            self.batches.push(Away {
                worker,
                errand,
                port,
                frames,
            });
            self.batches.len() - 1
        });
        &mut self.batches[at].frames
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Takes all out.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = Away<F>> {
        self.batches.drain(..)
    }

    /// Keeps a list that is not needed any more.
    pub(crate) fn keep_list(&mut self, list: Vec<F>) {
        if list.is_empty() && self.spare.len() < SPARE {
            self.spare.push(list);
        }
    }
}

/// What a neighbour said of its Ethernet address: all workers are to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Which neighbour, its port as a position in the rules.
    pub who: neighbours::Key,
    /// Its address.
    pub mac: MacAddress,
}

/// A frame made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Port to leave by.
    pub port: usize,
    /// Received frames that leave by this port before it.
    pub behind: usize,
    /// The frame.
    pub bytes: Vec<u8>,
}

impl<F> Default for Output<F> {
    fn default() -> Self {
        Output {
            ports: Vec::new(),
            made: Vec::new(),
            away: AwayFrames::default(),
            heard: Vec::new(),
        }
    }
}

impl<F> Output<F> {
    /// Sends a frame that was made here, in its turn.
    #[cold]
    pub fn make(&mut self, port: usize, bytes: Vec<u8>) {
        let behind = self.ports.get(port).map_or(0, Vec::len);
        self.made.push(Made {
            port,
            behind,
            bytes,
        });
    }

    /// Turns what was made here into frames among the received ones, in their turn; `frame` may refuse one.
    #[cold]
    pub fn merge(&mut self, mut frame: impl FnMut(&[u8]) -> Option<F>) {
        let made = std::mem::take(&mut self.made);
        let ports = made.iter().map(|made| made.port + 1).max().unwrap_or(0);
        if self.ports.len() < ports {
            self.ports.resize_with(ports, Vec::new);
        }
        for (port, list) in self.ports.iter_mut().enumerate() {
            let mut own = made.iter().filter(|made| made.port == port).peekable();
            if own.peek().is_none() {
                continue;
            }
            let received = std::mem::take(list);
            for (position, received) in received.into_iter().enumerate() {
                while let Some(made) = own.next_if(|made| made.behind <= position) {
                    list.extend(frame(&made.bytes));
                }
                list.push(received);
            }
            list.extend(own.filter_map(|made| frame(&made.bytes)));
        }
    }

    /// Frames that were received and leave by a port.
    #[inline]
    pub(crate) fn list(&mut self, port: usize) -> &mut Vec<F> {
        if self.ports.len() <= port {
            self.ports.resize_with(port + 1, Vec::new);
        }
        &mut self.ports[port]
    }

    /// Sends a frame that was received.
    #[inline]
    pub fn send(&mut self, port: usize, frame: F) {
        self.list(port).push(frame);
    }
}
