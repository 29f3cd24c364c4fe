//! The control side of a forwarder: applies rule sets, reports, traces.

mod home_keys;

use crate::buffers::Buffers;
use crate::clock;
use crate::exchange::{self, Imported};
use crate::flow_files::FlowFiles;
use crate::home::Homes;
use crate::latency::Latency;
use crate::pipeline::Settings;
use crate::ports::{Change, Ports};
use crate::registry::{PlaceName, Registry};
use crate::rules::{self, Hop, Place, Rules};
use crate::trace::Trace;
use crate::whole_file;
use crate::worker::Report;
use crate::workers::{self, Threads, Workers};
use contracts::forwarder as contract;
use home_keys::HomeKeys;
use prost::Message;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io, thread};
use wire::steering::Direction;

const STATE_FILE: &str = "rules.pb";
/// How often a spare tries to open ports before it turns to the bus, and the time between.
const TAKE_OVER_ATTEMPTS: u32 = 25;
const TAKE_OVER_PAUSE: Duration = Duration::from_millis(20);

/// Everything a forwarder is, but the bus.
pub struct Control {
    site: String,
    forwarder: String,
    state_directory: Option<PathBuf>,
    ports: Ports,
    registry: Registry,
    /// Names written down.
    names_kept: usize,
    files: Option<Arc<FlowFiles>>,
    rules: Arc<Rules>,
    applied: contract::RuleSet,
    refused: Option<(u64, String)>,
    incarnation: u64,
    workers: Workers,
    threads: Threads,
    home_keys: HomeKeys,
    /// Decisions that the trace under way wants.
    trace_limit: usize,
    /// The worker that a walk over all flow entries is at, and whether it begins there.
    export_at: Option<(usize, bool)>,
}

/// Who and where a forwarder is.
pub struct Identity {
    /// Its site.
    pub site: String,
    /// Its name there.
    pub forwarder: String,
    /// Where it keeps its last rules; nowhere when nothing.
    pub state_directory: Option<PathBuf>,
    /// Where its flow tables lie; in the process's memory when nothing.
    pub flow_directory: Option<PathBuf>,
    /// The processors that they are bound to, in their order; none when there are none.
    pub cores: Vec<usize>,
    /// Whether it waits for another forwarder that owns the flow directory to end, instead of failing.
    pub spare: bool,
}

impl Control {
    /// Starts workers without rules: one for each share of buffers.
    ///
    /// # Errors
    /// There are too many, there is no memory for the flow tables, or a thread does not start.
    pub fn start(
        identity: Identity,
        buffers: &[Buffers],
        settings: &Settings,
    ) -> io::Result<Control> {
        let (files, registry) = match &identity.flow_directory {
            Some(directory) => {
                let tables = settings.of_one(buffers.len().max(1));
                let tables = tables.tables(Rules::empty().timeouts);
                let (files, registry) = FlowFiles::open(
                    directory,
                    buffers.len(),
                    &tables,
                    identity.spare,
                    clock::seconds,
                )
                .map_err(|error| io::Error::other(format!("{}: {error}", directory.display())))?;
                (Some(Arc::new(files)), registry)
            }
            None => (None, Registry::default()),
        };
        let (workers, threads) =
            Workers::start(buffers, &identity.cores, settings, files.as_ref())?;
        let home_keys = HomeKeys {
            key: files
                .as_ref()
                .map_or(settings.hash_key, |files| files.key()),
            next_key: None,
            is_settled: workers
                .report()
                .is_none_or(|report| report.flow_entries > 0),
        };
        Ok(Control {
            site: identity.site,
            forwarder: identity.forwarder,
            state_directory: identity.state_directory,
            ports: Ports::new(buffers.iter().map(|own| *own.pool()).collect()),
            names_kept: registry.hop_count() + registry.place_count(),
            registry,
            files,
            rules: Arc::new(Rules::empty()),
            applied: contract::RuleSet::default(),
            refused: None,
            incarnation: unix_time().as_nanos() as u64,
            workers,
            threads,
            home_keys,
            trace_limit: 0,
            export_at: None,
        })
    }

