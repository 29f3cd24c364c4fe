//! Rule sets that are wrong: refused as a whole, with the field and what to write instead.

use crate::plan::{Plan, chain, instance};
use contracts::forwarder::{self as contract, port::Device};
use forwarder::registry::Registry;
use forwarder::rules::compile;
use wire::MacAddress;

fn right() -> contract::RuleSet {
    Plan::new(2, chain(0, vec![vec![instance(0, "a", 100)]], 0)).rules(0)
}

fn problem(set: &contract::RuleSet) -> Option<String> {
    let macs = vec![MacAddress([2; 6]); set.ports.len()];
    compile(set, &macs, &mut Registry::default())
        .err()
        .map(|error| error.to_string())
}

/// Makes the first attachment a native one, between ports of its own.
pub fn native(set: &mut contract::RuleSet) {
    for name in ["in", "out"] {
        set.ports.push(contract::Port {
            name: name.into(),
            device: Some(Device::Native(contract::NativePort {})),
        });
    }
    let attachment = &mut set.attachments[0];
    attachment.kind = contract::AttachmentKind::Native.into();
    (attachment.ingress_port, attachment.egress_port) = ("in".into(), "out".into());
    attachment.function = Some(contract::attachment::Function::Filter(Default::default()));
}

/// Gives the path two routes.
fn routed(set: &mut contract::RuleSet) {
    let route = |by: &str| contract::Route {
        weight: 10,
        sites: ["site0", by, "site1"].map(String::from).to_vec(),
    };
    set.paths[0].routes = ["site0", "site1"].map(route).to_vec();
    set.paths[0].ingresses = vec![contract::Ingress {
        site: "site0".into(),
        prefixes: vec!["10.1.0.0/24".into()],
    }];
}

#[test]
fn routes_are_right() {
    let mut set = right();
    routed(&mut set);
    assert_eq!(problem(&set), None);
}

#[test]
fn a_native_attachment_is_right() {
    let mut set = right();
    native(&mut set);
    assert_eq!(problem(&set), None);
}

/// What makes a right rule set wrong.
pub type Change = fn(&mut contract::RuleSet);

