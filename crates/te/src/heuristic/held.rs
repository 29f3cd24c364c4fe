//! The routes that commodities have while they exchange them, and how much of each commodity goes over each.
//!
//! Everything is in three lists, so that ten thousand commodities cost no more than a few requests for memory.

use crate::instance::{Instance, NONE, Way};
use crate::solution::Flow;

/// A share smaller than this is none.
pub(super) const NOTHING: f64 = 1e-9;

/// A route of a commodity.
#[derive(Debug, Clone)]
struct Entry {
    share: f64,
    source: u32,
    sink: u32,
    /// Where its sites begin.
    sites: u32,
    /// The commodity's next route.
    next: u32,
}

/// Routes of all commodities.
#[derive(Debug, Clone, Default)]
pub(super) struct Held {
    /// First route of each commodity.
    first: Vec<u32>,
    entries: Vec<Entry>,
    sites: Vec<u32>,
}

impl Held {
    /// No routes of so many commodities.
    pub fn new(commodities: usize) -> Held {
        Held {
            first: vec![NONE; commodities],
            entries: Vec::with_capacity(commodities + commodities / 2),
            sites: Vec::with_capacity(6 * commodities),
        }
    }

    /// A commodity's routes.
    pub fn of(&self, commodity: usize) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.first[commodity];
        std::iter::from_fn(move || {
            let here = at;
            (here != NONE).then(|| {
                at = self.entries[here as usize].next;
                here
            })
        })
    }

    /// Share of its commodity that a route carries.
    pub fn share(&self, route: u32) -> f64 {
        self.entries[route as usize].share
    }

    /// Share of a commodity that is carried.
    pub fn carried(&self, commodity: usize) -> f64 {
        self.of(commodity).map(|route| self.share(route)).sum()
    }

    /// A route of a commodity with so many VNFs.
    pub fn way(&self, route: u32, vnfs: u32) -> Way<'_> {
        let entry = &self.entries[route as usize];
        Way {
            source: entry.source,
            sink: entry.sink,
            sites: &self.sites[entry.sites as usize..][..vnfs as usize],
        }
    }

    /// Takes a share from a route.
    pub fn take(&mut self, commodity: usize, route: u32, share: f64) {
        let entry = &mut self.entries[route as usize];
        entry.share -= share;
        if entry.share >= NOTHING {
            return;
        }
        let next = entry.next;
        if self.first[commodity] == route {
            self.first[commodity] = next;
            return;
        }
        let before = self
            .of(commodity)
            .find(|&r| self.entries[r as usize].next == route);
        if let Some(before) = before {
            self.entries[before as usize].next = next;
        }
    }

    /// Gives a share to a route, which the commodity may have already.
    pub fn give(&mut self, commodity: usize, way: Way<'_>, share: f64) {
        let vnfs = way.sites.len() as u32;
        let known = self.of(commodity).find(|&r| self.way(r, vnfs) == way);
        if let Some(route) = known {
            self.entries[route as usize].share += share;
            return;
        }
        let entry = Entry {
            share,
            source: way.source,
            sink: way.sink,
            sites: self.sites.len() as u32,
            next: self.first[commodity],
        };
        self.sites.extend_from_slice(way.sites);
        self.first[commodity] = self.entries.len() as u32;
        self.entries.push(entry);
    }

    /// The routing, commodities in this order.
    pub fn flows(&self, instance: &Instance, order: &[usize]) -> Vec<Flow> {
        let mut flows = Vec::with_capacity(order.len());
        for &commodity in order {
            let vnfs = instance.commodities[commodity].vnfs;
            flows.extend(self.of(commodity).map(|route| Flow {
                commodity,
                route: self.way(route, vnfs).route(),
                fraction: self.share(route),
            }));
        }
        flows
    }
}
