//! The on-line worker: entries of a model come and go, one chain is routed at the loads of the others, and moves are
//! planned.

use te::error::{Error, Reason};
use te::json::{Value, parse};
use te::online::{Answer, Worker};
use te::solution::{Objective, Status};

/// a —fast (1 ms, 10 Mbit/s)— b and a —slow (5 ms each)— c — b; a site with the VNF at b and at c.
const DIAMOND: &[(&str, &str)] = &[
    ("node.a", r#"{"id":"a"}"#),
    ("node.b", r#"{"id":"b"}"#),
    ("node.c", r#"{"id":"c"}"#),
    (
        "link.ab",
        r#"{"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":10}"#,
    ),
    (
        "link.ba",
        r#"{"id":"ba","from":"b","to":"a","latency_ms":1,"bandwidth_mbps":10}"#,
    ),
    (
        "link.ac",
        r#"{"id":"ac","from":"a","to":"c","latency_ms":5,"bandwidth_mbps":100}"#,
    ),
    (
        "link.ca",
        r#"{"id":"ca","from":"c","to":"a","latency_ms":5,"bandwidth_mbps":100}"#,
    ),
    (
        "link.cb",
        r#"{"id":"cb","from":"c","to":"b","latency_ms":5,"bandwidth_mbps":100}"#,
    ),
    (
        "link.bc",
        r#"{"id":"bc","from":"b","to":"c","latency_ms":5,"bandwidth_mbps":100}"#,
    ),
    ("site.sb", r#"{"id":"sb","node":"b","capacity":1000}"#),
    ("site.sc", r#"{"id":"sc","node":"c","capacity":1000}"#),
    (
        "vnf.f",
        r#"{"id":"f","load_per_mbps":1,"deployments":[{"site":"sb","capacity":1000},{"site":"sc","capacity":1000}]}"#,
    ),
];

fn value(text: &str) -> Value {
    parse(text.as_bytes()).expect("JSON")
}

fn set(worker: &mut Worker, key: &str, text: &str) {
    worker.set(key, Some(value(text))).expect(key);
}

fn diamond() -> Worker {
    let mut worker = Worker::new();
    for (key, text) in DIAMOND {
        set(&mut worker, key, text);
    }
    worker
}

/// A chain from a to b through f.
fn chain(id: &str, mbps: f64, more: &str) -> String {
    format!(
        r#"{{"id":"{id}","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":{mbps}{more}}}"#
    )
}

fn route(worker: &mut Worker, chain: &str, more: &str) -> Answer {
    worker
        .route(&value(&format!(r#"{{"chain":{chain}{more}}}"#)))
        .expect("routed")
}

/// What a chain holds that goes over one site with all of its traffic.
fn held(site: &str, load: f64) -> String {
    format!(
        r#","routes":[{{"fraction":1,"ingress":"a","sites":["{site}"],"egress":"b"}}],"reserved":[{{"vnf":"f","site":"{site}","load":{load}}}]"#
    )
}

fn load(worker: &mut Worker, row: &str) -> f64 {
    worker.load(row).expect("a model").expect(row)
}

#[test]
fn a_chain_is_admitted_while_there_is_room_and_then_refused_with_what_is_scarce() {
    let mut worker = diamond();
    let near = r#","max_latency_ms":2"#;
    let first = route(&mut worker, &chain("one", 6.0, near), "");
    assert!(first.admitted && first.scarce.is_empty());
    assert_eq!(
        (first.routes[0].sites.as_slice(), first.routes[0].latency_ms),
        (&["sb".to_owned()][..], 1.0)
    );
    assert_eq!(
        load(&mut worker, "link ab"),
        0.0,
        "a proposal holds nothing"
    );
    set(
        &mut worker,
        "chain.one",
        &chain("one", 6.0, &held("sb", 12.0)),
    );
    assert_eq!(load(&mut worker, "link ab"), 6.0);
    let refused = route(&mut worker, &chain("two", 6.0, near), "");
    assert!(
        !refused.admitted && (refused.share - 4.0 / 6.0).abs() < 1e-6,
        "{refused:?}"
    );
    assert_eq!(refused.scarce, ["link ab"]);
    let far = route(&mut worker, &chain("two", 6.0, ""), "");
    assert!(far.admitted, "the long way has room: {far:?}");
    let loads: Vec<f64> = ["link ab", "link ac", "site sb", "VNF f at site sb"]
        .map(|r| load(&mut worker, r))
        .into();
    assert_eq!(loads, [6.0, 0.0, 12.0, 12.0]);
}

#[test]
fn a_chain_does_not_stand_in_its_own_way() {
    let mut worker = diamond();
    let near = r#","max_latency_ms":2"#;
    set(
        &mut worker,
        "chain.one",
        &chain("one", 6.0, &held("sb", 12.0)),
    );
    assert!(
        route(&mut worker, &chain("one", 10.0, near), "").admitted,
        "it may grow to what the link carries"
    );
    assert!(!route(&mut worker, &chain("one", 10.1, near), "").admitted);
}

#[test]
fn limits_and_plans_of_others_count() {
    let mut worker = diamond();
    let denied = route(
        &mut worker,
        &chain("one", 6.0, ""),
        r#","limits":[{"vnf":"f","site":"sb","load":6},{"vnf":"f","site":"gone","load":1}]"#,
    );
    let by = |site: &str| {
        denied
            .routes
            .iter()
            .filter(|r| r.sites == [site])
            .map(|r| r.fraction)
            .sum::<f64>()
    };
    assert!(
        denied.admitted && by("sb") <= 0.5 + 1e-9 && by("sc") >= 0.5 - 1e-9,
        "{denied:?}"
    );
    let both =
        r#","planned":[{"vnf":"f","site":"sb","load":1000},{"vnf":"f","site":"sc","load":994}]"#;
    let crowded = route(&mut worker, &chain("one", 6.0, ""), both);
    assert!(
        !crowded.admitted && crowded.scarce.iter().any(|s| s.ends_with("site sc")),
        "{crowded:?}"
    );
    assert!(
        route(&mut worker, &chain("one", 6.0, ""), "").admitted,
        "what was planned is forgotten"
    );
    // A VNF that nobody can be about to use is a mistake; a site may have gone.
    let planned = |vnf: &str, site: &str| {
        let text = format!(
            r#"{{"chain":{},"planned":[{{"vnf":"f","site":"sb","load":1}},{{"vnf":"{vnf}","site":"{site}","load":1}}]}}"#,
            chain("one", 6.0, "")
        );
        diamond().route(&value(&text))
    };
    assert!(planned("f", "gone").expect("good").admitted);
    let Err(Error::Input(refused)) = planned("nosuch", "sb") else {
        panic!("an unknown VNF is taken");
    };
    assert_eq!(
        (refused.pointer.as_str(), refused.reason),
        ("/planned/1/vnf", Reason::DanglingReference)
    );
    assert!(refused.message.contains("'nosuch'"), "{refused}");
}

#[test]
fn increments_change_what_is_answered() {
    let mut worker = diamond();
    let near = chain("one", 6.0, r#","max_latency_ms":2"#);
    assert!(route(&mut worker, &near, "").admitted);
    set(
        &mut worker,
        "link.ab",
        r#"{"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":3}"#,
    );
    assert!(
        (route(&mut worker, &near, "").share - 0.5).abs() < 1e-6,
        "the link became smaller"
    );
    set(
        &mut worker,
        "vnf.f",
        r#"{"id":"f","load_per_mbps":1,"deployments":[{"site":"sc","capacity":1000}]}"#,
    );
    let away = route(&mut worker, &near, "");
    assert!(
        !away.admitted && away.routes.is_empty(),
        "only the far site is left: {away:?}"
    );
    set(
        &mut worker,
        "chain.other",
        &chain("other", 50.0, &held("sc", 100.0)),
    );
    assert_eq!(load(&mut worker, "VNF f at site sc"), 100.0);
    set(
        &mut worker,
        "chain.other",
        &chain("other", 20.0, &held("sc", 40.0)),
    );
    assert_eq!(
        (
            load(&mut worker, "VNF f at site sc"),
            load(&mut worker, "link ac")
        ),
        (40.0, 20.0),
        "measured demand"
    );
    worker.set("chain.other", None).expect("removed");
    assert_eq!(load(&mut worker, "VNF f at site sc"), 0.0);
}

#[test]
fn what_went_while_nobody_looked_is_forgotten() {
    let mut worker = diamond();
    set(
        &mut worker,
        "chain.one",
        &chain("one", 6.0, &held("sb", 12.0)),
    );
    set(
        &mut worker,
        "chain.two",
        &chain("two", 3.0, &held("sb", 6.0)),
    );
    worker.retain(|key| key != "chain.one");
    assert_eq!((worker.size(), load(&mut worker, "link ab")), ((1, 3), 3.0));
}

#[test]
fn routes_through_what_has_gone_load_what_is_left() {
    let mut worker = diamond();
    set(
        &mut worker,
        "chain.one",
        &chain("one", 6.0, &held("sc", 12.0)),
    );
    worker
        .set(
            "vnf.f",
            Some(value(r#"{"id":"f","load_per_mbps":1,"deployments":[]}"#)),
        )
        .expect("known kind");
    assert_eq!(
        (load(&mut worker, "link ac"), load(&mut worker, "site sc")),
        (6.0, 12.0)
    );
    let refused = worker
        .route(&value(&format!(r#"{{"chain":{}}}"#, chain("two", 1.0, ""))))
        .expect_err("nowhere deployed");
    assert!(
        refused.to_string().contains("deployed nowhere"),
        "{refused}"
    );
}

#[test]
fn mistakes_are_named_and_change_nothing() {
    let mut worker = diamond();
    for (key, text, wanted) in [
        ("colour.red", "{}", "no entry of a model"),
        ("chain.one", "7", "must be an object"),
        (
            "chain.one",
            r#"{"routes":[{"fraction":-1,"ingress":"a","sites":[],"egress":"b"}]}"#,
            "/routes/0/fraction",
        ),
        (
            "chain.one",
            r#"{"reserved":[{"vnf":"f","site":"sb"}]}"#,
            "'load' is missing",
        ),
    ] {
        // Entries of chains are read when the model is compiled.
        let _ = worker.load("link ab");
        let refused = worker
            .set(key, Some(value(text)))
            .expect_err(text)
            .to_string();
        assert!(refused.contains(wanted), "{refused}");
    }
    assert_eq!(load(&mut worker, "link ab"), 0.0);
}

#[test]
fn the_order_of_entries_does_not_matter() {
    let mut entries: Vec<(String, String)> = DIAMOND
        .iter()
        .map(|(k, t)| ((*k).to_owned(), (*t).to_owned()))
        .collect();
    entries.push(("chain.one".into(), chain("one", 6.0, &held("sb", 12.0))));
    entries.push(("chain.two".into(), chain("two", 9.0, &held("sc", 18.0))));
    let answer = |entries: &mut dyn Iterator<Item = &(String, String)>| {
        let mut worker = Worker::new();
        for (key, text) in entries {
            set(&mut worker, key, text);
        }
        route(&mut worker, &chain("new", 5.0, ""), "")
    };
    assert_eq!(
        answer(&mut entries.iter()),
        answer(&mut entries.iter().rev())
    );
}

#[test]
fn a_plan_of_moves_names_those_who_gain_and_by_how_much() {
    let mut worker = diamond();
    // Each is on the way that the other should have: the small one could take the fast link.
    set(
        &mut worker,
        "chain.small",
        &chain("small", 9.0, &held("sc", 18.0)),
    );
    let plan = worker
        .moves(
            Objective::Latency,
            0.0,
            &Default::default(),
            &Default::default(),
        )
        .expect("fits");
    assert_eq!(plan.solution.status, Status::Optimal);
    let planned = &plan.moves[0];
    assert_eq!(
        (plan.moves.len(), planned.chain.as_str(), planned.latency_ms),
        (1, "small", (10.0, 1.0))
    );
    assert!(
        (planned.gain - 81.0).abs() < 0.1 && (planned.relative - 0.9).abs() < 0.01,
        "{planned:?}"
    );
    assert_eq!(planned.routes[0].sites, ["sb"]);
    let none = worker
        .moves(
            Objective::Latency,
            0.95,
            &Default::default(),
            &Default::default(),
        )
        .expect("fits");
    assert!(none.moves.is_empty(), "nobody gains 95 %");
    set(
        &mut worker,
        "chain.small",
        &chain("small", 9.0, &held("sb", 18.0)),
    );
    let settled = worker
        .moves(
            Objective::Latency,
            0.01,
            &Default::default(),
            &Default::default(),
        )
        .expect("fits");
    assert!(settled.moves.is_empty(), "{:?}", settled.moves);
}

#[test]
fn what_drains_is_no_room_for_moves() {
    let mut worker = diamond();
    let reserved = r#","routes":[{"fraction":1,"ingress":"a","sites":["sc"],"egress":"b"}],
        "reserved":[{"vnf":"f","site":"sc","load":18},{"vnf":"f","site":"sb","load":995}]"#;
    set(&mut worker, "chain.small", &chain("small", 9.0, reserved));
    let plan = worker
        .moves(
            Objective::Latency,
            0.01,
            &Default::default(),
            &Default::default(),
        )
        .expect("fits");
    let moved: f64 = plan
        .moves
        .iter()
        .flat_map(|m| &m.routes)
        .filter(|r| r.sites == ["sb"])
        .map(|r| r.fraction)
        .sum();
    assert!(
        moved <= 5.0 / 18.0 + 1e-6,
        "only 5 load units are free at sb: {:?}",
        plan.moves
    );
}

#[test]
fn chains_that_cannot_be_routed_are_left_out_of_the_plan() {
    let mut worker = diamond();
    set(
        &mut worker,
        "chain.ghost",
        &chain("ghost", 5.0, "").replace("\"f\"", "\"g\""),
    );
    let plan = worker
        .moves(
            Objective::Latency,
            0.0,
            &Default::default(),
            &Default::default(),
        )
        .expect("fits");
    assert_eq!(plan.left_out, ["ghost"]);
}

#[test]
fn a_chain_that_its_own_limits_exclude_is_told_which() {
    let mut worker = diamond();
    for (limits, excluded) in [
        (
            r#","max_latency_ms":0.5"#,
            &["chain x: the limit is 0.5 ms, the fastest route takes 1"][..],
        ),
        (
            r#","avoid":{"sites":["sb","sc"]}"#,
            &["chain x: must avoid site sb", "chain x: must avoid site sc"],
        ),
        (r#","use":{"links":["ba"]}"#, &["chain x: must use link ba"]),
    ] {
        let refused = route(&mut worker, &chain("x", 1.0, limits), "");
        assert!(!refused.admitted && refused.scarce.is_empty());
        assert_eq!(refused.excluded, excluded, "{limits}");
    }
}

#[test]
fn the_whole_network_and_customers_have_entries() {
    let mut worker = diamond();
    set(
        &mut worker,
        "customer.gold",
        r#"{"id":"gold","priority":4}"#,
    );
    let customer = chain("x", 4.0, r#","customer":"gold","max_latency_ms":2"#);
    assert!(route(&mut worker, &customer, "").admitted);
    // Half of the fast link's 10 Mbit/s is 5, and a third less than 4.
    set(&mut worker, "network", r#"{"max_link_utilization":0.3}"#);
    let refused = route(&mut worker, &customer, "");
    assert!(
        !refused.admitted && (refused.share - 0.75).abs() < 1e-6,
        "{refused:?}"
    );
    assert_eq!(refused.scarce, ["link ab"]);
    // Stated routing instead of shortest paths: a to b over c.
    let entries = [
        ("a", "b", "ac"),
        ("a", "b", "cb"),
        ("a", "c", "ac"),
        ("c", "b", "cb"),
    ]
    .map(|(from, to, link)| {
        format!(r#"{{"from":"{from}","to":"{to}","link":"{link}","fraction":1}}"#)
    })
    .join(",");
    let network = format!(r#"{{"routing":{{"kind":"fractions","entries":[{entries}]}}}}"#);
    set(&mut worker, "network", &network);
    let around = route(&mut worker, &chain("x", 4.0, ""), "");
    assert!(
        around.admitted && around.routes[0].latency_ms == 10.0,
        "{around:?}"
    );
    worker.retain(|key| key != "network");
    let again = route(&mut worker, &chain("x", 4.0, ""), "");
    assert_eq!(again.routes[0].latency_ms, 1.0);
    let wrong = worker.set("network", Some(value(r#"{"beta":1}"#)));
    assert!(wrong.expect_err("unknown").to_string().contains("/beta"));
}

#[test]
fn a_link_full_of_background_takes_no_chain_and_stops_no_other() {
    let mut worker = diamond();
    let full = r#"{"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":10,"background_mbps":15}"#;
    set(&mut worker, "link.ab", full);
    let over_c = route(
        &mut worker,
        &chain("x", 4.0, r#","avoid":{"links":["ab"]}"#),
        "",
    );
    assert!(over_c.admitted, "{over_c:?}");
    let over_ab = route(
        &mut worker,
        &chain("x", 4.0, r#","use":{"links":["ab"]}"#),
        "",
    );
    assert!(!over_ab.admitted, "{over_ab:?}");
    assert!(
        over_ab
            .excluded
            .iter()
            .any(|e| e.starts_with("link ab: has 0 Mbit/s")),
        "{over_ab:?}"
    );
}

#[test]
fn entries_that_cannot_stand_beside_the_others_are_refused() {
    let mut worker = diamond();
    for (key, text, wanted) in [
        (
            "link.other",
            r#"{"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":10}"#,
            "link.ab already",
        ),
        ("site.x", r#"{"node":"a","capacity":1}"#, "needs an 'id'"),
        ("node.x", "7", "needs an 'id'"),
    ] {
        let refused = worker
            .set(key, Some(value(text)))
            .expect_err(key)
            .to_string();
        assert!(refused.contains(wanted), "{key}: {refused}");
    }
    // What was refused is not there.
    assert!(route(&mut worker, &chain("x", 1.0, ""), "").admitted);
    let wrong = worker.set("chain.x", Some(value(r#"{"id":"x","colour":1}"#)));
    assert!(wrong.expect_err("unknown").to_string().contains("/colour"));
}
