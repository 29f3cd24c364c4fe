//! Every way a packet can end badly: a frame for each drop counter, which counts that frame and nothing else does.

use crate::frames::{frame, ip, packet, tuple};
use crate::network::{HOST_MAC, Network, port_mac};
use crate::plan::{Plan, chain, instance, interface_mac, shared_mac};
use contracts::forwarder::{AttachmentKind, Encapsulation};
use forwarder::frame::{Frame, HeapFrame};
use forwarder::pipeline::Output;
use std::collections::BTreeMap;
use wire::{FiveTuple, MacAddress, checksum, ethernet, ipv4, ipv6, tcp};

/// Where an inner packet begins in a frame over an IPv4 underlay in VXLAN: Ethernet, IPv4, UDP, VXLAN, Ethernet, two labels.
const VXLAN_AT: usize = 14 + 20 + 8;
const LABELS_AT: usize = VXLAN_AT + 8 + 14;
const INNER_AT: usize = LABELS_AT + 8;
/// Where the network service header begins in VXLAN-GPE.
const NSH_AT: usize = VXLAN_AT + 8;

/// One drop counter, and what raises it.
pub struct Case {
    pub name: &'static str,
    pub network: Network,
    site: usize,
    port: &'static str,
    pub frame: Vec<u8>,
}

/// Ingress edge at site 0; at site 1 a gateway VNF, a label-aware one, and the egress edge.
fn network(encapsulation: Encapsulation) -> Network {
    let mut aware = instance(1, "aware", 100);
    aware.kind = match encapsulation {
        Encapsulation::VxlanGpeNsh => AttachmentKind::LabelAwareNsh,
        _ => AttachmentKind::LabelAwareMpls,
    };
    let vnfs = vec![vec![instance(1, "a", 100)], vec![aware]];
    let mut plan = Plan::new(2, chain(0, vnfs, 1));
    plan.encapsulations = vec![encapsulation];
    Network::new(plan)
}

fn connection() -> FiveTuple {
    tuple("10.1.0.5", 4000, "10.2.0.9", 80, 17)
}

fn connection_v6() -> FiveTuple {
    tuple("2001:db8:1::5", 4000, "2001:db8:2::9", 80, 17)
}

/// A packet that enters at the ingress edge.
fn entering(name: &'static str, packet: &[u8]) -> Case {
    Case {
        name,
        network: network(Encapsulation::VxlanMpls),
        site: 0,
        port: "edge-in",
        frame: frame(port_mac(0, "edge-in"), HOST_MAC, 0, packet),
    }
}

/// An Ethernet payload of any kind that enters there.
fn payload(name: &'static str, ether_type: u16, payload: &[u8]) -> Case {
    let mut case = entering(name, &[0x45]);
    case.frame.truncate(12);
    case.frame.extend(ether_type.to_be_bytes());
    case.frame.extend_from_slice(payload);
    case
}

/// A right packet of the connection, changed. IPv4 headers have a right checksum again.
fn changed(name: &'static str, about: &FiveTuple, change: impl FnOnce(&mut Vec<u8>)) -> Case {
    let mut bytes = packet(about, tcp::ACK, 16);
    change(&mut bytes);
    if bytes.len() >= 20 && bytes[0] == 0x45 {
        ipv4::set_checksum(&mut bytes[..20]);
    }
    entering(name, &bytes)
}

/// A frame from the other forwarder, changed.
fn tunnelled(
    name: &'static str,
    encapsulation: Encapsulation,
    change: impl FnOnce(&mut Vec<u8>),
) -> Case {
    let mut network = network(encapsulation);
    let chain = network.plan.chains[0].clone();
    let sent = network.send(&chain.ingress, &packet(&connection(), 0, 16));
    assert_eq!(sent.len(), 1, "{name}: {:?}", network.drops());
    let to_other = |frame: &&Vec<u8>| frame[12..14] == [8, 0] && frame[23] == 17;
    let mut frame = network.tunnelled.iter().find(to_other).unwrap().clone();
    change(&mut frame);
    if frame.len() >= 34 {
        ipv4::set_checksum(&mut frame[14..34]);
    }
    Case {
        name,
        network,
        site: 1,
        port: "wan",
        frame,
    }
}

/// The same without the last bytes, the lengths of IP and UDP right.
fn cut(name: &'static str, encapsulation: Encapsulation, length: usize) -> Case {
    tunnelled(name, encapsulation, |frame| {
        frame.truncate(length);
        let total = (length - 14) as u16;
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        frame[38..40].copy_from_slice(&(total - 20).to_be_bytes());
    })
}

