//! Following one probe: a packet that carries a mark of its own, so that it is known again whatever VNFs make of its
//! headers.
//!
//! The probe goes the way of every packet, one at a time: what it did to the drop counters is what became of it. All of
//! this rests while no such trace is under way.

use crate::frame::Frame;
use crate::pipeline::{Errand, Output, Pipeline};
use crate::rules::{Hop, Rules};
use crate::trace::Trace;
use contracts::forwarder as contract;
use std::collections::BTreeMap;
use wire::{MacAddress, ethernet, vlan};

/// The Ethernet address that injected packets seem to come from: locally administered, nobody's.
pub const SENDER: MacAddress = MacAddress([0x02, 0, 0, 0, 0, 1]);

impl<F: Frame> Pipeline<F> {
    /// Whether a probe is followed now.
    #[inline]
    pub fn follows_probe(&self) -> bool {
        self.trace.as_ref().is_some_and(Trace::follows_probe)
    }

    /// Takes the probes out of the frames of a port, and steers them one by one, those at home with another worker there.
    /// `handed` says that the frames come from another worker, which found them at home here.
    #[cold]
    pub fn follow_probes(
        &mut self,
        rules: &Rules,
        port: usize,
        frames: &mut Vec<F>,
        handed: bool,
        now: u32,
        out: &mut Output<F>,
    ) {
        let is_probe = |frame: &F, trace: &Option<Trace>| {
            trace
                .as_ref()
                .is_some_and(|trace| trace.is_probe(frame.data()))
        };
        let (probes, others) = frames
            .drain(..)
            .partition::<Vec<F>, _>(|frame| is_probe(frame, &self.trace));
        *frames = others;
        for probe in probes {
            self.show_arrived(rules, port, std::slice::from_ref(&probe), handed);
            let probe = match handed {
                true => Some(probe),
                false => self.put_away(rules, port, probe, Errand::Steer, now, &mut out.away),
            };
            if let Some(probe) = probe {
                self.follow_probe(rules, port, probe, now, out);
            }
        }
    }

    /// Steers the probe and notes what became of it.
    #[cold]
    pub fn follow_probe(
        &mut self,
        rules: &Rules,
        port: usize,
        frame: F,
        now: u32,
        out: &mut Output<F>,
    ) {
        let known = self.trace.as_ref().map_or(0, Trace::hop_count);
        let drops: BTreeMap<_, _> = self.counters.drops().collect();
        self.hand_over(true);
        self.process(rules, port, frame, now, out);
        self.hand_over(false);
        let reason = self
            .counters
            .drops()
            .find(|(name, count)| drops.get(name).copied().unwrap_or(0) != *count)
            .map(|(name, _)| name);
        let Some(trace) = &mut self.trace else {
            return;
        };
        if trace.hop_count() == known {
            trace.add(contract::TraceHop {
                time_unix_ns: unix_nanoseconds(),
                site: rules.site.clone(),
                forwarder: rules.forwarder.clone(),
                from: origin(rules, port),
                decision: "for the forwarder itself".to_string(),
                dropped: reason.is_some(),
                ..Default::default()
            });
        }
        if let (Some(hop), Some(reason)) = (trace.last_hop(), reason) {
            hop.decision = reason.to_string();
            hop.dropped = true;
        }
    }

    fn hand_over(&mut self, in_hand: bool) {
        if let Some(trace) = &mut self.trace {
            trace.take_in_hand(in_hand);
        }
    }

    /// Takes the probe out of what is about to leave by a port, where it is to be held and the port is an edge's.
    #[cold]
    pub fn hold_probes(&mut self, rules: &Rules, port: usize, frames: &mut Vec<F>) {
        let is_edge = rules
            .ports
            .get(port)
            .is_some_and(|port| !port.edges.is_empty());
        let Some(trace) = self
            .trace
            .as_mut()
            .filter(|trace| is_edge && trace.holds_probe())
        else {
            return;
        };
        let before = frames.len();
        frames.retain(|frame| !trace.is_probe(frame.data()));
        if frames.len() < before
            && let Some(hop) = trace.last_hop()
        {
            hop.held = true;
        }
    }
}

/// A packet as it would come from an edge: the port, and the frame.
///
/// # Errors
/// There is no such edge here.
pub fn as_from_edge(rules: &Rules, edge: &str, packet: &[u8]) -> Result<(usize, Vec<u8>), String> {
    let found = rules.hops.iter().flatten().find_map(|hop| match hop {
        Hop::Edge(found) if found.id == edge => Some(found),
        _ => None,
    });
    let edge = found.ok_or_else(|| format!("edge: this forwarder has no edge {edge:?}"))?;
    let port = &rules.ports[edge.port];
    let mut frame = Vec::with_capacity(packet.len() + 18);
    frame.extend(port.mac.0);
    frame.extend(SENDER.0);
    if edge.vlan != 0 {
        frame.extend(vlan::CUSTOMER.to_be_bytes());
        frame.extend(edge.vlan.to_be_bytes());
    }
    let ether_type = match packet.first().map(|byte| byte >> 4) {
        Some(6) => ethernet::IPV6,
        _ => ethernet::IPV4,
    };
    frame.extend(ether_type.to_be_bytes());
    frame.extend(packet);
    Ok((edge.port, frame))
}

/// Where a packet came from that got no further than its port.
fn origin(rules: &Rules, port: usize) -> String {
    let Some(port) = rules.ports.get(port) else {
        return String::new();
    };
    match port.edges.values().next() {
        Some(&edge) if port.edges.len() == 1 => rules.hop_name(edge),
        _ => format!("port:{}", port.name),
    }
}

fn unix_nanoseconds() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as i64)
}
