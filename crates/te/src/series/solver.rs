//! Column generation over trajectories, certified by a Lagrangian bound.
//!
//! With prices π ≥ 0 on the capacities of all matrices and μ ≥ 0 on the budgets of change,
//! t ≥ (Σ_c cheapest trajectory of c − Σ μ) / Σ π, whatever the prices: the argument of
//! [`lp`](crate::lp), with one more kind of row that does not scale.

use super::pool::{Pool, Rows};
use super::pricing::{Prices, Segment};
use super::start::Shares;
use crate::clock::Clock;
use crate::instance::{Instance, NONE};
use crate::lp::interior::{Master, Point};
use crate::lp::{Monitor, Options, Phase, Progress};
use crate::parallel::in_parts;
use crate::solution::Status;

/// Most rounds.
const ROUNDS: usize = 200;

/// Room that the master's start leaves on every row, relative to the largest utilisation.
const ROOM: f64 = 0.05;

/// Sum of the master's first prices where t is one of its columns, whose reduced cost must be positive.
const FIRST_PRICES: f64 = 0.8;

/// Shares below this are rounding.
const NEGLIGIBLE: f64 = 1e-9;

/// A routing of a series: shares of trajectories.
pub struct Solver<'a> {
    instances: &'a [Instance],
    rows: Rows,
    options: &'a Options,
    monitor: &'a Monitor<'a>,
    clock: &'a Clock<'a>,
    /// All trajectories found.
    pub pool: Pool,
    taking_part: Vec<u32>,
    local: Vec<u32>,
    /// Best shares so far.
    pub best: Vec<f64>,
    /// Their largest utilisation, t = 1/α.
    pub value: f64,
    /// Proved lower bound on t, and the prices that prove it.
    pub bound: f64,
    proof: Vec<f64>,
    /// The largest utilisation that leaving out small shares may end at.
    most: f64,
    /// The best shares that change no more than the first, and how much of the budgets those take.
    calm: (f64, Vec<f64>),
    least_change: f64,
}

/// Solution of one master.
struct Solved {
    x: Vec<f64>,
    price: Vec<f64>,
    marginal: Vec<f64>,
    gap: f64,
}

impl<'a> Solver<'a> {
    /// A solver that knows only that `bound` was proved by `proof`, prices of whole capacities by matrix and row.
    pub fn new(
        instances: &'a [Instance],
        rows: Rows,
        (bound, proof): (f64, Vec<f64>),
        options: &'a Options,
        monitor: &'a Monitor<'a>,
        clock: &'a Clock<'a>,
    ) -> Self {
        let mut proof = proof;
        proof.resize(rows.count(), 0.0);
        Solver {
            pool: Pool::new(&rows, instances[0].commodities.len()),
            taking_part: Vec::new(),
            local: vec![NONE; rows.count()],
            best: Vec::new(),
            value: f64::INFINITY,
            most: f64::INFINITY,
            calm: (f64::INFINITY, Vec::new()),
            least_change: 0.0,
            instances,
            rows,
            options,
            monitor,
            clock,
            bound,
            proof,
        }
    }

