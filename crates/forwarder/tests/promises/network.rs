//! The simulated world: forwarders joined by one underlay, hosts at edges, instances at attachments.

use crate::frames;
use crate::plan::{self, Plan, edge_port, interface_mac, interface_vlan, shared_mac, site_name};
use crate::team::Team;
use contracts::forwarder::{self as contract, AttachmentKind};
use flow::{FlowEntry, Ipv4Key, Ipv6Key};
use forwarder::counters::Counters;
use forwarder::frame::{Frame, HeapFrame};
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::Registry;
use forwarder::rules::{Rules, compile};
use std::collections::{BTreeMap, HashMap, VecDeque};
use wire::arp::{Arp, Operation};
use wire::neighbour_discovery::Neighbour;
use wire::{IpPacket, MacAddress, ethernet, icmp, ipv6};

/// A forwarder.
pub struct Node {
    pub rules: Rules,
    pub pipeline: Pipeline<HeapFrame>,
    /// Where it has several workers: these, and the pipeline gets nothing.
    pub team: Option<Team>,
    pub registry: Registry,
    ports: Vec<String>,
}

/// What an instance did with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    pub instance: String,
    pub chain: usize,
    pub position: usize,
    /// Whether it went in by the ingress side.
    pub forward: bool,
}

/// A packet that left at an edge.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub edge: String,
    pub vlan: u16,
    pub packet: Vec<u8>,
    /// Instances it passed, in order.
    pub visits: Vec<Visit>,
}

/// What an instance does to a packet before it sends it on; `true` for forward packets. False drops it.
pub type Behaviour = Box<dyn FnMut(&mut Vec<u8>, bool) -> bool>;

/// How frames reach a forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Each as soon as it is there.
    AtOnce,
    /// All that wait at a port, in their order.
    PortByPort,
    /// The same, in bursts.
    Bursts,
}

/// Everything, and the frames under way.
pub struct Network {
    pub plan: Plan,
    pub nodes: Vec<Node>,
    pub behaviours: HashMap<String, Behaviour>,
    pub now: u32,
    queue: VecDeque<(usize, usize, Vec<u8>)>,
    visits: Vec<Visit>,
    deliveries: Vec<Delivery>,
    /// Hosts that do not answer for their addresses.
    pub silent: bool,
    /// Frames over the underlay.
    pub tunnelled: Vec<Vec<u8>>,
    /// Frames that label-aware instances returned.
    pub labelled: Vec<Vec<u8>>,
    /// Loop protection of the simulation itself.
    budget: usize,
    /// How frames reach a forwarder.
    pub service: Service,
}

/// The Ethernet address of a port, which is its name's, whatever its position in the rules.
pub fn port_mac(site: usize, port: &str) -> MacAddress {
    let hash = port.bytes().fold(7u16, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u16::from(byte))
    });
    let [high, low] = hash.to_be_bytes();
    // Siblings have interfaces in common, but for those on the underlay.
    let owner = if port == "wan" {
        site
    } else {
        site % plan::SIBLING
    };
    MacAddress([6, 0, 0, owner as u8, high, low])
}

/// The Ethernet address of every host.
pub const HOST_MAC: MacAddress = MacAddress([4, 0, 0, 0, 0, 1]);

impl Node {
    /// What its workers counted.
    pub fn counters(&self) -> Counters {
        match &self.team {
            Some(team) => team.counters(),
            None => self.pipeline.counters.clone(),
        }
    }

    /// All flow entries of its workers.
    pub fn flows(&mut self, now: u32) -> (Vec<FlowEntry<Ipv4Key>>, Vec<FlowEntry<Ipv6Key>>) {
        match &mut self.team {
            Some(team) => team.flows(now),
            None => self.pipeline.flows(now),
        }
    }
}

impl Network {
    /// A network that follows a plan.
    pub fn new(plan: Plan) -> Network {
        Network::with_workers(plan, 1, 0)
    }

    /// A network whose forwarders have so many workers; `seed` decides which of them receive what.
    pub fn with_workers(plan: Plan, workers: usize, seed: u64) -> Network {
        let nodes = (0..plan.sites)
            .map(|_| Node {
                rules: Rules::empty(),
                pipeline: Pipeline::new(&settings(), &Rules::empty()).unwrap(),
                team: (workers > 1).then(|| Team::new(workers, seed)),
                registry: Registry::default(),
                ports: Vec::new(),
            })
            .collect();
        let mut network = Network {
            plan,
            nodes,
            behaviours: HashMap::new(),
            now: 1000,
            queue: VecDeque::new(),
            visits: Vec::new(),
            deliveries: Vec::new(),
            silent: false,
            tunnelled: Vec::new(),
            labelled: Vec::new(),
            budget: 0,
            service: Service::AtOnce,
        };
        network.apply();
        network
    }

