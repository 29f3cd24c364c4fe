//! Requests and their answers.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Message;
use te::error::{Error, Reason};
use te::json::{Fields, Place, Value, Writer, parse};
use te::lp::Monitor;
use te::online::{Move, MovePlan, Notice};
use te::solution::Objective;

use super::Shared;
use super::bus::Bus;
use crate::solve::OBJECTIVES;

/// Moves listed in a plan unless the request states another number.
const MOVES: f64 = 100.0;

/// How long a request waits for the revision it was made from.
const PATIENCE: Duration = Duration::from_millis(500);

/// Why a request was not answered: a code for programs and a sentence.
type Refusal = (&'static str, String);

/// Answers one request.
pub async fn respond(bus: &Bus, message: Message, shared: Arc<Shared>, options: te::lp::Options) {
    let service = message.subject.rsplit('.').next().unwrap_or("").to_owned();
    let payload = message.payload.clone();
    let answered = match document(&payload) {
        Err(e) => Err(e),
        Ok(document) => match caught_up(&document, &shared).await {
            Err(e) => Err(e),
            Ok(()) => {
                let work = move || answer(&service, &document, &shared, &options);
                let done = tokio::task::spawn_blocking(work).await;
                done.unwrap_or_else(|_| Err(("panic", "the request failed inside".into())))
            }
        },
    };
    bus.answer(&message, answered).await;
}

fn document(payload: &[u8]) -> Result<Value, Refusal> {
    if payload.is_empty() {
        return Ok(Value::Object(Vec::new()));
    }
    parse(payload).map_err(|e| refusal(&e.into()))
}

/// Waits until the worker has seen what the request was made from.
async fn caught_up(document: &Value, shared: &Shared) -> Result<(), Refusal> {
    let Value::Object(members) = document else {
        return Ok(()); // refused with a better message later
    };
    let Some((_, value)) = members.iter().find(|(name, _)| name == "revision") else {
        return Ok(());
    };
    let revision = Place::ROOT
        .name("revision")
        .not_negative(value)
        .map_err(|e| refusal(&e.into()))? as u64;
    let mut seen = shared.seen.subscribe();
    let wait = seen.wait_for(|seen| *seen >= revision);
    if tokio::time::timeout(PATIENCE, wait).await.is_err() {
        let at = *shared.seen.borrow();
        return Err((
            "behind",
            format!("the model is known up to revision {at}, not {revision}"),
        ));
    }
    Ok(())
}

fn refusal(error: &Error) -> Refusal {
    let code = match error {
        Error::Input(_) => "invalid",
        Error::Infeasible(_) => "infeasible",
        Error::NotFound(_) => "not-found",
    };
    (code, error.to_string())
}

fn answer(
    service: &str,
    document: &Value,
    shared: &Shared,
    options: &te::lp::Options,
) -> Result<String, Refusal> {
    match service {
        "route" => route(document, shared),
        "moves" => moves(document, shared, options).map_err(|e| refusal(&e)),
        "status" => Ok(status(shared)),
        _ => Err((
            "unknown",
            format!("there is no service te.{service}; ask route, moves or status"),
        )),
    }
}

fn status(shared: &Shared) -> String {
    let worker = shared.worker();
    let (chains, nodes) = worker.size();
    let mut writer = Writer::new();
    writer.object(|w| {
        w.name("worker").text(&shared.name);
        w.name("chains").number(chains as f64);
        w.name("nodes").number(nodes as f64);
        w.name("revision").number(*shared.seen.borrow() as f64);
        notices(w.name("refused"), &worker.refused());
        notices(w.name("waiting"), &worker.waiting());
    });
    writer.finish()
}

/// A list `[{key, reason}]`.
fn notices(w: &mut Writer, list: &[Notice]) {
    w.list(|w| {
        for notice in list {
            w.object(|w| {
                w.name("key").text(&notice.key);
                w.name("reason").text(&notice.reason);
            });
        }
    });
}

/// `{"chain": {…}, "limits": […], "planned": […]}`: routes at the present loads, or what is lacking.
fn route(document: &Value, shared: &Shared) -> Result<String, Refusal> {
    let answer = shared.worker().route(document).map_err(|e| refusal(&e))?;
    let mut writer = Writer::new();
    writer.object(|w| {
        w.name("worker").text(&shared.name);
        w.name("admitted").bool(answer.admitted);
        w.name("share").number(answer.share);
        w.name("scarce")
            .texts(answer.scarce.iter().map(String::as_str));
        w.name("excluded")
            .texts(answer.excluded.iter().map(String::as_str));
        w.name("routes")
            .list(|w| answer.routes.iter().for_each(|r| r.write(w)));
    });
    Ok(writer.finish())
}

/// `{"objective": …, "gap": …, "moves": N, "least_gain": x}`: the optimum's figures and the first N moves.
fn moves(document: &Value, shared: &Shared, options: &te::lp::Options) -> Result<String, Error> {
    let root = Fields::of(
        Place::ROOT,
        document,
        &["objective", "moves", "gap", "least_gain", "revision"],
    )?;
    let objective = match root.optional("objective") {
        None => Objective::Latency,
        Some(value) => {
            let place = root.place.name("objective");
            let name = place.text(value)?;
            let known = OBJECTIVES.iter().find(|(n, _)| *n == name).map(|(_, o)| *o);
            known.ok_or_else(|| {
                place.error(Reason::UnknownChoice, format!("'{name}' is no objective"))
            })?
        }
    };
    let most = root.not_negative_or("moves", MOVES)? as usize;
    let least = root.not_negative_or("least_gain", 0.0)?;
    let options = te::lp::Options {
        gap: root.positive_or("gap", options.gap)?.max(1e-9),
        ..options.clone()
    };
    // A copy is solved, so that chains are routed meanwhile.
    let mut copy = shared.worker().clone();
    let plan = copy.moves(objective, least, &options, &Monitor::default())?;
    Ok(written(&plan, most))
}

fn written(plan: &MovePlan, most: usize) -> String {
    let total: f64 = plan.moves.iter().map(|m| m.gain).sum();
    let listed = &plan.moves[..plan.moves.len().min(most)];
    let mut writer = Writer::new();
    writer.object(|w| {
        te::result::write_head(w, &plan.model, &plan.instance, &plan.solution);
        w.name("left_out")
            .texts(plan.left_out.iter().map(String::as_str));
        let gain = plan.moves.iter().filter(|m| !m.makes_room).count();
        w.name("chains_that_gain").number(gain as f64);
        let share = listed.iter().map(|m| m.gain).sum::<f64>() / total.max(f64::MIN_POSITIVE);
        w.name("share_of_gain").number(share);
        w.name("moves")
            .list(|w| listed.iter().for_each(|m| write_move(w, m)));
    });
    writer.finish()
}

fn write_move(w: &mut Writer, planned: &Move) {
    w.line().object(|w| {
        w.name("chain").text(&planned.chain);
        w.name("gain").number(planned.gain);
        w.name("relative_gain").number(planned.relative);
        w.name("latency_ms_now").number(planned.latency_ms.0);
        w.name("latency_ms_then").number(planned.latency_ms.1);
        w.name("makes_room").bool(planned.makes_room);
        w.name("full")
            .texts(planned.full.iter().map(String::as_str));
        w.name("routes")
            .list(|w| planned.routes.iter().for_each(|r| r.write(w)));
    });
}
