//! What must hold of the whole pipeline for any frames under any rules: the fuzz target `forwarder_pipeline`, and the
//! replay of its corpus, share this.
//!
//! An input is a platform, a site, and steps:
//!
//! ```text
//! platform 1 │ site 1 │ step … │ step …
//! step:  0ppp pppb  length 2  bytes …   a frame at port p; b: the next frame belongs to the same burst
//!        10ss ssss                      s seconds pass
//!        110- --vv                      rules variant v come into force
//!        1110 ----  size 1              the next frame is of segments of 8 times that size; it arrives alone
//!        1111 tcff                      from now on filter f is traced (t) and captured (c)
//! ```
//!
//! An input in which something is watched is run again without: that changes nothing.

mod account;
mod rule_sets;
mod tracked;
pub mod watching;

#[allow(unused_imports, reason = "fuzzing needs none of it, tests some")]
pub use rule_sets::{NATIVE, PLATFORMS, SITES, VARIANTS, rule_set};

use account::Account;
use flow::BURST;
use forwarder::counters::Drop;
use forwarder::frame::Frame;
use forwarder::native;
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::Registry;
use forwarder::rules::{Rules, compile};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use tracked::{Living, Tracked};
use watching::{Reader, Seen};
use wire::segments::Segments;
use wire::steering::{self, Encoding};
use wire::{IpPacket, MacAddress, ethernet};

/// Bytes of a frame at most: more than any port delivers.
const LONGEST: usize = 2_048;
/// How often time passes in one input: each time costs what a thousand frames cost, as whole tables are walked.
const PASSES: u32 = 4;

/// The Ethernet address of a port.
pub fn port_mac(port: usize) -> MacAddress {
    MacAddress([6, 0, 0, 0, 0, port as u8])
}

/// A step that lets a frame arrive.
#[allow(dead_code, reason = "only seeds are made of it")]
pub fn frame_step(port: usize, more: bool, frame: &[u8]) -> Vec<u8> {
    let frame = &frame[..frame.len().min(LONGEST)];
    let mut step = vec![(port as u8 & 0x3f) << 1 | u8::from(more)];
    step.extend((frame.len() as u16).to_be_bytes());
    step.extend_from_slice(frame);
    step
}

/// A step that says that the next frame is of segments of so many bytes.
#[allow(dead_code, reason = "only seeds are made of it")]
pub fn segments_step(size: u16) -> Vec<u8> {
    vec![0xe0, (size / 8) as u8]
}

/// A step from which on filter `number` is traced and captured.
#[allow(dead_code, reason = "only seeds are made of it")]
pub fn watch_step(number: u8) -> Vec<u8> {
    vec![0xfc | number]
}

/// Runs an input.
///
/// # Panics
/// The pipeline does, or something that must hold does not.
pub fn run(input: &[u8]) {
    let [platform, site, steps @ ..] = input else {
        return;
    };
    let start = || Forwarder::new(usize::from(*platform), usize::from(*site));
    let watched = start().run(steps, true);
    if watched.is_watched {
        let alone = start().run(steps, false);
        assert!(watched.left == alone.left, "who is watched does the same");
        assert_eq!(watched.counted(), alone.counted());
    }
}

struct Forwarder {
    platform: usize,
    site: usize,
    registry: Registry,
    rules: Rules,
    pipeline: Pipeline<Tracked>,
    now: u32,
    living: Living,
    next: u64,
    burst: Vec<Tracked>,
    burst_port: usize,
    /// Of the next frame.
    segment_size: u16,
    /// How often time has passed.
    passes: u32,
    /// The reader of a capture under way.
    reader: Option<Reader>,
    /// The number of the filter of what is watched.
    filter: usize,
    /// Whether anything was to be watched.
    is_watched: bool,
    /// Everything that left: port and bytes.
    left: Vec<(usize, Vec<u8>)>,
}

impl Forwarder {
    fn new(platform: usize, site: usize) -> Forwarder {
        let settings = Settings {
            memory_v4: 1 << 18,
            memory_v6: 1 << 20,
            hash_key: [3; 16],
        };
        let pipeline = Pipeline::new(&settings, &Rules::empty()).expect("there is memory");
        let mut forwarder = Forwarder {
            platform,
            site,
            registry: Registry::default(),
            rules: Rules::empty(),
            pipeline,
            now: 1,
            living: Living::default(),
            next: 0,
            burst: Vec::new(),
            burst_port: 0,
            segment_size: 0,
            passes: 0,
            reader: None,
            filter: 0,
            is_watched: false,
            left: Vec::new(),
        };
        forwarder.change(0);
        forwarder
    }

