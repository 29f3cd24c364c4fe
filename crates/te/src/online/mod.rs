//! On-line traffic engineering: a model kept in memory, changed entry by entry, and asked for routes.
//!
//! The model's parts come one by one, each under a key: `node.<id>`, `link.<id>`, `site.<id>`, `vnf.<id>`, `customer.<id>` with
//! the JSON of the contract's lists, `network` with its `max_link_utilization` and `routing`, and `chain.<id>` with what a
//! chain [holds](Held) beside its specification. Whoever carries the
//! routes out decides them; a worker proposes. So it can be killed and started at any moment, and several can serve the
//! same model.
//!
//! An entry that is wrong by itself is [refused](Worker::refused) when it comes, and the value before stays in force. One that
//! refers to what is not there [waits](Worker::waiting) for it, so the order in which entries come does not matter.
//!
//! One chain is routed by SB-DP at the loads of all others, and what is scarce is named where it does not fit. The exact
//! solver works on a copy of the model; what it would do differently becomes a plan of moves, the chains with most to
//! gain first, so that as little live traffic as possible is churned, and in an order in which nothing is overloaded.

mod entries;
mod held;
mod moves;
mod order;
mod route;

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, InputError, Reason};
use crate::heuristic::{Costs, State};
use crate::instance::{Demand, Instance};
use crate::json::{Place, Value};
use crate::model::Model;
use crate::solution::Objective;
pub use entries::Notice;
use held::Claim;
pub use held::Held;
pub use moves::{Move, MovePlan};
pub use route::{Answer, Proposed};

/// The kinds of entry, in the model's words; a chain's comes last as it refers to all others.
const KINDS: [(&str, &str); 7] = [
    ("node", "nodes"),
    ("link", "links"),
    ("site", "sites"),
    ("vnf", "vnfs"),
    ("customer", "customers"),
    ("network", ""),
    ("chain", "chains"),
];

// Places in [`KINDS`].
const NODE: usize = 0;
const LINK: usize = 1;
const SITE: usize = 2;
const VNF: usize = 3;
const CUSTOMER: usize = 4;
/// What the whole network has: one entry, without an id.
const NETWORK: usize = 5;
const CHAIN: usize = 6;

/// The fields of [`NETWORK`].
const OF_NETWORK: [&str; 2] = ["max_link_utilization", "routing"];

/// A model in use.
#[derive(Debug, Clone, Default)]
pub struct Worker {
    /// Entries by kind and what follows the kind in their key.
    entries: [BTreeMap<String, Value>; 7],
    /// Why the last value of a key was refused, where it was.
    refused: BTreeMap<String, String>,
    /// The model compiled; none when something other than a chain has changed.
    compiled: Option<Compiled>,
}

/// Everything but the chains, compiled, and the loads of the chains on it.
#[derive(Debug, Clone)]
struct Compiled {
    /// Without chains.
    model: Model,
    instance: Instance,
    state: State,
    held: HashMap<String, Held>,
}

impl Worker {
    /// A worker that knows nothing yet.
    pub fn new() -> Worker {
        Worker::default()
    }

    /// Takes an entry, or forgets it.
    ///
    /// # Errors
    /// What is wrong with the entry by itself, a key of no known kind, or the id of another entry. What was in force under the
    /// key stays in force, and [`Worker::refused`] names it until a right value comes. What it refers to need not be there.
    pub fn set(&mut self, key: &str, value: Option<Value>) -> Result<(), InputError> {
        let taken = self.take(key, value);
        match &taken {
            Ok(()) => drop(self.refused.remove(key)),
            Err(e) => self.refuse(key, e),
        }
        taken
    }

    /// Notes that the present value of a key cannot be taken, such as for what is no JSON.
    pub fn refuse(&mut self, key: &str, why: &InputError) {
        self.refused.insert(key.to_owned(), why.to_string());
    }

    /// Keys whose last value was refused, with the reason. The value before is in force, if there was any since this worker
    /// began.
    pub fn refused(&self) -> Vec<Notice> {
        let notice = |(key, reason): (&String, &String)| Notice {
            key: key.clone(),
            reason: reason.clone(),
        };
        self.refused.iter().map(notice).collect()
    }

