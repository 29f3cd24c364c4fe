//! Connections that move from one forwarder of a site to another.

use contracts::forwarder as contract;
use contracts::forwarder::local_target::Target;
use contracts::forwarder::moved_hop::Hop as Moved;
use flow::{FlowEntry, FlowKey, Hops, Ipv4Key, Ipv6Key, State};
use forwarder::exchange::{self, Entry, Import, Imported};
use forwarder::frame::HeapFrame;
use forwarder::pipeline::{Output, Pipeline, Settings};
use forwarder::registry::{HopId, HopName, PlaceName, Registry};
use forwarder::rules::{Hop, Rules, compile};
use std::collections::BTreeMap;
use wire::{MacAddress, checksum, ethernet, ipv4};

const OLD: &str = "site/old";
const NEW: &str = "site/new";
const FAR: &str = "far/f1";
const NOW: u32 = 1_000;

/// One of two forwarders of a site.
struct Forwarder {
    id: &'static str,
    set: contract::RuleSet,
    registry: Registry,
    rules: Rules,
    pipeline: Pipeline<HeapFrame>,
}

fn port(name: &str) -> contract::Port {
    contract::Port {
        name: name.into(),
        device: Some(contract::port::Device::AfPacket(name.into())),
    }
}

fn peer(id: &str, number: u8) -> contract::Peer {
    contract::Peer {
        id: id.into(),
        address: format!("192.0.2.{number}"),
        alive: true,
        ..Default::default()
    }
}

