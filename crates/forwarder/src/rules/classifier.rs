use crate::prefix::{Prefix, longest};
use std::ops::RangeInclusive;
use wire::steering::Direction;
use wire::{FiveTuple, Label};

/// Maps packets that enter at an edge to a service path.
#[derive(Debug)]
pub struct Classifier {
    pub(super) sources: Vec<Prefix>,
    pub(super) destinations: Vec<Prefix>,
    pub(super) protocols: Vec<u8>,
    pub(super) source_ports: Vec<RangeInclusive<u16>>,
    pub(super) destination_ports: Vec<RangeInclusive<u16>>,
    pub(super) chain_label: Label,
    pub(super) direction: Direction,
    pub(super) egress_routes: Vec<(Prefix, Label)>,
}

/// What a packet was classified as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classified {
    /// A service path and the direction along it.
    Path {
        /// Even chain label.
        chain_label: Label,
        /// Egress label.
        egress_label: Label,
        /// Direction.
        direction: Direction,
    },
    /// The chain has no egress for the destination.
    Unrouted,
}

impl Classifier {
    /// What it makes of a packet; nothing when the packet does not match.
    pub fn classify(&self, tuple: &FiveTuple) -> Option<Classified> {
        let (source, destination) = (tuple.source(), tuple.destination());
        let holds = |prefixes: &[Prefix], address| {
            prefixes.is_empty() || longest(prefixes, address).is_some()
        };
        let within = |ranges: &[RangeInclusive<u16>], port| {
            ranges.is_empty() || ranges.iter().any(|range| range.contains(&port))
        };
        let matches = holds(&self.sources, source)
            && holds(&self.destinations, destination)
            && (self.protocols.is_empty() || self.protocols.contains(&tuple.protocol))
            && within(&self.source_ports, tuple.source_port)
            && within(&self.destination_ports, tuple.destination_port);
        if !matches {
            return None;
        }
        let route = self
            .egress_routes
            .iter()
            .filter(|(prefix, _)| prefix.contains(destination))
            .max_by_key(|(prefix, _)| prefix.length());
        Some(match route {
            Some(&(_, egress_label)) => Classified::Path {
                chain_label: self.chain_label,
                egress_label,
                direction: self.direction,
            },
            None => Classified::Unrouted,
        })
    }
}
