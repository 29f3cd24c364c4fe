//! An independent oracle: tshark reads what the writers wrote, and agrees with the readers on every field.

#[path = "../../../test/needs.rs"]
mod needs;
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use support::capture::{self, Capture};
use support::fields::{EXTENSION_BYTES, EXTENSION_PROTOCOL, Fields, NAMES};
use support::generate::{self, Numbers};
use support::layers::Layers;
use support::tunnels;
use wire::ParseError;
use wire::segments::Tunnelled;

const PACKETS: usize = 6000;

/// Captures in which tshark goes no deeper than the codecs.
const CAPTURES: &[&str] = &[
    "ndpi/http_ipv6.pcap",
    "ndpi/netflix.pcap",
    "ndpi/vxlan.pcap",
    "tcpdump/ipv4_tcp_http_xml.pcap",
    "tcpdump/mpls-over-udp.pcap",
    "tcpdump/nsh-over-vxlan-gpe.pcap",
    "tcpdump/nsh.pcap",
    "tcpdump/vxlan.pcap",
    "zeek/http-206_example_a.pcap",
    "zeek/http-get.pcap",
    "zeek/mixed-vlan-mpls.pcap",
    "zeek/tunnels-vxlan-encapsulated-http.pcap",
    "zeek/wikipedia.pcap",
];

/// What tshark says about checksums, besides the fields.
const CHECKSUMS: [&str; 5] = [
    "ip.checksum.status",
    "tcp.checksum.status",
    "udp.checksum.status",
    "icmp.checksum.status",
    "icmpv6.checksum.status",
];

/// What tshark says of extension headers of IPv6: what comes behind each, and how long those are whose length varies.
const NEXT_HEADERS: [&str; 5] = [
    "ipv6.hopopts.nxt",
    "ipv6.dstopts.nxt",
    "ipv6.routing.nxt",
    "ipv6.fraghdr.nxt",
    "ah.next_header",
];
const LENGTHS: [&str; 4] = [
    "ipv6.hopopts.len_oct",
    "ipv6.dstopts.len_oct",
    "ipv6.routing.len_oct",
    "ah.length",
];

/// What is wrong with a packet, in tshark's words.
const MESSAGE: &str = "_ws.expert.message";

type Decoded = BTreeMap<&'static str, Vec<String>>;

