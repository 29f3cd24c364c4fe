//! All workers of a forwarder, as the control thread sees them: one.

use crate::buffers::Buffers;
use crate::capture::Capture;
use crate::clock;
use crate::cores;
use crate::exchange::{self, Entry, Import, Imported};
use crate::flow_files::{FlowFiles, Place};
use crate::handover::{Handover, PortWorkers};
use crate::home::{Homes, WORKERS_LIMIT};
use crate::pipeline::{Pipeline, Settings};
use crate::ports::Queue;
use crate::rules::Rules;
use crate::trace::Trace;
use crate::worker::{Command, Commands, NewRules, Report, Worker, WorkerEnded};
use contracts::forwarder as contract;
use flow::PagesAhead;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{io, process, thread};

/// How long workers may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The ways to all workers.
#[derive(Clone)]
pub struct Workers(Vec<Commands>, Homes);

/// The workers' threads.
pub struct Threads(Vec<thread::JoinHandle<Worker>>);

/// A change of rules for all workers.
pub struct Change {
    /// The rules.
    pub rules: Arc<Rules>,
    /// Where connections are at home from now on, if it changes: there may be none yet.
    pub homes: Option<Homes>,
    /// Who has a queue of each port, in the order of the rules.
    pub ports: Vec<PortWorkers>,
    /// Queues of newly opened ports, and whose they are.
    pub opened: Vec<(String, usize, Queue)>,
    /// Ports to give up.
    pub closing: Vec<String>,
}

