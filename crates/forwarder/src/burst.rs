//! Bursts: packets are read first, their connections looked up together, then each is sent.
//!
//! A look-up waits for memory when there are many connections; looked up together, packets wait for each other's at once.

use crate::arrival::{Accepted, Arrival};
use crate::frame::Frame;
use crate::pipeline::{Key, Output, Pipeline, keys};
use crate::rules::Rules;
use flow::{BURST, Found, Ipv4Key};

/// A burst under way; kept between bursts for its memory.
pub(crate) struct Burst<F> {
    arrivals: Vec<Arrival>,
    frames: Vec<F>,
    keys: Vec<Ipv4Key>,
    /// Positions in `arrivals` of what `keys` are of.
    positions: Vec<usize>,
    results: Vec<Option<Found>>,
    found: Vec<Option<Found>>,
}

impl<F> Default for Burst<F> {
    fn default() -> Self {
        Burst {
            arrivals: Vec::new(),
            frames: Vec::new(),
            keys: Vec::new(),
            positions: Vec::new(),
            results: Vec::new(),
            found: Vec::new(),
        }
    }
}

impl<F: Frame> Pipeline<F> {
    /// Takes frames that arrived at a port, in their order, and empties the list. `now` is in seconds.
    pub fn process_burst(
        &mut self,
        rules: &Rules,
        port: usize,
        frames: &mut Vec<F>,
        now: u32,
        out: &mut Output<F>,
    ) {
        let mut burst = std::mem::take(&mut self.burst);
        let mut frames = frames.drain(..);
        while frames.len() > 0 {
            for mut frame in frames.by_ref().take(BURST) {
                match self.accept(rules, port, &mut frame, now, out) {
                    Ok(Accepted::Packet(arrival)) => {
                        burst.arrivals.push(arrival);
                        burst.frames.push(frame);
                    }
                    Ok(Accepted::Control) => {}
                    Err(reason) => self.counters.drop(reason),
                }
            }
            self.look_up(&mut burst);
            // Entries move when others come or go: what was looked up before is looked up again then.
            let changes = self.flow_changes;
            let packets = burst.arrivals.iter().zip(burst.frames.drain(..));
            for ((arrival, frame), found) in packets.zip(burst.found.drain(..)) {
                let found = if self.flow_changes == changes {
                    found
                } else {
                    self.find(arrival.place, &arrival.forward_tuple())
                };
                self.steer(rules, arrival, found, frame, now, out);
            }
            burst.arrivals.clear();
        }
        self.burst = burst;
    }

    /// Fills in `found` for every packet of a burst.
    fn look_up(&self, burst: &mut Burst<F>) {
        burst.keys.clear();
        burst.positions.clear();
        for (position, arrival) in burst.arrivals.iter().enumerate() {
            match keys(arrival.place, &arrival.forward_tuple()) {
                Key::V4(key) => {
                    burst.keys.push(key);
                    burst.positions.push(position);
                    burst.found.push(None);
                }
                Key::V6(key) => burst.found.push(self.v6.get(&key)),
            }
        }
        burst.results.clear();
        burst.results.resize(burst.keys.len(), None);
        self.v4.lookup_batch(&burst.keys, &mut burst.results);
        for (&position, &result) in burst.positions.iter().zip(&burst.results) {
            burst.found[position] = result;
        }
    }
}
