mod functions;
mod links;
mod moved;
mod paths;
mod routes;

use super::classifier::classifiers;
use super::error::RuleError;
use super::fields::{
    Result, address, device, even_label, host, known, label, mac, mtu, other_device, prefix, seed,
    timeouts, vlan,
};
use super::hop::{
    AttachmentHop, AttachmentKind, AttachmentState, Context, EdgeHop, Hop, PeerHop, Side,
};
use super::{Labelled, Place, Port, Rules, Underlay};
use crate::entropy::Entropy;
use crate::registry::{HopId, HopName, PlaceId, PlaceName, Registry};
use contracts::forwarder as contract;
use foldhash::HashMap;
use links::{gateways, next_hops};
use std::net::IpAddr;
use wire::MacAddress;
use wire::steering::{Encoding, TunnelTemplate};
use wire::vxlan::Vni;

const VNF_LIMIT: u32 = 250;

/// Turns a rule set into rules. `macs` are the Ethernet addresses of its ports, in their order.
///
/// # Errors
/// Names the first field that is wrong; nothing changes then but numbers given in the registry.
pub fn compile(
    set: &contract::RuleSet,
    macs: &[MacAddress],
    registry: &mut Registry,
) -> Result<Rules> {
    let selection_seed = seed(&set.selection_seed)?;
    let mut compiler = Compiler {
        set,
        registry,
        rules: Rules {
            generation: set.generation,
            site: set.site.clone(),
            forwarder: set.forwarder.clone(),
            selection_seed,
            entropy: Entropy::new(selection_seed),
            timeouts: timeouts(set.timers.as_ref())?,
            ..Rules::empty()
        },
        ports: HashMap::default(),
        hops: HashMap::default(),
    };
    compiler.ports(macs)?;
    compiler.underlay()?;
    compiler.peers()?;
    compiler.edges()?;
    compiler.attachments()?;
    compiler.paths()?;
    compiler.moved()?;
    Ok(compiler.rules)
}

struct Compiler<'a> {
    set: &'a contract::RuleSet,
    registry: &'a mut Registry,
    rules: Rules,
    ports: HashMap<&'a str, usize>,
    /// Hops by name, with what is called the same everywhere: the identity that is hashed.
    hops: HashMap<HopName, (HopId, String)>,
}

impl<'a> Compiler<'a> {
    fn ports(&mut self, macs: &[MacAddress]) -> Result<()> {
        for (index, port) in self.set.ports.iter().enumerate() {
            let field = format!("ports[{index}]");
            if port.name.is_empty() {
                return Err(RuleError::new(field + ".name", "give the port a name"));
            }
            if self.ports.insert(&port.name, index).is_some() {
                return Err(RuleError::new(
                    field + ".name",
                    format!("{:?} is the name of another port too", port.name),
                ));
            }
            device(&field, port.device.as_ref())?;
            other_device(&field, port, &self.set.ports[..index])?;
            let mac = *macs
                .get(index)
                .ok_or_else(|| RuleError::new(field, "the port is not open"))?;
            self.rules.ports.push(Port {
                name: port.name.clone(),
                mac,
                edges: HashMap::default(),
                gateways: HashMap::default(),
                transparent: HashMap::default(),
                label_aware: HashMap::default(),
                has_attachments: false,
                passive_edges: HashMap::default(),
                has_passive: false,
            });
        }
        Ok(())
    }

    fn port(&self, field: &str, name: &str) -> Result<usize> {
        self.ports
            .get(name)
            .copied()
            .ok_or_else(|| RuleError::new(field, format!("{name:?} is no port of this rule set")))
    }

    fn underlay(&mut self) -> Result<()> {
        let Some(underlay) = &self.set.underlay else {
            return Ok(());
        };
        let mut addresses = Vec::new();
        for (index, text) in underlay.addresses.iter().enumerate() {
            let field = format!("underlay.addresses[{index}]");
            let address = prefix(&field, text)?;
            host(&field, address.address())?;
            addresses.push(address);
        }
        if addresses.is_empty() {
            return Err(RuleError::new(
                "underlay.addresses",
                "give at least one address",
            ));
        }
        let network = Vni::new(underlay.vni).ok_or_else(|| {
            RuleError::new("underlay.vni", "a VXLAN network identifier has 24 bits")
        })?;
        self.rules.underlay = Some(Underlay {
            port: self.port("underlay.port", &underlay.port)?,
            addresses,
            mtu: mtu("underlay.mtu", underlay.mtu)?,
            network,
        });
        Ok(())
    }

