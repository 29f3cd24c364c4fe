//! The normal equations A Θ Aᵀ, block by block.

use super::super::cholesky::Cholesky;
use super::Master;
use super::parts::Part;
use crate::clock::Clock;
use crate::instance::NONE;

/// Coefficients that differ by less than this share of them are the same but for rounding.
const SAME: f64 = 1e-13;

/// Working memory of one thread, and its part of the matrix.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    pub matrix: Cholesky,
    /// Rows of the block's columns, and where each stands among them.
    rows: Vec<u32>,
    place: Vec<u32>,
    /// Those of the rows on which any column differs from the pivot.
    kept: Vec<usize>,
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

    /// Adds the blocks of a part to the matrix, which is cleared first. When time is up it is left
    /// unfinished.
    ///
    /// Compiled for two instruction sets, which do the same operations in the same order: results do not depend on the
    /// processor.
    pub(super) fn add_part(
        &mut self,
        master: &Master,
        theta: &[f64],
        part: &Part,
        clock: &Clock<'_>,
    ) -> Pivots {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has just been asked for the feature.
            return unsafe { self.add_part_avx2(master, theta, part, clock) };
        }
        self.add_part_anywhere(master, theta, part, clock)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn add_part_avx2(
        &mut self,
        master: &Master,
        theta: &[f64],
        part: &Part,
        clock: &Clock<'_>,
    ) -> Pivots {
        self.add_part_anywhere(master, theta, part, clock)
    }

    #[inline(always)]
    fn add_part_anywhere(
        &mut self,
        master: &Master,
        theta: &[f64],
        part: &Part,
        clock: &Clock<'_>,
    ) -> Pivots {
        self.matrix.clear(master.rows);
        self.place.clear();
        self.place.resize(master.rows, NONE);
        let mut pivots = Pivots::default();
        for block in part.blocks.clone() {
            if clock.is_over_at(block) {
                break;
            }
            let range = master.block(block);
            let heaviest = range
                .clone()
                .max_by(|&a, &b| theta[a].total_cmp(&theta[b]))
                .unwrap_or(range.start);
            pivots.column.push(heaviest as u32);
            pivots.weight.push(theta[range.clone()].iter().sum());
            self.add_block(master, theta, range, heaviest);
        }
        pivots
    }

    /// Adds Σ θ_p d_p d_pᵀ − (Σ θ_p d_p)(Σ θ_p d_p)ᵀ / Σ θ_p with d_p = a_p − a_pivot: first densely over the rows
    /// that the block has, then all at once to the matrix.
    #[inline(always)]
    fn add_block(
        &mut self,
        master: &Master,
        theta: &[f64],
        range: std::ops::Range<usize>,
        pivot: usize,
    ) {
        let others = range.filter(|&c| c != pivot);
        self.weights.clear();
        self.weights.extend(others.clone().map(|c| theta[c]));
        if self.weights.is_empty() {
            return;
        }
        self.gather(master, others, pivot);
        if self.rows.is_empty() {
            return;
        }
        let total = theta[pivot] + self.weights.iter().sum::<f64>();
        match self.weights[..] {
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

    /// The rows on which a block's columns differ from the pivot, and the differences.
    #[inline(always)]
    fn gather(
        &mut self,
        master: &Master,
        others: impl Iterator<Item = usize> + Clone,
        pivot: usize,
    ) {
        self.rows.clear();
        let (pivot_rows, pivot_values) = master.entries(pivot);
        for column in others.clone() {
            self.mark(master.entries(column).0);
        }
        self.mark(pivot_rows);
        self.rows.sort_unstable();
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
                let to = &mut to[self.place[row as usize] as usize];
                *to -= value;
                if to.abs() <= SAME * value.abs() {
                    *to = 0.0;
                }
            }
        }
        for &row in &self.rows {
            self.place[row as usize] = NONE;
        }
        self.drop_equal_rows();
    }

    /// Forgets the rows on which no column differs from the pivot: most routes of a commodity share much of their way.
    #[inline(always)]
    fn drop_equal_rows(&mut self) {
        let count = self.rows.len();
        self.kept.clear();
        let differs = |place: &usize| {
            let mut of_place = self.differences[*place..].iter().step_by(count);
            of_place.any(|d| *d != 0.0)
        };
        self.kept.extend((0..count).filter(differs));
        if self.kept.len() == count {
            return;
        }
        let mut to = 0;
        for column in 0..self.weights.len() {
            for &place in &self.kept {
                self.differences[to] = self.differences[column * count + place];
                to += 1;
            }
        }
        self.differences.truncate(to);
        for (to, &place) in self.kept.iter().enumerate() {
            self.rows[to] = self.rows[place];
        }
        self.rows.truncate(self.kept.len());
    }

    /// Lists the rows that are not listed yet.
    fn mark(&mut self, rows: &[u32]) {
        for &row in rows {
            if self.place[row as usize] == NONE {
                self.place[row as usize] = 0;
                self.rows.push(row);
            }
        }
    }

    /// Σ weight · d dᵀ over the block's rows, lower triangle.
    #[inline(always)]
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

    #[inline(always)]
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

#[inline(always)]
fn add_scaled(to: &mut [f64], from: &[f64], factor: f64) {
    to.iter_mut()
        .zip(from)
        .for_each(|(to, from)| *to += factor * from);
}