fn edge(passive: bool) -> contract::Edge {
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

fn attachment(id: &str, stage: u32, passive: bool) -> contract::Attachment {
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

fn end(target: Target) -> Option<contract::StageEnd> {
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
    fn new(
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

    fn hop(&mut self, name: &HopName) -> u16 {
        self.registry.hop(name.clone()).unwrap().0
    }

    /// Remembers a connection at a stage.
    fn remember(&mut self, number: u32, stage: u32, ends: [&HopName; 2]) {
        let hops = Hops {
            upstream: self.hop(ends[0]),
            downstream: self.hop(ends[1]),
            opener: (number / 8 % 2) as u16,
        };
        let place = self.registry.place(stage_place(stage)).unwrap().0;
        self.add(number, place, hops);
    }

    fn add(&mut self, number: u32, place: u16, hops: Hops) {
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
    fn pages(&mut self) -> Vec<contract::FlowPage> {
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

    fn take(&mut self, from: &mut Forwarder) -> Imported {
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
    fn entries(&mut self) -> BTreeMap<String, String> {
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

    fn receive(&mut self, port: &str, frame: &[u8]) -> Output<HeapFrame> {
        let index = self.set.ports.iter().position(|one| one.name == port);
        let mut out = Output::default();
        let frame = HeapFrame::new(frame);
        self.pipeline
            .process(&self.rules, index.unwrap(), frame, NOW, &mut out);
        out
    }

    fn event(&self, name: &str) -> u64 {
        let mut events = self.pipeline.counters.events();
        events
            .find(|(event, _)| *event == name)
            .map_or(0, |(_, count)| count)
    }

    fn drops(&self) -> u64 {
        self.pipeline.counters.drops().map(|(_, count)| count).sum()
    }
}

/// For how many seconds a connection has been silent: whole units of the time of established ones.
fn idle(number: u32) -> u32 {
    number % 3 * 640
}

fn stage_place(stage: u32) -> PlaceName {
    PlaceName::Stage {
        chain: 100,
        egress: 50,
        stage,
    }
}

fn att(id: &str) -> HopName {
    HopName::Attachment(id.into())
}

fn lan() -> HopName {
    HopName::Edge("acme/lan".into())
}

fn to(id: &str) -> HopName {
    HopName::Peer(id.into())
}

#[test]
fn everything_that_moves_is_known_at_the_new_home_by_name() {
    let things = || {
        (
            vec![edge(false)],
            vec![attachment("one", 1, false), attachment("two", 2, false)],
        )
    };
    let (edges, attachments) = things();
    let mut old = Forwarder::new(OLD, edges, attachments, vec![]);
    for number in 0..3_000 {
        old.remember(number, 1, [&lan(), &att("one")]);
        old.remember(number, 2, [&att("one"), &att("two")]);
        old.remember(number, 3, [&att("two"), &to(FAR)]);
        let place = old
            .registry
            .place(PlaceName::Edge("acme/lan".into()))
            .unwrap();
        let upstream = old.registry.place(stage_place(1)).unwrap().0;
        let hops = Hops {
            upstream,
            downstream: (number % 2) as u16,
            opener: 0,
        };
        old.add(number, place.0, hops);
    }
    let mut new = Forwarder::new(
        NEW,
        vec![edge(true)],
        vec![attachment("one", 1, true), attachment("two", 2, true)],
        vec![],
    );
    assert_eq!(
        new.take(&mut old),
        Imported {
            taken: 12_000,
            refused: 0
        }
    );
    assert_eq!(new.entries(), old.entries());
    // A page may come twice.
    assert_eq!(new.take(&mut old).taken, 0);
    assert_eq!(new.entries(), old.entries());
}

#[test]
fn what_stays_is_behind_the_old_home_and_what_meets_becomes_one() {
    let mut old = Forwarder::new(
        OLD,
        vec![edge(false)],
        vec![attachment("one", 1, false), attachment("two", 2, false)],
        vec![],
    );
    // Of a chain edge, one, two, three, far: one and three stay where they are, two moves.
    old.remember(2, 1, [&lan(), &att("one")]);
    old.remember(2, 2, [&att("one"), &att("two")]);
    old.remember(2, 3, [&att("two"), &to(NEW)]);
    // This one the new home has not met: what is behind itself it cannot know.
    old.remember(4, 3, [&att("two"), &to(NEW)]);
    let mut new = Forwarder::new(
        NEW,
        vec![],
        vec![attachment("two", 2, true), attachment("three", 3, false)],
        vec![],
    );
    new.remember(2, 3, [&to(OLD), &att("three")]);
    new.remember(2, 4, [&att("three"), &to(FAR)]);
    assert_eq!(
        new.take(&mut old),
        Imported {
            taken: 2,
            refused: 0
        }
    );
    let state = format!("{:?} {}", State::ALL[2], idle(2));
    let key = |stage| format!("10.1.0.2 {:?}", stage_place(stage));
    let said = |up: HopName, down: HopName| format!("{up:?} {down:?} {state}");
    let want = BTreeMap::from([
        (key(2), said(to(OLD), att("two"))),
        (key(3), said(att("two"), att("three"))),
        (key(4), said(att("three"), to(FAR))),
    ]);
    assert_eq!(new.entries(), want);
}

#[test]
fn a_walk_that_begins_again_ends_the_one_before() {
    let mut old = Forwarder::new(
        OLD,
        vec![edge(false)],
        vec![attachment("one", 1, false)],
        vec![],
    );
    for number in 0..2_000 {
        old.remember(number, 1, [&lan(), &att("one")]);
    }
    assert!(old.pipeline.export(true, 8, NOW).1);
    let entries: usize = old.pages().iter().map(|page| page.flows.len()).sum();
    assert_eq!(entries, 2_000);
    // Nothing is under way: the next page is the first again.
    assert!(old.pipeline.export(false, 8, NOW).1);
}

#[test]
fn a_walk_that_nobody_goes_on_with_ends_after_a_minute() {
    for (passed, ended) in [(60, false), (61, true)] {
        let mut old = Forwarder::new(
            OLD,
            vec![edge(false)],
            vec![attachment("one", 1, false)],
            vec![],
        );
        for number in 0..2_000 {
            old.remember(number, 1, [&lan(), &att("one")]);
        }
        let (first, more) = old.pipeline.export(true, 2_048, NOW);
        assert!(more && first.len() > 100);
        // Another clock's second may be behind the one of the export.
        for now in [NOW - 1, NOW + passed] {
            old.pipeline
                .tick(&old.rules, now, true, &mut Output::default());
        }
        let (rest, _) = old.pipeline.export(false, 1 << 20, NOW + passed);
        // What was met before is met again only by a walk that begins again.
        let key = |entry: &Entry| match entry {
            Entry::V4(entry) => Some(entry.key),
            Entry::V6(_) => None,
        };
        let is_first = |entry| first.iter().any(|one| key(one) == key(entry));
        assert!(rest.len() > 100, "{}", rest.len());
        assert_eq!(rest.iter().any(is_first), ended, "after {passed} s");
    }
}

#[test]
fn a_page_with_a_mistake_is_refused_and_the_field_named() {
    let mut old = Forwarder::new(
        OLD,
        vec![edge(false)],
        vec![attachment("one", 1, false)],
        vec![],
    );
    old.remember(2, 1, [&lan(), &att("one")]);
    let page = old.pages().into_iter().find(|page| !page.flows.is_empty());
    let mut new = Forwarder::new(
        NEW,
        vec![edge(true)],
        vec![attachment("one", 1, true)],
        vec![],
    );
    type Spoil = fn(&mut contract::ImportFlowsRequest);
    fn flow(request: &mut contract::ImportFlowsRequest) -> &mut contract::FlowRecord {
        &mut request.page.as_mut().unwrap().flows[0]
    }
    let cases: [(&str, Spoil); 12] = [
        ("from: \"\" is no sibling", |request| request.from.clear()),
        ("from: \"site/new\" is no sibling", |request| {
            request.from = NEW.into();
        }),
        ("page.hops[0]: name an attachment", |request| {
            request.page.as_mut().unwrap().hops[0].hop = None;
        }),
        ("page.places[0]: name a stage", |request| {
            request.page.as_mut().unwrap().places[0].place = None;
        }),
        ("page.flows[0].place: there is no", |request| {
            flow(request).place = 9;
        }),
        ("page.flows[0].upstream: there is no", |request| {
            flow(request).upstream = 9;
        }),
        ("page.flows[0].downstream: there is no", |request| {
            flow(request).downstream = 9;
        }),
        ("page.flows[0].source: 4 or 16 bytes", |request| {
            flow(request).source.push(0);
        }),
        ("page.flows[0].protocol:", |request| {
            flow(request).protocol = 256;
        }),
        ("page.flows[0].source_port:", |request| {
            flow(request).source_port = 1 << 16;
        }),
        ("page.flows[0].destination_port:", |request| {
            flow(request).destination_port = 1 << 16;
        }),
        ("page.flows[0].state:", |request| flow(request).state = 8),
    ];
    for (want, spoil) in cases {
        let mut request = contract::ImportFlowsRequest {
            from: OLD.into(),
            page: page.clone(),
        };
        spoil(&mut request);
        let problem = exchange::read(&request, NEW, &new.rules, &mut new.registry);
        let problem = problem.err().unwrap_or_default();
        assert!(problem.starts_with(want), "{problem:?}, want {want:?}");
    }
}

fn datagram(source: [u8; 6], ether_type: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 9, 9, 9];
    frame.extend(source);
    frame.extend(ether_type.to_be_bytes());
    let mut packet = ipv4::write(&ipv4::Fields {
        source: [10, 1, 0, 2],
        destination: [198, 51, 100, 1],
        protocol: 17,
        ttl: 64,
        payload_length: 8,
        identification: 0,
        dont_fragment: true,
    })
    .to_vec();
    packet.extend([4, 0, 0, 53, 0, 8, 0, 0]);
    assert_eq!(checksum::fold(checksum::sum(&packet[..20])), 0xffff);
    frame.extend(packet);
    frame
}

#[test]
fn a_passive_interface_gives_nothing_and_drops_nothing() {
    let things = |passive| {
        let mut one = Forwarder::new(
            NEW,
            vec![edge(passive)],
            vec![attachment("one", 1, passive)],
            vec![],
        );
        let host = [2, 0, 0, 0, 0, 1];
        let lan = one.receive("lan", &datagram(host, ethernet::IPV4));
        let vnf = one.receive("vnf", &datagram([2, 0, 0, 2, 0, 1], ethernet::IPV4));
        assert!(lan.ports.iter().chain(&vnf.ports).all(Vec::is_empty));
        (one.drops(), one.event("taken_elsewhere"))
    };
    assert_eq!(things(true), (0, 2));
    // Without classifiers and paths both are drops where the forwarder takes them.
    assert_eq!(things(false), (2, 0));
}

#[test]
fn packets_for_what_moved_go_to_its_new_home() {
    let moved = |hop| contract::MovedHop {
        hop: Some(hop),
        to: NEW.into(),
    };
    let mut old = Forwarder::new(
        OLD,
        vec![],
        vec![attachment("three", 3, false)],
        vec![
            moved(Moved::Attachment("two".into())),
            moved(Moved::Edge("acme/lan".into())),
            moved(Moved::Peer(FAR.into())),
        ],
    );
    for name in [att("two"), lan(), to(FAR), to(NEW)] {
        let id = HopId(old.hop(&name));
        match old.rules.hop(id) {
            Some(Hop::Peer(peer)) => assert_eq!(peer.id, NEW, "{name:?}"),
            other => panic!("{name:?} is {other:?}"),
        }
    }
    // What comes from a peer that others took over from is still known as its own.
    let far = HopId(old.hop(&to(FAR)));
    assert_eq!(old.rules.peers[&"192.0.2.9".parse().unwrap()], far);
}

#[test]
fn what_moved_must_be_somewhere_else() {
    let compiled = |moved: contract::MovedHop| {
        let mut set = Forwarder::new(OLD, vec![edge(false)], vec![], vec![]).set;
        set.moved = vec![moved];
        let macs = [MacAddress::default(); 3];
        compile(&set, &macs, &mut Registry::default())
            .unwrap_err()
            .to_string()
    };
    let moved = |hop, to: &str| contract::MovedHop { hop, to: to.into() };
    for (want, moved) in [
        ("moved[0]: name the", moved(None, NEW)),
        (
            "moved[0].to: \"nobody\"",
            moved(Some(Moved::Edge("x".into())), "nobody"),
        ),
        (
            "moved[0]: a peer cannot",
            moved(Some(Moved::Peer(NEW.into())), NEW),
        ),
        (
            "moved[0]: Edge(\"acme/lan\") is in",
            moved(Some(Moved::Edge("acme/lan".into())), NEW),
        ),
    ] {
        let problem = compiled(moved);
        assert!(problem.starts_with(want), "{problem:?}, want {want:?}");
    }
}

#[test]
fn a_peer_that_is_away_keeps_its_connections_and_gets_no_new_ones() {
    let set = |away, alive| {
        let mut one = Forwarder::new(OLD, vec![edge(false)], vec![], vec![]);
        one.set.peers[0].away = away;
        one.set.peers[0].alive = alive;
        let remote = |id: &str| contract::RemoteTarget {
            peer: id.into(),
            weight: 1,
            prefixes: vec![],
            ..Default::default()
        };
        one.set.paths = vec![contract::ServicePath {
            chain_label: 100,
            egress_label: 50,
            vnf_count: 1,
            stages: vec![contract::Stage {
                number: 1,
                downstream: Some(contract::StageEnd {
                    local: vec![],
                    remote: vec![remote(NEW), remote(FAR)],
                }),
                upstream: end(Target::Edge("acme/lan".into())),
            }],
            ..Default::default()
        }];
        let macs = [MacAddress::default(); 3];
        let rules = compile(&one.set, &macs, &mut one.registry).unwrap();
        let place = one.registry.place(stage_place(1)).unwrap();
        let targets = &rules.stage(place).unwrap().downstream.all;
        let new = HopId(one.hop(&to(NEW)));
        let chosen = (0..100).filter(|&connection: &u64| {
            let hash = connection.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let anywhere = || "192.0.2.1".parse().unwrap();
            targets.choose(hash, anywhere, anywhere) == Some(new)
        });
        (chosen.count() > 0, rules.hop(new).unwrap().is_usable())
    };
    assert_eq!(set(false, true), (true, true));
    assert_eq!(set(true, true), (false, true));
    assert_eq!(set(false, false), (false, false));
}
