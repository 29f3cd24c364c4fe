//! One of two forwarders of a site, with connections to move.

use contracts::forwarder as contract;
use contracts::forwarder::local_target::Target;
use flow::{FlowEntry, FlowKey, Hops, Ipv4Key, Ipv6Key, State};
use forwarder::exchange::{self, Entry, Import, Imported};
use forwarder::frame::HeapFrame;
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::{HopId, HopName, PlaceName, Registry};
use forwarder::rules::{Rules, compile};
use std::collections::BTreeMap;
use wire::MacAddress;

pub const OLD: &str = "site/old";
pub const NEW: &str = "site/new";
pub const FAR: &str = "far/f1";
pub const NOW: u32 = 1_000;

/// One of two forwarders of a site.
pub struct Forwarder {
    pub id: &'static str,
    pub set: contract::RuleSet,
    pub registry: Registry,
    pub rules: Rules,
    pub pipeline: Pipeline<HeapFrame>,
}

pub fn port(name: &str) -> contract::Port {
    contract::Port {
        name: name.into(),
        device: Some(contract::port::Device::AfPacket(name.into())),
    }
}

pub fn peer(id: &str, number: u8) -> contract::Peer {
    contract::Peer {
        id: id.into(),
        address: format!("192.0.2.{number}"),
        alive: true,
        ..Default::default()
    }
}

pub fn edge(passive: bool) -> contract::Edge {
    contract::Edge {
        id: "acme/lan".into(),
        kind: contract::EdgeKind::Lan.into(),
        port: "lan".into(),
        gateway_addresses: vec!["10.1.0.1/24".into()],
        mtu: 1500,
        passive,
        ..Default::default()
    }
}

pub fn attachment(id: &str, stage: u32, passive: bool) -> contract::Attachment {
    let number = stage as u8;
    contract::Attachment {
        id: id.into(),
        vnf: id.into(),
        instance: id.into(),
        kind: contract::AttachmentKind::Gateway.into(),
        state: contract::AttachmentState::Active.into(),
        ingress_port: "vnf".into(),
        egress_port: "vnf".into(),
        ingress_mac: vec![2, 0, 0, 1, 0, number],
        egress_mac: vec![2, 0, 0, 2, 0, number],
        mtu: 1500,
        chain_label: 100,
        egress_label: 50,
        stage,
        passive,
        ..Default::default()
    }
}

pub fn end(target: Target) -> Option<contract::StageEnd> {
    Some(contract::StageEnd {
        local: vec![contract::LocalTarget {
            target: Some(target),
            weight: 1,
            prefixes: vec![],
        }],
        remote: vec![],
    })
}

impl Forwarder {
    pub fn new(
        id: &'static str,
        edges: Vec<contract::Edge>,
        attachments: Vec<contract::Attachment>,
        moved: Vec<contract::MovedHop>,
    ) -> Forwarder {
        let (sibling, number) = if id == OLD { (NEW, 1) } else { (OLD, 2) };
        let set = contract::RuleSet {
            generation: 1,
            site: "site".into(),
            forwarder: id.rsplit('/').next().unwrap().into(),
            underlay: Some(contract::Underlay {
                port: "wan".into(),
                addresses: vec![format!("192.0.2.{number}/24")],
                mtu: 1600,
                vni: 7,
                ..Default::default()
            }),
            ports: vec![port("wan"), port("lan"), port("vnf")],
            peers: vec![peer(sibling, 3 - number), peer(FAR, 9)],
            edges,
            attachments,
            moved,
            ..Default::default()
        };
        let mut registry = Registry::default();
        // Numbers that the other forwarder has not.
        for extra in 0..u16::from(number) * 7 {
            let _ = registry.hop(HopName::Peer(format!("other/{extra}")));
            let _ = registry.place(PlaceName::Edge(format!("other/{extra}")));
        }
        let rules = compile(&set, &[MacAddress([2, 0, 0, 9, 9, 9]); 3], &mut registry).unwrap();
        let settings = Settings {
            memory_v4: 8 << 20,
            memory_v6: 8 << 20,
            hash_key: [number; 16],
        };
        let mut pipeline = Pipeline::new(&settings, &rules).unwrap();
        pipeline
            .rules_changed(&Rules::empty(), &rules, NOW)
            .unwrap();
        Forwarder {
            id,
            set,
            registry,
            rules,
            pipeline,
        }
    }

    pub fn hop(&mut self, name: &HopName) -> u16 {
        self.registry.hop(name.clone()).unwrap().0
    }

