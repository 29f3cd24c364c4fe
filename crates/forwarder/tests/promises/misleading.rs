//! Rule sets whose fields are each right, and that would lead packets nowhere or elsewhere: refused as other wrong ones are.

use crate::refusals::{Change, assert_refused, downstream, native, underlay};
use contracts::forwarder as contract;

const MISLEADING: &[(&str, &str, Change)] = &[
    (
        "ports[1].af_packet",
        "port \"edge-in\" is on \"edge-in\" too",
        |set| set.ports[1].device = set.ports[0].device.clone(),
    ),
    ("underlay.addresses[0]", "224.0.0.1 is no host's", |set| {
        underlay(set).addresses[0] = "224.0.0.1/24".into()
    }),
    (
        "peers[0].address",
        "198.18.0.1 is this forwarder's own",
        |set| set.peers[0].address = "198.18.0.1".into(),
    ),
    ("peers[0].id", "\"site0/f1\" is this forwarder", |set| {
        set.peers[0].id = "site0/f1".into()
    }),
    (
        "peers[0].encapsulation",
        "77 is none that this forwarder knows",
        |set| set.peers[0].encapsulation = 77,
    ),
    (
        "edges[0].vlan",
        "frames of port \"wan\" without a tag are the underlay's",
        |set| set.edges[0].port = "wan".into(),
    ),
    (
        "edges[0].gateway_addresses[0]",
        "224.0.0.1 is no host's",
        |set| set.edges[0].gateway_addresses[0] = "224.0.0.1/24".into(),
    ),
    ("edges[0].next_hops[1]", "ff02::1 is no host's", |set| {
        set.edges[0].next_hops = vec!["10.1.0.9".into(), "ff02::1".into()]
    }),
    (
        "edges[0].next_hops[0]",
        "10.1.0.1 is the forwarder's own address at this edge",
        |set| set.edges[0].next_hops = vec!["10.1.0.1".into()],
    ),
    (
        "attachments[0].filter.rules[0].direction",
        "77 is none that this forwarder knows",
        |set| {
            native(set);
            let rules = vec![contract::FilterRule {
                direction: 77,
                ..Default::default()
            }];
            let filter = contract::PacketFilter {
                rules,
                ..Default::default()
            };
            set.attachments[0].function = Some(contract::attachment::Function::Filter(filter));
        },
    ),
    (
        "attachments[0].ingress_vlan",
        "frames of port \"wan\" without a tag are the underlay's",
        |set| set.attachments[0].ingress_port = "wan".into(),
    ),
    (
        "attachments[0].egress_vlan",
        "frames of port \"edge-in\" with VLAN 0 are those of edge \"acme-in\"",
        |set| set.attachments[0].egress_port = "edge-in".into(),
    ),
    (
        "attachments[0].ingress_vlan",
        "frames of port \"edge-in\" with VLAN 9 are those of edge \"acme-in\"",
        |set| {
            set.edges[0].vlan = 9;
            set.edges[0].passive = true;
            let attachment = &mut set.attachments[0];
            attachment.kind = contract::AttachmentKind::Transparent.into();
            (attachment.ingress_port, attachment.ingress_vlan) = ("edge-in".into(), 9);
        },
    ),
    (
        "attachments[0].ingress_mac",
        "ff:ff:ff:ff:ff:ff is no interface's",
        |set| set.attachments[0].ingress_mac = vec![255; 6],
    ),
    (
        "attachments[0].egress_mac",
        "00:00:00:00:00:00 is no interface's",
        |set| set.attachments[0].egress_mac = vec![0; 6],
    ),
    (
        "paths[0].stages[0].downstream.local[0]",
        "attachment \"acme-1000-0-a\" is at another stage or path",
        |set| set.attachments[0].stage = 2,
    ),
    (
        "paths[0].stages[0].downstream.local[0]",
        "attachment \"acme-1000-0-a\" is at another stage or path",
        |set| set.attachments[0].chain_label = 4000,
    ),
    (
        "paths[0].stages[1].downstream.local[1]",
        "attachment \"acme-1000-0-a\" is at another stage or path",
        |set| {
            let vnf = downstream(set).local[0].clone();
            let last = &mut set.paths[0].stages[1];
            last.downstream.as_mut().unwrap().local.push(vnf);
        },
    ),
    (
        "paths[0].stages[0].downstream.local[1]",
        "edge \"acme-in\" is no VNF",
        |set| {
            let edge = contract::local_target::Target::Edge("acme-in".into());
            downstream(set).local.push(contract::LocalTarget {
                target: Some(edge),
                ..Default::default()
            });
        },
    ),
];

#[test]
fn rules_that_lead_packets_nowhere_are_refused() {
    assert_refused(MISLEADING);
}
