//! The arithmetic of what a result says of itself: status, value, bound and gap; and figures against figures.

use super::routing::Found;
use super::{TOLERANCE, read::ResultFile};
use crate::error::{InputError, Reason};
use crate::json::{Fields, Value};
use crate::model::Model;
use crate::result::Figures;
use crate::solution::relative_gap;
use crate::solution::{Objective, Status};

/// A gap is computed from the two numbers beside it, so that it differs by rounding alone.
const GAP_ROUNDING: f64 = 1e-15;

const STATUSES: [Status; 5] = [
    Status::Optimal,
    Status::Feasible,
    Status::TimeLimit,
    Status::Interrupted,
    Status::Partial,
];

const OBJECTIVES: [Objective; 3] = [Objective::Throughput, Objective::Scale, Objective::Latency];

/// How a solve ended, as its result states it.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The status.
    pub status: Status,
    /// Whether it says that demand is left over which should have been carried.
    pub partial: bool,
    /// The objective.
    pub objective: Objective,
    /// The value.
    pub value: f64,
    /// The bound, where one was proved.
    pub bound: Option<f64>,
    /// The gap between the two, where it is known.
    pub gap: Option<f64>,
}

/// One of several words.
fn word<T: Copy>(
    root: &Fields<'_>,
    name: &str,
    all: &[T],
    of: fn(T) -> &'static str,
) -> Result<T, InputError> {
    let text = root.text(name)?;
    let found = all.iter().copied().find(|w| of(*w) == text);
    found.ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|w| of(*w)).collect();
        let message = format!("'{text}' is unknown; known: {}", known.join(", "));
        root.place.name(name).error(Reason::UnknownChoice, message)
    })
}

/// A member that is a number or null.
pub fn maybe(root: &Fields<'_>, name: &str) -> Result<Option<f64>, InputError> {
    match root.required(name)? {
        Value::Null => Ok(None),
        value => root.place.name(name).number(value).map(Some),
    }
}

impl Verdict {
    /// Reads the members that every result has.
    ///
    /// # Errors
    /// The first mistake found, with its JSON pointer.
    pub fn read(root: &Fields<'_>) -> Result<Verdict, InputError> {
        let status = word(root, "status", &STATUSES, Status::name)?;
        let place = root.place.name("partial");
        let cut_short = matches!(status, Status::Interrupted | Status::TimeLimit);
        let partial = match root.optional("partial") {
            None => status == Status::Partial,
            Some(Value::Bool(true)) if cut_short => true,
            Some(Value::Bool(_)) => {
                let message = "stands, as true, in results that were cut short only";
                return Err(place.error(Reason::Contradiction, message));
            }
            Some(_) => return Err(place.error(Reason::WrongType, "must be true")),
        };
        root.not_negative("seconds")?;
        Ok(Verdict {
            status,
            partial,
            objective: word(root, "objective", &OBJECTIVES, Objective::name)?,
            value: root.place.name("value").number(root.required("value")?)?,
            bound: maybe(root, "bound")?,
            gap: maybe(root, "gap")?,
        })
    }

    /// What of it contradicts the rest of it.
    pub fn contradictions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        // What is carried in part travels less than the bound, which is for all of the demand.
        let comparable = !(self.partial && self.objective == Objective::Latency);
        let bound = self.bound.filter(|_| comparable);
        if bound != self.bound {
            wrong.push("/bound: is for all of the demand, of which a part is left: null".into());
        }
        let gap = bound.map(|bound| relative_gap(self.objective, self.value, bound));
        if let Some(bound) = bound.filter(|_| gap.is_none_or(f64::is_infinite)) {
            wrong.push(format!(
                "/bound: {bound} is beaten by the value {}, so it is no bound",
                self.value
            ));
        }
        let gap = gap.filter(|gap| gap.is_finite());
        let same = match (self.gap, gap) {
            (Some(stated), Some(gap)) => {
                (stated - gap).abs() <= GAP_ROUNDING + TOLERANCE * gap.abs()
            }
            (stated, gap) => stated.is_none() && gap.is_none(),
        };
        if !same {
            wrong.push(format!(
                "/gap: {} is stated, value and bound make it {}",
                shown(self.gap),
                shown(gap)
            ));
        }
        if self.status == Status::Optimal && gap.is_none() {
            wrong.push("/status: optimal, and no bound proves it".into());
        }
        if self.partial && self.objective == Objective::Scale {
            wrong.push("/status: a factor holds for all chains, so none is left in part".into());
        }
        wrong
    }
}

