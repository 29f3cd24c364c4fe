//! Plain packets: the headers nearly all packets have, read at fixed places with one comparison each.
//!
//! Plain is Ethernet with at most one tag, IPv4 without options or IPv6 without extension headers, not a fragment, TCP or
//! UDP; in a tunnel the same inside VXLAN with two labels. [`Plain`] says where [`crate::pipeline::Pipeline::process`] would
//! find such a packet to be, [`Ip`] which connection's it is; neither changes anything. They say nothing of any other packet,
//! nor of one that is to be dropped or answered: those go the long way, which knows all reasons. So there is one judge of
//! what is wrong with a packet, and a quick reader that must only agree with it.

use crate::arrival::is_group_or_local;
use crate::neighbours;
use crate::registry::{HopId, PlaceId};
use crate::rules::{Hop, Port, Rules, Side, Underlay};
use flow::{Ipv4Key, Ipv6Key};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::steering::{Direction, LOOP_GUARD, SteeringContext};
use wire::{MacAddress, checksum, ethernet, ipv4, ipv6, tcp, udp, vlan, vxlan};

/// Contexts and sources remembered from packets before.
const REMEMBERED: usize = 64;
/// The labels but for the loop guard.
const WITHOUT_GUARD: u64 = !(0xff << 32);
/// Bytes between the underlay's IP header and the inner packet.
const CONTEXT: usize = wire::steering::CONTEXT_LENGTH;

/// Where a packet is and how it came, in one word that is compared with the next packet's.
///
/// ```text
///   63         48 47        40 39     33  32        31         16 15         0
///  +-------------+------------+----+----+----------+-------------+------------+
///  |      0      | loop guard |    |over| reverse? |  from (hop) |   place    |
///  +-------------+------------+----+----+----------+-------------+------------+
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way(pub(crate) u64);

impl Way {
    const REVERSE: u64 = 1 << 32;
    const OVER_TUNNEL: u64 = 1 << 33;

    #[inline(always)]
    const fn new(place: PlaceId, direction: Direction) -> Way {
        let reverse = match direction {
            Direction::Forward => 0,
            Direction::Reverse => Self::REVERSE,
        };
        Way(place.0 as u64 | reverse)
    }

    #[inline(always)]
    const fn from(self, hop: HopId, loop_guard: u8) -> Way {
        Way(self.0 | (hop.0 as u64) << 16 | (loop_guard as u64) << 40)
    }

    /// The same way of coming to another place.
    #[inline(always)]
    pub(crate) const fn moved(self, place: PlaceId, direction: Direction) -> Way {
        Way(self.0 & !(0xffff | Self::REVERSE) | Way::new(place, direction).0)
    }

    /// The stage.
    #[inline(always)]
    pub(crate) const fn place(self) -> PlaceId {
        PlaceId(self.0 as u16)
    }

    /// The hop the packet came from.
    #[inline(always)]
    pub(crate) const fn hop(self) -> HopId {
        HopId((self.0 >> 16) as u16)
    }

    /// The direction.
    #[inline(always)]
    pub(crate) const fn direction(self) -> Direction {
        if self.0 & Self::REVERSE == 0 {
            Direction::Forward
        } else {
            Direction::Reverse
        }
    }

    /// Whether the packet came from another forwarder.
    #[inline(always)]
    pub(crate) const fn over_tunnel(self) -> bool {
        self.0 & Self::OVER_TUNNEL != 0
    }

    /// What is left of its loop guard.
    #[inline(always)]
    pub(crate) const fn loop_guard(self) -> u8 {
        (self.0 >> 40) as u8
    }
}

/// Where a frame's packet is, before the packet itself is read.
#[derive(Clone, Copy)]
pub(crate) struct Located {
    /// Of a packet from an edge, the place is the edge's until its connection is known.
    pub(crate) way: Way,
    /// Whether it enters at an edge.
    pub(crate) enters: bool,
    /// EtherType of the packet.
    pub(crate) ether_type: u16,
    /// Bytes in front of the packet.
    pub(crate) offset: usize,
    /// Where in its frame the packet ends at most.
    pub(crate) end: usize,
}

/// What rules said of earlier packets; to be forgotten with the rules.
#[derive(Default)]
pub(crate) struct Remembered {
    /// By port, VLAN and source address; whether it is an edge.
    sources: Memory<(u64, usize), (Way, bool)>,
    /// By labels.
    stages: Memory<u64, Way>,
    peers: Memory<IpAddr, HopId>,
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