impl Workers {
    /// Starts a worker without rules for each of the shares of buffers, bound to a processor where some are named. They share the memory of `settings`
    /// evenly, and their flow tables lie in `files` if there are any.
    ///
    /// # Errors
    /// There are more than [`WORKERS_LIMIT`], there is no memory for the flow tables, or a thread does not start.
    pub fn start(
        buffers: &[Buffers],
        cores: &[usize],
        settings: &Settings,
        files: Option<&Arc<FlowFiles>>,
    ) -> io::Result<(Workers, Threads)> {
        let count = buffers.len();
        if !(1..=WORKERS_LIMIT).contains(&count) {
            let problem = format!("{count} workers: there can be 1 to {WORKERS_LIMIT}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let homes = Homes::new(files.map_or(settings.hash_key, |files| files.key()), count);
        let mut handovers: Vec<Option<Handover<_>>> = match count {
            1 => vec![None],
            _ => Handover::among(count)?.into_iter().map(Some).collect(),
        };
        let ahead = PagesAhead::start()?;
        let (mut all, mut threads) = (Vec::new(), Vec::new());
        for (number, (handover, buffers)) in handovers.drain(..).zip(buffers).enumerate() {
            let place = files.map_or(Place::Process, |files| Place::Files(files.clone(), number));
            let share = settings.of_one(count);
            let (none, now) = (Rules::empty(), clock::seconds());
            let mut pipeline =
                Pipeline::with_tables(&share, &none, place, now).map_err(io::Error::other)?;
            pipeline.share(homes, number);
            pipeline.bring_ahead(&ahead);
            let (worker, commands) = Worker::new(*buffers, pipeline, handover)?;
            let core = cores.get(number).copied();
            let thread = thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || work(worker, core))?;
            threads.push(thread);
            all.push(commands);
        }
        Ok((Workers(all, homes), Threads(threads)))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Where connections are at home.
    pub fn homes(&self) -> &Homes {
        &self.1
    }

    /// Has all workers take over rules; returns the queues given up when no packet follows the old rules anywhere.
    ///
    /// # Errors
    /// A worker has ended or does not answer; others may have the new rules then.
    pub fn change(&mut self, change: Change) -> Result<Vec<Queue>, String> {
        let Change {
            rules,
            homes,
            ports,
            opened,
            closing,
        } = change;
        self.1 = homes.unwrap_or(self.1);
        let names: Vec<String> = opened.iter().map(|(name, ..)| name.clone()).collect();
        let (ports, closing) = (Arc::from(ports), Arc::from(closing));
        let mut shares: Vec<Vec<(String, Queue)>> = self.0.iter().map(|_| Vec::new()).collect();
        for (name, worker, queue) in opened {
            shares[worker % self.count()].push((name, queue));
        }
        let (done, queues) = mpsc::channel();
        for (number, (worker, opened)) in self.0.iter().zip(shares).enumerate() {
            let new = NewRules {
                rules: rules.clone(),
                homes,
                ports: Arc::clone(&ports),
                opened,
                closing: Arc::clone(&closing),
                // One speaks for all.
                announce: (number == 0).then(|| names.clone()),
                done: done.clone(),
            };
            worker.send(Command::Rules(new)).map_err(ended)?;
        }
        Ok(self.answers(&queues)?.into_iter().flatten().collect())
    }

    /// What all workers have done so far; nothing when one does not answer.
    pub fn report(&self) -> Option<Report> {
        let (to, from) = mpsc::channel();
        for worker in &self.0 {
            worker.send(Command::Report(to.clone())).ok()?;
        }
        let mut reports = self.answers(&from).ok()?.into_iter();
        let mut sum = reports.next()?;
        reports.for_each(|report| sum.add(report));
        Some(sum)
    }

    /// Begins a trace; when this returns all workers follow it.
    ///
    /// # Errors
    /// A worker has ended or does not answer.
    pub fn begin_trace(&self, trace: &Trace) -> Result<(), String> {
        let (begun, all) = mpsc::channel();
        for worker in &self.0 {
            let command = Command::BeginTrace(trace.clone(), begun.clone());
            worker.send(command).map_err(ended)?;
        }
        self.answers(&all).map(drop)
    }

    /// Ends the trace; returns its decisions in the order of their times.
    pub fn end_trace(&self) -> Vec<contract::TraceHop> {
        let (to, from) = mpsc::channel();
        for worker in &self.0 {
            // One that has ended has nothing to tell.
            let _ = worker.send(Command::EndTrace(to.clone()));
        }
        let traces = self.answers(&from).unwrap_or_default();
        let limit = traces.iter().flatten().map(Trace::limit).max();
        let hops = traces.into_iter().flatten().flat_map(Trace::into_hops);
        let mut hops: Vec<_> = hops.collect();
        hops.sort_by_key(|hop| hop.time_unix_ns);
        hops.truncate(limit.unwrap_or(0));
        hops
    }

    /// Takes a probe as if it had come from an edge.
    ///
    /// # Errors
    /// Names the field of the request that is wrong.
    pub fn inject(&self, request: contract::InjectRequest) -> Result<(), String> {
        let (done, answer) = mpsc::channel();
        // Any worker will do: it hands the packet over to the one it is at home with.
        self.0[0]
            .send(Command::Inject { request, done })
            .map_err(ended)?;
        answer
            .recv_timeout(PATIENCE)
            .map_err(|_| "the worker does not answer")?
    }

    /// A step of a walk over all entries of a worker; what it met, and whether there is more.
    ///
    /// # Errors
    /// The worker has ended or does not answer.
    pub fn export(&self, worker: usize, begin: bool) -> Result<(Vec<Entry>, bool), String> {
        let (to, from) = mpsc::channel();
        let one = self.0.get(worker).ok_or("there is no such worker")?;
        one.send(Command::Export { begin, to }).map_err(ended)?;
        let answer = from.recv_timeout(PATIENCE);
        answer.map_err(|_| "a worker does not answer".to_string())
    }

    /// Takes entries of another forwarder, each to the worker that the connection is at home with.
    ///
    /// # Errors
    /// A worker has ended or does not answer; others may have taken theirs.
    pub fn import(&self, entries: Vec<Import>) -> Result<Imported, String> {
        let mut shares: Vec<Vec<Import>> = self.0.iter().map(|_| Vec::new()).collect();
        for import in entries {
            shares[self.1.of(&import.entry.tuple())].push(import);
        }
        let (done, answers) = mpsc::channel();
        let mut commands = 0;
        for (worker, share) in self.0.iter().zip(shares) {
            for some in share.chunks(exchange::STEP) {
                let (entries, done) = (some.to_vec(), done.clone());
                worker
                    .send(Command::Import { entries, done })
                    .map_err(ended)?;
                commands += 1;
            }
        }
        let mut sum = Imported::default();
        for _ in 0..commands {
            let one = answers.recv_timeout(PATIENCE);
            let one: Imported = one.map_err(|_| "a worker does not answer".to_string())?;
            sum.taken += one.taken;
            sum.refused += one.refused;
        }
        Ok(sum)
    }

    /// Begins a capture; another one under way ends.
    ///
    /// # Errors
    /// A worker has ended.
    pub fn capture(&self, capture: &Capture) -> Result<(), WorkerEnded> {
        let mut workers = self.0.iter();
        workers.try_for_each(|worker| worker.send(Command::Capture(capture.clone())))
    }

    /// One answer of each worker.
    fn answers<T>(&self, from: &Receiver<T>) -> Result<Vec<T>, String> {
        let until = Instant::now() + PATIENCE;
        let answer = |_| {
            let left = until.saturating_duration_since(Instant::now());
            from.recv_timeout(left)
                .map_err(|_| "a worker does not answer".to_string())
        };
        (0..self.count()).map(answer).collect()
    }

    /// Ends all workers. What is given back moves no packets any more, and has ports still open.
    pub fn stop(&self, threads: Threads) -> Vec<Worker> {
        for worker in &self.0 {
            let _ = worker.send(Command::Stop);
        }
        let ended = threads.0.into_iter().map(thread::JoinHandle::join);
        ended.filter_map(Result::ok).collect()
    }
}

fn ended(_: WorkerEnded) -> String {
    "a worker has ended".to_string()
}

/// Runs a worker. A forwarder that cannot forward ends, so that whoever watches it starts it again.
fn work(worker: Worker, core: Option<usize>) -> Worker {
    if let Some((core, error)) = core.and_then(|core| Some((core, cores::bind(core).err()?))) {
        eprintln!("switchboard-forwarder: processor {core}: {error}");
        process::abort();
    }
    panic::catch_unwind(AssertUnwindSafe(|| worker.run())).unwrap_or_else(|_| {
        eprintln!("switchboard-forwarder: a worker has failed");
        process::abort()
    })
}
