//! Taking apart what another forwarder sent.

use super::{Encoding, LABELS_LENGTH, ServicePathMap, SteeringContext};
use crate::ip::Fragmentation;
use crate::vlan::Tag;
use crate::vxlan::Vni;
use crate::{IpPacket, ParseError, checksum, ethernet, nsh, udp, vxlan, vxlan_gpe};
use std::net::IpAddr;

/// A packet from another forwarder, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decapsulated {
    /// Tunnel end point it came from.
    pub peer: IpAddr,
    /// VXLAN network identifier; none with MPLS in UDP.
    pub network: Option<Vni>,
    /// What it carries.
    pub context: SteeringContext,
    /// Where the network service header begins, counted from the underlay's IP header; none with labels.
    pub nsh_offset: Option<usize>,
    /// Where the inner packet begins, counted from the underlay's IP header.
    pub inner_offset: usize,
    /// Where the inner packet ends at most.
    pub end: usize,
}

/// Takes apart an underlay packet whose encoding is [`Encoding::of`] it. `parsed` is of `packet`.
///
/// # Errors
/// Names the first thing wrong: a fragment, the UDP length or a UDP checksum that is not 0 (RFC 7348, section 5), the
/// VXLAN or VXLAN-GPE header, the inner Ethernet header, the labels or the network service header.
#[inline(always)]
pub fn decapsulate(
    encoding: Encoding,
    packet: &[u8],
    parsed: &IpPacket,
    paths: &impl ServicePathMap,
) -> Result<Decapsulated, ParseError> {
    if parsed.fragmentation != Fragmentation::Whole {
        return Err(ParseError::TunnelFragmented);
    }
    let datagram = packet
        .get(parsed.transport_offset..parsed.length)
        .ok_or(ParseError::UdpTruncated)?;
    let header = udp::Header::parse(datagram)?;
    let datagram = &datagram[..header.length];
    if header.checksum != 0 {
        check_udp(packet, parsed, datagram)?;
    }
    let payload = &datagram[udp::HEADER_LENGTH..];
    let payload_offset = parsed.transport_offset + udp::HEADER_LENGTH;
    let carrying = |network, context, nsh_at: Option<usize>, inner_at| Decapsulated {
        peer: parsed.tuple.source(),
        network,
        context,
        nsh_offset: nsh_at.map(|at| payload_offset + at),
        inner_offset: payload_offset + inner_at,
        end: parsed.transport_offset + header.length,
    };
    match encoding {
        Encoding::VxlanMpls => {
            let network = vxlan::parse(payload)?;
            let labels = labels_in_ethernet(&payload[vxlan::HEADER_LENGTH..])?;
            let context = SteeringContext::from_labels(labels)?;
            let inner_at = vxlan::HEADER_LENGTH + ethernet::HEADER_LENGTH + LABELS_LENGTH;
            Ok(carrying(Some(network), context, None, inner_at))
        }
        Encoding::MplsInUdp => {
            let context = SteeringContext::from_labels(payload)?;
            Ok(carrying(None, context, None, LABELS_LENGTH))
        }
        Encoding::VxlanGpeNsh => {
            let gpe = vxlan_gpe::Header::parse(payload)?;
            if gpe.next != vxlan_gpe::NextProtocol::Nsh {
                return Err(ParseError::VxlanGpeUnknownProtocol);
            }
            let nsh_at = vxlan_gpe::HEADER_LENGTH;
            let (context, length) = service_header(&payload[nsh_at..], paths)?;
            let network = Some(gpe.network);
            Ok(carrying(network, context, Some(nsh_at), nsh_at + length))
        }
    }
}

/// The label stack of an Ethernet frame without tags.
#[inline(always)]
fn labels_in_ethernet(frame: &[u8]) -> Result<&[u8], ParseError> {
    // Whom the frame is addressed to says nothing here: only its type is read.
    let (&[.., high, low], labels) = frame
        .split_first_chunk::<{ ethernet::HEADER_LENGTH }>()
        .ok_or(ParseError::EthernetTruncated)?;
    match u16::from_be_bytes([high, low]) {
        ethernet::MPLS => Ok(labels),
        tag if Tag::follows(tag) => Err(ParseError::VxlanInnerTagged),
        _ => Err(ParseError::VxlanInnerUnknown),
    }
}

/// The context of a network service header with an IP packet behind it, and the header's length in bytes.
///
/// # Errors
/// Names the first thing wrong: the header, a service path identifier that stands for nothing, or a packet behind it that is not
/// of the version it names ([`ParseError::InnerNotIp`]).
#[inline(always)]
pub fn service_header(
    bytes: &[u8],
    paths: &impl ServicePathMap,
) -> Result<(SteeringContext, usize), ParseError> {
    let header = nsh::Header::parse(bytes)?;
    let version = match header.next {
        nsh::NextProtocol::Ipv4 => 4,
        nsh::NextProtocol::Ipv6 => 6,
        _ => return Err(ParseError::NshUnknownNextProtocol),
    };
    let context = SteeringContext::from_nsh(&header, paths)?;
    if bytes.get(header.length).map(|byte| byte >> 4) != Some(version) {
        return Err(ParseError::InnerNotIp);
    }
    Ok((context, header.length))
}

#[cold]
fn check_udp(packet: &[u8], parsed: &IpPacket, datagram: &[u8]) -> Result<(), ParseError> {
    let addresses = if parsed.is_v6() { 8..40 } else { 12..20 };
    let addresses = packet.get(addresses).ok_or(ParseError::UdpTruncated)?;
    let total = checksum::pseudo_header(addresses, udp::PROTOCOL, datagram.len());
    if checksum::fold(total + checksum::sum(datagram)) != 0xffff {
        return Err(ParseError::UdpBadChecksum);
    }
    Ok(())
}