    fn peers(&mut self) -> Result<()> {
        for (index, peer) in self.set.peers.iter().enumerate() {
            let field = format!("peers[{index}]");
            let hop = self.peer(&field, peer)?;
            let address = hop.address;
            self.rules.smallest_inner_mtu = self.rules.smallest_inner_mtu.min(hop.inner_mtu);
            let id = self.add_hop(
                &field,
                HopName::Peer(peer.id.clone()),
                peer.id.clone(),
                Hop::Peer(hop),
            )?;
            if self.rules.peers.insert(address, id).is_some() {
                return Err(RuleError::new(
                    field + ".address",
                    format!("{address} is the address of another peer too"),
                ));
            }
        }
        Ok(())
    }

    fn peer(&mut self, field: &str, peer: &contract::Peer) -> Result<PeerHop> {
        let name = HopName::Peer(peer.id.clone());
        let hop = self.registry.hop(name).map_err(|_| exhausted(field))?;
        let underlay = self
            .rules
            .underlay
            .as_ref()
            .ok_or_else(|| RuleError::new("underlay", "peers need an underlay"))?;
        if peer.id == format!("{}/{}", self.set.site, self.set.forwarder) {
            return Err(RuleError::new(
                format!("{field}.id"),
                format!("{:?} is this forwarder; leave it out", peer.id),
            ));
        }
        let encoding = match known(field, "encapsulation", peer.encapsulation)? {
            contract::Encapsulation::Unspecified | contract::Encapsulation::VxlanMpls => {
                Encoding::VxlanMpls
            }
            contract::Encapsulation::VxlanGpeNsh => Encoding::VxlanGpeNsh,
            contract::Encapsulation::MplsInUdp => Encoding::MplsInUdp,
        };
        let address = address(&format!("{field}.address"), &peer.address)?;
        let family = |other: IpAddr| other.is_ipv4() == address.is_ipv4();
        let source = underlay.addresses.iter().find(|own| family(own.address()));
        let source = source.ok_or_else(|| {
            RuleError::new(
                format!("{field}.address"),
                "the underlay has no address of this family",
            )
        })?;
        if underlay
            .addresses
            .iter()
            .any(|own| own.address() == address)
        {
            return Err(RuleError::new(
                format!("{field}.address"),
                format!("{address} is this forwarder's own"),
            ));
        }
        let next_hop = if source.contains(address) {
            address
        } else {
            self.gateway(field, address)?
        };
        let mac = self.rules.ports[underlay.port].mac;
        let template = TunnelTemplate::with_encoding(
            encoding,
            (mac, MacAddress::default()),
            (source.address(), address),
            underlay.network,
        );
        let template = template.ok_or_else(|| {
            RuleError::new(
                format!("{field}.address"),
                "the underlay has no address of this family",
            )
        })?;
        Ok(PeerHop {
            id: peer.id.clone(),
            hop,
            address,
            next_hop,
            alive: peer.alive,
            away: peer.away,
            inner_mtu: underlay.mtu - template.overhead(),
            template,
        })
    }

    fn gateway(&self, field: &str, towards: IpAddr) -> Result<IpAddr> {
        let gateways = self
            .set
            .underlay
            .iter()
            .flat_map(|underlay| &underlay.gateways);
        for (index, text) in gateways.enumerate() {
            let gateway = address(&format!("underlay.gateways[{index}]"), text)?;
            if gateway.is_ipv4() == towards.is_ipv4() {
                return Ok(gateway);
            }
        }
        Err(RuleError::new(
            format!("{field}.address"),
            format!(
                "{towards} is not on the underlay's link and there is no gateway of its family"
            ),
        ))
    }

