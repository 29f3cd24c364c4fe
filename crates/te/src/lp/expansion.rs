//! Capacity that a plan adds: the variables a_s of the paper's cloud planning, inside the solver.
//!
//! With t = 1/α and b_s = t·a_s the problem stays linear: the rows of a site become load ≤ t·m_s + b_s, those of its
//! VNFs grow in the same proportion, and Σ b_s ≤ t·A is one more row, the *budget*, the last of the instance. For row
//! prices π the bound needs the budget's price to be at least A · max_s (Σ prices at s) / m_s; then it is the usual one.

use super::master::Loose;
use crate::instance::Instance;

/// What may be added, and how it is being spread.
#[derive(Debug)]
pub struct Expansion {
    budget: u32,
    /// For each site: its row and those of its VNFs.
    rows: Vec<Vec<u32>>,
    /// A / m_s: growth of each site if it got everything.
    growth: Vec<f64>,
    /// Present share of each site.
    pub shares: Vec<f64>,
    /// Shares of the best routing.
    pub best: Vec<f64>,
}

impl Expansion {
    /// `added` capacity for the sites of an instance, spread evenly to begin with.
    pub fn new(instance: &Instance, added: f64) -> Expansion {
        let mut rows: Vec<Vec<u32>> = (0..instance.sites)
            .map(|s| vec![(instance.links + s) as u32])
            .collect();
        for (site, row) in instance.vnfs.iter().flat_map(|v| &v.deployments) {
            rows[*site as usize].push(*row);
        }
        let growth = (0..instance.sites)
            .map(|s| added / instance.capacity[instance.links + s])
            .collect();
        let even = vec![1.0 / instance.sites.max(1) as f64; instance.sites];
        Expansion {
            budget: instance.rows() as u32,
            rows,
            growth,
            best: even.clone(),
            shares: even,
        }
    }

    /// The columns b_s / A for the master, started at the present shares of t.
    pub fn loose(&self, t: f64) -> Loose {
        let column = |s: usize| {
            let mut column: Vec<(u32, f64)> =
                self.rows[s].iter().map(|&r| (r, -self.growth[s])).collect();
            column.push((self.budget, 1.0));
            column
        };
        Loose {
            columns: (0..self.rows.len()).map(column).collect(),
            x: self.shares.iter().map(|share| share * t * 0.999).collect(),
        }
    }

    /// Takes the shares from a master's solution.
    pub fn take(&mut self, loose: &[f64]) {
        let total: f64 = loose.iter().sum();
        if total > 0.0 {
            self.shares = loose.iter().map(|b| b / total).collect();
        }
    }

    /// Turns utilisations of the present capacities into those after the present shares are added; and prices of the
    /// capacities after that into those of the present ones.
    pub fn relieve(&self, utilization: &mut [f64]) {
        for (s, rows) in self.rows.iter().enumerate() {
            for &row in rows {
                utilization[row as usize] /= 1.0 + self.growth[s] * self.shares[s];
            }
        }
    }

    /// Sets the budget's price to the least that makes the bound hold.
    pub fn price_budget(&self, price: &mut [f64]) {
        let at = |s: usize| {
            self.growth[s] * self.rows[s].iter().map(|&r| price[r as usize]).sum::<f64>()
        };
        price[self.budget as usize] = (0..self.rows.len()).map(at).fold(0.0, f64::max);
    }
}
