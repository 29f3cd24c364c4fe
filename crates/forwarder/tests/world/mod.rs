//! A small world for tests: an office with a LAN, a data centre with firewalls and the Internet.

use contracts::forwarder as contract;
use contracts::forwarder::local_target::Target;
use forwarder::frame::{Frame, HeapFrame};
use forwarder::neighbours::framed;
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::Registry;
use forwarder::rules::{Rules, compile};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use wire::arp::{Arp, Operation};
use wire::{IpPacket, MacAddress, checksum, ethernet, ipv4};

const CHAIN: u32 = 100;
const EGRESS: u32 = 50;

/// An IPv4 UDP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet(Vec<u8>);

impl Packet {
    pub fn udp(source: Ipv4Addr, destination: Ipv4Addr, from: u16, to: u16) -> Packet {
        let mut bytes = ipv4::write(&ipv4::Fields {
            source: source.octets(),
            destination: destination.octets(),
            protocol: 17,
            ttl: 64,
            payload_length: 8,
            identification: 0,
            dont_fragment: true,
        })
        .to_vec();
        bytes.extend(from.to_be_bytes());
        bytes.extend(to.to_be_bytes());
        bytes.extend([0, 8, 0, 0]);
        Packet(bytes)
    }

    fn tuple(&self) -> (Ipv4Addr, Ipv4Addr, u16, u16) {
        let tuple = IpPacket::parse(&self.0).unwrap().tuple;
        let (IpAddr::V4(source), IpAddr::V4(destination)) = (tuple.source(), tuple.destination())
        else {
            unreachable!()
        };
        (
            source,
            destination,
            tuple.source_port,
            tuple.destination_port,
        )
    }

    pub fn source(&self) -> Ipv4Addr {
        self.tuple().0
    }

    pub fn destination(&self) -> Ipv4Addr {
        self.tuple().1
    }

    pub fn reversed(&self) -> Packet {
        let (source, destination, from, to) = self.tuple();
        Packet::udp(destination, source, to, from)
    }
}

/// What happened to a packet that entered.
#[derive(Debug, Default)]
pub struct Seen {
    pub vnfs: Vec<String>,
    pub left_at: Option<String>,
    pub packet: Option<Packet>,
}

struct Node {
    set: contract::RuleSet,
    registry: Registry,
    rules: Rules,
    pipeline: Pipeline<HeapFrame>,
}

#[derive(Default)]
struct Vnf {
    public: Option<Ipv4Addr>,
    private: HashMap<u16, Ipv4Addr>,
}

pub struct World {
    nodes: BTreeMap<&'static str, Node>,
    vnfs: BTreeMap<String, Vnf>,
    last_tunnel: Option<Vec<u8>>,
}

fn port(name: &str) -> contract::Port {
    contract::Port {
        name: name.into(),
        device: Some(contract::port::Device::AfPacket(name.into())),
    }
}

fn edge(
    id: &str,
    gateway: &str,
    direction: contract::Direction,
    sources: &[&str],
) -> contract::Edge {
    contract::Edge {
        id: id.into(),
        kind: contract::EdgeKind::Lan.into(),
        port: id.into(),
        gateway_addresses: vec![gateway.into()],
        next_hops: if id == "internet" {
            vec!["203.0.113.2".into()]
        } else {
            vec![]
        },
        classifiers: vec![contract::Classifier {
            r#match: Some(contract::Match {
                source_prefixes: sources.iter().map(|prefix| prefix.to_string()).collect(),
                ..Default::default()
            }),
            chain_label: CHAIN,
            direction: direction.into(),
            egress_routes: vec![contract::EgressRoute {
                destination: "0.0.0.0/0".into(),
                egress_label: EGRESS,
            }],
        }],
        ..Default::default()
    }
}

