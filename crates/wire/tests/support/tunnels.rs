//! Packets inside tunnels, written here header by header, as a host sends them one by one.

use wire::{checksum, ethernet, ipv4, ipv6, tcp, udp};

/// What is around a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// Ethernet with this many tags.
    Ethernet(usize),
    /// IPv4 and IPv6.
    V4,
    V6,
    /// IPv6 with an extension header (destination options), as Linux writes it for tunnels.
    V6WithOptions,
    /// UDP to a port, with a checksum or without.
    Udp(u16, bool),
    Vxlan,
    /// VXLAN-GPE, of an IP packet.
    VxlanGpe,
    /// Geneve with so many words of options.
    Geneve(usize),
    /// GRE with a checksum, a key, a sequence number.
    Gre(bool, bool, bool),
}

/// A frame: what is around its TCP or UDP segment, from the outside to the inside.
#[derive(Clone, Debug)]
pub struct Shape {
    pub around: Vec<Around>,
    pub tcp: bool,
}

/// One of the packets that a packet of several segments stands for.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Which it is, from 0.
    pub number: usize,
    /// Bytes of payload in front of its own.
    pub offset: usize,
    pub is_first: bool,
    pub is_last: bool,
}

impl Piece {
    /// All of them in one.
    pub const WHOLE: Piece = Piece {
        number: 0,
        offset: 0,
        is_first: true,
        is_last: true,
    };
}

/// Tunnels of every kind, over and with IPv4 and IPv6.
pub fn shapes() -> Vec<Shape> {
    use Around::*;
    let tunnels: [&[Around]; 16] = [
        &[Ethernet(0), V4, Udp(4789, false), Vxlan, Ethernet(0), V4],
        &[Ethernet(1), V4, Udp(4789, true), Vxlan, Ethernet(1), V6],
        &[Ethernet(0), V6, Udp(8472, true), Vxlan, Ethernet(0), V4],
        &[Ethernet(0), V6, Udp(4789, false), Vxlan, Ethernet(2), V6],
        &[Ethernet(0), V4, Udp(4790, true), VxlanGpe, V4],
        &[Ethernet(2), V6, Udp(6081, true), Geneve(0), Ethernet(0), V4],
        &[
            Ethernet(0),
            V4,
            Udp(6081, false),
            Geneve(2),
            Ethernet(0),
            V6,
        ],
        &[Ethernet(0), V4, Udp(6081, true), Geneve(3), V6],
        &[Ethernet(0), V4, Gre(false, false, false), V4],
        &[Ethernet(1), V4, Gre(true, true, false), V6],
        &[Ethernet(0), V6, Gre(true, false, false), Ethernet(0), V4],
        &[Ethernet(0), V4, V4],
        &[Ethernet(0), V4, V6],
        &[Ethernet(0), V6WithOptions, V4],
        &[Ethernet(0), V6WithOptions, Gre(false, true, false), V6],
        // A tunnel in a tunnel.
        &[
            Ethernet(0),
            V4,
            Gre(true, false, false),
            V6,
            Udp(4789, true),
            Vxlan,
            Ethernet(0),
            V4,
        ],
    ];
    let shape = |tcp| move |around: &&[Around]| (around.to_vec(), tcp);
    let all = tunnels.iter().map(shape(true));
    all.chain(tunnels.iter().map(shape(false)))
        .map(|(around, tcp)| Shape { around, tcp })
        .collect()
}

/// The frame of a shape with a payload, all lengths and checksums right.
pub fn frame(shape: &Shape, payload: &[u8], piece: Piece) -> Vec<u8> {
    let mut bytes = transport(shape.tcp, payload, piece);
    let mut next = if shape.tcp {
        tcp::PROTOCOL
    } else {
        udp::PROTOCOL
    }
    .into();
    for (depth, around) in shape.around.iter().enumerate().rev() {
        // The checksum of TCP and UDP is over addresses that are known only here.
        let fill = match shape.around.get(depth + 1) {
            Some(Around::Udp(_, has_checksum)) => has_checksum.then_some((udp::PROTOCOL, 6)),
            None if shape.tcp => Some((tcp::PROTOCOL, 16)),
            None => Some((udp::PROTOCOL, 6)),
            Some(_) => None,
        };
        (bytes, next) = wrap(*around, bytes, next, piece.number, fill, depth);
    }
    bytes
}

/// Where the TCP or UDP header of a frame of a shape is.
pub fn transport_offset(shape: &Shape) -> usize {
    let length = frame(shape, &[], Piece::WHOLE).len();
    length - transport(shape.tcp, &[], Piece::WHOLE).len()
}