    /// Takes the steps; `watches` says whether those to watch something are done.
    fn run(mut self, steps: &[u8], watches: bool) -> Forwarder {
        let mut rest = steps;
        while let Some((&step, after)) = rest.split_first() {
            rest = match step >> 6 {
                0 | 1 => self.take_frame(step, after),
                2 => {
                    self.pass(u32::from(step & 0x3f));
                    after
                }
                _ if step & 0x20 == 0 => {
                    self.change(usize::from(step & 3));
                    after
                }
                _ if step & 0x10 == 0 => {
                    let (size, after) = after.split_first().unwrap_or((&0, &[]));
                    self.segment_size = u16::from(*size) * 8;
                    after
                }
                _ => {
                    self.arrive();
                    self.is_watched = true;
                    if watches {
                        self.watch(step);
                    }
                    after
                }
            };
        }
        self.arrive();
        self
    }

    /// Everything that was counted.
    fn counted(&self) -> Vec<(&'static str, u64)> {
        let counters = &self.pipeline.counters;
        counters.drops().chain(counters.events()).collect()
    }

    fn watch(&mut self, step: u8) {
        let number = step & 3;
        self.filter = usize::from(number);
        self.pipeline.trace = (step & 8 != 0).then(|| watching::trace(number));
        let (capture, reader) = (step & 4 != 0).then(|| watching::capture(number)).unzip();
        (self.pipeline.capture, self.reader) = (capture, reader);
    }

    fn account(&self) -> Account {
        Account::of(&self.pipeline.counters)
    }

    fn change(&mut self, variant: usize) {
        self.arrive();
        let set = rule_set(self.platform, self.site, variant);
        let macs: Vec<MacAddress> = (0..set.ports.len()).map(port_mac).collect();
        let rules = compile(&set, &macs, &mut self.registry).expect("rules that hold");
        let before = (self.living.count() as u64, self.account());
        self.pipeline
            .rules_changed(&self.rules, &rules, self.now)
            .expect("there is memory");
        self.rules = rules;
        self.check_given_up(before);
    }

