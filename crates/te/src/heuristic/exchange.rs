//! Chains that exchange their routes for cheaper ones, one after the other, at prices that follow the loads.
//!
//! Each step takes one chain, or a part of it, from the dearest of its routes to the cheapest there is; or, where it may be
//! left, from being left, which costs what it is worth. How much goes is what evens out the cost of both, so prices settle
//! instead of swinging: one step of Newton's method for a chain that is small beside the rows, a search for one that is not.

use super::congestion::Congestion;
use crate::instance::{Commodity, Instance, Route};
use crate::kernel::{Scratch, cheapest};
use crate::solution::Flow;
use crate::tables::IMPOSSIBLE;

/// Shares smaller than this are none.
const NOTHING: f64 = 1e-9;

/// A chain's part is not split into pieces smaller than this.
const LEAST: f64 = 0.02;

/// What must be carried is worth this many times as much as what may be left.
const MUST: f64 = 1e3;

/// A chain that changes a row's price by more than this power of e is no small one,
const SMALL: f64 = 1.0;

/// and the share of it that goes is searched in so many halvings.
const HALVINGS: usize = 12;

/// A route and its share of the commodity.
struct Held {
    route: Route,
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

/// A routing that is being improved.
pub(super) struct Exchange<'a> {
    instance: &'a Instance,
    /// Loads and prices.
    pub rows: Congestion<'a>,
    /// Whether chains may stay uncarried where they cost more than they are worth.
    may_be_left: bool,
    /// A commodity whose routes cost less than this has nothing to gain that counts.
    pub idle: f64,
    /// Routes of each commodity.
    held: Vec<Vec<Held>>,
    /// What a whole commodity that goes from one route to another changes on rows; zero on those not in `touched`.
    change: Vec<f64>,
    touched: Vec<u32>,
    is_touched: Vec<bool>,
    scratch: Scratch,
}