    fn edges(&mut self) -> Result<()> {
        for (index, edge) in self.set.edges.iter().enumerate() {
            let field = format!("edges[{index}]");
            let port = self.port(&format!("{field}.port"), &edge.port)?;
            let vlan = vlan(&format!("{field}.vlan"), edge.vlan)?;
            self.beside_underlay(&format!("{field}.vlan"), port, vlan)?;
            let gateways = gateways(&field, edge)?;
            let place = self.place(&field, PlaceName::Edge(edge.id.clone()))?;
            let hop = EdgeHop {
                id: edge.id.clone(),
                place,
                port,
                vlan,
                next_hops: next_hops(&field, edge, &gateways)?,
                gateways,
                classifiers: classifiers(&field, &edge.classifiers)?,
                mtu: mtu(&format!("{field}.mtu"), edge.mtu)?,
            };
            let id = self.add_hop(
                &field,
                HopName::Edge(edge.id.clone()),
                edge.id.clone(),
                Hop::Edge(hop),
            )?;
            *slot(&mut self.rules.places, place.index()) = Some(Place::Edge(id));
            let port_of_edge = &mut self.rules.ports[port];
            let edges = match edge.passive {
                true => &mut port_of_edge.passive_edges,
                false => &mut port_of_edge.edges,
            };
            if edges.insert(vlan, id).is_some() {
                return Err(RuleError::new(
                    field + ".vlan",
                    format!(
                        "another edge has VLAN {vlan} of port {:?} already",
                        edge.port
                    ),
                ));
            }
        }
        Ok(())
    }

    fn attachments(&mut self) -> Result<()> {
        for (index, attachment) in self.set.attachments.iter().enumerate() {
            let field = format!("attachments[{index}]");
            let hop = self.attachment(&field, attachment)?;
            self.apart_from_others(&field, &hop)?;
            let sides = [
                (
                    Side::Ingress,
                    hop.ingress_port,
                    hop.ingress_vlan,
                    hop.ingress_mac,
                ),
                (
                    Side::Egress,
                    hop.egress_port,
                    hop.egress_vlan,
                    hop.egress_mac,
                ),
            ];
            let kind = hop.kind;
            // A native function is in every forwarder: packets go in and come out in one.
            let passive = attachment.passive && kind != AttachmentKind::Native;
            let (chain, egress) = (
                even_label(&format!("{field}.chain_label"), attachment.chain_label)?,
                label(&format!("{field}.egress_label"), attachment.egress_label)?,
            );
            let identity = format!("{}/{}", attachment.vnf, attachment.instance);
            let id = self.add_hop(
                &field,
                HopName::Attachment(attachment.id.clone()),
                identity,
                Hop::Attachment(hop),
            )?;
            for (side, port, vlan, mac) in sides {
                let port = &mut self.rules.ports[port];
                if passive {
                    port.has_passive = true;
                    continue;
                }
                port.has_attachments = true;
                let other = match kind {
                    AttachmentKind::Gateway => port.gateways.insert((vlan, mac), (id, side)),
                    AttachmentKind::Transparent | AttachmentKind::Native => {
                        port.transparent.insert(vlan, (id, side))
                    }
                    AttachmentKind::LabelAware(_) => {
                        let labelled = Labelled {
                            vlan,
                            mac,
                            chain,
                            egress,
                            stage: attachment.stage as u8,
                        };
                        // Both sides are the same interface where there is but one.
                        let other = port.label_aware.insert(labelled, id);
                        other
                            .filter(|&other| other != id)
                            .map(|other| (other, side))
                    }
                };
                if other.is_some() {
                    return Err(RuleError::new(
                        field,
                        "another attachment has the same port, VLAN and MAC address",
                    ));
                }
            }
        }
        Ok(())
    }