    /// Reads a frame from the input; it arrives with those after it that belong to its burst.
    fn take_frame<'a>(&mut self, step: u8, after: &'a [u8]) -> &'a [u8] {
        let port = usize::from(step >> 1) % (self.rules.ports.len() + 1);
        if port != self.burst_port {
            self.arrive();
        }
        self.burst_port = port;
        let Some((length, after)) = after.split_first_chunk::<2>() else {
            return &[];
        };
        let length = usize::from(u16::from_be_bytes(*length))
            .min(LONGEST)
            .min(after.len());
        let (bytes, after) = after.split_at(length);
        let frame = Tracked::new(bytes, self.next, &self.living);
        let size = std::mem::take(&mut self.segment_size);
        if size > 0 {
            self.arrive();
        }
        self.burst.push(frame.of_segments(size));
        self.next += 1;
        if step & 1 == 0 || size > 0 || self.burst.len() == BURST {
            self.arrive();
        }
        after
    }

    /// Hands the burst over, and checks that each of its frames ended in exactly one place.
    fn arrive(&mut self) {
        if self.burst.is_empty() {
            return;
        }
        let arrived: BTreeSet<u64> = self.burst.iter().map(Tracked::number).collect();
        let kept_before = self.living.count() - arrived.len();
        let before = self.account();
        let segments = self.segments();
        let mut passed = self.arriving();
        let mut out = Output::default();
        let (rules, port) = (&self.rules, self.burst_port);
        self.pipeline
            .process_burst(rules, port, &mut self.burst, self.now, &mut out);
        assert!(self.burst.is_empty(), "every frame is taken");
        let happened = self.account() - before;
        let sent: Vec<u64> = out.ports.iter().flatten().map(Tracked::number).collect();
        assert_eq!(
            sent.iter().collect::<BTreeSet<_>>().len(),
            sent.len(),
            "none is sent twice"
        );
        let destroyed = arrived
            .iter()
            .filter(|&&number| !self.living.has(number))
            .count() as u64;
        let released = sent
            .iter()
            .filter(|number| !arrived.contains(number))
            .count();
        let kept = arrived.len()
            - destroyed as usize
            - sent
                .iter()
                .filter(|number| arrived.contains(number))
                .count();
        assert_eq!(
            self.living.count() - sent.len(),
            kept_before - released + kept,
            "no frame that was kept vanishes"
        );
        happened.check_segments(destroyed, segments, out.made.len());
        self.check_sent(&out);
        self.leave(out, &mut passed);
    }

    /// How many segments the next frame is to be cut into, if it is of several.
    fn segments(&self) -> Option<usize> {
        let frame = self
            .burst
            .first()
            .filter(|frame| frame.segment_size() > 0)?;
        let (data, size) = (frame.data(), frame.segment_size());
        let header = ethernet::Header::parse(data).ok()?;
        let start = match header.ether_type {
            ethernet::IPV4 | ethernet::IPV6 => header.length,
            ethernet::MPLS => header.length + 8,
            ethernet::NSH => header.length + 4 * usize::from(data.get(header.length + 1)? & 0x3f),
            _ => return None,
        };
        let packet = data.get(start..)?;
        let ip = IpPacket::parse(packet).ok()?;
        let underlay = self.rules.underlay.as_ref();
        let packet = match Encoding::of(&ip) {
            Some(encoding) if underlay.is_some_and(|it| it.port == self.burst_port) => {
                let taken = steering::decapsulate(encoding, packet, &ip, &self.rules).ok()?;
                &packet[taken.inner_offset..taken.end]
            }
            _ => packet.get(..ip.length)?,
        };
        Some(Segments::of_packet(packet, size)?.count())
    }

    /// What a capture sees of the burst.
    fn arriving(&self) -> Vec<Seen> {
        let Some(port) = self.rules.ports.get(self.burst_port) else {
            return Vec::new();
        };
        let seen = |frame: &Tracked| (false, port.name.clone(), frame.data().to_vec());
        self.burst.iter().map(seen).collect()
    }

    /// Lets everything leave, as a worker does; `passed` is what arrived in this round.
    fn leave(&mut self, mut out: Output<Tracked>, passed: &mut Vec<Seen>) {
        if !out.made.is_empty() {
            self.pipeline.alert_capture();
        }
        out.merge(|bytes| {
            self.next += 1;
            Some(Tracked::new(bytes, self.next - 1, &self.living))
        });
        for (port, frames) in out.ports.iter().enumerate() {
            self.pipeline.show_leaving(&self.rules, port, frames);
            for frame in frames {
                self.check_native(port, frame.data());
                passed.push((
                    true,
                    self.rules.ports[port].name.clone(),
                    frame.data().to_vec(),
                ));
                self.left.push((port, frame.data().to_vec()));
            }
        }
        self.pipeline.end_round();
        if let Some(reader) = &mut self.reader {
            reader.check(passed);
        }
        if let Some(trace) = self
            .pipeline
            .trace
            .as_ref()
            .filter(|trace| trace.hop_count() > 0)
        {
            watching::TOLD[self.filter].store(true, Relaxed);
            assert!(trace.hop_count() <= trace.limit(), "no more than asked for");
        }
    }

    /// What leaves for a native function passes it, or is refused by it.
    fn check_native(&self, port: usize, frame: &[u8]) {
        if self.rules.ports[port].name.starts_with(NATIVE) {
            match native::pass(&self.rules, port, frame) {
                Ok(other) => assert_ne!(other, port, "it comes out at the other side"),
                Err(reason) => assert_eq!(reason, Drop::FilterRefused),
            }
        }
    }

    /// Whatever waits for a neighbour is given up with as many drops; fragments made here wait too.
    fn check_given_up(&self, (living, before): (u64, Account)) {
        let given_up = living - self.living.count() as u64;
        let happened = self.account() - before;
        assert!(
            happened.drops >= given_up,
            "every frame given up is counted"
        );
        assert_eq!(happened.ends, 0, "nothing was read");
    }

    fn pass(&mut self, seconds: u32) {
        self.arrive();
        self.passes += 1;
        if self.passes > PASSES {
            return;
        }
        for _ in 0..seconds.min(8) {
            self.now += seconds.div_ceil(8).max(1);
            let before = (self.living.count() as u64, self.account());
            let mut out = Output::default();
            while self.pipeline.tick(&self.rules, self.now, true, &mut out) {}
            assert!(
                out.ports.iter().all(Vec::is_empty),
                "a clock sends no received frame"
            );
            self.check_given_up(before);
            self.check_sent(&out);
            self.leave(out, &mut Vec::new());
        }
    }

    /// What leaves can be read by whoever is next.
    fn check_sent(&self, out: &Output<Tracked>) {
        let sent = out.ports.iter().enumerate();
        let sent = sent.flat_map(|(port, list)| list.iter().map(move |frame| (port, frame)));
        for (port, frame) in sent {
            self.check_frame(port, frame.data());
        }
        for made in &out.made {
            self.check_frame(made.port, &made.bytes);
        }
    }

    fn check_frame(&self, port: usize, bytes: &[u8]) {
        let header = ethernet::Header::parse(bytes).expect("Ethernet");
        assert!(port < self.rules.ports.len(), "a port of the rules");
        if !matches!(header.ether_type, ethernet::IPV4 | ethernet::IPV6) {
            let known = [ethernet::ARP, ethernet::MPLS, ethernet::NSH];
            assert!(
                known.contains(&header.ether_type),
                "{:#x}",
                header.ether_type
            );
            return;
        }
        let packet = &bytes[header.length..];
        let ip = IpPacket::parse(packet).unwrap_or_else(|error| panic!("{error}: {packet:x?}"));
        let underlay = self.rules.underlay.as_ref();
        if underlay.is_some_and(|underlay| underlay.port == port)
            && let Some(encoding) = Encoding::of(&ip)
        {
            let taken = steering::decapsulate(encoding, packet, &ip, &self.rules)
                .unwrap_or_else(|error| panic!("{error}: {packet:x?}"));
            IpPacket::parse(&packet[taken.inner_offset..taken.end]).expect("an inner packet");
        }
    }
}
