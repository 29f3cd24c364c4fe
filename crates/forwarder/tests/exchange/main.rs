//! Connections that move from one forwarder of a site to another.

mod sibling;

use contracts::forwarder as contract;
use contracts::forwarder::local_target::Target;
use contracts::forwarder::moved_hop::Hop as Moved;
use flow::{Hops, State};
use forwarder::exchange::{self, Entry, Imported};
use forwarder::pipeline::Output;
use forwarder::registry::{HopId, HopName, PlaceName, Registry};
use forwarder::rules::{Hop, compile};
use sibling::*;
use std::collections::BTreeMap;
use wire::{MacAddress, checksum, ethernet, ipv4};

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
