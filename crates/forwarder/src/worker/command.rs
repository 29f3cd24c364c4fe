//! What the control thread and a worker say to each other.

use crate::capture::Capture;
use crate::counters::Counters;
use crate::exchange::{Entry, Import, Imported};
use crate::handover::{Bell, PortWorkers};
use crate::home::Homes;
use crate::latency::Latency;
use crate::ports::Queue;
use crate::registry::{HopId, PlaceId};
use crate::rules::Rules;
use crate::trace::Trace;
use contracts::forwarder as contract;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// What the control thread asks of a worker.
pub enum Command {
    /// New rules, with the queues that were opened for them and the names of those to give back.
    Rules(NewRules),
    /// Tell what happened so far.
    Report(Sender<Report>),
    /// Begin a trace; another one under way ends. Says when it has begun.
    BeginTrace(Trace, Sender<()>),
    /// End the trace and hand it over.
    EndTrace(Sender<Option<Trace>>),
    /// Take a probe as if it had come from an edge; its trace must be under way.
    Inject {
        /// What was asked for.
        request: contract::InjectRequest,
        /// Gets why it cannot be.
        done: Sender<Result<(), String>>,
    },
    /// Go on with a walk over all flow entries, or begin one; gets what it met, and whether there is more.
    Export {
        /// Begin one.
        begin: bool,
        /// Gets the entries.
        to: Sender<(Vec<Entry>, bool)>,
    },
    /// Take entries of another forwarder.
    Import {
        /// The entries.
        entries: Vec<Import>,
        /// Gets what became of them.
        done: Sender<Imported>,
    },
    /// Begin a capture; another one under way ends.
    Capture(Capture),
    /// End the thread.
    Stop,
}

/// A change of rules, as one worker gets it.
pub struct NewRules {
    /// The rules.
    pub rules: Arc<Rules>,
    /// Where connections are at home from now on, if it changes: there are none yet.
    pub homes: Option<Homes>,
    /// Who has a queue of each port, in the order of the rules.
    pub ports: Arc<[PortWorkers]>,
    /// Queues of newly opened ports that are this worker's.
    pub opened: Vec<(String, Queue)>,
    /// Ports to give up.
    pub closing: Arc<[String]>,
    /// Ports whose edges this worker tells neighbours of, besides new edges; nothing where another worker does that.
    pub announce: Option<Vec<String>>,
    /// Gets the queues given up, once no packet follows the old rules.
    pub done: Sender<Vec<Queue>>,
}

/// There is no worker any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerEnded;

/// The control thread's way to a worker; wakes it when it sleeps.
#[derive(Clone)]
pub struct Commands {
    pub(super) sender: Sender<Command>,
    pub(super) bell: Arc<Bell>,
}

impl Commands {
    /// Sends a command.
    ///
    /// # Errors
    /// The worker has ended.
    pub fn send(&self, command: Command) -> Result<(), WorkerEnded> {
        self.sender.send(command).map_err(|_| WorkerEnded)?;
        self.bell.ring();
        Ok(())
    }
}

/// What a worker has done so far, or all workers together.
#[derive(Debug, Default)]
pub struct Report {
    /// Packets by what happened to them.
    pub counters: Counters,
    /// Connections in the tables.
    pub flow_entries: u64,
    /// Entries that the tables have slots for.
    pub flow_entries_limit: u64,
    /// Generation of the rules in force when the entries' count began that began first.
    pub counted_generation: Option<u64>,
    /// Entries that use each hop.
    pub hop_flows: HashMap<HopId, u64>,
    /// Entries of each place.
    pub place_flows: HashMap<PlaceId, u64>,
    /// Packets and bytes of each port.
    pub ports: HashMap<String, PortCount>,
    /// How long packets stayed, by the worker's number; in order.
    pub latencies: Vec<(usize, Latency)>,
    /// Decisions in the trace under way.
    pub traced: usize,
}

impl Report {
    /// Adds another worker's report.
    pub fn add(&mut self, other: Report) {
        self.counters.add(&other.counters);
        self.flow_entries += other.flow_entries;
        self.flow_entries_limit += other.flow_entries_limit;
        let generations = [self.counted_generation, other.counted_generation];
        self.counted_generation = generations.into_iter().flatten().min();
        for (hop, flows) in other.hop_flows {
            *self.hop_flows.entry(hop).or_default() += flows;
        }
        for (place, flows) in other.place_flows {
            *self.place_flows.entry(place).or_default() += flows;
        }
        for (name, count) in other.ports {
            self.ports.entry(name).or_default().add(count);
        }
        self.latencies.extend(other.latencies);
        self.latencies.sort_unstable_by_key(|&(worker, _)| worker);
        self.traced += other.traced;
    }
}

/// Packets and bytes of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCount {
    /// Packets received.
    pub received_packets: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets the device did not take.
    pub send_failures: u64,
}

impl PortCount {
    fn add(&mut self, other: PortCount) {
        self.received_packets += other.received_packets;
        self.received_bytes += other.received_bytes;
        self.sent_packets += other.sent_packets;
        self.sent_bytes += other.sent_bytes;
        self.send_failures += other.send_failures;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workers_together_have_counted_since_the_first_of_them_began() {
        let mut all = Report::default();
        for generation in [7, 5, 6] {
            all.add(Report {
                counted_generation: Some(generation),
                ..Report::default()
            });
        }
        assert_eq!(all.counted_generation, Some(5));
    }
}