    /// Where the packet is of a frame from which no tag was taken, if what is in front of it is plain.
    #[inline(always)]
    pub(crate) fn locate(&mut self, frame: &[u8]) -> Option<Located> {
        let header = frame.first_chunk::<{ ethernet::HEADER_LENGTH }>()?;
        let [group, _, _, _, _, _, mac @ .., high, low] = *header;
        let ether_type = u16::from_be_bytes([high, low]);
        let (vlan, ether_type, offset) = if ether_type != vlan::CUSTOMER {
            if self.underlay.is_some() {
                return self.locate_in_tunnel(frame, ether_type);
            }
            (0, ether_type, ethernet::HEADER_LENGTH)
        } else {
            let tag: &[u8; 4] = frame.get(ethernet::HEADER_LENGTH..)?.first_chunk()?;
            let identifier = u16::from_be_bytes([tag[0], tag[1]]) & 0x0fff;
            if identifier == 0 {
                return None;
            }
            (identifier, u16::from_be_bytes([tag[2], tag[3]]), 18)
        };
        let is_group = group & 1 == 1;
        let (way, enters) = self.source(mac, vlan)?;
        (!is_group).then_some(Located {
            way,
            enters,
            ether_type,
            offset,
            end: frame.len(),
        })
    }

    #[inline(always)]
    fn source(&mut self, mac: [u8; 6], vlan: u16) -> Option<(Way, bool)> {
        let [a, b, c, d, e, f] = mac;
        let [high, low] = vlan.to_be_bytes();
        let word = u64::from_be_bytes([a, b, c, d, e, f, high, low]);
        let (rules, role, port) = (self.rules, self.role, self.port);
        self.remembered
            .sources
            .get(word, (word, port), || source(rules, role, mac, vlan))
    }

    /// Whether the edge that a packet comes from takes it in: not if it goes to a group or to the forwarder itself, nor at
    /// the end of its life.
    #[inline]
    pub(crate) fn may_enter(&self, way: Way, destination: IpAddr, ttl: u8) -> bool {
        let Some(Hop::Edge(edge)) = self.rules.hop(way.hop()) else {
            return false;
        };
        ttl > 1
            && !is_group_or_local(destination)
            && !edge.is_own(destination)
            && destination != IpAddr::from(neighbours::link_local(self.role.mac))
    }

