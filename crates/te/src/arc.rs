//! The paper's arc formulation, equations 3 to 7, as a linear program with a variable x_{c z n1 n2} for each stage.
//!
//! This is the reference that the exact solver is compared with; it is far too large for real models. Chains with
//! limits on their routes have no arc formulation and are refused.
//!
//! Variables are shares of a chain's demand under every objective. The factor α of the scale objective would make them
//! shares times α; divided by it, the same program reads: least t = 1/α with load ≤ t · capacity. HiGHS solves that a
//! third faster, because its variables lie between 0 and 1 whatever the answer.

use std::collections::HashMap;

use crate::instance::{Commodity, Instance};
use crate::solution::Objective;

/// A row of a program: lower bound, upper bound, entries as (column, coefficient).
pub type Row = (f64, f64, Vec<(usize, f64)>);

/// A linear or mixed-integer program; rows are lists of (column, coefficient) with bounds.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Whether the objective is maximised.
    pub maximise: bool,
    /// Objective coefficient of each column.
    pub cost: Vec<f64>,
    /// Lower bound of each column.
    pub lower: Vec<f64>,
    /// Upper bound of each column.
    pub upper: Vec<f64>,
    /// Whether each column must be whole.
    pub integer: Vec<bool>,
    /// Rows: lower bound, upper bound, entries.
    pub rows: Vec<Row>,
}

impl Program {
    /// Adds a column that is at least zero.
    pub fn column(&mut self, cost: f64, upper: f64) -> usize {
        self.cost.push(cost);
        self.lower.push(0.0);
        self.upper.push(upper);
        self.integer.push(false);
        self.cost.len() - 1
    }
}

/// A stop of the arc formulation: an end's place, or a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stop {
    End(u32),
    Site(u32),
}

/// The arc formulation of an instance, and where its variables are.
pub struct Arc {
    /// The program.
    pub program: Program,
    /// Program row of each instance row that anything loads.
    pub capacity_row: HashMap<usize, usize>,
    /// The column of t = 1/α under scale.
    pub scale: Option<usize>,
}

impl Arc {
    /// Builds the formulation; `None` when a chain limits its routes.
    pub fn new(instance: &Instance, objective: Objective) -> Option<Arc> {
        if !instance.max_routes.is_empty()
            || instance.commodities.iter().any(|c| c.limits.is_some())
        {
            return None;
        }
        let mut program = Program {
            maximise: objective == Objective::Throughput,
            ..Program::default()
        };
        let scale = (objective == Objective::Scale).then(|| program.column(1.0, f64::INFINITY));
        let mut loads: Vec<Vec<(usize, f64)>> = vec![Vec::new(); instance.rows()];
        for commodity in &instance.commodities {
            add_commodity(instance, objective, commodity, &mut program, &mut loads);
        }
        let mut capacity_row = HashMap::new();
        for (row, mut entries) in loads.into_iter().enumerate().filter(|(_, e)| !e.is_empty()) {
            capacity_row.insert(row, program.rows.len());
            let mut limit = instance.capacity[row];
            if let Some(t) = scale {
                entries.push((t, -limit));
                limit = 0.0;
            }
            program
                .rows
                .push((f64::NEG_INFINITY, limit, sum_repeated(entries)));
        }
        Some(Arc {
            program,
            capacity_row,
            scale,
        })
    }

    /// The objective's value, in its own unit, of a solution of the program.
    pub fn value(&self, solution: f64) -> f64 {
        match self.scale {
            Some(_) => 1.0 / solution,
            None => solution,
        }
    }
}

fn stops(instance: &Instance, commodity: &Commodity, z: usize) -> Vec<Stop> {
    let ends = |places: &[u32]| places.iter().map(|&p| Stop::End(p)).collect();
    match z {
        0 => ends(instance.sources(commodity)),
        z if z == commodity.vnfs as usize + 1 => ends(instance.sinks(commodity)),
        z => {
            let vnf = instance.stage_vnf[commodity.stage(z - 1)] as usize;
            instance.vnfs[vnf]
                .deployments
                .iter()
                .map(|(site, _)| Stop::Site(*site))
                .collect()
        }
    }
}

