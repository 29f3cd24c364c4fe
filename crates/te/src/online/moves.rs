//! The exact optimum beside the routes there are, and what would be gained by going over to it.

use std::collections::HashMap;

use super::held::{OWN, Path};
use super::route::Proposed;
use super::{CHAIN, Worker};
use crate::error::Error;
use crate::instance::{Demand, Instance, Route};
use crate::json::Value;
use crate::lp::{self, Monitor, Options};
use crate::model::{Chain, Model};
use crate::solution::{Flow, Objective, Solution};

/// A chain that would gain from re-routing.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// Name of the chain.
    pub chain: String,
    /// What moving it saves, at the prices of the optimum: Mbit/s · ms under latency, else share of the optimum.
    pub gain: f64,
    /// The gain as a share of what the chain costs now.
    pub relative: f64,
    /// Mean one-way latency now and after the move, ms.
    pub latency_ms: (f64, f64),
    /// Its new routes.
    pub routes: Vec<Proposed>,
}

/// An optimum and the way there.
#[derive(Debug, Clone)]
pub struct MovePlan {
    /// The model that was solved, with its chains.
    pub model: Model,
    /// The same, compiled: the solution's flows refer to it.
    pub instance: Instance,
    /// The optimum.
    pub solution: Solution,
    /// Who gains, most first.
    pub moves: Vec<Move>,
    /// Chains that are not in the model: their VNFs are deployed nowhere, or their entry is wrong.
    pub left_out: Vec<String>,
}

impl Worker {
    /// The exact optimum for the model as it is now, and the plan of moves toward it. Chains that hold no routes, or
    /// routes through what has gone, are part of the optimum, not of the plan. Moves that gain less than the share
    /// `least` of what a chain costs now are left out.
    ///
    /// # Errors
    /// As [`lp::solve`]; a model that is none.
    pub fn moves(
        &mut self,
        objective: Objective,
        least: f64,
        options: &Options,
        monitor: &Monitor<'_>,
    ) -> Result<MovePlan, Error> {
        let mut model = self.compiled()?.model.clone();
        let mut left_out = Vec::new();
        for (id, entry) in &self.entries[CHAIN] {
            match read(&model, entry) {
                Some(chain) => model.chains.push(chain),
                None => left_out.push(id.clone()),
            }
        }
        let demand = if objective == Objective::Throughput {
            Demand::Partial
        } else {
            Demand::Full
        };
        let mut instance = Instance::new(&model, demand)?;
        let held = &self.compiled()?.held;
        set_aside(&mut instance, &model, held);
        let (solution, price) =
            lp::solve_with_prices(&model, &instance, objective, options, monitor)?;
        let mut planned: Vec<Vec<&Flow>> = vec![Vec::new(); model.chains.len()];
        for flow in &solution.flows {
            planned[instance.commodities[flow.commodity].chain as usize].push(flow);
        }
        let pricing = Pricing {
            model: &model,
            instance: &instance,
            objective,
            price: &price,
        };
        let mut moves = Vec::new();
        for (number, flows) in planned.into_iter().enumerate() {
            let now = held
                .get(&model.chains[number].id)
                .and_then(|h| pricing.present(number, &h.paths));
            if let Some(planned) = now.and_then(|now| pricing.gain(number, &now, &flows, least)) {
                moves.push(planned);
            }
        }
        moves.sort_by(|a, b| {
            b.gain
                .total_cmp(&a.gain)
                .then_with(|| a.chain.cmp(&b.chain))
        });
        Ok(MovePlan {
            model,
            instance,
            solution,
            moves,
            left_out,
        })
    }
}

/// A chain's specification without what it holds.
fn read(model: &Model, entry: &Value) -> Option<Chain> {
    let Value::Object(members) = entry else {
        return None;
    };
    let spec = members
        .iter()
        .filter(|(name, _)| !OWN.contains(&name.as_str()))
        .cloned()
        .collect();
    let chains = Value::Object(vec![(
        "chains".into(),
        Value::List(vec![Value::Object(spec)]),
    )]);
    model.read_chains(&chains).ok()?.pop()
}

