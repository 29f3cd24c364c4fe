//! Ports that are used again, and packets that only claim to be of a connection.

use crate::frames::{packet, tuple};
use crate::network::{Network, Service, names};
use crate::plan::{Chain, Plan, chain, instance};
use contracts::forwarder::AttachmentState;
use flow::state::SETTLED;
use std::collections::BTreeMap;
use wire::{FiveTuple, ipv4, tcp};

fn connection() -> FiveTuple {
    tuple("10.1.0.5", 4000, "10.2.0.9", 443, tcp::PROTOCOL)
}

/// Sends one packet of a direction; the instances it passed.
fn send(network: &mut Network, chain: &Chain, forward: bool, flags: u8) -> Vec<String> {
    let (edge, tuple) = match forward {
        true => (&chain.ingress, connection()),
        false => (&chain.egress, connection().reversed()),
    };
    let left = network.send(edge, &packet(&tuple, flags, 10));
    assert_eq!(left.len(), 1, "{:?}", network.drops());
    let passed = names(&left[0].visits).into_iter();
    passed.map(String::from).collect()
}

fn open(network: &mut Network) {
    let chain = network.plan.chains[0].clone();
    send(network, &chain, true, tcp::SYN);
    send(network, &chain, false, tcp::SYN | tcp::ACK);
    send(network, &chain, true, tcp::ACK);
}

fn pass(network: &mut Network, seconds: u32) {
    let end = network.now + seconds;
    while network.now < end {
        network.now += (end - network.now).min(20) - 1;
        network.tick();
    }
}

/// A chain whose VNF has the instance "old" until [`replace`] says "new".
fn network(service: Service) -> Network {
    let old = vec![instance(1, "old", 100)];
    let mut network = Network::new(Plan::new(2, chain(0, vec![old], 1)));
    network.service = service;
    network
}

/// New connections get another instance; those there are keep theirs.
fn replace(network: &mut Network) {
    network.change(|plan| {
        let instances = &mut plan.chains[0].vnfs[0];
        instances[0].state = AttachmentState::Draining;
        instances.push(instance(1, "new", 100));
    });
}

#[test]
fn a_syn_with_the_ports_of_an_ended_connection_opens_one_by_todays_rules() {
    for service in [Service::AtOnce, Service::Bursts] {
        for last in [tcp::FIN | tcp::ACK, tcp::RST | tcp::ACK] {
            let mut network = network(service);
            let chain = network.plan.chains[0].clone();
            open(&mut network);
            send(&mut network, &chain, true, last);
            send(&mut network, &chain, false, last);
            replace(&mut network);
            assert_eq!(send(&mut network, &chain, true, last), ["old"]);
            pass(&mut network, SETTLED - 1);
            let early = send(&mut network, &chain, true, tcp::SYN);
            assert_eq!(early, ["old"], "it may be somebody else's");
            for forward in [true, false] {
                send(&mut network, &chain, forward, last);
            }
            pass(&mut network, 12);
            assert_eq!(send(&mut network, &chain, true, tcp::SYN), ["new"]);
            assert_eq!(
                send(&mut network, &chain, false, tcp::SYN | tcp::ACK),
                ["new"]
            );
            assert_eq!(send(&mut network, &chain, true, tcp::ACK), ["new"]);
            // The two edges classify anew too; of the three stage entries each was made anew.
            assert_eq!(network.event("flow_reopened"), 3);
            network.assert_no_drops();
        }
    }
}

#[test]
fn ports_used_again_enter_the_chain_as_it_is_now() {
    for service in [Service::AtOnce, Service::Bursts] {
        let mut network = network(service);
        let before = network.plan.chains[0].clone();
        open(&mut network);
        for forward in [true, false] {
            send(&mut network, &before, forward, tcp::FIN | tcp::ACK);
        }
        network.change(|plan| {
            let mut newer = plan.chains[0].clone();
            newer.label = 1002;
            newer.vnfs.push(vec![instance(0, "inserted", 100)]);
            plan.retired = std::mem::replace(&mut plan.chains, vec![newer]);
        });
        assert_eq!(send(&mut network, &before, true, tcp::ACK), ["old"]);
        pass(&mut network, 5);
        assert_eq!(
            send(&mut network, &before, true, tcp::SYN),
            ["old", "inserted"]
        );
        assert_eq!(
            send(&mut network, &before, false, tcp::SYN | tcp::ACK),
            ["inserted", "old"]
        );
        network.assert_no_drops();
    }
}

#[test]
fn a_forged_reset_or_syn_moves_no_connection_that_goes_on() {
    for service in [Service::AtOnce, Service::Bursts] {
        let mut network = network(service);
        let chain = network.plan.chains[0].clone();
        open(&mut network);
        replace(&mut network);
        for forged in [tcp::RST, tcp::SYN, tcp::RST | tcp::SYN, tcp::RST | tcp::ACK] {
            assert_eq!(send(&mut network, &chain, true, tcp::RST), ["old"]);
            assert_eq!(send(&mut network, &chain, true, forged), ["old"]);
            // Whoever is silent for minutes goes on, and is known as before: hours later it has its entry.
            pass(&mut network, 200);
            assert_eq!(send(&mut network, &chain, false, tcp::ACK), ["old"]);
            assert_eq!(send(&mut network, &chain, true, tcp::SYN), ["old"]);
            pass(&mut network, 4000);
            assert_eq!(send(&mut network, &chain, true, tcp::ACK), ["old"]);
        }
        assert_eq!(network.event("flow_reopened"), 0);
        assert_eq!(network.event("flow_new"), 3);
        network.assert_no_drops();
    }
}

#[test]
fn a_forged_reset_or_syn_from_elsewhere_turns_no_answers_there() {
    let old = vec![instance(1, "old", 100)];
    let mut network = Network::new(Plan::new(3, chain(0, vec![old], 1)));
    let chain = network.plan.chains[0].clone();
    open(&mut network);
    let is_tunnel = |frame: &&Vec<u8>| frame.len() > 100 && frame[29] == 1;
    let sent = network.tunnelled.iter().rev().find(is_tunnel).unwrap();
    // The same packet as if the third site had sent it.
    let mut forged = sent.clone();
    forged[29] = 3;
    ipv4::set_checksum(&mut forged[14..34]);
    let flags_at = 14 + 20 + 8 + 8 + 14 + 8 + 20 + 13;
    assert_eq!(forged[flags_at], tcp::ACK);
    for (flags, moved) in [
        (tcp::RST, 0),
        (tcp::SYN, 0),
        (tcp::RST | tcp::ACK, 0),
        (tcp::ACK, 1),
    ] {
        forged[flags_at] = flags;
        network.inject(1, "wan", forged.clone());
        assert_eq!(network.event("flow_hop_moved"), moved, "{flags:#x}");
        if moved == 0 {
            send(&mut network, &chain, false, tcp::ACK);
        }
    }
    assert_eq!(network.drops(), BTreeMap::new());
}
