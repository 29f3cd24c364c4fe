//! `switchboard-te serve`: an optimiser as a worker on the site's message bus.
//!
//! The worker follows the bucket `model`, one entry for each part of the model ([`te::online`]), and answers `te.route`,
//! `te.moves` and `te.status` in the queue group that a site's agents share, as `docs/message-bus.md` has it: a refusal
//! carries its code in the header `Switchboard-Code` and its text as payload. A request may name the `revision` of the
//! bucket that it was made from; it is answered when the worker has seen that revision. So every worker of a site
//! answers the same, and a worker that has just started answers when it has caught up.

mod answer;
mod bus;
mod follow;

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::Credentials;
use futures_util::StreamExt;
use te::error::{Error, InputError, Reason};
use te::online::Worker;

use crate::arguments::{Arguments, refuse};
use crate::solve::options;
use bus::Bus;

/// How often a worker says that it lives, as every agent does.
const BEAT: Duration = Duration::from_millis(300);

/// The model in use, and how far it has been followed.
pub struct Shared {
    worker: Mutex<Worker>,
    seen: tokio::sync::watch::Sender<u64>,
    name: String,
}

impl Shared {
    fn new(name: &str) -> Shared {
        Shared {
            worker: Mutex::new(Worker::new()),
            seen: tokio::sync::watch::Sender::new(0),
            name: name.to_owned(),
        }
    }

    fn worker(&self) -> MutexGuard<'_, Worker> {
        // A request that panicked leaves loads behind at worst; the next entry of the chain corrects them.
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves until the process is told to stop. A bus that is away is waited for.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let options = options(arguments)?;
    let failed = |message: String| {
        Error::Input(InputError::new("", Reason::Unreadable, message).in_source("serve"))
    };
    let path = arguments.given("--credentials").ok_or_else(|| {
        let message = "is missing; the site writes optimiser.default.json";
        refuse("--credentials", Reason::MissingField, message)
    })?;
    let name = arguments
        .given("--name")
        .map_or_else(|| format!("te-{}", std::process::id()), str::to_owned);
    let credentials = Credentials::read(Path::new(path)).map_err(|e| {
        // The error begins with the file itself.
        let text = e.to_string();
        let message = text.strip_prefix(&format!("{path}: ")).unwrap_or(&text);
        InputError::new("", Reason::Unreadable, message).in_source(path)
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| failed(format!("cannot start: {e}")))?;
    runtime
        .block_on(serve(credentials, &name, options, arguments.is_quiet()))
        .map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    credentials: Credentials,
    name: &str,
    options: te::lp::Options,
    quiet: bool,
) -> Result<(), String> {
    let bus = Bus::connect(credentials, name)
        .await
        .map_err(|e| e.to_string())?;
    let shared = Arc::new(Shared::new(name));
    let follower = tokio::spawn(follow::forever(bus.clone(), Arc::clone(&shared)));
    let mut requests = bus.requests().await?;
    let mut beat = tokio::time::interval(BEAT);
    if !quiet {
        eprintln!("switchboard-te: {name} serves te.route, te.moves and te.status");
    }
    loop {
        tokio::select! {
            request = requests.next() => match request {
                Some(message) => {
                    let (bus, shared, options) = (bus.clone(), Arc::clone(&shared), options.clone());
                    tokio::spawn(async move { answer::respond(&bus, message, shared, options).await });
                }
                None => return Err("the connection was closed".into()),
            },
            _ = beat.tick() => bus.beat().await,
            _ = stopped() => break,
        }
    }
    follower.abort();
    bus.farewell().await;
    Ok(())
}

/// Waits for a signal that asks the process to end.
async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}
