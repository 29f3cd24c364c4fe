//! The baselines of the paper's section 7: ANYCAST, COMPUTE-AWARE, ONEHOP and DP-LATENCY.
//!
//! A chain with restricted routes is given its lowest-latency allowed route by all of them.

use super::Heuristic;
use super::state::{Costs, State};
use crate::instance::{Commodity, Instance, Route};
use crate::kernel::{Scratch, cheapest};
use crate::solution::{Flow, Objective, loads, tightest};
use crate::tables::{IMPOSSIBLE, Tables};

/// Steps of the search for the largest factor that COMPUTE-AWARE carries.
const BISECTIONS: usize = 30;

/// Every commodity whole on the route that the heuristic gives it, in order.
pub fn whole(instance: &Instance, heuristic: Heuristic) -> Vec<Flow> {
    let mut state = State::new(instance, Costs::for_objective(Objective::Scale), false);
    let latency = latency_tables(instance);
    let mut scratch = Scratch::default();
    let mut flows = Vec::new();
    for (index, commodity) in instance.commodities.iter().enumerate() {
        let Some(route) = choose(
            instance,
            heuristic,
            &state,
            &latency,
            commodity,
            &mut scratch,
        ) else {
            return Vec::new();
        };
        state.add(instance, commodity, &route, 1.0);
        flows.push(Flow {
            commodity: index,
            route,
            fraction: 1.0,
        });
    }
    flows
}

/// Commodities in order, each as far as its route has room; COMPUTE-AWARE and ONEHOP route the remainder again.
pub fn fill(instance: &Instance, heuristic: Heuristic, objective: Objective) -> Vec<Flow> {
    let mut state = State::new(instance, Costs::for_objective(objective), true);
    let latency = latency_tables(instance);
    let mut scratch = Scratch::default();
    let mut flows: Vec<Flow> = Vec::new();
    for (index, commodity) in instance.commodities.iter().enumerate() {
        let mut left = 1.0;
        let mut used = instance.routes_of(commodity.chain, &flows);
        while left > 1e-9 {
            let Some(route) = choose(
                instance,
                heuristic,
                &state,
                &latency,
                commodity,
                &mut scratch,
            ) else {
                break;
            };
            if !used.allows(&route) {
                break;
            }
            let (share, limit) = state.room(instance, commodity, &route, left);
            if share > 0.0 {
                state.add(instance, commodity, &route, share);
                used.insert(&route);
                flows.push(Flow {
                    commodity: index,
                    route,
                    fraction: share,
                });
                left -= share;
            }
            // ONEHOP sees a full last link only when it is too late to choose otherwise.
            if share <= 0.0 && heuristic == Heuristic::OneHop {
                break;
            }
            let again = matches!(heuristic, Heuristic::ComputeAware | Heuristic::OneHop);
            match limit {
                Some(row) if again && (heuristic == Heuristic::OneHop || row >= instance.links) => {
                    state.fill_up(instance, row);
                }
                _ => break,
            }
        }
    }
    flows
}

fn latency_tables(instance: &Instance) -> Tables {
    Tables::new(instance, &vec![0.0; instance.rows()], 1.0)
}

fn choose(
    instance: &Instance,
    heuristic: Heuristic,
    state: &State,
    latency: &Tables,
    commodity: &Commodity,
    scratch: &mut Scratch,
) -> Option<Route> {
    if commodity.limits.is_some() || heuristic == Heuristic::DpLatency {
        return (cheapest(instance, latency, commodity, scratch) < IMPOSSIBLE)
            .then(|| scratch.route());
    }
    let enough = |row: usize, load: f64| {
        heuristic != Heuristic::ComputeAware
            || (instance.capacity[row] - state.load[row]) > 1e-9 * load
    };
    hop_by_hop(instance, commodity, |z, from, site| {
        let vnf = &instance.vnfs[instance.stage_vnf[commodity.stage(z)] as usize];
        let row = instance.vnf_row(
            instance.stage_vnf[commodity.stage(z)] as usize,
            site as usize,
        )?;
        let load = vnf.load_per_mbps * instance.handled(commodity, z);
        let site_row = instance.links + site as usize;
        if !enough(row, load) || !enough(site_row, load) {
            return None;
        }
        let tables = if heuristic == Heuristic::OneHop {
            state.tables()
        } else {
            latency
        };
        let stage = commodity.stage(z);
        let at = from as usize * instance.stride + instance.site_place[site as usize] as usize;
        let hop = instance.forward[stage] * tables.forward[at]
            + instance.reverse[stage] * tables.reverse[at];
        let cost = hop + load * (tables.row_price(site_row) + tables.row_price(row));
        (cost < IMPOSSIBLE).then_some(cost)
    })
}

