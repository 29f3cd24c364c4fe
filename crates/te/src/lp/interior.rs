//! The restricted master by Mehrotra's predictor–corrector method.
//!
//! Minimise Σ c_p x_p (+ t) subject to Σ_{p of c} x_p = 1 for every commodity and, for every coupling row r,
//! Σ_p a_rp x_p + s_r = 1 (or = t under scale). The convexity rows are eliminated analytically, so that the linear
//! system has one unknown for each coupling row: a commodity's columns enter as differences from its heaviest one,
//! which is what the elimination comes to and loses no digits. t is a free variable, kept as a border.
//!
//! The method stays feasible throughout: it starts from a routing with room on every row and from prices whose
//! reduced costs are positive, and slacks are recomputed from the variables, never accumulated.

use super::cholesky::Cholesky;

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

/// Working vectors.
#[derive(Debug, Default)]
struct Work {
    slack: Vec<f64>,
    reduced: Vec<f64>,
    theta: Vec<f64>,
    h: Vec<f64>,
    rc_x: Vec<f64>,
    rc_s: Vec<f64>,
    dx: Vec<f64>,
    dz: Vec<f64>,
    ds: Vec<f64>,
    dprice: Vec<f64>,
    dmarginal: Vec<f64>,
    dt: f64,
    border: Vec<f64>,
    dense: Vec<f64>,
    difference: Vec<(u32, f64)>,
    touched: Vec<u32>,
    pivot: Vec<u32>,
    weight: Vec<f64>,
}

/// Least product of a column and its reduced cost at the start, relative to the mean.
const LEAST_PRODUCT: f64 = 0.1;

/// Share of a block that this may spread over its columns, relative to the gap.
const SPREAD: f64 = 0.3;

/// Room above the fullest row at the start under scale, as a share of the gap.
const ROOM: f64 = 0.3;

/// Fraction of the way to the boundary that a step goes.
const STEP: f64 = 0.99;

/// Share of the mean weight below which a column is light.
const LIGHT: f64 = 1e-4;

/// Columns below which none is left out.
const SMALL: usize = 1000;