/// Takes off capacities what chains hold at sites beyond their present routes, such as for versions that drain.
fn set_aside(instance: &mut Instance, model: &Model, held: &HashMap<String, super::Held>) {
    let mut extra: HashMap<usize, f64> = HashMap::new();
    for (number, chain) in model.chains.iter().enumerate() {
        let Some(held) = held.get(&chain.id) else {
            continue;
        };
        let mut own: HashMap<usize, f64> = HashMap::new();
        for &(row, load) in held.loads.iter().filter(|(row, _)| *row >= instance.links) {
            *own.entry(row).or_default() += load;
        }
        for flow in flows(instance, model, number, &held.paths).unwrap_or_default() {
            instance.loads(
                &instance.commodities[flow.commodity],
                &flow.route,
                |row, load| {
                    if let Some(left) = own.get_mut(&row) {
                        *left -= flow.fraction * load;
                    }
                },
            );
        }
        for (row, load) in own {
            *extra.entry(row).or_default() += load.max(0.0);
        }
    }
    for (row, load) in extra {
        instance.capacity[row] = (instance.capacity[row] - load).max(0.0);
    }
}

/// A chain's paths as flows of its commodities; none where one uses what is not in the model.
fn flows(instance: &Instance, model: &Model, chain: usize, paths: &[Path]) -> Option<Vec<Flow>> {
    let place = |id: &str| {
        model
            .nodes
            .iter()
            .position(|n| n.id == id)
            .map(|n| instance.place_of[n])
    };
    let mut flows = Vec::new();
    for path in paths {
        let site = |id: &String| {
            model
                .sites
                .iter()
                .position(|s| s.id == *id)
                .map(|s| s as u32)
        };
        let route = Route {
            source: place(&path.ingress)?,
            sink: place(&path.egress)?,
            sites: path.sites.iter().map(site).collect::<Option<_>>()?,
        };
        let fits = |c: &usize| {
            instance.commodities[*c].chain as usize == chain
                && instance.allows(&instance.commodities[*c], &route)
        };
        let first = instance
            .commodities
            .partition_point(|c| (c.chain as usize) < chain);
        let commodity = (first..instance.commodities.len())
            .take_while(|c| instance.commodities[*c].chain as usize == chain)
            .find(fits)?;
        let fraction = path.fraction / instance.commodities[commodity].share;
        flows.push(Flow {
            commodity,
            route,
            fraction,
        });
    }
    Some(flows)
}

/// What routes cost at the prices of an optimum.
struct Pricing<'a> {
    model: &'a Model,
    instance: &'a Instance,
    objective: Objective,
    price: &'a [f64],
}

impl Pricing<'_> {
    /// The chain's present flows; none where it has none that the model knows.
    fn present(&self, chain: usize, paths: &[Path]) -> Option<Vec<Flow>> {
        flows(self.instance, self.model, chain, paths).filter(|f| !f.is_empty())
    }

    fn cost(&self, flow: &Flow) -> f64 {
        let commodity = &self.instance.commodities[flow.commodity];
        let mut cost = match self.objective {
            Objective::Latency => self.instance.weighted_latency(commodity, &flow.route),
            Objective::Throughput => -commodity.worth,
            Objective::Scale => 0.0,
        };
        self.instance.loads(commodity, &flow.route, |row, load| {
            if self.instance.capacity[row] > 0.0 {
                cost += self.price[row] * load / self.instance.capacity[row];
            }
        });
        flow.fraction * cost
    }

    fn latency<'f>(&self, flows: impl Iterator<Item = &'f Flow>) -> f64 {
        let share = |f: &Flow| f.fraction * self.instance.commodities[f.commodity].share;
        flows
            .map(|f| share(f) * self.instance.latency_ms(&f.route))
            .sum()
    }

    /// The move of a chain to its planned flows, where that gains enough.
    fn gain(&self, chain: usize, now: &[Flow], then: &[&Flow], least: f64) -> Option<Move> {
        let before: f64 = now.iter().map(|f| self.cost(f)).sum();
        let gain = before - then.iter().map(|f| self.cost(f)).sum::<f64>();
        let relative = gain / before.abs().max(f64::MIN_POSITIVE);
        (gain > 0.0 && relative > least.max(1e-9)).then(|| Move {
            chain: self.model.chains[chain].id.clone(),
            gain,
            relative,
            latency_ms: (self.latency(now.iter()), self.latency(then.iter().copied())),
            routes: then
                .iter()
                .map(|f| Proposed::of(self.model, self.instance, f))
                .collect(),
        })
    }
}
