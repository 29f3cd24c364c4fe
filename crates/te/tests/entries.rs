//! Entries of the on-line worker's model that are wrong, or refer to what is not there.

use te::json::{Value, parse};
use te::online::Worker;

/// a — b with a site and the VNF at b, the VNF without a price, and a customer.
const LINE: &[(&str, &str)] = &[
    ("node.a", r#"{"id":"a"}"#),
    ("node.b", r#"{"id":"b"}"#),
    (
        "link.ab",
        r#"{"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":10}"#,
    ),
    (
        "link.ba",
        r#"{"id":"ba","from":"b","to":"a","latency_ms":1,"bandwidth_mbps":10}"#,
    ),
    ("site.sb", r#"{"id":"sb","node":"b","capacity":1000}"#),
    (
        "vnf.f",
        r#"{"id":"f","load_per_mbps":1,"deployments":[{"site":"sb","capacity":1000}]}"#,
    ),
    ("customer.gold", r#"{"id":"gold","priority":4}"#),
    ("network", r#"{"max_link_utilization":0.5}"#),
];

/// What chain.x is: 3 of the 5 Mbit/s that link ab may carry.
const HELD: &str = r#"{"id":"x","ingress":"a","egress":"b","vnfs":["f"],"customer":"gold","forward_mbps":3,
    "routes":[{"fraction":1,"ingress":"a","sites":["sb"],"egress":"b"}],"reserved":[{"vnf":"f","site":"sb","load":6}]}"#;

fn value(text: &str) -> Value {
    parse(text.as_bytes()).expect("JSON")
}

fn line() -> Worker {
    let mut worker = Worker::new();
    for (key, text) in LINE {
        worker.set(key, Some(value(text))).expect(key);
    }
    worker.set("chain.x", Some(value(HELD))).expect("chain");
    worker
}

/// The share of a chain of 4 Mbit/s that fits beside the others.
fn share(worker: &mut Worker) -> f64 {
    let chain =
        r#"{"chain":{"id":"new","ingress":"a","egress":"b","vnfs":["f"],"forward_mbps":4}}"#;
    worker.route(&value(chain)).expect("routed").share
}

/// Wrong values, each with the place that the refusal names.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "node.a",
        r#"{"id":"a","latitude":91,"longitude":0}"#,
        "/latitude",
    ),
    ("node.a", r#"{"id":"a","latitude":1}"#, "longitude"),
    ("node.a", r#"{"id":7}"#, "'id'"),
    (
        "link.ab",
        r#"{"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":-5}"#,
        "/bandwidth_mbps: -5",
    ),
    (
        "link.ab",
        r#"{"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":"NaN"}"#,
        "/bandwidth_mbps",
    ),
    (
        "link.ab",
        r#"{"id":"ab","from":"a","to":"b","latency_ms":1}"#,
        "'bandwidth_mbps' is missing",
    ),
    (
        "link.ab",
        r#"{"id":"ab","from":"a","to":"a","latency_ms":1,"bandwidth_mbps":5}"#,
        "/to",
    ),
    (
        "link.ab",
        r#"{"id":"ab","from":"","to":"b","latency_ms":1,"bandwidth_mbps":5}"#,
        "/from",
    ),
    (
        "site.sb",
        r#"{"id":"sb","node":"b","capacity":0}"#,
        "/capacity",
    ),
    (
        "site.sb",
        r#"{"id":"sb","node":["b"],"capacity":1}"#,
        "/node",
    ),
    (
        "vnf.f",
        r#"{"id":"f","load_per_mbps":1,"deployments":[{"site":"sb","capacity":-1}]}"#,
        "/deployments/0/capacity",
    ),
    (
        "vnf.f",
        r#"{"id":"f","deployments":[]}"#,
        "'load_per_mbps' is missing",
    ),
    (
        "customer.gold",
        r#"{"id":"gold","priority":0}"#,
        "/priority",
    ),
    (
        "network",
        r#"{"max_link_utilization":0}"#,
        "/max_link_utilization",
    ),
    (
        "network",
        r#"{"routing":{"kind":"fractions","entries":[{"from":"a","to":"b","link":"ab","fraction":2}]}}"#,
        "/routing/entries/0/fraction",
    ),
    (
        "chain.x",
        r#"{"id":"x","ingress":"a","egress":"b","vnfs":[],"forward_mbps":-1}"#,
        "/forward_mbps",
    ),
    (
        "chain.x",
        r#"{"id":"x","ingress":"a","egress":"b","vnfs":[],"forward_mbps":1,"max_routes":0.5}"#,
        "/max_routes",
    ),
    (
        "chain.x",
        r#"{"id":"x","ingress":"a","egress":"b","vnfs":["f"]}"#,
        "'forward_mbps' is missing",
    ),
    (
        "chain.x",
        r#"{"id":"x","ingress":"a","egress":"b","vnfs":[],"forward_mbps":1,"routes":[{"fraction":1}]}"#,
        "/routes/0",
    ),
    (
        "chain.x",
        r#"{"reserved":[{"vnf":"f","site":"sb","load":-6}]}"#,
        "/reserved/0/load",
    ),
    (
        "chain.x",
        r#"{"reserved":[],"max_latency_ms":5}"#,
        "/max_latency_ms",
    ),
];

#[test]
fn a_wrong_value_is_refused_by_name_and_the_one_before_stays_in_force() {
    for (key, text, place) in WRONG {
        // Also where nothing was compiled when it came.
        for compiled in [true, false] {
            let mut worker = line();
            if compiled {
                assert_eq!(share(&mut worker), 0.5, "2 of 4 Mbit/s");
            }
            let refused = worker
                .set(key, Some(value(text)))
                .expect_err(text)
                .to_string();
            assert!(refused.contains(place), "{key} {text}: {refused}");
            let named = worker.refused();
            assert_eq!(
                (named.len(), &named[0].key[..], &named[0].reason),
                (1, *key, &refused)
            );
            assert_eq!(share(&mut worker), 0.5, "{key} {text}");
        }
    }
}

#[test]
fn a_wrong_value_without_one_before_counts_as_absent() {
    for (key, text, _) in WRONG.iter().filter(|(key, _, _)| !key.starts_with("node")) {
        let mut worker = line();
        let other = format!("{key}2");
        worker.set(&other, Some(value(text))).expect_err(text);
        assert_eq!(share(&mut worker), 0.5, "{other} {text}");
    }
}

#[test]
fn what_was_refused_is_named_until_it_is_mended_or_goes() {
    let wrong = |worker: &mut Worker| {
        worker
            .set("site.sb", Some(value(r#"{"id":"sb"}"#)))
            .expect_err("wrong");
        assert_eq!(worker.refused().len(), 1);
    };
    let mut worker = line();
    wrong(&mut worker);
    worker
        .set("site.sb", Some(value(LINE[4].1)))
        .expect("mended");
    assert_eq!(worker.refused(), []);
    wrong(&mut worker);
    worker.set("site.sb", None).expect("removed");
    assert_eq!(worker.refused(), []);
    wrong(&mut worker);
    worker.retain(|key| key != "site.sb");
    assert_eq!(worker.refused(), []);
    let no_json = parse(&b"{"[..]).expect_err("cut short");
    worker.refuse("site.sb", &no_json);
    assert_eq!(worker.refused()[0].key, "site.sb");
}

/// Every order in which each entry comes once, but for rotations: each comes first, and each comes before and after each other.
#[test]
fn entries_may_come_in_any_order_with_questions_between_them() {
    let mut entries: Vec<(&str, &str)> = LINE.to_vec();
    entries.push(("chain.x", HELD));
    for turn in 0..entries.len() {
        for backwards in [false, true] {
            let mut order = entries.clone();
            order.rotate_left(turn);
            if backwards {
                order.reverse();
            }
            let mut worker = Worker::new();
            for (key, text) in order {
                worker.set(key, Some(value(text))).expect(key);
                // Whatever it says: it must not change what is said in the end.
                let _ = worker.load("link ab");
            }
            assert_eq!(
                (share(&mut worker), worker.waiting()),
                (0.5, vec![]),
                "{turn} {backwards}"
            );
            assert_eq!(worker.load("site sb"), Ok(Some(6.0)));
        }
    }
}

#[test]
fn what_refers_to_something_absent_waits_for_it_and_stops_nothing_else() {
    let mut worker = line();
    for (key, text) in [
        (
            "link.ac",
            r#"{"id":"ac","from":"a","to":"c","latency_ms":1,"bandwidth_mbps":10}"#,
        ),
        (
            "link.bare",
            r#"{"id":"bare","from":"a","to":"b","bandwidth_mbps":10}"#,
        ),
        ("site.sc", r#"{"id":"sc","node":"c","capacity":10}"#),
        (
            "vnf.f",
            r#"{"id":"f","load_per_mbps":1,"deployments":[{"site":"sc","capacity":9},{"site":"sb","capacity":1000}]}"#,
        ),
        (
            "network",
            r#"{"max_link_utilization":0.5,"routing":{"kind":"fractions","entries":[{"from":"a","to":"b","link":"gone","fraction":1}]}}"#,
        ),
        (
            "chain.y",
            r#"{"id":"y","ingress":"c","egress":"b","vnfs":["g"],"customer":"tin","forward_mbps":1}"#,
        ),
    ] {
        worker.set(key, Some(value(text))).expect(key);
    }
    assert_eq!((share(&mut worker), worker.refused()), (0.5, vec![]));
    let waiting = worker.waiting();
    let keys: Vec<&str> = waiting.iter().map(|w| &w.key[..]).collect();
    assert_eq!(
        keys,
        ["link.ac", "link.bare", "site.sc", "vnf.f", "network"]
    );
    for (notice, wanted) in waiting.iter().zip([
        "/to: there is no node 'c' yet",
        "the node 'a' has no coordinates",
        "/node: there is no node 'c' yet",
        "/deployments/0/site: there is no site 'sc' yet",
        "/routing/entries/0/link: there is no link 'gone'",
    ]) {
        assert!(notice.reason.contains(wanted), "{notice:?}");
    }
    worker
        .set("node.c", Some(value(r#"{"id":"c"}"#)))
        .expect("node");
    let keys: Vec<String> = worker.waiting().into_iter().map(|w| w.key).collect();
    assert_eq!(keys, ["link.bare", "network"]);
    assert_eq!(
        worker.load("VNF f at site sc"),
        Ok(Some(0.0)),
        "the site has come with its node"
    );
}
