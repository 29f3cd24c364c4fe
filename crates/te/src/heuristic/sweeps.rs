//! SB-DP for all chains of a model: a first sweep routes them in turn, further ones let each exchange its route at the loads
//! of all others, at prices that learn from sweep to sweep what is scarce. Beyond the paper, whose SB-DP is the first sweep.

use super::congestion::Congestion;
use super::dp::{self, CARRIED};
use super::exchange::{Content, Exchange, Step};
use super::held::Held;
use super::nearest::Nearest;
use super::settle::settle;
use super::watch::Watch;
use crate::instance::Instance;
use crate::solution::{Flow, Objective, loads};

/// How fast prices grow with utilisation in the first sweep, in powers of e for each unit: little is known yet,
const FIRST: f64 = 15.0;

/// and in the second; then by this factor more in each.
const SECOND: f64 = 24.0;
const STEEPER: f64 = 1.2;
const STEEPEST: f64 = 100.0;

/// How fast weights rise and sink from sweep to sweep.
const LEARNING: f64 = 8.0;

/// Share of all demand that counts as seen before the first chain: what loads will be is foretold from those so far.
const FORESEEN: f64 = 0.1;

/// Prices follow the forecast when so many chains more were routed, as a part of those that were.
const FORECAST: usize = 32;

/// What routes cost under throughput beside what they use: all chains over paths of the mean latency cost this share of
/// what they are worth, so that of routes with room the shorter one is taken.
const SHORTER: f64 = 1e-3;

/// Weights sink to no less than this part of what they were at first.
const LEAST: f64 = 1e-3;

/// Under scale and throughput a chain that costs less than this part of the mean stays where it is in further sweeps.
const IDLE: f64 = 0.05;

/// Sweeps after the first: so many under latency, at most,
const MANY: usize = 24;

/// and under scale and throughput as many as move so many chains in all,
const TURNS: usize = 20_000;

/// but no fewer than these.
const FEW: usize = 2;

/// Under throughput, with so few, this is who stays as he is in each of them.
const CONTENT: [Content; FEW] = [
    Content {
        carried: 1.0,
        left: 0.3,
        gain: 0.02,
    },
    Content {
        carried: 1.2,
        left: 0.9,
        gain: 0.02,
    },
];

/// Under latency each of them aims at fuller rows that are emptier by this: what is left to do last is little and slow.
const CAUTION: f64 = 0.002;

/// They end where so many of them leave more than this part of what is too much.
const PATIENCE: usize = 6;
const HOPELESS: f64 = 0.8;

/// How a sweep ended.
enum Swept {
    Whole,
    /// A commodity has no route.
    Stuck(usize),
    /// The time was up when so many commodities had had their turn.
    Stopped(usize),
}

/// Everything that the sweeps of one solve have in common.
struct Sweeps<'a> {
    instance: &'a Instance,
    watch: &'a Watch<'a>,
    exchange: Exchange<'a>,
    /// What must be carried first.
    order: Vec<usize>,
    /// Sweeps in all, for reports.
    count: usize,
    /// A chain that costs less than this part of the mean stays where it is.
    idle: f64,
    /// Only what promises most is looked at, as the chains are many.
    is_hurried: bool,
}

/// Sweeps after the first under scale and throughput.
fn few(instance: &Instance) -> usize {
    (TURNS / instance.commodities.len().max(1)).clamp(FEW, MANY)
}

