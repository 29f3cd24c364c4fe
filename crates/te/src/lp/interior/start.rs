//! The first point: strictly feasible and near the central path.

use super::{Master, Point};

/// Least product of a column and its reduced cost at the start, relative to the mean.
const LEAST_PRODUCT: f64 = 0.1;

/// How much fuller this may make the fullest row, as a share of the gap.
const SPREAD: f64 = 0.3;

/// Room above the fullest row at the start under scale, as a share of the gap.
const ROOM: f64 = 0.3;

/// Share of a block that may be spread over its columns, at most; where that fills rows too much, less, down to this.
const WIDEST: f64 = 1.0;
const NARROWEST: f64 = 1e-5;

impl Master {
    /// Makes a point strictly feasible: every column positive, every row slack, every reduced cost positive; and keeps
    /// the products of each with its dual from being far below `mu`, from where the first steps would be short.
    pub(super) fn center(&self, point: &mut Point, mu: f64) {
        let gap = mu * (self.columns() + self.rows) as f64;
        let mut load = Vec::new();
        self.load(&point.x, &mut load);
        let allowed: Vec<f64> = if self.scale {
            let most = self.fullest(&load) + SPREAD * gap;
            self.limit.iter().map(|limit| limit + most).collect()
        } else {
            let half = |(limit, load): (&f64, &f64)| load + 0.5 * (limit - load).max(0.0);
            self.limit.iter().zip(&load).map(half).collect()
        };
        let wanted = self.wanted(point, mu);
        let before = point.x.clone();
        let mut spread = WIDEST;
        loop {
            self.raise(point, &wanted, spread);
            self.load(&point.x, &mut load);
            if spread <= NARROWEST || load.iter().zip(&allowed).all(|(load, most)| load <= most) {
                break;
            }
            point.x.copy_from_slice(&before);
            spread *= 0.1;
        }
        for column in self.loose() {
            point.x[column] = point.x[column].max(1e-6);
        }
        self.load(&point.x, &mut load);
        if self.scale {
            let most = self.fullest(&load);
            point.t = most + ROOM * gap.max(1e-9 * most.abs()).max(1e-15);
        }
        for (row, price) in point.price.iter_mut().enumerate() {
            let slack = self.limit[row] + point.t - load[row];
            *price = price.max(0.3 * mu / slack.max(1e-12));
        }
        // A loose column's reduced cost is made positive by the row that it fills.
        for column in self.loose() {
            let reduced = self.cost[column] + self.priced(column, &point.price);
            let needed = mu.max(1e-9) / point.x[column].max(1e-9);
            let (rows, values) = self.entries(column);
            if let Some(at) = values
                .iter()
                .position(|v| *v > 0.0)
                .filter(|_| reduced < needed)
            {
                point.price[rows[at] as usize] += (needed - reduced) / values[at];
            }
        }
        if self.scale {
            let total: f64 = point.price.iter().sum();
            point.price.iter_mut().for_each(|p| *p /= total);
        }
        point.marginal.clear();
        for block in 0..self.blocks.len() - 1 {
            let costs = self.costs(block, &point.price);
            point.marginal.push(marginal(&costs, mu));
        }
    }

    /// A tenth of what the central path gives each column of a block at the present prices.
    fn wanted(&self, point: &Point, mu: f64) -> Vec<f64> {
        let mut wanted = Vec::with_capacity(self.columns());
        for block in 0..self.blocks.len() - 1 {
            let costs = self.costs(block, &point.price);
            let marginal = marginal(&costs, mu);
            let share = |cost: &f64| LEAST_PRODUCT * mu / (cost - marginal);
            wanted.extend(costs.iter().map(share));
        }
        wanted
    }

    /// Raises columns to what is wanted, or to an even part of `spread`.
    fn raise(&self, point: &mut Point, wanted: &[f64], spread: f64) {
        for block in 0..self.blocks.len() - 1 {
            let range = self.block(block);
            let even = spread / range.len() as f64;
            let x = &mut point.x[range.clone()];
            for (x, wanted) in x.iter_mut().zip(&wanted[range]) {
                *x = x.max(wanted.min(even)).max(1e-12);
            }
            let sum: f64 = x.iter().sum();
            x.iter_mut().for_each(|x| *x /= sum);
        }
    }

    /// Costs of a block's columns with the prices of what they load.
    fn costs(&self, block: usize, price: &[f64]) -> Vec<f64> {
        let cost = |column| self.cost[column] + self.priced(column, price);
        self.block(block).map(cost).collect()
    }
}

/// A marginal cost of a block whose columns have these costs: the block's share of the gap below the least of them.
fn marginal(costs: &[f64], mu: f64) -> f64 {
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    least - costs.len() as f64 * mu
}
