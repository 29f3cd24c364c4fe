//! From a routing at prices, which may fill rows beyond their capacity, to one that fits.

use std::collections::{HashMap, HashSet};

use super::dp::{self, CARRIED};
use super::gathered::Gathered;
use super::nearest;
use super::state::{Costs, State, Used};
use super::watch::Watch;
use crate::instance::Instance;
use crate::kernel::Scratch;
use crate::solution::{Flow, Objective, tightest};

/// Puts a routing, of these loads, into what room there is, then what is left of each commodity wherever there is any;
/// commodities from place `seen` in the order had no turn. Under throughput a chain of which not all fits that must be
/// carried is left out whole, and the others have its room.
pub(super) fn settle(
    instance: &Instance,
    watch: &Watch<'_>,
    objective: Objective,
    (flows, load): (Vec<Flow>, Vec<f64>),
    (order, seen): (&[usize], usize),
) -> Vec<Flow> {
    let mut settling = Settling {
        instance,
        state: State::new(instance, Costs::for_objective(objective), true),
        used: Used::default(),
        left: vec![1.0; instance.commodities.len()],
        flows: Vec::with_capacity(flows.len()),
        scratch: Scratch::default(),
    };
    settling.put(flows, load, order);
    if settling.left.iter().all(|left| *left <= CARRIED) {
        return settling.flows;
    }
    settling.state.rebuild(instance);
    if watch.was_cut_short() {
        let has_more = |c: &usize| settling.left[*c] > CARRIED;
        let mut rest: Vec<usize> = order[..seen].iter().copied().filter(has_more).collect();
        rest.extend(&order[seen..]);
        let (state, used) = (&mut settling.state, &mut settling.used);
        let flows = &mut settling.flows;
        nearest::fill(instance, state, &rest, &settling.left, used, flows);
        return settling.flows;
    }
    let (must, may): (Vec<usize>, Vec<usize>) = order
        .iter()
        .partition(|&&c| instance.commodities[c].mandatory);
    settling.fill(&must);
    let out = match objective {
        Objective::Throughput => settling.leave_out(&must),
        Objective::Latency | Objective::Scale => HashSet::new(),
    };
    let has_part = |&c: &usize| !out.contains(&instance.commodities[c].chain);
    let may: Vec<usize> = may.into_iter().filter(has_part).collect();
    settling.fill(&may);
    settling.flows
}

/// A routing that fits, as far as it is there.
struct Settling<'a> {
    instance: &'a Instance,
    state: State,
    used: Used,
    /// Share of each commodity that is not carried yet.
    left: Vec<f64>,
    flows: Vec<Flow>,
    scratch: Scratch,
}

impl Settling<'_> {
    /// Puts flows into what room there is; those of the first commodities in the order first.
    fn put(&mut self, mut flows: Vec<Flow>, load: Vec<f64>, order: &[usize]) {
        if tightest(self.instance, &load).1 <= 1.0 && self.instance.max_routes.is_empty() {
            for flow in &flows {
                self.left[flow.commodity] -= flow.fraction;
            }
            (self.state.load, self.flows) = (load, flows);
            return;
        }
        let mut rank = vec![0; order.len()];
        for (at, &commodity) in order.iter().enumerate() {
            rank[commodity] = at;
        }
        flows.sort_by_key(|flow| rank[flow.commodity]);
        let mut needs = Gathered::new(self.instance.rows());
        for flow in flows {
            let commodity = &self.instance.commodities[flow.commodity];
            let used = self.used.of(self.instance, commodity.chain);
            needs.add(self.instance, commodity, flow.route.way(), 1.0);
            let needs = needs.take();
            let (fraction, _) = self.state.room(self.instance, needs, flow.fraction);
            if fraction <= 0.0 || !used.allows(&flow.route) {
                continue;
            }
            for &(row, load) in needs {
                self.state.load[row as usize] += fraction * load;
            }
            used.insert(&flow.route);
            self.left[flow.commodity] -= fraction;
            self.flows.push(Flow { fraction, ..flow });
        }
    }

    /// Carries what is left of commodities, one after the other, wherever there is room.
    fn fill(&mut self, commodities: &[usize]) {
        for &index in commodities {
            if self.left[index] <= CARRIED {
                continue;
            }
            let chain = self.instance.commodities[index].chain;
            let first = self.flows.len();
            dp::carry(
                self.instance,
                &mut self.state,
                index,
                self.left[index],
                self.used.of(self.instance, chain),
                &mut self.scratch,
                &mut self.flows,
            );
            let carried: f64 = self.flows[first..].iter().map(|f| f.fraction).sum();
            self.left[index] -= carried;
        }
    }

    /// Takes chains out of which not all is carried that must be; then each has one more turn, whole or not at all. Returns
    /// those that stay out.
    fn leave_out(&mut self, must: &[usize]) -> HashSet<u32> {
        let chain = |&c: &usize| self.instance.commodities[c].chain;
        let lacks = |c: &&usize| self.left[**c] > CARRIED;
        let mut out: HashSet<u32> = must.iter().filter(lacks).map(chain).collect();
        let mut parts: HashMap<u32, Vec<usize>> = HashMap::new();
        for index in must.iter().filter(|c| out.contains(&chain(c))) {
            parts.entry(chain(index)).or_default().push(*index);
        }
        self.release(&out);
        for chain in must.iter().map(|&c| self.instance.commodities[c].chain) {
            let Some(mine) = parts.remove(&chain) else {
                continue;
            };
            self.fill(&mine);
            if mine.iter().all(|&c| self.left[c] <= CARRIED) {
                out.remove(&chain);
            } else {
                self.release(&HashSet::from([chain]));
            }
        }
        out
    }

    /// Takes all routes of chains back.
    fn release(&mut self, chains: &HashSet<u32>) {
        let (instance, state, left) = (self.instance, &mut self.state, &mut self.left);
        if chains.is_empty() {
            return;
        }
        self.flows.retain(|flow| {
            let commodity = &instance.commodities[flow.commodity];
            let goes = chains.contains(&commodity.chain);
            if goes {
                state.add(instance, commodity, &flow.route, -flow.fraction);
                left[flow.commodity] += flow.fraction;
            }
            !goes
        });
        chains.iter().for_each(|&chain| self.used.forget(chain));
    }
}