impl<'a> Exchange<'a> {
    /// Nothing routed yet.
    pub fn new(instance: &'a Instance, rows: Congestion<'a>, may_be_left: bool) -> Self {
        Exchange {
            instance,
            may_be_left,
            rows,
            idle: 0.0,
            held: instance.commodities.iter().map(|_| Vec::new()).collect(),
            change: vec![0.0; instance.rows()],
            touched: Vec::new(),
            is_touched: vec![false; instance.rows()],
            scratch: Scratch::default(),
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
        let left = 1.0 - self.share(index);
        let cost_left = self.cost_left(commodity);
        let mut from = (left > NOTHING).then_some((None, cost_left, left));
        for (at, held) in self.held[index].iter().enumerate() {
            let cost = self.cost(commodity, &held.route);
            if from.is_none_or(|(_, worst, _)| cost > worst) {
                from = Some((Some(at), cost, held.share));
            }
        }
        let Some((from, worst, share)) = from.filter(|(_, worst, _)| *worst >= self.idle) else {
            return Step::Stays;
        };
        let cheapest = cheapest(instance, &self.rows.tables, commodity, &mut self.scratch);
        let leaves = cost_left < cheapest;
        if !leaves && cheapest >= IMPOSSIBLE {
            return if self.held[index].is_empty() {
                Step::NoRoute
            } else {
                Step::Stays
            };
        }
        let gain = worst - if leaves { cost_left } else { cheapest };
        let same = match from {
            Some(at) => !leaves && self.scratch.is(&self.held[index][at].route),
            None => leaves,
        };
        if same || gain.is_nan() || gain <= NOTHING * worst.abs() && worst.is_finite() {
            return Step::Stays;
        }
        let to = (!leaves).then(|| self.scratch.route());
        self.gather(index, from, to.as_ref());
        let step = self.length(commodity, gain, share);
        self.carry_out(step);
        if step <= 0.0 {
            return Step::Stays;
        }
        self.hold(index, from, to, step);
        Step::Moved
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
    fn cost(&self, commodity: &Commodity, route: &Route) -> f64 {
        let (instance, tables) = (self.instance, &self.rows.tables);
        let mut at = route.source as usize;
        let mut sum = 0.0;
        for z in 0..=commodity.vnfs as usize {
            let stage = commodity.stage(z);
            let next = match route.sites.get(z) {
                Some(&site) => {
                    let vnf = instance.stage_vnf[stage] as usize;
                    let place = instance.site_place[site as usize] as usize;
                    let entry = vnf * instance.site_places + place;
                    let price = if tables.site[entry] == site {
                        tables.vnf[entry]
                    } else {
                        self.rows.price_at(vnf, site)
                    };
                    sum += instance.handled(commodity, z) * price;
                    place
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

    /// Notes what going from one route to another changes.
    fn gather(&mut self, index: usize, from: Option<usize>, to: Option<&Route>) {
        let commodity = &self.instance.commodities[index];
        let from = from.map(|at| &self.held[index][at].route);
        let (change, touched, is_touched) =
            (&mut self.change, &mut self.touched, &mut self.is_touched);
        for (route, sign) in from
            .map(|r| (r, -1.0))
            .into_iter()
            .chain(to.map(|r| (r, 1.0)))
        {
            self.instance.loads(commodity, route, |row, load| {
                if !is_touched[row] {
                    is_touched[row] = true;
                    touched.push(row as u32);
                }
                change[row] += sign * load;
            });
        }
    }

    /// How much of a share goes, given what a whole commodity gains by it. Chains that limit the number of their routes go
    /// whole or not at all.
    fn length(&self, commodity: &Commodity, gain: f64, share: f64) -> f64 {
        let step = if !gain.is_finite() {
            share
        } else if self
            .changes()
            .all(|(row, d)| self.rows.swing(row, d * share) <= SMALL)
        {
            let slope = |(row, d): (usize, f64)| d * d * self.rows.slope(row);
            let curvature: f64 = self.changes().map(slope).sum();
            share.min(gain / curvature.max(f64::MIN_POSITIVE))
        } else {
            self.search(gain, share)
        };
        let whole = self.instance.max_routes.contains_key(&commodity.chain);
        match step / share {
            part if part > 0.9 => share,
            part if whole && part < 0.5 => 0.0,
            _ if whole => share,
            _ if step < LEAST => 0.0,
            _ => step,
        }
    }

    /// The step at which nothing is gained any more by going further, or all of the share.
    fn search(&self, gain: f64, share: f64) -> f64 {
        let gains = |step: f64| {
            let lost = self
                .changes()
                .map(|(row, d)| d * self.rows.rise(row, step * d));
            lost.sum::<f64>() < gain
        };
        if gains(share) {
            return share;
        }
        let (mut low, mut high) = (0.0, share);
        for _ in 0..HALVINGS {
            let middle = 0.5 * (low + high);
            if gains(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The rows on which the exchange that was gathered changes the load, with the change.
    fn changes(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let of = |&row: &u32| (row as usize, self.change[row as usize]);
        self.touched.iter().map(of)
    }

    /// What a commodity is worth for each unit that its cheapest route costs at the present prices.
    pub fn density(&mut self, index: usize) -> f64 {
        let commodity = &self.instance.commodities[index];
        let cost = cheapest(
            self.instance,
            &self.rows.tables,
            commodity,
            &mut self.scratch,
        );
        commodity.worth / cost
    }

    /// Puts the change on the rows, times `step`, and forgets it.
    fn carry_out(&mut self, step: f64) {
        for row in self.touched.drain(..) {
            let row = row as usize;
            let change = std::mem::take(&mut self.change[row]);
            self.is_touched[row] = false;
            if step > 0.0 {
                self.rows.put(row, step * change);
            }
        }
    }

    /// Moves a share from one route to another.
    fn hold(&mut self, index: usize, from: Option<usize>, to: Option<Route>, share: f64) {
        let held = &mut self.held[index];
        if let Some(at) = from {
            held[at].share -= share;
            if held[at].share < NOTHING {
                held.swap_remove(at);
            }
        }
        let Some(route) = to else {
            return;
        };
        match held.iter_mut().find(|h| h.route == route) {
            Some(held) => held.share += share,
            None => held.push(Held { route, share }),
        }
    }

    /// Share of a commodity that is carried.
    pub fn share(&self, index: usize) -> f64 {
        self.held[index].iter().map(|h| h.share).sum()
    }

    /// Gives a commodity a route as a whole.
    pub fn give(&mut self, index: usize, route: Route) {
        self.held[index] = vec![Held { route, share: 1.0 }];
    }

    /// The routing.
    pub fn flows(&self) -> Vec<Flow> {
        let of = |(commodity, held): (usize, &Vec<Held>)| {
            let flow = move |h: &Held| Flow {
                commodity,
                route: h.route.clone(),
                fraction: h.share,
            };
            held.iter().map(flow).collect::<Vec<_>>()
        };
        self.held.iter().enumerate().flat_map(of).collect()
    }
}
