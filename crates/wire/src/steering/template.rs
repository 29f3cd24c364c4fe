//! Writing everything in front of an inner packet.

use super::{Encoding, OVERHEAD_LIMIT, ServicePathMap, SteeringContext};
use crate::vxlan::Vni;
use crate::{MacAddress, checksum, ethernet, ipv4, ipv6, udp, vxlan, vxlan_gpe};
use std::fmt;
use std::net::IpAddr;

const HOP_LIMIT: u8 = 64;
const UDP_AT_V4: usize = ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH;
const UDP_AT_V6: usize = ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH;
/// Bytes that every template has at least: Ethernet, IPv4, UDP and two labels.
const COMMON_LENGTH: usize = 50;

/// Why a packet could not be encapsulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EncapsulateError {
    /// The frame is shorter than the headers in front of it.
    NoHeadroom,
    /// The underlay's packet would be longer than 65535 bytes.
    TooLong,
    /// The inner packet is neither IPv4 nor IPv6.
    InnerNotIp,
    /// The service path has no identifier for the network service header.
    PathUnnamed,
    /// A network service header is to be relayed to a peer that does not take it.
    RelayWithoutNsh,
}

impl fmt::Display for EncapsulateError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            EncapsulateError::NoHeadroom => "the frame is shorter than the headers in front of it",
            EncapsulateError::TooLong => "the underlay's packet would be longer than 65535 bytes",
            EncapsulateError::InnerNotIp => "the inner packet is neither IPv4 nor IPv6",
            EncapsulateError::PathUnnamed => "the service path has no identifier",
            EncapsulateError::RelayWithoutNsh => "the peer takes no network service header",
        })
    }
}

impl std::error::Error for EncapsulateError {}

/// Everything in front of the inner packet towards one peer, made once.
#[derive(Clone, Debug)]
pub struct TunnelTemplate {
    bytes: [u8; OVERHEAD_LIMIT],
    length: usize,
    ip_length: usize,
    encoding: Encoding,
    /// Sum of the IPv4 header with length 0, to finish the checksum from.
    partial_sum: u64,
}

impl TunnelTemplate {
    /// A template for labels in VXLAN from one tunnel end point to another of the same family.
    /// Nothing when the families differ.
    pub fn new(
        source_mac: MacAddress,
        destination_mac: MacAddress,
        source: IpAddr,
        destination: IpAddr,
        network: Vni,
    ) -> Option<TunnelTemplate> {
        let macs = (source_mac, destination_mac);
        TunnelTemplate::with_encoding(Encoding::VxlanMpls, macs, (source, destination), network)
    }

    /// A template in any encoding; pairs are source and destination. MPLS in UDP has no network identifier.
    /// Nothing when the families differ.
    pub fn with_encoding(
        encoding: Encoding,
        macs: (MacAddress, MacAddress),
        addresses: (IpAddr, IpAddr),
        network: Vni,
    ) -> Option<TunnelTemplate> {
        let (source_mac, destination_mac) = macs;
        let mut bytes = [0u8; OVERHEAD_LIMIT];
        let ip_at = ethernet::HEADER_LENGTH;
        let (ether_type, ip_length) = write_ip(&mut bytes[ip_at..], addresses)?;
        ethernet::Header::write(&mut bytes, destination_mac, source_mac, 0, ether_type);
        let partial_sum = checksum::sum(&bytes[ip_at..ip_at + ip_length]);
        let udp_at = ip_at + ip_length;
        let udp_header = udp::Header {
            source_port: 0,
            destination_port: encoding.port(),
            length: 0,
            checksum: 0,
        };
        let at = udp_at + udp::HEADER_LENGTH;
        bytes[udp_at..at].copy_from_slice(&udp_header.to_bytes());
        match encoding {
            Encoding::VxlanMpls => {
                let frame_at = at + vxlan::HEADER_LENGTH;
                bytes[at..frame_at].copy_from_slice(&vxlan::to_bytes(network));
                let frame = &mut bytes[frame_at..];
                ethernet::Header::write(frame, destination_mac, source_mac, 0, ethernet::MPLS);
            }
            Encoding::MplsInUdp => {}
            Encoding::VxlanGpeNsh => {
                let header = vxlan_gpe::Header {
                    next: vxlan_gpe::NextProtocol::Nsh,
                    network,
                };
                bytes[at..at + vxlan_gpe::HEADER_LENGTH].copy_from_slice(&header.to_bytes());
            }
        }
        Some(TunnelTemplate {
            bytes,
            length: udp_at + encoding.context_length(),
            ip_length,
            encoding,
            partial_sum,
        })
    }

    /// The encoding it writes.
    #[inline]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Bytes in front of the inner packet.
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Bytes that the underlay's IP packet is longer than the inner one.
    #[inline]
    pub fn overhead(&self) -> usize {
        self.length - ethernet::HEADER_LENGTH
    }

    /// Bytes in front of a network service header that is relayed as it came.
    #[inline]
    pub fn relay_length(&self) -> usize {
        ethernet::HEADER_LENGTH + self.ip_length + udp::HEADER_LENGTH + vxlan_gpe::HEADER_LENGTH
    }