/// The fields of each packet of a capture as tshark reads them; nothing where tshark is not installed.
fn tshark(path: &Path) -> Option<Vec<Decoded>> {
    let derived = |name: &&str| [EXTENSION_BYTES, EXTENSION_PROTOCOL].contains(name);
    let names: Vec<&str> = (NAMES.iter().filter(|name| !derived(name)))
        .chain(&CHECKSUMS)
        .chain(&NEXT_HEADERS)
        .chain(&LENGTHS)
        .chain([&MESSAGE])
        .copied()
        .collect();
    let mut command = Command::new("tshark");
    command
        .arg("-r")
        .arg(path)
        .args(["-n", "-T", "fields", "-E", "separator=;"]);
    for option in [
        "ip.defragment:FALSE",
        "ipv6.defragment:FALSE",
        "ip.check_checksum:TRUE",
        "tcp.check_checksum:TRUE",
        "udp.check_checksum:TRUE",
        // Tunnels may leave it out over IPv6 (RFC 6935; RFC 7510, section 3.1).
        "udp.ignore_ipv6_zero_checksum:TRUE",
        "tcp.desegment_tcp_streams:FALSE",
        "vlan.version:IEEE 802.1Q-2011",
    ] {
        command.args(["-o", option]);
    }
    for name in &names {
        command.args(["-e", name]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            needs::missing(&format!("tshark, of the package tshark: {error}"));
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {errors}");
    let lines = String::from_utf8(output.stdout).expect("tshark writes UTF-8");
    let read = |line: &str| {
        let values = names.iter().zip(line.split(';'));
        let mut fields: Decoded = values
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (*name, value.split(',').map(normal).collect()))
            .collect();
        leave_out_padding(&mut fields);
        add_up_extensions(&mut fields);
        fields
    };
    Some(lines.lines().map(read).collect())
}

/// Padding is an option to tshark: of type 0 or 1, with no length.
fn leave_out_padding(fields: &mut Decoded) {
    if let Some(types) = fields.get_mut("ip.opt.type") {
        types.retain(|kind| !matches!(&**kind, "0" | "1"));
    }
    fields.retain(|_, values| !values.is_empty());
}

/// What one IPv6 header's extension headers come to; no packet here has more headers with any.
fn add_up_extensions(fields: &mut Decoded) {
    const FRAGMENT: usize = 8;
    let fragments = fields.get("ipv6.fraghdr.nxt").map_or(0, Vec::len);
    let mut protocols = NEXT_HEADERS.map(|name| fields.remove(name).unwrap_or_default());
    let mut bytes = fragments * FRAGMENT;
    for name in LENGTHS {
        for length in fields.remove(name).unwrap_or_default() {
            let length: usize = length.parse().expect("a length is a number");
            // As it is sent, in words of 4 bytes without the first two (RFC 4302, section 2.2).
            bytes += if name == "ah.length" {
                (length + 2) * 4
            } else {
                length
            };
        }
    }
    let is_last = |protocol: &String| !matches!(&**protocol, "0" | "43" | "44" | "51" | "60");
    let last: Vec<String> = protocols
        .iter_mut()
        .flat_map(std::mem::take)
        .filter(is_last)
        .collect();
    if !last.is_empty() {
        fields.insert(EXTENSION_BYTES, vec![bytes.to_string()]);
        fields.insert(EXTENSION_PROTOCOL, last);
    }
}

/// Numbers in decimal, truth as 1 and 0, bytes without colons.
fn normal(value: &str) -> String {
    match value {
        "True" => "1".to_owned(),
        "False" => "0".to_owned(),
        _ => match value.strip_prefix("0x") {
            Some(digits) => {
                u64::from_str_radix(digits, 16).map_or(value.to_owned(), |n| n.to_string())
            }
            None => value.to_owned(),
        },
    }
}

/// Whether a frame is an ICMP error: tshark does not check the sums of the packet it quotes.
fn quotes(fields: &Decoded) -> bool {
    let first = |name| fields.get(name).map_or("", |values| values[0].as_str());
    matches!(first("icmp.type"), "3" | "11") || matches!(first("icmpv6.type"), "2" | "3")
}

#[test]
fn tshark_agrees_on_every_field_of_thousands_of_packets() {
    let packets = generate::frames(&mut Numbers::from_seed(8300), PACKETS);
    if let Some(compared) = compare("generated", packets, true) {
        assert!(compared > 10 * PACKETS, "only {compared} fields");
    }
}

/// What tshark's message of a packet contains that has this error.
fn in_their_words(error: ParseError) -> &'static str {
    match error {
        // Of which header, the status of IPv4's tells.
        ParseError::Ipv4BadChecksum => "Bad checksum",
        ParseError::Ipv4BadHeaderLength => "Bogus IP header length",
        ParseError::Ipv4BadTotalLength => "Bogus IP length",
        ParseError::Ipv6BadPayloadLength => "payload length exceeds framing length",
        // A header or label stack ends with the packet, or nothing is behind it.
        ParseError::EthernetTruncated
        | ParseError::Ipv4Truncated
        | ParseError::Ipv6Truncated
        | ParseError::InnerNotIp => "Malformed Packet",
        other => panic!("no capture here has {other}"),
    }
}

#[test]
fn tshark_sees_what_is_wrong_with_what_is_refused() {
    let Some(directory) = capture::directory() else {
        return;
    };
    let of = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").path();
    let list = |path: &Path| std::fs::read_dir(path).expect("a directory").map(of);
    let mut packets = Vec::new();
    for path in list(&directory).flat_map(|suite| list(&suite).collect::<Vec<_>>()) {
        if path
            .extension()
            .is_some_and(|extension| extension == "pcap")
        {
            let capture = Capture::read(&path);
            let refused = |frame: &Vec<u8>| Layers::of(capture.link, frame).error.is_some();
            let before = packets.len();
            packets.extend(capture.packets.into_iter().filter(refused));
            let others = packets.len() > before && capture.link != capture::ETHERNET;
            assert!(!others, "{path:?} is not of Ethernet");
        }
    }
    assert!(packets.len() > 30, "only {} are refused", packets.len());
    compare("refused", packets, false);
}

#[test]
fn tshark_agrees_on_captures() {
    let Some(directory) = capture::directory() else {
        return;
    };
    let read = |name| Capture::read(&directory.join(name)).packets;
    let packets: Vec<_> = CAPTURES.iter().flat_map(read).collect();
    let count = packets.len();
    if let Some(compared) = compare("captured", packets, false) {
        assert!(compared > 10 * count, "only {compared} fields");
    }
}

