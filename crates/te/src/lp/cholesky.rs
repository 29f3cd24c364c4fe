//! Dense Cholesky factorisation, blocked so that the work is in matrix products.

use crate::clock::Clock;

/// Columns of a panel.
const BLOCK: usize = 128;

/// Orders from which the update is shared by several threads.
const PARALLEL: usize = 700;

/// A symmetric positive definite matrix, factorised in place as L·Lᵀ. Row-major; only the lower triangle is used.
#[derive(Debug, Default)]
pub struct Cholesky {
    order: usize,
    entries: Vec<f64>,
    threads: usize,
}

impl Cholesky {
    /// An empty matrix that large factorisations of use so many threads.
    pub fn new(threads: usize) -> Cholesky {
        Cholesky {
            threads,
            ..Cholesky::default()
        }
    }

    /// A zero matrix of the given order, reusing the memory.
    pub fn clear(&mut self, order: usize) {
        self.order = order;
        self.entries.clear();
        self.entries.resize(order * order, 0.0);
    }

    /// The row's entries up to the diagonal and beyond.
    #[inline]
    pub fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.entries[row * self.order..(row + 1) * self.order]
    }

    /// Adds to a diagonal entry.
    pub fn add_diagonal(&mut self, row: usize, value: f64) {
        self.entries[row * self.order + row] += value;
    }

    /// Adds the lower triangle of a matrix of the same order.
    pub fn add(&mut self, other: &Cholesky) {
        for row in 0..self.order {
            let lower = row * self.order..row * self.order + row + 1;
            let (to, from) = (&mut self.entries[lower.clone()], &other.entries[lower]);
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }

    /// Factorises. A pivot that rounding made too small is replaced by one so large that its unknown becomes zero.
    /// False when there was not the time for it.
    pub(crate) fn factorise(&mut self, clock: &Clock<'_>) -> bool {
        let n = self.order;
        let largest = (0..n).map(|i| self.entries[i * n + i]).fold(0.0, f64::max);
        for first in (0..n).step_by(BLOCK) {
            if clock.is_over() {
                return false;
            }
            let width = BLOCK.min(n - first);
            self.factorise_diagonal(first, width, largest);
            let below = first + width;
            if below < n {
                self.solve_panel(first, width);
                self.update(first, width, below, clock);
            }
        }
        !clock.is_over()
    }

    fn factorise_diagonal(&mut self, first: usize, width: usize, largest: f64) {
        let n = self.order;
        for j in first..first + width {
            let original = self.entries[j * n + j];
            let row_j = &self.entries[j * n + first..j * n + j];
            let pivot = original - dot(row_j, row_j);
            let pivot = if pivot > 1e-30 * largest && pivot > 1e-15 * original {
                pivot.sqrt()
            } else {
                1e64
            };
            self.entries[j * n + j] = pivot;
            for i in j + 1..first + width {
                let (head, tail) = self.entries.split_at(i * n);
                let known = dot(&head[j * n + first..j * n + j], &tail[first..j]);
                self.entries[i * n + j] = (self.entries[i * n + j] - known) / pivot;
            }
        }
    }

    /// Rows below the diagonal block: X = A21 · L11⁻ᵀ, as a product with the inverse of the small triangle.
    fn solve_panel(&mut self, first: usize, width: usize) {
        let n = self.order;
        let inverse = self.inverse_of_diagonal(first, width);
        let below = first + width;
        let panel = self.panel(first, width, below);
        self.in_strips(below, |offset, strip| {
            let rows = strip.len() / n;
            let left = &panel[offset * width..];
            let target = &mut strip[first..];
            assert!(left.len() >= rows * width && target.len() >= (rows - 1) * n + width);
            // SAFETY: `left` holds rows × width entries, `inverse` width × width, and `target` covers rows of stride n with
            // width entries each; the panel is a copy, so nothing overlaps.
            unsafe {
                matrixmultiply::dgemm(
                    rows,
                    width,
                    width,
                    1.0,
                    left.as_ptr(),
                    width as isize,
                    1,
                    inverse.as_ptr(),
                    width as isize,
                    1,
                    0.0,
                    target.as_mut_ptr(),
                    n as isize,
                    1,
                );
            }
        });
    }

    /// The transposed inverse of the factorised diagonal block.
    fn inverse_of_diagonal(&self, first: usize, width: usize) -> Vec<f64> {
        let n = self.order;
        let mut inverse = vec![0.0; width * width];
        for (j, column) in inverse.chunks_exact_mut(width).enumerate() {
            for i in j..width {
                let row = &self.entries[(first + i) * n + first..][..=i];
                let unit = if i == j { 1.0 } else { 0.0 };
                column[i] = (unit - dot(&row[j..i], &column[j..i])) / row[i];
            }
        }
        inverse
    }

    /// A copy of the columns of a panel below a row.
    fn panel(&self, first: usize, width: usize, below: usize) -> Vec<f64> {
        let n = self.order;
        (below..n)
            .flat_map(|row| {
                self.entries[row * n + first..row * n + first + width]
                    .iter()
                    .copied()
            })
            .collect()
    }

    /// A22 −= L21 · L21ᵀ, lower triangle only.
    fn update(&mut self, first: usize, width: usize, below: usize, clock: &Clock<'_>) {
        let n = self.order;
        let panel = self.panel(first, width, below);
        self.in_strips(below, |offset, strip| {
            if clock.is_over() {
                return;
            }
            let rows = strip.len() / n;
            let columns = offset + rows;
            let left = &panel[offset * width..];
            let target = &mut strip[below..];
            assert!(left.len() >= rows * width && target.len() >= (rows - 1) * n + columns);
            // SAFETY: `left` holds rows × width entries, `panel` at least columns × width, and `target` covers rows of
            // stride n with columns entries each; the panel is a copy, so nothing overlaps.
            unsafe {
                matrixmultiply::dgemm(
                    rows,
                    width,
                    columns,
                    -1.0,
                    left.as_ptr(),
                    width as isize,
                    1,
                    panel.as_ptr(),
                    1,
                    width as isize,
                    1.0,
                    target.as_mut_ptr(),
                    n as isize,
                    1,
                );
            }
        });
    }

    /// Does some work on strips of the rows from `below` on, which threads share where there are many: each with its first row, counted
    /// from there.
    fn in_strips(&mut self, below: usize, work: impl Fn(usize, &mut [f64]) + Sync) {
        let n = self.order;
        const ROWS: usize = 192;
        let strips = self.entries[below * n..].chunks_mut(ROWS * n).enumerate();
        let strips = strips.map(|(i, strip)| (i * ROWS, strip));
        if self.threads <= 1 || n - below < PARALLEL {
            return strips.for_each(|(offset, strip)| work(offset, strip));
        }
        // Later strips are longer: dealing them out in turn evens the load.
        let mut shares: Vec<Vec<(usize, &mut [f64])>> =
            (0..self.threads).map(|_| Vec::new()).collect();
        for (i, strip) in strips.enumerate() {
            shares[i % self.threads].push(strip);
        }
        std::thread::scope(|scope| {
            for share in shares {
                let work = &work;
                scope.spawn(move || {
                    let strips = share.into_iter();
                    strips.for_each(|(offset, strip)| work(offset, strip));
                });
            }
        });
    }

    /// Solves L·Lᵀ x = b in place.
    pub fn solve(&self, b: &mut [f64]) {
        let n = self.order;
        for i in 0..n {
            let row = &self.entries[i * n..i * n + i];
            b[i] = (b[i] - dot(row, &b[..i])) / self.entries[i * n + i];
        }
        for i in (0..n).rev() {
            b[i] /= self.entries[i * n + i];
            let (x, row) = (b[i], &self.entries[i * n..i * n + i]);
            for (entry, l) in b[..i].iter_mut().zip(row) {
                *entry -= l * x;
            }
        }
    }
}