const WRONG: &[(&str, &str, Change)] = &[
    ("selection_seed", "has 3 bytes; give 16", |set| {
        set.selection_seed = vec![1; 3]
    }),
    ("ports[0].name", "give the port a name", |set| {
        set.ports[0].name.clear()
    }),
    ("ports[1].name", "is the name of another port too", |set| {
        set.ports[1].name = set.ports[0].name.clone()
    }),
    (
        "underlay.port",
        "\"lan\" is no port of this rule set",
        |set| underlay(set).port = "lan".into(),
    ),
    ("ports[0]", "give a device", |set| {
        set.ports[0].device = None
    }),
    (
        "ports[0].af_packet",
        "\"a,b\" is no interface name",
        |set| set.ports[0].device = Some(Device::AfPacket("a,b".into())),
    ),
    ("ports[1].af_xdp", "\"\" is no interface name", |set| {
        set.ports[1].device = Some(Device::AfXdp(String::new()))
    }),
    ("ports[0].vhost_user", "give an absolute path", |set| {
        set.ports[0].device = Some(Device::VhostUser("socket".into()))
    }),
    ("ports[0].vhost_user", "of at most 107 bytes", |set| {
        set.ports[0].device = Some(Device::VhostUser(format!("/{}", "x".repeat(107))))
    }),
    ("ports[0].devargs", "give the device's arguments", |set| {
        set.ports[0].device = Some(Device::Devargs(String::new()))
    }),
    ("underlay.addresses", "give at least one address", |set| {
        underlay(set).addresses.clear()
    }),
    (
        "underlay.addresses[0]",
        "write an address, a slash and a length",
        |set| {
            underlay(set).addresses[0] = "198.18.0.1".into();
        },
    ),
    ("underlay.vni", "24 bits", |set| underlay(set).vni = 1 << 24),
    ("underlay.mtu", "give 576 to 9216", |set| {
        underlay(set).mtu = 100
    }),
    ("underlay", "peers need an underlay", |set| {
        set.underlay = None
    }),
    ("peers[0].address", "\"here\" is no IP address", |set| {
        set.peers[0].address = "here".into()
    }),
    ("peers[0].address", "no address of this family", |set| {
        set.peers[0].address = "2001:db8::1".into()
    }),
    ("peers[0].address", "is not on the underlay's link", |set| {
        set.peers[0].address = "192.0.2.1".into()
    }),
    ("underlay.gateways[0]", "is no IP address", |set| {
        set.peers[0].address = "192.0.2.1".into();
        underlay(set).gateways = vec!["gw".into()];
    }),
    ("peers[0].id", "give an id", |set| set.peers[0].id.clear()),
    ("peers[1].id", "the id is used twice", |set| {
        let mut again = set.peers[0].clone();
        again.address = "198.18.0.77".into();
        set.peers.push(again);
    }),
    (
        "peers[1].address",
        "is the address of another peer too",
        |set| {
            let mut again = set.peers[0].clone();
            again.id = "other/f1".into();
            set.peers.push(again);
        },
    ),
    ("edges[0].port", "is no port of this rule set", |set| {
        set.edges[0].port = "nowhere".into()
    }),
    ("edges[0].vlan", "4095 is no VLAN; give 0 to 4094", |set| {
        set.edges[0].vlan = 4095
    }),
    ("edges[0].mtu", "give 576 to 9216", |set| {
        set.edges[0].mtu = 20_000
    }),
    ("edges[0].id", "give an id", |set| set.edges[0].id.clear()),
    ("edges[1].vlan", "another edge has VLAN 0", |set| {
        set.edges[1].port = set.edges[0].port.clone()
    }),
    ("edges[0].gateway_addresses[1]", "is no prefix", |set| {
        set.edges[0].gateway_addresses[1] = "x/64".into()
    }),
    ("edges[0].next_hops[0]", "is no IP address", |set| {
        set.edges[0].next_hops = vec!["10.1.0.0/24".into()]
    }),
    (
        "edges[0].classifiers[0].direction",
        "give a direction",
        |set| classifier(set).direction = 0,
    ),
    (
        "edges[0].classifiers[0].chain_label",
        "1001 is odd",
        |set| classifier(set).chain_label = 1001,
    ),
    (
        "edges[0].classifiers[0].chain_label",
        "14 is no label; give 16 to 1048575",
        |set| {
            classifier(set).chain_label = 14;
        },
    ),
    (
        "edges[0].classifiers[0].egress_routes[0].destination",
        "is no prefix",
        |set| {
            classifier(set).egress_routes[0].destination = "everywhere".into();
        },
    ),
    (
        "edges[0].classifiers[0].egress_routes[1].egress_label",
        "3 is no label",
        |set| {
            classifier(set).egress_routes[1].egress_label = 3;
        },
    ),
    (
        "edges[0].classifiers[0].match.source_prefixes[0]",
        "is no prefix",
        |set| {
            matched(set).source_prefixes[0] = "10.0.0.0/33".into();
        },
    ),
    (
        "edges[0].classifiers[0].match.protocols[1]",
        "256 is no IP protocol number",
        |set| {
            matched(set).protocols = vec![6, 256];
        },
    ),
    (
        "edges[0].classifiers[0].match.destination_ports[0]",
        "90 to 80 is no range of ports",
        |set| {
            matched(set).destination_ports = vec![contract::PortRange {
                first: 90,
                last: 80,
            }];
        },
    ),
    (
        "edges[0].classifiers[0].match.source_ports[0]",
        "1 to 65536 is no range of ports",
        |set| {
            matched(set).source_ports = vec![contract::PortRange {
                first: 1,
                last: 65_536,
            }];
        },
    ),
    ("attachments[0].kind", "give a kind", |set| {
        set.attachments[0].kind = 0
    }),
    (
        "paths[0].nsh_forward_path",
        "attachment \"acme-1000-0-a\" speaks NSH; give both service path identifiers",
        |set| {
            set.attachments[0].kind = contract::AttachmentKind::LabelAwareNsh.into();
            (set.paths[0].nsh_forward_path, set.paths[0].nsh_reverse_path) = (0, 0);
        },
    ),
    ("paths[0].nsh_reverse_path", "give 1 to 16777215", |set| {
        set.paths[0].nsh_reverse_path = 1 << 24
    }),
    (
        "paths[0].nsh_reverse_path",
        "is another service path's too",
        |set| set.paths[0].nsh_reverse_path = set.paths[0].nsh_forward_path,
    ),
    ("paths[0].routes", "1025 routes; give at most 1024", |set| {
        routed(set);
        set.paths[0].routes = vec![set.paths[0].routes[0].clone(); 1025];
    }),
    ("paths[0].routes[1].weight", "give 1 to 65535", |set| {
        routed(set);
        set.paths[0].routes[1].weight = 0;
    }),
    ("paths[0].routes[0].weight", "give 1 to 65535", |set| {
        routed(set);
        set.paths[0].routes[0].weight = 65_536;
    }),
    (
        "paths[0].routes[1].sites",
        "give 3 sites: of the ingress, each VNF and the egress",
        |set| {
            routed(set);
            set.paths[0].routes[1].sites.pop();
        },
    ),
    (
        "paths[0].routes[0].sites",
        "give 3 sites: of the ingress, each VNF and the egress",
        |set| {
            routed(set);
            set.paths[0].routes[0].sites[1].clear();
        },
    ),
    (
        "paths[0].routes[1].sites",
        "another route has these sites; add up their weights",
        |set| {
            routed(set);
            set.paths[0].routes[1] = set.paths[0].routes[0].clone();
        },
    ),
    (
        "paths[0].routes[1].sites[0]",
        "\"elsewhere\" is not in the path's ingresses",
        |set| {
            routed(set);
            set.paths[0].routes[1].sites[0] = "elsewhere".into();
        },
    ),
    (
        "paths[0].ingresses[1].site",
        "no route begins at \"elsewhere\"; leave it out",
        |set| {
            routed(set);
            set.paths[0].ingresses.push(contract::Ingress {
                site: "elsewhere".into(),
                ..Default::default()
            });
        },
    ),
    (
        "paths[0].ingresses[1].site",
        "\"site0\" is no site, or listed twice",
        |set| {
            routed(set);
            let twice = set.paths[0].ingresses[0].clone();
            set.paths[0].ingresses.push(twice);
        },
    ),
    (
        "paths[0].ingresses[0].prefixes[0]",
        "\"10.0.0.0/33\" is no prefix",
        |set| {
            routed(set);
            set.paths[0].ingresses[0].prefixes = vec!["10.0.0.0/33".into()];
        },
    ),
    (
        "attachments[0].ingress_port",
        "a native attachment needs native ports",
        |set| set.attachments[0].kind = contract::AttachmentKind::Native.into(),
    ),
    (
        "attachments[0].ingress_port",
        "only native attachments have native ports",
        |set| {
            native(set);
            set.attachments[0].kind = contract::AttachmentKind::Gateway.into();
        },
    ),
    (
        "attachments[0].filter",
        "a native attachment needs a function",
        |set| {
            native(set);
            set.attachments[0].function = None;
        },
    ),
    (
        "attachments[0].filter",
        "only native attachments have functions",
        |set| {
            set.attachments[0].function =
                Some(contract::attachment::Function::Filter(Default::default()));
        },
    ),
    (
        "attachments[0].egress_port",
        "a native attachment needs two ports",
        |set| {
            native(set);
            set.attachments[0].egress_port = "in".into();
        },
    ),
    (
        "attachments[0].filter.rules[0].match.protocols[0]",
        "256 is no IP protocol number",
        |set| {
            native(set);
            set.attachments[0].function = Some(contract::attachment::Function::Filter(
                contract::PacketFilter {
                    rules: vec![contract::FilterRule {
                        r#match: Some(contract::Match {
                            protocols: vec![256],
                            ..Default::default()
                        }),
                        ..Default::default()
                    }],
                    ..Default::default()
                },
            ));
        },
    ),
    ("attachments[0].state", "give a state", |set| {
        set.attachments[0].state = 0
    }),
    ("attachments[0].ingress_port", "is no port", |set| {
        set.attachments[0].ingress_port = "x".into()
    }),
    ("attachments[0].egress_port", "is no port", |set| {
        set.attachments[0].egress_port = "x".into()
    }),
    ("attachments[0].ingress_mac", "give 6 bytes", |set| {
        set.attachments[0].ingress_mac = vec![2; 5]
    }),
    ("attachments[0].egress_mac", "give 6 bytes", |set| {
        set.attachments[0].egress_mac.clear()
    }),
    ("attachments[0].ingress_vlan", "is no VLAN", |set| {
        set.attachments[0].ingress_vlan = 70_000
    }),
    ("attachments[0].chain_label", "is odd", |set| {
        set.attachments[0].chain_label += 1
    }),
    ("attachments[0].egress_label", "is no label", |set| {
        set.attachments[0].egress_label = 1 << 20
    }),
    ("attachments[0].stage", "give 1 to 250", |set| {
        set.attachments[0].stage = 0
    }),
    ("attachments[0].stage", "give 1 to 250", |set| {
        set.attachments[0].stage = u32::MAX
    }),
    ("attachments[0].mtu", "give 576 to 9216", |set| {
        set.attachments[0].mtu = 68
    }),
    (
        "attachments[0]",
        "the same port, VLAN and MAC address",
        |set| {
            set.attachments[0].egress_mac = set.attachments[0].ingress_mac.clone();
        },
    ),
    ("paths[0].chain_label", "is odd", |set| {
        set.paths[0].chain_label += 1
    }),
    ("paths[0].egress_label", "0 is no label", |set| {
        set.paths[0].egress_label = 0
    }),
    ("paths[0].vnf_count", "give at most 250", |set| {
        set.paths[0].vnf_count = u32::MAX
    }),
    ("paths[0].stages[0].number", "give 1 to 2", |set| {
        set.paths[0].stages[0].number = 3
    }),
    ("paths[0].stages[0].number", "give 1 to 2", |set| {
        set.paths[0].stages[0].number = 0
    }),
    (
        "paths[0].stages[1].number",
        "stage 1 is listed twice",
        |set| set.paths[0].stages[1].number = 1,
    ),
    ("paths[1]", "the path 1000 500 is listed twice", |set| {
        set.paths.push(set.paths[0].clone())
    }),
    (
        "paths[0].stages[0].downstream.local[0]",
        "name an attachment or an edge",
        |set| {
            downstream(set).local[0].target = None;
        },
    ),
    (
        "paths[0].stages[0].downstream.local[0]",
        "is not in this rule set",
        |set| {
            downstream(set).local[0].target =
                Some(contract::local_target::Target::Attachment("gone".into()));
        },
    ),
    (
        "paths[0].stages[0].downstream.local[0].weight",
        "give 0 to 65535",
        |set| {
            downstream(set).local[0].weight = 65_536;
        },
    ),
    (
        "paths[0].stages[0].downstream.remote[0]",
        "is not in this rule set",
        |set| {
            downstream(set).remote = vec![contract::RemoteTarget {
                peer: "gone".into(),
                ..Default::default()
            }];
        },
    ),
    (
        "paths[0].stages[0].downstream.remote[0].weight",
        "give 0 to what is withdrawn",
        |set| {
            set.peers.push(contract::Peer {
                id: "other/f1".into(),
                address: "198.18.0.99".into(),
                alive: true,
                ..Default::default()
            });
            downstream(set).remote = vec![contract::RemoteTarget {
                peer: "other/f1".into(),
                weight: 1,
                withdrawn: true,
                ..Default::default()
            }];
        },
    ),
    (
        "paths[0].stages[0].downstream.local[0].prefixes[0]",
        "is no prefix",
        |set| {
            downstream(set).local[0].prefixes = vec!["10".into()];
        },
    ),
    ("timers.tcp_established", "seconds are too long", |set| {
        set.timers = Some(contract::FlowTimers {
            tcp_established: u32::MAX,
            ..Default::default()
        });
    }),
];

