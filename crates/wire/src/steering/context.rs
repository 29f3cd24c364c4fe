//! What a packet carries, and how it is written as labels or as a network service header.

use super::LABELS_LENGTH;
use crate::mpls::{self, Entry, Label};
use crate::nsh::{self, ServiceIndex, ServicePathIdentifier};
use crate::{IpPacket, ParseError, mpls_in_udp, udp, vxlan, vxlan_gpe};
use crate::{ethernet, steering};

/// Direction along a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

    #[inline]
    const fn bit(self) -> u32 {
        match self {
            Direction::Forward => 0,
            Direction::Reverse => 1,
        }
    }
}

/// How the steering context is written towards a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Encoding {
    /// Labels in an Ethernet frame in VXLAN (RFC 7348, RFC 3032).
    #[default]
    VxlanMpls,
    /// Labels in UDP (RFC 7510).
    MplsInUdp,
    /// Network service header in VXLAN-GPE (RFC 8300).
    VxlanGpeNsh,
}

impl Encoding {
    /// Each of them.
    pub const ALL: [Encoding; 3] = [
        Encoding::VxlanMpls,
        Encoding::MplsInUdp,
        Encoding::VxlanGpeNsh,
    ];

    /// The UDP destination port.
    #[inline]
    pub const fn port(self) -> u16 {
        match self {
            Encoding::VxlanMpls => vxlan::PORT,
            Encoding::MplsInUdp => mpls_in_udp::PORT,
            Encoding::VxlanGpeNsh => vxlan_gpe::PORT,
        }
    }

    /// The encoding of a checked underlay packet, by its destination port; none when it comes from no tunnel.
    #[inline(always)]
    pub fn of(packet: &IpPacket) -> Option<Encoding> {
        if packet.tuple.protocol != udp::PROTOCOL {
            return None;
        }
        match packet.tuple.destination_port {
            vxlan::PORT => Some(Encoding::VxlanMpls),
            mpls_in_udp::PORT => Some(Encoding::MplsInUdp),
            vxlan_gpe::PORT => Some(Encoding::VxlanGpeNsh),
            _ => None,
        }
    }

    /// Bytes between the underlay's IP header and the inner packet.
    #[inline]
    pub const fn context_length(self) -> usize {
        match self {
            Encoding::VxlanMpls => steering::CONTEXT_LENGTH,
            Encoding::MplsInUdp => udp::HEADER_LENGTH + LABELS_LENGTH,
            Encoding::VxlanGpeNsh => {
                udp::HEADER_LENGTH + vxlan_gpe::HEADER_LENGTH + nsh::FIXED_LENGTH
            }
        }
    }
}

/// What a service path identifier stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServicePath {
    /// The chain's even label.
    pub chain: Label,
    /// Direction along the chain.
    pub direction: Direction,
    /// Label of the egress site.
    pub egress: Label,
}

/// Which service path an identifier stands for, and back. Whoever installs rules owns the table.
pub trait ServicePathMap {
    /// The service path of an identifier.
    fn path(&self, identifier: ServicePathIdentifier) -> Option<ServicePath>;
    /// The identifier of a service path.
    fn identifier(&self, path: &ServicePath) -> Option<ServicePathIdentifier>;
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
    pub service_index: ServiceIndex,
    /// Forwarders it may still pass, this one included.
    pub loop_guard: u8,
}

impl SteeringContext {
    /// The service path, without the packet's place on it.
    #[inline]
    pub const fn path(&self) -> ServicePath {
        ServicePath {
            chain: self.chain,
            direction: self.direction,
            egress: self.egress,
        }
    }

    /// The context one forwarder on; none when the loop guard runs out and the packet must be dropped.
    #[inline]
    #[must_use]
    pub const fn passed(self) -> Option<SteeringContext> {
        match self.loop_guard {
            0 | 1 => None,
            guard => Some(SteeringContext {
                loop_guard: guard - 1,
                ..self
            }),
        }
    }

