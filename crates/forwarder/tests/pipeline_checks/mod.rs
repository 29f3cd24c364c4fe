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
//!        111- ----  size 1              the next frame is of segments of 8 times that size
//! ```

mod rule_sets;
mod tracked;

#[allow(unused_imports, reason = "fuzzing needs none of it, tests some")]
pub use rule_sets::{PLATFORMS, SITES, VARIANTS, rule_set};

use forwarder::counters::Counters;
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::Registry;
use forwarder::rules::{Rules, compile};
use std::collections::BTreeSet;
use tracked::{Living, Tracked};
use wire::steering::{self, Encoding};
use wire::{IpPacket, MacAddress, ethernet};

/// Bytes of a frame at most: more than any port delivers.
const LONGEST: usize = 2_048;
/// How often time passes in one input: each time costs what a thousand frames cost, as whole tables are walked.
const PASSES: u32 = 4;
/// Events that end a frame: it is read, or read and answered.
const ENDS: [&str; 3] = ["neighbour_answered", "neighbour_heard", "echo_answered"];

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

/// Runs an input.
///
/// # Panics
/// The pipeline does, or something that must hold does not.
pub fn run(input: &[u8]) {
    let [platform, site, steps @ ..] = input else {
        return;
    };
    let mut forwarder = Forwarder::new(usize::from(*platform), usize::from(*site));
    let mut rest = steps;
    while let Some((&step, after)) = rest.split_first() {
        rest = match step >> 6 {
            0 | 1 => forwarder.take_frame(step, after),
            2 => {
                forwarder.pass(u32::from(step & 0x3f));
                after
            }
            _ if step & 0x20 == 0 => {
                forwarder.change(usize::from(step & 3));
                after
            }
            _ => {
                let (size, after) = after.split_first().unwrap_or((&0, &[]));
                forwarder.segment_size = u16::from(*size) * 8;
                after
            }
        };
    }
    forwarder.arrive();
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
}

/// What the counters say.
#[derive(Clone, Copy)]
struct Account {
    drops: u64,
    ends: u64,
    fragmented: u64,
    segmented: u64,
}

fn account(counters: &Counters) -> Account {
    let event = |wanted: &str| {
        let found = counters.events().find(|(name, _)| *name == wanted);
        found.map_or(0, |(_, count)| count)
    };
    Account {
        drops: counters.drop_total(),
        ends: ENDS.iter().map(|name| event(name)).sum(),
        fragmented: event("fragmented"),
        segmented: event("segmented"),
    }
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
        };
        forwarder.change(0);
        forwarder
    }

    fn change(&mut self, variant: usize) {
        self.arrive();
        let set = rule_set(self.platform, self.site, variant);
        let macs: Vec<MacAddress> = (0..set.ports.len()).map(port_mac).collect();
        let rules = compile(&set, &macs, &mut self.registry).expect("rules that hold");
        let before = (self.living.count() as u64, account(&self.pipeline.counters));
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
        self.burst.push(frame.of_segments(size));
        self.next += 1;
        if step & 1 == 0 {
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
        let before = account(&self.pipeline.counters);
        let mut out = Output::default();
        let (rules, port) = (&self.rules, self.burst_port);
        self.pipeline
            .process_burst(rules, port, &mut self.burst, self.now, &mut out);
        assert!(self.burst.is_empty(), "every frame is taken");
        let after = account(&self.pipeline.counters);
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
        self.check_ends(destroyed, before, after);
        self.check_sent(&out);
    }

    /// A frame that is neither sent nor kept was consumed, cut into fragments, or is in one drop counter.
    fn check_ends(&self, destroyed: u64, before: Account, after: Account) {
        let drops = after.drops - before.drops;
        let fragmented = after.fragmented - before.fragmented;
        let segmented = after.segmented - before.segmented;
        let ends = after.ends - before.ends + fragmented + segmented + drops;
        let drops_now: Vec<_> = self.pipeline.counters.drops().collect();
        // Of a frame that was cut, a fragment may find no place to wait; it is a packet and a drop of its own. So is a segment,
        // which may be cut again.
        let parts = match segmented {
            0 => fragmented.min(drops),
            _ => fragmented + drops,
        };
        assert!(
            destroyed <= ends && ends <= destroyed + parts,
            "{destroyed} frames are gone, {ends} are accounted for: {drops_now:?}"
        );
    }

    /// Whatever waits for a neighbour is given up with as many drops; fragments made here wait too.
    fn check_given_up(&self, (living, before): (u64, Account)) {
        let given_up = living - self.living.count() as u64;
        let after = account(&self.pipeline.counters);
        assert!(
            after.drops - before.drops >= given_up,
            "every frame given up is counted"
        );
        assert_eq!(after.ends, before.ends, "nothing was read");
    }

    fn pass(&mut self, seconds: u32) {
        self.arrive();
        self.passes += 1;
        if self.passes > PASSES {
            return;
        }
        for _ in 0..seconds.min(8) {
            self.now += seconds.div_ceil(8).max(1);
            let before = (self.living.count() as u64, account(&self.pipeline.counters));
            let mut out = Output::default();
            while self.pipeline.tick(&self.rules, self.now, true, &mut out) {}
            assert!(
                out.ports.iter().all(Vec::is_empty),
                "a clock sends no received frame"
            );
            self.check_given_up(before);
            self.check_sent(&out);
        }
    }

    /// What leaves can be read by whoever is next.
    fn check_sent(&self, out: &Output<Tracked>) {
        let sent = out.ports.iter().enumerate();
        let sent = sent.flat_map(|(port, list)| list.iter().map(move |frame| (port, frame)));
        for (port, frame) in sent {
            self.check_frame(port, forwarder::frame::Frame::data(frame));
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
