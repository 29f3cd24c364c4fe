//! What connections keep when a forwarder begins again without its flow tables, or is silent, and what a state alone does.

use crate::changes::{connection, exchange, open, share};
use crate::network::{Network, settings};
use crate::plan::{Plan, chain, instance};
use contracts::forwarder::local_target::Target;
use contracts::forwarder::{AttachmentState, RuleSet};
use forwarder::pipeline::{Pipeline, Settings};
use forwarder::registry::Registry;
use forwarder::rules::Rules;
use wire::tcp;

/// Two VNFs, of two instances each, at two sites.
fn network() -> Network {
    let vnf = |site, names: [&str; 2]| names.map(|name| instance(site, name, 100)).to_vec();
    let vnfs = vec![vnf(1, ["a", "b"]), vnf(0, ["c", "d"])];
    Network::new(Plan::new(2, chain(0, vnfs, 1)))
}

/// Replaces a forwarder by one that knows nothing: other numbers of its own, another key, other names' order, its rules.
fn begin_again(network: &mut Network, site: usize) {
    let empty = Rules::empty();
    let settings = Settings {
        hash_key: [77; 16],
        ..settings()
    };
    let node = &mut network.nodes[site];
    node.pipeline = Pipeline::new(&settings, &empty).unwrap();
    node.rules = empty;
    node.registry = Registry::default();
    let set = network.plan.rules(site);
    network.apply_at(site, &set);
}

#[test]
fn a_forwarder_without_its_tables_chooses_as_before_while_weights_stand() {
    let mut network = network();
    let opened = open(&mut network, 0..400);
    assert_eq!(network.event("flow_mid_stream"), 0, "all began with a SYN");
    for (site, flags) in [
        (0, tcp::ACK),
        (1, tcp::ACK),
        (0, tcp::SYN | tcp::ACK),
        (1, tcp::FIN | tcp::ACK),
    ] {
        begin_again(&mut network, site);
        let before = network.event("flow_mid_stream");
        let chain = network.plan.chains[0].clone();
        for (number, visited) in &opened {
            let now = exchange(&mut network, &chain, &connection(*number), flags);
            assert_eq!(&now, visited, "site {site}, connection {number}");
        }
        let midway = network.event("flow_mid_stream") - before;
        assert!(midway >= 400, "site {site}, {flags:#x}: {midway}");
        network.assert_no_drops();
    }
}

/// Gives a site's rules with a change.
fn change_rules(network: &mut Network, site: usize, change: impl FnOnce(&mut RuleSet)) {
    let mut set = network.plan.rules(site);
    set.generation += 1;
    change(&mut set);
    network.apply_at(site, &set);
}

#[test]
fn a_draining_instance_gets_no_new_connections_whatever_its_weight() {
    let mut network = network();
    let opened = open(&mut network, 0..200);
    let mut drained = String::new();
    change_rules(&mut network, 1, |set| {
        let attachment = set.attachments.iter_mut().find(|one| one.instance == "a");
        let attachment = attachment.expect("the instance is attached");
        attachment.state = AttachmentState::Draining.into();
        drained = attachment.id.clone();
        let ends = set.paths.iter().flat_map(|path| &path.stages);
        let mut local = ends
            .flat_map(|stage| &stage.downstream)
            .flat_map(|end| &end.local);
        assert!(local.any(|local| {
            local.target == Some(Target::Attachment(drained.clone())) && local.weight > 0
        }));
    });
    let chain = network.plan.chains[0].clone();
    for (number, visited) in &opened {
        let now = exchange(&mut network, &chain, &connection(*number), tcp::ACK);
        assert_eq!(&now, visited);
    }
    assert_eq!(share(&open(&mut network, 400..600), "b"), 1.0);
    network.assert_no_drops();
}

#[test]
fn connections_of_a_forwarder_said_to_be_down_go_there_while_there_is_nobody_else() {
    let mut network = network();
    let opened = open(&mut network, 0..50);
    change_rules(&mut network, 0, |set| {
        set.peers.iter_mut().for_each(|peer| peer.alive = false);
    });
    let chain = network.plan.chains[0].clone();
    for (number, visited) in &opened {
        let now = exchange(&mut network, &chain, &connection(*number), tcp::ACK);
        assert_eq!(&now, visited);
    }
    network.assert_no_drops();
}