    /// Applies the rule set this forwarder last applied, if it is still known.
    ///
    /// # Errors
    /// The file exists but cannot be read.
    pub fn resume(&mut self) -> io::Result<()> {
        let Some(file) = self.state_file() else {
            return Ok(());
        };
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        match contract::RuleSet::decode(bytes.as_slice()) {
            Ok(set) => self.apply(set),
            Err(error) => self.refuse(0, format!("{}: {error}", file.display())),
        }
        Ok(())
    }

    /// Applies a rule set, or refuses it as a whole and says so in the status.
    pub fn apply(&mut self, set: contract::RuleSet) {
        let generation = set.generation;
        if set == self.applied && self.refused.is_none() {
            return;
        }
        if (set.site.as_str(), set.forwarder.as_str())
            != (self.site.as_str(), self.forwarder.as_str())
        {
            let problem = format!(
                "site, forwarder: the rules are for {}/{}, this is {}/{}",
                set.site, set.forwarder, self.site, self.forwarder
            );
            return self.refuse(generation, problem);
        }
        // A trial against addresses that cannot be wrong: ports are touched only for rules that hold.
        let trial = vec![wire::MacAddress::default(); set.ports.len()];
        if let Err(error) = rules::compile(&set, &trial, &mut self.registry) {
            return self.refuse(generation, error.to_string());
        }
        if let Err(problem) = self.keep_names() {
            return self.refuse(generation, problem);
        }
        let change = self.ports.follow(&set.ports);
        match self.put_in_force(set, change) {
            Ok(()) => {
                self.refused = None;
                self.keep();
            }
            Err(problem) => self.refuse(generation, problem),
        }
    }

    fn put_in_force(&mut self, set: contract::RuleSet, change: Change) -> Result<(), String> {
        let macs = self.ports.macs(&set.ports);
        let rules =
            rules::compile(&set, &macs, &mut self.registry).map_err(|error| error.to_string())?;
        let homes = self.settle_homes(rules.selection_seed);
        self.ports
            .deal(homes.as_ref().unwrap_or(self.workers.homes()), &rules);
        let rules = Arc::new(rules);
        let (closing, closing_ports): (Vec<_>, Vec<_>) = change.closing.into_iter().unzip();
        let given_up = self.workers.change(workers::Change {
            rules: rules.clone(),
            homes,
            ports: self.ports.workers(&set.ports),
            opened: change.opened,
            closing,
        })?;
        self.home_keys.is_settled = true;
        drop(given_up);
        for port in closing_ports.into_iter().flatten() {
            if let Err(error) = port.close(Vec::new()) {
                eprintln!("switchboard-forwarder: {error}");
            }
        }
        self.rules = rules;
        self.applied = set;
        Ok(())
    }

    /// Has homes be made of the platform's secret, so that outer source ports tell of them: at once, and then returns them, where no connection
    /// can have a home yet; otherwise when the flow tables are next dealt out. Where that cannot be written down they stay what they are.
    fn settle_homes(&mut self, secret: [u8; 16]) -> Option<Homes> {
        let wanted = self.home_keys.with(secret);
        if wanted != self.home_keys {
            let files = self.files.as_ref();
            let kept = files.map(|files| files.keep_keys(wanted.key, wanted.next_key));
            if let Some(Err(error)) = kept {
                eprintln!(
                    "switchboard-forwarder: flow directory: {error}: homes stay what they are"
                );
                return None;
            }
            if wanted.next_key.is_some() && self.workers.count() > 1 {
                eprintln!(
                    "switchboard-forwarder: the platform's selection seed is another one than connections have their homes by: until the next start workers hand packets over"
                );
            }
            self.home_keys = wanted;
        }
        let may_change = !wanted.is_settled && secret != [0; 16];
        may_change.then(|| Homes::new(wanted.key, self.workers.count()))
    }

    /// Writes down new names before flow entries can hold their numbers.
    fn keep_names(&mut self) -> Result<(), String> {
        let names = self.registry.hop_count() + self.registry.place_count();
        if let Some(files) = self.files.as_ref().filter(|_| names != self.names_kept) {
            let kept = files.keep_names(&self.registry);
            kept.map_err(|error| format!("the flow directory: {error}"))?;
            self.names_kept = names;
        }
        Ok(())
    }

