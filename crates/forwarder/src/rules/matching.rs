//! What selects packets by their addresses, protocol and ports.

use super::error::RuleError;
use super::fields::{Result, each, prefix};
use crate::prefix::{Prefix, longest};
use contracts::forwarder as contract;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use wire::FiveTuple;

/// Packets with certain addresses, protocols and ports; empty lists hold for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matching {
    sources: Vec<Prefix>,
    destinations: Vec<Prefix>,
    protocols: Vec<u8>,
    source_ports: Vec<RangeInclusive<u16>>,
    destination_ports: Vec<RangeInclusive<u16>>,
}

impl Matching {
    /// Whether it holds for a packet.
    pub fn holds(&self, tuple: &FiveTuple) -> bool {
        let within = |ranges: &[RangeInclusive<u16>], port| {
            ranges.is_empty() || ranges.iter().any(|range| range.contains(&port))
        };
        self.holds_without_ports(tuple)
            && within(&self.source_ports, tuple.source_port)
            && within(&self.destination_ports, tuple.destination_port)
    }

    /// The same for a packet whose ports are not known.
    pub fn holds_without_ports(&self, tuple: &FiveTuple) -> bool {
        let holds = |prefixes: &[Prefix], address: IpAddr| {
            prefixes.is_empty() || longest(prefixes, address).is_some()
        };
        holds(&self.sources, tuple.source())
            && holds(&self.destinations, tuple.destination())
            && (self.protocols.is_empty() || self.protocols.contains(&tuple.protocol))
    }

    /// Whether it holds for every packet.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Matching::default()
    }

    /// Prefixes of sources and of destinations; none of either stand for all.
    pub(crate) fn prefixes(&self) -> [&[Prefix]; 2] {
        [&self.sources, &self.destinations]
    }

    /// Whether it speaks of ports.
    pub fn has_ports(&self) -> bool {
        !self.source_ports.is_empty() || !self.destination_ports.is_empty()
    }
}

/// Reads a match; `field` is its place in the rule set or request.
pub(crate) fn matching(field: &str, matched: Option<&contract::Match>) -> Result<Matching> {
    let none = contract::Match::default();
    let matched = matched.unwrap_or(&none);
    let protocol = |(index, &number): (usize, &u32)| {
        u8::try_from(number).map_err(|_| {
            RuleError::new(
                format!("{field}.protocols[{index}]"),
                format!("{number} is no IP protocol number"),
            )
        })
    };
    let (sources, destinations) = (&matched.source_prefixes, &matched.destination_prefixes);
    Ok(Matching {
        sources: each(field, "source_prefixes", sources, prefix)?,
        destinations: each(field, "destination_prefixes", destinations, prefix)?,
        protocols: matched
            .protocols
            .iter()
            .enumerate()
            .map(protocol)
            .collect::<Result<_>>()?,
        source_ports: port_ranges(&format!("{field}.source_ports"), &matched.source_ports)?,
        destination_ports: port_ranges(
            &format!("{field}.destination_ports"),
            &matched.destination_ports,
        )?,
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
