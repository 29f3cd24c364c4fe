//! On-line traffic engineering: the model in memory, chains coming and going, and plans of moves.
//!
//! One chain is routed by SB-DP at the loads there are, admitted or refused with the scarce resource named. The exact
//! solver works on a copy of the model; what it would do differently becomes a plan of moves, the chains with most to
//! gain first, so that as little live traffic as possible is churned.

use std::collections::HashMap;

use crate::error::{Error, InputError, Reason};
use crate::heuristic::{Costs, State, route_one};
use crate::instance::{Demand, Instance};
use crate::json::{Fields, Place, Value};
use crate::kernel::Scratch;
use crate::lp::{self, Monitor, Options};
use crate::model::{Chain, Model};
use crate::solution::{Flow, Objective, Solution};

/// A model in use.
#[derive(Debug, Clone)]
pub struct Worker {
    model: Model,
    instance: Instance,
    state: State,
    /// Present routes of each chain, as flows of its commodities.
    routes: Vec<Vec<Flow>>,
    index: HashMap<String, usize>,
}

/// What became of one chain's request.
#[derive(Debug, Clone, PartialEq)]
pub struct Admission {
    /// Index of the chain in the model, if it was admitted.
    pub chain: Option<usize>,
    /// Share of its demand for which there is room.
    pub share: f64,
    /// The routes found, also those of a refused chain.
    pub flows: Vec<Flow>,
    /// What ran out, in the model's names, the first first.
    pub scarce: Vec<String>,
}

/// A chain that would gain from re-routing.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// Index of the chain.
    pub chain: usize,
    /// What moving it saves, at the prices of the optimum: Mbit/s · ms under latency, else share of the optimum.
    pub gain: f64,
    /// Its new routes.
    pub flows: Vec<Flow>,
}

impl Worker {
    /// Takes a model over and routes its chains in order.
    ///
    /// # Errors
    /// A link that is full of background traffic.
    pub fn new(model: Model) -> Result<Worker, Error> {
        let instance = Instance::new(&model, Demand::Partial)?;
        let state = State::new(&instance, Costs::for_objective(Objective::Throughput), true);
        let index = model
            .chains
            .iter()
            .enumerate()
            .map(|(i, c)| (c.id.clone(), i))
            .collect();
        let mut worker = Worker {
            routes: vec![Vec::new(); model.chains.len()],
            model,
            instance,
            state,
            index,
        };
        let mut scratch = Scratch::default();
        for commodity in 0..worker.instance.commodities.len() {
            let (flows, _) =
                route_one(&worker.instance, &mut worker.state, commodity, &mut scratch);
            worker.routes[worker.instance.commodities[commodity].chain as usize].extend(flows);
        }
        Ok(worker)
    }

    /// The model as it is now.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The compiled model, for the names and places of flows.
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// A chain's present routes.
    pub fn routes(&self, chain: usize) -> &[Flow] {
        &self.routes[chain]
    }

    /// Load of each row now.
    pub fn loads(&self) -> &[f64] {
        &self.state.load
    }

    /// Routes a new chain at the present loads, and keeps it if all of it fits (or its `minimum_share`).
    ///
    /// # Errors
    /// A chain that is already there.
    pub fn admit(&mut self, chain: Chain) -> Result<Admission, InputError> {
        if self.index.contains_key(&chain.id) {
            let message = format!("the chain '{}' is already there; remove it first", chain.id);
            return Err(InputError::new("/chains/0/id", Reason::Duplicate, message));
        }
        let (number, first) = (self.model.chains.len(), self.instance.commodities.len());
        let needed = chain.minimum_share.unwrap_or(1.0);
        self.instance.push_chain(number, &chain);
        let mut flows = Vec::new();
        let mut scarce = Vec::new();
        let mut scratch = Scratch::default();
        let mut share = 0.0;
        for commodity in first..self.instance.commodities.len() {
            let (found, limits) =
                route_one(&self.instance, &mut self.state, commodity, &mut scratch);
            let part = self.instance.commodities[commodity].share;
            share += found.iter().map(|f| f.fraction * part).sum::<f64>();
            flows.extend(found);
            scarce.extend(
                limits
                    .into_iter()
                    .map(|row| self.instance.row_name(&self.model, row)),
            );
        }
        if share >= needed - 1e-9 {
            self.index.insert(chain.id.clone(), number);
            self.model.chains.push(chain);
            self.routes.push(flows.clone());
            return Ok(Admission {
                chain: Some(number),
                share,
                flows,
                scarce: Vec::new(),
            });
        }
        for flow in &flows {
            self.state.add(
                &self.instance,
                &self.instance.commodities[flow.commodity],
                &flow.route,
                -flow.fraction,
            );
        }
        self.instance.truncate(first);
        scarce.dedup();
        Ok(Admission {
            chain: None,
            share,
            flows,
            scarce,
        })
    }