/// Most corrections of a direction.
const REFINEMENTS: usize = 2;

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
    fn load(&self, x: &[f64], into: &mut Vec<f64>) {
        into.clear();
        into.resize(self.rows, 0.0);
        for (column, &x) in x.iter().enumerate() {
            let (rows, values) = self.entries(column);
            for (&r, &v) in rows.iter().zip(values) {
                into[r as usize] += v * x;
            }
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

    /// Makes a point strictly feasible: every column positive, every row slack, every reduced cost positive; and keeps
    /// the products of each with its dual from being far below `mu`, from where the first steps would be short.
    fn center(&self, point: &mut Point, mu: f64) {
        let mut load = Vec::new();
        self.load(&point.x, &mut load);
        let gap = mu * (self.columns() + self.rows) as f64;
        let size = if self.scale { self.fullest(&load) } else { 1.0 };
        let spread = (SPREAD * gap / size.abs().max(1e-12)).clamp(1e-5, 0.1);
        for block in 0..self.blocks.len() - 1 {
            let range = self.block(block);
            let count = range.len() as f64;
            let costs: Vec<f64> = range
                .clone()
                .map(|c| self.cost[c] + self.priced(c, &point.price))
                .collect();
            let marginal = costs.iter().copied().fold(f64::INFINITY, f64::min) - count * mu;
            let x = &mut point.x[range];
            for (x, cost) in x.iter_mut().zip(&costs) {
                let least = (LEAST_PRODUCT * mu / (cost - marginal)).min(spread / count);
                *x = x.max(least).max(1e-12);
            }
            let sum: f64 = x.iter().sum();
            x.iter_mut().for_each(|x| *x /= sum);
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
            let range = self.block(block);
            let least = range
                .clone()
                .map(|c| self.cost[c] + self.priced(c, &point.price))
                .fold(f64::INFINITY, f64::min);
            // The block's share of the gap: the heaviest column's reduced cost is about this.
            point.marginal.push(least - range.len() as f64 * mu);
        }
    }

    /// Solves to a complementarity gap of `tolerance` in the master's unit, from `point`; `mu` is the expected gap
    /// of the start for each column and row. Returns the gap reached.
    pub fn solve(&self, point: &mut Point, mu: f64, tolerance: f64) -> (f64, usize) {
        let mut work = Work::default();
        let mut matrix = Cholesky::new(self.threads);
        self.center(point, mu);
        let count = (self.columns() + self.rows) as f64;
        let mut gap = f64::INFINITY;
        for iteration in 0..ITERATIONS {
            self.residuals(point, &mut work);
            let now = dot(&point.x, &work.reduced) + dot(&point.price, &work.slack);
            if now <= tolerance || (iteration > 15 && now > 0.98 * gap) {
                return (now, iteration);
            }
            gap = now;
            let mu = gap / count;
            self.assemble(&mut matrix, point, &mut work);
            self.predict(point, &mut work);
            self.direction(&matrix, point, &mut work);
            let (primal, dual) = self.step_lengths(point, &work, 1.0);
            let after: f64 = (0..self.columns())
                .map(|p| (point.x[p] + primal * work.dx[p]) * (work.reduced[p] + dual * work.dz[p]))
                .sum::<f64>()
                + (0..self.rows)
                    .map(|r| {
                        (work.slack[r] + primal * work.ds[r])
                            * (point.price[r] + dual * work.dprice[r])
                    })
                    .sum::<f64>();
            let sigma = (after / gap).powi(3).min(1.0);
            self.correct(point, &mut work, sigma * mu);
            self.direction(&matrix, point, &mut work);
            let (primal, dual) = self.step_lengths(point, &work, STEP);
            self.advance(point, &work, primal, dual);
        }
        (gap, ITERATIONS)
    }

    fn residuals(&self, point: &Point, work: &mut Work) {
        self.load(&point.x, &mut work.slack);
        for (row, slack) in work.slack.iter_mut().enumerate() {
            *slack = (self.limit[row] + point.t - *slack).max(1e-14);
        }
        work.reduced.clear();
        for block in 0..self.blocks.len() - 1 {
            for column in self.block(block) {
                let reduced =
                    self.cost[column] + self.priced(column, &point.price) - point.marginal[block];
                work.reduced.push(reduced.max(1e-18));
            }
        }
        for column in self.loose() {
            work.reduced
                .push((self.cost[column] + self.priced(column, &point.price)).max(1e-18));
        }
        work.theta.clear();
        work.theta
            .extend(point.x.iter().zip(&work.reduced).map(|(x, z)| x / z));
    }

    /// The normal equations A Θ Aᵀ after the elimination of the convexity rows, factorised; and the border.
    fn assemble(&self, matrix: &mut Cholesky, point: &Point, work: &mut Work) {
        matrix.clear(self.rows);
        for row in 0..self.rows {
            matrix.add_diagonal(row, work.slack[row] / point.price[row]);
        }
        work.dense.clear();
        work.dense.resize(self.rows, 0.0);
        let light = self.light(work);
        work.pivot.clear();
        work.weight.clear();
        for block in 0..self.blocks.len() - 1 {
            let range = self.block(block);
            let heaviest = range
                .clone()
                .max_by(|&a, &b| work.theta[a].total_cmp(&work.theta[b]))
                .unwrap_or(range.start);
            work.pivot.push(heaviest as u32);
            let total: f64 = work.theta[range.clone()].iter().sum();
            work.weight.push(total);
            self.add_block(matrix, work, range, heaviest, light);
        }
        for column in self.loose() {
            let (rows, values) = self.entries(column);
            work.difference.clear();
            work.difference
                .extend(rows.iter().copied().zip(values.iter().copied()));
            rank_one(matrix, &work.difference, work.theta[column]);
        }
        matrix.factorise();
        work.border.clear();
        if self.scale {
            work.border.resize(self.rows, 1.0);
            matrix.solve(&mut work.border);
        }
    }

    /// Weight below which a column is left out of the equations: it hardly moves them, most columns are that light
    /// near the end, and the refinement of the direction makes up for them.
    fn light(&self, work: &Work) -> f64 {
        // In a small master every column counts, and there is nothing to save.
        if self.columns() < SMALL {
            return 0.0;
        }
        let mut others = 0.0;
        for block in 0..self.blocks.len() - 1 {
            let thetas = &work.theta[self.block(block)];
            others += thetas.iter().sum::<f64>() - thetas.iter().copied().fold(0.0, f64::max);
        }
        LIGHT * others / self.columns().max(1) as f64
    }

    /// Adds Σ θ_p d_p d_pᵀ − (Σ θ_p d_p)(Σ θ_p d_p)ᵀ / Σ θ_p with d_p = a_p − a_pivot.
    fn add_block(
        &self,
        matrix: &mut Cholesky,
        work: &mut Work,
        range: std::ops::Range<usize>,
        pivot: usize,
        light: f64,
    ) {
        let (pivot_rows, pivot_values) = self.entries(pivot);
        let theta = |work: &Work, c: usize| {
            if c == pivot || work.theta[c] > light {
                work.theta[c]
            } else {
                0.0
            }
        };
        let total: f64 = range.clone().map(|c| theta(work, c)).sum();
        let others = range.clone().filter(|&c| theta(work, c) > 0.0).count() - 1;
        // `dense` gathers Σ θ d; with one other column it is that column's difference alone.
        for column in range.filter(|&c| c != pivot) {
            let theta = theta(work, column);
            if theta == 0.0 {
                continue;
            }
            let (rows, values) = self.entries(column);
            merge_difference(rows, values, pivot_rows, pivot_values, &mut work.difference);
            // One other column: θ − θ²/Σθ at once, without cancellation.
            let weight = if others == 1 {
                theta * (1.0 - theta / total)
            } else {
                theta
            };
            rank_one(matrix, &work.difference, weight);
            if others > 1 {
                for &(r, d) in &work.difference {
                    work.dense[r as usize] += theta * d;
                    work.touched.push(r);
                }
            }
        }
        if others > 1 {
            let mut mean = work.take_touched();
            mean.retain(|&(_, v)| v != 0.0);
            rank_one(matrix, &mean, -1.0 / total);
            work.difference = mean;
        }
    }

    fn predict(&self, point: &Point, work: &mut Work) {
        work.rc_x.clear();
        work.rc_x
            .extend(point.x.iter().zip(&work.reduced).map(|(x, z)| -x * z));
        work.rc_s.clear();
        work.rc_s
            .extend(point.price.iter().zip(&work.slack).map(|(p, s)| -p * s));
    }

    fn correct(&self, point: &Point, work: &mut Work, target: f64) {
        for p in 0..self.columns() {
            work.rc_x[p] = target - point.x[p] * work.reduced[p] - work.dx[p] * work.dz[p];
        }
        for r in 0..self.rows {
            work.rc_s[r] = target - point.price[r] * work.slack[r] - work.dprice[r] * work.ds[r];
        }
    }

    fn direction(&self, matrix: &Cholesky, point: &Point, work: &mut Work) {
        work.h.clear();
        work.h
            .extend(work.rc_x.iter().zip(&work.reduced).map(|(r, z)| r / z));
        let mut rhs: Vec<f64> = (0..self.rows)
            .map(|r| work.rc_s[r] / point.price[r])
            .collect();
        for block in 0..self.blocks.len() - 1 {
            let range = self.block(block);
            let mean = work.h[range.clone()].iter().sum::<f64>() / work.weight[block];
            for column in range {
                let amount = work.h[column] - work.theta[column] * mean;
                let (rows, values) = self.entries(column);
                for (&r, &v) in rows.iter().zip(values) {
                    rhs[r as usize] += v * amount;
                }
            }
        }
        for column in self.loose() {
            let (rows, values) = self.entries(column);
            for (&r, &v) in rows.iter().zip(values) {
                rhs[r as usize] += v * work.h[column];
            }
        }
        work.dprice.clear();
        work.dprice.resize(self.rows, 0.0);
        work.dt = 0.0;
        for _ in 0..=REFINEMENTS {
            self.correct_direction(matrix, &mut rhs, work);
            self.recover(work);
            // What the rows' equations are off by; rounding in the factor would otherwise eat the slacks.
            let mut off = false;
            for (r, rest) in rhs.iter_mut().enumerate() {
                let wanted = (work.rc_s[r] - work.slack[r] * work.dprice[r]) / point.price[r];
                *rest = wanted - work.ds[r];
                off |= rest.abs() > 1e-4 * work.slack[r];
            }
            if !off {
                break;
            }
        }
    }

    /// Solves the bordered system for `rhs` and adds the solution to the direction of the prices and of t.
    fn correct_direction(&self, matrix: &Cholesky, rhs: &mut [f64], work: &mut Work) {
        matrix.solve(rhs);
        let mut dt = 0.0;
        if self.scale {
            // 1ᵀ dπ = 0 determines the free variable.
            let sum: f64 = rhs.iter().sum::<f64>() + work.dprice.iter().sum::<f64>();
            dt = sum / work.border.iter().sum::<f64>();
        }
        work.dt += dt;
        for (r, d) in rhs.iter().enumerate() {
            work.dprice[r] += d - if self.scale { dt * work.border[r] } else { 0.0 };
        }
    }

    /// dz, dx, dy and ds from the rows' direction.
    fn recover(&self, work: &mut Work) {
        work.dz.clear();
        work.dx.clear();
        work.dmarginal.clear();
        for block in 0..self.blocks.len() - 1 {
            let range = self.block(block);
            let base = self.priced(work.pivot[block] as usize, &work.dprice);
            let first = work.dz.len();
            let (mut weighted, mut h) = (0.0, 0.0);
            for column in range.clone() {
                let relative = if column == work.pivot[block] as usize {
                    0.0
                } else {
                    self.priced(column, &work.dprice) - base
                };
                weighted += work.theta[column] * relative;
                h += work.h[column];
                work.dz.push(relative);
            }
            let shift = (weighted - h) / work.weight[block];
            work.dmarginal.push(base + shift);
            for (dz, column) in work.dz[first..].iter_mut().zip(range) {
                *dz -= shift;
                work.dx.push(work.h[column] - work.theta[column] * *dz);
            }
        }
        for column in self.loose() {
            let dz = self.priced(column, &work.dprice);
            work.dz.push(dz);
            work.dx.push(work.h[column] - work.theta[column] * dz);
        }
        // From the columns' steps, not from the complementarity: slacks must follow what is really loaded.
        let mut ds = std::mem::take(&mut work.ds);
        self.load(&work.dx, &mut ds);
        ds.iter_mut().for_each(|d| *d = work.dt - *d);
        work.ds = ds;
    }

    fn step_lengths(&self, point: &Point, work: &Work, fraction: f64) -> (f64, f64) {
        let longest = |values: &[f64], steps: &[f64]| {
            values
                .iter()
                .zip(steps)
                .filter(|(_, d)| **d < 0.0)
                .map(|(v, d)| -v / d)
                .fold(f64::INFINITY, f64::min)
        };
        let primal = longest(&point.x, &work.dx).min(longest(&work.slack, &work.ds));
        let dual = longest(&work.reduced, &work.dz).min(longest(&point.price, &work.dprice));
        ((fraction * primal).min(1.0), (fraction * dual).min(1.0))
    }

    fn advance(&self, point: &mut Point, work: &Work, primal: f64, dual: f64) {
        for (x, d) in point.x.iter_mut().zip(&work.dx) {
            *x = (*x + primal * d).max(1e-16);
        }
        for block in 0..self.blocks.len() - 1 {
            let range = self.block(block);
            let sum: f64 = point.x[range.clone()].iter().sum();
            point.x[range].iter_mut().for_each(|x| *x /= sum);
        }
        point.t += primal * work.dt;
        for (p, d) in point.price.iter_mut().zip(&work.dprice) {
            *p = (*p + dual * d).max(1e-18);
        }
        for (y, d) in point.marginal.iter_mut().zip(&work.dmarginal) {
            *y += dual * d;
        }
    }
}

impl Work {
    /// The gathered sums as a sparse vector; the gathering buffer is clean after.
    fn take_touched(&mut self) -> Vec<(u32, f64)> {
        let mut rows = std::mem::take(&mut self.touched);
        rows.sort_unstable();
        rows.dedup();
        let gathered = rows
            .iter()
            .map(|&r| (r, std::mem::take(&mut self.dense[r as usize])))
            .collect();
        rows.clear();
        self.touched = rows;
        gathered
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// a − b of two sparse vectors with ascending rows.
fn merge_difference(
    rows_a: &[u32],
    a: &[f64],
    rows_b: &[u32],
    b: &[f64],
    out: &mut Vec<(u32, f64)>,
) {
    out.clear();
    let (mut i, mut j) = (0, 0);
    while i < rows_a.len() || j < rows_b.len() {
        let (ra, rb) = (
            rows_a.get(i).copied().unwrap_or(u32::MAX),
            rows_b.get(j).copied().unwrap_or(u32::MAX),
        );
        let (row, value) = if ra < rb {
            i += 1;
            (ra, a[i - 1])
        } else if rb < ra {
            j += 1;
            (rb, -b[j - 1])
        } else {
            i += 1;
            j += 1;
            (ra, a[i - 1] - b[j - 1])
        };
        if value != 0.0 {
            out.push((row, value));
        }
    }
}

/// Adds weight · v vᵀ to the lower triangle.
fn rank_one(matrix: &mut Cholesky, vector: &[(u32, f64)], weight: f64) {
    for (i, &(r, v)) in vector.iter().enumerate() {
        let row = matrix.row_mut(r as usize);
        let scaled = weight * v;
        for &(c, u) in &vector[..=i] {
            row[c as usize] += scaled * u;
        }
    }
}
