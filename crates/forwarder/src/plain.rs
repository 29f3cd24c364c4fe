//! Plain packets: the headers nearly all packets have, read at fixed places with one comparison each.
//!
//! Plain is Ethernet with at most one tag, IPv4 without options or IPv6 without extension headers, not a fragment, TCP or
//! UDP; in a tunnel the same inside VXLAN with two labels. [`Plain`] says what [`crate::pipeline::Pipeline::process`] would
//! find such a packet to be, and changes nothing. It says nothing of any other packet, nor of one that is to be dropped
//! or answered: those go the long way, which knows all reasons. So there is one judge of what is wrong with a packet,
//! and a quick reader that must only agree with it.

use crate::arrival::{Arrival, is_group_or_local};
use crate::neighbours;
use crate::registry::{HopId, PlaceId};
use crate::rules::{EdgeHop, Hop, Port, Rules, Side, Underlay};
use flow::{Ipv4Key, Ipv6Key};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::steering::{Direction, LOOP_GUARD, SteeringContext};
use wire::{checksum, ethernet, ipv4, ipv6, tcp, udp, vlan, vxlan};

/// Contexts and sources remembered from packets before.
const REMEMBERED: usize = 64;
/// The labels but for the loop guard.
const WITHOUT_GUARD: u64 = !(0xff << 32);
/// Bytes between the underlay's IP header and the inner packet.
const CONTEXT: usize = wire::steering::CONTEXT_LENGTH;

/// What a plain packet shows of its connection, as the key words of its family.
#[derive(Clone, Copy)]
pub(crate) enum Shown {
    V4(Words<u64>),
    V6(Words<[u128; 2]>),
}

/// Source and destination address, protocol, and both ports in one word.
#[derive(Clone, Copy)]
pub(crate) struct Words<A> {
    addresses: A,
    ports: u32,
    protocol: u8,
}

impl Words<u64> {
    /// The key at a place.
    #[inline(always)]
    pub(crate) fn key(&self, place: PlaceId, direction: Direction) -> Ipv4Key {
        let (addresses, ports) = match direction {
            Direction::Forward => (self.addresses, self.ports),
            Direction::Reverse => (self.addresses.rotate_left(32), self.ports.rotate_left(16)),
        };
        let (source, destination) = ((addresses >> 32) as u32, addresses as u32);
        let (from, to) = ((ports >> 16) as u16, ports as u16);
        Ipv4Key::new(place.0, source, destination, self.protocol, from, to)
    }
}

impl Words<[u128; 2]> {
    /// The key at a place.
    #[inline(always)]
    pub(crate) fn key(&self, place: PlaceId, direction: Direction) -> Ipv6Key {
        let [source, destination] = self.addresses;
        let (from, to) = ((self.ports >> 16) as u16, self.ports as u16);
        match direction {
            Direction::Forward => {
                Ipv6Key::new(place.0, source, destination, self.protocol, from, to)
            }
            Direction::Reverse => {
                Ipv6Key::new(place.0, destination, source, self.protocol, to, from)
            }
        }
    }
}

/// A plain packet. Of one from an edge, place and direction are known only when its connection is.
#[derive(Clone, Copy)]
pub(crate) struct PlainPacket {
    pub(crate) arrival: Arrival,
    pub(crate) shown: Shown,
    /// The place of the edge it enters at.
    pub(crate) edge: Option<PlaceId>,
}

/// Where a frame comes from, by its port, VLAN and source address.
#[derive(Clone, Copy)]
enum Source {
    Edge {
        hop: HopId,
        place: PlaceId,
    },
    Attachment {
        hop: HopId,
        place: PlaceId,
        direction: Direction,
    },
}

/// A stage, by its labels.
#[derive(Clone, Copy)]
struct Stage {
    place: PlaceId,
    direction: Direction,
}

