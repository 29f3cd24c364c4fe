//! What a trace is told of a decision.

use super::Pipeline;
use crate::arrival::Arrival;
use crate::counters::Reason;
use crate::family::Family;
use crate::registry::HopId;
use crate::rules::Rules;
use contracts::forwarder as contract;
use wire::steering::Direction;

impl<F> Pipeline<F> {
    /// Adds a decision to the trace under way, if that wants it.
    #[cold]
    pub(super) fn record<K: Family>(
        &mut self,
        rules: &Rules,
        arrival: &Arrival,
        key: &K,
        decision: Result<HopId, Reason>,
    ) {
        let new = std::mem::take(&mut self.new_choice);
        let tuple = key.tuple(arrival.direction);
        let Some(trace) = self.trace.as_mut().filter(|trace| trace.wants(&tuple)) else {
            return;
        };
        let Some(stage) = rules.stage(arrival.place) else {
            return;
        };
        let (to, text) = match decision {
            Ok(hop) if self.turn.is_some_and(|turn| turn.is_back) => {
                (rules.hop_name(hop), "given back")
            }
            Ok(hop) if new => (rules.hop_name(hop), "new flow"),
            Ok(hop) => (rules.hop_name(hop), "flow entry"),
            Err(reason) => (String::new(), reason.name()),
        };
        if !trace.wants_chain(&stage.customer, &stage.chain) {
            return;
        }
        trace.add(contract::TraceHop {
            time_unix_ns: unix_nanoseconds(),
            site: rules.site.clone(),
            forwarder: rules.forwarder.clone(),
            customer: stage.customer.clone(),
            chain: stage.chain.clone(),
            chain_label: stage.chain_label.get(),
            egress_label: stage.egress_label.get(),
            service_index: u32::from(stage.service_index(arrival.direction)),
            stage: u32::from(stage.number),
            direction: match arrival.direction {
                Direction::Forward => contract::Direction::Forward,
                Direction::Reverse => contract::Direction::Reverse,
            }
            .into(),
            from: rules.hop_name(arrival.from),
            to,
            decision: text.to_string(),
            source: tuple.source().to_string(),
            destination: tuple.destination().to_string(),
            protocol: u32::from(tuple.protocol),
            source_port: u32::from(tuple.source_port),
            destination_port: u32::from(tuple.destination_port),
            ..Default::default()
        });
    }
}

fn unix_nanoseconds() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as i64)
}
