//! Chains that exchange their routes for cheaper ones, one after the other, at prices that follow the loads.
//!
//! Each step takes one chain, or a part of it, from the dearest of its routes to the cheapest there is; or, where it may be
//! left, from being left, which costs what it is worth. How much goes is what evens out the cost of both, so prices settle
//! instead of swinging: one step of Newton's method for a chain that is small beside the rows, a search for one that is not.

use super::congestion::Congestion;
use super::gathered::Gathered;
use super::held::{Held, NOTHING};
use crate::instance::{Commodity, Instance, Way};
use crate::kernel::{Scratch, least, trace};
use crate::tables::IMPOSSIBLE;

/// A chain's part is not split into pieces smaller than this.
const LEAST: f64 = 0.02;

/// What must be carried is worth this many times as much as what may be left.
const MUST: f64 = 1e3;

/// A part of a commodity: where it is, none being left; what the whole commodity would cost there; and its share.
struct Part {
    route: Option<u32>,
    cost: f64,
    share: f64,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing: there is nothing better.
    Stays,
    /// Something has another route now.
    Moved,
    /// There is no route at all.
    NoRoute,
}

/// Which commodities stay as they are, though something may be cheaper.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Content {
    /// One on a single route does not look for another while it costs at most this many times what its cheapest cost when
    /// it last looked,
    pub carried: f64,
    /// and one that is left while leaving it does.
    pub left: f64,
    /// One that looks has nothing to gain by less than this part of what it costs.
    pub gain: f64,
}

/// A routing that is being improved.
pub(super) struct Exchange<'a> {
    instance: &'a Instance,
    /// Loads and prices.
    pub rows: Congestion<'a>,
    /// Whether chains may stay uncarried where they cost more than they are worth.
    may_be_left: bool,
    /// A commodity whose routes cost less than this has nothing to gain that counts.
    pub idle: f64,
    /// Who stays.
    pub content: Content,
    /// Routes of the commodities.
    pub held: Held,
    /// What the cheapest route of each commodity cost when it was last looked at.
    cheapest: Vec<f64>,
    /// What a whole commodity that goes from one route to another changes.
    changes: Gathered,
    scratch: Scratch,
}

impl<'a> Exchange<'a> {
    /// Nothing routed yet.
    pub fn new(instance: &'a Instance, rows: Congestion<'a>, may_be_left: bool) -> Self {
        let commodities = instance.commodities.len();
        Exchange {
            instance,
            may_be_left,
            rows,
            idle: 0.0,
            held: Held::new(commodities),
            cheapest: vec![0.0; commodities],
            changes: Gathered::new(instance.rows()),
            scratch: Scratch::default(),
            content: Content::default(),
        }
    }

    /// Chains between two updates of the links' prices: they do not see each other on links.
    pub fn block(&self) -> usize {
        let instance = self.instance;
        let few = (instance.commodities.len() / 100).clamp(1, 64);
        few.max(instance.nodes / 16)
    }

    /// Lets one commodity exchange.
    pub fn step(&mut self, index: usize) -> Step {
        let instance = self.instance;
        let commodity = &instance.commodities[index];
        let cost_left = self.cost_left(commodity);
        let Some(part) = self.dearest(index, cost_left) else {
            return Step::Stays;
        };
        let worst = part.cost;
        if worst < self.idle || self.is_content(index, &part) {
            return Step::Stays;
        }
        let cheapest = least(instance, &self.rows.tables, commodity, &mut self.scratch);
        self.cheapest[index] = cheapest;
        let leaves = cost_left < cheapest;
        if !leaves && cheapest >= IMPOSSIBLE {
            return match self.held.of(index).next() {
                None => Step::NoRoute,
                Some(_) => Step::Stays,
            };
        }
        let gain = worst - if leaves { cost_left } else { cheapest };
        let counts = (NOTHING + self.content.gain) * worst.abs();
        if gain.is_nan() || gain <= counts && worst.is_finite() {
            return Step::Stays;
        }
        if !leaves {
            trace(instance, &self.rows.tables, commodity, &mut self.scratch);
        }
        self.go(index, &part, !leaves, gain)
    }

    /// The part of a commodity whose place is dearest, be that a route or, at this cost, being left.
    fn dearest(&self, index: usize, cost_left: f64) -> Option<Part> {
        let commodity = &self.instance.commodities[index];
        let left = 1.0 - self.held.carried(index);
        let mut dearest = (left > NOTHING).then_some(Part {
            route: None,
            cost: cost_left,
            share: left,
        });
        for route in self.held.of(index) {
            let cost = self.cost(commodity, self.held.way(route, commodity.vnfs));
            if dearest.as_ref().is_none_or(|part| cost > part.cost) {
                dearest = Some(Part {
                    route: Some(route),
                    cost,
                    share: self.held.share(route),
                });
            }
        }
        dearest
    }