/// What rules said of earlier packets; to be forgotten with the rules.
pub(crate) struct Remembered {
    sources: Memory<(u64, usize), Source>,
    stages: Memory<u64, Stage>,
    peers: Memory<IpAddr, HopId>,
}

impl Default for Remembered {
    fn default() -> Self {
        Remembered {
            sources: Memory::default(),
            stages: Memory::default(),
            peers: Memory::default(),
        }
    }
}

/// A small table of answers, one per hash.
struct Memory<K, V>([Option<(K, V)>; REMEMBERED]);

impl<K: Copy, V: Copy> Default for Memory<K, V> {
    fn default() -> Self {
        Memory([None; REMEMBERED])
    }
}

impl<K: Copy + PartialEq, V: Copy> Memory<K, V> {
    /// The answer for a key, asked for where it is not remembered; a lack of one is not.
    #[inline(always)]
    fn get(&mut self, hash: u64, key: K, ask: impl FnOnce() -> Option<V>) -> Option<V> {
        let slot = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - REMEMBERED.ilog2());
        let entry = &mut self.0[slot as usize % REMEMBERED];
        if let Some((known, value)) = entry
            && *known == key
        {
            return Some(*value);
        }
        let value = ask()?;
        *entry = Some((key, value));
        Some(value)
    }
}

/// Reads the plain packets that arrive at a port.
pub(crate) struct Plain<'a> {
    rules: &'a Rules,
    port: usize,
    role: &'a Port,
    underlay: Option<&'a Underlay>,
    remembered: &'a mut Remembered,
}