    /// Applies increments: `chains` to add, `remove` by id, `demands` measured, `capacities` changed.
    ///
    /// # Errors
    /// The first mistake, with its pointer; then nothing has changed.
    pub fn update(&mut self, document: &Value) -> Result<(), Error> {
        let root = Fields::of(
            Place::ROOT,
            document,
            &["chains", "remove", "demands", "capacities"],
        )?;
        let mut model = self.model.clone();
        let mut kept: Vec<Option<usize>> = (0..model.chains.len()).map(Some).collect();
        if let Some(value) = root.optional("capacities") {
            change_capacities(&mut model, root.place.name("capacities"), value)?;
        }
        if let Some(value) = root.optional("demands") {
            self.change_demands(&mut model, root.place.name("demands"), value)?;
        }
        if let Some(value) = root.optional("remove") {
            let list = root.place.name("remove");
            for (i, item) in list.list(value)?.iter().enumerate() {
                kept[self.find(list.index(i), item)?] = None;
            }
        }
        let kept: Vec<usize> = kept.into_iter().flatten().collect();
        model.chains = kept.iter().map(|&c| model.chains[c].clone()).collect();
        if let Some(value) = root.optional("chains") {
            let added =
                model.read_chains(&Value::Object(vec![("chains".into(), value.clone())]))?;
            if let Some((i, chain)) = added
                .iter()
                .enumerate()
                .find(|(_, c)| model.chains.iter().any(|m| m.id == c.id))
            {
                let message = format!("the chain '{}' is already there", chain.id);
                return Err(
                    InputError::new(format!("/chains/{i}/id"), Reason::Duplicate, message).into(),
                );
            }
            model.chains.extend(added);
        }
        self.replace(model, &kept)
    }

    fn find(&self, place: Place<'_>, value: &Value) -> Result<usize, InputError> {
        let id = place.text(value)?;
        self.index.get(id).copied().ok_or_else(|| {
            place.error(
                Reason::DanglingReference,
                format!("there is no chain '{id}' in this model"),
            )
        })
    }

    fn change_demands(
        &self,
        model: &mut Model,
        list: Place<'_>,
        value: &Value,
    ) -> Result<(), InputError> {
        for (i, item) in list.list(value)?.iter().enumerate() {
            let place = list.index(i);
            let fields = Fields::of(place, item, &["chain", "forward_mbps", "reverse_mbps"])?;
            let chain = self.find(place.name("chain"), fields.required("chain")?)?;
            let stages = model.chains[chain].forward_mbps.len();
            for (name, forward) in [("forward_mbps", true), ("reverse_mbps", false)] {
                let Some(value) = fields.optional(name) else {
                    continue;
                };
                let traffic = crate::model::read_traffic(place.name(name), value, stages)?;
                let chain = &mut model.chains[chain];
                if forward {
                    chain.forward_mbps = traffic
                } else {
                    chain.reverse_mbps = traffic
                }
            }
        }
        Ok(())
    }

    /// Goes over to a changed model whose first chains are the old ones named by `kept`: they keep their routes as far
    /// as there is room, and what then has none is routed anew.
    fn replace(&mut self, model: Model, kept: &[usize]) -> Result<(), Error> {
        let instance = Instance::new(&model, Demand::Partial)?;
        let mut state = State::new(&instance, Costs::for_objective(Objective::Throughput), true);
        let mut routes = vec![Vec::new(); model.chains.len()];
        let mut scratch = Scratch::default();
        let mut old: Vec<Vec<Flow>> = kept.iter().map(|&c| self.routes[c].clone()).collect();
        for commodity in 0..instance.commodities.len() {
            let c = &instance.commodities[commodity];
            let chain = c.chain as usize;
            let mut left = 1.0;
            for flow in old.get_mut(chain).into_iter().flatten() {
                let (share, _) = state.room(&instance, c, &flow.route, flow.fraction.min(left));
                if share > 0.0 && instance.allows(c, &flow.route) {
                    state.add(&instance, c, &flow.route, share);
                    routes[chain].push(Flow {
                        commodity,
                        route: flow.route.clone(),
                        fraction: share,
                    });
                    left -= share;
                }
            }
            if left > 1e-9 {
                let (more, _) = crate::heuristic::route_share(
                    &instance,
                    &mut state,
                    commodity,
                    left,
                    &mut scratch,
                );
                routes[chain].extend(more);
            }
        }
        self.index = model
            .chains
            .iter()
            .enumerate()
            .map(|(i, c)| (c.id.clone(), i))
            .collect();
        (self.model, self.instance, self.state, self.routes) = (model, instance, state, routes);
        Ok(())
    }

