//! Block Frank–Wolfe with pairwise steps: the first columns, the first prices and the first good answer.
//!
//! The hard capacities are replaced by a smooth cost of the utilisations. Commodities are taken in blocks; each
//! moves traffic from its dearest column to its cheapest route under the current prices, and one exact line search
//! sets how far the block goes.

use super::certificate::{latency_weight, unit_prices};
use super::columns::{Columns, Costing};
use crate::clock::Clock;
use crate::heuristic::Nearest;
use crate::instance::Instance;
use crate::kernel::{Scratch, cheapest};
use crate::solution::Objective;
use crate::tables::{IMPOSSIBLE, Tables};

/// Exponent at which the potential's slope stops growing: prices stay well below what marks the impossible.
const STEEP_END: f64 = 25.0;

/// The smooth cost of utilisations.
#[derive(Debug, Clone, Copy)]
pub struct Potential {
    /// Steepness of the exponential.
    pub steepness: f64,
    /// Utilisation at which its slope is `slope`; under scale, the present maximum.
    pub limit: f64,
    /// Slope there.
    pub slope: f64,
}

impl Potential {
    #[inline]
    fn price(&self, utilization: f64) -> f64 {
        let exponent = self.steepness * (utilization - self.limit);
        if exponent < -40.0 {
            0.0
        } else {
            self.slope * exponent.min(STEEP_END).exp()
        }
    }
}

/// A routing by columns.
pub struct FrankWolfe<'a> {
    instance: &'a Instance,
    costing: Costing,
    clock: &'a Clock<'a>,
    /// Share of each column.
    pub x: Vec<f64>,
    /// Utilisation of each row.
    pub utilization: Vec<f64>,
    /// Price of each row after the last block.
    pub price: Vec<f64>,
    tables: Tables,
    scratch: Scratch,
    delta: Vec<f64>,
    touched: Vec<u32>,
}

/// A commodity's step: from one column to another.
struct Move {
    from: usize,
    to: usize,
    amount: f64,
}

impl<'a> FrankWolfe<'a> {
    /// Nothing routed yet.
    pub fn new(instance: &'a Instance, costing: Costing, clock: &'a Clock<'a>) -> Self {
        let rows = instance.rows();
        FrankWolfe {
            instance,
            costing,
            clock,
            x: Vec::new(),
            utilization: base(instance),
            price: vec![0.0; rows],
            tables: Tables::default(),
            scratch: Scratch::default(),
            delta: vec![0.0; rows],
            touched: Vec::new(),
        }
    }

    fn block_length(&self) -> usize {
        let count = self.instance.commodities.len();
        count.div_ceil((count / 100).clamp(8, 64)).max(1)
    }

    fn set_prices(&mut self, potential: &Potential, scale: f64) {
        for (price, u) in self.price.iter_mut().zip(&self.utilization) {
            *price = potential.price(u * scale);
        }
        let unit = unit_prices(self.instance, &self.price);
        self.tables
            .fill(self.instance, &unit, latency_weight(&self.costing));
    }

    /// The cheapest column under the current tables, added to the pool; none when the commodity has no route.
    fn cheapest_column(&mut self, columns: &mut Columns, commodity: usize) -> Option<usize> {
        let c = &self.instance.commodities[commodity];
        let cost = cheapest(self.instance, &self.tables, c, &mut self.scratch);
        let optional = self.costing.may_be_left(c);
        if optional && (cost >= IMPOSSIBLE || cost > c.worth / self.costing.unit) {
            return Some(columns.uncarried(commodity));
        }
        if cost >= IMPOSSIBLE {
            return None;
        }
        Some(
            columns
                .add(
                    self.instance,
                    &self.costing,
                    commodity,
                    &self.scratch.route(),
                )
                .0,
        )
    }

    /// Routes every commodity once, block after block, prices following the utilisation that the rest is expected
    /// to bring. When time is up the rest take their nearest routes, so that there is an answer. Returns a commodity that
    /// has no route, if there is one.
    pub fn start(&mut self, columns: &mut Columns, potential: &Potential) -> Option<usize> {
        let count = self.instance.commodities.len();
        let total: f64 = self.instance.commodities.iter().map(|c| c.demand).sum();
        let mut routed = 0.0;
        let length = self.block_length();
        for first in (0..count).step_by(length) {
            let scale = if routed > 0.0 { total / routed } else { 1.0 };
            let mut now = *potential;
            if self.costing.objective == Objective::Scale {
                now.limit = self
                    .utilization
                    .iter()
                    .fold(0.0, |m: f64, u| m.max(u * scale));
                now.steepness = if now.limit > 0.0 {
                    potential.steepness / now.limit
                } else {
                    0.0
                };
            }
            self.set_prices(&now, scale);
            for commodity in first..(first + length).min(count) {
                if self.clock.is_over_at(commodity) {
                    return self.complete(columns, commodity..count);
                }
                let Some(column) = self.cheapest_column(columns, commodity) else {
                    return Some(commodity);
                };
                self.x.resize(columns.len(), 0.0);
                self.x[column] = 1.0;
                let (rows, loads) = columns.loads(column);
                for (&r, &l) in rows.iter().zip(loads) {
                    self.utilization[r as usize] += l;
                }
                routed += self.instance.commodities[commodity].demand;
            }
        }
        None
    }

