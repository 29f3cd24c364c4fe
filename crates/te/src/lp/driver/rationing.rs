//! What to carry where compute does not suffice for all: counting under throughput.
//!
//! Whatever the routes, a VNF handles all traffic of the chains that are carried. So there is a row for each VNF with the
//! capacity of its deployments together, and one for all sites: a small program that says what of each chain to carry, and
//! whose prices, put on every deployment alike, bound the whole problem by one sweep. Where thousands of deployments bind, which
//! is where prices are hardest to search for, both are nearly right; what is left is to route what was chosen: spread over all
//! deployments, where that is as good as what is proved, or else by a walk.

use std::collections::BTreeMap;

use super::counting::{hosts, passable};
use super::*;
use crate::instance::Commodity;
use crate::lp::interior::{Master, Point};
use crate::solution::{Flow, Status};

/// Share of its demand below which a commodity is left: rounding of the program.
pub(super) const LEAST: f64 = 1e-6;

/// Counting is of use where it proves that at least this share of all worth has to be left.
const SHORT: f64 = 1e-3;

/// Gap up to which what was counted is what binds; elsewhere links do too, which another start is better for.
const CLOSE: f64 = 0.04;

/// How near to its optimum the program is solved, as a share of all worth.
const NEAR: f64 = 1e-7;

/// Rows of an instance that are counted together, and their capacity.
struct Group {
    rows: Vec<usize>,
    capacity: f64,
}

/// The small program: blocks of a column that carries a commodity and one that leaves it.
struct Program {
    master: Master,
    /// The commodity of each block.
    blocks: Vec<usize>,
    /// What its rows count: each VNF, then all sites.
    groups: Vec<Group>,
}

impl Solver<'_> {
    /// Proves a bound by counting, and offers a routing of what is to be carried at its prices. Says whether compute is so
    /// short that this is where to go on from.
    pub(super) fn ration(&mut self) -> bool {
        if self.costing.objective != Objective::Throughput {
            return false;
        }
        let Some((shares, price)) = Program::new(self).map(|program| program.solve(self)) else {
            return false;
        };
        let before = (self.bound, self.proof.clone());
        let none = vec![f64::NEG_INFINITY; self.instance.commodities.len()];
        self.price_out(&price, &none, 0.0);
        if self.should_stop() {
            return false;
        }
        let is_short = self.bound - before.0 >= SHORT;
        let Some(routing) = is_short.then(|| self.routed(&shares)).flatten() else {
            // The old prices go with the start that comes now.
            (self.bound, self.proof) = before;
            return false;
        };
        let x = self.columns_of(&routing);
        let utilization = self.utilization(&x);
        // As far as it fits.
        self.offer(&x, &utilization);
        self.report();
        self.adopt_rows(&utilization, &price);
        self.first_price = Some(price);
        true
    }

    /// A routing of shares of the commodities; none where what fits of it is not near what is proved.
    fn routed(&self, shares: &[f64]) -> Option<Solution> {
        let worth = |(share, c): (&f64, &Commodity)| share * c.worth;
        let all: f64 = shares
            .iter()
            .zip(&self.instance.commodities)
            .map(worth)
            .sum();
        let bound = self.in_objective(self.bound);
        let within = |most: f64| {
            move |(_, fullest): &(Vec<Flow>, f64)| {
                let carried = all / fullest.max(1.0);
                relative_gap(Objective::Throughput, carried, bound) <= most
            }
        };
        let spread = self.spread(shares).filter(within(CLOSE));
        let (flows, _) = match spread {
            Some(spread) if within(self.options.gap)(&spread) => spread,
            spread => self.walked(shares).filter(within(CLOSE)).or(spread)?,
        };
        Some(Solution {
            status: Status::Feasible,
            objective: Objective::Throughput,
            value: all,
            bound: None,
            relaxed: None,
            seconds: 0.0,
            flows,
        })
    }

    /// Shares of the commodities spread over all deployments, and the fullest row; none where routes are restricted.
    fn spread(&self, shares: &[f64]) -> Option<(Vec<Flow>, f64)> {
        if !self.instance.max_routes.is_empty() {
            return None;
        }
        let flows = spreading::spread(self.instance, shares)?;
        let fullest = spreading::fullest(self.instance, &flows);
        Some((flows, fullest))
    }

    /// Shares of the commodities on routes of a walk that keeps the fullest row as empty as it can, and that row; none where
    /// one has no route.
    fn walked(&self, shares: &[f64]) -> Option<(Vec<Flow>, f64)> {
        let chosen: Vec<usize> = (0..shares.len()).filter(|&c| shares[c] > LEAST).collect();
        let mut part = self.instance.clone();
        let of = |&c: &usize| self.instance.commodities[c].clone();
        part.commodities = chosen.iter().map(of).collect();
        part.scale_stages(&chosen.iter().map(|&c| shares[c]).collect::<Vec<_>>());
        let quiet = self.monitor.quiet();
        let mut walk = Solver::new(&part, Objective::Scale, self.options, &quiet, self.clock);
        walk.warm_start();
        if walk.stuck.is_some() {
            return None;
        }
        let whole = |flow: Flow| Flow {
            commodity: chosen[flow.commodity],
            fraction: flow.fraction * shares[chosen[flow.commodity]],
            ..flow
        };
        let flows = outcome::flows(&part, &walk.columns, &walk.best);
        Some((flows.into_iter().map(whole).collect(), walk.value))
    }
}

