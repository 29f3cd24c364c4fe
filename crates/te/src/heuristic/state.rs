//! Loads as they are, and the cost tables that follow from them, kept up to date route by route.

use std::collections::HashMap;

use crate::instance::{Commodity, Instance, Route};
use crate::kernel::{Scratch, cheapest, least, trace};
use crate::solution::Objective;
use crate::tables::{BLOCKED, IMPOSSIBLE, Tables};
use crate::utilization::{piece, slope};

/// A row with less than this share of its capacity left is full.
const FULL: f64 = 1e-9;

/// Weights of the dynamic program's cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Weight of latency.
    pub latency: f64,
    /// Weight of utilisation: what one Mbit/s costs on a full link of mean bandwidth, in ms.
    pub utilization: f64,
    /// Growth of the cost's slope for each unit of utilisation, in powers of e.
    pub growth: f64,
}

impl Costs {
    /// The weights used for an objective.
    pub fn for_objective(objective: Objective) -> Costs {
        match objective {
            Objective::Throughput => Costs {
                latency: 1.0,
                utilization: 1000.0,
                growth: 12.0,
            },
            Objective::Scale => Costs {
                latency: 0.0,
                utilization: 1.0,
                growth: 24.0,
            },
            Objective::Latency => Costs {
                latency: 1.0,
                utilization: 20.0,
                growth: 12.0,
            },
        }
    }
}

/// Loads on an instance and the tables for routing one more chain at these loads.
#[derive(Debug, Clone)]
pub struct State {
    /// Load of each row, in its own unit.
    pub load: Vec<f64>,
    /// Utilisations are taken relative to this.
    reference: f64,
    costs: Costs,
    /// Rows that are full refuse more.
    strict: bool,
    unit: f64,
    pieces: Vec<u32>,
    slopes: Vec<f64>,
    price: Vec<f64>,
    tables: Tables,
    users: Users,
}

/// What the tables have to be brought up to date for when a row's price changes: of a link the pairs of nodes whose
/// traffic crosses it, of a site or a VNF at a site the VNFs and the place.
#[derive(Debug, Clone)]
struct Users {
    offset: Vec<u32>,
    pairs: Vec<(u32, u32)>,
}

impl Users {
    fn new(instance: &Instance) -> Self {
        let mut users = vec![Vec::new(); instance.rows()];
        for from in 0..instance.nodes {
            for to in 0..instance.nodes {
                for (link, _) in instance.network.path(from, to) {
                    users[link].push((from as u32, to as u32));
                }
            }
        }
        for (vnf, sites) in instance.vnfs.iter().enumerate() {
            for &(site, row) in &sites.deployments {
                let user = (vnf as u32, instance.site_place[site as usize]);
                users[instance.links + site as usize].push(user);
                users[row as usize].push(user);
            }
        }
        let mut offset = vec![0];
        let mut pairs = Vec::new();
        for list in users {
            pairs.extend(list);
            offset.push(pairs.len() as u32);
        }
        Self { offset, pairs }
    }

    fn of(&self, row: usize) -> &[(u32, u32)] {
        &self.pairs[self.offset[row] as usize..self.offset[row + 1] as usize]
    }
}

impl State {
    /// No load. `strict` makes full rows refuse more; otherwise they only become dear.
    pub fn new(instance: &Instance, costs: Costs, strict: bool) -> State {
        let links = &instance.capacity[..instance.links];
        let total: f64 = links.iter().sum();
        let unit = if total > 0.0 {
            total / links.len() as f64
        } else {
            1.0
        };
        let last = piece(f64::INFINITY);
        let mut state = State {
            load: vec![0.0; instance.rows()],
            reference: 1.0,
            costs,
            strict,
            unit,
            pieces: vec![0; instance.rows()],
            slopes: (0..=last).map(|p| slope(p, costs.growth)).collect(),
            price: vec![0.0; instance.rows()],
            tables: Tables::default(),
            users: Users::new(instance),
        };
        state.rebuild(instance);
        state
    }

    /// Takes utilisations relative to `reference` from now on.
    pub fn set_reference(&mut self, instance: &Instance, reference: f64) {
        self.reference = reference;
        self.rebuild(instance);
    }

    /// Recomputes all prices and tables from the loads, such as after capacities changed.
    pub fn rebuild(&mut self, instance: &Instance) {
        for row in 0..instance.rows() {
            self.pieces[row] = self.piece_of(instance, row);
            self.price[row] = self.price_of(instance, row);
        }
        self.tables.fill(instance, &self.price, self.costs.latency);
    }

    fn is_full(&self, instance: &Instance, row: usize) -> bool {
        let capacity = instance.capacity[row];
        capacity <= 0.0 || (self.strict && capacity - self.load[row] <= FULL * capacity)
    }

    fn piece_of(&self, instance: &Instance, row: usize) -> u32 {
        if self.is_full(instance, row) {
            return u32::MAX;
        }
        piece(self.load[row] / (instance.capacity[row] * self.reference))
    }

    fn price_of(&self, instance: &Instance, row: usize) -> f64 {
        match self.pieces[row] {
            u32::MAX => BLOCKED,
            p => {
                self.costs.utilization * self.unit / instance.capacity[row]
                    * self.slopes[p as usize]
            }
        }
    }

