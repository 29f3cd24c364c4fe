//! Trajectories found so far, with their loads on the rows of all matrices and on the budgets of change.

use super::pricing::Segment;
use crate::instance::Instance;

/// The rows of a series: those of each matrix one after the other, then a budget of change for each matrix.
#[derive(Debug, Clone)]
pub struct Rows {
    /// Rows of one matrix.
    pub each: usize,
    /// Matrices.
    pub matrices: usize,
    /// For each matrix, the Mbit/s of demand that may change their route when it begins; empty where none may.
    pub budget: Vec<f64>,
}

impl Rows {
    /// All rows.
    pub fn count(&self) -> usize {
        (self.each + 1) * self.matrices
    }

    /// The rows that are capacities, so that the demands' factor scales with them.
    pub fn capacities(&self) -> std::ops::Range<usize> {
        0..self.each * self.matrices
    }

    /// The row that limits the change when a matrix begins.
    pub fn change(&self, matrix: usize) -> usize {
        self.each * self.matrices + matrix
    }
}

/// Trajectories as columns.
#[derive(Debug)]
pub struct Pool {
    /// Commodity of each column.
    pub commodity: Vec<u32>,
    /// Columns of each commodity.
    pub of: Vec<Vec<u32>>,
    trajectories: Vec<Vec<Segment>>,
    start: Vec<u32>,
    rows: Vec<u32>,
    loads: Vec<f64>,
    dense: Vec<f64>,
}

impl Pool {
    /// No columns yet.
    pub fn new(rows: &Rows, commodities: usize) -> Pool {
        Pool {
            commodity: Vec::new(),
            of: vec![Vec::new(); commodities],
            trajectories: Vec::new(),
            start: vec![0],
            rows: Vec::new(),
            loads: Vec::new(),
            dense: vec![0.0; rows.count()],
        }
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        self.commodity.len()
    }

    /// A column's trajectory.
    pub fn trajectory(&self, column: usize) -> &[Segment] {
        &self.trajectories[column]
    }

    /// Rows of a column and the share of each row's limit that the whole commodity takes.
    pub fn loads(&self, column: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let range = self.start[column] as usize..self.start[column + 1] as usize;
        let rows = self.rows[range.clone()].iter().map(|&r| r as usize);
        rows.zip(self.loads[range].iter().copied())
    }

    /// Adds a trajectory; returns its column and whether it is new.
    pub fn add(
        &mut self,
        instances: &[Instance],
        rows: &Rows,
        commodity: usize,
        trajectory: Vec<Segment>,
    ) -> (usize, bool) {
        let known = self.of[commodity]
            .iter()
            .find(|&&c| self.trajectories[c as usize] == trajectory);
        if let Some(&old) = known {
            return (old as usize, false);
        }
        let column = self.len();
        let mut touched: Vec<u32> = Vec::new();
        let dense = &mut self.dense;
        for (k, segment) in trajectory.iter().enumerate() {
            let end = trajectory
                .get(k + 1)
                .map_or(instances.len(), |next| next.first as usize);
            #[allow(
                clippy::needless_range_loop,
                reason = "the matrix's number names its rows too"
            )]
            for matrix in segment.first as usize..end {
                let instance = &instances[matrix];
                instance.loads(
                    &instance.commodities[commodity],
                    &segment.route,
                    |row, load| {
                        let at = matrix * rows.each + row;
                        if dense[at] == 0.0 {
                            touched.push(at as u32);
                        }
                        dense[at] += load / instance.capacity[row];
                    },
                );
            }
            if k > 0 {
                let first = segment.first as usize;
                let at = rows.change(first);
                dense[at] = instances[first].commodities[commodity].demand / rows.budget[first];
                touched.push(at as u32);
            }
        }
        touched.sort_unstable();
        for &row in &touched {
            let load = std::mem::take(&mut dense[row as usize]);
            if load > 0.0 {
                self.rows.push(row);
                self.loads.push(load);
            }
        }
        self.start.push(self.rows.len() as u32);
        self.commodity.push(commodity as u32);
        self.of[commodity].push(column as u32);
        self.trajectories.push(trajectory);
        (column, true)
    }

    /// Use of every row by a routing, as a share of its limit.
    pub fn utilization(&self, rows: &Rows, x: &[f64]) -> Vec<f64> {
        let mut utilization = vec![0.0; rows.count()];
        for (column, &x) in x.iter().enumerate().filter(|(_, x)| **x > 0.0) {
            self.loads(column)
                .for_each(|(row, load)| utilization[row] += x * load);
        }
        utilization
    }
}