impl Program {
    /// The program of a solver's instance; none where nothing is to be decided, or there is no room.
    fn new(solver: &Solver<'_>) -> Option<Program> {
        let instance = solver.instance;
        let group = |rows: Vec<usize>| Group {
            capacity: rows.iter().map(|&row| instance.capacity[row]).sum(),
            rows,
        };
        let passable = passable(instance);
        let rows = |vnf: &Vec<(u32, u32)>| vnf.iter().map(|&(_, row)| row as usize).collect();
        let hosts = hosts(instance, passable.iter().flatten());
        let vnfs = passable.iter().map(|vnf| group(rows(vnf)));
        let groups: Vec<Group> = vnfs.chain([group(hosts)]).collect();
        let mut master = Master {
            rows: groups.len(),
            start: vec![0],
            blocks: vec![0],
            limit: groups.iter().map(|group| group.room(instance)).collect(),
            threads: solver.options.threads,
            ..Master::default()
        };
        let mut blocks = Vec::new();
        for (index, commodity) in instance.commodities.iter().enumerate() {
            let loads = loads(instance, index, &groups);
            if !solver.costing.may_be_left(commodity) {
                loads
                    .iter()
                    .for_each(|&(row, load)| master.limit[row as usize] -= load);
                continue;
            }
            for (row, load) in loads {
                master.row.push(row);
                master.value.push(load);
            }
            let end = master.row.len() as u32;
            master.start.extend([end, end]);
            master
                .cost
                .extend([-commodity.worth / solver.costing.unit, 0.0]);
            master.blocks.push(master.cost.len() as u32);
            blocks.push(index);
        }
        let room = master.limit.iter().all(|limit| *limit > 0.0);
        (room && !blocks.is_empty()).then_some(Program {
            master,
            blocks,
            groups,
        })
    }

    /// What share of each commodity to carry, and prices of the instance's rows.
    fn solve(&self, solver: &Solver<'_>) -> (Vec<f64>, Vec<f64>) {
        let master = &self.master;
        let all: Vec<f64> = [1.0, 0.0].repeat(self.blocks.len());
        let mut load = Vec::new();
        master.load(&all, &mut load);
        let fits = load
            .iter()
            .zip(&master.limit)
            .map(|(load, limit)| limit / load.max(*limit));
        let share = 0.5 * fits.fold(1.0, f64::min);
        let mut point = Point {
            x: [share, 1.0 - share].repeat(self.blocks.len()),
            price: vec![0.0; master.rows],
            ..Point::default()
        };
        // Nothing is known of how far that is from the optimum: at most all worth.
        let mean = 1.0 / (master.columns() + master.rows) as f64;
        master.solve(&mut point, mean, NEAR, solver.clock);
        let mut shares = vec![1.0; solver.instance.commodities.len()];
        for (&commodity, x) in self.blocks.iter().zip(point.x.chunks(2)) {
            shares[commodity] = x[0];
        }
        let mut price = vec![0.0; solver.instance.rows()];
        let counted = self.groups.iter().zip(&point.price);
        for (group, paid) in counted.filter(|(group, _)| group.capacity > 0.0) {
            for &row in &group.rows {
                price[row] = paid * solver.instance.capacity[row] / group.capacity;
            }
        }
        (shares, price)
    }
}

impl Group {
    /// What part of the capacity is free.
    fn room(&self, instance: &Instance) -> f64 {
        let base = |&row: &usize| instance.base.get(row).unwrap_or(&0.0) * instance.capacity[row];
        let taken: f64 = self.rows.iter().map(base).sum();
        if self.capacity > 0.0 {
            1.0 - taken / self.capacity
        } else {
            1.0
        }
    }
}

/// What a whole commodity loads the groups with, as shares of their capacity. What has none is left out of account.
fn loads(instance: &Instance, commodity: usize, groups: &[Group]) -> Vec<(u32, f64)> {
    let c = &instance.commodities[commodity];
    let mut loads: BTreeMap<u32, f64> = BTreeMap::new();
    let sites = groups.len() - 1;
    for z in 0..c.vnfs as usize {
        let vnf = instance.stage_vnf[c.stage(z)] as usize;
        let load = instance.vnfs[vnf].load_per_mbps * instance.handled(c, z);
        for group in [vnf, sites] {
            if load > 0.0 && groups[group].capacity > 0.0 {
                *loads.entry(group as u32).or_default() += load / groups[group].capacity;
            }
        }
    }
    loads.into_iter().collect()
}