fn end(local: &[(&str, bool, u32)], remote: &[&str]) -> Option<contract::StageEnd> {
    Some(contract::StageEnd {
        local: local
            .iter()
            .map(|&(id, attachment, weight)| contract::LocalTarget {
                target: Some(if attachment {
                    Target::Attachment(id.into())
                } else {
                    Target::Edge(id.into())
                }),
                weight,
                prefixes: vec![],
            })
            .collect(),
        remote: remote
            .iter()
            .map(|&peer| contract::RemoteTarget {
                peer: peer.into(),
                weight: 100,
                prefixes: vec![],
                ..Default::default()
            })
            .collect(),
    })
}

fn attachment(instance: &str) -> contract::Attachment {
    let number = instance.bytes().last().unwrap();
    contract::Attachment {
        id: instance.into(),
        vnf: "firewall".into(),
        instance: instance.into(),
        kind: contract::AttachmentKind::Gateway.into(),
        state: contract::AttachmentState::Active.into(),
        ingress_port: "vnf".into(),
        egress_port: "vnf".into(),
        ingress_mac: vec![2, 0, 0, 1, 0, number],
        egress_mac: vec![2, 0, 0, 2, 0, number],
        chain_label: CHAIN,
        egress_label: EGRESS,
        stage: 1,
        ..Default::default()
    }
}

