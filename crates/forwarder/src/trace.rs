//! Following single connections without slowing others.

use crate::prefix::{Prefix, longest};
use contracts::forwarder as contract;
use std::ops::RangeInclusive;
use wire::FiveTuple;

/// Which packets are traced.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    sources: Vec<Prefix>,
    destinations: Vec<Prefix>,
    protocols: Vec<u32>,
    source_ports: Vec<RangeInclusive<u32>>,
    destination_ports: Vec<RangeInclusive<u32>>,
    both_directions: bool,
}

/// A trace under way.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    filter: Filter,
    customer: String,
    chain: String,
    limit: usize,
    hops: Vec<contract::TraceHop>,
    probe: Option<Probe>,
}

/// Bytes of the mark that ends a probe.
pub const PROBE_LENGTH: usize = 16;

/// The one packet that a trace follows.
#[derive(Clone, Copy, Debug)]
struct Probe {
    mark: [u8; PROBE_LENGTH],
    /// It does not leave by an edge.
    hold: bool,
    /// The packet in hand is the probe.
    in_hand: bool,
}

impl Trace {
    /// A trace as requested; at most 10 000 decisions.
    ///
    /// # Errors
    /// Names the field of the match that is wrong.
    pub fn new(request: &contract::TraceRequest) -> Result<Trace, String> {
        let none = contract::Match::default();
        let matched = request.r#match.as_ref().unwrap_or(&none);
        let prefixes = |name: &str, texts: &[String]| -> Result<Vec<Prefix>, String> {
            let parse = |text: &String| {
                text.parse()
                    .map_err(|error| format!("match.{name}: {text:?} is no prefix: {error}"))
            };
            texts.iter().map(parse).collect()
        };
        let ranges = |ranges: &[contract::PortRange]| -> Vec<RangeInclusive<u32>> {
            ranges
                .iter()
                .map(|range| range.first..=range.last)
                .collect()
        };
        let probe = match request.probe.as_slice() {
            [] => None,
            mark => Some(Probe {
                mark: mark
                    .try_into()
                    .map_err(|_| format!("probe: {} bytes; give {PROBE_LENGTH}", mark.len()))?,
                hold: request.hold,
                in_hand: false,
            }),
        };
        Ok(Trace {
            probe,
            filter: Filter {
                sources: prefixes("source_prefixes", &matched.source_prefixes)?,
                destinations: prefixes("destination_prefixes", &matched.destination_prefixes)?,
                protocols: matched.protocols.clone(),
                source_ports: ranges(&matched.source_ports),
                destination_ports: ranges(&matched.destination_ports),
                both_directions: request.both_directions,
            },
            customer: request.customer.clone(),
            chain: request.chain.clone(),
            limit: (request.limit as usize).clamp(1, 10_000),
            hops: Vec::new(),
        })
    }

    /// Whether a packet's decision is wanted.
    pub fn wants(&self, tuple: &FiveTuple) -> bool {
        self.hops.len() < self.limit
            && match &self.probe {
                Some(probe) => probe.in_hand,
                None => self.filter.matches(tuple),
            }
    }

    /// Whether it follows one probe only.
    pub fn follows_probe(&self) -> bool {
        self.probe.is_some()
    }

    /// Whether it follows the probe with this mark.
    pub fn is_of_probe(&self, mark: &[u8]) -> bool {
        self.probe.is_some_and(|probe| probe.mark == mark)
    }

    /// Whether a frame is the probe.
    pub fn is_probe(&self, frame: &[u8]) -> bool {
        self.probe.is_some_and(|probe| frame.ends_with(&probe.mark))
    }

    /// Whether the probe is kept from leaving by edges.
    pub fn holds_probe(&self) -> bool {
        self.probe.is_some_and(|probe| probe.hold)
    }

    /// Says whether the packets that come next are the probe.
    pub fn take_in_hand(&mut self, in_hand: bool) {
        if let Some(probe) = &mut self.probe {
            probe.in_hand = in_hand;
        }
    }

    /// How many decisions there are.
    pub fn hop_count(&self) -> usize {
        self.hops.len()
    }

    /// The last decision.
    pub fn last_hop(&mut self) -> Option<&mut contract::TraceHop> {
        self.hops.last_mut()
    }

    /// Whether packets of a chain are wanted.
    pub fn wants_chain(&self, customer: &str, chain: &str) -> bool {
        (self.customer.is_empty() || self.customer == customer)
            && (self.chain.is_empty() || self.chain == chain)
    }

    /// Adds a decision.
    pub fn add(&mut self, hop: contract::TraceHop) {
        self.hops.push(hop);
    }

    /// Whether it has all it wanted.
    pub fn is_full(&self) -> bool {
        self.hops.len() >= self.limit
    }

    /// How many decisions it wants.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The decisions, in order.
    pub fn into_hops(self) -> Vec<contract::TraceHop> {
        self.hops
    }
}

impl Filter {
    fn matches(&self, tuple: &FiveTuple) -> bool {
        self.matches_one(tuple) || self.both_directions && self.matches_one(&tuple.reversed())
    }

    fn matches_one(&self, tuple: &FiveTuple) -> bool {
        let holds = |prefixes: &[Prefix], address| {
            prefixes.is_empty() || longest(prefixes, address).is_some()
        };
        let within = |ranges: &[RangeInclusive<u32>], port: u16| {
            ranges.is_empty() || ranges.iter().any(|range| range.contains(&u32::from(port)))
        };
        holds(&self.sources, tuple.source())
            && holds(&self.destinations, tuple.destination())
            && (self.protocols.is_empty() || self.protocols.contains(&u32::from(tuple.protocol)))
            && within(&self.source_ports, tuple.source_port)
            && within(&self.destination_ports, tuple.destination_port)
    }
}