    /// Remembers a connection at a stage.
    pub fn remember(&mut self, number: u32, stage: u32, ends: [&HopName; 2]) {
        let hops = Hops {
            upstream: self.hop(ends[0]),
            downstream: self.hop(ends[1]),
            opener: (number / 8 % 2) as u16,
        };
        let place = self.registry.place(stage_place(stage)).unwrap().0;
        self.add(number, place, hops);
    }

    pub fn add(&mut self, number: u32, place: u16, hops: Hops) {
        let state = State::ALL[number as usize % 8];
        let idle = idle(number);
        let entry = match number % 2 {
            0 => Entry::V4(FlowEntry {
                key: Ipv4Key::new(place, 0x0a01_0000 + number, 0xc633_6401, 6, 1024, 443),
                hops,
                state,
                idle,
            }),
            _ => Entry::V6(FlowEntry {
                key: Ipv6Key::new(place, u128::from(number) << 8, 7, 17, 1024, 53),
                hops,
                state,
                idle,
            }),
        };
        let import = Import {
            entry,
            sibling: HopId(u16::MAX),
            is_whole: true,
            is_of_edge: false,
        };
        assert_eq!(self.pipeline.import(&self.rules, &[import], NOW).taken, 1);
    }

    /// All entries, in pages.
    pub fn pages(&mut self) -> Vec<contract::FlowPage> {
        let (mut pages, mut begin) = (Vec::new(), true);
        loop {
            let (met, more) = self.pipeline.export(begin, 64, NOW);
            pages.push(exchange::page(&met, &self.registry, more));
            begin = false;
            if !more {
                return pages;
            }
        }
    }

    pub fn take(&mut self, from: &mut Forwarder) -> Imported {
        let mut sum = Imported::default();
        for page in from.pages() {
            let request = contract::ImportFlowsRequest {
                from: from.id.into(),
                page: Some(page),
            };
            let entries =
                exchange::read(&request, self.id, &self.rules, &mut self.registry).unwrap();
            let one = self.pipeline.import(&self.rules, &entries, NOW);
            sum.taken += one.taken;
            sum.refused += one.refused;
        }
        sum
    }

    /// What entries say, by connection and place.
    pub fn entries(&mut self) -> BTreeMap<String, String> {
        let (v4, v6) = self.pipeline.flows(NOW);
        let (hops, places) = self.registry.names();
        let one = |place: u16, hops_of: Hops, state: State, idle: u32| {
            let name = |number: u16| format!("{:?}", hops[usize::from(number)].unwrap());
            let said = match places[usize::from(place)].unwrap() {
                PlaceName::Edge(_) => format!(
                    "{:?} {}",
                    places[usize::from(hops_of.upstream)].unwrap(),
                    hops_of.downstream
                ),
                PlaceName::Stage { .. } => {
                    format!("{} {}", name(hops_of.upstream), name(hops_of.downstream))
                }
            };
            (
                format!("{:?}", places[usize::from(place)].unwrap()),
                format!("{said} {state:?} {idle}"),
            )
        };
        let v4 = v4.iter().map(|entry| {
            let (place, said) = one(entry.key.path(), entry.hops, entry.state, entry.idle);
            (format!("{} {place}", entry.key.source()), said)
        });
        let v6 = v6.iter().map(|entry| {
            let (place, said) = one(entry.key.path(), entry.hops, entry.state, entry.idle);
            (format!("{} {place}", entry.key.source()), said)
        });
        v4.chain(v6).collect()
    }

    pub fn receive(&mut self, port: &str, frame: &[u8]) -> Output<HeapFrame> {
        let index = self.set.ports.iter().position(|one| one.name == port);
        let mut out = Output::default();
        let frame = HeapFrame::new(frame);
        self.pipeline
            .process(&self.rules, index.unwrap(), frame, NOW, &mut out);
        out
    }

    pub fn event(&self, name: &str) -> u64 {
        let mut events = self.pipeline.counters.events();
        events
            .find(|(event, _)| *event == name)
            .map_or(0, |(_, count)| count)
    }

    pub fn drops(&self) -> u64 {
        self.pipeline.counters.drops().map(|(_, count)| count).sum()
    }
}

/// For how many seconds a connection has been silent: whole units of the time of established ones.
pub fn idle(number: u32) -> u32 {
    number % 3 * 640
}

pub fn stage_place(stage: u32) -> PlaceName {
    PlaceName::Stage {
        chain: 100,
        egress: 50,
        stage,
    }
}

pub fn att(id: &str) -> HopName {
    HopName::Attachment(id.into())
}

pub fn lan() -> HopName {
    HopName::Edge("acme/lan".into())
}

pub fn to(id: &str) -> HopName {
    HopName::Peer(id.into())
}