fn set(site: &str, address: &str) -> contract::RuleSet {
    let (peer, peer_address) = match site {
        "office" => ("dc/f1", "192.0.2.2"),
        _ => ("office/f1", "192.0.2.1"),
    };
    contract::RuleSet {
        generation: 1,
        site: site.into(),
        forwarder: "f1".into(),
        underlay: Some(contract::Underlay {
            port: "wan".into(),
            addresses: vec![format!("{address}/24")],
            mtu: 1500,
            vni: 7,
            ..Default::default()
        }),
        peers: vec![contract::Peer {
            id: peer.into(),
            address: peer_address.into(),
            alive: true,
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn path(stages: Vec<contract::Stage>) -> Vec<contract::ServicePath> {
    vec![contract::ServicePath {
        chain_label: CHAIN,
        egress_label: EGRESS,
        customer: "acme".into(),
        chain: "web".into(),
        vnf_count: 1,
        stages,
        ..Default::default()
    }]
}

fn stage(
    number: u32,
    downstream: Option<contract::StageEnd>,
    upstream: Option<contract::StageEnd>,
) -> contract::Stage {
    contract::Stage {
        number,
        downstream,
        upstream,
    }
}

/// Office (LAN) and data centre (one firewall, Internet) with one chain.
pub fn two_sites() -> World {
    let mut office = set("office", "192.0.2.1");
    office.ports = vec![port("wan"), port("lan")];
    office.edges = vec![edge(
        "lan",
        "10.1.0.1/24",
        contract::Direction::Forward,
        &["10.1.0.0/24"],
    )];
    office.paths = path(vec![stage(
        1,
        end(&[], &["dc/f1"]),
        end(&[("lan", false, 100)], &[]),
    )]);
    let mut dc = set("dc", "192.0.2.2");
    dc.ports = vec![port("wan"), port("internet"), port("vnf")];
    dc.edges = vec![edge(
        "internet",
        "203.0.113.1/24",
        contract::Direction::Reverse,
        &[],
    )];
    dc.attachments = vec![attachment("fw-1")];
    dc.paths = dc_path(&[("fw-1", 100)]);
    let nodes = [("office", office), ("dc", dc)].map(|(name, set)| (name, Node::new(set)));
    World {
        nodes: nodes.into(),
        vnfs: [("fw-1".to_string(), Vnf::default())].into(),
        last_tunnel: None,
    }
}

fn dc_path(instances: &[(&str, u32)]) -> Vec<contract::ServicePath> {
    let local: Vec<_> = instances
        .iter()
        .map(|&(id, weight)| (id, true, weight))
        .collect();
    path(vec![
        stage(1, end(&local, &[]), end(&[], &["office/f1"])),
        stage(2, end(&[("internet", false, 100)], &[]), end(&local, &[])),
    ])
}

impl Node {
    fn new(set: contract::RuleSet) -> Node {
        let mut registry = Registry::default();
        let rules = compile(&set, &macs(&set), &mut registry).unwrap();
        let settings = Settings {
            memory_v4: 64 << 20,
            memory_v6: 64 << 20,
            hash_key: [9; 16],
        };
        let mut pipeline = Pipeline::new(&settings, &rules).unwrap();
        pipeline.rules_changed(&Rules::empty(), &rules, 1).unwrap();
        Node {
            set,
            registry,
            rules,
            pipeline,
        }
    }

    fn recompile(&mut self) {
        self.set.generation += 1;
        let rules = compile(&self.set, &macs(&self.set), &mut self.registry).unwrap();
        self.pipeline.rules_changed(&self.rules, &rules, 1).unwrap();
        self.rules = rules;
    }

    fn port(&self, name: &str) -> usize {
        self.set
            .ports
            .iter()
            .position(|port| port.name == name)
            .unwrap()
    }
}

fn macs(set: &contract::RuleSet) -> Vec<MacAddress> {
    let site = set.site.len() as u8;
    (0..set.ports.len())
        .map(|index| MacAddress([2, 0, site, 0, 9, index as u8]))
        .collect()
}

impl World {
    pub fn rewrite_sources(&mut self, instance: &str, public: Ipv4Addr) {
        self.vnfs.get_mut(instance).unwrap().public = Some(public);
    }

    pub fn add_instance(&mut self, instance: &str) {
        self.vnfs.insert(instance.into(), Vnf::default());
        let dc = self.nodes.get_mut("dc").unwrap();
        dc.set.attachments.push(attachment(instance));
        self.set_weights();
    }

    pub fn set_weight(&mut self, instance: &str, weight: u32) {
        let dc = self.nodes.get_mut("dc").unwrap();
        for stage in &mut dc.set.paths[0].stages {
            for end in [&mut stage.downstream, &mut stage.upstream]
                .into_iter()
                .flatten()
            {
                for target in &mut end.local {
                    if target.target == Some(Target::Attachment(instance.into())) {
                        target.weight = weight;
                    }
                }
            }
        }
        dc.recompile();
    }

    fn set_weights(&mut self) {
        let dc = self.nodes.get_mut("dc").unwrap();
        let instances: Vec<(&str, u32)> =
            self.vnfs.keys().map(|name| (name.as_str(), 100)).collect();
        dc.set.paths = dc_path(&instances);
        dc.recompile();
    }

    pub fn kill(&mut self, instance: &str) {
        let dc = self.nodes.get_mut("dc").unwrap();
        for attachment in &mut dc.set.attachments {
            if attachment.instance == instance {
                attachment.state = contract::AttachmentState::Dead.into();
            }
        }
        dc.recompile();
    }

    pub fn drops(&self, node: &str) -> Vec<(String, u64)> {
        self.nodes[node]
            .pipeline
            .counters
            .drops()
            .map(|(name, count)| (name.to_string(), count))
            .collect()
    }

    pub fn drop_total(&self) -> u64 {
        self.nodes
            .values()
            .map(|node| node.pipeline.counters.drop_total())
            .sum()
    }

    pub fn last_tunnel_frame(&self) -> Option<Vec<u8>> {
        self.last_tunnel.clone()
    }

    pub fn edge_frame(&self, node: &str, port: &str, packet: &Packet) -> Vec<u8> {
        let node = &self.nodes[node];
        let mac = node.rules.ports[node.port(port)].mac;
        framed(
            mac,
            MacAddress([2, 0, 0, 0, 0, 99]),
            0,
            ethernet::IPV4,
            &packet.0,
        )
    }

    /// Hands a frame to a port and follows nothing.
    /// Gives a node a frame; returns how many it sent.
    pub fn receive(&mut self, node: &str, port: &str, frame: &[u8]) -> usize {
        self.step(node, port, frame).len()
    }

    /// Hands a packet to an edge and follows it to its end.
    pub fn enter(&mut self, node: &str, port: &str, packet: &Packet) -> Seen {
        let mut seen = Seen::default();
        let frame = self.edge_frame(node, port, packet);
        let mut waiting = VecDeque::from([(node.to_string(), port.to_string(), frame)]);
        let mut steps = 0;
        while let Some((node, port, frame)) = waiting.pop_front() {
            steps += 1;
            assert!(steps < 100, "the packet goes in circles: {seen:?}");
            for (port, frame) in self.step(&node, &port, &frame) {
                waiting.extend(self.deliver(&node, &port, frame, &mut seen));
            }
        }
        seen
    }

    fn step(&mut self, node: &str, port: &str, frame: &[u8]) -> Vec<(String, Vec<u8>)> {
        let node = self.nodes.get_mut(node).unwrap();
        let mut out = Output::default();
        let index = node.port(port);
        node.pipeline
            .process(&node.rules, index, HeapFrame::new(frame), 1, &mut out);
        out.merge(|bytes| Some(HeapFrame::new(bytes)));
        let sent = out
            .ports
            .into_iter()
            .enumerate()
            .flat_map(|(port, frames)| {
                frames
                    .into_iter()
                    .map(move |frame| (port, frame.data().to_vec()))
            });
        sent.map(|(port, frame)| (node.set.ports[port].name.clone(), frame))
            .collect()
    }

    /// What a frame that left a port brings about: an answer, or its arrival elsewhere.
    fn deliver(
        &mut self,
        node: &str,
        port: &str,
        frame: Vec<u8>,
        seen: &mut Seen,
    ) -> Option<(String, String, Vec<u8>)> {
        let header = ethernet::Header::parse(&frame).unwrap();
        if header.ether_type == ethernet::ARP {
            let request = Arp::parse(&frame[header.length..]).unwrap();
            if request.operation == Operation::Reply {
                return None;
            }
            let mac = MacAddress([2, 0, 0, 0, 0, 99]);
            let reply = forwarder::neighbours::arp_answer(&request, mac, 0);
            return Some((node.into(), port.into(), reply));
        }
        match port {
            "wan" => {
                self.last_tunnel = Some(frame.clone());
                let other = if node == "dc" { "office" } else { "dc" };
                Some((other.into(), "wan".into(), frame))
            }
            "vnf" => self.through_vnf(node, &header, &frame, seen),
            edge => {
                seen.left_at = Some(format!("{node}/{edge}"));
                seen.packet = Some(Packet(frame[header.length..].to_vec()));
                None
            }
        }
    }

    fn through_vnf(
        &mut self,
        node: &str,
        header: &ethernet::Header,
        frame: &[u8],
        seen: &mut Seen,
    ) -> Option<(String, String, Vec<u8>)> {
        let [.., side, _, number] = header.destination.0;
        let instance = format!("fw-{}", char::from(number));
        seen.vnfs.push(instance.clone());
        let forward = side == 1;
        let vnf = self.vnfs.get_mut(&instance).unwrap();
        let packet = vnf.translate(Packet(frame[header.length..].to_vec()), forward);
        let other = MacAddress([2, 0, 0, if forward { 2 } else { 1 }, 0, number]);
        let back = framed(header.source, other, 0, ethernet::IPV4, &packet.0);
        Some((node.into(), "vnf".into(), back))
    }
}

impl Vnf {
    fn translate(&mut self, packet: Packet, forward: bool) -> Packet {
        let Some(public) = self.public else {
            return packet;
        };
        let (source, destination, from, to) = packet.tuple();
        if forward {
            self.private.insert(from, source);
            return Packet::udp(public, destination, from, to);
        }
        assert_eq!(destination, public);
        Packet::udp(source, self.private[&to], from, to)
    }
}

#[test]
fn test_packets_have_right_checksums() {
    let packet = Packet::udp(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 1, 2);
    assert_eq!(checksum::fold(checksum::sum(&packet.0[..20])), 0xffff);
}