impl<'a> Plain<'a> {
    /// A reader for a port; none for one that the rules do not know.
    #[inline]
    pub(crate) fn new(
        rules: &'a Rules,
        port: usize,
        remembered: &'a mut Remembered,
    ) -> Option<Plain<'a>> {
        Some(Plain {
            rules,
            port,
            role: rules.ports.get(port)?,
            underlay: rules
                .underlay
                .as_ref()
                .filter(|underlay| underlay.port == port),
            remembered,
        })
    }

    /// What a frame from which no tag was taken is, if it is plain.
    #[inline(always)]
    pub(crate) fn read(&mut self, frame: &[u8]) -> Option<PlainPacket> {
        let header = frame.first_chunk::<{ ethernet::HEADER_LENGTH }>()?;
        let ether_type = u16::from_be_bytes([header[12], header[13]]);
        if self.underlay.is_some() && ether_type != vlan::CUSTOMER {
            return self.read_tunnel(frame, ether_type);
        }
        let (vlan, ether_type, offset) = if ether_type == vlan::CUSTOMER {
            let tag: &[u8; 4] = frame.get(ethernet::HEADER_LENGTH..)?.first_chunk()?;
            let identifier = u16::from_be_bytes([tag[0], tag[1]]) & 0x0fff;
            if identifier == 0 {
                return None;
            }
            (identifier, u16::from_be_bytes([tag[2], tag[3]]), 18)
        } else {
            (0, ether_type, 14)
        };
        let is_group = header[0] & 1 == 1;
        if is_group {
            return None;
        }
        let [_, _, _, _, high, low, mac @ ..] = header.first_chunk::<12>()?;
        let _ = (high, low);
        let source = self.source(*mac, vlan)?;
        let ip = read_ip(frame.get(offset..)?, ether_type)?;
        self.from_source(source, ip, offset)
    }

    #[inline(always)]
    fn from_source(&self, source: Source, ip: Ip, offset: usize) -> Option<PlainPacket> {
        let (from, place, direction, edge) = match source {
            Source::Attachment {
                hop,
                place,
                direction,
            } => (hop, place, direction, None),
            Source::Edge { hop, place } => {
                if !self.may_enter(hop, &ip) {
                    return None;
                }
                (hop, place, Direction::Forward, Some(place))
            }
        };
        Some(PlainPacket {
            arrival: Arrival {
                place,
                from,
                length: ip.length,
                offset: offset as u16,
                direction,
                over_tunnel: false,
                loop_guard: LOOP_GUARD,
                tcp_flags: ip.tcp_flags,
                is_error: false,
                is_later_fragment: false,
            },
            shown: ip.shown,
            edge,
        })
    }

    /// Whether an edge takes a packet in: not if it goes to a group or to the forwarder itself, nor at the end of its life.
    #[inline]
    fn may_enter(&self, hop: HopId, ip: &Ip) -> bool {
        let Some(Hop::Edge(edge)) = self.rules.hop(hop) else {
            return false;
        };
        let destination = ip.destination();
        ip.ttl > 1
            && !is_group_or_local(destination)
            && !edge.is_own(destination)
            && destination != IpAddr::from(neighbours::link_local(self.role.mac))
    }

    #[inline(always)]
    fn source(&mut self, mac: [u8; 6], vlan: u16) -> Option<Source> {
        let [a, b, c, d, e, f] = mac;
        let [high, low] = vlan.to_be_bytes();
        let word = u64::from_be_bytes([a, b, c, d, e, f, high, low]);
        let (rules, role, port) = (self.rules, self.role, self.port);
        self.remembered
            .sources
            .get(word, (word, port), || source(rules, role, mac, vlan))
    }

    #[inline(always)]
    fn read_tunnel(&mut self, frame: &[u8], ether_type: u16) -> Option<PlainPacket> {
        let underlay = self.underlay?;
        let outer = frame.get(ethernet::HEADER_LENGTH..)?;
        let (ip_length, peer, own, datagram) = match ether_type {
            ethernet::IPV4 => {
                let ip = Ipv4Start::read(outer)?;
                let (peer, own) = ((ip.addresses >> 32) as u32, ip.addresses as u32);
                let datagram = outer.get(..ip.length as usize)?;
                (
                    ipv4::HEADER_LENGTH,
                    IpAddr::V4(Ipv4Addr::from_bits(peer)),
                    IpAddr::V4(Ipv4Addr::from_bits(own)),
                    (ip.protocol == udp::PROTOCOL).then_some(datagram)?,
                )
            }
            ethernet::IPV6 => {
                let ip = Ipv6Start::read(outer)?;
                let [peer, own] = ip.addresses;
                let datagram = outer.get(..ip.length as usize)?;
                (
                    ipv6::HEADER_LENGTH,
                    IpAddr::V6(Ipv6Addr::from_bits(peer)),
                    IpAddr::V6(Ipv6Addr::from_bits(own)),
                    (ip.protocol == udp::PROTOCOL).then_some(datagram)?,
                )
            }
            _ => return None,
        };
        let is_own = underlay
            .addresses
            .iter()
            .any(|address| address.address() == own);
        if !is_own {
            return None;
        }
        let datagram = datagram.get(ip_length..)?;
        let context: &[u8; CONTEXT] = datagram.first_chunk()?;
        let udp_length = usize::from(u16::from_be_bytes([context[4], context[5]]));
        let fine = is_context(context, underlay.network.get());
        let inner = datagram.get(CONTEXT..udp_length)?;
        let [.., a, b, c, d, e, f, g, h] = *context;
        let labels = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let guard = (labels >> 32) as u8;
        if !fine || guard < 2 {
            return None;
        }
        let rules = self.rules;
        let hash = match peer {
            IpAddr::V4(peer) => u64::from(peer.to_bits()),
            IpAddr::V6(peer) => peer.to_bits() as u64,
        };
        let from = self
            .remembered
            .peers
            .get(hash, peer, || rules.peers.get(&peer).copied())?;
        let key = labels & WITHOUT_GUARD;
        let Stage { place, direction } = self
            .remembered
            .stages
            .get(key, key, || stage(rules, labels))?;
        let ether_type = match inner.first()? >> 4 {
            4 => ethernet::IPV4,
            _ => ethernet::IPV6,
        };
        let ip = read_ip(inner, ether_type)?;
        Some(PlainPacket {
            arrival: Arrival {
                place,
                from,
                length: ip.length,
                offset: (ethernet::HEADER_LENGTH + ip_length + CONTEXT) as u16,
                direction,
                over_tunnel: true,
                loop_guard: guard - 1,
                tcp_flags: ip.tcp_flags,
                is_error: false,
                is_later_fragment: false,
            },
            shown: ip.shown,
            edge: None,
        })
    }
}