    /// The exact optimum for the model as it is now, the instance its flows refer to, and the plan of moves toward it.
    ///
    /// # Errors
    /// As [`lp::solve`].
    pub fn optimise(
        &self,
        objective: Objective,
        options: &Options,
        monitor: &Monitor<'_>,
    ) -> Result<(Instance, Solution, Vec<Move>), Error> {
        let demand = if objective == Objective::Throughput {
            Demand::Partial
        } else {
            Demand::Full
        };
        let instance = Instance::new(&self.model, demand)?;
        let (solution, price) =
            lp::solve_with_prices(&self.model, &instance, objective, options, monitor)?;
        let moves = self.moves(&instance, &solution, &price);
        Ok((instance, solution, moves))
    }

    /// Chains that a solution routes more cheaply, at its prices, than they are now; the largest gain first.
    fn moves(&self, instance: &Instance, solution: &Solution, price: &[f64]) -> Vec<Move> {
        let cost = |flow: &Flow, instance: &Instance| {
            let commodity = &instance.commodities[flow.commodity];
            let mut cost = match solution.objective {
                Objective::Latency => instance.weighted_latency(commodity, &flow.route),
                Objective::Throughput => -commodity.worth,
                Objective::Scale => 0.0,
            };
            instance.loads(commodity, &flow.route, |row, load| {
                if instance.capacity[row] > 0.0 {
                    cost += price[row] * load / instance.capacity[row];
                }
            });
            flow.fraction * cost
        };
        let mut moves: Vec<Move> = Vec::new();
        let mut planned: Vec<Vec<Flow>> = vec![Vec::new(); self.model.chains.len()];
        for flow in &solution.flows {
            planned[instance.commodities[flow.commodity].chain as usize].push(flow.clone());
        }
        for (chain, flows) in planned.into_iter().enumerate() {
            let now: f64 = self.routes[chain]
                .iter()
                .map(|f| cost(f, &self.instance))
                .sum();
            let then: f64 = flows.iter().map(|f| cost(f, instance)).sum();
            let gain = now - then;
            if gain > 1e-9 * now.abs().max(1e-9) {
                moves.push(Move { chain, gain, flows });
            }
        }
        moves.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(a.chain.cmp(&b.chain)));
        moves
    }
}

fn change_capacities(model: &mut Model, list: Place<'_>, value: &Value) -> Result<(), InputError> {
    for (i, item) in list.list(value)?.iter().enumerate() {
        let place = list.index(i);
        let known = [
            "link",
            "bandwidth_mbps",
            "background_mbps",
            "site",
            "vnf",
            "capacity",
        ];
        let fields = Fields::of(place, item, &known)?;
        let missing = |name: &str, kind: &str| {
            place.name(name).error(
                Reason::DanglingReference,
                format!("there is no such {kind} in this model"),
            )
        };
        if let Some(link) = fields.optional("link") {
            let id = place.name("link").text(link)?;
            let link = model
                .links
                .iter_mut()
                .find(|l| l.id == id)
                .ok_or_else(|| missing("link", "link"))?;
            link.bandwidth_mbps = fields.positive_or("bandwidth_mbps", link.bandwidth_mbps)?;
            link.background_mbps =
                fields.not_negative_or("background_mbps", link.background_mbps)?;
            continue;
        }
        let id = fields.text("site")?;
        let site = model
            .sites
            .iter()
            .position(|s| s.id == id)
            .ok_or_else(|| missing("site", "site"))?;
        let capacity = fields.positive("capacity")?;
        match fields.optional("vnf") {
            None => model.sites[site].capacity = capacity,
            Some(vnf) => {
                let id = place.name("vnf").text(vnf)?;
                let vnf = model
                    .vnfs
                    .iter_mut()
                    .find(|v| v.id == id)
                    .ok_or_else(|| missing("vnf", "VNF"))?;
                let deployment = vnf.deployments.iter_mut().find(|d| d.site == site);
                deployment
                    .ok_or_else(|| missing("site", "deployment of this VNF"))?
                    .capacity = capacity;
            }
        }
    }
    Ok(())
}