    /// Finds the cheapest route at the current loads; none when everything that could carry it is full.
    pub fn route(
        &self,
        instance: &Instance,
        commodity: &Commodity,
        scratch: &mut Scratch,
    ) -> Option<f64> {
        let cost = least(instance, &self.tables, commodity, scratch);
        (cost < IMPOSSIBLE).then(|| {
            trace(instance, &self.tables, commodity, scratch);
            cost
        })
    }

    /// What the commodity's whole demand loads on a route: every row once.
    pub fn needs(
        &self,
        instance: &Instance,
        commodity: &Commodity,
        route: &Route,
    ) -> Vec<(u32, f64)> {
        let mut needs: Vec<(u32, f64)> = Vec::with_capacity(40);
        instance.loads(commodity, route, |row, load| {
            match needs.iter_mut().find(|(r, _)| *r as usize == row) {
                Some((_, sum)) => *sum += load,
                None => needs.push((row as u32, load)),
            }
        });
        needs
    }

    /// The largest share of what is needed, at most `wanted`, that there is room for, and the row that limits it.
    pub fn room(
        &self,
        instance: &Instance,
        needs: &[(u32, f64)],
        wanted: f64,
    ) -> (f64, Option<usize>) {
        let (mut share, mut limit) = (wanted, None);
        for &(row, load) in needs {
            let row = row as usize;
            let free = (instance.capacity[row] - self.load[row]).max(0.0);
            if load * share > free {
                share = free / load;
                limit = Some(row);
            }
        }
        (share, limit)
    }

    /// Puts a share of the commodity's demand on a route; a negative share takes it off.
    pub fn add(&mut self, instance: &Instance, commodity: &Commodity, route: &Route, share: f64) {
        let needs = self.needs(instance, commodity, route);
        self.put(instance, &needs, share);
    }

    /// Loads rows with a share of what is needed.
    pub fn put(&mut self, instance: &Instance, needs: &[(u32, f64)], share: f64) {
        for &(row, load) in needs {
            let row = row as usize;
            self.load[row] = (self.load[row] + share * load).max(0.0);
            self.refresh(instance, row);
        }
    }

    /// Brings a row's price and the tables up to date after its load or capacity changed.
    pub fn refresh(&mut self, instance: &Instance, row: usize) {
        let piece = self.piece_of(instance, row);
        if piece == self.pieces[row] {
            return;
        }
        self.pieces[row] = piece;
        self.price[row] = self.price_of(instance, row);
        self.tables.set_price(row, self.price[row]);
        for &(first, second) in self.users.of(row) {
            let (first, second) = (first as usize, second as usize);
            if row < instance.links {
                self.tables
                    .refresh_pair(instance, first, second, self.costs.latency);
            } else {
                self.tables.refresh_vnf(instance, first, second);
            }
        }
    }

    /// The tables at the current loads.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }
}

impl State {
    /// Declares a row full that is so but for rounding.
    pub fn fill_up(&mut self, instance: &Instance, row: usize) {
        self.load[row] = self.load[row].max(instance.capacity[row] * (1.0 - FULL / 2.0));
        self.refresh(instance, row);
    }
}

impl State {
    /// The full rows that the commodity's route of least latency would need: what a refused chain lacks.
    pub fn blocking(&self, instance: &Instance, commodity: &Commodity) -> Vec<usize> {
        let free = Tables::new(instance, &vec![0.0; instance.rows()], 1.0);
        let mut scratch = Scratch::default();
        if cheapest(instance, &free, commodity, &mut scratch) >= IMPOSSIBLE {
            return Vec::new();
        }
        let mut rows = Vec::new();
        instance.loads(commodity, &scratch.route(), |row, _| {
            if self.is_full(instance, row) && !rows.contains(&row) {
                rows.push(row);
            }
        });
        rows
    }
}

/// The distinct routes that a chain with a limit on their number already has.
pub struct UsedRoutes {
    most: usize,
    routes: Vec<Route>,
}

impl UsedRoutes {
    /// Whether the chain may use this route too.
    pub fn allows(&self, route: &Route) -> bool {
        self.routes.len() < self.most || self.routes.contains(route)
    }

    /// Counts a route.
    pub fn insert(&mut self, route: &Route) {
        if self.most < usize::MAX && !self.routes.contains(route) {
            self.routes.push(route.clone());
        }
    }
}

impl UsedRoutes {
    /// None yet, of a chain of this number.
    pub fn none(instance: &Instance, chain: u32) -> UsedRoutes {
        UsedRoutes {
            most: instance
                .max_routes
                .get(&chain)
                .copied()
                .unwrap_or(usize::MAX),
            routes: Vec::new(),
        }
    }
}

/// The routes that chains have got so far, where their number is limited.
#[derive(Default)]
pub struct Used {
    of: HashMap<u32, UsedRoutes>,
    free: Option<UsedRoutes>,
}

impl Used {
    /// Those of a chain.
    pub fn of(&mut self, instance: &Instance, chain: u32) -> &mut UsedRoutes {
        let none = || UsedRoutes::none(instance, chain);
        if instance.max_routes.contains_key(&chain) {
            self.of.entry(chain).or_insert_with(none)
        } else {
            self.free.get_or_insert_with(none)
        }
    }

    /// Takes back all routes of a chain.
    pub fn forget(&mut self, chain: u32) {
        self.of.remove(&chain);
    }
}
