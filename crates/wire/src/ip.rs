//! An IP packet of either version: what steering needs to know of it.

use crate::{Addresses, FiveTuple, ParseError, ethernet, icmp, ipv4, ipv6, tcp, udp};

/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// Whether a packet is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragmentation {
    /// Not a fragment.
    Whole,
    /// The first fragment: it has the ports.
    First {
        /// Names the original packet.
        identification: u32,
    },
    /// A later fragment: it has none.
    Later {
        /// Names the original packet.
        identification: u32,
    },
}

/// A checked packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpPacket {
    /// The connection this packet itself shows; of later fragments without ports.
    pub tuple: FiveTuple,
    /// For ICMP errors: the connection of the packet they quote, as the quoted packet shows it.
    pub quoted: Option<FiveTuple>,
    /// For ICMP errors that quote a later fragment, which shows no ports: the identification of the packet it is of.
    pub quoted_fragment: Option<u32>,
    /// Bytes, header included; the frame may hold padding behind.
    pub length: usize,
    /// Bytes up to the transport header.
    pub transport_offset: usize,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Byte 13 of the TCP header; 0 for others.
    pub tcp_flags: u8,
    /// Whether routers may not fragment it (always so for IPv6).
    pub dont_fragment: bool,
    /// Whether it is a fragment.
    pub fragmentation: Fragmentation,
}

impl IpPacket {
    /// Reads and checks a packet: version, lengths, checksum, and the transport header where it is present.
    ///
    /// # Errors
    /// Names the first thing wrong; [`ParseError::InnerNotIp`] when it is neither version.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<IpPacket, ParseError> {
        match packet.first().map(|byte| byte >> 4) {
            Some(4) => Self::parse_v4(packet),
            Some(6) => Self::parse_v6(packet),
            _ => Err(ParseError::InnerNotIp),
        }
    }

    /// The same for the payload of a frame, whose EtherType says which version it is.
    ///
    /// # Errors
    /// As for [`IpPacket::parse`]; the version is not the one that is said, or none is.
    #[inline]
    pub fn parse_as(ether_type: u16, packet: &[u8]) -> Result<IpPacket, ParseError> {
        match ether_type {
            ethernet::IPV4 => Self::parse_v4(packet),
            ethernet::IPV6 => Self::parse_v6(packet),
            _ => Err(ParseError::InnerNotIp),
        }
    }

    /// Whether it is an IPv6 packet.
    pub fn is_v6(&self) -> bool {
        matches!(self.tuple.addresses, Addresses::V6 { .. })
    }

    #[inline(always)]
    fn parse_v4(packet: &[u8]) -> Result<IpPacket, ParseError> {
        let header = ipv4::Header::parse(packet)?;
        let identification = u32::from(header.identification);
        let fragmentation = match (header.fragment_offset, header.more_fragments) {
            (0, false) => Fragmentation::Whole,
            (0, true) => Fragmentation::First { identification },
            _ => Fragmentation::Later { identification },
        };
        let transport = &packet[header.header_length..header.total_length];
        if header.protocol == ICMP {
            return Self::of_v4(&header, fragmentation, Ports::default()).with_icmp(transport);
        }
        let ports = Ports::read(header.protocol, fragmentation, transport)?;
        Ok(Self::of_v4(&header, fragmentation, ports))
    }

    #[inline(always)]
    fn of_v4(header: &ipv4::Header, fragmentation: Fragmentation, ports: Ports) -> IpPacket {
        IpPacket {
            tuple: FiveTuple {
                addresses: Addresses::V4 {
                    source: header.source,
                    destination: header.destination,
                },
                protocol: header.protocol,
                source_port: ports.source,
                destination_port: ports.destination,
            },
            quoted: None,
            quoted_fragment: None,
            length: header.total_length,
            transport_offset: header.header_length,
            ttl: header.ttl,
            tcp_flags: ports.tcp_flags,
            dont_fragment: header.dont_fragment,
            fragmentation,
        }
    }

    #[inline(always)]
    fn parse_v6(packet: &[u8]) -> Result<IpPacket, ParseError> {
        let header = ipv6::Header::parse(packet)?;
        let fragmentation = match header.fragment {
            None => Fragmentation::Whole,
            // An atomic fragment (RFC 6946) is a whole packet.
            Some(fragment) if fragment.offset == 0 && !fragment.more => Fragmentation::Whole,
            Some(fragment) if fragment.offset == 0 => Fragmentation::First {
                identification: fragment.identification,
            },
            Some(fragment) => Fragmentation::Later {
                identification: fragment.identification,
            },
        };
        let transport = &packet[header.transport_offset..header.total_length];
        if header.protocol == ICMPV6 {
            return Self::of_v6(&header, fragmentation, Ports::default()).with_icmp(transport);
        }
        let ports = Ports::read(header.protocol, fragmentation, transport)?;
        Ok(Self::of_v6(&header, fragmentation, ports))
    }

    #[inline(always)]
    fn of_v6(header: &ipv6::Header, fragmentation: Fragmentation, ports: Ports) -> IpPacket {
        IpPacket {
            tuple: FiveTuple {
                addresses: Addresses::V6 {
                    source: header.source,
                    destination: header.destination,
                },
                protocol: header.protocol,
                source_port: ports.source,
                destination_port: ports.destination,
            },
            quoted: None,
            quoted_fragment: None,
            length: header.total_length,
            transport_offset: header.transport_offset,
            ttl: header.hop_limit,
            tcp_flags: ports.tcp_flags,
            dont_fragment: true,
            fragmentation,
        }
    }

    /// Apart, so that what every packet needs stays small.
    #[cold]
    #[inline(never)]
    fn with_icmp(mut self, bytes: &[u8]) -> Result<IpPacket, ParseError> {
        if matches!(self.fragmentation, Fragmentation::Later { .. }) {
            return Ok(self);
        }
        let message = icmp::Message::parse(self.is_v6(), bytes)?;
        if let Some(identifier) = message.echo_identifier {
            self.tuple.source_port = identifier;
            self.tuple.destination_port = identifier;
        }
        if message.is_error {
            let quote = icmp::quote(self.is_v6(), bytes)?;
            // Whoever sent the quoted packet is told of it, and nobody else (RFC 792; RFC 4443, section 2.2).
            if quote.tuple.source() != self.tuple.destination() {
                return Err(ParseError::IcmpQuoteMisdirected);
            }
            self.quoted = Some(quote.tuple);
            self.quoted_fragment = quote.fragment;
        }
        Ok(self)
    }
}

/// What the transport header adds.
#[derive(Clone, Copy, Default)]
struct Ports {
    source: u16,
    destination: u16,
    tcp_flags: u8,
}

impl Ports {
    #[inline(always)]
    fn read(protocol: u8, fragmentation: Fragmentation, bytes: &[u8]) -> Result<Ports, ParseError> {
        if matches!(fragmentation, Fragmentation::Later { .. }) {
            return Ok(Ports::default());
        }
        match protocol {
            tcp::PROTOCOL => {
                let header = tcp::Header::parse(bytes)?;
                Ok(Ports {
                    source: header.source_port,
                    destination: header.destination_port,
                    tcp_flags: header.flags,
                })
            }
            udp::PROTOCOL => {
                let header = match fragmentation {
                    Fragmentation::Whole => udp::Header::parse(bytes)?,
                    _ => udp::Header::parse_fields(bytes)?,
                };
                Ok(Ports {
                    source: header.source_port,
                    destination: header.destination_port,
                    tcp_flags: 0,
                })
            }
            _ => Ok(Ports::default()),
        }
    }
}
