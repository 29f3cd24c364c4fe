//! On-line traffic engineering: a model kept in memory, changed entry by entry, and asked for routes.
//!
//! The model's parts come one by one, each under a key: `node.<id>`, `link.<id>`, `site.<id>`, `vnf.<id>` with the JSON of
//! the contract's lists, and `chain.<id>` with what a chain [holds](Held) beside its specification. Whoever carries the
//! routes out decides them; a worker proposes. So it can be killed and started at any moment, and several can serve the
//! same model.
//!
//! One chain is routed by SB-DP at the loads of all others, and what is scarce is named where it does not fit. The exact
//! solver works on a copy of the model; what it would do differently becomes a plan of moves, the chains with most to
//! gain first, so that as little live traffic as possible is churned, and in an order in which nothing is overloaded.

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
pub use held::Held;
pub use moves::{Move, MovePlan};
pub use route::{Answer, Proposed};

/// The kinds of entry, in the model's words; a chain's comes last as it refers to all others.
const KINDS: [(&str, &str); 5] = [
    ("node", "nodes"),
    ("link", "links"),
    ("site", "sites"),
    ("vnf", "vnfs"),
    ("chain", "chains"),
];

/// The place of chains in [`KINDS`].
const CHAIN: usize = 4;

/// A model in use.
#[derive(Debug, Clone, Default)]
pub struct Worker {
    /// Entries by kind and what follows the kind in their key.
    entries: [BTreeMap<String, Value>; 5],
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
    /// A key of no known kind; a chain that cannot be understood, which then holds nothing.
    pub fn set(&mut self, key: &str, value: Option<Value>) -> Result<(), InputError> {
        let (kind, id) = key.split_once('.').unwrap_or((key, ""));
        let Some(kind) = KINDS.iter().position(|(name, _)| *name == kind) else {
            let message = format!(
                "'{key}' is no entry of a model; known kinds: node, link, site, vnf, chain"
            );
            return Err(InputError::new("", Reason::UnknownChoice, message));
        };
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

    /// Forgets every entry that `keep` does not want, such as those deleted while nobody looked.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        for ((kind, _), entries) in KINDS.iter().zip(&mut self.entries) {
            let before = entries.len();
            entries.retain(|id, _| keep(&format!("{kind}.{id}")));
            if entries.len() != before {
                self.compiled = None;
            }
        }
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

    /// The model without its chains.
    fn document(&self) -> Value {
        let list = |kind: usize| match kind {
            CHAIN => Value::List(Vec::new()),
            _ => Value::List(self.entries[kind].values().cloned().collect()),
        };
        let section = |(kind, (_, name)): (usize, &(&str, &str))| ((*name).to_owned(), list(kind));
        Value::Object(KINDS.iter().enumerate().map(section).collect())
    }

    fn compiled(&mut self) -> Result<&mut Compiled, Error> {
        let compiled = match self.compiled.take() {
            Some(compiled) => compiled,
            None => self.compile()?,
        };
        Ok(self.compiled.insert(compiled))
    }

    fn compile(&self) -> Result<Compiled, Error> {
        let model = Model::from_value(&self.document())?;
        let instance = Instance::new(&model, Demand::Partial)?;
        let state = State::new(&instance, Costs::for_objective(Objective::Throughput), true);
        let mut compiled = Compiled {
            model,
            instance,
            state,
            held: HashMap::new(),
        };
        for (id, value) in &self.entries[CHAIN] {
            // One that cannot be understood was refused when it came; its traffic is not known.
            let _ = compiled.hold(id, Some(value));
        }
        Ok(compiled)
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
        let held = Held::read(&self.model, &self.instance, Place::ROOT, value)?;
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