/// A TCP or UDP header without checksum, and its payload.
fn transport(tcp: bool, payload: &[u8], piece: Piece) -> Vec<u8> {
    let mut bytes = if tcp {
        let sequence = 0xffff_ff00_u32.wrapping_add(piece.offset as u32);
        let last = if piece.is_last { tcp::FIN | 8 } else { 0 };
        let first = if piece.is_first { 0x80 } else { 0 };
        let mut bytes = vec![0x10, 0, 0, 80];
        bytes.extend(sequence.to_be_bytes());
        bytes.extend([0, 0, 0, 9, 0x80, tcp::ACK | first | last, 1, 0, 0, 0, 0, 0]);
        bytes.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        bytes
    } else {
        let length = (udp::HEADER_LENGTH + payload.len()) as u16;
        let [high, low] = length.to_be_bytes();
        vec![0x10, 0, 0x20, 1, high, low, 0, 0]
    };
    bytes.extend_from_slice(payload);
    bytes
}

/// Puts a header in front of bytes of which `next` says what they are; returns what it is itself. `fill` is the checksum to
/// finish in them.
fn wrap(
    around: Around,
    mut bytes: Vec<u8>,
    next: u16,
    number: usize,
    fill: Option<(u8, usize)>,
    depth: usize,
) -> (Vec<u8>, u16) {
    let host = depth as u8 + 1;
    let (mut header, is) = match around {
        Around::Ethernet(tags) => {
            let mut header = [[2, host, 0, 0, 0, 1], [2, host, 0, 0, 0, 2]].concat();
            for tag in 0..tags {
                let outer = tag + 1 < tags;
                header.extend([
                    if outer { 0x88 } else { 0x81 },
                    if outer { 0xa8 } else { 0 },
                ]);
                header.extend([0, 7 + tag as u8]);
            }
            header.extend(next.to_be_bytes());
            (header, 0x6558)
        }
        Around::V4 => {
            let fields = ipv4::Fields {
                source: [10, host, 0, 1],
                destination: [10, host, 0, 2],
                protocol: ip_protocol(next),
                ttl: 64,
                payload_length: bytes.len(),
                identification: (0xfffe_u16).wrapping_add(number as u16),
                dont_fragment: depth != 1,
            };
            (ipv4::write(&fields).to_vec(), ethernet::IPV4)
        }
        Around::V6 | Around::V6WithOptions => {
            let options = around == Around::V6WithOptions;
            let protocol = ip_protocol(next);
            let (first, length) = match options {
                true => (60, bytes.len() + 8),
                false => (protocol, bytes.len()),
            };
            let mut header = ipv6::write([host; 16], [host + 100; 16], first, 64, length).to_vec();
            if options {
                // A limit of tunnels in each other (RFC 2473, section 4.1.1), and padding.
                header.extend([protocol, 0, 4, 1, 4, 1, 1, 0]);
            }
            (header, ethernet::IPV6)
        }
        Around::Udp(port, _) => {
            let mut header = 50_000_u16.to_be_bytes().to_vec();
            header.extend(port.to_be_bytes());
            header.extend(((udp::HEADER_LENGTH + bytes.len()) as u16).to_be_bytes());
            header.extend([0, 0]);
            (header, udp::PROTOCOL.into())
        }
        Around::Vxlan => (vec![8, 0, 0, 0, 0, 0, 5, 0], 0),
        Around::VxlanGpe => {
            let next = if next == ethernet::IPV4 { 1 } else { 2 };
            (vec![0x0c, 0, 0, next, 0, 0, 5, 0], 0)
        }
        Around::Geneve(words) => {
            let mut header = vec![words as u8, 0];
            header.extend(next.to_be_bytes());
            header.extend([0, 0, 5, 0]);
            if words > 0 {
                header.extend([0xff, 0, 1, words as u8 - 1]);
                header.extend(vec![0xab; 4 * (words - 1)]);
            }
            (header, 0)
        }
        Around::Gre(has_checksum, key, numbered) => (
            gre(has_checksum, key, numbered, next, &bytes),
            u16::from(GRE),
        ),
    };
    if let Some((protocol, at)) = fill {
        let addresses = match around {
            Around::V4 => &header[12..20],
            _ => &header[8..40],
        };
        let sum = checksum::pseudo_header(addresses, protocol, bytes.len()) + checksum::sum(&bytes);
        let sum = checksum::finish(sum);
        let sum = if sum == 0 { 0xffff } else { sum };
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    header.extend(bytes);
    (header, is)
}

const GRE: u8 = 47;

fn gre(has_checksum: bool, key: bool, numbered: bool, next: u16, bytes: &[u8]) -> Vec<u8> {
    let flags = u8::from(has_checksum) << 7 | u8::from(key) << 5 | u8::from(numbered) << 4;
    let mut header = vec![flags, 0];
    header.extend(next.to_be_bytes());
    if has_checksum {
        header.extend([0; 4]);
    }
    if key {
        header.extend([0, 0, 0, 42]);
    }
    if numbered {
        header.extend([0, 0, 0, 7]);
    }
    if has_checksum {
        let sum = checksum::finish(checksum::sum(&header) + checksum::sum(bytes));
        let sum = if sum == 0 { 0xffff } else { sum };
        header[4..6].copy_from_slice(&sum.to_be_bytes());
    }
    header
}

/// The protocol number of what an IP header is in front of.
fn ip_protocol(next: u16) -> u8 {
    match next {
        ethernet::IPV4 => 4,
        ethernet::IPV6 => 41,
        protocol => protocol as u8,
    }
}
