//! What the codecs read of a frame, under the names that tshark gives to the same fields; and what they write and need not read, by its place in the
//! header.

use super::layers::{Layers, label_stack};
use std::collections::BTreeMap;
use wire::icmp::Message;
use wire::neighbour_discovery::Neighbour;
use wire::{IpPacket, arp, ethernet, ipv4, ipv6, nsh, tcp, udp, vlan, vxlan, vxlan_gpe};

/// Bytes of the extension headers of an IPv6 header, and the protocol behind them. tshark tells each header's.
pub const EXTENSION_BYTES: &str = "ipv6.extensions.bytes";
pub const EXTENSION_PROTOCOL: &str = "ipv6.extensions.protocol";

/// What is less is a length (IEEE 802.3).
const LEAST_ETHER_TYPE: u16 = 0x600;

/// Fields that are compared.
pub const NAMES: &[&str] = &[
    "arp.dst.hw_mac",
    "arp.dst.proto_ipv4",
    "arp.opcode",
    "arp.src.hw_mac",
    "arp.src.proto_ipv4",
    "eth.dst",
    "eth.src",
    "eth.type",
    "icmp.checksum",
    "icmp.code",
    "icmp.ident",
    "icmp.mtu",
    "icmp.type",
    "icmpv6.checksum",
    "icmpv6.code",
    "icmpv6.echo.identifier",
    "icmpv6.mtu",
    "icmpv6.nd.na.flag.o",
    "icmpv6.nd.na.flag.r",
    "icmpv6.nd.na.flag.s",
    "icmpv6.nd.na.target_address",
    "icmpv6.nd.ns.target_address",
    "icmpv6.opt.linkaddr",
    "icmpv6.type",
    "ieee8021ad.dei",
    "ieee8021ad.id",
    "ieee8021ad.priority",
    "ieee8021ah.etype",
    "ip.checksum",
    "ip.dsfield",
    "ip.dst",
    "ip.flags.df",
    "ip.flags.mf",
    "ip.frag_offset",
    "ip.hdr_len",
    "ip.id",
    "ip.len",
    "ip.opt.len",
    "ip.opt.type",
    "ip.proto",
    "ip.src",
    "ip.ttl",
    "ipv6.dst",
    EXTENSION_BYTES,
    EXTENSION_PROTOCOL,
    "ipv6.flow",
    "ipv6.fraghdr.ident",
    "ipv6.fraghdr.more",
    "ipv6.fraghdr.offset",
    "ipv6.hlim",
    "ipv6.nxt",
    "ipv6.plen",
    "ipv6.src",
    "ipv6.tclass",
    "mpls.bottom",
    "mpls.exp",
    "mpls.label",
    "mpls.ttl",
    "nsh.CBit",
    "nsh.Obit",
    "nsh.contextheader",
    "nsh.length",
    "nsh.mdtype",
    "nsh.nextproto",
    "nsh.si",
    "nsh.spi",
    "nsh.ttl",
    "nsh.version",
    "tcp.ack_raw",
    "tcp.checksum",
    "tcp.dstport",
    "tcp.flags",
    "tcp.hdr_len",
    "tcp.options.mss_val",
    "tcp.seq_raw",
    "tcp.srcport",
    "tcp.urgent_pointer",
    "tcp.window_size_value",
    "udp.checksum",
    "udp.dstport",
    "udp.length",
    "udp.srcport",
    "vlan.dei",
    "vlan.etype",
    "vlan.id",
    "vlan.priority",
    "vxlan.flags",
    "vxlan.i_bit",
    "vxlan.next_proto",
    "vxlan.o_bit",
    "vxlan.p_bit",
    "vxlan.ver",
    "vxlan.vni",
];

/// Values by field, in the order of the layers; none of a field that no layer has.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Fields(pub BTreeMap<&'static str, Vec<String>>);

impl Fields {
    /// What the codecs read of a frame of that link type, quoted packets included.
    pub fn of(link: u32, frame: &[u8]) -> Fields {
        let mut fields = Fields::default();
        fields.read(&Layers::of(link, frame));
        fields
    }

    fn put(&mut self, name: &'static str, value: impl ToString) {
        assert!(NAMES.contains(&name), "{name} is not compared");
        self.0.entry(name).or_default().push(value.to_string());
    }

    fn read(&mut self, layers: &Layers) {
        let mut link_hop = None;
        for (name, bytes) in &layers.found {
            match *name {
                "ethernet" => self.ethernet(bytes),
                "arp" => self.arp(bytes),
                "mpls" => self.mpls(bytes),
                "vxlan" => {
                    self.put("vxlan.vni", vxlan::parse(bytes).unwrap());
                    self.put("vxlan.flags", short(bytes, 0));
                }
                "vxlan_gpe" => self.vxlan_gpe(bytes),
                "nsh" => self.nsh(bytes),
                "tcp" => self.tcp(bytes),
                "udp" => self.udp(bytes),
                "icmp" => self.icmp(bytes),
                "icmpv6" => self.icmpv6(link_hop.expect("IPv6 around ICMPv6"), bytes),
                _ if bytes[0] >> 4 == 4 => self.ipv4(bytes),
                _ => link_hop = Some(self.ipv6(bytes)),
            }
        }
    }

