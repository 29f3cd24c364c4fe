//! Verification of a routed series: the routes against every matrix, and what changes between them.

use std::collections::{HashMap, HashSet};

use super::read;
use super::routing::{Claim, State};
use super::verdict::{FromScratch, Verdict, differs, maybe};
use super::{Report, TOLERANCE};
use crate::error::{InputError, Reason};
use crate::json::{Fields, Place, Value};
use crate::model::Model;
use crate::network::Network;
use crate::result::{Figures, RouteEntry};
use crate::series::Matrix;
use crate::solution::Objective;

/// A result for a series of matrices.
struct SeriesFile {
    verdict: Verdict,
    /// Limit on the change between matrices.
    max_change: f64,
    /// Factor when each matrix is routed from scratch.
    from_scratch: f64,
    /// The matrices in order.
    moments: Vec<Moment>,
}

/// One matrix of a result.
struct Moment {
    value: f64,
    /// Share of the demand that changes its route.
    moved: f64,
    from_scratch: FromScratch,
    figures: Figures,
    /// Its routes: its own, or those of all; and their pointer.
    routes: Vec<RouteEntry>,
    place: String,
}

const ROOT: [&str; 10] = [
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

const MOMENT: [&str; 10] = [
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

fn read(document: &Value, model: &Model, matrices: &[Matrix]) -> Result<SeriesFile, InputError> {
    let root = Fields::of(Place::ROOT, document, &ROOT)?;
    let verdict = Verdict::read(&root)?;
    if verdict.objective != Objective::Scale {
        let message = "series maximise the factor: must be 'scale'";
        let place = root.place.name("objective");
        return Err(place.error(Reason::Contradiction, message));
    }
    let max_change = root.not_negative("max_change")?;
    let shared = read::routes(&root, model)?;
    if max_change > 0.0 && !shared.is_empty() {
        let message = "each matrix has its own, so this list must be empty";
        return Err(root
            .place
            .name("routes")
            .error(Reason::Contradiction, message));
    }
    let list = root.place.name("matrices");
    let values = root.list("matrices")?;
    if values.len() != matrices.len() {
        let (here, given) = (values.len(), matrices.len());
        let message = format!("{here} matrices, and {given} are given with --demands");
        return Err(list.error(Reason::WrongLength, message));
    }
    let shared = (max_change == 0.0).then_some(&shared[..]);
    let all = values.iter().zip(matrices).enumerate();
    let moments = all.map(|(i, (value, matrix))| {
        let place = list.index(i);
        moment(&Fields::of(place, value, &MOMENT)?, model, matrix, shared)
    });
    Ok(SeriesFile {
        from_scratch: root.not_negative("from_scratch")?,
        moments: moments.collect::<Result<_, _>>()?,
        verdict,
        max_change,
    })
}

fn moment(
    fields: &Fields<'_>,
    model: &Model,
    matrix: &Matrix,
    shared: Option<&[RouteEntry]>,
) -> Result<Moment, InputError> {
    let refuse = |name: &str, message: String| {
        Err(fields
            .place
            .name(name)
            .error(Reason::Contradiction, message))
    };
    if fields.text("matrix")? != matrix.name {
        let given = &matrix.name;
        let message = format!("the matrix given with --demands in this place is '{given}'");
        return refuse("matrix", message);
    }
    let (routes, place) = match shared {
        None => {
            let place = fields.place.name("routes").pointer();
            (read::routes(fields, model)?, place)
        }
        Some(_) if fields.optional("routes").is_some() => {
            return refuse("routes", "one routing serves all matrices".into());
        }
        Some(routes) => (routes.to_vec(), "/routes".into()),
    };
    fields.not_negative("from_scratch_moved_share")?;
    Ok(Moment {
        value: fields.not_negative("value")?,
        moved: fields.not_negative("moved_share")?,
        from_scratch: FromScratch {
            value: fields.not_negative("from_scratch")?,
            bound: maybe(fields, "from_scratch_bound")?.unwrap_or(f64::INFINITY),
        },
        figures: Figures::read(fields)?,
        routes,
        place,
    })
}

/// Checks the routes of every matrix against its demands, and the change between consecutive ones.
pub fn check(
    model: &Model,
    document: &Value,
    matrices: &[Matrix],
    told: &dyn Fn(f64),
) -> Result<Report, InputError> {
    let result = read(document, model, matrices)?;
    let network = Network::of(model);
    let verdict = &result.verdict;
    let least =
        |of: fn(&Moment) -> f64| result.moments.iter().map(of).fold(f64::INFINITY, f64::min);
    let value = least(|m| m.value);
    let mut report = Report {
        violations: verdict.contradictions(),
        value,
        carried_mbps: 0.0,
        max_link_utilization: 0.0,
    };
    let stated = [
        differs("/value", verdict.value, value),
        differs(
            "/from_scratch",
            result.from_scratch,
            least(|m| m.from_scratch.value),
        ),
    ];
    report.violations.extend(stated.into_iter().flatten());
    let mut before: Option<Shares> = None;
    for (i, (matrix, moment)) in matrices.iter().zip(&result.moments).enumerate() {
        let here = matrix.apply(model);
        let state = State::new(&here, &network);
        let violations = at(&state, matrix, moment, verdict, i, &mut report);
        report.violations.extend(violations);
        let now = shares(&moment.routes);
        let moved = before
            .as_ref()
            .map_or(0.0, |before| moved(&here, before, &now));
        let pointer = format!("/matrices/{i}/moved_share");
        report
            .violations
            .extend(differs(&pointer, moment.moved, moved));
        if moved > result.max_change + TOLERANCE {
            report.violations.push(format!(
                "{pointer}: {moved} of the demand changes its route, {} is allowed",
                result.max_change
            ));
        }
        before = Some(now);
        told((i + 1) as f64 / matrices.len() as f64);
    }
    Ok(report)
}

/// Checks the routes of one matrix at the factor of the whole series, and what is stated of them.
fn at(
    state: &State<'_>,
    matrix: &Matrix,
    moment: &Moment,
    verdict: &Verdict,
    index: usize,
    report: &mut Report,
) -> Vec<String> {
    let place = format!("/matrices/{index}");
    // Who demands nothing loads nothing with the routes it has.
    let (busy, idle): (Vec<RouteEntry>, Vec<RouteEntry>) = moment
        .routes
        .iter()
        .cloned()
        .partition(|r| matrix.demands(r.chain));
    let found = state.evaluate(Claim::of_scale(verdict.value), &busy, &moment.place);
    let of = |v: String| format!("{v} (matrix {})", matrix.name);
    let mut wrong: Vec<String> = found.violations.iter().cloned().map(of).collect();
    wrong.extend(differs(
        &format!("{place}/value"),
        moment.value,
        found.value,
    ));
    wrong.extend(moment.figures.differ(&found, &place));
    let scratch = &moment.from_scratch;
    wrong.extend(scratch.contradictions(&place, found.value, verdict.bound));
    let mut sums: HashMap<usize, f64> = HashMap::new();
    for route in &idle {
        *sums.entry(route.chain).or_default() += route.fraction;
    }
    for (chain, sum) in sums
        .into_iter()
        .filter(|(_, sum)| (sum - 1.0).abs() > TOLERANCE)
    {
        let (id, place) = (&state.model.chains[chain].id, &moment.place);
        wrong.push(format!(
            "{place}: chain {id}: its shares sum to {sum}, not to 1"
        ));
    }
    report.carried_mbps = report.carried_mbps.max(found.figures.carried_mbps);
    let most = found.figures.max_link_utilization;
    report.max_link_utilization = report.max_link_utilization.max(most);
    wrong
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