/// The factor on all demands: every chain whole, the fullest row as empty as possible.
///
/// # Errors
/// A commodity that has no route at all.
pub(super) fn scale(instance: &Instance, watch: &Watch<'_>) -> Result<Vec<Flow>, usize> {
    let whole = |&c: &f64| if c > 0.0 { 1.0 / c } else { 0.0 };
    let weight: Vec<f64> = instance.capacity.iter().map(whole).collect();
    let least: Vec<f64> = weight.iter().map(|w| w * LEAST).collect();
    let rows = Congestion::new(instance, 0.0, weight);
    let few = few(instance);
    let mut sweeps = Sweeps::new(instance, watch, rows, false, few);
    sweeps.idle = IDLE;
    let relative = |x: &Exchange<'_>, _| match x.rows.tightest() {
        most if most > 0.0 => 1.0 / most,
        _ => 1.0,
    };
    match sweeps.first(relative) {
        Swept::Stuck(commodity) => return Err(commodity),
        Swept::Stopped(_) => sweeps.complete()?,
        Swept::Whole => {}
    }
    let mut best = (f64::INFINITY, Held::default());
    for sweep in 0..=few {
        let most = sweeps.exchange.rows.tightest();
        if most < best.0 || sweep == 0 {
            best = (most, sweeps.exchange.held.clone());
        }
        if sweep == few || most <= 0.0 || watch.was_cut_short() {
            break;
        }
        let rows = &mut sweeps.exchange.rows;
        rows.reweigh(most, (LEARNING, LEARNING), &least);
        rows.factor = 1.0 / most;
        sweeps.again(sweep, || 1.0 / best.0);
    }
    Ok(best.1.flows(instance, &sweeps.order))
}

/// Most worth of what fits; what must be carried comes before everything else.
pub(super) fn throughput(instance: &Instance, watch: &Watch<'_>) -> Vec<Flow> {
    let worth: f64 = instance.commodities.iter().map(|c| c.worth).sum();
    let latency = SHORTER * ratio(worth, traffic(instance) * mean_latency(instance));
    let weight = weights(instance, worth);
    let least: Vec<f64> = weight.iter().map(|w| w * LEAST).collect();
    let rows = Congestion::new(instance, latency, weight);
    let few = few(instance);
    let mut sweeps = Sweeps::new(instance, watch, rows, true, few);
    sweeps.idle = IDLE;
    let seen = match sweeps.first(|_, seen| (1.0 + FORESEEN) / (seen + FORESEEN)) {
        Swept::Stopped(at) => at,
        Swept::Whole | Swept::Stuck(_) => instance.commodities.len(),
    };
    for sweep in 0..few {
        if watch.was_cut_short() || sweeps.carries_all_within_capacity() {
            break;
        }
        let rows = &mut sweeps.exchange.rows;
        rows.reweigh(1.0, (LEARNING, LEARNING), &least);
        rows.factor = 1.0;
        let value = sweeps.worth();
        sweeps.again(sweep, || value);
    }
    sweeps.or_in_turn(Objective::Throughput, seen)
}

/// Least latency with everything carried.
pub(super) fn latency(instance: &Instance, watch: &Watch<'_>) -> Vec<Flow> {
    let weight = weights(instance, 0.1 * traffic(instance) * mean_latency(instance));
    let least: Vec<f64> = weight.iter().map(|w| w * LEAST).collect();
    let rows = Congestion::new(instance, 1.0, weight);
    let mut sweeps = Sweeps::new(instance, watch, rows, false, MANY);
    let seen = match sweeps.first(|_, seen| (1.0 + FORESEEN) / (seen + FORESEEN)) {
        Swept::Stopped(at) => at,
        Swept::Whole | Swept::Stuck(_) => instance.commodities.len(),
    };
    let mut excess = Vec::with_capacity(MANY);
    for sweep in 0..MANY {
        excess.push(sweeps.exchange.rows.excess());
        let hopeless = sweep >= PATIENCE && excess[sweep] > HOPELESS * excess[sweep - PATIENCE];
        if watch.was_cut_short() || excess[sweep] <= 0.0 || hopeless {
            break;
        }
        let rows = &mut sweeps.exchange.rows;
        let target = 1.0 - CAUTION * sweep as f64;
        rows.reweigh(target, (LEARNING, 0.5 * LEARNING), &least);
        rows.factor = 1.0;
        sweeps.again(sweep, || f64::NAN);
    }
    sweeps.or_in_turn(Objective::Latency, seen)
}

