//! The baselines of the paper's section 7: ANYCAST, COMPUTE-AWARE, ONEHOP and DP-LATENCY.
//!
//! A chain with restricted routes is given its lowest-latency allowed route by all of them.

use super::Heuristic;
use super::nearest::{self, Nearest};
use super::state::{Costs, State, Used};
use super::watch::Watch;
use crate::instance::{Commodity, Instance, Route};
use crate::kernel::{Scratch, cheapest};
use crate::solution::{Flow, Objective, loads, tightest, value};
use crate::tables::{IMPOSSIBLE, Tables};

/// Steps of the search for the largest factor that COMPUTE-AWARE carries.
const BISECTIONS: usize = 30;

/// A remainder smaller than this share of a chain's demand counts as carried.
const CARRIED: f64 = 1e-9;

/// Every commodity whole on the route that the heuristic gives it, in order; one that it leads nowhere takes the fastest.
///
/// # Errors
/// A commodity that has no route at all.
pub fn whole(
    instance: &Instance,
    heuristic: Heuristic,
    watch: &Watch<'_>,
) -> Result<Vec<Flow>, usize> {
    let mut state = State::new(instance, Costs::for_objective(Objective::Scale), false);
    let latency = latency_tables(instance);
    let mut scratch = Scratch::default();
    let mut nearest: Option<Nearest> = None;
    let mut flows = Vec::new();
    for (index, commodity) in instance.commodities.iter().enumerate() {
        let over = watch.is_over_at(index);
        watch.report(
            index,
            index as f64 / instance.commodities.len() as f64,
            || f64::NAN,
        );
        let chosen = if over || watch.was_cut_short() {
            None
        } else {
            choose(
                instance,
                heuristic,
                &state,
                &latency,
                commodity,
                &mut scratch,
            )
            .filter(|route| leads_on(instance, commodity, route))
        };
        let route = match chosen {
            Some(route) => route,
            None => nearest
                .get_or_insert_with(|| Nearest::new(instance))
                .route(instance, commodity)
                .ok_or(index)?,
        };
        if !watch.was_cut_short() {
            state.add(instance, commodity, &route, 1.0);
        }
        flows.push(Flow {
            commodity: index,
            route,
            fraction: 1.0,
        });
    }
    Ok(flows)
}

/// Whether everything on a route has capacity.
fn leads_on(instance: &Instance, commodity: &Commodity, route: &Route) -> bool {
    let mut leads = true;
    instance.loads(commodity, route, |row, load| {
        leads &= load <= 0.0 || instance.capacity[row] > 0.0;
    });
    leads
}

/// Commodities in order, each as far as its route has room; COMPUTE-AWARE and ONEHOP route the remainder again.
pub fn fill(
    instance: &Instance,
    heuristic: Heuristic,
    objective: Objective,
    watch: &Watch<'_>,
) -> Vec<Flow> {
    let mut state = State::new(instance, Costs::for_objective(objective), true);
    let latency = latency_tables(instance);
    let mut scratch = Scratch::default();
    let mut flows: Vec<Flow> = Vec::new();
    let mut used = Used::default();
    let count = instance.commodities.len();
    for (index, commodity) in instance.commodities.iter().enumerate() {
        if watch.is_over_at(index) {
            let rest: Vec<usize> = (index..count).collect();
            nearest::fill(
                instance,
                &mut state,
                &rest,
                &vec![1.0; count],
                &mut used,
                &mut flows,
            );
            break;
        }
        watch.report(index, index as f64 / count as f64, || match objective {
            Objective::Throughput => value(instance, objective, &flows),
            // What only some chains travel is nobody's latency.
            Objective::Latency | Objective::Scale => f64::NAN,
        });
        let used = used.of(instance, commodity.chain);
        let mut left = 1.0;
        let mut filled: Vec<usize> = Vec::new();
        while left > CARRIED {
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
            let needs = state.needs(instance, commodity, &route);
            let (share, limit) = state.room(instance, &needs, left);
            if share > 0.0 {
                state.put(instance, &needs, share);
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
                // A row that limits twice is not seen as full: the same route would be found for ever.
                Some(row)
                    if again
                        && !filled.contains(&row)
                        && (heuristic == Heuristic::OneHop || row >= instance.links) =>
                {
                    state.fill_up(instance, row);
                    filled.push(row);
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
    hop_by_hop(instance, commodity, |z, from, (site, row)| {
        let vnf = &instance.vnfs[instance.stage_vnf[commodity.stage(z)] as usize];
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

/// Chooses site after site by `cost(stage, place before, (site, row of the VNF there))`; the nearest ends come from a
/// list's first.
pub(super) fn hop_by_hop(
    instance: &Instance,
    commodity: &Commodity,
    cost: impl Fn(usize, u32, (u32, usize)) -> Option<f64>,
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
            .filter_map(|&(site, row)| cost(z, at, (site, row as usize)).map(|c| (c, site)));
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
///
/// # Errors
/// As [`whole`].
pub fn compute_aware_scale(instance: &Instance, watch: &Watch<'_>) -> Result<Vec<Flow>, usize> {
    let latency = latency_tables(instance);
    let mut best = whole(instance, Heuristic::Anycast, watch)?;
    let (_, utilization) = tightest(instance, &loads(instance, &best));
    if utilization <= 0.0 || !utilization.is_finite() {
        return Ok(best);
    }
    let mut low = 1.0 / utilization;
    let mut high = 0.0;
    for step in 0..BISECTIONS {
        if watch.is_over_at(0) {
            break;
        }
        watch.report(0, step as f64 / BISECTIONS as f64, || low);
        let factor = if high == 0.0 {
            low * 2.0
        } else {
            (low * high).sqrt()
        };
        match at_factor(instance, &latency, factor, watch) {
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
    Ok(best)
}

/// All commodities at a factor on all demands, each at the nearest site with room for it; and the factor these
/// routes carry.
fn at_factor(
    instance: &Instance,
    latency: &Tables,
    factor: f64,
    watch: &Watch<'_>,
) -> Option<(Vec<Flow>, f64)> {
    let mut load = vec![0.0; instance.rows()];
    let mut scratch = Scratch::default();
    let mut flows = Vec::new();
    for (index, commodity) in instance.commodities.iter().enumerate() {
        if watch.is_over_at(index) {
            return None;
        }
        let route = if commodity.limits.is_some() {
            (cheapest(instance, latency, commodity, &mut scratch) < IMPOSSIBLE)
                .then(|| scratch.route())?
        } else {
            hop_by_hop(instance, commodity, |z, from, (site, row)| {
                let index = instance.stage_vnf[commodity.stage(z)] as usize;
                let need =
                    factor * instance.vnfs[index].load_per_mbps * instance.handled(commodity, z);
                let rows = [row, instance.links + site as usize];
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
