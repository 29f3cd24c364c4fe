//! Routing that a model states as fractions: what a solve makes of it, and what is refused.

use te::error::Reason;
use te::instance::{Demand, Instance};
use te::lp;
use te::model::Model;
use te::solution::Objective;

/// A diamond: from a to d a quarter goes over b, the rest over c; further entries go in at MORE.
const MODEL: &str = r#"{
 "nodes": [{"id":"a"},{"id":"b"},{"id":"c"},{"id":"d"}],
 "links": [
  {"id":"ab","from":"a","to":"b","latency_ms":1,"bandwidth_mbps":100},{"id":"bd","from":"b","to":"d","latency_ms":1,"bandwidth_mbps":100},
  {"id":"ac","from":"a","to":"c","latency_ms":2,"bandwidth_mbps":150},{"id":"cd","from":"c","to":"d","latency_ms":2,"bandwidth_mbps":150},
  {"id":"bc","from":"b","to":"c","latency_ms":1,"bandwidth_mbps":100},{"id":"cb","from":"c","to":"b","latency_ms":1,"bandwidth_mbps":100},
  {"id":"da","from":"d","to":"a","latency_ms":1,"bandwidth_mbps":100}],
 "routing": {"kind":"fractions","entries":[
  {"from":"a","to":"d","link":"ab","fraction":0.25},{"from":"a","to":"d","link":"bd","fraction":0.25},
  {"from":"a","to":"d","link":"ac","fraction":0.75},{"from":"a","to":"d","link":"cd","fraction":0.75}MORE]},
 "sites": [], "vnfs": [],
 "chains": [{"id":"x","ingress":"a","egress":"d","vnfs":[],"forward_mbps":100}]}"#;

fn entry(link: &str, fraction: f64) -> String {
    format!(r#",{{"from":"a","to":"d","link":"{link}","fraction":{fraction}}}"#)
}

/// The model with further shares of the same pair.
fn read(more: &[(&str, f64)]) -> Result<Model, te::error::InputError> {
    let more: String = more
        .iter()
        .map(|(link, share)| entry(link, *share))
        .collect();
    Model::read(MODEL.replace("MORE", &more).as_bytes())
}

#[test]
fn the_stated_shares_load_the_links() {
    let model = read(&[]).expect("a model");
    let instance = Instance::new(&model, Demand::Full).expect("an instance");
    let options = lp::Options::default();
    let scale = lp::solve(
        &model,
        &instance,
        Objective::Scale,
        &options,
        &lp::Monitor::default(),
    );
    // Three quarters of 100 Mbit/s fill half of 150.
    let scale = scale.expect("a routing").value;
    assert!((scale - 2.0).abs() < 1e-6, "{scale}");
    let latency = lp::solve(
        &model,
        &instance,
        Objective::Latency,
        &options,
        &lp::Monitor::default(),
    );
    let latency = latency.expect("a routing").value;
    assert!(
        (latency - 100.0 * (0.25 * 2.0 + 0.75 * 4.0)).abs() < 1e-4,
        "{latency}"
    );
}

#[test]
fn a_mixture_of_paths_may_cross_two_nodes_both_ways() {
    // a-b-c-d and a-c-b-d, half each: no traffic goes round, though b and c send to each other.
    let mixture = [("bc", 0.5), ("cb", 0.5)];
    let model = read(&mixture).expect("a mixture of paths");
    let instance = Instance::new(&model, Demand::Full).expect("an instance");
    let (options, monitor) = (lp::Options::default(), lp::Monitor::default());
    let latency = lp::solve(&model, &instance, Objective::Latency, &options, &monitor);
    let latency = latency.expect("a routing").value;
    let stated = 100.0 * (0.25 * 2.0 + 0.75 * 4.0 + 2.0 * 0.5 * 1.0);
    assert!((latency - stated).abs() < 1e-4, "{latency}");
}

#[test]
fn shares_that_lose_traffic_are_refused_with_the_node() {
    let refused = read(&[("bc", 0.1)]).expect_err("b sends on more than it gets");
    assert_eq!(refused.reason, Reason::Contradiction);
    assert_eq!(refused.pointer, "/routing/entries/0");
    assert!(refused.message.contains("at node 'b'"), "{refused}");
}
