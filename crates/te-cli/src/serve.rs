//! `switchboard-te serve`: the worker on the site's message bus.
//!
//! Services are answered on `serve.te.*` of the local site's server, in the queue group that agents share, as
//! `docs/message-bus.md` has it: a refusal carries its code in the header `Switchboard-Code` and its text as payload.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use async_nats::{Client, ConnectOptions, HeaderMap, Message};
use futures_util::StreamExt;
use te::error::{Error, InputError, Reason};
use te::json::{Fields, Place, Value, Writer, parse};
use te::lp::Monitor;
use te::model::Model;
use te::online::{Move, Worker};
use te::result::RouteEntry;
use te::solution::{Flow, Objective};

use crate::arguments::Arguments;
use crate::files;
use crate::solve::{FLAGS, OBJECTIVES, SOLVER, options};

/// The services, by the last token of their subject.
const SERVICES: [&str; 5] = ["load", "update", "route", "solve", "status"];

/// The queue group of the bus's services.
const GROUP: &str = "agents";

/// Moves listed in a plan unless the request states another number.
const MOVES: f64 = 100.0;

type Shared = Arc<Mutex<Option<Worker>>>;

/// Serves until the connection ends for good or the process is told to stop.
pub fn run(words: &[String]) -> Result<ExitCode, Error> {
    let valued = [&SOLVER[..], &["--nats", "--credentials"]].concat();
    let arguments = Arguments::parse(words, &valued, &FLAGS)?;
    let options = options(&arguments)?;
    let worker = arguments
        .get("--model")
        .map(files::model)
        .transpose()?
        .map(Worker::new)
        .transpose()?;
    let (url, connect) = connection(&arguments)?;
    let failed = |message: String| {
        Error::Input(InputError::new("", Reason::Unreadable, message).in_source("serve"))
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|e| failed(format!("cannot start: {e}")))?;
    let shared: Shared = Arc::new(Mutex::new(worker));
    runtime
        .block_on(serve(url, connect, shared, options))
        .map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// Where to connect and as whom: the values of an agent's credentials file, or a bare address.
fn connection(arguments: &Arguments) -> Result<(String, ConnectOptions), InputError> {
    let Some(path) = arguments.get("--credentials") else {
        let url = arguments
            .get("--nats")
            .unwrap_or("nats://127.0.0.1:4222")
            .to_owned();
        return Ok((url, ConnectOptions::new()));
    };
    let document = files::document(path)?;
    let known = ["site", "url", "user", "password", "inbox_prefix"];
    let fields = Fields::of(Place::ROOT, &document, &known).map_err(|e| e.in_source(path))?;
    let text = |name: &str| {
        fields
            .text(name)
            .map(str::to_owned)
            .map_err(|e| e.in_source(path))
    };
    let url = arguments
        .get("--nats")
        .map_or_else(|| text("url"), |url| Ok(url.to_owned()))?;
    let connect = ConnectOptions::new()
        .user_and_password(text("user")?, text("password")?)
        .custom_inbox_prefix(text("inbox_prefix")?);
    Ok((url, connect))
}

async fn serve(
    url: String,
    connect: ConnectOptions,
    shared: Shared,
    options: te::lp::Options,
) -> Result<(), String> {
    let connect = connect.name("switchboard-te");
    let client = connect
        .connect(&url)
        .await
        .map_err(|e| format!("cannot connect to {url}: {e}"))?;
    let mut subscriptions = Vec::new();
    for service in SERVICES {
        let subject = format!("serve.te.{service}");
        let subscribed = client.queue_subscribe(subject.clone(), GROUP.into()).await;
        subscriptions.push(subscribed.map_err(|e| format!("cannot serve {subject}: {e}"))?);
    }
    client
        .flush()
        .await
        .map_err(|e| format!("cannot reach {url}: {e}"))?;
    eprintln!(
        "switchboard-te: serving {} at {url}",
        SERVICES.map(|s| format!("te.{s}")).join(", ")
    );
    let mut requests = futures_util::stream::select_all(subscriptions);
    loop {
        tokio::select! {
            request = requests.next() => match request {
                Some(message) => {
                    let (client, shared, options) = (client.clone(), Arc::clone(&shared), options.clone());
                    tokio::spawn(async move { respond(&client, message, shared, options).await });
                }
                None => return Err("the connection was closed".into()),
            },
            _ = tokio::signal::ctrl_c() => {
                client.drain().await.map_err(|e| format!("cannot leave in order: {e}"))?;
                return Ok(());
            }
        }
    }
}

async fn respond(client: &Client, message: Message, shared: Shared, options: te::lp::Options) {
    let Some(reply) = message.reply.clone() else {
        return;
    };
    let service = message.subject.rsplit('.').next().unwrap_or("").to_owned();
    let payload = message.payload.clone();
    let answered =
        tokio::task::spawn_blocking(move || answer(&service, &payload, &shared, &options)).await;
    let sent = match answered {
        Ok(Ok(text)) => client.publish(reply, text.into()).await,
        Ok(Err(e)) => {
            client
                .publish_with_headers(reply, code(&e), e.to_string().into())
                .await
        }
        Err(_) => {
            client
                .publish_with_headers(reply, header("panic"), "the request failed inside".into())
                .await
        }
    };
    if let Err(e) = sent {
        eprintln!("switchboard-te: cannot reply: {e}");
    }
}

fn header(code: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("Switchboard-Code", code);
    headers
}

fn code(error: &Error) -> HeaderMap {
    header(match error {
        Error::Input(_) => "invalid",
        Error::Infeasible(_) => "infeasible",
    })
}

/// Answers one request.
pub fn answer(
    service: &str,
    payload: &[u8],
    shared: &Shared,
    options: &te::lp::Options,
) -> Result<String, Error> {
    let document = if payload.is_empty() {
        Value::Object(Vec::new())
    } else {
        parse(payload)?
    };
    if service == "load" {
        let worker = Worker::new(Model::from_value(&document)?)?;
        let text = status(&worker);
        *lock(shared) = Some(worker);
        return Ok(text);
    }
    let mut guard = lock(shared);
    let worker = guard.as_mut().ok_or_else(|| {
        InputError::new(
            "",
            Reason::MissingField,
            "no model is loaded yet; send one to te.load",
        )
    })?;
    match service {
        "update" => {
            worker.update(&document)?;
            Ok(status(worker))
        }
        "route" => route(worker, &document),
        "solve" => {
            // A copy is solved, so that routing goes on meanwhile.
            let copy = worker.clone();
            drop(guard);
            solve(&copy, &document, options)
        }
        _ => Ok(status(worker)),
    }
}

fn lock(shared: &Shared) -> std::sync::MutexGuard<'_, Option<Worker>> {
    // A request that panicked leaves the worker as it was before its last assignment.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn status(worker: &Worker) -> String {
    let model = worker.model();
    let mut writer = Writer::new();
    writer.object(|w| {
        w.name("chains").number(model.chains.len() as f64);
        w.name("nodes").number(model.nodes.len() as f64);
        let routed = (0..model.chains.len())
            .filter(|&c| carried(worker, c) >= 1.0 - 1e-9)
            .count();
        w.name("routed_in_full").number(routed as f64);
    });
    writer.finish()
}

