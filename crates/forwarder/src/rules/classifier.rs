use super::error::RuleError;
use super::fields::{Result, even_label, label, prefix};
use super::matching::{Matching, matching};
use crate::prefix::Prefix;
use contracts::forwarder as contract;
use wire::steering::Direction;
use wire::{FiveTuple, Label};

/// Maps packets that enter at an edge to a service path.
#[derive(Debug)]
pub struct Classifier {
    matching: Matching,
    chain_label: Label,
    direction: Direction,
    egress_routes: Vec<(Prefix, Label)>,
}

/// What a packet was classified as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classified {
    /// A service path and the direction along it.
    Path {
        /// Even chain label.
        chain_label: Label,
        /// Egress label.
        egress_label: Label,
        /// Direction.
        direction: Direction,
    },
    /// The chain has no egress for the destination.
    Unrouted,
}

impl Classifier {
    /// What it makes of a packet; nothing when the packet does not match.
    pub fn classify(&self, tuple: &FiveTuple) -> Option<Classified> {
        if !self.matching.holds(tuple) {
            return None;
        }
        let destination = tuple.destination();
        let route = self
            .egress_routes
            .iter()
            .filter(|(prefix, _)| prefix.contains(destination))
            .max_by_key(|(prefix, _)| prefix.length());
        Some(match route {
            Some(&(_, egress_label)) => Classified::Path {
                chain_label: self.chain_label,
                egress_label,
                direction: self.direction,
            },
            None => Classified::Unrouted,
        })
    }
}

/// The classifiers of an edge, in their order.
pub(super) fn classifiers(field: &str, list: &[contract::Classifier]) -> Result<Vec<Classifier>> {
    list.iter()
        .enumerate()
        .map(|(index, classifier)| {
            compile_classifier(&format!("{field}.classifiers[{index}]"), classifier)
        })
        .collect()
}

fn compile_classifier(field: &str, classifier: &contract::Classifier) -> Result<Classifier> {
    let direction = match classifier.direction() {
        contract::Direction::Forward => Direction::Forward,
        contract::Direction::Reverse => Direction::Reverse,
        contract::Direction::Unspecified => {
            return Err(RuleError::new(
                format!("{field}.direction"),
                "give a direction",
            ));
        }
    };
    let mut egress_routes = Vec::new();
    for (index, route) in classifier.egress_routes.iter().enumerate() {
        let field = format!("{field}.egress_routes[{index}]");
        egress_routes.push((
            prefix(&format!("{field}.destination"), &route.destination)?,
            label(&format!("{field}.egress_label"), route.egress_label)?,
        ));
    }
    Ok(Classifier {
        matching: matching(&format!("{field}.match"), classifier.r#match.as_ref())?,
        chain_label: even_label(&format!("{field}.chain_label"), classifier.chain_label)?,
        direction,
        egress_routes,
    })
}
