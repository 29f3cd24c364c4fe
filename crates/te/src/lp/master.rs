//! Between the pool of columns and the interior-point master: which rows and columns take part.

use super::columns::Columns;
use super::interior::{Master, Point};
use crate::clock::Clock;
use crate::instance::{Instance, NONE};

/// Rows and columns of the master that is being solved.
#[derive(Debug, Default)]
pub struct Restricted {
    /// Rows that take part.
    pub rows: Vec<u32>,
    local: Vec<u32>,
    columns: Vec<u32>,
    /// Commodity of each block.
    blocks: Vec<u32>,
    threads: usize,
    base: Vec<f64>,
}

/// Where a master starts and when it stops.
pub struct Start<'a> {
    /// Share of each column of the pool.
    pub x: &'a [f64],
    /// Price of each row.
    pub price: &'a [f64],
    /// Gap expected at the start, in the solver's unit.
    pub gap: f64,
    /// Gap to reach.
    pub tolerance: f64,
    /// When to stop short of it.
    pub clock: &'a Clock<'a>,
}

/// Solution of a master in the pool's terms.
pub struct Solved {
    /// Share of each column of the pool.
    pub x: Vec<f64>,
    /// Price of each row.
    pub price: Vec<f64>,
    /// Marginal cost of each commodity.
    pub marginal: Vec<f64>,
    /// Complementarity gap reached.
    pub gap: f64,
    /// Values of the loose columns.
    pub loose: Vec<f64>,
}

/// Columns that belong to no commodity, such as capacity that a plan may add.
#[derive(Debug, Default)]
pub struct Loose {
    /// Rows and coefficients of each, rows ascending.
    pub columns: Vec<Vec<(u32, f64)>>,
    /// Their values to start from.
    pub x: Vec<f64>,
}

impl Restricted {
    /// No rows yet.
    pub fn new(instance: &Instance, threads: usize) -> Restricted {
        Restricted {
            threads,
            base: instance.base.clone(),
            local: vec![NONE; instance.rows()],
            ..Restricted::default()
        }
    }

    /// Lets a row take part; returns whether it is new.
    pub fn add_row(&mut self, row: usize) -> bool {
        if self.local[row] != NONE {
            return false;
        }
        self.local[row] = self.rows.len() as u32;
        self.rows.push(row as u32);
        true
    }

    /// Builds and solves the master of the columns that `keep` allows.
    pub fn solve(
        &mut self,
        columns: &Columns,
        scale: bool,
        start: &Start<'_>,
        keep: impl Fn(usize) -> bool,
        loose: &Loose,
    ) -> Solved {
        let commodities = columns.commodity.last().map_or(0, |_| {
            columns
                .commodity
                .iter()
                .max()
                .map_or(0, |m| *m as usize + 1)
        });
        let mut fixed: Vec<Option<u32>> = vec![None; commodities];
        let (mut master, mut point) = self.build(columns, scale, start, &keep, &mut fixed);
        self.add_loose(loose, &mut master, &mut point);
        let count = (master.columns() + master.rows) as f64;
        let (reached, _) =
            master.solve(&mut point, start.gap / count, start.tolerance, start.clock);
        self.spread(columns, &fixed, &point, reached)
    }

