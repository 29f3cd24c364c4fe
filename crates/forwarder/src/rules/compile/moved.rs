//! Hops that connections may still have and that another forwarder took over.

use super::{Compiler, exhausted, slot};
use crate::registry::HopName;
use crate::rules::Hop;
use crate::rules::error::RuleError;
use crate::rules::fields::Result;
use contracts::forwarder as contract;
use contracts::forwarder::moved_hop::Hop as Moved;

impl Compiler<'_> {
    /// Leads packets for hops that moved to the peers that have them.
    pub(super) fn moved(&mut self) -> Result<()> {
        let set = self.set;
        for (index, moved) in set.moved.iter().enumerate() {
            let field = format!("moved[{index}]");
            let name = name(&field, moved)?;
            let position = set.peers.iter().position(|peer| peer.id == moved.to);
            let position = position.ok_or_else(|| {
                let problem = format!("{:?} is no peer of this rule set", moved.to);
                RuleError::new(format!("{field}.to"), problem)
            })?;
            let is_peer = matches!(name, HopName::Peer(_));
            if name == HopName::Peer(moved.to.clone()) {
                return Err(RuleError::new(field, "a peer cannot move to itself"));
            }
            if !is_peer && self.hops.contains_key(&name) {
                let problem = format!("{name:?} is in this rule set; leave one of them out");
                return Err(RuleError::new(field, problem));
            }
            let hop = self.peer(&format!("peers[{position}]"), &set.peers[position])?;
            let id = self.registry.hop(name).map_err(|_| exhausted(&field))?;
            *slot(&mut self.rules.hops, id.index()) = Some(Hop::Peer(hop));
        }
        Ok(())
    }
}

fn name(field: &str, moved: &contract::MovedHop) -> Result<HopName> {
    match moved.hop.clone() {
        Some(Moved::Attachment(id)) => Ok(HopName::Attachment(id)),
        Some(Moved::Edge(id)) => Ok(HopName::Edge(id)),
        Some(Moved::Peer(id)) => Ok(HopName::Peer(id)),
        None => Err(RuleError::new(
            field,
            "name the attachment, edge or peer that moved",
        )),
    }
}
