//! Rules of a forwarder beside a VNF whose next stage leads to another site.

use contracts::forwarder as contract;
use wire::MacAddress;
use wire::arp::{Arp, Operation};

/// Where the VNF's forward packets come from.
pub const VNF_EGRESS_MAC: MacAddress = MacAddress([2, 0, 0, 0, 1, 2]);
/// The forwarder's ports.
pub const PORT_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
/// Positions of the ports in the rules.
pub const WAN_PORT: usize = 0;
/// The VNF's.
pub const VNF_PORT: usize = 1;
const VNF_INGRESS_MAC: MacAddress = MacAddress([2, 0, 0, 0, 1, 1]);
/// Where tunnels lead.
pub const PEER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 2, 1]);

/// The peer's tunnel end point.
pub const PEER_ADDRESS: [u8; 4] = [198, 18, 0, 2];

/// The rule set.
pub fn set() -> contract::RuleSet {
    let attachment = contract::local_target::Target::Attachment("firewall".into());
    contract::RuleSet {
        generation: 1,
        underlay: Some(contract::Underlay {
            port: "wan".into(),
            addresses: vec!["198.18.0.1/24".into()],
            mtu: 1600,
            vni: 7,
            ..Default::default()
        }),
        ports: ["wan", "vnf"]
            .map(|name| contract::Port {
                name: name.into(),
                device: Some(contract::port::Device::AfPacket(name.into())),
            })
            .to_vec(),
        peers: vec![contract::Peer {
            id: "west/f1".into(),
            address: "198.18.0.2".into(),
            encapsulation: contract::Encapsulation::VxlanMpls.into(),
            alive: true,
            ..Default::default()
        }],
        attachments: vec![contract::Attachment {
            id: "firewall".into(),
            vnf: "firewall".into(),
            instance: "a".into(),
            kind: contract::AttachmentKind::Gateway.into(),
            state: contract::AttachmentState::Active.into(),
            ingress_port: "vnf".into(),
            egress_port: "vnf".into(),
            ingress_mac: VNF_INGRESS_MAC.0.to_vec(),
            egress_mac: VNF_EGRESS_MAC.0.to_vec(),
            mtu: 1500,
            chain_label: 1000,
            egress_label: 500,
            stage: 1,
            ..Default::default()
        }],
        paths: vec![contract::ServicePath {
            chain_label: 1000,
            egress_label: 500,
            customer: "acme".into(),
            chain: "web".into(),
            vnf_count: 1,
            stages: vec![contract::Stage {
                number: 2,
                upstream: Some(contract::StageEnd {
                    local: vec![contract::LocalTarget {
                        target: Some(attachment),
                        weight: 100,
                        prefixes: Vec::new(),
                    }],
                    remote: Vec::new(),
                }),
                downstream: Some(contract::StageEnd {
                    local: Vec::new(),
                    remote: vec![contract::RemoteTarget {
                        peer: "west/f1".into(),
                        weight: 100,
                        prefixes: Vec::new(),
                        ..Default::default()
                    }],
                }),
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// The peer's answer to the question for its Ethernet address.
pub fn peer_answer() -> Vec<u8> {
    answer(PORT_MAC)
}

/// The same to a port with another address.
pub fn answer(own: MacAddress) -> Vec<u8> {
    let arp = Arp {
        operation: Operation::Reply,
        sender_mac: PEER_MAC,
        sender: PEER_ADDRESS,
        target_mac: own,
        target: [198, 18, 0, 1],
    };
    let mut frame = vec![0; 18];
    let length = wire::ethernet::Header::write(&mut frame, own, PEER_MAC, 0, wire::ethernet::ARP);
    frame.truncate(length);
    frame.extend(arp.to_bytes());
    frame
}

/// Kinds of ports for TCP between namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpPort {
    /// Packet sockets.
    AfPacket,
    /// AF_XDP sockets.
    AfXdp,
}

impl TcpPort {
    /// What figures call it.
    pub fn name(self) -> &'static str {
        match self {
            TcpPort::AfPacket => "af_packet",
            TcpPort::AfXdp => "af_xdp",
        }
    }

    /// The forwarder's interfaces.
    pub fn interfaces(self) -> [&'static str; 2] {
        match self {
            TcpPort::AfPacket => ["lan", "net"],
            TcpPort::AfXdp => ["xlan", "xnet"],
        }
    }

    /// The first three bytes of both networks.
    pub fn networks(self) -> [&'static str; 2] {
        match self {
            TcpPort::AfPacket => ["10.1.0", "10.2.0"],
            TcpPort::AfXdp => ["10.4.0", "10.5.0"],
        }
    }

    /// Who answers in the second network.
    pub fn server(self) -> String {
        format!("{}.2", self.networks()[1])
    }

    fn device(self, interface: &str) -> contract::port::Device {
        match self {
            TcpPort::AfPacket => contract::port::Device::AfPacket(interface.into()),
            TcpPort::AfXdp => contract::port::Device::AfXdp(interface.into()),
        }
    }
}

/// Rules of a forwarder between two edges with a chain of no VNFs.
pub fn tcp(port: TcpPort) -> contract::RuleSet {
    use contract::Direction::{Forward, Reverse};
    let ([lan, net], [own, other]) = (port.interfaces(), port.networks());
    let edge = |name: &str, network: &str, direction: contract::Direction| contract::Edge {
        id: name.into(),
        kind: contract::EdgeKind::Lan.into(),
        port: name.into(),
        gateway_addresses: vec![format!("{network}.1/24")],
        classifiers: vec![contract::Classifier {
            r#match: Some(contract::Match::default()),
            chain_label: 1000,
            direction: direction.into(),
            egress_routes: vec![contract::EgressRoute {
                destination: "0.0.0.0/0".into(),
                egress_label: 500,
            }],
        }],
        ..Default::default()
    };
    let end = |name: &str| {
        Some(contract::StageEnd {
            local: vec![contract::LocalTarget {
                target: Some(contract::local_target::Target::Edge(name.into())),
                weight: 100,
                prefixes: Vec::new(),
            }],
            remote: Vec::new(),
        })
    };
    contract::RuleSet {
        generation: 1,
        site: "bench".into(),
        forwarder: "f1".into(),
        ports: [lan, net]
            .map(|name| contract::Port {
                name: name.into(),
                device: Some(port.device(name)),
            })
            .to_vec(),
        edges: vec![edge(lan, own, Forward), edge(net, other, Reverse)],
        paths: vec![contract::ServicePath {
            chain_label: 1000,
            egress_label: 500,
            customer: "acme".into(),
            chain: "web".into(),
            vnf_count: 0,
            stages: vec![contract::Stage {
                number: 1,
                upstream: end(lan),
                downstream: end(net),
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}