/// tshark follows the tunnels on its own, and finds every checksum of what was cut right.
#[test]
fn tshark_finds_no_wrong_checksum_in_segments_of_tunnels() {
    let payload = vec![0x5a; 3_333];
    let mut packets = Vec::new();
    for shape in tunnels::shapes() {
        let whole = tunnels::frame(&shape, &payload, tunnels::Piece::WHOLE);
        let transport = tunnels::transport_offset(&shape);
        let tunnelled = Tunnelled::of_frame(&whole, 1_000, transport).expect("it is followed");
        tunnelled.cut(&whole, 0, &mut Vec::new(), |segment| {
            packets.push(segment.to_vec());
            true
        });
    }
    let count = packets.len();
    let capture = Capture {
        link: capture::ETHERNET,
        packets,
    };
    let file = format!("switchboard-wire-tunnels-{}.pcap", std::process::id());
    let path = std::env::temp_dir().join(file);
    capture.write(&path);
    let decoded = tshark(&path);
    std::fs::remove_file(&path).expect("it was written");
    let Some(decoded) = decoded else {
        return;
    };
    assert_eq!(decoded.len(), count);
    for (number, fields) in decoded.iter().enumerate() {
        let of = |name| fields.get(name).into_iter().flatten();
        let statuses: Vec<&String> = CHECKSUMS.into_iter().flat_map(of).collect();
        let fine = statuses
            .iter()
            .all(|status| matches!(&***status, "1" | "3"));
        assert!(fine, "packet {number}: {statuses:?}");
        let is_checked = of("tcp.checksum.status").chain(of("udp.checksum.status"));
        assert!(
            is_checked.into_iter().any(|status| status == "1"),
            "packet {number}"
        );
    }
}

/// Compares what both read of each packet, and returns how many fields that were; nothing where tshark is not installed.
/// `flawless` packets have no error and right checksums.
fn compare(name: &str, packets: Vec<Vec<u8>>, flawless: bool) -> Option<usize> {
    let capture = Capture {
        link: capture::ETHERNET,
        packets,
    };
    let file = format!("switchboard-wire-{name}-{}.pcap", std::process::id());
    let path = std::env::temp_dir().join(file);
    capture.write(&path);
    let decoded = tshark(&path);
    std::fs::remove_file(&path).expect("it was written");
    let decoded = decoded?;
    assert_eq!(decoded.len(), capture.packets.len());
    let mut compared = 0;
    for (number, (frame, mut theirs)) in capture.packets.iter().zip(decoded).enumerate() {
        let layers = Layers::of(capture.link, frame);
        let what = || format!("{name} packet {number} {}: {frame:02x?}", layers.summary());
        let ipv4 = theirs.get("ip.checksum.status").cloned();
        let statuses = CHECKSUMS
            .map(|name| theirs.remove(name).unwrap_or_default())
            .concat();
        let message = theirs.remove(MESSAGE).unwrap_or_default().join(",");
        if let Some(error) = layers.error {
            assert!(!flawless, "{}", what());
            let word = in_their_words(error);
            assert!(message.contains(word), "{message:?} of {}", what());
            let is_wrong = |of: &Vec<String>| of.iter().any(|status| status == "0");
            if error == ParseError::Ipv4BadChecksum {
                assert!(
                    ipv4.as_ref().is_some_and(is_wrong),
                    "{ipv4:?} of {}",
                    what()
                );
            }
            continue;
        }
        let Fields(ours) = Fields::of(capture.link, frame);
        for name in NAMES {
            // tshark tells them of only some of the packets that errors quote.
            if matches!(*name, "tcp.seq_raw" | "tcp.ack_raw") && quotes(&ours) {
                continue;
            }
            assert_eq!(ours.get(name), theirs.get(name), "{name} of {}", what());
            compared += ours.get(name).map_or(0, Vec::len);
        }
        for status in statuses.iter().filter(|_| flawless) {
            // 1: right. 3: none, which is what the UDP of tunnels has. 2: not checked.
            let fine = matches!(&**status, "1" | "3") || status == "2" && quotes(&ours);
            assert!(fine, "checksum status {status} of {}", what());
        }
    }
    Some(compared)
}
