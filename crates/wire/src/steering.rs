//! The steering context: what a packet carries between forwarders, as MPLS labels over VXLAN.
//!
//! ```text
//! +----------+-----------+----------+-----------+----------------+-------------+--------------+-----------
//! | Ethernet | IPv4 / v6 | UDP 4789 | VXLAN     | Ethernet       | chain label | egress label | IP packet
//! | 14       | 20 / 40   | 8        | 8         | 14, type 0x8847| 4, TTL = loop guard        |
//! |          |           |          |           |                |             | 4, S = 1,    |
//! |          |           |          |           |                |             | TTL = index  |
//! +----------+-----------+----------+-----------+----------------+-------------+--------------+-----------
//! ```
//!
//! The chain label's last bit is the direction. The loop guard falls by one at every forwarder.

use crate::mpls::{self, Entry, Label};
use crate::{MacAddress, ParseError, checksum, ethernet, ipv4, ipv6, udp, vxlan};
use std::net::IpAddr;

/// Bytes between the underlay's IP header and the inner packet.
pub const CONTEXT_LENGTH: usize =
    udp::HEADER_LENGTH + vxlan::HEADER_LENGTH + ethernet::HEADER_LENGTH + 2 * mpls::ENTRY_LENGTH;
/// Bytes in front of the inner packet at most.
pub const OVERHEAD_LIMIT: usize = ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH + CONTEXT_LENGTH;
/// What a packet's loop guard starts at.
pub const LOOP_GUARD: u8 = 64;

/// Direction along a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From ingress to egress.
    Forward,
    /// From egress to ingress.
    Reverse,
}

impl Direction {
    /// The other direction.
    #[must_use]
    pub const fn opposite(self) -> Direction {
        match self {
            Direction::Forward => Direction::Reverse,
            Direction::Reverse => Direction::Forward,
        }
    }
}

/// What a packet carries between forwarders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeringContext {
    /// The chain's even label; direction is apart.
    pub chain: Label,
    /// Direction along the chain.
    pub direction: Direction,
    /// Label of the egress site.
    pub egress: Label,
    /// Where along the path the packet is.
    pub service_index: u8,
    /// Forwarders it may still pass.
    pub loop_guard: u8,
}

impl SteeringContext {
    /// The two label stack entries.
    #[inline]
    pub fn to_labels(&self) -> [u8; 8] {
        let bit = match self.direction {
            Direction::Forward => 0,
            Direction::Reverse => 1,
        };
        // The chain label is even, so its successor is a label too.
        let label = Label::new(self.chain.get() & !1 | bit).unwrap_or(self.chain);
        let top = Entry {
            label,
            bottom_of_stack: false,
            ttl: self.loop_guard,
        };
        let bottom = Entry {
            label: self.egress,
            bottom_of_stack: true,
            ttl: self.service_index,
        };
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&top.to_bytes());
        bytes[4..].copy_from_slice(&bottom.to_bytes());
        bytes
    }

    /// Reads two label stack entries.
    ///
    /// # Errors
    /// Too short, a reserved label, or a stack of another depth than two.
    #[inline]
    pub fn from_labels(bytes: &[u8]) -> Result<SteeringContext, ParseError> {
        let top = Entry::parse(bytes)?;
        if top.bottom_of_stack {
            return Err(ParseError::MplsTooFewLabels);
        }
        let bottom = Entry::parse(bytes.get(4..).ok_or(ParseError::MplsTruncated)?)?;
        if !bottom.bottom_of_stack {
            return Err(ParseError::MplsNoBottomOfStack);
        }
        let direction = match top.label.get() & 1 {
            0 => Direction::Forward,
            _ => Direction::Reverse,
        };
        Ok(SteeringContext {
            chain: Label::new(top.label.get() & !1).ok_or(ParseError::MplsReservedLabel)?,
            direction,
            egress: bottom.label,
            service_index: bottom.ttl,
            loop_guard: top.ttl,
        })
    }
}

/// A packet from another forwarder, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decapsulated {
    /// Tunnel end point it came from.
    pub peer: IpAddr,
    /// VXLAN network identifier.
    pub network: u32,
    /// What it carries.
    pub context: SteeringContext,
    /// Where the inner packet begins, counted from the underlay's IP header.
    pub inner_offset: usize,
    /// Where the inner packet ends at most.
    pub end: usize,
}

/// Whether a checked underlay packet is addressed to the VXLAN port.
#[inline]
pub fn is_vxlan(packet: &crate::IpPacket) -> bool {
    packet.tuple.protocol == udp::PROTOCOL && packet.tuple.destination_port == vxlan::PORT
}