impl<'a> Sweeps<'a> {
    fn new(
        instance: &'a Instance,
        watch: &'a Watch<'a>,
        rows: Congestion<'a>,
        may_be_left: bool,
        count: usize,
    ) -> Self {
        let mut order: Vec<usize> = (0..instance.commodities.len()).collect();
        order.sort_by_key(|&c| !instance.commodities[c].mandatory);
        Sweeps {
            instance,
            watch,
            exchange: Exchange::new(instance, rows, may_be_left),
            order,
            count: count + 1,
            idle: 0.0,
            is_hurried: count == FEW && may_be_left,
        }
    }

    /// The first sweep. `factor` tells what utilisations are multiplied with, given the share of all demand that was seen.
    fn first(&mut self, factor: impl Fn(&Exchange<'_>, f64) -> f64) -> Swept {
        let demand = |c: usize| self.instance.commodities[c].demand;
        let total: f64 = self.order.iter().map(|&c| demand(c)).sum();
        let (mut seen, mut next, block) = (0.0, 0, self.exchange.block());
        let exchange = &mut self.exchange;
        exchange.rows.growth = FIRST;
        let mut stuck = None;
        for (at, &index) in self.order.iter().enumerate() {
            if self.watch.is_over_at(at) {
                return Swept::Stopped(at);
            }
            if at >= next {
                exchange.rows.factor = factor(exchange, ratio(seen, total));
                exchange.rows.refresh();
                next = at + block.max(at / FORECAST);
            } else if at % block == 0 {
                exchange.rows.refresh_links();
            }
            if exchange.step(index) == Step::NoRoute {
                stuck = stuck.or(Some(index));
            }
            seen += demand(index);
            let done = at as f64 / (self.order.len() * self.count) as f64;
            self.watch.report(at, done, || f64::NAN);
        }
        stuck.map_or(Swept::Whole, Swept::Stuck)
    }

    /// A further sweep.
    fn again(&mut self, sweep: usize, value: impl Fn() -> f64) {
        let (block, exchange) = (self.exchange.block(), &mut self.exchange);
        exchange.rows.growth = (SECOND * STEEPER.powi(sweep as i32)).min(STEEPEST);
        if self.is_hurried {
            exchange.content = CONTENT[sweep];
        }
        exchange.rows.refresh();
        exchange.idle = self.idle * exchange.rows.cost() / self.order.len() as f64;
        let (mut since, mut moved) = (0, 0);
        for (at, &index) in self.order.iter().enumerate() {
            if self.watch.is_over_at(at) {
                return;
            }
            if since >= block || 4 * moved > block {
                exchange.rows.refresh_links();
                (since, moved) = (0, 0);
            }
            since += 1;
            moved += usize::from(exchange.step(index) == Step::Moved);
            let done = (sweep + 1) as f64 + at as f64 / self.order.len() as f64;
            self.watch.report(at, done / self.count as f64, &value);
        }
    }

    /// Gives commodities that have no route yet their nearest.
    ///
    /// # Errors
    /// One that has none.
    fn complete(&mut self) -> Result<(), usize> {
        let mut nearest = Nearest::new(self.instance);
        for &index in &self.order {
            if self.exchange.held.carried(index) > 0.0 {
                continue;
            }
            let route = nearest.route(self.instance, &self.instance.commodities[index]);
            let route = route.ok_or(index)?;
            self.exchange.held.give(index, route.way(), 1.0);
        }
        Ok(())
    }

    fn carries_all_within_capacity(&self) -> bool {
        let all = 0..self.instance.commodities.len();
        self.exchange.rows.excess() <= 0.0
            && all
                .into_iter()
                .all(|c| self.exchange.held.carried(c) >= 1.0 - CARRIED)
    }

    fn worth(&self) -> f64 {
        let commodities = self.instance.commodities.iter().enumerate();
        commodities
            .map(|(index, c)| c.worth * self.exchange.held.carried(index))
            .sum()
    }

    /// The routing as far as it fits; or, where that leaves what must be carried, that of chains routed in turn if that leaves
    /// less.
    fn or_in_turn(mut self, objective: Objective, seen: usize) -> Vec<Flow> {
        let (instance, watch) = (self.instance, self.watch);
        let fits = self.carries_all_within_capacity();
        if objective == Objective::Throughput && !fits && seen == self.order.len() {
            self.put_densest_first();
        }
        let order = (&self.order[..], seen);
        let flows = self.exchange.held.flows(instance, &self.order);
        let own = (flows, self.exchange.rows.load());
        let own = settle(instance, watch, objective, own, order);
        let lacking = lacking(instance, &own);
        if lacking <= 0.0 || watch.was_cut_short() {
            return own;
        }
        let in_turn = dp::fill(instance, objective, watch);
        let load = loads(instance, &in_turn);
        let in_turn = settle(instance, watch, objective, (in_turn, load), order);
        if self::lacking(instance, &in_turn) < lacking {
            in_turn
        } else {
            own
        }
    }

    /// Orders chains by what they are worth for what they cost; those that must be carried stay first.
    fn put_densest_first(&mut self) {
        let commodities = &self.instance.commodities;
        let mut keyed: Vec<(bool, u64, u32)> = Vec::with_capacity(commodities.len());
        for &index in &self.order {
            let density = self.exchange.density(index, !self.is_hurried).max(0.0);
            // The bits of positive numbers are in their order.
            keyed.push((
                !commodities[index].mandatory,
                !density.to_bits(),
                index as u32,
            ));
        }
        keyed.sort_unstable();
        self.order = keyed.iter().map(|key| key.2 as usize).collect();
    }
}

/// Demand that should be carried and is not, Mbit/s.
fn lacking(instance: &Instance, flows: &[Flow]) -> f64 {
    let mut left = vec![1.0; instance.commodities.len()];
    for flow in flows {
        left[flow.commodity] -= flow.fraction;
    }
    let commodities = instance.commodities.iter().zip(left);
    commodities
        .filter(|(c, left)| c.mandatory && *left > CARRIED)
        .map(|(c, left)| left * c.demand)
        .sum()
}

/// A first guess of the prices of full rows: what a unit of load costs where all chains together cost `cost` on links, and as
/// much in compute.
fn weights(instance: &Instance, cost: f64) -> Vec<f64> {
    let mut compute = 0.0;
    for commodity in &instance.commodities {
        for z in 0..commodity.vnfs as usize {
            let vnf = instance.stage_vnf[commodity.stage(z)] as usize;
            compute += instance.vnfs[vnf].load_per_mbps * instance.handled(commodity, z);
        }
    }
    let (link, site) = (ratio(cost, traffic(instance)), ratio(cost, compute));
    let of = |row| if row < instance.links { link } else { site };
    (0..instance.rows()).map(of).collect()
}

/// Traffic of all commodities, each over the mean of its stages, Mbit/s.
fn traffic(instance: &Instance) -> f64 {
    let of = |c: &crate::instance::Commodity| {
        let stages = c.stage(0)..=c.stage(c.vnfs as usize);
        let sum: f64 = stages
            .map(|s| instance.forward[s] + instance.reverse[s])
            .sum();
        sum / f64::from(c.vnfs + 1)
    };
    instance.commodities.iter().map(of).sum()
}

/// Mean latency between nodes that are joined, ms; 1 where none takes any time.
fn mean_latency(instance: &Instance) -> f64 {
    let pairs = (0..instance.nodes).flat_map(|a| (0..instance.nodes).map(move |b| (a, b)));
    let finite = |(a, b)| Some(instance.network.latency_ms(a, b)).filter(|l| l.is_finite());
    let (sum, count) = pairs
        .filter_map(finite)
        .fold((0.0, 0.0), |(sum, count), latency| {
            (sum + latency, count + 1.0)
        });
    if sum > 0.0 { sum / count } else { 1.0 }
}

/// A quotient; 0 where there is nothing to divide by.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}