    fn vxlan_gpe(&mut self, bytes: &[u8]) {
        let header = vxlan_gpe::Header::parse(bytes).unwrap();
        self.put("vxlan.vni", header.network);
        self.put("vxlan.flags", bytes[0]);
        self.put("vxlan.ver", bytes[0] >> 4 & 3);
        self.put("vxlan.i_bit", bytes[0] >> 3 & 1);
        self.put("vxlan.p_bit", bytes[0] >> 2 & 1);
        self.put("vxlan.o_bit", bytes[0] & 1);
        self.put("vxlan.next_proto", bytes[3]);
    }

    fn ethernet(&mut self, bytes: &[u8]) {
        let header = ethernet::Header::parse(bytes).unwrap();
        self.put("eth.dst", header.destination);
        self.put("eth.src", header.source);
        if short(bytes, 12) >= LEAST_ETHER_TYPE {
            self.put("eth.type", short(bytes, 12));
        }
        for at in (14..header.length).step_by(vlan::TAG_LENGTH) {
            let (tag, ether_type) = vlan::Tag::parse(&bytes[at..]).unwrap();
            let is_provider = bytes[at - 2..at] == vlan::PROVIDER.to_be_bytes();
            let names = if is_provider {
                // The type's field is the one of the next standard's.
                [
                    "ieee8021ad.priority",
                    "ieee8021ad.dei",
                    "ieee8021ad.id",
                    "ieee8021ah.etype",
                ]
            } else {
                ["vlan.priority", "vlan.dei", "vlan.id", "vlan.etype"]
            };
            self.put(names[0], tag.priority);
            self.put(names[1], u8::from(tag.drop_eligible));
            self.put(names[2], tag.identifier);
            if ether_type >= LEAST_ETHER_TYPE {
                self.put(names[3], ether_type);
            }
        }
    }

    fn arp(&mut self, bytes: &[u8]) {
        let arp = arp::Arp::parse(bytes).unwrap();
        self.put("arp.opcode", bytes[7]);
        self.put("arp.src.hw_mac", arp.sender_mac);
        self.put("arp.dst.hw_mac", arp.target_mac);
        self.put("arp.src.proto_ipv4", std::net::Ipv4Addr::from(arp.sender));
        self.put("arp.dst.proto_ipv4", std::net::Ipv4Addr::from(arp.target));
    }

    fn mpls(&mut self, bytes: &[u8]) {
        for entry in label_stack(bytes).unwrap() {
            self.put("mpls.label", entry.label);
            self.put("mpls.exp", entry.traffic_class);
            self.put("mpls.bottom", u8::from(entry.bottom_of_stack));
            self.put("mpls.ttl", entry.ttl);
        }
    }

    fn nsh(&mut self, bytes: &[u8]) {
        let header = nsh::Header::parse(bytes).unwrap();
        self.put("nsh.Obit", u8::from(header.oam));
        self.put("nsh.ttl", header.ttl);
        self.put("nsh.length", header.length / 4);
        self.put("nsh.mdtype", header.metadata as u8);
        self.put("nsh.nextproto", header.next as u8);
        self.put("nsh.spi", header.path);
        self.put("nsh.si", header.index);
        self.put("nsh.version", bytes[0] >> 6);
        self.put("nsh.CBit", bytes[0] >> 4 & 1);
        if header.metadata as u8 == 1 {
            for context in bytes[8..24].as_chunks::<4>().0 {
                self.put(
                    "nsh.contextheader",
                    format!("{:08x}", u32::from_be_bytes(*context)),
                );
            }
        }
    }

    fn ipv4(&mut self, bytes: &[u8]) {
        let header = ipv4::Header::parse(bytes).unwrap();
        self.put("ip.src", std::net::Ipv4Addr::from(header.source));
        self.put("ip.dst", std::net::Ipv4Addr::from(header.destination));
        self.put("ip.ttl", header.ttl);
        self.put("ip.proto", header.protocol);
        self.put("ip.hdr_len", header.header_length);
        self.put("ip.len", header.total_length);
        self.put("ip.id", header.identification);
        self.put("ip.flags.df", u8::from(header.dont_fragment));
        self.put("ip.flags.mf", u8::from(header.more_fragments));
        self.put("ip.dsfield", bytes[1]);
        self.put("ip.checksum", short(bytes, 10));
        // tshark shows offsets as they are sent, in units of 8 bytes.
        self.put("ip.frag_offset", header.fragment_offset / 8);
        for option in ipv4::Options::of(bytes, header.header_length) {
            self.put("ip.opt.type", option.kind);
            self.put("ip.opt.len", option.bytes.len());
        }
    }

