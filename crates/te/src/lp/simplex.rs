//! A dense simplex method for small programs: shares of columns, one for each block, within capacities.
//!
//! The search over whole numbers of routes solves hundreds of such programs that differ by a few columns. They need
//! vertices, and an honest "does not fit", which an interior point method gives late. All rows are in units of their
//! capacity: with t the largest utilisation, the rows Σ a x + s = t − base make every vertex feasible for some t, so that the
//! first phase is to make t small. What fits has t ≤ 1.

/// Reduced costs and pivots below this are rounding.
const EPSILON: f64 = 1e-10;

/// Utilisation above one that counts as rounding.
const ROUNDING: f64 = 1e-9;

/// Pivots without progress after which the smallest index decides (Bland), which cannot cycle.
const DEGENERATE: usize = 40;

/// Columns in blocks, and what they cost and load.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Columns of each block; every column is in one. The shares of a block sum to one.
    pub blocks: Vec<Vec<usize>>,
    /// Cost of each column.
    pub cost: Vec<f64>,
    /// Loads of each column as (row, share of the row's capacity).
    pub loads: Vec<Vec<(usize, f64)>>,
    /// What loads each row besides.
    pub base: Vec<f64>,
}

/// What is made small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// The largest utilisation.
    Utilization,
    /// The cost, with all rows within their capacity.
    Cost,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// The least value, and a share for each column.
    Optimal(f64, Vec<f64>),
    /// A block has no column, or the rows have not the room.
    Infeasible,
    /// Too many pivots: rounding.
    Lost,
}

/// Solves the program with the columns that are `allowed`, from the `start` column of each block where that is one of
/// them. Returns also how many entries of tableaus it changed, as a measure of work.
pub fn solve(program: &Program, allowed: &[bool], start: &[usize], aim: Aim) -> (End, u64) {
    let Some(mut tableau) = Tableau::new(program, allowed, start) else {
        return (End::Infeasible, 0);
    };
    let end = tableau.run(program, aim);
    (end, tableau.work)
}

/// The tableau without its unit columns: one row for each basic variable, one column for each other, the right side last.
struct Tableau {
    width: usize,
    /// Rows, then the row of reduced costs.
    entries: Vec<f64>,
    basic: Vec<usize>,
    other: Vec<usize>,
    work: u64,
}

impl Tableau {
    fn new(program: &Program, allowed: &[bool], start: &[usize]) -> Option<Tableau> {
        let (columns, rows) = (program.cost.len(), program.base.len());
        let mut first = Vec::with_capacity(program.blocks.len());
        let mut other = Vec::new();
        let mut block_of = Vec::new();
        for (block, list) in program.blocks.iter().enumerate() {
            let mine = || list.iter().copied().filter(|&c| allowed[c]);
            let begin = mine().find(|&c| c == start[block]).or(mine().next())?;
            first.push(begin);
            for column in mine().filter(|&c| c != begin) {
                other.push(column);
                block_of.push(block);
            }
        }
        let t = columns + rows;
        other.push(t);
        let width = other.len() + 1;
        let blocks = first.len();
        let mut entries = vec![0.0; (blocks + rows + 1) * width];
        let at = |row: usize, column: usize| row * width + column;
        for block in 0..blocks {
            entries[at(block, width - 1)] = 1.0;
        }
        for (j, (&column, &block)) in other.iter().zip(&block_of).enumerate() {
            entries[at(block, j)] = 1.0;
            for &(row, load) in &program.loads[column] {
                entries[at(blocks + row, j)] += load;
            }
            for &(row, load) in &program.loads[first[block]] {
                entries[at(blocks + row, j)] -= load;
            }
        }
        for row in 0..rows {
            entries[at(blocks + row, width - 2)] = -1.0;
            entries[at(blocks + row, width - 1)] = -program.base[row];
        }
        for &column in &first {
            for &(row, load) in &program.loads[column] {
                entries[at(blocks + row, width - 1)] -= load;
            }
        }
        let basic = first
            .into_iter()
            .chain((0..rows).map(|row| columns + row))
            .collect();
        Some(Tableau {
            width,
            entries,
            basic,
            other,
            work: 0,
        })
    }

    fn rows(&self) -> usize {
        self.basic.len()
    }

    fn right(&self, row: usize) -> f64 {
        self.entries[(row + 1) * self.width - 1]
    }