    /// A solver of the same series that lets no route change; its bound is that of the series with change.
    pub fn without_change<'b>(
        &self,
        options: &'b Options,
        monitor: &'b Monitor<'b>,
        clock: &'b Clock<'b>,
    ) -> Solver<'b>
    where
        'a: 'b,
    {
        let rows = Rows {
            budget: Vec::new(),
            ..self.rows
        };
        let mut proof = self.proof.clone();
        proof[self.rows.capacities().end..].fill(0.0);
        let known = (self.bound, proof);
        Solver::new(self.instances, rows, known, options, monitor, clock)
    }

    /// Keeps the best routing so far: no answer will be worse.
    pub fn keep(&mut self) {
        self.most = self.value;
    }

    /// The rows of all matrices.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The matrices' instances.
    pub fn instances(&self) -> &'a [Instance] {
        self.instances
    }

    /// The best routing, for the start of another solver.
    pub fn shares(&self) -> Shares {
        let used = self.best.iter().enumerate().filter(|(_, x)| **x > 0.0);
        let share = |(column, x): (usize, &f64)| {
            let commodity = self.pool.commodity[column] as usize;
            (commodity, self.pool.trajectory(column).to_vec(), *x)
        };
        used.map(share).collect()
    }

    fn changes(&self) -> bool {
        !self.rows.budget.is_empty()
    }

    /// Distance of value and bound, relative to the bound's factor.
    pub fn gap(&self) -> f64 {
        ((self.value - self.bound) / self.value).max(0.0)
    }

    /// How the solve ended.
    pub fn status(&self) -> Status {
        self.clock.status(Some(self.gap()), self.options.gap)
    }

    fn report(&self) {
        if let Some(report) = self.monitor.report {
            report(&Progress {
                phase: Phase::AllMatrices,
                value: 1.0 / self.value,
                bound: 1.0 / self.bound,
                gap: self.gap(),
                ..Progress::at(self.clock.elapsed())
            });
        }
    }

    /// Starts from trajectories that change as little as possible; again from others if those change less. False where it
    /// may be `stopped` and was.
    pub fn start(&mut self, shares: Shares, stopped: bool) -> bool {
        let mut x: Vec<f64> = Vec::new();
        for (at, (commodity, trajectory, share)) in shares.into_iter().enumerate() {
            if stopped && self.clock.is_over_at(at) {
                return false;
            }
            let (column, _) = self
                .pool
                .add(self.instances, &self.rows, commodity, trajectory);
            x.resize(self.pool.len().max(x.len()), 0.0);
            x[column] += share;
        }
        let utilization = self.pool.utilization(&self.rows, &x);
        let change = self.change(&utilization);
        if self.calm.1.is_empty() || change < self.least_change {
            (self.least_change, self.calm) = (change, (f64::INFINITY, Vec::new()));
        }
        self.offer(&x);
        for row in self.rows.capacities() {
            if utilization[row] > 0.9 * self.value || self.proof[row] > 0.0 {
                self.take_part(row);
            }
        }
        if self.changes() {
            (1..self.rows.matrices).for_each(|m| {
                self.take_part(self.rows.change(m));
            });
        }
        self.report();
        true
    }

    fn take_part(&mut self, row: usize) -> bool {
        if self.local[row] != NONE {
            return false;
        }
        self.local[row] = self.taking_part.len() as u32;
        self.taking_part.push(row as u32);
        true
    }

    /// Rounds of master and pricing until the gap is closed or time is up.
    pub fn run(&mut self) {
        let mut price = self.proof.clone();
        let mut idle = 0;
        self.price_out(&price, None, 0.0);
        for _ in 0..ROUNDS {
            if self.gap() <= self.options.gap || self.clock.is_over() || idle > 3 {
                break;
            }
            let gap = (self.value - self.bound).max(1e-13);
            let least = 0.05 * self.options.gap.max(1e-10) * self.value;
            let tolerance = (0.1 * gap).max(least).min(gap) * 0.3f64.powi(idle);
            let Some(solved) = self.solve_master(&price, gap, tolerance) else {
                break;
            };
            let utilization = self.offer(&solved.x);
            let mut new = self.take_tight_rows(&utilization);
            let threshold = 1e-3 * solved.gap / self.pool.of.len() as f64;
            new += self.price_out(&solved.price, Some(&solved.marginal), threshold);
            let between = |(a, b): (&f64, &f64)| 0.5 * (a + b);
            let smooth: Vec<f64> = self.proof.iter().zip(&solved.price).map(between).collect();
            new += self.price_out(&smooth, Some(&solved.marginal), threshold);
            price = solved.price;
            idle = if new == 0 { idle + 1 } else { 0 };
            self.report();
        }
        self.thin_out();
    }

    /// The fullest budget of change.
    fn change(&self, utilization: &[f64]) -> f64 {
        let budgets = &utilization[self.rows.capacities().end..];
        budgets.iter().copied().fold(0.0, f64::max)
    }

    /// Takes shares over if they are better than the best; shares that change too much are mixed with those that
    /// change least. Returns the use of every row.
    fn offer(&mut self, x: &[f64]) -> Vec<f64> {
        let utilization = self.pool.utilization(&self.rows, x);
        let most = |u: &[f64]| {
            u[self.rows.capacities()]
                .iter()
                .copied()
                .fold(0.0, f64::max)
        };
        let change = self.change(&utilization);
        if change <= self.least_change && most(&utilization) < self.calm.0 {
            self.calm = (most(&utilization), x.to_vec());
        }
        let mut x = x.to_vec();
        let mut value = most(&utilization);
        if change > 1.0 {
            let part = ((1.0 - self.least_change) / (change - self.least_change)).max(0.0);
            x.iter_mut().for_each(|x| *x *= part);
            x.iter_mut()
                .zip(&self.calm.1)
                .for_each(|(x, calm)| *x += (1.0 - part) * calm);
            value = most(&self.pool.utilization(&self.rows, &x));
        }
        if value < self.value {
            (self.value, self.best) = (value, x);
        }
        utilization
    }

    fn take_tight_rows(&mut self, utilization: &[f64]) -> usize {
        let capacities = self.rows.capacities();
        let inside = self
            .taking_part
            .iter()
            .map(|&r| r as usize)
            .filter(|r| capacities.contains(r));
        let limit = inside.map(|r| utilization[r]).fold(0.0, f64::max);
        let tight: Vec<usize> = capacities
            .filter(|&r| utilization[r] > 0.97 * limit)
            .collect();
        tight.into_iter().filter(|&r| self.take_part(r)).count()
    }

    /// Proves a bound from prices and adds trajectories that beat `marginal`; returns how many are new.
    fn price_out(&mut self, price: &[f64], marginal: Option<&[f64]>, threshold: f64) -> usize {
        let capacities = self.rows.capacities();
        let total: f64 = price[capacities.clone()].iter().sum();
        let proves = |p: &f64| *p >= 0.0 && p.is_finite();
        if total <= 0.0 || !price.iter().all(proves) {
            return 0;
        }
        let mut change = vec![0.0; self.rows.matrices];
        let mut paid = 0.0;
        if self.changes() {
            for m in 1..self.rows.matrices {
                paid += price[self.rows.change(m)];
                change[m] = price[self.rows.change(m)] / self.rows.budget[m];
            }
        }
        let prices = Prices::new(self.instances, &price[capacities], change);
        let Some(found) = cheapest_of_all(
            &prices,
            self.pool.of.len(),
            !self.changes(),
            self.options.threads,
            self.clock,
        ) else {
            return 0;
        };
        let mut sum = 0.0;
        let mut new = 0;
        for (commodity, found) in found.into_iter().enumerate() {
            // Who has no route now that the start is known demands nothing in any matrix.
            let Some((cost, trajectory)) = found else {
                continue;
            };
            sum += cost;
            if marginal.is_none_or(|m| cost < m[commodity] - threshold) {
                new += usize::from(
                    self.pool
                        .add(self.instances, &self.rows, commodity, trajectory)
                        .1,
                );
            }
        }
        let bound = (sum - paid) / total;
        if bound > self.bound {
            (self.bound, self.proof) = (bound, price.to_vec());
        }
        new
    }

    /// The restricted master over all trajectories found; none when there was not the time to write it down.
    fn solve_master(&self, price: &[f64], gap: f64, tolerance: f64) -> Option<Solved> {
        let capacity = |row: &u32| self.rows.capacities().contains(&(*row as usize));
        let scaled: Vec<u32> = (0..self.taking_part.len() as u32)
            .filter(|&l| capacity(&self.taking_part[l as usize]))
            .collect();
        let mut master = Master {
            rows: self.taking_part.len(),
            start: vec![0],
            blocks: vec![0],
            scale: !self.changes(),
            threads: self.options.threads,
            ..Master::default()
        };
        master.limit = self
            .taking_part
            .iter()
            .map(|r| f64::from(u8::from(!capacity(r))))
            .collect();
        let mut point = Point {
            price: self
                .taking_part
                .iter()
                .map(|&r| price[r as usize])
                .collect(),
            ..Point::default()
        };
        let mut columns: Vec<u32> = Vec::new();
        let mut fixed: Vec<u32> = Vec::new();
        for (commodity, mine) in self.pool.of.iter().enumerate() {
            if self.clock.is_over_at(commodity) {
                return None;
            }
            if mine.is_empty() {
                continue;
            }
            if let [only] = mine[..] {
                fixed.push(only);
                self.local_loads(only, |row, load| master.limit[row as usize] -= load);
                continue;
            }
            for &column in mine {
                self.local_loads(column, |row, load| {
                    master.row.push(row);
                    master.value.push(load);
                });
                sort_last(&mut master);
                master.start.push(master.row.len() as u32);
                master.cost.push(0.0);
                point
                    .x
                    .push(self.best.get(column as usize).copied().unwrap_or(0.0));
                columns.push(column);
            }
            master.blocks.push(columns.len() as u32);
        }
        if self.changes() {
            self.add_factor(&mut master, &mut point, &scaled);
        }
        let count = (master.columns() + master.rows) as f64;
        let (reached, _) = master.solve(&mut point, gap / count, tolerance, self.clock);
        Some(self.read_back(&point, &columns, &fixed, &scaled, reached))
    }

    /// Where some rows do not scale with t, t is a column of its own: cost 1, and −1 on every row that scales.
    fn add_factor(&self, master: &mut Master, point: &mut Point, scaled: &[u32]) {
        for &row in scaled {
            master.row.push(row);
            master.value.push(-1.0);
        }
        master.start.push(master.row.len() as u32);
        master.cost.push(1.0);
        point.x.push(self.value * (1.0 + ROOM));
        let total: f64 = scaled.iter().map(|&r| point.price[r as usize]).sum();
        point
            .price
            .iter_mut()
            .for_each(|p| *p *= FIRST_PRICES / total.max(f64::MIN_POSITIVE));
    }

    fn local_loads(&self, column: u32, mut add: impl FnMut(u32, f64)) {
        for (row, load) in self.pool.loads(column as usize) {
            if self.local[row] != NONE {
                add(self.local[row], load);
            }
        }
    }

    fn read_back(
        &self,
        point: &Point,
        columns: &[u32],
        fixed: &[u32],
        scaled: &[u32],
        gap: f64,
    ) -> Solved {
        let mut solved = Solved {
            x: vec![0.0; self.pool.len()],
            price: vec![0.0; self.rows.count()],
            marginal: vec![0.0; self.pool.of.len()],
            gap,
        };
        let total: f64 = scaled.iter().map(|&r| point.price[r as usize]).sum();
        for (&row, &price) in self.taking_part.iter().zip(&point.price) {
            solved.price[row as usize] = price / total;
        }
        for (&column, &x) in columns.iter().zip(&point.x) {
            solved.x[column as usize] = x;
        }
        let mut marginal = point.marginal.iter();
        for (commodity, mine) in self.pool.of.iter().enumerate() {
            if mine.len() > 1 {
                solved.marginal[commodity] = marginal.next().copied().unwrap_or(0.0) / total;
            }
        }
        for &column in fixed {
            let priced = |(row, load): (usize, f64)| solved.price[row] * load;
            let cost = self.pool.loads(column as usize).map(priced).sum();
            solved.x[column as usize] = 1.0;
            solved.marginal[self.pool.commodity[column as usize] as usize] = cost;
        }
        solved
    }

    /// Leaves out small shares while the proof still holds.
    fn thin_out(&mut self) {
        if self.bound <= 0.0 {
            // Nothing tells what thinning would cost.
            return;
        }
        let before = self.gap();
        for least in [0.1, 0.03, 0.01, 0.003, 0.001, NEGLIGIBLE] {
            let share = |c: u32| self.best.get(c as usize).copied().unwrap_or(0.0);
            let mut x = vec![0.0; self.pool.len()];
            for mine in &self.pool.of {
                let kept: f64 = mine.iter().map(|&c| share(c)).filter(|x| *x >= least).sum();
                for &column in mine.iter().filter(|&&c| share(c) >= least) {
                    x[column as usize] = share(column) / kept;
                }
            }
            let utilization = self.pool.utilization(&self.rows, &x);
            let (capacities, change) = utilization.split_at(self.rows.capacities().end);
            let value = capacities.iter().copied().fold(0.0, f64::max);
            let gap = (value - self.bound) / value;
            let holds = value <= self.most && change.iter().all(|c| *c <= 1.0);
            if holds && gap <= self.options.gap.max(before) {
                (self.best, self.value) = (x, value);
                return;
            }
        }
    }
}

