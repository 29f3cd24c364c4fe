//! Verification of a routed series: the routes against every matrix, and what changes between them.

use std::collections::{HashMap, HashSet};

use super::{Report, TOLERANCE, check_with};
use crate::error::{InputError, Reason};
use crate::json::{Fields, Place, Value};
use crate::model::Model;
use crate::network::Network;
use crate::result::{ResultFile, RouteEntry, read_bound, read_routes};
use crate::series::Matrix;

/// A result for a series of matrices.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesFile {
    /// Stated factor on the demands of every matrix.
    pub value: f64,
    /// Stated bound.
    pub bound: Option<f64>,
    /// Stated limit on the change between matrices.
    pub max_change: f64,
    /// The matrices in order.
    pub moments: Vec<MomentFile>,
}

/// One matrix of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct MomentFile {
    /// Stated factor of this matrix alone.
    pub value: f64,
    /// Stated share of the demand that changes its route.
    pub moved: f64,
    /// Its routes: its own, or those of all.
    pub routes: Vec<RouteEntry>,
}

/// Whether a document is the result of a series.
pub fn is_series(document: &Value) -> bool {
    matches!(document, Value::Object(m) if m.iter().any(|(name, _)| name == "matrices"))
}

/// Reads the result of a series; the matrices must be those given, in the same order.
///
/// # Errors
/// The first mistake found, with its JSON pointer.
pub fn read(
    document: &Value,
    model: &Model,
    matrices: &[Matrix],
) -> Result<SeriesFile, InputError> {
    let known = [
        "status",
        "objective",
        "value",
        "bound",
        "gap",
        "seconds",
        "max_change",
        "from_scratch",
        "matrices",
        "routes",
    ];
    let root = Fields::of(Place::ROOT, document, &known)?;
    let max_change = root.not_negative("max_change")?;
    let shared = read_routes(&root, model)?;
    let list = root.place.name("matrices");
    let values = root.list("matrices")?;
    if values.len() != matrices.len() {
        let message = format!(
            "{} matrices, and {} are given with --demands",
            values.len(),
            matrices.len()
        );
        return Err(list.error(Reason::WrongLength, message));
    }
    let known = [
        "matrix",
        "value",
        "moved_share",
        "from_scratch",
        "from_scratch_bound",
        "from_scratch_moved_share",
        "carried_mbps",
        "mean_latency_ms",
        "max_link_utilization",
        "routes",
    ];
    let mut moments = Vec::with_capacity(values.len());
    for (i, (value, matrix)) in values.iter().zip(matrices).enumerate() {
        let place = list.index(i);
        let fields = Fields::of(place, value, &known)?;
        let name = fields.text("matrix")?;
        if name != matrix.name {
            let message = format!(
                "the matrix given with --demands in this place is '{}'",
                matrix.name
            );
            return Err(place.name("matrix").error(Reason::Contradiction, message));
        }
        moments.push(MomentFile {
            value: fields.not_negative("value")?,
            moved: fields.not_negative("moved_share")?,
            routes: if max_change > 0.0 {
                read_routes(&fields, model)?
            } else {
                shared.clone()
            },
        });
    }
    Ok(SeriesFile {
        value: root.not_negative("value")?,
        bound: read_bound(&root)?,
        max_change,
        moments,
    })
}

/// Checks the routes of every matrix against its demands, and the change between consecutive ones.
pub fn check(model: &Model, matrices: &[Matrix], result: &SeriesFile) -> Report {
    check_telling(model, matrices, result, &|_| {})
}

/// As [`check`]; `told` hears after every matrix what share of them is done.
pub fn check_telling(
    model: &Model,
    matrices: &[Matrix],
    result: &SeriesFile,
    told: &dyn Fn(f64),
) -> Report {
    let network = Network::of(model);
    let mut total = Report {
        violations: Vec::new(),
        value: result.value,
        carried_mbps: 0.0,
        max_link_utilization: 0.0,
    };
    let mut before: Option<Shares> = None;
    for (i, (matrix, moment)) in matrices.iter().zip(&result.moments).enumerate() {
        let mut here = matrix.apply(model);
        let busy: Vec<bool> = (0..model.chains.len()).map(|c| matrix.demands(c)).collect();
        // Who demands nothing needs no routes and loads nothing with those it has.
        for (chain, busy) in here.chains.iter_mut().zip(&busy) {
            if !busy {
                chain.minimum_share = Some(0.0);
            }
        }
        let mut of = |factor: f64| {
            let file = ResultFile {
                objective: "scale".into(),
                partial: false,
                value: factor,
                bound: None,
                routes: moment
                    .routes
                    .iter()
                    .filter(|r| busy[r.chain])
                    .cloned()
                    .collect(),
            };
            let report = check_with(&here, &network, &file);
            let at = |v: String| format!("matrix {}: {v}", matrix.name);
            total
                .violations
                .extend(report.violations.into_iter().map(at));
            total.carried_mbps = total.carried_mbps.max(report.carried_mbps);
            total.max_link_utilization =
                total.max_link_utilization.max(report.max_link_utilization);
        };
        of(result.value);
        of(moment.value);
        let now = shares(&moment.routes);
        let moved = before
            .as_ref()
            .map_or(0.0, |before| moved(&here, before, &now));
        if moved > result.max_change + TOLERANCE || (moved - moment.moved).abs() > TOLERANCE {
            total.violations.push(format!(
                "/matrices/{i}/moved_share: {moved} of the demand changes its route, {} is stated and {} allowed",
                moment.moved, result.max_change
            ));
        }
        before = Some(now);
        told((i + 1) as f64 / matrices.len() as f64);
    }
    if let Some(bound) = result
        .bound
        .filter(|b| result.value > b * (1.0 + TOLERANCE))
    {
        total.violations.push(format!(
            "/bound: {bound} is beaten by the value {}",
            result.value
        ));
    }
    total
}

type Shares<'a> = HashMap<(usize, usize, usize, &'a [usize]), f64>;

fn shares(routes: &[RouteEntry]) -> Shares<'_> {
    let mut shares = Shares::new();
    for route in routes {
        *shares
            .entry((route.chain, route.ingress, route.egress, &route.sites))
            .or_default() += route.fraction;
    }
    shares
}

/// Share of the demand on routes, or in shares, that were not there before; of chains that had routes.
fn moved(model: &Model, before: &Shares<'_>, now: &Shares<'_>) -> f64 {
    let known: HashSet<usize> = before.keys().map(|k| k.0).collect();
    let more = |(key, share): (&(usize, usize, usize, &[usize]), &f64)| {
        let more = (share - before.get(key).copied().unwrap_or(0.0)).max(0.0);
        if known.contains(&key.0) {
            more * model.chains[key.0].demand_mbps()
        } else {
            0.0
        }
    };
    let total: f64 = model.chains.iter().map(|c| c.demand_mbps()).sum();
    if total > 0.0 {
        now.iter().map(more).sum::<f64>() / total
    } else {
        0.0
    }
}