/// The underlay of a rule set.
pub fn underlay(set: &mut contract::RuleSet) -> &mut contract::Underlay {
    set.underlay.as_mut().unwrap()
}

fn classifier(set: &mut contract::RuleSet) -> &mut contract::Classifier {
    &mut set.edges[0].classifiers[0]
}

fn matched(set: &mut contract::RuleSet) -> &mut contract::Match {
    classifier(set).r#match.as_mut().unwrap()
}

/// What is behind the first stage of a rule set.
pub fn downstream(set: &mut contract::RuleSet) -> &mut contract::StageEnd {
    set.paths[0].stages[0].downstream.as_mut().unwrap()
}

/// Each of some changes is refused with its field and the fix.
pub fn assert_refused(changes: &[(&str, &str, Change)]) {
    assert_eq!(problem(&right()), None);
    for (field, fix, change) in changes {
        let mut set = right();
        change(&mut set);
        let problem = problem(&set).unwrap_or_else(|| panic!("{field} ({fix}) was accepted"));
        assert!(
            problem.starts_with(&format!("{field}: ")) && problem.contains(fix),
            "expected {field}: … {fix}; got {problem}"
        );
    }
}

#[test]
fn wrong_rules_are_refused_with_their_field_and_the_fix() {
    assert_refused(WRONG);
}