/// A commodity's cheapest trajectory and its cost; none where it has no route.
type Found = Option<(f64, Vec<Segment>)>;

/// Commodities from which pricing is shared by threads.
const MANY: usize = 64;

/// The cheapest trajectory of every commodity, on several threads; none when there was not the time for all.
fn cheapest_of_all(
    prices: &Prices<'_>,
    count: usize,
    constant: bool,
    threads: usize,
    clock: &Clock<'_>,
) -> Option<Vec<Found>> {
    let part = |range: std::ops::Range<usize>| -> Option<Vec<_>> {
        let one = |c| (!clock.is_over()).then(|| prices.cheapest(c, constant));
        range.map(one).collect()
    };
    let parts: Option<Vec<Vec<_>>> = in_parts(count, threads, MANY, part).into_iter().collect();
    Some(parts?.into_iter().flatten().collect())
}

/// Sorts the entries of the column that is being added by local row.
fn sort_last(master: &mut Master) {
    let first = *master.start.last().unwrap_or(&0) as usize;
    if master.row[first..].is_sorted() {
        return;
    }
    let rows = master.row[first..].iter().copied();
    let mut entries: Vec<(u32, f64)> = rows.zip(master.value[first..].iter().copied()).collect();
    entries.sort_unstable_by_key(|(row, _)| *row);
    for (at, (row, value)) in entries.into_iter().enumerate() {
        (master.row[first + at], master.value[first + at]) = (row, value);
    }
}
