//! The packets inside a frame's tunnels, found from the outside to the inside.
//!
//! ```text
//! | Ethernet | IP | UDP | VXLAN, VXLAN-GPE (Ethernet, IP) or Geneve | Ethernet | IP | …
//!                 | GRE (RFC 2784, RFC 2890)                      | Ethernet | IP | …
//!                 |                                                          | IP | …
//!
//! GRE:    | C 1 | R 1 | K 1 | S 1 | 9, 0 | version 3, 0 | protocol 16 | C: checksum 16, 0 16 | K: key 32 | S: number 32 |
//! Geneve: | version 2, 0 | words of options 6 | 8 | protocol 16 | network 24 | 8 | options |      (RFC 8926, section 3.4)
//! ```
//! UDP ports do not tell what is behind them: hosts take others than the registered ones. What is not a packet there, with its
//! lengths and checksum, is not followed.

use super::Walked;
use crate::ip::Fragmentation;
use crate::vxlan_gpe::{self, NextProtocol};
use crate::{IpPacket, ethernet, udp, vxlan};

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
/// EtherType of bridged Ethernet in GRE and Geneve.
const BRIDGED: u16 = 0x6558;
/// Layers of tunnels that are followed, IP headers included.
const DEPTH_LIMIT: usize = 8;

const GRE_HEADER_LENGTH: usize = 4;
const GRE_CHECKSUM: u16 = 0x8000;
const GRE_KEY: u16 = 0x2000;
const GRE_NUMBER: u16 = 0x1000;
const GENEVE_HEADER_LENGTH: usize = 8;

/// A header in front of a packet inside a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layer {
    /// Offset of the header.
    pub(super) at: usize,
    /// Where what it is the header of ends.
    pub(super) end: usize,
    pub(super) kind: Kind,
}

/// What a header is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// IP, up to what it carries.
    Ip { transport: usize, v6: bool },
    /// UDP, of the IP packet at an offset.
    Udp {
        ip: usize,
        v6: bool,
        has_checksum: bool,
    },
    /// GRE.
    Gre { has_checksum: bool, numbered: bool },
}

/// A layer and those around it.
pub(super) struct Around<'a> {
    pub(super) layer: Layer,
    pub(super) outer: Option<&'a Around<'a>>,
}

impl Around<'_> {
    /// The layers from the inside to the outside.
    pub(super) fn layers(&self) -> impl Iterator<Item = Layer> {
        std::iter::successors(Some(self), |around| around.outer).map(|around| around.layer)
    }
}