    /// Gives every forwarder the plan's rules.
    pub fn apply(&mut self) {
        self.plan.remember();
        for site in 0..self.nodes.len() {
            let set = self.plan.rules(site);
            self.apply_at(site, &set);
        }
    }

    /// Gives one forwarder rules.
    pub fn apply_at(&mut self, site: usize, set: &contract::RuleSet) {
        let node = &mut self.nodes[site];
        let macs: Vec<MacAddress> = set
            .ports
            .iter()
            .map(|port| port_mac(site, &port.name))
            .collect();
        let rules = compile(set, &macs, &mut node.registry).unwrap();
        node.pipeline
            .rules_changed(&node.rules, &rules, self.now)
            .unwrap();
        if let Some(team) = &mut node.team {
            team.rules_changed(&node.rules, &rules, self.now);
        }
        node.rules = rules;
        node.ports = set.ports.iter().map(|port| port.name.clone()).collect();
    }

    /// Changes the plan, and every forwarder's rules with it.
    pub fn change(&mut self, change: impl FnOnce(&mut Plan)) {
        change(&mut self.plan);
        self.plan.generation += 1;
        self.apply();
    }

    /// Sends an IP packet from a host behind an edge, and returns what left anywhere until all was quiet.
    pub fn send(&mut self, edge: &plan::Edge, packet: &[u8]) -> Vec<Delivery> {
        let port = edge_port(edge);
        let frame = frames::frame(
            port_mac(edge.site, &port),
            HOST_MAC,
            edge.vlan as u16,
            packet,
        );
        self.inject(edge.site, &port, frame)
    }

    /// Lets a frame arrive at a port.
    pub fn inject(&mut self, site: usize, port: &str, frame: Vec<u8>) -> Vec<Delivery> {
        let port = self.port(site, port);
        self.queue.push_back((site, port, frame));
        self.run()
    }

    pub fn port(&self, site: usize, name: &str) -> usize {
        let ports = &self.nodes[site].ports;
        ports
            .iter()
            .position(|port| port == name)
            .unwrap_or_else(|| panic!("{name}: {ports:?}"))
    }

    /// Lets frames arrive at ports, in their order.
    pub fn inject_all(&mut self, frames: &[(usize, String, Vec<u8>)]) -> Vec<Delivery> {
        for (site, port, frame) in frames {
            let port = self.port(*site, port);
            self.queue.push_back((*site, port, frame.clone()));
        }
        self.run()
    }

    fn run(&mut self) -> Vec<Delivery> {
        self.visits.clear();
        self.budget = 10_000;
        while let Some((site, port, frame)) = self.queue.pop_front() {
            self.budget -= 1;
            assert!(self.budget > 0, "frames go round and round");
            let mut frames = vec![HeapFrame::new(&frame)];
            if self.service != Service::AtOnce {
                let here =
                    |waiting: &(usize, usize, Vec<u8>)| (waiting.0, waiting.1) == (site, port);
                let waiting = std::mem::take(&mut self.queue).into_iter();
                let (same, others): (Vec<_>, Vec<_>) = waiting.partition(here);
                frames.extend(same.iter().map(|(.., frame)| HeapFrame::new(frame)));
                self.queue = others.into();
            }
            let node = &mut self.nodes[site];
            if let Some(team) = &mut node.team {
                let out = team.receive(&node.rules, port, frames, self.service, self.now);
                self.take(site, out);
                continue;
            }
            let mut out = Output::default();
            if self.service == Service::Bursts {
                let (rules, now) = (&node.rules, self.now);
                node.pipeline
                    .process_burst(rules, port, &mut frames, now, &mut out);
                assert!(frames.is_empty());
            }
            for frame in frames {
                node.pipeline
                    .process(&node.rules, port, frame, self.now, &mut out);
            }
            self.take(site, out);
        }
        std::mem::take(&mut self.deliveries)
    }

    /// Lets time pass: every forwarder's clock ticks.
    pub fn tick(&mut self) -> Vec<Delivery> {
        self.now += 1;
        for site in 0..self.nodes.len() {
            let node = &mut self.nodes[site];
            if let Some(team) = &mut node.team {
                let out = team.tick(&node.rules, self.now);
                self.take(site, out);
                continue;
            }
            let mut out = Output::default();
            while node.pipeline.tick(&node.rules, self.now, true, &mut out) {}
            self.take(site, out);
        }
        self.run()
    }