    fn run(&mut self, program: &Program, aim: Aim) -> End {
        let t = program.cost.len() + program.base.len();
        let fullest = (program.blocks.len()..self.rows())
            .min_by(|&a, &b| self.right(a).total_cmp(&self.right(b)));
        if let Some(row) = fullest {
            self.pivot(row, self.other.len() - 1);
        }
        self.price(|variable| f64::from(u8::from(variable == t)));
        let enough = if aim == Aim::Cost {
            1.0
        } else {
            f64::NEG_INFINITY
        };
        if !self.improve(|value| value <= enough) {
            return End::Lost;
        }
        if aim == Aim::Utilization {
            return End::Optimal(self.value(), self.shares(program));
        }
        if self.value() > 1.0 + ROUNDING {
            return End::Infeasible;
        }
        self.limit(t);
        self.price(|variable| program.cost.get(variable).copied().unwrap_or(0.0));
        if !self.improve(|_| false) {
            return End::Lost;
        }
        End::Optimal(self.value(), self.shares(program))
    }

    /// Adds the row t + s = 1.
    fn limit(&mut self, t: usize) {
        let mut row = vec![0.0; self.width];
        row[self.width - 1] = 1.0;
        match self.basic.iter().position(|&b| b == t) {
            Some(i) => {
                for (new, old) in row.iter_mut().zip(&self.entries[i * self.width..]) {
                    *new -= old;
                }
            }
            None => {
                row[self
                    .other
                    .iter()
                    .position(|&o| o == t)
                    .expect("basic or not")] = 1.0
            }
        }
        let last = self.width - 1;
        row[last] = row[last].max(0.0);
        let end = self.rows() * self.width;
        self.entries.splice(end..end, row);
        self.basic.push(t + 1);
    }

    /// Writes the row of reduced costs for a cost of each variable.
    fn price(&mut self, cost: impl Fn(usize) -> f64) {
        let end = self.rows() * self.width;
        let (rows, reduced) = self.entries.split_at_mut(end);
        for (j, reduced) in reduced.iter_mut().enumerate() {
            *reduced = self.other.get(j).map_or(0.0, |&variable| cost(variable));
        }
        for (row, &variable) in rows.chunks_exact(self.width).zip(&self.basic) {
            let cost = cost(variable);
            if cost != 0.0 {
                reduced
                    .iter_mut()
                    .zip(row)
                    .for_each(|(d, a)| *d -= cost * a);
            }
        }
    }

    /// The present value of what was priced.
    fn value(&self) -> f64 {
        -self.right(self.rows())
    }

    /// Pivots until nothing is gained any more, or the value is `enough`; false where that does not come.
    fn improve(&mut self, enough: impl Fn(f64) -> bool) -> bool {
        let mut idle = 0;
        for _ in 0..20 * (self.rows() + self.width) {
            if enough(self.value()) {
                return true;
            }
            let Some(column) = self.entering(idle > DEGENERATE) else {
                return true;
            };
            let Some(row) = self.leaving(column) else {
                return false; // without end: no program of shares is, so it is rounding
            };
            let before = self.value();
            self.pivot(row, column);
            idle = if self.value() < before - EPSILON * before.abs() {
                0
            } else {
                idle + 1
            };
        }
        false
    }

    fn entering(&self, smallest_index: bool) -> Option<usize> {
        let reduced = &self.entries[self.rows() * self.width..][..self.other.len()];
        let better = reduced.iter().enumerate().filter(|(_, d)| **d < -EPSILON);
        if smallest_index {
            return better.min_by_key(|(j, _)| self.other[*j]).map(|(j, _)| j);
        }
        better.min_by(|a, b| a.1.total_cmp(b.1)).map(|(j, _)| j)
    }

    fn leaving(&self, column: usize) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for row in 0..self.rows() {
            let entry = self.entries[row * self.width + column];
            if entry <= EPSILON {
                continue;
            }
            let step = self.right(row).max(0.0) / entry;
            let better = best.is_none_or(|(least, at)| {
                step < least || step == least && self.basic[row] < self.basic[at]
            });
            if better {
                best = Some((step, row));
            }
        }
        best.map(|(_, row)| row)
    }

    fn pivot(&mut self, row: usize, column: usize) {
        let width = self.width;
        let pivot = self.entries[row * width + column];
        let mine: Vec<f64> = {
            let mine = &mut self.entries[row * width..][..width];
            mine.iter_mut().for_each(|a| *a /= pivot);
            mine[column] = 1.0 / pivot;
            mine.to_vec()
        };
        for (i, other) in self.entries.chunks_exact_mut(width).enumerate() {
            let factor = other[column];
            if i == row || factor == 0.0 {
                continue;
            }
            other
                .iter_mut()
                .zip(&mine)
                .for_each(|(a, m)| *a -= factor * m);
            other[column] = -factor * mine[column];
        }
        self.work += self.entries.len() as u64;
        std::mem::swap(&mut self.basic[row], &mut self.other[column]);
    }

    fn shares(&self, program: &Program) -> Vec<f64> {
        let mut shares = vec![0.0; program.cost.len()];
        for (row, &variable) in self.basic.iter().enumerate() {
            if let Some(share) = shares.get_mut(variable) {
                *share = self.right(row).clamp(0.0, 1.0);
            }
        }
        shares
    }
}