/// Whether the underlay's datagram is for the VXLAN port, without a checksum and in the network, and holds labels.
#[inline(always)]
fn is_context(context: &[u8; CONTEXT], network: u32) -> bool {
    let port = u16::from_be_bytes([context[2], context[3]]);
    let checksum = u16::from_be_bytes([context[6], context[7]]);
    let [a, b, c, d, e, f, g, h] = [8, 9, 10, 11, 12, 13, 14, 15].map(|at| context[at]);
    // Reserved bits that are set are the long way's to ignore.
    let vxlan = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let inner = u16::from_be_bytes([context[28], context[29]]);
    port == vxlan::PORT
        && checksum == 0
        && vxlan == 0x0800_0000 << 32 | u64::from(network) << 8
        && inner == ethernet::MPLS
}

#[cold]
fn source(rules: &Rules, role: &Port, mac: [u8; 6], vlan: u16) -> Option<Source> {
    if let Some(&hop) = role.edges.get(&vlan)
        && let Some(Hop::Edge(EdgeHop { place, .. })) = rules.hop(hop)
    {
        return Some(Source::Edge { hop, place: *place });
    }
    let gateway = role.gateways.get(&(vlan, wire::MacAddress(mac)));
    let &(hop, side) = gateway.or_else(|| role.transparent.get(&vlan))?;
    let Some(Hop::Attachment(attachment)) = rules.hop(hop) else {
        return None;
    };
    let (place, direction) = match side {
        Side::Egress => (attachment.stage_behind, Direction::Forward),
        Side::Ingress => (attachment.stage_before, Direction::Reverse),
    };
    Some(Source::Attachment {
        hop,
        place,
        direction,
    })
}

#[cold]
fn stage(rules: &Rules, labels: u64) -> Option<Stage> {
    let context = SteeringContext::from_labels(&labels.to_be_bytes()).ok()?;
    let path = rules.paths.get(&(context.chain, context.egress))?;
    let number = path.stage_number(context.service_index.get(), context.direction)?;
    Some(Stage {
        place: path.place(number)?,
        direction: context.direction,
    })
}

/// A plain IP packet.
#[derive(Clone, Copy)]
struct Ip {
    shown: Shown,
    length: u32,
    ttl: u8,
    tcp_flags: u8,
}

impl Ip {
    #[inline]
    fn destination(&self) -> IpAddr {
        match &self.shown {
            Shown::V4(words) => Ipv4Addr::from_bits(words.addresses as u32).into(),
            Shown::V6(words) => Ipv6Addr::from_bits(words.addresses[1]).into(),
        }
    }
}

#[inline(always)]
fn read_ip(packet: &[u8], ether_type: u16) -> Option<Ip> {
    match ether_type {
        ethernet::IPV4 => {
            let start = Ipv4Start::read(packet)?;
            let (ports, tcp_flags) =
                read_transport::<{ ipv4::HEADER_LENGTH }>(packet, start.protocol, start.length)?;
            Some(Ip {
                shown: Shown::V4(Words {
                    addresses: start.addresses,
                    ports,
                    protocol: start.protocol,
                }),
                length: start.length,
                ttl: start.ttl,
                tcp_flags,
            })
        }
        ethernet::IPV6 => read_ipv6(packet),
        _ => None,
    }
}