    fn take(&mut self, site: usize, out: Output<HeapFrame>) {
        let mut out = out;
        out.merge(|bytes| Some(HeapFrame::new(bytes)));
        let mut frames: Vec<(usize, Vec<u8>)> = Vec::new();
        for (port, list) in out.ports.into_iter().enumerate() {
            frames.extend(list.into_iter().map(|frame| (port, frame.data().to_vec())));
        }
        for (port, frame) in frames {
            let name = self.nodes[site].ports[port].clone();
            if name == "wan" {
                self.underlay(site, frame);
            } else if name.starts_with("edge-") {
                self.host(site, port, &name, &frame);
            } else {
                self.instance(site, &name, &frame);
            }
        }
    }

    fn underlay(&mut self, from: usize, frame: Vec<u8>) {
        let header = ethernet::Header::parse(&frame).unwrap();
        self.tunnelled.push(frame.clone());
        for site in (0..self.nodes.len()).filter(|&site| site != from) {
            if header.destination.is_group() || header.destination == port_mac(site, "wan") {
                let port = self.port(site, "wan");
                self.queue.push_back((site, port, frame.clone()));
            }
        }
    }

    /// Hosts answer for every address of their network.
    fn host(&mut self, site: usize, port: usize, name: &str, frame: &[u8]) {
        let header = ethernet::Header::parse(frame).unwrap();
        let payload = &frame[header.length..];
        if header.ether_type == ethernet::ARP {
            let arp = Arp::parse(payload).unwrap();
            if arp.operation == Operation::Request && !self.silent {
                let reply = Arp {
                    operation: Operation::Reply,
                    sender_mac: HOST_MAC,
                    sender: arp.target,
                    target_mac: arp.sender_mac,
                    target: arp.sender,
                };
                let mut answer = vec![0; 18];
                let length = ethernet::Header::write(
                    &mut answer,
                    arp.sender_mac,
                    HOST_MAC,
                    header.vlan,
                    ethernet::ARP,
                );
                answer.truncate(length);
                answer.extend(reply.to_bytes());
                self.queue.push_back((site, port, answer));
            }
            return;
        }
        let parsed =
            IpPacket::parse(payload).unwrap_or_else(|error| panic!("{error}: {payload:x?}"));
        if parsed.tuple.protocol == 58 && parsed.quoted.is_none() {
            let ip = ipv6::Header::parse(payload).unwrap();
            let message = &payload[ip.transport_offset..];
            if let Some(neighbour) =
                Neighbour::parse(&ip, message).filter(|neighbour| neighbour.solicitation)
            {
                let answer = Neighbour {
                    solicitation: false,
                    target: neighbour.target,
                    mac: Some(HOST_MAC),
                };
                let packet =
                    icmp::neighbour_packet(neighbour.target, ip.source, answer.to_message());
                let answer = frames::frame(header.source, HOST_MAC, header.vlan, &packet);
                self.queue.push_back((site, port, answer));
                return;
            }
        }
        assert_eq!(header.destination, HOST_MAC, "sent to the host's address");
        self.deliveries.push(Delivery {
            edge: name.to_string(),
            vlan: header.vlan,
            packet: payload[..parsed.length].to_vec(),
            visits: self.visits.clone(),
        });
    }

    /// An instance sends what came in by one side out of the other.
    fn instance(&mut self, site: usize, port: &str, frame: &[u8]) {
        let header = ethernet::Header::parse(frame).unwrap();
        if matches!(header.ether_type, ethernet::MPLS | ethernet::NSH) {
            return self.label_aware(site, port, &header, frame);
        }
        let payload = frame[header.length..].to_vec();
        let found = self.find_interface(site, port, &header);
        let Some((chain, position, instance, forward)) = found else {
            panic!("{} has no interface {header:?} on {port}", site_name(site));
        };
        self.visits.push(Visit {
            instance: instance.name.clone(),
            chain,
            position,
            forward,
        });
        let mut packet = payload;
        if let Some(behaviour) = self.behaviours.get_mut(&instance.name)
            && !behaviour(&mut packet, forward)
        {
            return;
        }
        let (out, source, destination) = if instance.kind == AttachmentKind::Transparent {
            let side = if forward { "out" } else { "in" };
            let out = format!("{}-{side}", instance.name);
            (out, header.source, header.destination)
        } else {
            let label = self
                .plan
                .versions()
                .nth(chain)
                .map_or(0, |chain| chain.label);
            let source = interface_mac(label, position, &instance.name, forward);
            (port.to_string(), source, port_mac(site, port))
        };
        let answer = frames::frame(destination, source, header.vlan, &packet);
        self.sent_by_instance(&instance, &out, answer);
    }