/// Looks at the IP packets of a frame, from the outermost on, until `found` has what it looks for. It is given the frame up to
/// the end of the packet, what was found there, and the layers around it.
pub(super) fn walk<T>(
    frame: &[u8],
    found: &mut impl FnMut(&[u8], Walked, Option<&Around<'_>>) -> Option<T>,
) -> Option<T> {
    ethernet(frame, 0, None, found)
}

fn ethernet<T>(
    frame: &[u8],
    at: usize,
    around: Option<&Around<'_>>,
    found: &mut impl FnMut(&[u8], Walked, Option<&Around<'_>>) -> Option<T>,
) -> Option<T> {
    let header = ethernet::Header::parse(frame.get(at..)?).ok()?;
    ip(header.ether_type, frame, at + header.length, around, found)
}

/// What is behind a tunnel's header, which names it by its EtherType.
fn follow<T>(
    ether_type: u16,
    frame: &[u8],
    at: usize,
    around: Option<&Around<'_>>,
    found: &mut impl FnMut(&[u8], Walked, Option<&Around<'_>>) -> Option<T>,
) -> Option<T> {
    match ether_type {
        BRIDGED => ethernet(frame, at, around, found),
        _ => ip(ether_type, frame, at, around, found),
    }
}

fn ip<T>(
    ether_type: u16,
    frame: &[u8],
    at: usize,
    around: Option<&Around<'_>>,
    found: &mut impl FnMut(&[u8], Walked, Option<&Around<'_>>) -> Option<T>,
) -> Option<T> {
    let packet = IpPacket::parse_as(ether_type, frame.get(at..)?).ok()?;
    let frame = frame.get(..at + packet.length)?;
    if packet.fragmentation != Fragmentation::Whole {
        return None;
    }
    let walked = Walked { ip: at, packet };
    if let Some(found) = found(frame, walked, around) {
        return Some(found);
    }
    if around.is_some_and(|around| around.layers().count() >= DEPTH_LIMIT) {
        return None;
    }
    let v6 = packet.is_v6();
    let transport = at + packet.transport_offset;
    let kind = Kind::Ip { transport, v6 };
    let end = frame.len();
    let layer = Layer { at, end, kind };
    let this = Around {
        layer,
        outer: around,
    };
    match packet.tuple.protocol {
        IPV4_IN_IP => ip(ethernet::IPV4, frame, transport, Some(&this), found),
        IPV6_IN_IP => ip(ethernet::IPV6, frame, transport, Some(&this), found),
        GRE => behind_gre(frame, transport, &this, found),
        udp::PROTOCOL => behind_udp(frame, transport, &this, found),
        _ => None,
    }
}

fn behind_gre<T>(
    frame: &[u8],
    at: usize,
    ip: &Around<'_>,
    found: &mut impl FnMut(&[u8], Walked, Option<&Around<'_>>) -> Option<T>,
) -> Option<T> {
    let &[a, b, c, d] = frame.get(at..)?.first_chunk::<GRE_HEADER_LENGTH>()?;
    let (flags, ether_type) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    if flags & !(GRE_CHECKSUM | GRE_KEY | GRE_NUMBER) != 0 {
        return None;
    }
    let fields = (flags & (GRE_CHECKSUM | GRE_KEY | GRE_NUMBER)).count_ones() as usize;
    let kind = Kind::Gre {
        has_checksum: flags & GRE_CHECKSUM != 0,
        numbered: flags & GRE_NUMBER != 0,
    };
    let end = frame.len();
    let gre = Around {
        layer: Layer { at, end, kind },
        outer: Some(ip),
    };
    let inner = at + GRE_HEADER_LENGTH + 4 * fields;
    follow(ether_type, frame, inner, Some(&gre), found)
}

fn behind_udp<T>(
    frame: &[u8],
    at: usize,
    ip: &Around<'_>,
    found: &mut impl FnMut(&[u8], Walked, Option<&Around<'_>>) -> Option<T>,
) -> Option<T> {
    let header = udp::Header::parse(frame.get(at..)?).ok()?;
    let end = at + header.length;
    let frame = frame.get(..end)?;
    let Kind::Ip { v6, .. } = ip.layer.kind else {
        return None;
    };
    let kind = Kind::Udp {
        ip: ip.layer.at,
        v6,
        has_checksum: header.checksum != 0,
    };
    let udp = Around {
        layer: Layer { at, end, kind },
        outer: Some(ip),
    };
    let at = at + udp::HEADER_LENGTH;
    [behind_vxlan, behind_geneve]
        .into_iter()
        .filter_map(|read| read(&frame[at..]))
        .find_map(|(ether_type, length)| follow(ether_type, frame, at + length, Some(&udp), found))
}

/// The EtherType of what is behind a VXLAN or VXLAN-GPE header, and that header's length.
fn behind_vxlan(bytes: &[u8]) -> Option<(u16, usize)> {
    vxlan::parse(bytes).ok()?;
    // Only VXLAN-GPE has a next protocol; extensions that VXLAN ignores are for Ethernet as well.
    let next = vxlan_gpe::Header::parse(bytes).map(|header| header.next);
    let ether_type = match next {
        Ok(NextProtocol::Ipv4) => ethernet::IPV4,
        Ok(NextProtocol::Ipv6) => ethernet::IPV6,
        Ok(NextProtocol::Nsh) => return None,
        Ok(NextProtocol::Ethernet) | Err(_) => BRIDGED,
    };
    Some((ether_type, vxlan::HEADER_LENGTH))
}

/// The same for Geneve.
fn behind_geneve(bytes: &[u8]) -> Option<(u16, usize)> {
    let header = bytes.first_chunk::<GENEVE_HEADER_LENGTH>()?;
    let (version, words) = (header[0] >> 6, header[0] & 0x3f);
    let length = GENEVE_HEADER_LENGTH + 4 * usize::from(words);
    (version == 0).then_some((u16::from_be_bytes([header[2], header[3]]), length))
}