    #[inline(always)]
    fn locate_in_tunnel(&mut self, frame: &[u8], ether_type: u16) -> Option<Located> {
        let underlay = self.underlay?;
        let outer = frame.get(ethernet::HEADER_LENGTH..)?;
        let (ip_length, length, protocol, peer, own) = match ether_type {
            ethernet::IPV4 => {
                let ip = Ipv4Start::read(outer)?;
                let (peer, own) = ((ip.addresses >> 32) as u32, ip.addresses as u32);
                let addresses = (Ipv4Addr::from_bits(peer), Ipv4Addr::from_bits(own));
                let (peer, own) = (addresses.0.into(), IpAddr::from(addresses.1));
                (ipv4::HEADER_LENGTH, ip.length, ip.protocol, peer, own)
            }
            ethernet::IPV6 => {
                let ip = Ipv6Start::read(outer)?;
                let [peer, own] = ip.addresses.map(|bits| Ipv6Addr::from_bits(bits).into());
                (ipv6::HEADER_LENGTH, ip.length, ip.protocol, peer, own)
            }
            _ => return None,
        };
        let mut addresses = underlay.addresses.iter();
        let datagram = outer.get(ip_length..length as usize)?;
        let context: &[u8; CONTEXT] = datagram.first_chunk()?;
        let udp_length = usize::from(u16::from_be_bytes([context[4], context[5]]));
        let [.., a, b, c, d, e, f, g, h] = *context;
        let labels = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let guard = (labels >> 32) as u8;
        let fine = protocol == udp::PROTOCOL
            && is_context(context, underlay.network.get())
            && (CONTEXT..=datagram.len()).contains(&udp_length)
            && guard >= 2
            && addresses.any(|address| address.address() == own);
        if !fine {
            return None;
        }
        let rules = self.rules;
        let hash = match peer {
            IpAddr::V4(peer) => u64::from(peer.to_bits()),
            IpAddr::V6(peer) => peer.to_bits() as u64,
        };
        let ask = || rules.peers.get(&peer).copied();
        let from = self.remembered.peers.get(hash, peer, ask)?;
        let key = labels & WITHOUT_GUARD;
        let way = self
            .remembered
            .stages
            .get(key, key, || stage(rules, labels))?;
        let start = ethernet::HEADER_LENGTH + ip_length;
        let offset = start + CONTEXT;
        Some(Located {
            way: way.from(from, guard - 1),
            enters: false,
            ether_type: match frame.get(offset)? >> 4 {
                4 => ethernet::IPV4,
                _ => ethernet::IPV6,
            },
            offset,
            end: start + udp_length,
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
fn source(rules: &Rules, role: &Port, mac: [u8; 6], vlan: u16) -> Option<(Way, bool)> {
    if let Some(&hop) = role.edges.get(&vlan)
        && let Some(Hop::Edge(edge)) = rules.hop(hop)
    {
        let way = Way::new(edge.place, Direction::Forward);
        return Some((way.from(hop, LOOP_GUARD), true));
    }
    let gateway = role.gateways.get(&(vlan, MacAddress(mac)));
    let &(hop, side) = gateway.or_else(|| role.transparent.get(&vlan))?;
    let Some(Hop::Attachment(attachment)) = rules.hop(hop) else {
        return None;
    };
    let way = match side {
        Side::Egress => Way::new(attachment.stage_behind, Direction::Forward),
        Side::Ingress => Way::new(attachment.stage_before, Direction::Reverse),
    };
    Some((way.from(hop, LOOP_GUARD), false))
}

#[cold]
fn stage(rules: &Rules, labels: u64) -> Option<Way> {
    let context = SteeringContext::from_labels(&labels.to_be_bytes()).ok()?;
    let path = rules.paths.get(&(context.chain, context.egress))?;
    let number = path.stage_number(context.service_index.get(), context.direction)?;
    let way = Way::new(path.place(number)?, context.direction);
    Some(Way(way.0 | Way::OVER_TUNNEL))
}

/// A plain IP packet, with addresses as its family's keys have them.
#[derive(Clone, Copy)]
pub(crate) struct Ip<A> {
    /// Source and destination.
    pub(crate) addresses: A,
    /// Source and destination port, in the upper and the lower half.
    pub(crate) ports: u32,
    /// Bytes.
    pub(crate) length: u32,
    /// Protocol.
    pub(crate) protocol: u8,
    /// Time to live or hop limit.
    pub(crate) ttl: u8,
    /// Byte 13 of the TCP header; 0 for UDP.
    pub(crate) tcp_flags: u8,
}

impl Ip<u64> {
    /// The IPv4 packet at the start of some bytes, if it is plain.
    #[inline(always)]
    pub(crate) fn read(packet: &[u8]) -> Option<Self> {
        let start = Ipv4Start::read(packet)?;
        let segment = packet.get(ipv4::HEADER_LENGTH..start.length as usize)?;
        let (ports, tcp_flags) = read_transport(segment, start.protocol)?;
        Some(Ip {
            addresses: start.addresses,
            ports,
            length: start.length,
            protocol: start.protocol,
            ttl: start.ttl,
            tcp_flags,
        })
    }

    /// The key of its connection at a place.
    #[inline(always)]
    pub(crate) fn key(&self, way: Way) -> Ipv4Key {
        let reverse = u32::from(way.direction() == Direction::Reverse);
        Ipv4Key::from_words(
            way.place().0,
            self.protocol,
            self.addresses.rotate_left(reverse * 32),
            self.ports.rotate_left(reverse * 16),
        )
    }

    /// Where it goes.
    #[inline]
    pub(crate) fn destination(&self) -> IpAddr {
        Ipv4Addr::from_bits(self.addresses as u32).into()
    }
}

impl Ip<[u128; 2]> {
    /// The IPv6 packet at the start of some bytes, if it is plain.
    #[inline]
    pub(crate) fn read(packet: &[u8]) -> Option<Self> {
        let start = Ipv6Start::read(packet)?;
        let segment = packet.get(ipv6::HEADER_LENGTH..start.length as usize)?;
        let (ports, tcp_flags) = read_transport(segment, start.protocol)?;
        Some(Ip {
            addresses: start.addresses,
            ports,
            length: start.length,
            protocol: start.protocol,
            ttl: start.hop_limit,
            tcp_flags,
        })
    }

    /// The key of its connection at a place.
    #[inline]
    pub(crate) fn key(&self, way: Way) -> Ipv6Key {
        let [source, destination] = self.addresses;
        let (from, to) = ((self.ports >> 16) as u16, self.ports as u16);
        let place = way.place();
        let key = Ipv6Key::new(place.0, source, destination, self.protocol, from, to);
        match way.direction() {
            Direction::Forward => key,
            Direction::Reverse => key.reversed_at(place.0),
        }
    }

    /// Where it goes.
    #[inline]
    pub(crate) fn destination(&self) -> IpAddr {
        Ipv6Addr::from_bits(self.addresses[1]).into()
    }
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

/// The ports in one word and the TCP flags of a right TCP or UDP header at the start of a packet's payload.
#[inline(always)]
fn read_transport(segment: &[u8], protocol: u8) -> Option<(u32, u8)> {
    let [a, b, c, d, high, low, ..] = *segment.first_chunk::<{ udp::HEADER_LENGTH }>()?;
    let ports = u32::from_be_bytes([a, b, c, d]);
    match protocol {
        udp::PROTOCOL => {
            let length = usize::from(u16::from_be_bytes([high, low]));
            let right = (udp::HEADER_LENGTH..=segment.len()).contains(&length);
            right.then_some((ports, 0))
        }
        tcp::PROTOCOL => {
            let header = segment.first_chunk::<{ tcp::HEADER_LENGTH }>()?;
            let length = usize::from(header[12] >> 4) * 4;
            let right = (tcp::HEADER_LENGTH..=segment.len()).contains(&length);
            right.then_some((ports, header[13]))
        }
        _ => None,
    }
}