    fn take(&mut self, key: &str, value: Option<Value>) -> Result<(), InputError> {
        let (kind, id) = key.split_once('.').unwrap_or((key, ""));
        let Some(kind) = KINDS.iter().position(|(name, _)| *name == kind) else {
            let message = format!(
                "'{key}' is no entry of a model; known kinds: node, link, site, vnf, customer, network, chain"
            );
            return Err(InputError::new("", Reason::UnknownChoice, message));
        };
        if let Some(value) = &value {
            entries::check(kind, value)?;
            self.check_id(kind, id, value)?;
        }
        let old = match value.clone() {
            Some(value) => self.entries[kind].insert(id.to_owned(), value),
            None => self.entries[kind].remove(id),
        };
        if kind != CHAIN {
            if old != value {
                self.compiled = None;
            }
            return Ok(());
        }
        match &mut self.compiled {
            Some(compiled) => compiled.hold(id, value.as_ref()),
            None => Ok(()),
        }
    }

    /// Whether an entry may stand beside the others of its kind: of two with the same identifier neither is the right one.
    fn check_id(&self, kind: usize, key: &str, value: &Value) -> Result<(), InputError> {
        let Some(id) = stated_id(value).filter(|_| kind != CHAIN) else {
            return Ok(());
        };
        let others = self.entries[kind].iter();
        let mut same = others.filter(|(k, v)| *k != key && stated_id(v) == Some(id));
        match same.next() {
            None => Ok(()),
            Some((other, _)) => {
                let message = format!(
                    "'{id}' is that of the entry {}.{other} already",
                    KINDS[kind].0
                );
                Err(InputError::new("/id", Reason::Duplicate, message))
            }
        }
    }

    /// Forgets every entry that `keep` does not want, such as those deleted while nobody looked.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        for ((kind, _), entries) in KINDS.iter().zip(&mut self.entries) {
            let before = entries.len();
            entries.retain(|id, _| match &id[..] {
                "" => keep(kind),
                id => keep(&format!("{kind}.{id}")),
            });
            if entries.len() != before {
                self.compiled = None;
            }
        }
        self.refused.retain(|key, _| keep(key));
    }

    /// Number of chains and of nodes.
    pub fn size(&self) -> (usize, usize) {
        (self.entries[CHAIN].len(), self.entries[0].len())
    }

    /// Load of a row now, by its name in answers ("link x", "site s", "VNF f at site s").
    ///
    /// # Errors
    /// A model that is none.
    pub fn load(&mut self, name: &str) -> Result<Option<f64>, Error> {
        let compiled = self.compiled()?;
        let named = |row: &usize| compiled.instance.row_name(&compiled.model, *row) == name;
        Ok((0..compiled.instance.rows())
            .find(named)
            .map(|row| compiled.state.load[row]))
    }

    fn compiled(&mut self) -> Result<&mut Compiled, Error> {
        let compiled = match self.compiled.take() {
            Some(compiled) => compiled,
            None => self.compile()?,
        };
        Ok(self.compiled.insert(compiled))
    }

    fn compile(&self) -> Result<Compiled, Error> {
        let mut model = Model::from_value(&self.in_force().0)?;
        // Background is measured and may be more than a link should carry: such a link takes no chain, and the others go on.
        let limit = model.max_link_utilization;
        for link in &mut model.links {
            link.background_mbps = link.background_mbps.min(limit * link.bandwidth_mbps);
        }
        let instance = Instance::new(&model, Demand::Partial)?;
        let state = State::new(&instance, Costs::for_objective(Objective::Throughput), true);
        let mut compiled = Compiled {
            model,
            instance,
            state,
            held: HashMap::new(),
        };
        for (id, value) in &self.entries[CHAIN] {
            compiled.hold(id, Some(value))?;
        }
        Ok(compiled)
    }
}

/// The identifier that an entry states.
fn stated_id(entry: &Value) -> Option<&str> {
    match entries::member(entry, "id") {
        Some(Value::Text(id)) => Some(id),
        _ => None,
    }
}

impl Compiled {
    /// Lets a chain hold what its entry says instead of what it held.
    fn hold(&mut self, id: &str, value: Option<&Value>) -> Result<(), InputError> {
        if let Some(old) = self.held.remove(id) {
            self.put(old.loads.iter().map(|&(row, load)| (row, -load)));
        }
        let Some(value) = value else {
            return Ok(());
        };
        let held = Claim::read(Place::ROOT, value)?.hold(&self.model, &self.instance);
        self.put(held.loads.iter().copied());
        self.held.insert(id.to_owned(), held);
        Ok(())
    }

    /// Adds loads to rows.
    fn put(&mut self, loads: impl Iterator<Item = (usize, f64)>) {
        for (row, load) in loads {
            self.state.load[row] = (self.state.load[row] + load).max(0.0);
            self.state.refresh(&self.instance, row);
        }
    }
}