    /// The two label stack entries.
    #[inline]
    pub const fn to_labels(&self) -> [u8; LABELS_LENGTH] {
        let top = self.chain.get() & !1 | self.direction.bit();
        let top = top << 12 | self.loop_guard as u32;
        let bottom =
            self.egress.get() << 12 | mpls::BOTTOM_OF_STACK | self.service_index.get() as u32;
        ((top as u64) << 32 | bottom as u64).to_be_bytes()
    }

    /// Reads two label stack entries; traffic classes are ignored.
    ///
    /// # Errors
    /// Too short, a reserved label, or a stack of another depth than two.
    #[inline(always)]
    pub fn from_labels(bytes: &[u8]) -> Result<SteeringContext, ParseError> {
        let Some(labels) = bytes.first_chunk::<LABELS_LENGTH>() else {
            return Err(label_error(bytes));
        };
        let word = u64::from_be_bytes(*labels);
        let (top, bottom) = ((word >> 32) as u32, word as u32);
        let fine = top & mpls::BOTTOM_OF_STACK == 0 && bottom & mpls::BOTTOM_OF_STACK != 0;
        // The first label that is not reserved is even, so an odd one has an even one below it.
        let labels = (Label::new(top >> 12 & !1), Label::new(bottom >> 12));
        let (true, (Some(chain), Some(egress))) = (fine, labels) else {
            return Err(label_error(bytes));
        };
        Ok(SteeringContext {
            chain,
            direction: if top >> 12 & 1 == 0 {
                Direction::Forward
            } else {
                Direction::Reverse
            },
            egress,
            service_index: ServiceIndex::new(bottom as u8),
            loop_guard: top as u8,
        })
    }

    /// A network service header for an IP packet. A loop guard above 63 becomes 63, what RFC 8300 starts with.
    #[inline]
    pub const fn to_nsh(&self, identifier: ServicePathIdentifier, v6: bool) -> nsh::Header {
        nsh::Header {
            oam: false,
            ttl: if self.loop_guard > nsh::INITIAL_TTL {
                nsh::INITIAL_TTL
            } else {
                self.loop_guard
            },
            length: nsh::FIXED_LENGTH,
            metadata: nsh::MetadataType::Fixed,
            next: if v6 {
                nsh::NextProtocol::Ipv6
            } else {
                nsh::NextProtocol::Ipv4
            },
            path: identifier,
            index: self.service_index,
        }
    }

    /// The context of a network service header. A TTL of 0 is a loop guard of 64, as one less than 0 is 63
    /// (RFC 8300, section 2.2).
    ///
    /// # Errors
    /// The O bit is set; one less than the TTL is 0, which is found before the service path is looked up; the map does not know the
    /// service path.
    #[inline(always)]
    pub fn from_nsh(
        header: &nsh::Header,
        paths: &impl ServicePathMap,
    ) -> Result<SteeringContext, ParseError> {
        if header.oam {
            return Err(ParseError::NshOam);
        }
        nsh::next_ttl(header.ttl).ok_or(ParseError::NshTtlExpired)?;
        let path = paths.path(header.path).ok_or(ParseError::NshUnknownPath)?;
        Ok(SteeringContext {
            chain: path.chain,
            direction: path.direction,
            egress: path.egress,
            service_index: header.index,
            loop_guard: match header.ttl {
                0 => nsh::INITIAL_TTL + 1,
                ttl => ttl,
            },
        })
    }
}

/// Whether an EtherType on an edge port carries steering context, which only classifiers may affix.
#[inline]
pub const fn is_labelled(ether_type: u16) -> bool {
    matches!(
        ether_type,
        ethernet::MPLS | ethernet::MPLS_UPSTREAM | ethernet::NSH
    )
}

/// What is wrong with two labels: the first thing, from the top.
#[cold]
fn label_error(bytes: &[u8]) -> ParseError {
    let bottom = bytes.get(mpls::ENTRY_LENGTH..).unwrap_or_default();
    match (Entry::parse(bytes), Entry::parse(bottom)) {
        (Err(error), _) => error,
        (Ok(top), _) if top.bottom_of_stack => ParseError::MplsTooFewLabels,
        (_, Err(error)) => error,
        _ => ParseError::MplsNoBottomOfStack,
    }
}