fn carried(worker: &Worker, chain: usize) -> f64 {
    worker
        .routes(chain)
        .iter()
        .map(|f| f.fraction * worker.instance().commodities[f.commodity].share)
        .sum()
}

/// `{"chain": {…}}`: routes a new chain at the present loads and keeps it, or says what it lacks.
fn route(worker: &mut Worker, document: &Value) -> Result<String, Error> {
    let root = Fields::of(Place::ROOT, document, &["chain"])?;
    let chains = Value::Object(vec![(
        "chains".into(),
        Value::List(vec![root.required("chain")?.clone()]),
    )]);
    let chain = worker.model().read_chains(&chains)?.remove(0);
    let id = chain.id.clone();
    let admission = worker.admit(chain)?;
    let mut writer = Writer::new();
    writer.object(|w| {
        w.name("chain")
            .text(&id)
            .name("admitted")
            .bool(admission.chain.is_some());
        w.name("share").number(admission.share);
        w.name("scarce")
            .texts(admission.scarce.iter().map(String::as_str));
        w.name("routes").list(|w| {
            if let Some(number) = admission.chain {
                let instance = worker.instance();
                for entry in entries(instance, number, &admission.flows) {
                    te::result::write_route(w, worker.model(), &entry);
                }
            }
        });
    });
    Ok(writer.finish())
}

fn entries(instance: &te::instance::Instance, chain: usize, flows: &[Flow]) -> Vec<RouteEntry> {
    let node = |place: u32| instance.node_at[place as usize] as usize;
    let entry = |flow: &Flow| RouteEntry {
        chain,
        fraction: flow.fraction * instance.commodities[flow.commodity].share,
        sites: flow.route.sites.iter().map(|&s| s as usize).collect(),
        ingress: node(flow.route.source),
        egress: node(flow.route.sink),
    };
    flows.iter().map(entry).collect()
}

/// `{"objective": …, "moves": N}`: the optimum's figures and the N moves that gain most.
fn solve(worker: &Worker, document: &Value, options: &te::lp::Options) -> Result<String, Error> {
    let root = Fields::of(Place::ROOT, document, &["objective", "moves", "gap"])?;
    let objective = match root.optional("objective") {
        None => Objective::Throughput,
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
    let options = te::lp::Options {
        gap: root.positive_or("gap", options.gap)?.max(1e-9),
        ..options.clone()
    };
    let (instance, solution, moves) = worker.optimise(objective, &options, &Monitor::default())?;
    let total: f64 = moves.iter().map(|m| m.gain).sum();
    let listed = &moves[..moves.len().min(most)];
    let mut writer = Writer::new();
    writer.object(|w| {
        te::result::write_head(w, worker.model(), &instance, &solution);
        w.name("chains_that_gain").number(moves.len() as f64);
        w.name("share_of_gain")
            .number(listed.iter().map(|m| m.gain).sum::<f64>() / total.max(f64::MIN_POSITIVE));
        w.name("moves").list(|w| {
            listed
                .iter()
                .for_each(|m| write_move(w, worker, &instance, m))
        });
    });
    Ok(writer.finish())
}

fn write_move(w: &mut Writer, worker: &Worker, instance: &te::instance::Instance, planned: &Move) {
    w.line().object(|w| {
        w.name("chain")
            .text(&worker.model().chains[planned.chain].id)
            .name("gain")
            .number(planned.gain);
        w.name("routes").list(|w| {
            for entry in entries(instance, planned.chain, &planned.flows) {
                te::result::write_route(w, worker.model(), &entry);
            }
        });
    });
}
