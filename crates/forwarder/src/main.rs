//! The command `switchboard-forwarder`.

mod arguments;

use arguments::{Arguments, USAGE};
use async_nats::Subscriber;
use async_nats::jetstream::kv::Watch;
use contracts::forwarder as contract;
use dpdk::{Environment, EnvironmentError};
use forwarder::buffers::Buffers;
use forwarder::bus::Bus;
use forwarder::capture::Capture;
use forwarder::capture_session::Sessions;
use forwarder::control::{Control, Identity};
use forwarder::local::{self, Latest};
use forwarder::pipeline::Settings;
use forwarder::rules_file::RulesFile;
use futures::StreamExt;
use prost::Message;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io, thread};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// How often the forwarder says that it lives, and reports.
const BEAT: Duration = Duration::from_millis(300);
const REPORT: Duration = Duration::from_millis(1000);
/// Where metrics are served unless told otherwise.
const METRICS: &str = "127.0.0.1:9470";
/// How often, and for how long, a spare tries to serve them where the process before still has the address.
const METRICS_PAUSE: Duration = Duration::from_millis(50);
const METRICS_PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|word| word == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let arguments = match arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("switchboard-forwarder: {problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("switchboard-forwarder: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> io::Result<()> {
    let environment = Environment::start(&environment_arguments(&arguments))
        .map_err(|error| io::Error::other(no_memory(&arguments, &error)))?;
    let buffers = Buffers::of_workers(&environment, arguments.buffers(), arguments.workers)
        .ok_or_else(|| {
            io::Error::other("no memory for packet buffers: raise --memory-mb or lower --buffers")
        })?;
    if let Some(directory) = &arguments.state_directory {
        let problem = |error| {
            let named = directory.display();
            io::Error::other(format!(
                "--state-directory: {named} cannot be made: {error}"
            ))
        };
        fs::create_dir_all(directory).map_err(problem)?;
    }
    let identity = Identity {
        site: arguments.site.clone(),
        forwarder: arguments.name.clone(),
        state_directory: arguments.state_directory.clone(),
        flow_directory: arguments.flow_directory.clone(),
        cores: arguments.cores.clone(),
        spare: arguments.spare,
    };
    let flow_memory = arguments.flow_memory_mb << 20;
    let settings = Settings {
        memory_v4: flow_memory / 4 * 3,
        memory_v6: flow_memory / 4,
        hash_key: random_key()?,
    };
    let mut control = Control::start(identity, &buffers, &settings)?;
    control.resume()?;
    if arguments.spare {
        control.take_over_ports();
    }
    let latest = serve_locally(&arguments, &control)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(serve(&arguments, &mut control, &latest));
    control.stop();
    environment.clean_up();
    result
}

/// What to do where DPDK does not start: it gets no memory, as a rule.
fn no_memory(arguments: &Arguments, error: &EnvironmentError) -> String {
    if arguments.huge_pages {
        return format!(
            "--huge-pages: {error}; reserve some (sysctl vm.nr_hugepages=256) or leave the flag out"
        );
    }
    let memory = arguments.memory_mb();
    format!("--memory-mb: {error}; {memory} MB may be more than are free")
}

fn environment_arguments(arguments: &Arguments) -> Vec<String> {
    let prefix = format!(
        "switchboard-{}-{}-{}",
        arguments.site,
        arguments.name,
        std::process::id()
    );
    // Threads are placed by the operating system: a forwarder that sleeps shares its core.
    let core = first_core();
    let mut list = vec![
        format!("--file-prefix={prefix}"),
        "--no-telemetry".into(),
        "--log-level=error".into(),
        format!("--main-lcore={core}"),
        "-l".into(),
        core,
    ];
    if arguments.huge_pages {
        // Cards are known, and none is taken but those that rules name: the only one allowed from the start is a host bridge.
        list.extend(["--in-memory", "-a", "0000:00:00.0"].map(String::from));
    } else {
        list.extend([
            "--no-pci".into(),
            "--no-huge".into(),
            "--no-shconf".into(),
            "-m".into(),
            arguments.memory_mb().to_string(),
        ]);
    }
    list
}

/// The first core this process may run on.
fn first_core() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = allowed.and_then(|list| list.trim().split([',', '-']).next().map(str::to_string));
    first.unwrap_or_else(|| "0".to_string())
}

fn random_key() -> io::Result<[u8; 16]> {
    use io::Read;
    let mut key = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}

