//! What a route loads, or an exchange of routes changes, row by row.

use crate::instance::{Commodity, Instance, Way};

/// Loads on few of many rows, each row once.
#[derive(Debug, Clone, Default)]
pub(super) struct Gathered {
    /// Rows that something was added to, some several times, and later each once.
    rows: Vec<u32>,
    /// What is on each of them once it is complete.
    list: Vec<(u32, f64)>,
    /// What was added so far, by row.
    sum: Vec<f64>,
}

impl Gathered {
    /// Nothing on so many rows.
    pub fn new(rows: usize) -> Gathered {
        Gathered {
            rows: Vec::new(),
            list: Vec::new(),
            sum: vec![0.0; rows],
        }
    }

    /// Adds what a commodity's whole demand loads on a route, times `sign`.
    pub fn add(&mut self, instance: &Instance, commodity: &Commodity, route: Way<'_>, sign: f64) {
        let Gathered { rows, sum, .. } = self;
        instance.loads_on(commodity, route, |row, load| {
            rows.push(row as u32);
            sum[row] += sign * load;
        });
    }

    /// Takes what was added: rows and what is on each, without those where nothing is left.
    pub fn take(&mut self) -> &[(u32, f64)] {
        let Gathered { rows, list, sum } = self;
        list.clear();
        list.resize(rows.len(), (0, 0.0));
        let mut count = 0;
        // Without a branch on what is there: that cannot be foretold.
        for &row in rows.iter() {
            let change = std::mem::take(&mut sum[row as usize]);
            list[count] = (row, change);
            count += usize::from(change != 0.0);
        }
        rows.clear();
        list.truncate(count);
        list
    }
}