    /// Writes everything in front of an inner packet into the first [`TunnelTemplate::length`] bytes of `frame`; the
    /// inner packet is the rest. The UDP checksum is 0, as RFC 7348 (section 5) and RFC 6935 allow for tunnels.
    ///
    /// # Errors
    /// The frame is too short or too long; with NSH, the inner packet is not IP or the service path has no identifier.
    #[inline]
    pub fn encapsulate(
        &self,
        frame: &mut [u8],
        entropy_port: u16,
        context: &SteeringContext,
        paths: &impl ServicePathMap,
    ) -> Result<(), EncapsulateError> {
        let Some((headroom, inner)) = frame.split_at_mut_checked(self.length) else {
            return Err(EncapsulateError::NoHeadroom);
        };
        if self.encoding != Encoding::VxlanGpeNsh {
            self.write_outer(headroom, inner.len(), entropy_port)?;
            put_tail(headroom, &context.to_labels());
            return Ok(());
        }
        let v6 = match inner.first().map(|byte| byte >> 4) {
            Some(4) => false,
            Some(6) => true,
            _ => return Err(EncapsulateError::InnerNotIp),
        };
        let identifier = paths
            .identifier(&context.path())
            .ok_or(EncapsulateError::PathUnnamed)?;
        self.write_outer(headroom, inner.len(), entropy_port)?;
        let header = context.to_nsh(identifier, v6);
        put_tail(headroom, &header.to_fixed_bytes(&[0; 16]));
        Ok(())
    }

    /// Writes everything in front of an inner packet of so many bytes into `headroom`, whose length is
    /// [`TunnelTemplate::length`], for the encodings with labels. False, and nothing is written, when `headroom` has
    /// another length, the packet would be too long, or the encoding is NSH.
    #[inline]
    pub fn write(
        &self,
        headroom: &mut [u8],
        inner_length: usize,
        entropy_port: u16,
        context: &SteeringContext,
    ) -> bool {
        if self.encoding == Encoding::VxlanGpeNsh
            || headroom.len() != self.length
            || self
                .write_outer(headroom, inner_length, entropy_port)
                .is_err()
        {
            return false;
        }
        put_tail(headroom, &context.to_labels());
        true
    }

    /// Writes everything in front of a network service header that is relayed in place, with its unassigned bits and its
    /// context as they came: into the first [`TunnelTemplate::relay_length`] bytes of `frame`, the header and the inner
    /// packet being the rest. Its TTL is the caller's to lower ([`crate::nsh::decrement_ttl`]).
    ///
    /// # Errors
    /// The frame is too short or too long, or the template's encoding is not NSH.
    #[inline]
    pub fn relay(&self, frame: &mut [u8], entropy_port: u16) -> Result<(), EncapsulateError> {
        if self.encoding != Encoding::VxlanGpeNsh {
            return Err(EncapsulateError::RelayWithoutNsh);
        }
        let Some((headroom, rest)) = frame.split_at_mut_checked(self.relay_length()) else {
            return Err(EncapsulateError::NoHeadroom);
        };
        self.write_outer(headroom, rest.len(), entropy_port)
    }

    /// Copies the template into `headroom` and fills in port, lengths and checksum for so many bytes behind it.
    #[inline]
    fn write_outer(
        &self,
        headroom: &mut [u8],
        behind: usize,
        entropy_port: u16,
    ) -> Result<(), EncapsulateError> {
        let ip_packet = headroom.len() - ethernet::HEADER_LENGTH + behind;
        if ip_packet > usize::from(u16::MAX) {
            return Err(EncapsulateError::TooLong);
        }
        let ip_packet = ip_packet as u16;
        let udp_length = ip_packet - self.ip_length as u16;
        if let Some(headroom) = headroom.first_chunk_mut::<COMMON_LENGTH>() {
            // The part that every template has, with a length the compiler knows: a few wide moves, no call.
            headroom.copy_from_slice(&self.bytes[..COMMON_LENGTH]);
        }
        if let (Some(rest), Some(bytes)) = (
            headroom.get_mut(COMMON_LENGTH..),
            self.bytes.get(COMMON_LENGTH..),
        ) {
            for (to, from) in rest.iter_mut().zip(bytes) {
                *to = *from;
            }
        }
        let udp_at = if self.ip_length == ipv4::HEADER_LENGTH {
            put(headroom, 16, ip_packet);
            let sum = checksum::finish(self.partial_sum + u64::from(ip_packet));
            put(headroom, 24, sum);
            UDP_AT_V4
        } else {
            put(headroom, 18, udp_length);
            UDP_AT_V6
        };
        put(headroom, udp_at, entropy_port);
        put(headroom, udp_at + 4, udp_length);
        Ok(())
    }
}

/// Writes an IP header of length 0; returns its EtherType and length.
fn write_ip(bytes: &mut [u8], addresses: (IpAddr, IpAddr)) -> Option<(u16, usize)> {
    match addresses {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = ipv4::write(&ipv4::Fields {
                source: source.octets(),
                destination: destination.octets(),
                protocol: udp::PROTOCOL,
                ttl: HOP_LIMIT,
                payload_length: 0,
                identification: 0,
                dont_fragment: true,
            });
            header[2..4].fill(0);
            header[10..12].fill(0);
            bytes[..header.len()].copy_from_slice(&header);
            Some((ethernet::IPV4, header.len()))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let (source, destination) = (source.octets(), destination.octets());
            let header = ipv6::write(source, destination, udp::PROTOCOL, HOP_LIMIT, 0);
            bytes[..header.len()].copy_from_slice(&header);
            Some((ethernet::IPV6, header.len()))
        }
        _ => None,
    }
}

/// Writes two bytes, where they fit.
#[inline]
fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Writes the end of the headers.
#[inline]
fn put_tail<const N: usize>(headroom: &mut [u8], tail: &[u8; N]) {
    if let Some(place) = headroom.last_chunk_mut::<N>() {
        *place = *tail;
    }
}