/// A scalar product in several sums, so that it is not one chain of additions.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    const SUMS: usize = 16;
    let mut sums = [0.0; SUMS];
    let (a_chunks, b_chunks) = (a.chunks_exact(SUMS), b.chunks_exact(SUMS));
    let rest = a_chunks.remainder().iter().zip(b_chunks.remainder());
    let rest: f64 = rest.map(|(a, b)| a * b).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for k in 0..SUMS {
            sums[k] += a[k] * b[k];
        }
    }
    rest + sums.iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn solves_random_systems_of_orders_around_the_block_size() {
        let mut random = Random::new(7);
        for n in [
            1,
            2,
            17,
            BLOCK - 1,
            BLOCK,
            BLOCK + 1,
            3 * BLOCK + 5,
            PARALLEL + 99,
        ] {
            let factor: Vec<f64> = (0..n * n).map(|_| random.between(-1.0, 1.0)).collect();
            let entry = |i: usize, j: usize| {
                (0..n)
                    .map(|k| factor[i * n + k] * factor[j * n + k])
                    .sum::<f64>()
                    + if i == j { 1.0 } else { 0.0 }
            };
            let solution: Vec<f64> = (0..n).map(|_| random.between(-1.0, 1.0)).collect();
            let mut matrix = Cholesky::new(2);
            matrix.clear(n);
            let mut b = vec![0.0; n];
            for (i, sum) in b.iter_mut().enumerate() {
                for (j, value) in solution.iter().enumerate() {
                    *sum += entry(i, j) * value;
                    if j <= i {
                        matrix.row_mut(i)[j] = entry(i, j);
                    }
                }
            }
            let (options, monitor) = Default::default();
            assert!(matrix.factorise(&Clock::new(&options, &monitor)));
            matrix.solve(&mut b);
            let worst = b
                .iter()
                .zip(&solution)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f64::max);
            assert!(worst < 1e-8, "order {n}: off by {worst}");
        }
    }
}