#[cfg(all(test, feature = "highs"))]
mod tests {
    use super::*;
    use crate::arc;
    use crate::highs::{self, Method, Outcome};
    use crate::random::Random;

    /// Blocks of columns with random costs and loads; every third column of a block loads nothing.
    fn random_program(random: &mut Random) -> Program {
        let mut program = Program::default();
        let rows = random.below(6);
        program.base = (0..rows).map(|_| random.between(0.0, 0.3)).collect();
        for _ in 0..1 + random.below(5) {
            let mut block = Vec::new();
            for i in 0..1 + random.below(6) {
                block.push(program.cost.len());
                program.cost.push(random.between(-1.0, 1.0));
                let of = |random: &mut Random| random.between(0.0, 1.2);
                let loads = (0..rows).filter(|row| i % 3 != 2 && (row + i) % 2 == 0);
                let loads: Vec<usize> = loads.collect();
                program
                    .loads
                    .push(loads.into_iter().map(|row| (row, of(random))).collect());
            }
            program.blocks.push(block);
        }
        program
    }

    /// The same for HiGHS; columns that are not allowed have the upper bound zero.
    fn reference(program: &Program, allowed: &[bool], aim: Aim) -> Option<f64> {
        let mut same = arc::Program::default();
        for (cost, allowed) in program.cost.iter().zip(allowed) {
            let cost = if aim == Aim::Cost { *cost } else { 0.0 };
            same.column(cost, f64::from(u8::from(*allowed)));
        }
        let fullest = (aim == Aim::Utilization).then(|| same.column(1.0, f64::INFINITY));
        for block in &program.blocks {
            let sum = block.iter().map(|&c| (c, 1.0)).collect();
            same.rows.push((1.0, 1.0, sum));
        }
        for (row, base) in program.base.iter().enumerate() {
            let of = |(column, loads): (usize, &Vec<(usize, f64)>)| {
                let load = loads.iter().find(|(r, _)| *r == row)?.1;
                Some((column, load))
            };
            let mut entries: Vec<(usize, f64)> =
                program.loads.iter().enumerate().filter_map(of).collect();
            entries.extend(fullest.map(|t| (t, -1.0)));
            let most = if fullest.is_some() { -base } else { 1.0 - base };
            same.rows.push((f64::NEG_INFINITY, most, entries));
        }
        match highs::solve(&same, Method::Simplex, 10.0) {
            Outcome::Optimal(value, _) => Some(value),
            Outcome::Infeasible => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn its_optima_are_those_of_highs_and_its_shares_make_them() {
        let mut random = Random::new(1);
        let (mut optimal, mut infeasible) = (0, 0);
        for number in 0..2000 {
            let program = random_program(&mut random);
            let allowed: Vec<bool> = program.cost.iter().map(|_| random.below(8) > 0).collect();
            let start: Vec<usize> = program.blocks.iter().map(|b| b[0]).collect();
            for aim in [Aim::Utilization, Aim::Cost] {
                if aim == Aim::Utilization && program.base.is_empty() {
                    continue; // nothing to be small
                }
                let (end, _) = solve(&program, &allowed, &start, aim);
                let expected = reference(&program, &allowed, aim);
                let (value, shares) = match end {
                    End::Optimal(value, shares) => (value, shares),
                    End::Infeasible => {
                        assert_eq!(expected, None, "{number} {aim:?}");
                        infeasible += 1;
                        continue;
                    }
                    End::Lost => panic!("{number} {aim:?}"),
                };
                let expected = expected.expect("a routing was found");
                assert!(
                    (value - expected).abs() < 1e-7,
                    "{number} {aim:?}: {value} {expected}"
                );
                optimal += 1;
                let mut rows = program.base.clone();
                for ((loads, share), allowed) in program.loads.iter().zip(&shares).zip(&allowed) {
                    assert!(*allowed || *share == 0.0);
                    loads
                        .iter()
                        .for_each(|(row, load)| rows[*row] += share * load);
                }
                for block in &program.blocks {
                    let sum: f64 = block.iter().map(|&c| shares[c]).sum();
                    assert!((sum - 1.0).abs() < 1e-9, "{number} {aim:?}: {sum}");
                }
                let most = rows.into_iter().fold(0.0, f64::max);
                let cost: f64 = shares.iter().zip(&program.cost).map(|(x, c)| x * c).sum();
                let (made, fits) = match aim {
                    Aim::Utilization => (most, true),
                    Aim::Cost => (cost, most <= 1.0 + 1e-8),
                };
                assert!(
                    fits && (made - value).abs() < 1e-8,
                    "{number} {aim:?}: {made} {most}"
                );
            }
        }
        assert!(optimal > 2000 && infeasible > 200, "{optimal} {infeasible}");
    }
}
