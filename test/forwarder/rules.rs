//! Rules for the two forwarders of [`crate::network`]: one chain with one VNF, attached in gateway mode at the west.

use crate::network::{FIREWALL_MACS, SECOND_MACS};
use contract::{local_target::Target, port::Device};
use contracts::forwarder as contract;

const CHAIN: u32 = 1000;
const EGRESS: u32 = 500;

/// How the rules differ from the usual.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Grows with every change.
    pub generation: u64,
    /// Bytes of the largest underlay packet.
    pub mtu: u32,
    /// What the firewall's attachment may get.
    pub state: contract::AttachmentState,
    /// Encapsulation between the two.
    pub encapsulation: contract::Encapsulation,
    /// Weights of the firewall and of a second one, where there is a second one.
    pub weights: Option<[u32; 2]>,
}

fn port(name: &str) -> contract::Port {
    contract::Port {
        name: name.into(),
        device: Some(Device::AfPacket(name.into())),
    }
}

fn base(
    site: &str,
    number: u32,
    peer: (&str, u32),
    ports: &[&str],
    variant: Variant,
) -> contract::RuleSet {
    contract::RuleSet {
        generation: variant.generation,
        site: site.into(),
        forwarder: "f1".into(),
        selection_seed: b"the same for all".to_vec(),
        underlay: Some(contract::Underlay {
            port: "wan".into(),
            addresses: vec![format!("198.18.0.{number}/24")],
            mtu: variant.mtu,
            vni: 7,
            ..Default::default()
        }),
        ports: ports.iter().map(|name| port(name)).collect(),
        peers: vec![contract::Peer {
            id: format!("{}/f1", peer.0),
            address: format!("198.18.0.{}", peer.1),
            encapsulation: variant.encapsulation.into(),
            alive: true,
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn edge(
    id: &str,
    port: &str,
    gateways: [&str; 2],
    classifier: contract::Classifier,
) -> contract::Edge {
    contract::Edge {
        id: id.into(),
        kind: contract::EdgeKind::Lan.into(),
        port: port.into(),
        gateway_addresses: gateways.map(String::from).to_vec(),
        classifiers: vec![classifier],
        mtu: 1500,
        ..Default::default()
    }
}

fn classifier(direction: contract::Direction) -> contract::Classifier {
    let office = vec!["10.1.0.0/24".to_string(), "2001:db8:1::/64".to_string()];
    let forward = direction == contract::Direction::Forward;
    let matched = contract::Match {
        source_prefixes: if forward { office.clone() } else { Vec::new() },
        destination_prefixes: if forward { Vec::new() } else { office },
        ..Default::default()
    };
    contract::Classifier {
        r#match: Some(matched),
        chain_label: CHAIN,
        direction: direction.into(),
        egress_routes: ["0.0.0.0/0", "::/0"]
            .map(|destination| contract::EgressRoute {
                destination: destination.into(),
                egress_label: EGRESS,
            })
            .to_vec(),
    }
}

fn local(target: Target) -> contract::StageEnd {
    contract::StageEnd {
        local: vec![contract::LocalTarget {
            target: Some(target),
            weight: 100,
            prefixes: Vec::new(),
        }],
        remote: Vec::new(),
    }
}

fn remote(peer: &str) -> contract::StageEnd {
    contract::StageEnd {
        local: Vec::new(),
        remote: vec![contract::RemoteTarget {
            peer: peer.into(),
            weight: 100,
            ..Default::default()
        }],
    }
}

fn path(stages: Vec<contract::Stage>) -> contract::ServicePath {
    contract::ServicePath {
        chain_label: CHAIN,
        egress_label: EGRESS,
        customer: "acme".into(),
        chain: "web".into(),
        vnf_count: 1,
        stages,
        ..Default::default()
    }
}

fn stage(
    number: u32,
    upstream: contract::StageEnd,
    downstream: contract::StageEnd,
) -> contract::Stage {
    contract::Stage {
        number,
        downstream: Some(downstream),
        upstream: Some(upstream),
    }
}

/// Rules of the forwarder beside the office.
pub fn east(variant: Variant) -> contract::RuleSet {
    let office = || local(Target::Edge("office".into()));
    contract::RuleSet {
        edges: vec![edge(
            "office",
            "lan",
            ["10.1.0.1/24", "2001:db8:1::1/64"],
            classifier(contract::Direction::Forward),
        )],
        paths: vec![path(vec![stage(1, office(), remote("west/f1"))])],
        ..base("east", 1, ("west", 2), &["wan", "lan"], variant)
    }
}

/// Rules of the forwarder beside the VNF and the internet.
pub fn west(variant: Variant) -> contract::RuleSet {
    let firewall = || {
        let mut end = local(Target::Attachment("firewall-1".into()));
        if let Some([first, second]) = variant.weights {
            let another = local(Target::Attachment("firewall-2".into()));
            end.local.extend(another.local);
            (end.local[0].weight, end.local[1].weight) = (first, second);
        }
        end
    };
    let internet = || local(Target::Edge("internet".into()));
    let mut ports = vec!["wan", "net", "vnf"];
    let mut attachments = vec![attachment("firewall-1", "vnf", FIREWALL_MACS, variant)];
    if variant.weights.is_some() {
        ports.push("vnf2");
        attachments.push(attachment("firewall-2", "vnf2", SECOND_MACS, variant));
    }
    contract::RuleSet {
        attachments,
        edges: vec![edge(
            "internet",
            "net",
            ["203.0.113.1/24", "2001:db8:2::1/64"],
            classifier(contract::Direction::Reverse),
        )],
        paths: vec![path(vec![
            stage(1, remote("east/f1"), firewall()),
            stage(2, firewall(), internet()),
        ])],
        ..base("west", 2, ("east", 1), &ports, variant)
    }
}

fn attachment(id: &str, port: &str, macs: [[u8; 6]; 2], variant: Variant) -> contract::Attachment {
    contract::Attachment {
        id: id.into(),
        vnf: "firewall".into(),
        instance: id.into(),
        kind: contract::AttachmentKind::Gateway.into(),
        state: variant.state.into(),
        ingress_port: port.into(),
        egress_port: port.into(),
        ingress_mac: macs[0].to_vec(),
        egress_mac: macs[1].to_vec(),
        ingress_vlan: 0,
        egress_vlan: 0,
        mtu: 1500,
        chain_label: CHAIN,
        egress_label: EGRESS,
        stage: 1,
        ..Default::default()
    }
}
