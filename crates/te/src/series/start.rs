//! Where a series begins: routings that keep every chain's limits with the demands of every matrix.
//!
//! Which links a route crosses depends on the directions that have traffic, and so on the matrix: a route may avoid a link
//! in one matrix and cross it in another, or be possible in one alone.

use std::collections::{BTreeMap, HashSet};

use super::Moment;
use super::pool::Rows;
use super::pricing::{Prices, Segment};
use super::solver::Solver;
use crate::constrained;
use crate::error::{Constraint, Error, Infeasible, NotFound};
use crate::instance::{Commodity, Instance, Route};
use crate::solution::Flow;

/// Shares of trajectories by commodity, which sum to one for each.
pub type Shares = Vec<(usize, Vec<Segment>, f64)>;

/// Routings of forced changes that are averaged before the search for a start is given up.
const TRIES: usize = 200;

/// Rounding that budgets of change may be exceeded by.
const ROUNDING: f64 = 1e-9;

/// The mean of all matrices' routings.
pub fn average(moments: &[Moment]) -> Vec<(usize, Route, f64)> {
    let mut sums: Vec<f64> = vec![0.0; moments[0].instance.commodities.len()];
    let all = || moments.iter().flat_map(|m| &m.flows);
    all().for_each(|f| sums[f.commodity] += f.fraction);
    let share = |f: &Flow| (f.commodity, f.route.clone(), f.fraction / sums[f.commodity]);
    all().map(share).collect()
}

/// The routing of one matrix for all; chains that it does without are routed as in another matrix.
pub fn of_one(moments: &[Moment], first: usize) -> Vec<(usize, Route, f64)> {
    let mut shares = Vec::new();
    let mut routed: HashSet<usize> = HashSet::new();
    let others = (0..moments.len()).filter(|m| *m != first);
    for moment in std::iter::once(first).chain(others) {
        let flows = &moments[moment].flows;
        let new = flows.iter().filter(|f| !routed.contains(&f.commodity));
        shares.extend(new.map(|f| (f.commodity, f.route.clone(), f.fraction)));
        routed.extend(flows.iter().map(|f| f.commodity));
    }
    shares
}

/// Routes kept through all matrices as trajectories. Those that some matrix forbids give their shares to the commodity's
/// others; a commodity that has none left gets trajectories that change as little as possible, within the budgets.
///
/// # Errors
/// Chains whose limits allow no such trajectories.
pub fn hold(
    moments: &[Moment],
    solver: &Solver<'_>,
    shares: Vec<(usize, Route, f64)>,
) -> Result<Shares, Error> {
    let (instances, rows) = (solver.instances(), solver.rows());
    let mut kept: BTreeMap<usize, Vec<(Route, f64)>> = BTreeMap::new();
    for (commodity, route, share) in shares {
        let mine = kept.entry(commodity).or_default();
        if instances.iter().all(|i| serves(i, commodity, &route)) {
            mine.push((route, share));
        }
    }
    let mut held = Shares::new();
    let mut forced = Vec::new();
    for (commodity, mine) in kept {
        let sum: f64 = mine.iter().map(|(_, share)| share).sum();
        if sum <= 0.0 {
            forced.push(commodity);
            continue;
        }
        held.extend(mine.into_iter().map(|(route, share)| {
            let segment = Segment { first: 0, route };
            (commodity, vec![segment], share / sum)
        }));
    }
    let changing = Changing {
        moments,
        instances,
        rows,
    };
    held.extend(changing.least(forced)?);
    Ok(held)
}

/// Whether a commodity that demands anything may take a route with the demands of an instance.
fn serves(instance: &Instance, commodity: usize, route: &Route) -> bool {
    let commodity = &instance.commodities[commodity];
    if !demands(instance, commodity) {
        return true;
    }
    let joined = instance.hops(route).enumerate().all(|(z, (from, to))| {
        let stage = commodity.stage(z);
        let reaches = |traffic: f64, a, b| {
            traffic <= 0.0 || instance.network.latency_ms(a, b) < f64::INFINITY
        };
        reaches(instance.forward[stage], from, to) && reaches(instance.reverse[stage], to, from)
    });
    let mut room = true;
    instance.loads(commodity, route, |row, load| {
        room &= load <= 0.0 || instance.capacity[row] > 0.0;
    });
    joined && room && constrained::allows(instance, commodity, route)
}

