//! The normal equations of one iteration, factorised, and the directions that they give.

use super::normal::Assembly;
use super::parts::{Part, in_parts};
use super::step::{Step, Target};
use super::{Master, Point, Slopes, add};
use crate::clock::Clock;

/// Most corrections of a direction.
const REFINEMENTS: usize = 2;

/// The factorised equations at a point.
#[derive(Debug)]
pub(super) struct Equations {
    /// One for each part; the first holds the whole matrix in the end.
    assembly: Vec<Assembly>,
    parts: Vec<Part>,
    /// x / reduced cost of each column.
    theta: Vec<f64>,
    /// The matrix's inverse times ones: the free variable's border.
    border: Vec<f64>,
    /// Heaviest column and sum of the thetas of each block.
    pivot: Vec<u32>,
    weight: Vec<f64>,
    /// Target over reduced cost of each column.
    h: Vec<f64>,
}

/// One part of a step: of its columns and blocks, and what it loads on all rows.
#[derive(Default)]
struct Recovered {
    x: Vec<f64>,
    reduced: Vec<f64>,
    marginal: Vec<f64>,
    load: Vec<f64>,
}

impl Equations {
    pub(super) fn new(master: &Master, parts: &[Part]) -> Equations {
        let assembly = parts.iter().map(|_| Assembly::new(master.threads));
        Equations {
            assembly: assembly.collect(),
            parts: parts.to_vec(),
            theta: Vec::new(),
            border: Vec::new(),
            pivot: Vec::new(),
            weight: Vec::new(),
            h: Vec::new(),
        }
    }

    /// The normal equations A Θ Aᵀ after the elimination of the convexity rows, factorised; and the border. False when
    /// there was not the time for it.
    pub(super) fn assemble(
        &mut self,
        master: &Master,
        point: &Point,
        slopes: &Slopes,
        clock: &Clock<'_>,
    ) -> bool {
        self.theta.clear();
        self.theta
            .extend(point.x.iter().zip(&slopes.reduced).map(|(x, z)| x / z));
        let theta = &self.theta;
        let pivots = in_parts(&self.parts, &mut self.assembly, |part, assembly| {
            assembly.add_part(master, theta, part, clock)
        });
        if clock.is_over() {
            return false;
        }
        self.pivot.clear();
        self.weight.clear();
        for part in pivots {
            self.pivot.extend(part.column);
            self.weight.extend(part.weight);
        }
        let (whole, others) = self.assembly.split_at_mut(1);
        for other in others {
            whole[0].matrix.add(&other.matrix);
        }
        for row in 0..master.rows {
            whole[0]
                .matrix
                .add_diagonal(row, slopes.slack[row] / point.price[row]);
        }
        for column in master.loose() {
            let (rows, values) = master.entries(column);
            whole[0].add_loose(rows, values, self.theta[column]);
        }
        if !whole[0].matrix.factorise(clock) {
            return false;
        }
        self.border.clear();
        if master.scale {
            self.border.resize(master.rows, 1.0);
            whole[0].matrix.solve(&mut self.border);
        }
        true
    }

    /// The step toward which the products of variables and their duals change by `target`; everything linear holds.
    pub(super) fn direction(
        &mut self,
        master: &Master,
        point: &Point,
        slopes: &Slopes,
        target: &Target,
    ) -> Step {
        self.h.clear();
        self.h
            .extend(target.x.iter().zip(&slopes.reduced).map(|(r, z)| r / z));
        let mut rhs: Vec<f64> = target
            .slack
            .iter()
            .zip(&point.price)
            .map(|(target, price)| target / price)
            .collect();
        let mut none = vec![(); self.parts.len()];
        for load in in_parts(&self.parts, &mut none, |part, ()| {
            self.load_of_targets(master, part)
        }) {
            add(&mut rhs, &load);
        }
        for column in master.loose() {
            master.load_column(column, self.h[column], &mut rhs);
        }
        let mut step = Step {
            price: vec![0.0; master.rows],
            ..Step::default()
        };
        for _ in 0..=REFINEMENTS {
            self.correct_direction(master, &mut rhs, &mut step);
            self.recover(master, &mut step);
            // What the rows' equations are off by; rounding in the factor would otherwise eat the slacks.
            let mut off = false;
            for (r, rest) in rhs.iter_mut().enumerate() {
                let wanted = (target.slack[r] - slopes.slack[r] * step.price[r]) / point.price[r];
                *rest = wanted - step.slack[r];
                off |= rest.abs() > 1e-4 * slopes.slack[r];
            }
            if !off {
                break;
            }
        }
        step
    }

