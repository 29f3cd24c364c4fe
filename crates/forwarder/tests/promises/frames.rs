//! Frames that hosts send.

use std::net::IpAddr;
use wire::{Addresses, FiveTuple, MacAddress, checksum, ethernet, icmp, ipv4, ipv6, tcp, udp};

/// A connection.
pub fn tuple(
    source: &str,
    source_port: u16,
    destination: &str,
    destination_port: u16,
    protocol: u8,
) -> FiveTuple {
    let addresses = match (source.parse().unwrap(), destination.parse().unwrap()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 {
            source: source.octets(),
            destination: destination.octets(),
        },
        (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 {
            source: source.octets(),
            destination: destination.octets(),
        },
        _ => panic!("{source} and {destination} are of two families"),
    };
    FiveTuple {
        addresses,
        protocol,
        source_port,
        destination_port,
    }
}

/// An IP packet of a connection with some payload.
pub fn packet(tuple: &FiveTuple, flags: u8, payload: usize) -> Vec<u8> {
    let mut transport = Vec::new();
    transport.extend(tuple.source_port.to_be_bytes());
    transport.extend(tuple.destination_port.to_be_bytes());
    match tuple.protocol {
        tcp::PROTOCOL => {
            transport.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x60, flags, 0xff, 0xff, 0, 0, 0, 0]);
            // The maximum segment size of Ethernet.
            transport.extend([2, 4, 0x05, 0xb4]);
        }
        udp::PROTOCOL => {
            transport.extend((8 + payload as u16).to_be_bytes());
            transport.extend([0, 0]);
        }
        _ => {}
    }
    transport.extend(std::iter::repeat_n(0xa5, payload));
    ip(tuple, transport)
}

/// An IP packet with right checksums.
pub fn ip(tuple: &FiveTuple, mut transport: Vec<u8>) -> Vec<u8> {
    let (header, addresses) = match tuple.addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            let header = ipv4::write(&ipv4::Fields {
                source,
                destination,
                protocol: tuple.protocol,
                ttl: 64,
                payload_length: transport.len(),
                identification: 7,
                dont_fragment: false,
            });
            (header.to_vec(), [source, destination].concat())
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let header = ipv6::write(source, destination, tuple.protocol, 64, transport.len());
            (header.to_vec(), [source, destination].concat())
        }
    };
    let at = match tuple.protocol {
        tcp::PROTOCOL => Some(16),
        udp::PROTOCOL => Some(6),
        _ => None,
    };
    if let Some(at) = at {
        let pseudo = checksum::pseudo_header(&addresses, tuple.protocol, transport.len());
        let sum = checksum::finish(pseudo + checksum::sum(&transport));
        transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    [header, transport].concat()
}

/// An Ethernet frame around an IP packet.
pub fn frame(destination: MacAddress, source: MacAddress, vlan: u16, packet: &[u8]) -> Vec<u8> {
    let ether_type = if packet[0] >> 4 == 6 {
        ethernet::IPV6
    } else {
        ethernet::IPV4
    };
    let mut bytes = vec![0; 18];
    let length = ethernet::Header::write(&mut bytes, destination, source, vlan, ether_type);
    bytes.truncate(length);
    bytes.extend_from_slice(packet);
    bytes
}

/// An ICMP error "host unreachable" or ICMPv6 "no route" about a packet, from its destination.
pub fn unreachable(about: &[u8]) -> Vec<u8> {
    let parsed = wire::IpPacket::parse(about).unwrap();
    let v6 = parsed.is_v6();
    let (kind, code, protocol) = if v6 { (1, 0, 58) } else { (3, 1, 1) };
    let mut message = vec![kind, code, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&about[..about.len().min(500)]);
    let tuple = FiveTuple {
        protocol,
        source_port: 0,
        destination_port: 0,
        ..parsed.tuple.reversed()
    };
    if let Addresses::V6 {
        source,
        destination,
    } = tuple.addresses
    {
        let pseudo = checksum::pseudo_header(&[source, destination].concat(), 58, message.len());
        let sum = checksum::finish(pseudo + checksum::sum(&message));
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    } else {
        let sum = checksum::finish(checksum::sum(&message));
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    ip(&tuple, message)
}

/// Changes source address and port of a UDP or TCP packet over IPv4, as a NAT does; `source` false changes the destination.
pub fn rewrite(packet: &mut [u8], source: bool, address: [u8; 4], port: u16) {
    let (address_at, port_at) = if source { (12, 20) } else { (16, 22) };
    packet[address_at..address_at + 4].copy_from_slice(&address);
    packet[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
    ipv4::set_checksum(&mut packet[..20]);
    let at = if packet[9] == tcp::PROTOCOL { 36 } else { 26 };
    packet[at..at + 2].fill(0);
    let pseudo = checksum::pseudo_header(&packet[12..20], packet[9], packet.len() - 20);
    let sum = checksum::finish(pseudo + checksum::sum(&packet[20..]));
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Whether the ICMP message of a checked packet is the error that says what size fits; which size.
pub fn fitting_size(packet: &[u8]) -> Option<u32> {
    let parsed = wire::IpPacket::parse(packet).ok()?;
    let message = &packet[parsed.transport_offset..parsed.length];
    icmp::Message::parse(parsed.is_v6(), message).ok()?;
    let word = u32::from_be_bytes(message[4..8].try_into().ok()?);
    match (parsed.is_v6(), message[0], message[1]) {
        (false, 3, 4) | (true, 2, 0) => Some(word),
        _ => None,
    }
}
