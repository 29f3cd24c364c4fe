//! The restricted master by Mehrotra's predictor–corrector method.
//!
//! Minimise Σ c_p x_p (+ t) subject to Σ_{p of c} x_p = 1 for every commodity and, for every coupling row r,
//! Σ_p a_rp x_p + s_r = 1 (or = t under scale). The convexity rows are eliminated analytically, so that the linear
//! system has one unknown for each coupling row: a commodity's columns enter as differences from its heaviest one,
//! which is what the elimination comes to and loses no digits. t is a free variable, kept as a border.
//!
//! The method stays feasible throughout: it starts from a routing with room on every row and from prices whose
//! reduced costs are positive, and slacks are recomputed from the variables, never accumulated. A factorisation costs
//! many times what a direction does, so each is used for several corrections of the step (see `step`).

mod equations;
mod normal;
mod parts;
mod start;
mod step;

use crate::clock::Clock;
use equations::Equations;
use parts::{Part, in_parts};
use step::Step;

/// A restricted master problem over local rows and blocks of columns.
#[derive(Debug, Default)]
pub struct Master {
    /// Number of coupling rows.
    pub rows: usize,
    /// First column of each block, and the end. Columns after the last block are loose: no convexity row binds them.
    pub blocks: Vec<u32>,
    /// First entry of each column, and the end.
    pub start: Vec<u32>,
    /// Local row of each entry.
    pub row: Vec<u32>,
    /// Coefficient of each entry.
    pub value: Vec<f64>,
    /// Cost of each column.
    pub cost: Vec<f64>,
    /// Right-hand side: what the columns may load on each row (under scale, minus what is fixed).
    pub limit: Vec<f64>,
    /// Whether rows are bounded by the free variable t, which is then minimised.
    pub scale: bool,
    /// Threads for the factorisation.
    pub threads: usize,
}

/// A primal and dual point.
#[derive(Debug, Clone, Default)]
pub struct Point {
    /// Columns.
    pub x: Vec<f64>,
    /// t; zero unless the master is one of scale.
    pub t: f64,
    /// Prices of the rows.
    pub price: Vec<f64>,
    /// Marginal cost of each block.
    pub marginal: Vec<f64>,
}

/// What belongs to a point: the slack of each row and the reduced cost of each column.
#[derive(Debug, Default)]
struct Slopes {
    slack: Vec<f64>,
    reduced: Vec<f64>,
}

/// Most iterations.
const ITERATIONS: usize = 80;

impl Master {
    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.cost.len()
    }

    #[inline]
    fn entries(&self, column: usize) -> (&[u32], &[f64]) {
        let range = self.start[column] as usize..self.start[column + 1] as usize;
        (&self.row[range.clone()], &self.value[range])
    }

    /// The columns that belong to no block.
    fn loose(&self) -> std::ops::Range<usize> {
        self.blocks[self.blocks.len() - 1] as usize..self.columns()
    }

    fn block(&self, index: usize) -> std::ops::Range<usize> {
        self.blocks[index] as usize..self.blocks[index + 1] as usize
    }

    /// Load of every row by the columns.
    pub(crate) fn load(&self, x: &[f64], into: &mut Vec<f64>) {
        into.clear();
        into.resize(self.rows, 0.0);
        for (column, &x) in x.iter().enumerate() {
            self.load_column(column, x, into);
        }
    }

    #[inline]
    fn load_column(&self, column: usize, x: f64, into: &mut [f64]) {
        let (rows, values) = self.entries(column);
        for (&r, &v) in rows.iter().zip(values) {
            into[r as usize] += v * x;
        }
    }

    #[inline]
    fn priced(&self, column: usize, price: &[f64]) -> f64 {
        let (rows, values) = self.entries(column);
        rows.iter()
            .zip(values)
            .map(|(&r, &v)| price[r as usize] * v)
            .sum()
    }

    /// The least t that keeps every row under `load`.
    fn fullest(&self, load: &[f64]) -> f64 {
        load.iter()
            .zip(&self.limit)
            .map(|(l, b)| l - b)
            .fold(f64::MIN, f64::max)
    }

    /// Solves to a complementarity gap of `tolerance` in the master's unit, from `point`; `mu` is the expected gap
    /// of the start for each column and row. Returns the gap reached and the number of iterations. When time is up the
    /// point is that of the last whole iteration, which keeps all limits too.
    pub fn solve(
        &self,
        point: &mut Point,
        mu: f64,
        tolerance: f64,
        clock: &Clock<'_>,
    ) -> (f64, usize) {
        let mut slopes = Slopes::default();
        let parts = self.parts();
        let mut equations = Equations::new(self, &parts);
        self.center(point, mu);
        let count = (self.columns() + self.rows) as f64;
        let mut gap = f64::INFINITY;
        for iteration in 0..ITERATIONS {
            self.residuals(point, &parts, &mut slopes);
            let now = dot(&point.x, &slopes.reduced) + dot(&point.price, &slopes.slack);
            if now <= tolerance || (iteration > 15 && now > 0.98 * gap) || clock.is_over() {
                return (now, iteration);
            }
            gap = now;
            if !equations.assemble(self, point, &slopes, clock) {
                return (gap, iteration);
            }
            let (step, primal, dual) =
                self.step(&mut equations, point, &slopes, gap / count, clock);
            self.advance(point, &step, primal, dual);
        }
        (gap, ITERATIONS)
    }

    fn residuals(&self, point: &Point, parts: &[Part], slopes: &mut Slopes) {
        let mut none = vec![(); parts.len()];
        let of_parts = in_parts(parts, &mut none, |part, ()| {
            let mut load = vec![0.0; self.rows];
            let mut reduced = Vec::with_capacity(part.columns.len());
            for block in part.blocks.clone() {
                for column in self.block(block) {
                    self.load_column(column, point.x[column], &mut load);
                    let z = self.cost[column] + self.priced(column, &point.price);
                    reduced.push((z - point.marginal[block]).max(1e-18));
                }
            }
            (load, reduced)
        });
        let mut load = vec![0.0; self.rows];
        slopes.reduced.clear();
        for (of_part, reduced) in of_parts {
            add(&mut load, &of_part);
            slopes.reduced.extend(reduced);
        }
        for column in self.loose() {
            self.load_column(column, point.x[column], &mut load);
            let z = self.cost[column] + self.priced(column, &point.price);
            slopes.reduced.push(z.max(1e-18));
        }
        slopes.slack.clear();
        let slack = |(limit, load): (&f64, &f64)| (limit + point.t - load).max(1e-14);
        slopes.slack.extend(self.limit.iter().zip(&load).map(slack));
    }

    fn advance(&self, point: &mut Point, step: &Step, primal: f64, dual: f64) {
        for (x, d) in point.x.iter_mut().zip(&step.x) {
            *x = (*x + primal * d).max(1e-16);
        }
        for block in 0..self.blocks.len() - 1 {
            let range = self.block(block);
            let sum: f64 = point.x[range.clone()].iter().sum();
            point.x[range].iter_mut().for_each(|x| *x /= sum);
        }
        point.t += primal * step.t;
        for (p, d) in point.price.iter_mut().zip(&step.price) {
            *p = (*p + dual * d).max(1e-18);
        }
        for (y, d) in point.marginal.iter_mut().zip(&step.marginal) {
            *y += dual * d;
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}
