//! Whose frames come in where: those of a port's VLAN are the underlay's, an edge's or VNFs', never two's.

use super::Compiler;
use crate::prefix::Prefix;
use crate::rules::error::RuleError;
use crate::rules::fields::{Result, address, each, host, prefix};
use crate::rules::{AttachmentHop, Hop};
use contracts::forwarder as contract;
use std::net::IpAddr;

impl Compiler<'_> {
    /// Refuses a VLAN whose frames are the underlay's: those without a tag at its port.
    pub(super) fn beside_underlay(&self, field: &str, port: usize, vlan: u16) -> Result<()> {
        let underlay = self.rules.underlay.as_ref();
        match underlay.is_some_and(|underlay| underlay.port == port && vlan == 0) {
            true => Err(RuleError::new(
                field,
                format!(
                    "frames of port {:?} without a tag are the underlay's; give a VLAN",
                    self.rules.ports[port].name
                ),
            )),
            false => Ok(()),
        }
    }

    /// Refuses an attachment whose frames are the underlay's or an edge's.
    pub(super) fn apart_from_others(&self, field: &str, hop: &AttachmentHop) -> Result<()> {
        for (name, port, vlan) in [
            ("ingress_vlan", hop.ingress_port, hop.ingress_vlan),
            ("egress_vlan", hop.egress_port, hop.egress_vlan),
        ] {
            let field = format!("{field}.{name}");
            self.beside_underlay(&field, port, vlan)?;
            let port = &self.rules.ports[port];
            let edge = port.edges.get(&vlan).or(port.passive_edges.get(&vlan));
            if let Some(Hop::Edge(edge)) = edge.and_then(|&id| self.rules.hop(id)) {
                let problem = format!(
                    "frames of port {:?} with VLAN {vlan} are those of edge {:?}; give another",
                    port.name, edge.id
                );
                return Err(RuleError::new(field, problem));
            }
        }
        Ok(())
    }
}

/// An edge's own addresses.
pub(super) fn gateways(field: &str, edge: &contract::Edge) -> Result<Vec<Prefix>> {
    let read = |field: &str, text: &str| {
        let own = prefix(field, text)?;
        host(field, own.address())?;
        Ok(own)
    };
    each(field, "gateway_addresses", &edge.gateway_addresses, read)
}

/// The routers of an edge, which are others than the forwarder.
pub(super) fn next_hops(
    field: &str,
    edge: &contract::Edge,
    gateways: &[Prefix],
) -> Result<Vec<IpAddr>> {
    let read = |field: &str, text: &str| {
        let router = address(field, text)?;
        host(field, router)?;
        match gateways.iter().any(|own| own.address() == router) {
            true => Err(RuleError::new(
                field,
                format!("{router} is the forwarder's own address at this edge"),
            )),
            false => Ok(router),
        }
    };
    each(field, "next_hops", &edge.next_hops, read)
}
