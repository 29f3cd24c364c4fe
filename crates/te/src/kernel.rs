//! The dynamic program of the paper's equation 8: the cheapest route of one commodity under given tables.
//!
//! The exact solver calls it with dual prices, the heuristic with utilisation costs. It runs over places in
//! whole vectors and is compiled for several instruction sets; all of them do the same operations in the same
//! order, so that results do not depend on the processor.

use crate::aligned::Aligned;
use crate::constrained;
use crate::instance::{Commodity, Instance, LANES, Route, Way};
use crate::tables::Tables;

/// Working memory of one thread.
#[derive(Debug, Default)]
pub struct Scratch {
    table: Aligned,
    /// Place of the last VNF.
    last: u32,
    /// Sites of the route found last.
    pub sites: Vec<u32>,
    /// Its ingress place.
    pub source: u32,
    /// Its egress place.
    pub sink: u32,
}

impl Scratch {
    /// The route found last.
    pub fn way(&self) -> Way<'_> {
        Way {
            source: self.source,
            sink: self.sink,
            sites: &self.sites,
        }
    }

    /// The route found last, as a value of its own.
    pub fn route(&self) -> Route {
        self.way().route()
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
    let cost = least(instance, tables, commodity, scratch);
    trace(instance, tables, commodity, scratch);
    cost
}

/// What the cheapest route costs, as [`cheapest`]; which one it is, [`trace`] tells.
pub fn least(
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
            return unsafe { least_avx512(instance, tables, commodity, scratch) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { least_avx2(instance, tables, commodity, scratch) };
        }
    }
    least_anywhere(instance, tables, commodity, scratch)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn least_avx512(
    instance: &Instance,
    tables: &Tables,
    commodity: &Commodity,
    scratch: &mut Scratch,
) -> f64 {
    least_anywhere(instance, tables, commodity, scratch)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn least_avx2(
    instance: &Instance,
    tables: &Tables,
    commodity: &Commodity,
    scratch: &mut Scratch,
) -> f64 {
    least_anywhere(instance, tables, commodity, scratch)
}

/// Vectors of places that are worked on at once: their sums do not wait for each other.
const WIDE: usize = 4;

#[inline(always)]
fn least_anywhere(
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
        let (done, rest) = scratch.table.split_at_mut(z * width);
        let stage = Stage {
            tables,
            stride: instance.stride,
            traffic: {
                let stage = commodity.stage(z);
                (instance.forward[stage], instance.reverse[stage])
            },
            from: match z {
                0 => instance.sources(commodity),
                _ => places_of(instance, commodity.stage(z - 1)),
            },
            before: (z > 0).then(|| &done[(z - 1) * width..]),
        };
        let handled = instance.handled(commodity, z);
        let stage_vnf = instance.stage_vnf[commodity.stage(z)] as usize;
        let visit = &tables.vnf[stage_vnf * width..][..width];
        // Only places of the VNF are read afterwards.
        let places = &instance.vnfs[stage_vnf].places;
        let (Some(&first), Some(&last)) = (places.first(), places.last()) else {
            continue;
        };
        let (mut at, end) = (first as usize / LANES, last as usize / LANES + 1);
        while at < end {
            at += match end - at {
                1 => stage.reach::<1>(at * LANES, handled, visit, rest),
                2 => stage.reach::<2>(at * LANES, handled, visit, rest),
                3 => stage.reach::<3>(at * LANES, handled, visit, rest),
                _ => stage.reach::<WIDE>(at * LANES, handled, visit, rest),
            };
        }
    }
    last_stage(instance, tables, commodity, scratch)
}

/// What it costs to come to a VNF from the places before it.
struct Stage<'a> {
    tables: &'a Tables,
    stride: usize,
    /// Forward and reverse.
    traffic: (f64, f64),
    from: &'a [u32],
    /// Cost of being at each of them; none at the ingress.
    before: Option<&'a [f64]>,
}

impl Stage<'_> {
    /// Works out `N` vectors of places from `at`; returns `N`.
    #[inline(always)]
    fn reach<const N: usize>(
        &self,
        at: usize,
        handled: f64,
        visit: &[f64],
        into: &mut [f64],
    ) -> usize {
        let (w, v) = self.traffic;
        let mut best = [[f64::INFINITY; LANES]; N];
        for &place in self.from {
            let base = self.before.map_or(0.0, |before| before[place as usize]);
            let offset = place as usize * self.stride + at;
            let forward = &self.tables.forward[offset..offset + N * LANES];
            let reverse = &self.tables.reverse[offset..offset + N * LANES];
            for (n, best) in best.iter_mut().enumerate() {
                for (i, best) in best.iter_mut().enumerate() {
                    let cost = base + w * forward[n * LANES + i] + v * reverse[n * LANES + i];
                    *best = if cost < *best { cost } else { *best };
                }
            }
        }
        let visit = &visit[at..at + N * LANES];
        let into = &mut into[at..at + N * LANES];
        for (n, best) in best.iter().enumerate() {
            for (i, best) in best.iter().enumerate() {
                into[n * LANES + i] = best + handled * visit[n * LANES + i];
            }
        }
        N
    }
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

/// From the last VNF to the egress.
#[inline(always)]
fn last_stage(
    instance: &Instance,
    tables: &Tables,
    commodity: &Commodity,
    scratch: &mut Scratch,
) -> f64 {
    let (vnfs, width) = (commodity.vnfs as usize, instance.site_places);
    let before = &scratch.table[(vnfs - 1) * width..];
    let mut best = f64::INFINITY;
    scratch.last = 0;
    for &sink in instance.sinks(commodity) {
        let (cost, place) = step(instance, tables, commodity, vnfs, before, sink);
        if cost < best {
            best = cost;
            (scratch.sink, scratch.last) = (sink, place);
        }
    }
    best
}

/// Leaves the cheapest route in `scratch`, of which [`least`] has just told the cost. It goes backwards: each step finds again
/// which place gave the minimum.
pub fn trace(instance: &Instance, tables: &Tables, commodity: &Commodity, scratch: &mut Scratch) {
    let (vnfs, width) = (commodity.vnfs as usize, instance.site_places);
    if vnfs == 0 || commodity.limits.is_some() {
        return;
    }
    let mut at = scratch.last;
    scratch.sites.clear();
    scratch.sites.resize(vnfs, 0);
    for z in (0..vnfs).rev() {
        let vnf = instance.stage_vnf[commodity.stage(z)] as usize;
        scratch.sites[z] = tables.site[vnf * width + at as usize];
        if z > 0 {
            let before = &scratch.table[(z - 1) * width..];
            (_, at) = step(instance, tables, commodity, z, before, at);
        }
    }
    scratch.source = source(instance, tables, commodity, at);
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
        best = if cost < best.0 { (cost, place) } else { best };
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
