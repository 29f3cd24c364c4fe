//! The two address families, each with its kind of key and its flow table.

use crate::entropy::{self, Entropy};
use crate::pipeline::Pipeline;
use crate::registry::PlaceId;
use flow::{FlowKey, FlowTable, Ipv4Key, Ipv6Key};
use std::net::IpAddr;
use wire::steering::Direction;
use wire::{Addresses, FiveTuple};

/// A key of one family: a place and a connection in forward orientation.
pub(crate) trait Family: FlowKey {
    /// Whether it is IPv6.
    const V6: bool;

    /// The pipeline's table of the family.
    fn table<F>(pipeline: &Pipeline<F>) -> &FlowTable<Self>;
    /// The same, to change.
    fn table_mut<F>(pipeline: &mut Pipeline<F>) -> &mut FlowTable<Self>;
    /// The key of the connection's answers at a place.
    fn answer_at(&self, place: PlaceId) -> Self;
    /// The same connection at another place.
    fn same_at(&self, place: PlaceId) -> Self;
    /// Source and destination.
    fn addresses_of(&self) -> Addresses;

    /// The connection as packets of a direction show it.
    #[inline]
    fn tuple(&self, direction: Direction) -> FiveTuple {
        let forward = FiveTuple {
            addresses: self.addresses_of(),
            protocol: self.protocol(),
            source_port: self.source_port(),
            destination_port: self.destination_port(),
        };
        match direction {
            Direction::Forward => forward,
            Direction::Reverse => forward.reversed(),
        }
    }

    /// Where packets of a direction go.
    fn destination_of(&self, direction: Direction) -> IpAddr {
        self.tuple(direction).destination()
    }

    /// The connection's entropy.
    fn entropy(&self, function: &Entropy) -> u32;

    /// The outer UDP source port of the connection's packets in tunnels.
    #[inline(always)]
    fn entropy_port(&self, function: &Entropy) -> u16 {
        entropy::port_of(self.entropy(function))
    }
}

impl Family for Ipv4Key {
    const V6: bool = false;

    #[inline(always)]
    fn table<F>(pipeline: &Pipeline<F>) -> &FlowTable<Self> {
        &pipeline.v4
    }

    #[inline(always)]
    fn table_mut<F>(pipeline: &mut Pipeline<F>) -> &mut FlowTable<Self> {
        &mut pipeline.v4
    }

    #[inline(always)]
    fn answer_at(&self, place: PlaceId) -> Self {
        self.reversed_at(place.0)
    }

    #[inline(always)]
    fn same_at(&self, place: PlaceId) -> Self {
        self.at(place.0)
    }

    #[inline(always)]
    fn entropy(&self, function: &Entropy) -> u32 {
        function.of_v4(self)
    }

    #[inline(always)]
    fn addresses_of(&self) -> Addresses {
        Addresses::V4 {
            source: self.source().octets(),
            destination: self.destination().octets(),
        }
    }
}

impl Family for Ipv6Key {
    const V6: bool = true;

    #[inline(always)]
    fn table<F>(pipeline: &Pipeline<F>) -> &FlowTable<Self> {
        &pipeline.v6
    }

    #[inline(always)]
    fn table_mut<F>(pipeline: &mut Pipeline<F>) -> &mut FlowTable<Self> {
        &mut pipeline.v6
    }

    #[inline(always)]
    fn answer_at(&self, place: PlaceId) -> Self {
        self.reversed_at(place.0)
    }

    #[inline(always)]
    fn same_at(&self, place: PlaceId) -> Self {
        self.at(place.0)
    }

    #[inline(always)]
    fn entropy(&self, function: &Entropy) -> u32 {
        function.of_v6(self)
    }

    #[inline(always)]
    fn addresses_of(&self) -> Addresses {
        Addresses::V6 {
            source: self.source().octets(),
            destination: self.destination().octets(),
        }
    }
}

/// A key of either family.
pub(crate) enum Key {
    V4(Ipv4Key),
    V6(Ipv6Key),
}

/// The key at a place of a connection that packets of a direction show as `tuple`.
#[inline]
pub(crate) fn key(place: PlaceId, tuple: &FiveTuple, direction: Direction) -> Key {
    let tuple = match direction {
        Direction::Forward => *tuple,
        Direction::Reverse => tuple.reversed(),
    };
    let (protocol, from, to) = (tuple.protocol, tuple.source_port, tuple.destination_port);
    match tuple.addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            let (source, destination) =
                (u32::from_be_bytes(source), u32::from_be_bytes(destination));
            let key = Ipv4Key::new(place.0, source, destination, protocol, from, to);
            Key::V4(key)
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let (source, destination) = (
                u128::from_be_bytes(source),
                u128::from_be_bytes(destination),
            );
            let key = Ipv6Key::new(place.0, source, destination, protocol, from, to);
            Key::V6(key)
        }
    }
}
