//! Takes a frame apart with the codecs, layer by layer, as far as they go.

use super::capture;
use wire::icmp::Message;
use wire::ip::{ICMP, ICMPV6};
use wire::mpls::{ENTRY_LENGTH, StackEntry};
use wire::{ParseError, arp, ethernet, ipv4, ipv6, nsh, tcp, udp, vxlan, vxlan_gpe};

/// Layers inside each other that are read at most.
const DEPTH_LIMIT: usize = 24;
const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;

/// What comes next, and where.
#[derive(Clone, Copy)]
enum Next {
    Ethernet,
    Ppp,
    EtherType(u16),
    Ip,
    Transport(u8),
    UdpPort(u16),
    Nsh,
    Nothing,
}

/// The layers of a frame: each one's name and bytes, to the end of what holds it.
pub struct Layers<'a> {
    pub found: Vec<(&'static str, &'a [u8])>,
    pub error: Option<ParseError>,
}

impl<'a> Layers<'a> {
    /// Takes apart a frame of that link type.
    pub fn of(link: u32, frame: &'a [u8]) -> Layers<'a> {
        let mut layers = Layers {
            found: Vec::new(),
            error: None,
        };
        let mut rest = frame;
        let mut next = match link {
            capture::ETHERNET => Next::Ethernet,
            capture::PPP => Next::Ppp,
            capture::RAW_IP => Next::Ip,
            other => panic!("no link type {other} here"),
        };
        for _ in 0..DEPTH_LIMIT {
            let (name, reader) = reader(next);
            if name.is_empty() {
                break;
            }
            layers.found.push((name, rest));
            match reader(next, rest) {
                Ok((inner, bytes)) => (next, rest) = (inner, bytes),
                Err(error) => {
                    layers.error = Some(error);
                    break;
                }
            }
        }
        layers
    }

    /// Names with slashes between them, and the error behind an exclamation mark.
    pub fn summary(&self) -> String {
        let names: Vec<_> = self.found.iter().map(|(name, _)| *name).collect();
        let error = self.error.map(|error| format!("!{error}"));
        names.join("/") + &error.unwrap_or_default()
    }
}

type Reader = for<'a> fn(Next, &'a [u8]) -> Result<(Next, &'a [u8]), ParseError>;

fn reader(next: Next) -> (&'static str, Reader) {
    match next {
        Next::Ethernet => ("ethernet", read_ethernet),
        Next::Ppp => ("ppp", read_ppp),
        Next::EtherType(ethernet::ARP) => ("arp", read_arp),
        Next::EtherType(ethernet::IPV4) => ("ipv4", read_ip),
        Next::EtherType(ethernet::IPV6) => ("ipv6", read_ip),
        Next::EtherType(ethernet::MPLS | ethernet::MPLS_UPSTREAM) => ("mpls", read_mpls),
        Next::EtherType(ethernet::NSH) | Next::Nsh => ("nsh", read_nsh),
        Next::Ip => ("ip", read_ip),
        Next::Transport(tcp::PROTOCOL) => ("tcp", read_tcp),
        Next::Transport(udp::PROTOCOL) => ("udp", read_udp),
        Next::Transport(ICMP) => ("icmp", read_icmp),
        Next::Transport(ICMPV6) => ("icmpv6", read_icmp),
        Next::Transport(IPV4_IN_IP) => ("ipv4", read_ip),
        Next::Transport(IPV6_IN_IP) => ("ipv6", read_ip),
        Next::UdpPort(vxlan::PORT) => ("vxlan", read_vxlan),
        Next::UdpPort(vxlan_gpe::PORT) => ("vxlan_gpe", read_vxlan_gpe),
        Next::UdpPort(wire::mpls_in_udp::PORT) => ("mpls", read_mpls),
        Next::EtherType(_) | Next::Transport(_) | Next::UdpPort(_) | Next::Nothing => {
            ("", |_, _| Ok((Next::Nothing, &[])))
        }
    }
}

fn read_ethernet(_: Next, bytes: &[u8]) -> Result<(Next, &[u8]), ParseError> {
    let header = ethernet::Header::parse(bytes)?;
    Ok((Next::EtherType(header.ether_type), &bytes[header.length..]))
}

fn read_ppp(_: Next, bytes: &[u8]) -> Result<(Next, &[u8]), ParseError> {
    let ether_type = match bytes {
        [0xff, 0x03, 0x02, 0x81, ..] => ethernet::MPLS,
        [0xff, 0x03, 0x00, 0x21, ..] => ethernet::IPV4,
        _ => panic!("unknown PPP header {:x?}", &bytes[..4]),
    };
    Ok((Next::EtherType(ether_type), &bytes[4..]))
}

fn read_arp(_: Next, bytes: &[u8]) -> Result<(Next, &[u8]), ParseError> {
    arp::Arp::parse(bytes)?;
    Ok((Next::Nothing, &[]))
}

fn read_mpls(_: Next, bytes: &[u8]) -> Result<(Next, &[u8]), ParseError> {
    let stack = label_stack(bytes)?;
    Ok((Next::Ip, &bytes[stack.len() * ENTRY_LENGTH..]))
}

/// The entries of a label stack, to its bottom.
pub fn label_stack(bytes: &[u8]) -> Result<Vec<StackEntry>, ParseError> {
    let mut stack = Vec::new();
    for entry in bytes.chunks(ENTRY_LENGTH) {
        stack.push(StackEntry::parse(entry)?);
        if stack.last().is_some_and(|entry| entry.bottom_of_stack) {
            return Ok(stack);
        }
    }
    Err(ParseError::MplsNoBottomOfStack)
}

fn read_ip(next: Next, bytes: &[u8]) -> Result<(Next, &[u8]), ParseError> {
    let version = match next {
        Next::EtherType(ethernet::IPV4) | Next::Transport(IPV4_IN_IP) => 4,
        Next::EtherType(ethernet::IPV6) | Next::Transport(IPV6_IN_IP) => 6,
        _ => bytes.first().map_or(0, |byte| byte >> 4),
    };
    let (protocol, later, transport) = match version {
        4 => {
            let header = ipv4::Header::parse(bytes)?;
            let payload = &bytes[header.header_length..header.total_length];
            (header.protocol, header.fragment_offset > 0, payload)
        }
        6 => {
            let header = ipv6::Header::parse(bytes)?;
            let payload = &bytes[header.transport_offset..header.total_length];
            let later = header.fragment.is_some_and(|fragment| fragment.offset > 0);
            (header.protocol, later, payload)
        }
        _ => return Err(ParseError::InnerNotIp),
    };
    let next = if later {
        Next::Nothing
    } else {
        Next::Transport(protocol)
    };
    Ok((next, transport))
}

fn read_tcp(_: Next, bytes: &[u8]) -> Result<(Next, &[u8]), ParseError> {
    tcp::Header::parse(bytes)?;
    Ok((Next::Nothing, &[]))
}

fn read_udp(_: Next, bytes: &[u8]) -> Result<(Next, &[u8]), ParseError> {
    let header = udp::Header::parse(bytes)?;
    let payload = &bytes[udp::HEADER_LENGTH..header.length];
    Ok((Next::UdpPort(header.destination_port), payload))
}

fn read_icmp(next: Next, bytes: &[u8]) -> Result<(Next, &[u8]), ParseError> {
    let v6 = matches!(next, Next::Transport(ICMPV6));
    if Message::parse(v6, bytes)?.is_error {
        wire::icmp::quoted_tuple(v6, bytes)?;
    }
    Ok((Next::Nothing, &[]))
}

fn read_vxlan(_: Next, bytes: &[u8]) -> Result<(Next, &[u8]), ParseError> {
    vxlan::parse(bytes)?;
    Ok((Next::Ethernet, &bytes[vxlan::HEADER_LENGTH..]))
}

fn read_vxlan_gpe(_: Next, bytes: &[u8]) -> Result<(Next, &[u8]), ParseError> {
    use vxlan_gpe::NextProtocol;
    let next = match vxlan_gpe::Header::parse(bytes)?.next {
        NextProtocol::Ipv4 | NextProtocol::Ipv6 => Next::Ip,
        NextProtocol::Ethernet => Next::Ethernet,
        NextProtocol::Nsh => Next::Nsh,
    };
    Ok((next, &bytes[vxlan_gpe::HEADER_LENGTH..]))
}

fn read_nsh(_: Next, bytes: &[u8]) -> Result<(Next, &[u8]), ParseError> {
    use nsh::NextProtocol;
    let header = nsh::Header::parse(bytes)?;
    let next = match header.next {
        NextProtocol::Ipv4 => Next::EtherType(ethernet::IPV4),
        NextProtocol::Ipv6 => Next::EtherType(ethernet::IPV6),
        NextProtocol::Ethernet => Next::Ethernet,
        NextProtocol::Nsh => Next::Nsh,
        NextProtocol::Mpls => Next::EtherType(ethernet::MPLS),
    };
    Ok((next, &bytes[header.length..]))
}