#[inline]
fn read_ipv6(packet: &[u8]) -> Option<Ip> {
    let start = Ipv6Start::read(packet)?;
    let (ports, tcp_flags) =
        read_transport::<{ ipv6::HEADER_LENGTH }>(packet, start.protocol, start.length)?;
    Some(Ip {
        shown: Shown::V6(Words {
            addresses: start.addresses,
            ports,
            protocol: start.protocol,
        }),
        length: start.length,
        ttl: start.hop_limit,
        tcp_flags,
    })
}

/// A right IPv4 header without options, of a packet that is whole and within its frame.
#[derive(Clone, Copy)]
struct Ipv4Start {
    addresses: u64,
    length: u32,
    ttl: u8,
    protocol: u8,
}

impl Ipv4Start {
    #[inline(always)]
    fn read(packet: &[u8]) -> Option<Ipv4Start> {
        let header = packet.first_chunk::<{ ipv4::HEADER_LENGTH }>()?;
        let [a, b, c, d, e, f, g, h, ttl, protocol, i, j, addresses @ ..] = *header;
        let front = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let middle = u32::from_be_bytes([ttl, protocol, i, j]);
        let addresses = u64::from_be_bytes(addresses);
        let length = (front >> 32) as u16;
        // Version and header length; more fragments and fragment offset.
        let plain = front & 0xff00_0000_0000_3fff == 0x4500_0000_0000_0000;
        let sum = (front >> 32)
            + (front & 0xffff_ffff)
            + u64::from(middle)
            + (addresses >> 32)
            + (addresses & 0xffff_ffff);
        let fits = usize::from(length) <= packet.len();
        (plain && fits && checksum::fold(sum) == 0xffff).then_some(Ipv4Start {
            addresses,
            length: u32::from(length),
            ttl,
            protocol,
        })
    }
}

/// A right IPv6 header of a packet within its frame.
#[derive(Clone, Copy)]
struct Ipv6Start {
    addresses: [u128; 2],
    length: u32,
    hop_limit: u8,
    protocol: u8,
}

impl Ipv6Start {
    #[inline(always)]
    fn read(packet: &[u8]) -> Option<Ipv6Start> {
        let header = packet.first_chunk::<{ ipv6::HEADER_LENGTH }>()?;
        let (front, addresses) = header.split_first_chunk::<8>()?;
        let [a, _, _, _, high, low, protocol, hop_limit] = *front;
        let length = ipv6::HEADER_LENGTH + usize::from(u16::from_be_bytes([high, low]));
        let ([source, destination], _) = addresses.as_chunks::<16>() else {
            return None;
        };
        (a >> 4 == 6 && length <= packet.len()).then_some(Ipv6Start {
            addresses: [
                u128::from_be_bytes(*source),
                u128::from_be_bytes(*destination),
            ],
            length: length as u32,
            hop_limit,
            protocol,
        })
    }
}

/// The ports in one word and the TCP flags of a right TCP or UDP header behind `AT` bytes of a packet of `length` bytes.
#[inline(always)]
fn read_transport<const AT: usize>(packet: &[u8], protocol: u8, length: u32) -> Option<(u32, u8)> {
    let segment = packet.get(AT..length as usize)?;
    let header = segment.first_chunk::<{ udp::HEADER_LENGTH }>()?;
    let [a, b, c, d, high, low, ..] = *header;
    let ports = u32::from_be_bytes([a, b, c, d]);
    match protocol {
        udp::PROTOCOL => {
            let length = usize::from(u16::from_be_bytes([high, low]));
            (udp::HEADER_LENGTH..=segment.len())
                .contains(&length)
                .then_some((ports, 0))
        }
        tcp::PROTOCOL => {
            let header = segment.first_chunk::<{ tcp::HEADER_LENGTH }>()?;
            let length = usize::from(header[12] >> 4) * 4;
            (tcp::HEADER_LENGTH..=segment.len())
                .contains(&length)
                .then_some((ports, header[13]))
        }
        _ => None,
    }
}