    fn attachment(
        &mut self,
        field: &str,
        attachment: &contract::Attachment,
    ) -> Result<AttachmentHop> {
        let kind = match attachment.kind() {
            contract::AttachmentKind::Gateway => AttachmentKind::Gateway,
            contract::AttachmentKind::Transparent => AttachmentKind::Transparent,
            contract::AttachmentKind::LabelAwareMpls => AttachmentKind::LabelAware(Context::Mpls),
            contract::AttachmentKind::LabelAwareNsh => AttachmentKind::LabelAware(Context::Nsh),
            contract::AttachmentKind::Native => AttachmentKind::Native,
            contract::AttachmentKind::Unspecified => {
                return Err(RuleError::new(format!("{field}.kind"), "give a kind"));
            }
        };
        let state = match attachment.state() {
            contract::AttachmentState::Active => AttachmentState::Active,
            contract::AttachmentState::Draining => AttachmentState::Draining,
            contract::AttachmentState::Dead => AttachmentState::Dead,
            contract::AttachmentState::Unspecified => {
                return Err(RuleError::new(format!("{field}.state"), "give a state"));
            }
        };
        let ingress_port = self.port(&format!("{field}.ingress_port"), &attachment.ingress_port)?;
        let egress_port = self.port(&format!("{field}.egress_port"), &attachment.egress_port)?;
        let function = self.function(field, attachment, kind, (ingress_port, egress_port))?;
        let (ingress_mac, egress_mac) = match kind {
            AttachmentKind::Gateway | AttachmentKind::LabelAware(_) => (
                mac(&format!("{field}.ingress_mac"), &attachment.ingress_mac)?,
                mac(&format!("{field}.egress_mac"), &attachment.egress_mac)?,
            ),
            // A frame is addressed to the port it comes out at, so that a learning bridge passes it.
            AttachmentKind::Transparent | AttachmentKind::Native => (
                self.rules.ports[egress_port].mac,
                self.rules.ports[ingress_port].mac,
            ),
        };
        let chain = even_label(&format!("{field}.chain_label"), attachment.chain_label)?;
        let egress = label(&format!("{field}.egress_label"), attachment.egress_label)?;
        if !(1..=VNF_LIMIT).contains(&attachment.stage) {
            return Err(RuleError::new(
                format!("{field}.stage"),
                format!("give 1 to {VNF_LIMIT}"),
            ));
        }
        let stage = |stage| PlaceName::Stage {
            chain: chain.get(),
            egress: egress.get(),
            stage,
        };
        Ok(AttachmentHop {
            id: attachment.id.clone(),
            vnf: attachment.vnf.clone(),
            instance: attachment.instance.clone(),
            kind,
            function,
            state,
            ingress_port,
            egress_port,
            ingress_vlan: vlan(&format!("{field}.ingress_vlan"), attachment.ingress_vlan)?,
            egress_vlan: vlan(&format!("{field}.egress_vlan"), attachment.egress_vlan)?,
            ingress_mac,
            egress_mac,
            mtu: mtu(&format!("{field}.mtu"), attachment.mtu)?,
            stage_before: self.place(field, stage(attachment.stage))?,
            stage_behind: self.place(field, stage(attachment.stage + 1))?,
        })
    }

    fn add_hop(&mut self, field: &str, name: HopName, identity: String, hop: Hop) -> Result<HopId> {
        if identity.is_empty() {
            return Err(RuleError::new(format!("{field}.id"), "give an id"));
        }
        let id = self
            .registry
            .hop(name.clone())
            .map_err(|_| exhausted(field))?;
        if self.hops.insert(name, (id, identity)).is_some() {
            return Err(RuleError::new(
                format!("{field}.id"),
                "the id is used twice",
            ));
        }
        *slot(&mut self.rules.hops, id.index()) = Some(hop);
        Ok(id)
    }

    fn place(&mut self, field: &str, name: PlaceName) -> Result<PlaceId> {
        self.registry.place(name).map_err(|_| exhausted(field))
    }
}

fn exhausted(field: &str) -> RuleError {
    RuleError::new(
        field,
        "this forwarder has seen 65 535 hops or stages in its life; restart it",
    )
}

fn slot<T>(list: &mut Vec<Option<T>>, index: usize) -> &mut Option<T> {
    if list.len() <= index {
        list.resize_with(index + 1, || None);
    }
    &mut list[index]
}
