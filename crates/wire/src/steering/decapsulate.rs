//! Taking apart what another forwarder sent.

use super::{Encoding, LABELS_LENGTH, NoServicePaths, ServicePathMap, SteeringContext};
use crate::ip::Fragmentation;
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

/// Whether a checked underlay packet is addressed to the VXLAN port.
#[inline]
pub fn is_vxlan(packet: &IpPacket) -> bool {
    packet.tuple.protocol == udp::PROTOCOL && packet.tuple.destination_port == vxlan::PORT
}

/// Takes apart an underlay packet that [`is_vxlan`].
///
/// # Errors
/// As [`decapsulate_from`].
#[inline]
pub fn decapsulate(packet: &[u8], parsed: &IpPacket) -> Result<Decapsulated, ParseError> {
    decapsulate_from(Encoding::VxlanMpls, packet, parsed, &NoServicePaths)
}

/// Takes apart an underlay packet whose encoding is [`Encoding::of`] it. `parsed` is of `packet`.
///
/// # Errors
/// Names the first thing wrong: a fragment, the UDP length or a UDP checksum that is not 0 (RFC 7348, section 5), the
/// VXLAN or VXLAN-GPE header, the inner Ethernet header, the labels or the network service header.
#[inline]
pub fn decapsulate_from(
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
    let inside = match encoding {
        Encoding::VxlanMpls => read_vxlan_mpls(payload)?,
        Encoding::MplsInUdp => Inside {
            network: None,
            context: SteeringContext::from_labels(payload)?,
            nsh_at: None,
            inner_at: LABELS_LENGTH,
        },
        Encoding::VxlanGpeNsh => read_vxlan_gpe_nsh(payload, paths)?,
    };
    let payload_offset = parsed.transport_offset + udp::HEADER_LENGTH;
    Ok(Decapsulated {
        peer: parsed.tuple.source(),
        network: inside.network,
        context: inside.context,
        nsh_offset: inside.nsh_at.map(|at| payload_offset + at),
        inner_offset: payload_offset + inside.inner_at,
        end: parsed.transport_offset + header.length,
    })
}

/// What a UDP payload holds; offsets count from its beginning.
struct Inside {
    network: Option<Vni>,
    context: SteeringContext,
    nsh_at: Option<usize>,
    inner_at: usize,
}

#[inline]
fn read_vxlan_mpls(payload: &[u8]) -> Result<Inside, ParseError> {
    let network = vxlan::parse(payload)?;
    let frame = &payload[vxlan::HEADER_LENGTH..];
    let inner = ethernet::Header::parse(frame)?;
    if inner.length != ethernet::HEADER_LENGTH {
        return Err(ParseError::VxlanInnerTagged);
    }
    if inner.ether_type != ethernet::MPLS {
        return Err(ParseError::VxlanInnerUnknown);
    }
    Ok(Inside {
        network: Some(network),
        context: SteeringContext::from_labels(&frame[ethernet::HEADER_LENGTH..])?,
        nsh_at: None,
        inner_at: vxlan::HEADER_LENGTH + ethernet::HEADER_LENGTH + LABELS_LENGTH,
    })
}

#[inline]
fn read_vxlan_gpe_nsh(payload: &[u8], paths: &impl ServicePathMap) -> Result<Inside, ParseError> {
    let gpe = vxlan_gpe::Header::parse(payload)?;
    if gpe.next != vxlan_gpe::NextProtocol::Nsh {
        return Err(ParseError::VxlanGpeUnknownProtocol);
    }
    let nsh_at = vxlan_gpe::HEADER_LENGTH;
    let header = nsh::Header::parse(&payload[nsh_at..])?;
    let version = match header.next {
        nsh::NextProtocol::Ipv4 => 4,
        nsh::NextProtocol::Ipv6 => 6,
        _ => return Err(ParseError::NshUnknownNextProtocol),
    };
    let context = SteeringContext::from_nsh(&header, paths)?;
    let inner_at = nsh_at + header.length;
    if payload.get(inner_at).map(|byte| byte >> 4) != Some(version) {
        return Err(ParseError::InnerNotIp);
    }
    Ok(Inside {
        network: Some(gpe.network),
        context,
        nsh_at: Some(nsh_at),
        inner_at,
    })
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
