//! One chain's routes at the present loads.

use super::held::{at_site, planned_at_sites};
use super::{Compiled, Worker};
use crate::error::{Constraint, Error, InputError};
use crate::heuristic::route_one;
use crate::infeasible::no_route;
use crate::instance::Instance;
use crate::json::{Fields, Place, Value, Writer};
use crate::kernel::Scratch;
use crate::model::Model;
use crate::solution::Flow;

/// What became of one chain's request.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Whether all of its demand fits, or its `minimum_share`.
    pub admitted: bool,
    /// Share of its demand for which there is room.
    pub share: f64,
    /// What ran out, in the model's names, the first first; empty for an admitted chain.
    pub scarce: Vec<String>,
    /// The chain's own limits, links without any room and sites that together leave it no route at all, where that is why it
    /// is refused; each with what it lacks.
    pub excluded: Vec<String>,
    /// The routes found, also those of a refused chain.
    pub routes: Vec<Proposed>,
}

/// A route that a worker proposes.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposed {
    /// Its share of the chain's demand.
    pub fraction: f64,
    /// Ingress node.
    pub ingress: String,
    /// Site of each VNF.
    pub sites: Vec<String>,
    /// Egress node.
    pub egress: String,
    /// One-way latency, ms.
    pub latency_ms: f64,
}

impl Proposed {
    /// Names what a flow uses.
    pub(super) fn of(model: &Model, instance: &Instance, flow: &Flow) -> Proposed {
        let node = |place: u32| {
            model.nodes[instance.node_at[place as usize] as usize]
                .id
                .clone()
        };
        Proposed {
            fraction: flow.fraction * instance.commodities[flow.commodity].share,
            ingress: node(flow.route.source),
            sites: flow
                .route
                .sites
                .iter()
                .map(|&s| model.sites[s as usize].id.clone())
                .collect(),
            egress: node(flow.route.sink),
            latency_ms: instance.latency_ms(&flow.route),
        }
    }

    /// Writes it as JSON.
    pub fn write(&self, w: &mut Writer) {
        w.object(|w| {
            w.name("fraction").number(self.fraction);
            w.name("ingress").text(&self.ingress);
            w.name("sites").texts(self.sites.iter().map(String::as_str));
            w.name("egress").text(&self.egress);
            w.name("latency_ms").number(self.latency_ms);
        });
    }
}

/// A share within this of what is needed is enough.
const ENOUGH: f64 = 1e-9;

impl Worker {
    /// Routes one chain at the loads of all others and changes nothing. The request is `{"chain": {…}}`, and may have
    /// `limits` `[{vnf, site, load}]`: what a VNF offers this chain at a site, and `planned` of the same form: loads that
    /// others are about to hold.
    ///
    /// # Errors
    /// A model that is none; a mistake in the request, such as a VNF in `planned` that the model does not have: no chain can be
    /// about to hold any of it, as VNFs go after the chains that visit them. Sites that have gone are no mistake.
    pub fn route(&mut self, request: &Value) -> Result<Answer, Error> {
        let compiled = self.compiled()?;
        let root = Fields::of(
            Place::ROOT,
            request,
            &["chain", "limits", "planned", "revision"],
        )?;
        let spec = root.required("chain")?;
        let chains = Value::Object(vec![("chains".into(), Value::List(vec![spec.clone()]))]);
        let chain = compiled.model.read_chains(&chains)?.remove(0);
        let before = compiled.state.load.clone();
        let prepared = compiled.set_aside(&root, &chain.id);
        let answer = prepared.map(|()| compiled.propose(&chain));
        compiled.restore(&before);
        Ok(answer?)
    }
}

impl Compiled {
    /// Takes off what the chain itself holds, and puts on what others plan and what is denied to it.
    fn set_aside(&mut self, root: &Fields<'_>, id: &str) -> Result<(), InputError> {
        if let Some(own) = self.held.get(id) {
            let own: Vec<(usize, f64)> =
                own.loads.iter().map(|&(row, load)| (row, -load)).collect();
            self.put(own.into_iter());
        }
        if let Some(planned) = root.optional("planned") {
            let list = root.place.name("planned");
            let loads = planned_at_sites(&self.model, &self.instance, list, planned)?;
            self.put(loads.into_iter());
        }
        let Some(limits) = root.optional("limits") else {
            return Ok(());
        };
        let list = root.place.name("limits");
        for (i, item) in list.list(limits)?.iter().enumerate() {
            let place = list.index(i);
            let (vnf, site, most) = at_site(place, item)?;
            let f = self.model.vnfs.iter().position(|v| v.id == vnf);
            let s = self.model.sites.iter().position(|s| s.id == site);
            // What has gone offers nothing anyway.
            let Some(row) = f.zip(s).and_then(|(f, s)| self.instance.vnf_row(f, s)) else {
                continue;
            };
            let room = self.instance.capacity[row] - self.state.load[row];
            self.put([(row, (room - most).max(0.0))].into_iter());
        }
        Ok(())
    }

    fn propose(&mut self, chain: &crate::model::Chain) -> Answer {
        let first = self.instance.commodities.len();
        self.instance.push_chain(0, chain);
        let mut scratch = Scratch::default();
        let mut answer = Answer {
            admitted: false,
            share: 0.0,
            scarce: Vec::new(),
            excluded: Vec::new(),
            routes: Vec::new(),
        };
        for commodity in first..self.instance.commodities.len() {
            let (flows, limits) =
                route_one(&self.instance, &mut self.state, commodity, &mut scratch);
            let share = self.instance.commodities[commodity].share;
            answer.share += flows.iter().map(|f| f.fraction * share).sum::<f64>();
            answer.routes.extend(
                flows
                    .iter()
                    .map(|f| Proposed::of(&self.model, &self.instance, f)),
            );
            for row in limits {
                let name = self.instance.row_name(&self.model, row);
                if !answer.scarce.contains(&name) {
                    answer.scarce.push(name);
                }
            }
            if flows.is_empty() && answer.scarce.is_empty() {
                answer.excluded = self.excluded(chain, commodity);
            }
        }
        self.instance.truncate(first);
        answer.admitted = answer.share >= chain.minimum_share.unwrap_or(1.0) - ENOUGH;
        if answer.admitted {
            answer.scarce.clear();
            answer.excluded.clear();
        }
        answer
    }

    /// What leaves a chain no route, one text for each constraint.
    fn excluded(&self, chain: &crate::model::Chain, commodity: usize) -> Vec<String> {
        let model = Model {
            chains: vec![chain.clone()],
            ..self.model.clone()
        };
        let proof = no_route(&model, &self.instance, commodity);
        let text = |c: Constraint| format!("{}: {}", c.name, c.scarce);
        proof.constraints.into_iter().map(text).collect()
    }

    /// Puts loads back to what they were.
    fn restore(&mut self, before: &[f64]) {
        for (row, &load) in before.iter().enumerate() {
            if self.state.load[row].to_bits() != load.to_bits() {
                self.state.load[row] = load;
                self.state.refresh(&self.instance, row);
            }
        }
    }
}
