//! Every drop counter has something that raises it, and tells of which stage it is where that is known.

use crate::ends::{cases, raised};
use crate::frames::{packet, tuple};
use crate::network::Network;
use crate::plan::{Plan, chain, instance};
use forwarder::counters::Drop;
use forwarder::registry::PlaceId;
use forwarder::rules::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use wire::ParseError;
use wire::steering::Direction;

/// Counters that no frame given to a pipeline raises, or more than one, and the tests that raise them: file and name.
const ELSEWHERE: [(&str, &str, &str); 10] = [
    ("filter_refused", "test/forwarder/ports.rs", "filters"),
    (
        "frame_too_long",
        "crates/forwarder/tests/buffers.rs",
        "a_frame_that_is_too_long_and_one_that_finds_no_buffer_have_their_names",
    ),
    (
        "handover_full",
        "crates/forwarder/src/handover.rs",
        "what_finds_no_room_is_dropped_and_counted",
    ),
    (
        "neighbour_crowded",
        "crates/forwarder/tests/promises/limits.rs",
        "packets_wait_for_a_neighbour_and_are_given_up_when_it_stays_silent",
    ),
    (
        "neighbour_unresolved",
        "crates/forwarder/tests/promises/limits.rs",
        "packets_wait_for_a_neighbour_and_are_given_up_when_it_stays_silent",
    ),
    (
        "no_buffer",
        "crates/forwarder/tests/buffers.rs",
        "a_frame_that_is_too_long_and_one_that_finds_no_buffer_have_their_names",
    ),
    (
        "no_headroom",
        "crates/forwarder/tests/promises/ends.rs",
        "a_frame_without_room_in_front_is_counted",
    ),
    (
        "offload_unknown",
        "crates/forwarder/tests/promises/segments.rs",
        "a_size_that_makes_no_sense_is_dropped_by_name",
    ),
    (
        "port_full",
        "crates/forwarder/src/handover.rs",
        "frames_leave_by_the_worker_that_has_the_port",
    ),
    (
        "port_overrun",
        "test/forwarder/steering.rs",
        "packets_that_nobody_takes_in_time_are_counted",
    ),
];

/// Asserts that a test, which raises a counter, is there and speaks of it.
fn assert_raised(name: &str, file: &str, test: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join(file)).expect(file);
    let (_, behind) = text.split_once(&format!("fn {test}(")).expect(test);
    let body = behind.split("#[test]").next().unwrap_or_default();
    let variant: String = name.split('_').map(capitalised).collect();
    let speaks =
        body.contains(&format!("\"{name}\"")) || body.contains(&format!("Drop::{variant}"));
    assert!(speaks, "{test} in {file} does not speak of {name}");
}

fn capitalised(word: &str) -> String {
    word[..1].to_uppercase() + &word[1..]
}

#[test]
fn every_drop_has_a_frame_that_raises_its_counter_and_no_other() {
    let mut shown = BTreeSet::new();
    for mut case in cases() {
        let expected = BTreeMap::from([(case.name, 1)]);
        assert_eq!(
            raised(&mut case),
            expected,
            "{}: {:x?}",
            case.name,
            case.frame
        );
        assert!(shown.insert(case.name), "{} is listed twice", case.name);
    }
    for (name, file, test) in ELSEWHERE {
        assert_raised(name, file, test);
        assert!(shown.insert(name), "{name} is listed twice");
    }
    let parse = ParseError::ALL.iter().map(|error| error.name());
    let all: BTreeSet<_> = parse
        .chain(Drop::ALL.iter().map(|drop| drop.name()))
        .collect();
    assert_eq!(
        shown, all,
        "a frame for every counter, and no counter that is none"
    );
}

/// What is dropped at a stage: the site, the stage's number, the direction and the reason.
type AtStage = (usize, u8, Direction, &'static str);

/// Packets dropped at stages so far.
fn at_stages(network: &Network) -> BTreeMap<AtStage, u64> {
    let mut all = BTreeMap::new();
    for (site, node) in network.nodes.iter().enumerate() {
        let counters = node.counters();
        for (number, place) in node.rules.places.iter().enumerate() {
            for direction in [Direction::Forward, Direction::Reverse] {
                for (reason, count) in counters.stage_drops((PlaceId(number as u16), direction)) {
                    let Some(Place::Stage(stage)) = place else {
                        panic!("{reason} at place {number}, which is no stage");
                    };
                    all.insert((site, stage.number, direction, reason), count);
                }
            }
        }
    }
    all
}

#[test]
fn a_drop_whose_stage_is_known_is_counted_there_once() {
    let mut seen = BTreeMap::new();
    for mut case in cases() {
        let before = at_stages(&case.network);
        raised(&mut case);
        let mut after = at_stages(&case.network);
        after.retain(|at, count| before.get(at) != Some(count));
        assert!(after.len() <= 1, "{}: {after:?}", case.name);
        if let Some((&(site, stage, direction, reason), &count)) = after.first_key_value() {
            assert_eq!((reason, count), (case.name, 1));
            seen.insert(reason, (site, stage, direction));
        }
    }
    let forward = |site, stage| (site, stage, Direction::Forward);
    let expected = BTreeMap::from([
        ("attachment_multicast", forward(1, 2)),
        ("edge_no_next_hop", forward(1, 3)),
        ("hop_gone", forward(0, 1)),
        ("inner_not_ip", forward(1, 1)),
        ("loop_guard", forward(1, 1)),
        ("mtu_exceeded", forward(0, 1)),
        ("no_target", forward(0, 1)),
    ]);
    assert_eq!(seen, expected);
}

#[test]
fn a_packet_that_waited_in_vain_is_counted_at_its_stage() {
    let vnfs = vec![vec![instance(1, "a", 100)]];
    let mut network = Network::new(Plan::new(2, chain(0, vnfs, 1)));
    let chain = network.plan.chains[0].clone();
    let asked = tuple("10.1.0.5", 4000, "10.2.0.9", 80, 17);
    assert_eq!(
        network.send(&chain.ingress, &packet(&asked, 0, 16)).len(),
        1
    );
    network.silent = true;
    // Nobody has asked for this host yet.
    let answer = tuple("10.2.0.9", 80, "10.1.0.77", 4000, 17);
    assert!(
        network
            .send(&chain.egress, &packet(&answer, 0, 16))
            .is_empty()
    );
    for _ in 0..5 {
        network.tick();
    }
    let waited = (0, 1, Direction::Reverse, "neighbour_unresolved");
    assert_eq!(at_stages(&network), BTreeMap::from([(waited, 1)]));
    assert_eq!(network.drops(), BTreeMap::from([(waited.3, 1)]));
}
