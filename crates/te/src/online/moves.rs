//! The exact optimum beside the routes there are, and what would be gained by going over to it.

use std::collections::HashMap;

use super::held::{Held, OWN, Path};
use super::order::{Candidate, Rows, order};
use super::route::Proposed;
use super::{CHAIN, Worker};
use crate::error::{Error, InputError};
use crate::instance::{Demand, Instance, Route};
use crate::json::Value;
use crate::lp::{self, Monitor, Options};
use crate::model::{Chain, Model};
use crate::solution::{Flow, Objective, Solution};

/// Gain that is never worth a move, as a share of what the chain costs now.
const NO_GAIN: f64 = 1e-9;

/// A chain that would gain from re-routing, or makes room for one.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// Name of the chain.
    pub chain: String,
    /// What moving it saves, at the prices of the optimum: Mbit/s · ms under latency, else share of the optimum. Under latency
    /// a full row costs at most what the optimum does in all: a price beyond that says only that there is no other way.
    pub gain: f64,
    /// The gain as a share of what the chain costs now.
    pub relative: f64,
    /// Mean one-way latency now and after the move, ms.
    pub latency_ms: (f64, f64),
    /// Its new routes.
    pub routes: Vec<Proposed>,
    /// Whether it is not worth a move by itself, but leaves what moves after it need.
    pub makes_room: bool,
    /// What has no room for it when all moves before have been made; empty for a move that fits.
    pub full: Vec<String>,
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
    /// Who moves: those who gain most first, as far as each fits make-before-break at the loads after those before it. Moves
    /// that do not fit are the last.
    pub moves: Vec<Move>,
    /// Chains that are not in the model: their VNFs are deployed nowhere, or their entry is wrong.
    pub left_out: Vec<String>,
}

impl Worker {
    /// The exact optimum for the model as it is now, and the plan of moves toward it. Chains that hold no routes, or
    /// routes through what has gone, are part of the optimum, not of the plan, and nobody is moved who would be carried
    /// less. Moves that gain less than the share `least` of what a chain costs now are left out, but for those that make
    /// room or relieve what is overloaded.
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
            match specified(&model, entry) {
                Ok(chain) => model.chains.push(chain),
                Err(_) => left_out.push(id.clone()),
            }
        }
        let demand = if objective == Objective::Throughput {
            Demand::Partial
        } else {
            Demand::Full
        };
        let mut instance = Instance::new(&model, demand)?;
        let held = &self.compiled()?.held;
        set_aside(&mut instance, &model, held, &left_out);
        let (solution, mut price) =
            lp::solve_with_prices(&model, &instance, objective, options, monitor)?;
        if objective == Objective::Latency {
            price.iter_mut().for_each(|p| *p = p.min(solution.value));
        }
        let pricing = Pricing {
            model: &model,
            instance: &instance,
            objective,
            price: &price,
        };
        let moves = pricing.moves(held, &solution, least);
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
///
/// # Errors
/// The first mistake, with its pointer in the entry.
pub(super) fn specified(model: &Model, entry: &Value) -> Result<Chain, InputError> {
    let members = match entry {
        Value::Object(members) => &members[..],
        _ => &[],
    };
    let own = |name: &str| OWN.contains(&name);
    let spec = members.iter().filter(|(name, _)| !own(name));
    let spec = Value::Object(spec.cloned().collect());
    let chains = Value::Object(vec![("chains".into(), Value::List(vec![spec]))]);
    let mut chains = model.read_chains(&chains).map_err(|mut e| {
        e.pointer = e.pointer.replacen("/chains/0", "", 1);
        e
    })?;
    Ok(chains.remove(0))
}

/// Takes off capacities what chains hold at sites beyond their present routes, such as for versions that drain, and all
/// that those hold who are left out.
fn set_aside(
    instance: &mut Instance,
    model: &Model,
    held: &HashMap<String, Held>,
    left_out: &[String],
) {
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
    for held in left_out.iter().filter_map(|id| held.get(id)) {
        for &(row, load) in &held.loads {
            *extra.entry(row).or_default() += load;
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

    /// The moves from what chains hold to a solution, in the order in which they fit.
    fn moves(&self, held: &HashMap<String, Held>, solution: &Solution, least: f64) -> Vec<Move> {
        let mut planned: Vec<Vec<&Flow>> = vec![Vec::new(); self.model.chains.len()];
        for flow in &solution.flows {
            planned[self.instance.commodities[flow.commodity].chain as usize].push(flow);
        }
        let rows = Rows::new(self.instance);
        let mut load = vec![0.0; self.instance.rows()];
        let (mut moves, mut candidates) = (Vec::new(), Vec::new());
        for (number, then) in planned.into_iter().enumerate() {
            let Some(held) = held.get(&self.model.chains[number].id) else {
                continue;
            };
            let Some(now) = self.present(number, &held.paths) else {
                // What it holds at sites is set aside.
                let on_links = held.loads.iter().filter(|(r, _)| *r < self.instance.links);
                on_links.for_each(|&(row, mbps)| load[row] += mbps);
                continue;
            };
            for flow in &now {
                let commodity = &self.instance.commodities[flow.commodity];
                self.instance.loads(commodity, &flow.route, |row, full| {
                    load[row] += flow.fraction * full;
                });
            }
            let changes = rows.changes(&now, &then);
            if changes.is_empty() || self.carried(then.iter().copied()) < self.carried(&now) - 1e-6
            {
                continue;
            }
            let planned = self.weigh(number, &now, &then);
            candidates.push(Candidate {
                gain: planned.gain,
                worth: planned.gain > 0.0 && planned.relative > least.max(NO_GAIN),
                changes,
            });
            moves.push(planned);
        }
        for candidate in &mut candidates {
            candidate.worth |= candidate.relieves(self.instance, &load);
        }
        let steps = order(self.instance, load, &candidates).into_iter();
        let in_place = steps.map(|step| Move {
            makes_room: !candidates[step.candidate].worth,
            full: step
                .full
                .iter()
                .map(|&row| self.instance.row_name(self.model, row))
                .collect(),
            ..moves[step.candidate].clone()
        });
        in_place.collect()
    }

    /// Share of a chain's demand that flows carry.
    fn carried<'f>(&self, flows: impl IntoIterator<Item = &'f Flow>) -> f64 {
        let share = |f: &Flow| f.fraction * self.instance.commodities[f.commodity].share;
        flows.into_iter().map(share).sum()
    }

    /// The move of a chain to its planned flows and what it gains.
    fn weigh(&self, chain: usize, now: &[Flow], then: &[&Flow]) -> Move {
        let before: f64 = now.iter().map(|f| self.cost(f)).sum();
        let gain = before - then.iter().map(|f| self.cost(f)).sum::<f64>();
        Move {
            chain: self.model.chains[chain].id.clone(),
            gain,
            relative: gain / before.abs().max(f64::MIN_POSITIVE),
            latency_ms: (self.latency(now.iter()), self.latency(then.iter().copied())),
            routes: then
                .iter()
                .map(|f| Proposed::of(self.model, self.instance, f))
                .collect(),
            makes_room: false,
            full: Vec::new(),
        }
    }
}