/// Takes apart an underlay packet that [`is_vxlan`].
///
/// # Errors
/// Names the first thing wrong in the VXLAN header, the inner Ethernet header or the labels, or in a UDP checksum that is
/// not 0.
#[inline]
pub fn decapsulate(packet: &[u8], parsed: &crate::IpPacket) -> Result<Decapsulated, ParseError> {
    let datagram = packet
        .get(parsed.transport_offset..parsed.length)
        .ok_or(ParseError::UdpTruncated)?;
    let header = udp::Header::parse(datagram)?;
    let datagram = &datagram[..header.length];
    if header.checksum != 0 {
        check_udp(packet, parsed, datagram)?;
    }
    let network = vxlan::parse(&datagram[udp::HEADER_LENGTH..])?;
    let mut at = udp::HEADER_LENGTH + vxlan::HEADER_LENGTH;
    let inner = ethernet::Header::parse(&datagram[at..])?;
    if inner.ether_type != ethernet::MPLS {
        return Err(ParseError::EtherTypeUnknown);
    }
    at += inner.length;
    let context = SteeringContext::from_labels(&datagram[at..])?;
    at += 2 * mpls::ENTRY_LENGTH;
    Ok(Decapsulated {
        peer: parsed.tuple.source(),
        network,
        context,
        inner_offset: parsed.transport_offset + at,
        end: parsed.transport_offset + header.length,
    })
}

#[cold]
fn check_udp(packet: &[u8], parsed: &crate::IpPacket, datagram: &[u8]) -> Result<(), ParseError> {
    let addresses = if parsed.is_v6() { 8..40 } else { 12..20 };
    let total = checksum::pseudo_header(&packet[addresses], udp::PROTOCOL, datagram.len());
    if checksum::fold(total + checksum::sum(datagram)) != 0xffff {
        return Err(ParseError::UdpBadChecksum);
    }
    Ok(())
}

/// Everything in front of the inner packet towards one peer, made once.
#[derive(Clone, Debug)]
pub struct TunnelTemplate {
    bytes: [u8; OVERHEAD_LIMIT],
    length: usize,
    ip_length: usize,
    /// Sum of the IPv4 header with length 0, to finish the checksum from.
    partial_sum: u64,
}

impl TunnelTemplate {
    /// A template for packets from one tunnel end point to another of the same family.
    /// Nothing when the families differ.
    pub fn new(
        source_mac: MacAddress,
        destination_mac: MacAddress,
        source: IpAddr,
        destination: IpAddr,
        network: u32,
    ) -> Option<TunnelTemplate> {
        let mut bytes = [0u8; OVERHEAD_LIMIT];
        let mut at = ethernet::HEADER_LENGTH;
        let (ether_type, ip_length) = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = ipv4::write(&ipv4::Fields {
                    source: source.octets(),
                    destination: destination.octets(),
                    protocol: udp::PROTOCOL,
                    ttl: 64,
                    payload_length: 0,
                    identification: 0,
                    dont_fragment: true,
                });
                bytes[at..at + header.len()].copy_from_slice(&header);
                bytes[at + 2..at + 4].fill(0);
                bytes[at + 10..at + 12].fill(0);
                (ethernet::IPV4, ipv4::HEADER_LENGTH)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header =
                    ipv6::write(source.octets(), destination.octets(), udp::PROTOCOL, 64, 0);
                bytes[at..at + header.len()].copy_from_slice(&header);
                (ethernet::IPV6, ipv6::HEADER_LENGTH)
            }
            _ => return None,
        };
        ethernet::Header::write(&mut bytes, destination_mac, source_mac, 0, ether_type);
        let partial_sum = checksum::sum(&bytes[at..at + ip_length]);
        at += ip_length;
        let udp_header = udp::Header {
            source_port: 0,
            destination_port: vxlan::PORT,
            length: 0,
            checksum: 0,
        };
        bytes[at..at + 8].copy_from_slice(&udp_header.to_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&vxlan::to_bytes(network));
        at += 16;
        ethernet::Header::write(
            &mut bytes[at..],
            destination_mac,
            source_mac,
            0,
            ethernet::MPLS,
        );
        Some(TunnelTemplate {
            bytes,
            length: at + ethernet::HEADER_LENGTH + 8,
            ip_length,
            partial_sum,
        })
    }

    /// Bytes in front of the inner packet.
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Bytes that the underlay's IP packet is longer than the inner one.
    pub fn overhead(&self) -> usize {
        self.length - ethernet::HEADER_LENGTH
    }

    /// Writes everything in front of an inner packet into `headroom`, whose length is [`TunnelTemplate::length`].
    /// The UDP checksum is 0, as RFC 7348 (section 5) and RFC 6935 allow for tunnels.
    ///
    /// # Panics
    /// `headroom` has another length.
    #[inline]
    pub fn write(
        &self,
        headroom: &mut [u8],
        inner_length: usize,
        entropy_port: u16,
        context: &SteeringContext,
    ) {
        headroom.copy_from_slice(&self.bytes[..self.length]);
        let udp_at = ethernet::HEADER_LENGTH + self.ip_length;
        let udp_length = (CONTEXT_LENGTH + inner_length) as u16;
        if self.ip_length == ipv4::HEADER_LENGTH {
            let total = ipv4::HEADER_LENGTH as u16 + udp_length;
            headroom[16..18].copy_from_slice(&total.to_be_bytes());
            let sum = checksum::finish(self.partial_sum + u64::from(total));
            headroom[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            headroom[18..20].copy_from_slice(&udp_length.to_be_bytes());
        }
        headroom[udp_at..udp_at + 2].copy_from_slice(&entropy_port.to_be_bytes());
        headroom[udp_at + 4..udp_at + 6].copy_from_slice(&udp_length.to_be_bytes());
        headroom[self.length - 8..].copy_from_slice(&context.to_labels());
    }
}