    fn build(
        &mut self,
        columns: &Columns,
        scale: bool,
        start: &Start<'_>,
        keep: &impl Fn(usize) -> bool,
        fixed: &mut [Option<u32>],
    ) -> (Master, Point) {
        let (x, price) = (start.x, start.price);
        let mut master = Master {
            rows: self.rows.len(),
            start: vec![0],
            scale,
            threads: self.threads,
            ..Master::default()
        };
        let base = |row: &u32| self.base.get(*row as usize).copied().unwrap_or(0.0);
        master.limit = self
            .rows
            .iter()
            .map(|row| if scale { 0.0 } else { 1.0 } - base(row))
            .collect();
        master.blocks = vec![0];
        let mut point = Point {
            price: self.rows.iter().map(|&r| price[r as usize]).collect(),
            ..Point::default()
        };
        self.columns.clear();
        self.blocks.clear();
        let mut mine: Vec<usize> = Vec::new();
        for commodity in order(columns, fixed.len()) {
            let fixed = &mut fixed[commodity];
            mine.clear();
            mine.extend(
                columns
                    .of(commodity)
                    .filter(|&c| x.get(c).is_some_and(|x| *x > 1e-7) || keep(c)),
            );
            if let [only] = mine[..] {
                *fixed = Some(only as u32);
                self.for_local(columns, only, |row, load| {
                    master.limit[row as usize] -= load
                });
                continue;
            }
            self.blocks.push(commodity as u32);
            for &column in &mine {
                self.for_local(columns, column, |row, load| {
                    master.row.push(row);
                    master.value.push(load);
                });
                sort_tail(&mut master);
                master.start.push(master.row.len() as u32);
                master.cost.push(columns.cost[column]);
                point.x.push(x.get(column).copied().unwrap_or(0.0));
                self.columns.push(column as u32);
            }
            master.blocks.push(self.columns.len() as u32);
        }
        (master, point)
    }

    fn add_loose(&self, loose: &Loose, master: &mut Master, point: &mut Point) {
        for (column, &x) in loose.columns.iter().zip(&loose.x) {
            for &(row, value) in column {
                let local = self.local[row as usize];
                if local != NONE {
                    master.row.push(local);
                    master.value.push(value);
                }
            }
            sort_tail(master);
            master.start.push(master.row.len() as u32);
            master.cost.push(0.0);
            point.x.push(x);
        }
    }

    fn for_local(&self, columns: &Columns, column: usize, mut f: impl FnMut(u32, f64)) {
        let (rows, loads) = columns.loads(column);
        for (&r, &l) in rows.iter().zip(loads) {
            let local = self.local[r as usize];
            if local != NONE {
                f(local, l);
            }
        }
    }

    fn spread(&self, columns: &Columns, fixed: &[Option<u32>], point: &Point, gap: f64) -> Solved {
        let mut solved = Solved {
            x: vec![0.0; columns.len()],
            price: vec![0.0; self.local.len()],
            marginal: vec![0.0; fixed.len()],
            gap,
            loose: Vec::new(),
        };
        for (&row, &price) in self.rows.iter().zip(&point.price) {
            solved.price[row as usize] = price;
        }
        solved.loose = point.x[self.columns.len()..].to_vec();
        for (&column, &x) in self.columns.iter().zip(&point.x) {
            solved.x[column as usize] = x;
        }
        for (&commodity, &marginal) in self.blocks.iter().zip(&point.marginal) {
            solved.marginal[commodity as usize] = marginal;
        }
        for (commodity, column) in fixed.iter().enumerate() {
            if let Some(column) = *column {
                let column = column as usize;
                solved.x[column] = 1.0;
                solved.marginal[commodity] =
                    columns.cost[column] + columns.priced(column, &solved.price);
            }
        }
        solved
    }
}

/// Commodities by the last rows of their newest route, which are those of VNFs: neighbours then add to the same part of
/// the master's equations.
fn order(columns: &Columns, commodities: usize) -> Vec<usize> {
    let key = |commodity: usize| columns.of(commodity).next().map(|c| columns.loads(c).0);
    let mut order: Vec<usize> = (0..commodities).collect();
    order.sort_by(|&a, &b| {
        let reversed = |c| key(c).into_iter().flatten().rev();
        reversed(a).cmp(reversed(b))
    });
    order
}

/// Sorts the entries of the column that is being added by local row.
fn sort_tail(master: &mut Master) {
    let first = *master.start.last().unwrap_or(&0) as usize;
    if master.row[first..].is_sorted() {
        return;
    }
    let mut entries: Vec<(u32, f64)> = master.row[first..]
        .iter()
        .copied()
        .zip(master.value[first..].iter().copied())
        .collect();
    entries.sort_unstable_by_key(|(row, _)| *row);
    for (at, (row, value)) in entries.into_iter().enumerate() {
        master.row[first + at] = row;
        master.value[first + at] = value;
    }
}