    /// What the columns of a part load when each follows its target and none its price.
    fn load_of_targets(&self, master: &Master, part: &Part) -> Vec<f64> {
        let mut load = vec![0.0; master.rows];
        for block in part.blocks.clone() {
            let range = master.block(block);
            let mean = self.h[range.clone()].iter().sum::<f64>() / self.weight[block];
            for column in range {
                let amount = self.h[column] - self.theta[column] * mean;
                master.load_column(column, amount, &mut load);
            }
        }
        load
    }

    /// Solves the bordered system for `rhs` and adds the solution to the direction of the prices and of t.
    fn correct_direction(&self, master: &Master, rhs: &mut [f64], step: &mut Step) {
        self.assembly[0].matrix.solve(rhs);
        let mut dt = 0.0;
        if master.scale {
            // 1ᵀ dπ = 0 determines the free variable.
            let sum: f64 = rhs.iter().sum::<f64>() + step.price.iter().sum::<f64>();
            dt = sum / self.border.iter().sum::<f64>();
        }
        step.t += dt;
        for (r, d) in rhs.iter().enumerate() {
            step.price[r] += d - if master.scale {
                dt * self.border[r]
            } else {
                0.0
            };
        }
    }

    /// dz, dx, dy and ds from the rows' direction.
    fn recover(&self, master: &Master, step: &mut Step) {
        step.x.clear();
        step.reduced.clear();
        step.marginal.clear();
        // From the columns' steps, not from the complementarity: slacks must follow what is really loaded.
        step.slack = vec![step.t; master.rows];
        let mut none = vec![(); self.parts.len()];
        for part in in_parts(&self.parts, &mut none, |part, ()| {
            self.recover_part(master, &step.price, part)
        }) {
            step.x.extend(part.x);
            step.reduced.extend(part.reduced);
            step.marginal.extend(part.marginal);
            step.slack
                .iter_mut()
                .zip(&part.load)
                .for_each(|(slack, load)| *slack -= load);
        }
        for column in master.loose() {
            let dz = master.priced(column, &step.price);
            let dx = self.h[column] - self.theta[column] * dz;
            step.reduced.push(dz);
            step.x.push(dx);
            master.load_column(column, -dx, &mut step.slack);
        }
    }

    fn recover_part(&self, master: &Master, price: &[f64], part: &Part) -> Recovered {
        let mut recovered = Recovered {
            load: vec![0.0; master.rows],
            ..Recovered::default()
        };
        for block in part.blocks.clone() {
            let range = master.block(block);
            let pivot = self.pivot[block] as usize;
            let base = master.priced(pivot, price);
            let first = recovered.reduced.len();
            let (mut weighted, mut h) = (0.0, 0.0);
            for column in range.clone() {
                let relative = if column == pivot {
                    0.0
                } else {
                    master.priced(column, price) - base
                };
                weighted += self.theta[column] * relative;
                h += self.h[column];
                recovered.reduced.push(relative);
            }
            let shift = (weighted - h) / self.weight[block];
            recovered.marginal.push(base + shift);
            for (dz, column) in recovered.reduced[first..].iter_mut().zip(range) {
                *dz -= shift;
                let dx = self.h[column] - self.theta[column] * *dz;
                recovered.x.push(dx);
                master.load_column(column, dx, &mut recovered.load);
            }
        }
        recovered
    }
}