/// Serves metrics and captures to this machine. Only what was asked for by name must succeed.
fn serve_locally(arguments: &Arguments, control: &Control) -> io::Result<Arc<Latest>> {
    let latest = Arc::new(Latest::default());
    let problem =
        |what: String, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let address = arguments.metrics.as_deref().unwrap_or(METRICS);
    if address != "off" {
        let served = local::serve_metrics(address, latest.clone())
            .map(drop)
            .or_else(|error| match error.kind() {
                io::ErrorKind::AddrInUse if arguments.spare => {
                    serve_metrics_later(address.to_string(), latest.clone())
                }
                _ => Err(error),
            })
            .map_err(|error| problem(format!("metrics at {address}"), error));
        forgive(served, arguments.metrics.is_some())?;
    }
    let in_state = || Some(arguments.state_directory.as_ref()?.join("capture.sock"));
    if let Some(path) = arguments.capture_socket.clone().or_else(in_state) {
        let served = local::serve_captures(&path, latest.clone(), control.workers())
            .map_err(|error| problem(format!("captures at {}", path.display()), error));
        forgive(served, arguments.capture_socket.is_some())?;
    }
    Ok(latest)
}

/// Serves metrics as soon as the process that a spare takes over from has left their address, which is a moment after its ports.
fn serve_metrics_later(address: String, latest: Arc<Latest>) -> io::Result<()> {
    let serve = move || {
        let begun = std::time::Instant::now();
        loop {
            thread::sleep(METRICS_PAUSE);
            match local::serve_metrics(&address, latest.clone()) {
                Ok(_) => return,
                Err(error) if begun.elapsed() > METRICS_PATIENCE => {
                    return eprintln!("switchboard-forwarder: metrics at {address}: {error}");
                }
                Err(_) => {}
            }
        }
    };
    thread::Builder::new()
        .name("metrics-later".to_string())
        .spawn(serve)
        .map(drop)
}

/// A forwarder forwards without what nobody asked for.
fn forgive(result: io::Result<()>, asked_for: bool) -> io::Result<()> {
    match result {
        Err(error) if !asked_for => {
            eprintln!("switchboard-forwarder: {error}");
            Ok(())
        }
        result => result,
    }
}

/// Follows rules and reports until told to end.
async fn serve(arguments: &Arguments, control: &mut Control, latest: &Latest) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let end = async {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    };
    tokio::pin!(end);
    match (&arguments.credentials, &arguments.rules) {
        (Some(credentials), _) => {
            let bus = Bus::connect(credentials, &arguments.name)
                .await
                .map_err(io::Error::other)?;
            tokio::select! {
                () = &mut end => {}
                () = follow_bus(&bus, control, latest) => {}
            }
            bus.farewell().await;
            Ok(())
        }
        (None, Some(file)) => {
            let mut file = RulesFile::new(file.clone(), arguments.status.clone());
            tokio::select! {
                () = &mut end => {}
                () = follow_file(&mut file, control, latest) => {}
            }
            Ok(())
        }
        (None, None) => Ok(()),
    }
}

/// Follows a file of rules and reports to another.
async fn follow_file(file: &mut RulesFile, control: &mut Control, latest: &Latest) {
    let mut report = interval(REPORT);
    loop {
        report.tick().await;
        match file.changed() {
            Some(Ok(set)) => control.apply(set),
            Some(Err(problem)) => control.refuse(0, problem),
            None => {}
        }
        control.mend_ports();
        if let Some(status) = control.status() {
            file.report(&status);
            latest.tell(status, control.applied());
        }
    }
}

/// A trace that was asked for.
struct PendingTrace {
    request: async_nats::Message,
    until: Instant,
}

async fn follow_bus(bus: &Bus, control: &mut Control, latest: &Latest) {
    let mut check = interval(BEAT);
    let mut report = interval(REPORT);
    check.set_missed_tick_behavior(MissedTickBehavior::Skip);
    report.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut trace: Option<PendingTrace> = None;
    let mut captures = Sessions::default();
    // What others know of this forwarder's life does not wait for anything here.
    tokio::spawn(beat_for_ever(bus.clone()));
    loop {
        let (mut watch, mut requests) = subscribe(bus, control).await;
        loop {
            let trace_due = trace.as_ref().map_or_else(
                || Instant::now() + Duration::from_secs(3600),
                |trace| trace.until,
            );
            tokio::select! {
                _ = check.tick() => {
                    control.mend_ports();
                    captures.forget_old(std::time::Instant::now());
                    if trace.is_some() && control.trace_is_full() {
                        finish_trace(bus, control, &mut trace, false).await;
                    }
                }
                _ = report.tick() => put_status(bus, control, latest),
                // Values may have passed by unseen: begin again from the last one.
                () = bus.reconnected() => break,
                () = sleep_until(trace_due) => finish_trace(bus, control, &mut trace, false).await,
                entry = watch.next() => match entry {
                    Some(Ok(entry)) => follow_rules(bus, control, latest, &entry),
                    // The watch has ended or failed: begin again from the last value.
                    _ => break,
                },
                request = requests.next() => match request {
                    Some(request) if request.subject.ends_with(".capture") => {
                        answer_capture(bus, control, &request, &mut captures).await;
                    }
                    Some(request) => answer_request(bus, control, request, &mut trace).await,
                    None => break,
                },
            }
        }
    }
}

async fn beat_for_ever(bus: Bus) {
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        beat.tick().await;
        bus.beat().await;
    }
}