    /// A frame of an instance comes to each forwarder that has its port.
    fn sent_by_instance(&mut self, instance: &plan::Instance, port: &str, frame: Vec<u8>) {
        for site in (0..self.nodes.len()).filter(|&site| instance.is_attached(site)) {
            let port = self.port(site, port);
            self.queue.push_back((site, port, frame.clone()));
        }
    }

    /// A label-aware instance reads where the packet is, takes one off the service index and sends it back.
    fn label_aware(&mut self, site: usize, port: &str, header: &ethernet::Header, frame: &[u8]) {
        let name = port.strip_prefix("vnf-").unwrap();
        assert_eq!(header.destination, shared_mac(name), "{port}");
        let mut context = frame[header.length..].to_vec();
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        let (label, reverse, index_at, inner_at) = if header.ether_type == ethernet::NSH {
            let path = word(&context[4..8]) >> 8;
            let label = path / 16;
            assert_eq!(path % 16, 3, "an identifier of the plan's");
            let length = usize::from(context[1] & 0x3f) * 4;
            (label & !1, label & 1 == 1, 7, length)
        } else {
            let top = word(&context[..4]) >> 12;
            (top & !1, top & 1 == 1, 7, 8)
        };
        let number = self
            .plan
            .versions()
            .position(|chain| chain.label == label)
            .unwrap();
        let chain = self.plan.versions().nth(number).unwrap();
        let passed = usize::from(255 - context[index_at]);
        let position = match reverse {
            false => passed,
            true => chain.vnfs.len() - 1 - passed,
        };
        let here = |one: &&plan::Instance| one.name == name && one.is_attached(site);
        let instance = chain.vnfs[position].iter().find(here).cloned();
        let instance = instance.unwrap_or_else(|| panic!("{name} is not VNF {position}"));
        self.visits.push(Visit {
            instance: name.to_string(),
            chain: number,
            position,
            forward: !reverse,
        });
        assert!(matches!(context[inner_at] >> 4, 4 | 6));
        context[index_at] -= 1;
        let mut answer = frame[..header.length].to_vec();
        answer[..6].copy_from_slice(&header.source.0);
        answer[6..12].copy_from_slice(&header.destination.0);
        answer.extend(context);
        self.labelled.push(answer.clone());
        self.sent_by_instance(&instance, port, answer);
    }

    fn find_interface(
        &self,
        site: usize,
        port: &str,
        header: &ethernet::Header,
    ) -> Option<(usize, usize, plan::Instance, bool)> {
        for (number, chain) in self.plan.versions().enumerate() {
            for (position, instances) in chain.vnfs.iter().enumerate() {
                for instance in instances.iter().filter(|one| one.is_attached(site)) {
                    let here = |side: &str| port == format!("{}-{side}", instance.name);
                    if instance.kind == AttachmentKind::Transparent
                        && u32::from(header.vlan) == interface_vlan(chain.label, position)
                    {
                        if here("in") || here("out") {
                            return Some((number, position, instance.clone(), here("in")));
                        }
                    } else if port == format!("vnf-{}", instance.name) {
                        let mac =
                            |egress| interface_mac(chain.label, position, &instance.name, egress);
                        if header.destination == mac(false) || header.destination == mac(true) {
                            let forward = header.destination == mac(false);
                            return Some((number, position, instance.clone(), forward));
                        }
                    }
                }
            }
        }
        None
    }

    /// Drop counters of all forwarders that are not 0.
    pub fn drops(&self) -> BTreeMap<&'static str, u64> {
        let mut all = BTreeMap::new();
        for node in &self.nodes {
            for (name, count) in node.counters().drops() {
                *all.entry(name).or_insert(0) += count;
            }
        }
        all
    }

    /// How often something happened, at all forwarders.
    pub fn event(&self, name: &str) -> u64 {
        let all = self.nodes.iter().map(Node::counters);
        all.map(|counters| {
            let mut events = counters.events();
            let found = events.find(|(event, _)| *event == name);
            found.map_or(0, |(_, count)| count)
        })
        .sum()
    }

    /// Asserts that nothing was dropped.
    pub fn assert_no_drops(&self) {
        assert_eq!(self.drops(), BTreeMap::new());
    }
}

pub fn settings() -> Settings {
    Settings {
        memory_v4: 4 << 20,
        memory_v6: 4 << 20,
        hash_key: [3; 16],
    }
}

/// The names of the instances visited.
pub fn names(visits: &[Visit]) -> Vec<&str> {
    visits.iter().map(|visit| visit.instance.as_str()).collect()
}
