//! The pool of columns: routes found so far, with their cost and their loads as shares of the rows' capacities.

use crate::instance::{Commodity, Instance, Route};
use crate::solution::Objective;

/// End of a commodity's list.
const END: u32 = u32::MAX;

/// Columns of all commodities.
#[derive(Debug, Default)]
pub struct Columns {
    /// Commodity of each column.
    pub commodity: Vec<u32>,
    /// Objective coefficient of each column, in the solver's scaled unit.
    pub cost: Vec<f64>,
    routes: Vec<Option<Route>>,
    start: Vec<u32>,
    rows: Vec<u32>,
    loads: Vec<f64>,
    first: Vec<u32>,
    next: Vec<u32>,
    dense: Vec<f64>,
    touched: Vec<u32>,
}

/// What turns an instance into costs of minimum 0 … 1: the objective and its scale.
#[derive(Debug, Clone, Copy)]
pub struct Costing {
    /// The objective.
    pub objective: Objective,
    /// Costs are divided by this.
    pub unit: f64,
}

impl Costing {
    /// Whether a commodity may stay uncarried, in whole or in part.
    pub fn may_be_left(&self, commodity: &Commodity) -> bool {
        self.objective == Objective::Throughput && !commodity.mandatory
    }

    /// Cost of carrying a commodity whole on a route, in the solver's unit; to be minimised.
    pub fn of(&self, instance: &Instance, commodity: usize, route: &Route) -> f64 {
        let c = &instance.commodities[commodity];
        match self.objective {
            Objective::Scale => 0.0,
            Objective::Latency => instance.weighted_latency(c, route) / self.unit,
            Objective::Throughput => -c.worth / self.unit,
        }
    }
}

impl Columns {
    /// No columns for `commodities` commodities.
    pub fn new(instance: &Instance) -> Columns {
        Columns {
            start: vec![0],
            first: vec![END; instance.commodities.len()],
            dense: vec![0.0; instance.rows()],
            ..Columns::default()
        }
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        self.commodity.len()
    }

    /// Rows of a column and the share of each row's capacity that the whole commodity takes.
    pub fn loads(&self, column: usize) -> (&[u32], &[f64]) {
        let range = self.start[column] as usize..self.start[column + 1] as usize;
        (&self.rows[range.clone()], &self.loads[range])
    }

    /// The column's route; none for a column that carries nothing.
    pub fn route(&self, column: usize) -> Option<&Route> {
        self.routes[column].as_ref()
    }

    /// The columns of a commodity, the newest first.
    pub fn of(&self, commodity: usize) -> impl Iterator<Item = usize> + '_ {
        let mut at = self.first[commodity];
        std::iter::from_fn(move || {
            let column = at;
            (column != END).then(|| {
                at = self.next[column as usize];
                column as usize
            })
        })
    }

    /// Σ_r price_r · load_r of a column; prices by row, for a whole capacity.
    #[inline]
    pub fn priced(&self, column: usize, price: &[f64]) -> f64 {
        let (rows, loads) = self.loads(column);
        rows.iter()
            .zip(loads)
            .map(|(&r, &l)| price[r as usize] * l)
            .sum()
    }

    /// Adds a route; returns its column and whether it is new.
    pub fn add(
        &mut self,
        instance: &Instance,
        costing: &Costing,
        commodity: usize,
        route: &Route,
    ) -> (usize, bool) {
        if let Some(old) = self
            .of(commodity)
            .find(|&c| self.routes[c].as_ref() == Some(route))
        {
            return (old, false);
        }
        let (dense, touched) = (&mut self.dense, &mut self.touched);
        instance.loads(&instance.commodities[commodity], route, |row, load| {
            if dense[row] == 0.0 {
                touched.push(row as u32);
            }
            dense[row] += load / instance.capacity[row];
        });
        self.touched.sort_unstable();
        for &row in &self.touched {
            self.rows.push(row);
            self.loads
                .push(std::mem::take(&mut self.dense[row as usize]));
        }
        self.touched.clear();
        let cost = costing.of(instance, commodity, route);
        (self.push(commodity, cost, Some(route.clone())), true)
    }

    /// The column of a commodity that stands for what is not carried, added where it is new.
    pub fn uncarried(&mut self, commodity: usize) -> usize {
        let known = self.of(commodity).find(|&c| self.route(c).is_none());
        known.unwrap_or_else(|| self.push(commodity, 0.0, None))
    }

    fn push(&mut self, commodity: usize, cost: f64, route: Option<Route>) -> usize {
        let column = self.commodity.len();
        self.start.push(self.rows.len() as u32);
        self.commodity.push(commodity as u32);
        self.cost.push(cost);
        self.routes.push(route);
        self.next.push(self.first[commodity]);
        self.first[commodity] = column as u32;
        column
    }
}
