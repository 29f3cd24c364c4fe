//! The normal equations A Θ Aᵀ, block by block.

use super::super::cholesky::Cholesky;
use super::Master;
use super::parts::Part;

/// Working memory of one thread, and its part of the matrix.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    pub matrix: Cholesky,
    /// Rows of the block's columns, and where each stands among them.
    rows: Vec<u32>,
    place: Vec<u32>,
    /// One row for each column that differs from the pivot, as differences from it; and their weights.
    differences: Vec<f64>,
    weights: Vec<f64>,
    /// Σ θ d, and the block's share of the matrix over its rows.
    mean: Vec<f64>,
    product: Vec<f64>,
}

/// The heaviest column and the sum of the weights of each block of a part.
#[derive(Debug, Default)]
pub(super) struct Pivots {
    pub column: Vec<u32>,
    pub weight: Vec<f64>,
}

impl Assembly {
    /// Memory for a matrix whose factorisation may use so many threads.
    pub(super) fn new(threads: usize) -> Assembly {
        Assembly {
            matrix: Cholesky::new(threads),
            ..Assembly::default()
        }
    }

    /// Adds the blocks of a part to the matrix, which is cleared first; leaves out columns lighter than `light`.
    pub(super) fn add_part(
        &mut self,
        master: &Master,
        theta: &[f64],
        light: f64,
        part: &Part,
    ) -> Pivots {
        self.matrix.clear(master.rows);
        self.place.resize(master.rows, 0);
        let mut pivots = Pivots::default();
        for block in part.blocks.clone() {
            let range = master.block(block);
            let heaviest = range
                .clone()
                .max_by(|&a, &b| theta[a].total_cmp(&theta[b]))
                .unwrap_or(range.start);
            pivots.column.push(heaviest as u32);
            pivots.weight.push(theta[range.clone()].iter().sum());
            self.add_block(master, theta, light, range, heaviest);
        }
        pivots
    }

    /// Adds Σ θ_p d_p d_pᵀ − (Σ θ_p d_p)(Σ θ_p d_p)ᵀ / Σ θ_p with d_p = a_p − a_pivot: first densely over the rows
    /// that the block has, then all at once to the matrix.
    fn add_block(
        &mut self,
        master: &Master,
        theta: &[f64],
        light: f64,
        range: std::ops::Range<usize>,
        pivot: usize,
    ) {
        let others = range.filter(|&c| c != pivot && theta[c] > light);
        self.gather(master, theta, others, pivot);
        if self.rows.is_empty() {
            return;
        }
        let total = theta[pivot] + self.weights.iter().sum::<f64>();
        match self.weights[..] {
            [] => return,
            // One other column: θ − θ²/Σθ at once, without cancellation.
            [weight] => self.weights[0] = weight * (1.0 - weight / total),
            _ => {
                let count = self.rows.len();
                self.mean.clear();
                self.mean.resize(count, 0.0);
                for (row, weight) in self.differences.chunks_exact(count).zip(&self.weights) {
                    add_scaled(&mut self.mean, row, *weight);
                }
                self.differences.extend_from_slice(&self.mean);
                self.weights.push(-1.0 / total);
            }
        }
        self.multiply();
        self.scatter();
    }

    /// The rows, differences and weights of the columns that differ from the pivot.
    fn gather(
        &mut self,
        master: &Master,
        theta: &[f64],
        others: impl Iterator<Item = usize> + Clone,
        pivot: usize,
    ) {
        self.rows.clear();
        self.weights.clear();
        for column in others.clone() {
            self.rows.extend_from_slice(master.entries(column).0);
            self.weights.push(theta[column]);
        }
        let (pivot_rows, pivot_values) = master.entries(pivot);
        self.rows.extend_from_slice(pivot_rows);
        self.rows.sort_unstable();
        self.rows.dedup();
        for (place, &row) in self.rows.iter().enumerate() {
            self.place[row as usize] = place as u32;
        }
        let count = self.rows.len();
        self.differences.clear();
        self.differences.resize(count * self.weights.len(), 0.0);
        for (column, to) in others.zip(self.differences.chunks_exact_mut(count.max(1))) {
            let (rows, values) = master.entries(column);
            for (&row, &value) in rows.iter().zip(values) {
                to[self.place[row as usize] as usize] += value;
            }
            for (&row, &value) in pivot_rows.iter().zip(pivot_values) {
                to[self.place[row as usize] as usize] -= value;
            }
        }
    }

    /// Σ weight · d dᵀ over the block's rows, lower triangle.
    fn multiply(&mut self) {
        let count = self.rows.len();
        self.product.clear();
        self.product.resize(count * count, 0.0);
        for (d, weight) in self.differences.chunks_exact(count).zip(&self.weights) {
            for (i, &value) in d.iter().enumerate().filter(|(_, value)| **value != 0.0) {
                let to = &mut self.product[i * count..i * count + i + 1];
                add_scaled(to, &d[..=i], weight * value);
            }
        }
    }

    fn scatter(&mut self) {
        let count = self.rows.len();
        for (i, &row) in self.rows.iter().enumerate() {
            let to = self.matrix.row_mut(row as usize);
            let from = &self.product[i * count..i * count + i + 1];
            for (&column, value) in self.rows.iter().zip(from) {
                to[column as usize] += value;
            }
        }
    }

    /// Adds θ a aᵀ of a column that no block holds.
    pub(super) fn add_loose(&mut self, rows: &[u32], values: &[f64], theta: f64) {
        for (i, (&row, value)) in rows.iter().zip(values).enumerate() {
            let to = self.matrix.row_mut(row as usize);
            for (&column, other) in rows[..=i].iter().zip(values) {
                to[column as usize] += theta * value * other;
            }
        }
    }
}

fn add_scaled(to: &mut [f64], from: &[f64], factor: f64) {
    to.iter_mut()
        .zip(from)
        .for_each(|(to, from)| *to += factor * from);
}