/// Subscribes to rules and requests, trying for as long as the bus is away; ports are mended meanwhile.
async fn subscribe(bus: &Bus, control: &mut Control) -> (Watch, Subscriber) {
    let mut check = interval(BEAT);
    check.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let attempt = async { tokio::join!(bus.watch_rules(), bus.requests()) };
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                result = &mut attempt => match result {
                    (Ok(watch), Ok(requests)) => return (watch, requests),
                    _ => break,
                },
                _ = check.tick() => control.mend_ports(),
            }
        }
        check.tick().await;
    }
}

fn follow_rules(
    bus: &Bus,
    control: &mut Control,
    latest: &Latest,
    entry: &async_nats::jetstream::kv::Entry,
) {
    if entry.operation != async_nats::jetstream::kv::Operation::Put {
        return;
    }
    match contract::RuleSet::decode(entry.value.clone()) {
        Ok(set) => control.apply(set),
        Err(error) => control.refuse(0, format!("the rules on the bus: {error}")),
    }
    put_status(bus, control, latest);
}

fn put_status(bus: &Bus, control: &Control, latest: &Latest) {
    let Some(status) = control.status() else {
        return;
    };
    let (bus, bytes) = (bus.clone(), status.encode_to_vec());
    latest.tell(status, control.applied());
    // The next report replaces one that is lost.
    tokio::spawn(async move { bus.put_status(bytes).await.map_err(|_| ()) });
}

async fn answer_request(
    bus: &Bus,
    control: &mut Control,
    request: async_nats::Message,
    pending: &mut Option<PendingTrace>,
) {
    if request.subject.ends_with(".inject") {
        let answer = match contract::InjectRequest::decode(request.payload.clone()) {
            Ok(wanted) => control.inject(wanted),
            Err(error) => Err(error.to_string()),
        };
        let answer = answer
            .map(|()| contract::InjectReply {}.encode_to_vec())
            .map_err(|problem| ("invalid_argument", problem));
        return bus.answer(&request, answer).await;
    }
    if request.subject.ends_with(".export") || request.subject.ends_with(".import") {
        let answer = exchange_flows(control, &request);
        let answer = answer.map_err(|problem| ("invalid_argument", problem));
        return bus.answer(&request, answer).await;
    }
    if !request.subject.ends_with(".trace") {
        let sentence = format!(
            "this forwarder serves trace, inject, capture, export and import, not {}",
            request.subject
        );
        return bus
            .answer(&request, Err(("no_such_service", sentence)))
            .await;
    }
    let wanted = match contract::TraceRequest::decode(request.payload.clone()) {
        Ok(wanted) => wanted,
        Err(error) => {
            return bus
                .answer(&request, Err(("invalid_argument", error.to_string())))
                .await;
        }
    };
    finish_trace(bus, control, pending, true).await;
    if let Err(problem) = control.begin_trace(&wanted) {
        return bus
            .answer(&request, Err(("invalid_argument", problem)))
            .await;
    }
    let duration = Duration::from_millis(u64::from(wanted.duration_ms.clamp(1, 60_000)));
    *pending = Some(PendingTrace {
        request,
        until: Instant::now() + duration,
    });
}

async fn answer_capture(
    bus: &Bus,
    control: &Control,
    request: &async_nats::Message,
    captures: &mut Sessions,
) {
    let answer = contract::CaptureRequest::decode(request.payload.clone())
        .map_err(|error| error.to_string())
        .and_then(|wanted| {
            let begin = |capture: &Capture| {
                let begun = control.workers().capture(capture);
                begun.map_err(|_| "a worker has ended".to_string())
            };
            captures.answer(begin, control.ports(), &wanted, std::time::Instant::now())
        });
    let answer = answer
        .map(|reply| reply.encode_to_vec())
        .map_err(|problem| ("invalid_argument", problem));
    bus.answer(request, answer).await;
}

/// Gives a page of flow entries away, or takes one.
fn exchange_flows(control: &mut Control, request: &async_nats::Message) -> Result<Vec<u8>, String> {
    let payload = request.payload.clone();
    if request.subject.ends_with(".export") {
        let wanted = contract::ExportFlowsRequest::decode(payload);
        let wanted = wanted.map_err(|error| error.to_string())?;
        return Ok(control.export_flows(wanted.begin)?.encode_to_vec());
    }
    let given = contract::ImportFlowsRequest::decode(payload);
    let given = given.map_err(|error| error.to_string())?;
    Ok(control.import_flows(&given)?.encode_to_vec())
}

/// Answers the trace under way. `cut_short`: another one ends it.
async fn finish_trace(
    bus: &Bus,
    control: &Control,
    pending: &mut Option<PendingTrace>,
    cut_short: bool,
) {
    if let Some(trace) = pending.take() {
        let reply = contract::TraceReply {
            hops: control.end_trace(),
            cut_short,
        };
        bus.answer(&trace.request, Ok(reply.encode_to_vec())).await;
    }
}