/// Chooses site after site by `cost(stage, place before, site)`; the nearest ends come from a list's first.
fn hop_by_hop(
    instance: &Instance,
    commodity: &Commodity,
    cost: impl Fn(usize, u32, u32) -> Option<f64>,
) -> Option<Route> {
    let source = instance.sources(commodity)[0];
    let sink = instance.sinks(commodity)[0];
    let mut at = source;
    let mut sites = Vec::with_capacity(commodity.vnfs as usize);
    for z in 0..commodity.vnfs as usize {
        let vnf = &instance.vnfs[instance.stage_vnf[commodity.stage(z)] as usize];
        let candidates = vnf
            .deployments
            .iter()
            .filter_map(|&(site, _)| cost(z, at, site).map(|c| (c, site)));
        let (_, site) = candidates.min_by(|a, b| a.0.total_cmp(&b.0))?;
        sites.push(site);
        at = instance.site_place[site as usize];
    }
    let (from, to) = (
        instance.node_at[at as usize] as usize,
        instance.node_at[sink as usize] as usize,
    );
    let last = commodity.stage(commodity.vnfs as usize);
    let joined = instance.network.latency_ms(from, to).is_finite()
        && (instance.reverse[last] == 0.0 || instance.network.latency_ms(to, from).is_finite());
    joined.then(|| Route {
        source,
        sink,
        sites: sites.into(),
    })
}

/// COMPUTE-AWARE's routes depend on the demand; the best over a search of the factor is kept.
pub fn compute_aware_scale(instance: &Instance) -> Vec<Flow> {
    let latency = latency_tables(instance);
    let mut best = whole(instance, Heuristic::Anycast);
    let (_, utilization) = tightest(instance, &loads(instance, &best));
    if utilization <= 0.0 || !utilization.is_finite() {
        return best;
    }
    let mut low = 1.0 / utilization;
    let mut high = 0.0;
    for _ in 0..BISECTIONS {
        let factor = if high == 0.0 {
            low * 2.0
        } else {
            (low * high).sqrt()
        };
        match at_factor(instance, &latency, factor) {
            Some((flows, value)) if value >= factor => {
                low = value;
                best = flows;
            }
            _ => high = factor,
        }
        if high > 0.0 && high / low < 1.0001 {
            break;
        }
    }
    best
}

/// All commodities at a factor on all demands, each at the nearest site with room for it; and the factor these
/// routes carry.
fn at_factor(instance: &Instance, latency: &Tables, factor: f64) -> Option<(Vec<Flow>, f64)> {
    let mut load = vec![0.0; instance.rows()];
    let mut scratch = Scratch::default();
    let mut flows = Vec::new();
    for (index, commodity) in instance.commodities.iter().enumerate() {
        let route = if commodity.limits.is_some() {
            (cheapest(instance, latency, commodity, &mut scratch) < IMPOSSIBLE)
                .then(|| scratch.route())?
        } else {
            hop_by_hop(instance, commodity, |z, from, site| {
                let index = instance.stage_vnf[commodity.stage(z)] as usize;
                let need =
                    factor * instance.vnfs[index].load_per_mbps * instance.handled(commodity, z);
                let rows = [
                    instance.vnf_row(index, site as usize)?,
                    instance.links + site as usize,
                ];
                if rows.iter().any(|&r| load[r] + need > instance.capacity[r]) {
                    return None;
                }
                let to = instance.node_at[instance.site_place[site as usize] as usize] as usize;
                Some(
                    instance
                        .network
                        .latency_ms(instance.node_at[from as usize] as usize, to),
                )
                .filter(|l| l.is_finite())
            })?
        };
        instance.loads(commodity, &route, |row, l| load[row] += factor * l);
        flows.push(Flow {
            commodity: index,
            route,
            fraction: 1.0,
        });
    }
    let (_, utilization) = tightest(instance, &load);
    Some((flows, factor / utilization))
}