    fn ipv6(&mut self, bytes: &[u8]) -> ipv6::Header {
        let header = ipv6::Header::parse(bytes).unwrap();
        self.put("ipv6.src", std::net::Ipv6Addr::from(header.source));
        self.put("ipv6.dst", std::net::Ipv6Addr::from(header.destination));
        self.put("ipv6.hlim", header.hop_limit);
        self.put("ipv6.tclass", short(bytes, 0) >> 4 & 0xff);
        self.put("ipv6.flow", word(bytes, 0) & 0xf_ffff);
        self.put("ipv6.nxt", bytes[6]);
        self.put("ipv6.plen", header.total_length - ipv6::HEADER_LENGTH);
        if header.transport_offset > ipv6::HEADER_LENGTH {
            let length = header.transport_offset - ipv6::HEADER_LENGTH;
            self.put(EXTENSION_BYTES, length);
            self.put(EXTENSION_PROTOCOL, header.protocol);
        }
        if let Some(fragment) = header.fragment {
            self.put("ipv6.fraghdr.offset", fragment.offset / 8);
            self.put("ipv6.fraghdr.more", u8::from(fragment.more));
            self.put("ipv6.fraghdr.ident", fragment.identification);
        }
        header
    }

    fn tcp(&mut self, bytes: &[u8]) {
        let header = tcp::Header::parse(bytes).unwrap();
        self.put("tcp.srcport", header.source_port);
        self.put("tcp.dstport", header.destination_port);
        self.put("tcp.flags", header.flags);
        self.put("tcp.hdr_len", header.header_length);
        self.put("tcp.seq_raw", word(bytes, 4));
        self.put("tcp.ack_raw", word(bytes, 8));
        self.put("tcp.window_size_value", short(bytes, 14));
        self.put("tcp.checksum", short(bytes, 16));
        self.put("tcp.urgent_pointer", short(bytes, 18));
        if let Some(size) = tcp::maximum_segment_size(bytes) {
            self.put("tcp.options.mss_val", size);
        }
    }

    fn udp(&mut self, bytes: &[u8]) {
        let header = udp::Header::parse(bytes).unwrap();
        self.put("udp.srcport", header.source_port);
        self.put("udp.dstport", header.destination_port);
        self.put("udp.length", header.length);
        self.put("udp.checksum", short(bytes, 6));
    }

    fn icmp(&mut self, bytes: &[u8]) {
        let message = Message::parse(false, bytes).unwrap();
        self.put("icmp.type", message.kind);
        self.put("icmp.code", message.code);
        self.put("icmp.checksum", short(bytes, 2));
        if let Some(identifier) = message.echo_identifier {
            self.put("icmp.ident", identifier);
        }
        if (message.kind, message.code) == (3, 4) {
            self.put("icmp.mtu", short(bytes, 6));
        }
        self.quoted(message, false, bytes);
    }

    fn icmpv6(&mut self, header: ipv6::Header, bytes: &[u8]) {
        let message = Message::parse(true, bytes).unwrap();
        self.put("icmpv6.type", message.kind);
        self.put("icmpv6.code", message.code);
        self.put("icmpv6.checksum", short(bytes, 2));
        if let Some(identifier) = message.echo_identifier {
            self.put("icmpv6.echo.identifier", identifier);
        }
        if message.kind == 2 {
            self.put("icmpv6.mtu", word(bytes, 4));
        }
        if let Some(neighbour) = Neighbour::check(&header, bytes).unwrap() {
            let name = if neighbour.solicitation {
                "icmpv6.nd.ns.target_address"
            } else {
                "icmpv6.nd.na.target_address"
            };
            self.put(name, std::net::Ipv6Addr::from(neighbour.target));
            if !neighbour.solicitation {
                self.put("icmpv6.nd.na.flag.r", bytes[4] >> 7);
                self.put("icmpv6.nd.na.flag.s", bytes[4] >> 6 & 1);
                self.put("icmpv6.nd.na.flag.o", bytes[4] >> 5 & 1);
            }
            if let Some(mac) = neighbour.mac {
                self.put("icmpv6.opt.linkaddr", mac);
            }
        }
        self.quoted(message, true, bytes);
    }

    /// The packet an error quotes, which must be whole.
    fn quoted(&mut self, message: Message, v6: bool, bytes: &[u8]) {
        if message.is_error {
            let quote = &bytes[wire::icmp::HEADER_LENGTH..];
            let parsed = IpPacket::parse(quote).expect("a whole quoted packet");
            assert_eq!(wire::icmp::quoted_tuple(v6, bytes), Ok(parsed.tuple));
            self.read(&Layers::of(super::capture::RAW_IP, quote));
        }
    }
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(short(bytes, at)) << 16 | u32::from(short(bytes, at + 2))
}
