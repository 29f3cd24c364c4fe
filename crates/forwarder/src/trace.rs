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
#[derive(Debug, Default)]
pub struct Trace {
    filter: Filter,
    customer: String,
    chain: String,
    limit: usize,
    hops: Vec<contract::TraceHop>,
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
        Ok(Trace {
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
        self.hops.len() < self.limit && self.filter.matches(tuple)
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