    /// Routes commodities over their nearest routes, whatever the prices; one that may stay uncarried and has no route
    /// does. Returns one that has no route and must have one.
    fn complete(
        &mut self,
        columns: &mut Columns,
        commodities: std::ops::Range<usize>,
    ) -> Option<usize> {
        let mut nearest = Nearest::new(self.instance);
        for index in commodities {
            let commodity = &self.instance.commodities[index];
            let column = match nearest.route(self.instance, commodity) {
                Some(route) => columns.add(self.instance, &self.costing, index, &route).0,
                None if self.costing.may_be_left(commodity) => columns.uncarried(index),
                None => return Some(index),
            };
            self.x.resize(columns.len(), 0.0);
            self.x[column] = 1.0;
        }
        self.recompute(columns);
        None
    }

    /// One pass over all blocks, or as many as there is time for.
    pub fn sweep(&mut self, columns: &mut Columns, potential: &Potential) {
        let count = self.instance.commodities.len();
        let length = self.block_length();
        let mut moves: Vec<Move> = Vec::with_capacity(length);
        for first in (0..count).step_by(length) {
            if self.clock.is_over() {
                break;
            }
            let mut now = *potential;
            if self.costing.objective == Objective::Scale {
                now.limit = self.utilization.iter().copied().fold(0.0, f64::max);
                now.steepness = potential.steepness / now.limit;
            }
            self.set_prices(&now, 1.0);
            moves.clear();
            let mut slope = 0.0;
            for commodity in first..(first + length).min(count) {
                if self.clock.is_over_at(commodity) {
                    break;
                }
                if let Some((step, gain)) = self.best_move(columns, commodity) {
                    slope -= gain;
                    self.gather(columns, &step);
                    moves.push(step);
                }
            }
            let fixed = slope
                - self
                    .touched
                    .iter()
                    .map(|&r| self.price[r as usize] * self.delta[r as usize])
                    .sum::<f64>();
            let length = self.line_search(&now, fixed);
            for &row in &self.touched {
                self.utilization[row as usize] +=
                    length * std::mem::take(&mut self.delta[row as usize]);
            }
            self.touched.clear();
            for step in &moves {
                self.x[step.from] -= length * step.amount;
                self.x[step.to] += length * step.amount;
                if self.x[step.from] < 1e-12 {
                    self.x[step.from] = 0.0;
                }
            }
        }
        self.recompute(columns);
    }

    /// Prices of the present utilisations under scale, by a potential of the given steepness; their sum is one.
    pub fn prices_at(&self, steepness: f64) -> Vec<f64> {
        let limit = self.utilization.iter().copied().fold(0.0, f64::max);
        let potential = Potential {
            steepness: steepness / limit,
            limit,
            slope: 1.0,
        };
        let price: Vec<f64> = self
            .utilization
            .iter()
            .map(|u| potential.price(*u))
            .collect();
        let total: f64 = price.iter().sum();
        price.iter().map(|p| p / total).collect()
    }

    /// Utilisations afresh, so that rounding does not accumulate.
    pub fn recompute(&mut self, columns: &Columns) {
        self.utilization = base(self.instance);
        for (column, &x) in self.x.iter().enumerate().filter(|(_, x)| **x > 0.0) {
            let (rows, loads) = columns.loads(column);
            for (&r, &l) in rows.iter().zip(loads) {
                self.utilization[r as usize] += x * l;
            }
        }
    }

    /// The move of one commodity and what it gains for each unit of step.
    fn best_move(&mut self, columns: &mut Columns, commodity: usize) -> Option<(Move, f64)> {
        let to = self.cheapest_column(columns, commodity)?;
        self.x.resize(columns.len(), 0.0);
        let cost = |column: usize| columns.cost[column] + columns.priced(column, &self.price);
        let mut from: Option<(usize, f64)> = None;
        for column in columns.of(commodity).filter(|&p| self.x[p] > 0.0) {
            let cost = cost(column);
            if from.is_none_or(|(_, worst)| cost > worst) {
                from = Some((column, cost));
            }
        }
        let (from, worst) = from?;
        let gain = worst - cost(to);
        (from != to && gain > 0.0).then(|| {
            let amount = self.x[from];
            (Move { from, to, amount }, gain * amount)
        })
    }

    fn gather(&mut self, columns: &Columns, step: &Move) {
        for (column, sign) in [(step.to, step.amount), (step.from, -step.amount)] {
            let (rows, loads) = columns.loads(column);
            for (&r, &l) in rows.iter().zip(loads) {
                if self.delta[r as usize] == 0.0 {
                    self.touched.push(r);
                }
                self.delta[r as usize] += sign * l;
            }
        }
        // A row whose changes cancelled to exactly zero may be listed twice.
        if self.touched.len() > 4 * self.delta.len() {
            self.touched.sort_unstable();
            self.touched.dedup();
        }
    }

    /// The step in [0, 1] at which the derivative of cost plus potential vanishes.
    fn line_search(&mut self, potential: &Potential, fixed: f64) -> f64 {
        self.touched.sort_unstable();
        self.touched.dedup();
        let slope = |step: f64| {
            let mut sum = fixed;
            for &row in &self.touched {
                let row = row as usize;
                sum += self.delta[row]
                    * potential.price(self.utilization[row] + step * self.delta[row]);
            }
            sum
        };
        if slope(1.0) <= 0.0 {
            return 1.0;
        }
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..7 {
            let middle = 0.5 * (low + high);
            if slope(middle) > 0.0 {
                high = middle
            } else {
                low = middle
            }
        }
        low
    }
}

/// Utilisation before anything is routed.
fn base(instance: &Instance) -> Vec<f64> {
    let mut base = instance.base.clone();
    base.resize(instance.rows(), 0.0);
    base
}