fn node(instance: &Instance, stop: Stop) -> usize {
    let place = match stop {
        Stop::End(place) => place,
        Stop::Site(site) => instance.site_place[site as usize],
    };
    instance.node_at[place as usize] as usize
}

fn add_commodity(
    instance: &Instance,
    objective: Objective,
    commodity: &Commodity,
    program: &mut Program,
    loads: &mut [Vec<(usize, f64)>],
) {
    let last = commodity.vnfs as usize;
    let mut arriving: HashMap<Stop, Vec<usize>> = HashMap::new();
    for z in 0..=last {
        let stage = commodity.stage(z);
        let (w, v) = (instance.forward[stage], instance.reverse[stage]);
        let mut leaving: HashMap<Stop, Vec<usize>> = HashMap::new();
        let mut next: HashMap<Stop, Vec<usize>> = HashMap::new();
        for from in stops(instance, commodity, z) {
            for to in stops(instance, commodity, z + 1) {
                let (a, b) = (node(instance, from), node(instance, to));
                let latency = instance.network.latency_ms(a, b);
                if latency.is_infinite()
                    || (v > 0.0 && instance.network.latency_ms(b, a).is_infinite())
                {
                    continue;
                }
                let cost = match objective {
                    Objective::Latency => (w + v) * latency,
                    Objective::Throughput if z == 0 => commodity.worth,
                    _ => 0.0,
                };
                let x = program.column(cost, f64::INFINITY);
                leaving.entry(from).or_default().push(x);
                next.entry(to).or_default().push(x);
                add_loads(instance, commodity, (z, w, v), (from, to), x, loads);
            }
        }
        if z == 0 {
            // Sorted, so that the program is the same every time.
            let mut all: Vec<(usize, f64)> =
                leaving.values().flatten().map(|&x| (x, 1.0)).collect();
            all.sort_unstable_by_key(|&(x, _)| x);
            let carried = commodity.mandatory || objective == Objective::Scale;
            let least = if carried { 1.0 } else { 0.0 };
            program.rows.push((least, 1.0, all));
        } else {
            // Equation 5.
            let mut at: Vec<Stop> = stops(instance, commodity, z);
            at.dedup();
            for stop in at {
                let mut row: Vec<(usize, f64)> = Vec::new();
                row.extend(arriving.get(&stop).into_iter().flatten().map(|&x| (x, 1.0)));
                row.extend(leaving.get(&stop).into_iter().flatten().map(|&x| (x, -1.0)));
                program.rows.push((0.0, 0.0, row));
            }
        }
        arriving = next;
    }
}

/// Equations 4, 6 and 7 for one variable: a stage loads its links, the VNF that sends it and the one that receives it.
fn add_loads(
    instance: &Instance,
    commodity: &Commodity,
    (z, w, v): (usize, f64, f64),
    (from, to): (Stop, Stop),
    x: usize,
    loads: &mut [Vec<(usize, f64)>],
) {
    let (a, b) = (node(instance, from), node(instance, to));
    instance
        .network
        .path(a, b)
        .filter(|_| w > 0.0)
        .for_each(|(link, r)| loads[link].push((x, r * w)));
    instance
        .network
        .path(b, a)
        .filter(|_| v > 0.0)
        .for_each(|(link, r)| loads[link].push((x, r * v)));
    let mut compute = |position: usize, stop: Stop| {
        let Stop::Site(site) = stop else { return };
        let vnf = instance.stage_vnf[commodity.stage(position)] as usize;
        let load = instance.vnfs[vnf].load_per_mbps * (w + v);
        if load > 0.0 {
            loads[instance.links + site as usize].push((x, load));
            if let Some(row) = instance.vnf_row(vnf, site as usize) {
                loads[row].push((x, load));
            }
        }
    };
    if z > 0 {
        compute(z - 1, from);
    }
    if z < commodity.vnfs as usize {
        compute(z, to);
    }
}

fn sum_repeated(mut entries: Vec<(usize, f64)>) -> Vec<(usize, f64)> {
    entries.sort_by_key(|(column, _)| *column);
    let mut sums: Vec<(usize, f64)> = Vec::with_capacity(entries.len());
    for (column, value) in entries {
        match sums.last_mut() {
            Some((last, sum)) if *last == column => *sum += value,
            _ => sums.push((column, value)),
        }
    }
    sums
}