/// What is stated of routing one state from scratch, of which no routes are stated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FromScratch {
    /// The factor that is reached; infinite where nothing limits it.
    pub value: f64,
    /// A bound on it; infinite where none was proved.
    pub bound: f64,
}

impl FromScratch {
    /// What of it cannot be so, as members at `place`: the answer's own routes for the state, which carry `reached`, are a
    /// routing from scratch too, and what no such routing beats no answer beats, so that `whole` is at most that.
    pub fn contradictions(&self, place: &str, reached: f64, whole: Option<f64>) -> Vec<String> {
        let FromScratch { value, bound } = self;
        let mut wrong = Vec::new();
        if *value < reached * (1.0 - TOLERANCE) {
            wrong.push(format!(
                "{place}/from_scratch: {value} is less than the {reached} that the routes here carry"
            ));
        }
        if *bound < value * (1.0 - TOLERANCE) {
            wrong.push(format!(
                "{place}/from_scratch_bound: {bound} is beaten by from_scratch, {value}"
            ));
        }
        let whole = whole.unwrap_or(f64::INFINITY);
        if whole > bound * (1.0 + TOLERANCE) {
            wrong.push(format!(
                "/bound: {whole} is above {place}/from_scratch_bound, {bound}, which bounds this too"
            ));
        }
        wrong
    }
}

fn shown(number: Option<f64>) -> String {
    number.map_or("null".into(), |n| n.to_string())
}

/// Whether a stated figure differs from what it turns out to be.
pub fn differs(pointer: &str, stated: f64, found: f64) -> Option<String> {
    // Not `>`, of which a figure that is no number would be free.
    let same = (stated - found).abs() <= TOLERANCE * found.abs().max(TOLERANCE);
    (!same).then(|| format!("{pointer}: {stated} is stated, the routes make it {found}"))
}

impl Figures {
    /// Reads the figures of a routing.
    ///
    /// # Errors
    /// One that is missing or no number.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Figures, InputError> {
        Ok(Figures {
            carried_mbps: fields.not_negative("carried_mbps")?,
            mean_latency_ms: fields.not_negative("mean_latency_ms")?,
            max_link_utilization: fields.not_negative("max_link_utilization")?,
        })
    }

    /// Which of them differ from what the routes make them; they stand at `place`.
    pub(super) fn differ(&self, found: &Found, place: &str) -> Vec<String> {
        let of = |name: &str, stated: f64, found: f64| {
            differs(&format!("{place}/{name}"), stated, found)
        };
        let f = &found.figures;
        let all = [
            of("carried_mbps", self.carried_mbps, f.carried_mbps),
            of("mean_latency_ms", self.mean_latency_ms, f.mean_latency_ms),
            of(
                "max_link_utilization",
                self.max_link_utilization,
                f.max_link_utilization,
            ),
        ];
        all.into_iter().flatten().collect()
    }
}

impl ResultFile {
    /// Whether `bound_ignores` is there where the model has `max_routes` and the result a bound, and names nothing else.
    pub(super) fn ignored(&self, model: &Model) -> Option<String> {
        let limited = model.chains.iter().any(|c| c.limits.max_routes.is_some());
        let known: &[Option<&[&str]>] = if limited && self.verdict.bound.is_some() {
            &[Some(&[]), Some(&["max_routes"])]
        } else {
            &[None]
        };
        let stated = self.bound_ignores.as_deref();
        let same = |known: &Option<&[&str]>| match (stated, known) {
            (Some(stated), Some(known)) => stated == *known,
            (stated, known) => stated.is_none() && known.is_none(),
        };
        (!known.iter().any(same)).then(|| {
            format!(
                "/bound_ignores: {stated:?} is stated, of this model it may be one of {known:?}"
            )
        })
    }
}