/// Whether any stage of a commodity has traffic.
fn demands(instance: &Instance, commodity: &Commodity) -> bool {
    let stages = commodity.stage(0)..=commodity.stage(commodity.vnfs as usize);
    let (forward, reverse) = (&instance.forward[stages.clone()], &instance.reverse[stages]);
    forward.iter().chain(reverse).any(|mbps| *mbps > 0.0)
}

/// Commodities that no route serves in all matrices.
struct Changing<'a> {
    moments: &'a [Moment],
    instances: &'a [Instance],
    rows: &'a Rows,
}

impl Changing<'_> {
    /// Trajectories that change no more than the budgets allow. Each try prices the budgets by how full they are in the
    /// mean of the tries before.
    fn least(&self, forced: Vec<usize>) -> Result<Shares, Error> {
        let matrices = self.instances.len();
        let constant = self.rows.budget.is_empty();
        let mut price = vec![1.0; matrices];
        let mut use_of = vec![0.0; matrices];
        let mut shares = Shares::new();
        for tries in 1..=TRIES {
            let mut change = vec![0.0; matrices];
            for m in (1..matrices).filter(|_| !constant) {
                change[m] = price[m] / self.rows.budget[m];
            }
            let free = vec![0.0; self.rows.each * matrices];
            let prices = Prices::new(self.instances, &free, change);
            let mut cost = 0.0;
            for &commodity in &forced {
                let found = prices.cheapest(commodity, constant);
                let (mine, trajectory) = found.ok_or_else(|| self.nothing(&[commodity]))?;
                cost += mine;
                for segment in &trajectory[1..] {
                    let m = segment.first as usize;
                    let demand = self.instances[m].commodities[commodity].demand;
                    use_of[m] += demand / self.rows.budget[m];
                }
                shares.push((commodity, trajectory, 1.0));
            }
            let paid: f64 = price[1..].iter().sum();
            if cost > paid * (1.0 + ROUNDING) {
                return Err(self.nothing(&forced).into());
            }
            let most = use_of.iter().copied().fold(0.0, f64::max) / tries as f64;
            if most <= 1.0 + ROUNDING {
                let each = 1.0 / tries as f64;
                shares.iter_mut().for_each(|(_, _, share)| *share = each);
                return Ok(shares);
            }
            for (price, used) in price.iter_mut().zip(&use_of) {
                *price *= (used / tries as f64 - 1.0).clamp(-1.0, 1.0).exp();
            }
        }
        Err(NotFound {
            message: format!(
                "{} must change routes between matrices, about as much as may change; allow more with --max-change",
                self.names(&forced).join(", ")
            ),
        }
        .into())
    }

    fn names(&self, commodities: &[usize]) -> Vec<String> {
        let chains = &self.moments[0].model.chains;
        let of = |&c: &usize| self.instances[0].commodities[c].chain as usize;
        let mut indexes: Vec<usize> = commodities.iter().map(of).collect();
        indexes.dedup();
        indexes
            .iter()
            .map(|&i| format!("chain {}", chains[i].id))
            .collect()
    }

    /// The proof that these commodities would have to change more than they may.
    fn nothing(&self, commodities: &[usize]) -> Infeasible {
        let mut chains: Vec<usize> = commodities
            .iter()
            .map(|&c| self.instances[0].commodities[c].chain as usize)
            .collect();
        chains.dedup();
        let scarce = "no route serves it, within its limits, with the demands of every matrix";
        let constraint = |&chain: &usize| Constraint {
            name: format!("chain {}", self.moments[0].model.chains[chain].id),
            pointer: format!("/chains/{chain}"),
            scarce: scarce.into(),
        };
        let names = self.names(commodities).join(", ");
        Infeasible {
            constraints: chains.iter().map(constraint).collect(),
            message: format!(
                "no route serves {names} with the demands of every matrix, and more would have to change than may: which links a route crosses depends on the directions that have traffic"
            ),
        }
    }
}
