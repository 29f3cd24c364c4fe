//! The dynamic program of the paper's equation 8: the cheapest route of one commodity under given tables.
//!
//! The exact solver calls it with dual prices, the heuristic with utilisation costs. It runs over places in
//! whole vectors and is compiled for several instruction sets; all of them do the same operations in the same
//! order, so that results do not depend on the processor.

use crate::constrained;
use crate::instance::{Commodity, Instance, LANES, Route};
use crate::tables::Tables;

/// Working memory of one thread.
#[derive(Debug, Default)]
pub struct Scratch {
    table: Vec<f64>,
    /// Sites of the route found last.
    pub sites: Vec<u32>,
    /// Its ingress place.
    pub source: u32,
    /// Its egress place.
    pub sink: u32,
}

impl Scratch {
    /// The route found last, as a value of its own.
    pub fn route(&self) -> Route {
        Route {
            source: self.source,
            sink: self.sink,
            sites: self.sites.as_slice().into(),
        }
    }

    /// Whether the route found last is `route`.
    pub fn is(&self, route: &Route) -> bool {
        self.source == route.source && self.sink == route.sink && self.sites[..] == route.sites[..]
    }
}

/// Finds the cheapest route of a commodity's whole demand; it is left in `scratch`.
///
/// Returns its cost; [`crate::tables::IMPOSSIBLE`] or more when every route uses something blocked.
pub fn cheapest(
    instance: &Instance,
    tables: &Tables,
    commodity: &Commodity,
    scratch: &mut Scratch,
) -> f64 {
    if commodity.limits.is_some() {
        return constrained::cheapest(instance, tables, commodity, scratch);
    }
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has just been asked for the feature.
            return unsafe { cheapest_avx512(instance, tables, commodity, scratch) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { cheapest_avx2(instance, tables, commodity, scratch) };
        }
    }
    cheapest_anywhere(instance, tables, commodity, scratch)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn cheapest_avx512(
    instance: &Instance,
    tables: &Tables,
    commodity: &Commodity,
    scratch: &mut Scratch,
) -> f64 {
    cheapest_anywhere(instance, tables, commodity, scratch)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn cheapest_avx2(
    instance: &Instance,
    tables: &Tables,
    commodity: &Commodity,
    scratch: &mut Scratch,
) -> f64 {
    cheapest_anywhere(instance, tables, commodity, scratch)
}

type Lane = [f64; LANES];

#[inline(always)]
fn lane(values: &[f64], at: usize) -> &Lane {
    values[at..at + LANES]
        .try_into()
        .expect("a slice of LANES entries")
}

#[inline(always)]
fn cheapest_anywhere(
    instance: &Instance,
    tables: &Tables,
    commodity: &Commodity,
    scratch: &mut Scratch,
) -> f64 {
    let vnfs = commodity.vnfs as usize;
    if vnfs == 0 {
        return direct(instance, tables, commodity, scratch);
    }
    let width = instance.site_places;
    scratch.table.resize(vnfs * width, 0.0);
    for z in 0..vnfs {
        let stage = commodity.stage(z);
        let (w, v) = (instance.forward[stage], instance.reverse[stage]);
        let handled = instance.handled(commodity, z);
        let vnf = instance.stage_vnf[stage] as usize;
        let (done, rest) = scratch.table.split_at_mut(z * width);
        let before = if z == 0 {
            &[][..]
        } else {
            &done[(z - 1) * width..]
        };
        let from = if z == 0 {
            instance.sources(commodity)
        } else {
            places_of(instance, stage - 1)
        };
        for at in (0..width).step_by(LANES) {
            let mut best = [f64::INFINITY; LANES];
            for &place in from {
                let base = if z == 0 { 0.0 } else { before[place as usize] };
                let offset = place as usize * instance.stride + at;
                let (forward, reverse) =
                    (lane(&tables.forward, offset), lane(&tables.reverse, offset));
                for i in 0..LANES {
                    let cost = base + w * forward[i] + v * reverse[i];
                    best[i] = if cost < best[i] { cost } else { best[i] };
                }
            }
            let visit = lane(&tables.vnf, vnf * width + at);
            for i in 0..LANES {
                rest[at + i] = best[i] + handled * visit[i];
            }
        }
    }
    finish(instance, tables, commodity, scratch)
}

fn places_of(instance: &Instance, stage: usize) -> &[u32] {
    &instance.vnfs[instance.stage_vnf[stage] as usize].places
}

/// A chain without VNFs: the best pair of ends.
fn direct(
    instance: &Instance,
    tables: &Tables,
    commodity: &Commodity,
    scratch: &mut Scratch,
) -> f64 {
    let stage = commodity.stage(0);
    let (w, v) = (instance.forward[stage], instance.reverse[stage]);
    scratch.sites.clear();
    let mut best = f64::INFINITY;
    for &source in instance.sources(commodity) {
        for &sink in instance.sinks(commodity) {
            let at = source as usize * instance.stride + sink as usize;
            let cost = w * tables.forward[at] + v * tables.reverse[at];
            if cost < best {
                best = cost;
                (scratch.source, scratch.sink) = (source, sink);
            }
        }
    }
    best
}

/// The last stage, then the route backwards: each step finds again which place gave the minimum.
fn finish(
    instance: &Instance,
    tables: &Tables,
    commodity: &Commodity,
    scratch: &mut Scratch,
) -> f64 {
    let (vnfs, width) = (commodity.vnfs as usize, instance.site_places);
    let mut best = f64::INFINITY;
    let mut at = 0;
    for &sink in instance.sinks(commodity) {
        let (cost, place) = step(
            instance,
            tables,
            commodity,
            vnfs,
            &scratch.table[(vnfs - 1) * width..],
            sink,
        );
        if cost < best {
            (best, at) = (cost, place);
            scratch.sink = sink;
        }
    }
    scratch.sites.clear();
    scratch.sites.resize(vnfs, 0);
    for z in (0..vnfs).rev() {
        let vnf = instance.stage_vnf[commodity.stage(z)] as usize;
        scratch.sites[z] = tables.site[vnf * width + at as usize];
        if z > 0 {
            (_, at) = step(
                instance,
                tables,
                commodity,
                z,
                &scratch.table[(z - 1) * width..],
                at,
            );
        }
    }
    scratch.source = source(instance, tables, commodity, at);
    best
}

/// The cheapest way into `to` over stage `z`, from the places of the VNF before it.
fn step(
    instance: &Instance,
    tables: &Tables,
    commodity: &Commodity,
    z: usize,
    before: &[f64],
    to: u32,
) -> (f64, u32) {
    let stage = commodity.stage(z);
    let (w, v) = (instance.forward[stage], instance.reverse[stage]);
    let mut best = (f64::INFINITY, 0);
    for &place in places_of(instance, stage - 1) {
        let at = place as usize * instance.stride + to as usize;
        let cost = before[place as usize] + w * tables.forward[at] + v * tables.reverse[at];
        if cost < best.0 {
            best = (cost, place);
        }
    }
    best
}

/// The ingress from which the first VNF's place is reached most cheaply.
fn source(instance: &Instance, tables: &Tables, commodity: &Commodity, to: u32) -> u32 {
    let sources = instance.sources(commodity);
    let stage = commodity.stage(0);
    let (w, v) = (instance.forward[stage], instance.reverse[stage]);
    let cost = |place: u32| {
        let at = place as usize * instance.stride + to as usize;
        w * tables.forward[at] + v * tables.reverse[at]
    };
    let mut best = sources[0];
    for &place in &sources[1..] {
        if cost(place) < cost(best) {
            best = place;
        }
    }
    best
}
