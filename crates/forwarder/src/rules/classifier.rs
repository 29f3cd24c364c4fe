use super::error::RuleError;
use super::fields::{Result, each, even_label, label, prefix};
use crate::prefix::{Prefix, longest};
use contracts::forwarder as contract;
use std::ops::RangeInclusive;
use wire::steering::Direction;
use wire::{FiveTuple, Label};

/// Maps packets that enter at an edge to a service path.
#[derive(Debug)]
pub struct Classifier {
    sources: Vec<Prefix>,
    destinations: Vec<Prefix>,
    protocols: Vec<u8>,
    source_ports: Vec<RangeInclusive<u16>>,
    destination_ports: Vec<RangeInclusive<u16>>,
    chain_label: Label,
    direction: Direction,
    egress_routes: Vec<(Prefix, Label)>,
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

/// The classifiers of an edge, in their order.
pub(super) fn classifiers(field: &str, list: &[contract::Classifier]) -> Result<Vec<Classifier>> {
    list.iter()
        .enumerate()
        .map(|(index, classifier)| {
            compile_classifier(&format!("{field}.classifiers[{index}]"), classifier)
        })
        .collect()
}

fn compile_classifier(field: &str, classifier: &contract::Classifier) -> Result<Classifier> {
    let none = contract::Match::default();
    let matched = classifier.r#match.as_ref().unwrap_or(&none);
    let at = format!("{field}.match");
    let direction = match classifier.direction() {
        contract::Direction::Forward => Direction::Forward,
        contract::Direction::Reverse => Direction::Reverse,
        contract::Direction::Unspecified => {
            return Err(RuleError::new(
                format!("{field}.direction"),
                "give a direction",
            ));
        }
    };
    let mut egress_routes = Vec::new();
    for (index, route) in classifier.egress_routes.iter().enumerate() {
        let field = format!("{field}.egress_routes[{index}]");
        egress_routes.push((
            prefix(&format!("{field}.destination"), &route.destination)?,
            label(&format!("{field}.egress_label"), route.egress_label)?,
        ));
    }
    let protocol = |(index, &number): (usize, &u32)| {
        u8::try_from(number).map_err(|_| {
            RuleError::new(
                format!("{at}.protocols[{index}]"),
                format!("{number} is no IP protocol number"),
            )
        })
    };
    Ok(Classifier {
        sources: each(&at, "source_prefixes", &matched.source_prefixes, prefix)?,
        destinations: each(
            &at,
            "destination_prefixes",
            &matched.destination_prefixes,
            prefix,
        )?,
        protocols: matched
            .protocols
            .iter()
            .enumerate()
            .map(protocol)
            .collect::<Result<_>>()?,
        source_ports: port_ranges(&format!("{at}.source_ports"), &matched.source_ports)?,
        destination_ports: port_ranges(
            &format!("{at}.destination_ports"),
            &matched.destination_ports,
        )?,
        chain_label: even_label(&format!("{field}.chain_label"), classifier.chain_label)?,
        direction,
        egress_routes,
    })
}

fn port_ranges(field: &str, ranges: &[contract::PortRange]) -> Result<Vec<RangeInclusive<u16>>> {
    let range = |(index, range): (usize, &contract::PortRange)| {
        let first = u16::try_from(range.first).ok();
        let last = u16::try_from(range.last).ok();
        match (first, last) {
            (Some(first), Some(last)) if first <= last => Ok(first..=last),
            _ => Err(RuleError::new(
                format!("{field}[{index}]"),
                format!("{} to {} is no range of ports", range.first, range.last),
            )),
        }
    };
    ranges.iter().enumerate().map(range).collect()
}