    /// Opens ports that were down and notices interfaces that are others now.
    pub fn mend_ports(&mut self) {
        if !self.ports.need_attention() || self.applied.ports.is_empty() {
            return;
        }
        let set = self.applied.clone();
        let change = self.ports.follow(&set.ports);
        if change.is_empty() {
            return;
        }
        if let Err(problem) = self.put_in_force(set, change) {
            eprintln!("switchboard-forwarder: {problem}");
        }
    }

    /// Opens the ports that the process before still had open a moment ago, of the kinds that only one can have open at a time.
    pub fn take_over_ports(&mut self) {
        for _ in 0..TAKE_OVER_ATTEMPTS {
            if !self.ports.need_attention() {
                return;
            }
            thread::sleep(TAKE_OVER_PAUSE);
            self.mend_ports();
        }
    }

    /// Refuses rules, for reasons that the status tells from now on: those in force stay. The generation is 0 where it could
    /// not be read.
    pub fn refuse(&mut self, generation: u64, problem: String) {
        eprintln!("switchboard-forwarder: refused rule set {generation}: {problem}");
        self.refused = Some((generation, problem));
    }

    /// Writes down the rules in force.
    fn keep(&self) {
        if let Some(file) = self.state_file()
            && let Err(error) = whole_file::write(&file, &self.applied.encode_to_vec())
        {
            eprintln!("switchboard-forwarder: {}: {error}", file.display());
        }
    }

    fn state_file(&self) -> Option<PathBuf> {
        Some(self.state_directory.as_ref()?.join(STATE_FILE))
    }

    /// Begins a trace.
    ///
    /// # Errors
    /// Names the field of the request that is wrong.
    pub fn begin_trace(&mut self, request: &contract::TraceRequest) -> Result<(), String> {
        let trace = Trace::new(request)?;
        self.trace_limit = trace.limit();
        self.workers.begin_trace(&trace)
    }

    /// Whether the trace has all it wanted.
    pub fn trace_is_full(&self) -> bool {
        let report = self.workers.report();
        report.is_none_or(|report| report.traced >= self.trace_limit)
    }

    /// Ends the trace and returns its decisions.
    pub fn end_trace(&self) -> Vec<contract::TraceHop> {
        self.workers.end_trace()
    }

    /// Takes a probe as if it had come from an edge.
    ///
    /// # Errors
    /// Names the field of the request that is wrong.
    pub fn inject(&self, request: contract::InjectRequest) -> Result<(), String> {
        self.workers.inject(request)
    }