/// A frame from the gateway VNF.
fn from_vnf(name: &'static str, source: MacAddress, to: MacAddress) -> Case {
    Case {
        name,
        network: network(Encapsulation::VxlanMpls),
        site: 1,
        port: "vnf-a",
        frame: frame(to, source, 0, &packet(&connection(), 0, 16)),
    }
}

/// A message of neighbour discovery with right checksum, changed before that is computed.
fn solicitation(name: &'static str, hop_limit: u8, change: impl FnOnce(&mut Vec<u8>)) -> Case {
    let source: std::net::Ipv6Addr = "2001:db8:1::5".parse().unwrap();
    let target: std::net::Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    message.extend([1, 1]);
    message.extend(HOST_MAC.0);
    change(&mut message);
    let (source, target) = (source.octets(), target.octets());
    let sum = wire::icmpv6::message_checksum(source, target, &message);
    if message.len() >= 4 {
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    let mut bytes = ipv6::write(source, target, 58, hop_limit, message.len()).to_vec();
    bytes.extend(message);
    entering(name, &bytes)
}

/// An ICMP message that enters, with a right checksum.
fn icmp_message(name: &'static str, mut message: Vec<u8>) -> Case {
    if message.len() >= 4 {
        let sum = checksum::finish(checksum::sum(&message));
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    let about = FiveTuple::without_ports(connection().addresses, 1);
    entering(name, &ip(&about, message))
}

fn unreachable_quoting(quote: &[u8]) -> Vec<u8> {
    [&[3, 1, 0, 0, 0, 0, 0, 0][..], quote].concat()
}

fn ethernet_and_ip() -> Vec<Case> {
    use wire::ethernet::{IPV4, IPV6};
    let (udp4, udp6) = (connection(), connection_v6());
    let tcp4 = FiveTuple {
        protocol: tcp::PROTOCOL,
        ..udp4
    };
    let extension = |next: u8, payload: &[u8]| {
        let about = FiveTuple {
            protocol: next,
            ..udp6
        };
        ip(&about, payload.to_vec())
    };
    let arp = |change: fn(&mut Vec<u8>)| {
        let request = wire::arp::Arp {
            operation: wire::arp::Operation::Request,
            sender_mac: HOST_MAC,
            sender: [10, 1, 0, 5],
            target_mac: MacAddress::default(),
            target: [10, 1, 0, 1],
        };
        let mut bytes = request.to_bytes().to_vec();
        change(&mut bytes);
        bytes
    };
    let mut short = entering("ethernet_truncated", &[0x45]);
    short.frame.truncate(13);
    vec![
        short,
        payload("vlan_truncated", 0x8100, &[0, 5, 8]),
        payload(
            "vlan_too_deep",
            0x88a8,
            &[0, 5, 0x81, 0, 0, 6, 0x81, 0, 0, 7, 8, 0],
        ),
        payload("vlan_reserved_identifier", 0x8100, &[0x0f, 0xff, 8, 0]),
        payload(
            "arp_truncated",
            ethernet::ARP,
            &arp(|bytes| bytes.truncate(27)),
        ),
        payload("arp_unsupported", ethernet::ARP, &arp(|bytes| bytes[7] = 9)),
        payload(
            "arp_bad_address",
            ethernet::ARP,
            &arp(|bytes| bytes[8] = 0xff),
        ),
        payload("ipv4_truncated", IPV4, &[0x45; 19]),
        payload("ipv4_bad_version", IPV4, &packet(&udp6, 0, 16)),
        changed("ipv4_bad_header_length", &udp4, |bytes| bytes[0] = 0x44),
        changed("ipv4_bad_total_length", &udp4, |bytes| bytes[2] = 0x10),
        payload("ipv4_bad_checksum", IPV4, &{
            let mut bytes = packet(&udp4, 0, 16);
            bytes[10] ^= 1;
            bytes
        }),
        changed("ipv4_bad_fragment", &udp4, |bytes| {
            bytes[6..8].copy_from_slice(&[0x1f, 0xff])
        }),
        payload("ipv6_truncated", IPV6, &[0x60; 39]),
        payload("ipv6_bad_version", IPV6, &packet(&udp4, 0, 40)),
        changed("ipv6_bad_payload_length", &udp6, |bytes| bytes[4] = 9),
        entering(
            "ipv6_extension_truncated",
            &extension(60, &[17, 9, 0, 0, 0, 0, 0, 0]),
        ),
        entering(
            "ipv6_extension_too_deep",
            &extension(60, &[60, 0, 0, 0, 0, 0, 0, 0].repeat(9)),
        ),
        entering(
            "ipv6_bad_fragment",
            &extension(44, &[17, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]),
        ),
        changed("tcp_truncated", &tcp4, |bytes| {
            bytes.truncate(39);
            bytes[3] = 39;
        }),
        changed("tcp_bad_data_offset", &tcp4, |bytes| bytes[32] = 0xf0),
        changed("udp_truncated", &udp4, |bytes| {
            bytes.truncate(27);
            bytes[3] = 27;
        }),
        changed("udp_bad_length", &udp4, |bytes| bytes[25] = 200),
    ]
}

fn icmp_and_neighbours() -> Vec<Case> {
    let quote = packet(&connection().reversed(), 0, 16);
    let mut fragmented = solicitation("neighbour_fragmented", 255, |_| {});
    let message = fragmented.frame.split_off(14 + 40);
    fragmented.frame.extend([58, 0, 0, 1, 0, 0, 0, 9]);
    fragmented.frame.extend(message);
    fragmented.frame[14 + 6] = 44;
    fragmented.frame[14 + 5] += 8;
    let mut damaged = solicitation("neighbour_bad_checksum", 255, |_| {});
    damaged.frame[14 + 50] ^= 1;
    vec![
        icmp_message("icmp_truncated", vec![8, 0, 0, 0, 0, 0, 0]),
        icmp_message("icmp_quote_truncated", unreachable_quoting(&quote[..27])),
        icmp_message("icmp_quote_malformed", unreachable_quoting(&[0x65; 40])),
        // It goes to the one who, by the quote, did not send it.
        icmp_message(
            "icmp_quote_misdirected",
            unreachable_quoting(&packet(&connection(), 0, 16)),
        ),
        solicitation("neighbour_truncated", 255, |message| message.truncate(23)),
        fragmented,
        solicitation("neighbour_bad_hop_limit", 64, |_| {}),
        damaged,
        solicitation("neighbour_bad_code", 255, |message| message[1] = 1),
        solicitation("neighbour_bad_address", 255, |message| message[8] = 0xff),
        solicitation("neighbour_bad_option", 255, |message| message[25] = 0),
    ]
}

fn tunnels() -> Vec<Case> {
    use Encapsulation::{MplsInUdp, VxlanGpeNsh, VxlanMpls};
    let bottom_at = LABELS_AT + 2;
    let nsh = |name, at: usize, value: u8| {
        tunnelled(name, VxlanGpeNsh, move |frame| frame[NSH_AT + at] = value)
    };
    vec![
        tunnelled("udp_bad_checksum", VxlanMpls, |frame| frame[40] = 1),
        cut("vxlan_truncated", VxlanMpls, VXLAN_AT + 7),
        tunnelled("vxlan_bad_flags", VxlanMpls, |frame| frame[VXLAN_AT] = 0),
        tunnelled("vxlan_unknown_network", VxlanMpls, |frame| {
            frame[VXLAN_AT + 6] ^= 1
        }),
        tunnelled("vxlan_inner_tagged", VxlanMpls, |frame| {
            frame[LABELS_AT - 2..LABELS_AT].copy_from_slice(&[0x81, 0]);
        }),
        tunnelled("vxlan_inner_unknown", VxlanMpls, |frame| {
            frame[LABELS_AT - 1] = 0x99
        }),
        cut("vxlan_gpe_truncated", VxlanGpeNsh, VXLAN_AT + 7),
        tunnelled("vxlan_gpe_bad_version", VxlanGpeNsh, |frame| {
            frame[VXLAN_AT] |= 0x10
        }),
        tunnelled("vxlan_gpe_bad_flags", VxlanGpeNsh, |frame| {
            frame[VXLAN_AT] &= !0x08
        }),
        tunnelled("vxlan_gpe_unknown_protocol", VxlanGpeNsh, |frame| {
            frame[VXLAN_AT + 3] = 1
        }),
        tunnelled("tunnel_fragmented", VxlanMpls, |frame| {
            frame[20..22].copy_from_slice(&[0, 1]);
        }),
        cut("nsh_truncated", VxlanGpeNsh, NSH_AT + 7),
        nsh("nsh_bad_version", 0, 0x4f),
        nsh("nsh_bad_length", 1, 0xc5),
        nsh("nsh_reserved_metadata_type", 2, 0x0f),
        nsh("nsh_unknown_metadata_type", 2, 0x05),
        nsh("nsh_unknown_next_protocol", 3, 0xfe),
        tunnelled("nsh_ttl_expired", VxlanGpeNsh, |frame| {
            frame[NSH_AT..NSH_AT + 2].copy_from_slice(&[0, 0x46]);
        }),
        tunnelled("nsh_oam", VxlanGpeNsh, |frame| frame[NSH_AT] |= 0x20),
        nsh("nsh_unknown_path", 4, 0xee),
        cut("mpls_truncated", MplsInUdp, VXLAN_AT + 3),
        tunnelled("mpls_too_few_labels", VxlanMpls, |frame| {
            frame[bottom_at] |= 1
        }),
        tunnelled("mpls_no_bottom_of_stack", VxlanMpls, |frame| {
            frame[bottom_at + 4] &= !1
        }),
        tunnelled("mpls_reserved_label", VxlanMpls, |frame| {
            frame[LABELS_AT..LABELS_AT + 3].fill(0);
        }),
        tunnelled("inner_not_ip", VxlanMpls, |frame| frame[INNER_AT] = 0),
        tunnelled("underlay_not_ours", VxlanMpls, |frame| frame[37] ^= 1),
        tunnelled("tunnel_unknown_peer", VxlanMpls, |frame| frame[29] = 77),
        tunnelled("path_unknown", VxlanMpls, |frame| {
            frame[LABELS_AT + 1] ^= 0x10
        }),
        tunnelled("stage_unknown", VxlanMpls, |frame| frame[LABELS_AT + 7] = 9),
        tunnelled("loop_guard", VxlanMpls, |frame| frame[LABELS_AT + 3] = 1),
    ]
}

fn edges_and_vnfs() -> Vec<Case> {
    let udp = connection();
    let a = interface_mac(1000, 0, "a", true);
    let own = port_mac(1, "vnf-a");
    let from = |source: &str| packet(&tuple(source, 4000, "10.2.0.9", 80, 17), 0, 16);
    let to = |destination: &str| packet(&tuple("10.1.0.5", 4000, destination, 80, 17), 0, 16);
    let mut unused = entering("port_unused", &packet(&udp, 0, 16));
    unused.port = "none";
    let mut unrouted = entering("egress_unrouted", &to("10.9.0.9"));
    unrouted
        .network
        .change(|plan| plan.chains[0].internet = false);
    let mut untargeted = entering("no_target", &packet(&udp, 0, 16));
    untargeted
        .network
        .change(|plan| plan.chains[0].vnfs[0][0].weight = 0);
    let mut gone = entering("hop_gone", &packet(&udp, 0, 16));
    gone.network = {
        let mut plan = Plan::new(1, chain(0, vec![vec![instance(0, "a", 100)]], 0));
        plan.chains[0].egress.site = 0;
        let mut network = Network::new(plan);
        let chain = network.plan.chains[0].clone();
        assert_eq!(network.send(&chain.ingress, &packet(&udp, 0, 16)).len(), 1);
        network.change(|plan| {
            plan.chains[0].vnfs[0][0].state = contracts::forwarder::AttachmentState::Dead;
        });
        network
    };
    let mut later = packet(&udp, 0, 16);
    later[7] = 2;
    ipv4::set_checksum(&mut later[..20]);
    let mut big = packet(&udp, 0, 1472);
    big[6] = 0x40;
    ipv4::set_checksum(&mut big[..20]);
    let mut too_big = entering("mtu_exceeded", &big);
    too_big.network.change(|plan| plan.wan_mtu = 1500);
    let mut elsewhere = entering("ethernet_not_ours", &packet(&udp, 0, 16));
    elsewhere.frame[5] ^= 1;
    let not_ip = payload("not_ip", 0x88cc, &[2, 7, 4]);
    vec![
        unused,
        elsewhere,
        payload(
            "vlan_unknown",
            0x8100,
            &[&[0, 9, 8, 0][..], &packet(&udp, 0, 16)].concat(),
        ),
        payload(
            "vlan_nested",
            0x8100,
            &[&[0, 0, 0x81, 0, 0, 9, 8, 0][..], &packet(&udp, 0, 16)].concat(),
        ),
        payload("edge_labelled", ethernet::MPLS, &[0x45; 40]),
        entering("edge_unclassified", &from("10.77.0.5")),
        entering("edge_multicast", &to("239.1.2.3")),
        entering("edge_martian", &from("127.0.0.1")),
        entering("edge_to_gateway", &to("10.1.0.1")),
        unrouted,
        entering("edge_no_next_hop", &to("10.9.0.9")),
        from_vnf("attachment_unknown", MacAddress([2, 9, 9, 9, 9, 9]), own),
        from_vnf("attachment_multicast", a, MacAddress::BROADCAST),
        not_ip,
        untargeted,
        gone,
        entering("fragment_without_first", &later),
        too_big,
        changed("ttl_exceeded", &udp, |bytes| bytes[8] = 1),
    ]
}

/// Gives a case's frame to its forwarder and follows it to its end; what that added to the drop counters of all.
pub fn raised(case: &mut Case) -> BTreeMap<&'static str, u64> {
    let network = &mut case.network;
    let before = network.drops();
    if case.port == "none" {
        let node = &mut network.nodes[case.site];
        let mut out = Output::default();
        let frame = HeapFrame::new(&case.frame);
        node.pipeline
            .process(&node.rules, 99, frame, network.now, &mut out);
    } else {
        network.inject(case.site, case.port, case.frame.clone());
    }
    let mut after = network.drops();
    after.retain(|name, count| {
        *count -= before.get(name).copied().unwrap_or(0);
        *count > 0
    });
    after
}

/// All cases.
pub fn cases() -> impl Iterator<Item = Case> {
    let cases = [
        ethernet_and_ip(),
        icmp_and_neighbours(),
        tunnels(),
        edges_and_vnfs(),
    ];
    cases.into_iter().flatten()
}

#[test]
fn a_frame_without_room_in_front_is_counted() {
    /// A frame whose buffer begins with its first byte.
    struct Tight(HeapFrame);
    impl Frame for Tight {
        fn data(&self) -> &[u8] {
            self.0.data()
        }
        fn data_mut(&mut self) -> &mut [u8] {
            self.0.data_mut()
        }
        fn prepend(&mut self, _: usize) -> bool {
            false
        }
        fn trim_front(&mut self, count: usize) {
            self.0.trim_front(count);
        }
        fn truncate(&mut self, length: usize) {
            self.0.truncate(length);
        }
        fn take_stripped_vlan(&mut self) -> Option<u16> {
            None
        }
    }
    let network = network(Encapsulation::VxlanMpls);
    let rules = &network.nodes[0].rules;
    let settings = crate::network::settings();
    let mut pipeline = forwarder::pipeline::Pipeline::new(&settings, rules).unwrap();
    let bytes = frame(
        port_mac(0, "edge-in"),
        HOST_MAC,
        0,
        &packet(&connection(), 0, 16),
    );
    let port = network.port(0, "edge-in");
    let mut out = Output::default();
    pipeline.process(rules, port, Tight(HeapFrame::new(&bytes)), 1, &mut out);
    let drops: Vec<_> = pipeline.counters.drops().collect();
    assert_eq!(drops, [("no_headroom", 1)]);
}

#[test]
fn a_frame_from_a_label_aware_vnf_has_its_counters_too() {
    let mut network = network(Encapsulation::VxlanMpls);
    let chain = network.plan.chains[0].clone();
    network.send(&chain.ingress, &packet(&connection(), 0, 16));
    let right = network.labelled.remove(0);
    for (at, value, name) in [
        (14 + 3, 1, "loop_guard"),
        (14 + 1, 0x77, "path_unknown"),
        (14 + 7, 9, "stage_unknown"),
        (11, 0x77, "attachment_unknown"),
        (14 + 6, 0, "mpls_no_bottom_of_stack"),
        (14 + 8, 0, "inner_not_ip"),
    ] {
        let mut wrong = right.clone();
        wrong[at] = value;
        assert_ne!(shared_mac("aware"), MacAddress::default());
        let before = network.drops().get(name).copied().unwrap_or(0);
        let total: u64 = network.drops().values().sum();
        network.inject(1, "vnf-aware", wrong);
        assert_eq!(network.drops().get(name), Some(&(before + 1)), "byte {at}");
        assert_eq!(network.drops().values().sum::<u64>(), total + 1);
    }
}
