//! Verification of a result: everything that it states is worked out anew from its routes and the model alone.
//!
//! Deliberately shares nothing with the solvers but the model and the network's routing: routes are turned into the
//! paper's variables x_{c z n1 n2}, and equations 3 to 7 are evaluated from those. Every violation begins with the JSON
//! pointer of what is wrong. What a result cannot prove by its routes is bounded by what it can: a bound must not be
//! beaten, and figures of other routings that are stated for comparison must not contradict it.

mod plan;
mod read;
mod routing;
mod series;
mod survive;
mod verdict;

use crate::error::{InputError, Reason};
use crate::json::{Fields, Place, Value};
use crate::model::Model;
use crate::network::Network;
use crate::series::Matrix;
use read::ResultFile;
use routing::{Found, State};

/// Largest violation that is accepted, relative to the capacity, demand or figure concerned.
pub const TOLERANCE: f64 = 1e-6;

/// What a result turns out to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Everything that does not hold, each with its JSON pointer first.
    pub violations: Vec<String>,
    /// The objective's value recomputed.
    pub value: f64,
    /// Demand carried, Mbit/s.
    pub carried_mbps: f64,
    /// Largest link utilisation, background included.
    pub max_link_utilization: f64,
}

/// What kind of result a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of `solve`.
    Plain,
    /// Of `solve --survive`.
    Survival,
    /// Of `solve --demands`.
    Series,
    /// Of `plan cloud`.
    Cloud,
    /// Of `plan placement`.
    Placement,
}

impl Kind {
    /// Tells by the members that only one kind has.
    pub fn of(document: &Value) -> Kind {
        let has =
            |name: &str| matches!(document, Value::Object(m) if m.iter().any(|(n, _)| n == name));
        match () {
            () if has("matrices") => Kind::Series,
            () if has("survive") || has("failures") => Kind::Survival,
            () if has("added") => Kind::Cloud,
            () if has("placed") => Kind::Placement,
            () => Kind::Plain,
        }
    }
}

/// Checks a result against the model that it was made for, and the matrices where it is that of a series. `told` hears
/// what share of the work is done.
///
/// # Errors
/// The first mistake for which the document is no result, with its JSON pointer.
pub fn check(
    model: &Model,
    document: &Value,
    matrices: &[Matrix],
    told: &dyn Fn(f64),
) -> Result<Report, InputError> {
    let kind = Kind::of(document);
    if (kind == Kind::Series) == matrices.is_empty() {
        let message = if matrices.is_empty() {
            "is the result for a series; give its matrices with --demands"
        } else {
            "is missing, so this is no result for a series; leave --demands out"
        };
        return Err(InputError::new("/matrices", Reason::Contradiction, message));
    }
    match kind {
        Kind::Plain => {
            let root = Fields::of(Place::ROOT, document, &read::HEAD)?;
            let network = Network::of(model);
            let result = read::result(&root, model)?;
            Ok(whole(&State::new(model, &network), &result).0)
        }
        Kind::Survival => survive::check(model, document, told),
        Kind::Series => series::check(model, document, matrices, told),
        Kind::Cloud => plan::cloud(model, document),
        Kind::Placement => plan::placement(model, document),
    }
}

/// Checks routes in a state, and all that a result states of them.
fn whole(state: &State<'_>, result: &ResultFile) -> (Report, Found) {
    let verdict = &result.verdict;
    let mut found = state.evaluate(verdict, &result.routes, "/routes");
    let mut violations = std::mem::take(&mut found.violations);
    violations.extend(verdict.contradictions());
    violations.extend(result.ignored(state.model));
    violations.extend(verdict::differs("/value", verdict.value, found.value));
    violations.extend(result.figures.differ(&found, ""));
    let report = Report {
        value: found.value,
        carried_mbps: found.figures.carried_mbps,
        max_link_utilization: found.figures.max_link_utilization,
        violations,
    };
    (report, found)
}