    /// The next page of a walk over all flow entries, or the first of a new one.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn export_flows(&mut self, begin: bool) -> Result<contract::FlowPage, String> {
        let at = self.export_at.take().filter(|_| !begin);
        let (mut worker, mut begins) = at.unwrap_or((0, true));
        let mut entries = Vec::new();
        while worker < self.workers.count() && entries.len() < exchange::PAGE {
            let (met, more) = self.workers.export(worker, begins)?;
            entries.extend(met);
            begins = !more;
            worker += usize::from(!more);
        }
        let more = worker < self.workers.count();
        self.export_at = more.then_some((worker, begins));
        Ok(exchange::page(&entries, &self.registry, more))
    }

    /// Takes a page of flow entries of another forwarder of the site.
    ///
    /// # Errors
    /// Names the field that is wrong, or a worker does not answer.
    pub fn import_flows(
        &mut self,
        request: &contract::ImportFlowsRequest,
    ) -> Result<contract::ImportFlowsReply, String> {
        let own = format!("{}/{}", self.site, self.forwarder);
        let entries = exchange::read(request, &own, &self.rules, &mut self.registry)?;
        self.keep_names()?;
        let Imported { taken, refused } = self.workers.import(entries)?;
        Ok(contract::ImportFlowsReply { taken, refused })
    }

    /// The ports of the rules in force.
    pub fn ports(&self) -> &[contract::Port] {
        &self.applied.ports
    }

    /// The ways to the workers, for captures.
    pub fn workers(&self) -> Workers {
        self.workers.clone()
    }

    /// The rule set in force.
    pub fn applied(&self) -> &contract::RuleSet {
        &self.applied
    }

    /// What the forwarder does now.
    pub fn status(&self) -> Option<contract::Status> {
        let report = self.workers.report()?;
        let (refused_generation, refused) = self.refused.clone().unwrap_or_default();
        let mut status = contract::Status {
            site: self.site.clone(),
            forwarder: self.forwarder.clone(),
            applied_generation: self.applied.generation,
            refused,
            refused_generation,
            incarnation: self.incarnation,
            time_unix_ms: unix_time().as_millis() as i64,
            ports: self.port_statuses(&report),
            stages: self.stage_counters(&report),
            drops: named(report.counters.drops()),
            events: named(report.counters.events()),
            counted_generation: report.counted_generation.unwrap_or_default(),
            flow_entries: report.flow_entries,
            flow_entries_limit: report.flow_entries_limit,
            latencies: report
                .latencies
                .iter()
                .map(|(_, latency)| histogram(latency))
                .collect(),
            ..Default::default()
        };
        for (id, hop) in self.numbered_hops() {
            if let Hop::Attachment(attachment) = hop {
                let count = report.counters.hop_count(id);
                let flows = report.hop_flows.get(&id).copied().unwrap_or(0);
                status.attachment_flows.insert(attachment.id.clone(), flows);
                status
                    .attachment_new_flows
                    .insert(attachment.id.clone(), count.new_flows);
                status
                    .attachment_packets
                    .insert(attachment.id.clone(), count.packets);
            }
        }
        Some(status)
    }

    fn numbered_hops(&self) -> impl Iterator<Item = (crate::registry::HopId, &Hop)> {
        self.rules
            .hops
            .iter()
            .enumerate()
            .filter_map(|(index, hop)| Some((crate::registry::HopId(index as u16), hop.as_ref()?)))
    }

    fn port_statuses(&self, report: &Report) -> Vec<contract::PortStatus> {
        let status = |port: &rules::Port| {
            let (up, error) = self.ports.state(&port.name);
            let count = report.ports.get(&port.name).copied().unwrap_or_default();
            contract::PortStatus {
                name: port.name.clone(),
                up,
                error,
                received_packets: count.received_packets,
                received_bytes: count.received_bytes,
                sent_packets: count.sent_packets,
                sent_bytes: count.sent_bytes,
                send_failures: count.send_failures,
                mac: port.mac.0.to_vec(),
            }
        };
        self.rules.ports.iter().map(status).collect()
    }

    fn stage_counters(&self, report: &Report) -> Vec<contract::StageCounters> {
        let mut stages = Vec::new();
        for (index, place) in self.rules.places.iter().enumerate() {
            let Some(Place::Stage(stage)) = place else {
                continue;
            };
            let id = crate::registry::PlaceId(index as u16);
            let flows = report.place_flows.get(&id).copied().unwrap_or(0);
            let directions = [
                (contract::Direction::Forward, Direction::Forward),
                (contract::Direction::Reverse, Direction::Reverse),
            ];
            let counts = report.counters.stage_counts(id);
            for ((direction, way), count) in directions.into_iter().zip(counts) {
                stages.push(contract::StageCounters {
                    chain_label: stage.chain_label.get(),
                    egress_label: stage.egress_label.get(),
                    stage: u32::from(stage.number),
                    direction: direction.into(),
                    packets: count.packets,
                    bytes: count.bytes,
                    origin_packets: count.origin_packets,
                    origin_bytes: count.origin_bytes,
                    new_flows: count.new_flows,
                    flows,
                    drops: named(report.counters.stage_drops((id, way))),
                });
            }
        }
        stages
    }

    /// The number of a stage's place, for tests.
    pub fn place(
        &mut self,
        chain: u32,
        egress: u32,
        stage: u32,
    ) -> Option<crate::registry::PlaceId> {
        self.registry
            .place(PlaceName::Stage {
                chain,
                egress,
                stage,
            })
            .ok()
    }

    /// Ends the workers, lets a spare take over, and closes the ports, which takes its time.
    pub fn stop(self) {
        let ended = self.workers.stop(self.threads);
        if let Some(files) = &self.files {
            files.hand_over();
        }
        drop(ended);
    }
}

fn histogram(latency: &Latency) -> contract::LatencyHistogram {
    let buckets = latency.buckets();
    contract::LatencyHistogram {
        buckets: buckets
            .map(|(below, packets)| contract::LatencyBucket {
                below_ns: below.unwrap_or(0),
                packets,
            })
            .collect(),
        total_ns: latency.total(),
    }
}

fn named<'a>(counters: impl Iterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    counters
        .map(|(name, count)| (name.to_string(), count))
        .collect()
}

fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