    /// Takes as much of a part as is worth it to the route found last, or leaves it; going there gains so much at first.
    fn go(&mut self, index: usize, part: &Part, is_carried: bool, gain: f64) -> Step {
        let instance = self.instance;
        let commodity = &instance.commodities[index];
        let to = is_carried.then(|| self.scratch.way());
        if let Some(route) = part.route {
            let way = self.held.way(route, commodity.vnfs);
            self.changes.add(instance, commodity, way, -1.0);
        }
        if let Some(way) = to {
            self.changes.add(instance, commodity, way, 1.0);
        }
        let changes = self.changes.take();
        let step = length(&self.rows, changes, gain, part.share);
        let step = match instance.max_routes.contains_key(&commodity.chain) {
            true => whole(step, part.share),
            false => divided(step, part.share),
        };
        if step <= 0.0 {
            return Step::Stays;
        }
        for &(row, change) in changes {
            self.rows.put(row as usize, step * change);
        }
        if let Some(route) = part.route {
            self.held.take(index, route, step);
        }
        if let Some(way) = to {
            self.held.give(index, way, step);
        }
        Step::Moved
    }

    /// Whether a commodity that is as a whole in its dearest place need not look for another.
    fn is_content(&mut self, index: usize, part: &Part) -> bool {
        let known = self.cheapest[index];
        let Content { carried, left, .. } = self.content;
        let times = if part.route.is_some() { carried } else { left };
        let is_content = part.share >= 1.0 - NOTHING && part.cost <= times * known;
        if is_content && part.route.is_some() {
            self.cheapest[index] = part.cost.min(known);
        }
        is_content
    }

    /// What leaving a commodity costs; infinite where it may not be.
    fn cost_left(&self, commodity: &Commodity) -> f64 {
        match (self.may_be_left, commodity.mandatory) {
            (false, _) => f64::INFINITY,
            (true, true) => MUST * commodity.worth.max(commodity.demand),
            (true, false) => commodity.worth,
        }
    }

    /// What a route costs at the present prices.
    fn cost(&self, commodity: &Commodity, route: Way<'_>) -> f64 {
        let (instance, tables) = (self.instance, &self.rows.tables);
        let mut at = route.source as usize;
        let mut sum = 0.0;
        for z in 0..=commodity.vnfs as usize {
            let stage = commodity.stage(z);
            let next = match route.sites.get(z) {
                Some(&site) => {
                    let vnf = instance.stage_vnf[stage] as usize;
                    sum += instance.handled(commodity, z) * self.rows.visit(vnf, site);
                    instance.site_place[site as usize] as usize
                }
                None => route.sink as usize,
            };
            let pair = at * instance.stride + next;
            sum += instance.forward[stage] * tables.forward[pair]
                + instance.reverse[stage] * tables.reverse[pair];
            at = next;
        }
        sum
    }

    /// What a commodity is worth for each unit that carrying it costs at the present prices: over the routes that it has, over
    /// the cheapest if it was left, `anew` or as it was when the commodity last looked.
    pub fn density(&mut self, index: usize, anew: bool) -> f64 {
        let commodity = &self.instance.commodities[index];
        if anew {
            let tables = &self.rows.tables;
            let cost = least(self.instance, tables, commodity, &mut self.scratch);
            return commodity.worth / cost;
        }
        let (mut cost, mut carried) = (0.0, 0.0);
        for route in self.held.of(index) {
            let share = self.held.share(route);
            cost += share * self.cost(commodity, self.held.way(route, commodity.vnfs));
            carried += share;
        }
        if carried > 0.0 {
            commodity.worth * carried / cost
        } else {
            commodity.worth / self.cheapest[index]
        }
    }
}

/// How much of a share goes, given what a whole commodity gains by it at first.
fn length(rows: &Congestion<'_>, changes: &[(u32, f64)], gain: f64, share: f64) -> f64 {
    if !gain.is_finite() {
        return share;
    }
    match rows.curvature(changes, share) {
        Some(curvature) => share.min(gain / curvature.max(f64::MIN_POSITIVE)),
        None => rows.search(changes, gain, share),
    }
}

/// A step of a chain that may be divided, though not into pieces that are too small.
fn divided(step: f64, share: f64) -> f64 {
    match step / share {
        part if part > 0.9 => share,
        _ if step < LEAST => 0.0,
        _ => step,
    }
}

/// A step of a chain that limits the number of its routes: it goes whole or not at all.
fn whole(step: f64, share: f64) -> f64 {
    if step / share < 0.5 { 0.0 } else { share }
}
