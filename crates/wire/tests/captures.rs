//! What the codecs find in captures from elsewhere, packet by packet.

mod support;

use std::collections::BTreeMap;
use support::capture::{self, Capture};
use support::layers::Layers;

/// File, and how many packets have which layers; behind an exclamation mark what is wrong with the last one. Errors
/// are those of the captures: tshark names the same checksums, lengths and versions.
const EXPECTED: &[(&str, &[(usize, &str)])] = &[
    (
        "ndpi/http_ipv6.pcap",
        &[(128, "ethernet/ipv6/tcp"), (65, "ethernet/ipv6/udp")],
    ),
    (
        "ndpi/netflix.pcap",
        &[
            (1, "ethernet/ipv4"),
            (1748, "ethernet/ipv4/tcp"),
            (44, "ethernet/ipv4/udp"),
        ],
    ),
    (
        "ndpi/vxlan.pcap",
        &[
            (119, "ethernet/ipv4/udp/vxlan/ethernet/ipv4/tcp"),
            (8, "ethernet/ipv4/udp/vxlan/ethernet/ipv4/udp"),
        ],
    ),
    (
        "suricata-verify/decode-nsh-type1.pcap",
        &[(1, "ethernet/nsh/ipv4!ipv4_bad_checksum")],
    ),
    ("tcpdump/geneve.pcap", &[(39, "ethernet/ipv4/udp")]),
    (
        "tcpdump/ipv4_invalid_hdr_length.pcap",
        &[(1, "ethernet/ipv4!ipv4_bad_header_length")],
    ),
    (
        "tcpdump/ipv4_invalid_total_length_2.pcap",
        &[(1, "ethernet/ipv4!ipv4_bad_total_length")],
    ),
    (
        "tcpdump/ipv4_tcp_http_xml.pcap",
        &[(1, "ethernet/ipv4/tcp")],
    ),
    (
        "tcpdump/ipv6_invalid_length.pcap",
        &[(1, "ethernet/ipv6!ipv6_truncated")],
    ),
    (
        "tcpdump/mpls-label-heapoverflow.pcap",
        &[(1, "ethernet/mpls/ip!inner_not_ip")],
    ),
    (
        "tcpdump/mpls-over-udp.pcap",
        &[(2, "ethernet/ipv4/udp/mpls/ip/icmp")],
    ),
    (
        "tcpdump/mpls-traceroute.pcap",
        &[(9, "ppp/ipv4/icmp"), (9, "ppp/mpls/ip/udp")],
    ),
    (
        "tcpdump/nsh-over-vxlan-gpe.pcap",
        &[(1, "ethernet/ipv4/udp/vxlan_gpe/nsh/ipv4/udp")],
    ),
    ("tcpdump/nsh.pcap", &[(1, "ethernet/nsh/ipv4/udp")]),
    (
        "tcpdump/vxlan.pcap",
        &[
            (2, "ethernet/ipv4/udp/vxlan/ethernet/arp"),
            (8, "ethernet/ipv4/udp/vxlan/ethernet/ipv4/icmp"),
        ],
    ),
    // Steering leaves checksums of the transport to its ends.
    (
        "zeek/chksums-ip4-tcp-bad-chksum.pcap",
        &[(1, "ethernet/ipv4/tcp")],
    ),
    (
        "zeek/chksums-ip4-tcp-good-chksum.pcap",
        &[(1, "ethernet/ipv4/tcp")],
    ),
    (
        "zeek/http-206_example_a.pcap",
        &[(672, "ethernet/ipv4/tcp")],
    ),
    ("zeek/http-get.pcap", &[(14, "ethernet/ipv4/tcp")]),
    (
        "zeek/mixed-vlan-mpls.pcap",
        &[
            (22, "ethernet/ipv4!ipv4_bad_checksum"),
            (14, "ethernet/ipv4/tcp"),
            (11, "ethernet/mpls/ip/tcp"),
        ],
    ),
    (
        "zeek/mpls-in-vlan.pcap",
        &[
            (1, "ethernet/ipv4!ipv4_bad_checksum"),
            (2, "ethernet/mpls/ip!ipv4_bad_checksum"),
        ],
    ),
    (
        "zeek/trunc-ip4-trunc.pcap",
        &[(1, "ethernet/ipv4!ipv4_truncated")],
    ),
    (
        "zeek/trunc-trunc-hdr.pcap",
        &[(1, "ethernet!ethernet_truncated")],
    ),
    (
        "zeek/tunnels-mpls-6in6-6in6-4in6-invalid-version-4.pcap",
        &[(1, "ethernet/mpls/ip/ipv6!ipv6_bad_payload_length")],
    ),
    (
        "zeek/tunnels-vxlan-encapsulated-http.pcap",
        &[(12, "ethernet/ipv4/udp/vxlan/ethernet/ipv4/tcp")],
    ),
    (
        "zeek/wikipedia.pcap",
        &[
            (4, "ethernet"),
            (6, "ethernet/arp"),
            (78, "ethernet/ipv4/tcp"),
            (43, "ethernet/ipv4/udp"),
            (5, "ethernet/ipv6/udp"),
        ],
    ),
];

#[test]
fn captures_have_the_layers_and_errors_they_are_known_for() {
    let Some(directory) = capture::directory() else {
        return;
    };
    for (name, expected) in EXPECTED {
        let capture = Capture::read(&directory.join(name));
        let mut found = BTreeMap::new();
        for packet in &capture.packets {
            let summary = Layers::of(capture.link, packet).summary();
            *found.entry(summary).or_insert(0) += 1;
        }
        let expected: BTreeMap<_, _> = expected
            .iter()
            .map(|(count, summary)| ((*summary).to_owned(), *count))
            .collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn each_layer_of_a_capture_is_an_error_or_less_when_cut_short() {
    let Some(directory) = capture::directory() else {
        return;
    };
    for (name, _) in EXPECTED {
        let capture = Capture::read(&directory.join(name));
        for packet in capture
            .packets
            .iter()
            .take(5)
            .filter(|packet| packet.len() < 600)
        {
            let whole = Layers::of(capture.link, packet).found.len();
            for length in 4..packet.len() {
                let cut = Layers::of(capture.link, &packet[..length]);
                assert!(
                    cut.found.len() <= whole,
                    "{name} at {length}: {}",
                    cut.summary()
                );
            }
        }
    }
}
