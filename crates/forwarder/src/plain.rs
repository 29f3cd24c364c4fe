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
///   63    48 47        40 39 35  34    33    32   31         16 15         0
///  +--------+------------+-----+-----+------+----+-------------+------------+
///  |   0    | loop guard |  0  | new | over | re |  from (hop) |   place    |
///  +--------+------------+-----+-----+------+----+-------------+------------+
/// ```
/// re: reverse. over: it came over a tunnel. new: it entered at an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way(pub(crate) u64);

impl Way {
    const REVERSE: u64 = 1 << 32;
    const OVER_TUNNEL: u64 = 1 << 33;
    const ENTERED: u64 = 1 << 34;

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

    /// Whether the packet entered at an edge: its place is the edge's until its connection is known.
    #[inline(always)]
    pub(crate) const fn entered(self) -> bool {
        self.0 & Self::ENTERED != 0
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
    pub(crate) way: Way,
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
    /// Of each port.
    sources: Vec<Sources>,
    /// By labels.
    stages: Memory,
    /// By the word that stands for their address.
    peers: Memory,
}

/// What a port's packets come from.
#[derive(Default)]
struct Sources {
    /// By source address and VLAN.
    ways: Memory,
    /// Ethernet header of the last packet without a tag, in two words that overlap, and its way. No packet has the words 0:
    /// nobody's EtherType is 0.
    last: ([u64; 2], Way),
}

/// An Ethernet header in two words that overlap.
#[inline(always)]
pub(crate) fn in_words(header: &[u8; ethernet::HEADER_LENGTH]) -> [u64; 2] {
    [0, 6].map(|at| u64::from_ne_bytes(part(header, at)))
}

/// A small table of ways by words; one that is 0 is none.
struct Memory {
    ways: [(u64, Way); REMEMBERED],
    /// The last one asked for: packets come in trains, and where it is need not be worked out.
    last: (u64, Way),
}

impl Default for Memory {
    fn default() -> Self {
        Memory {
            ways: [(0, Way(0)); REMEMBERED],
            last: (0, Way(0)),
        }
    }
}

impl Memory {
    /// The way for a word, asked for where it is not remembered; a lack of one is not.
    #[inline(always)]
    fn get(&mut self, word: u64, ask: impl FnOnce() -> Option<Way>) -> Option<Way> {
        let (last, way) = self.last;
        if last == word && way != Way(0) {
            return Some(way);
        }
        let slot = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - REMEMBERED.ilog2());
        let entry = &mut self.ways[slot as usize % REMEMBERED];
        if entry.0 != word || entry.1 == Way(0) {
            *entry = (word, ask()?);
        }
        self.last = *entry;
        Some(entry.1)
    }
}

/// Reads the plain packets that arrive at a port.
pub(crate) struct Plain<'a> {
    rules: &'a Rules,
    role: &'a Port,
    underlay: Option<&'a Underlay>,
    sources: &'a mut Sources,
    stages: &'a mut Memory,
    peers: &'a mut Memory,
}

impl<'a> Plain<'a> {
    /// A reader for a port; none for one that the rules do not know.
    #[inline]
    pub(crate) fn new(
        rules: &'a Rules,
        port: usize,
        remembered: &'a mut Remembered,
    ) -> Option<Plain<'a>> {
        let role = rules.ports.get(port)?;
        if remembered.sources.len() <= port {
            remembered.sources.resize_with(port + 1, Sources::default);
        }
        Some(Plain {
            rules,
            role,
            underlay: rules
                .underlay
                .as_ref()
                .filter(|underlay| underlay.port == port),
            sources: &mut remembered.sources[port],
            stages: &mut remembered.stages,
            peers: &mut remembered.peers,
        })
    }

    /// Whether the port leads to other forwarders: which of the two ways to locate a packet is right.
    #[inline(always)]
    pub(crate) fn is_underlay(&self) -> bool {
        self.underlay.is_some()
    }

    /// Ethernet header and way of the last packet without a tag, if it is over IPv4 and from neither a tunnel nor an edge.
    #[inline(always)]
    pub(crate) fn train(&self) -> Option<([u64; 2], Way)> {
        const TYPE: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        const IPV4: u64 = u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0x08, 0]);
        let (words, way) = self.sources.last;
        (words[1] & TYPE == IPV4 && !way.entered()).then_some((words, way))
    }

    /// Where the packet is of a frame from which no tag was taken, if what is in front of it is plain. `UNDERLAY` says whether the
    /// port is the underlay's.
    #[inline(always)]
    pub(crate) fn locate<const UNDERLAY: bool>(&mut self, frame: &[u8]) -> Option<Located> {
        let header = frame.first_chunk::<{ ethernet::HEADER_LENGTH }>()?;
        let ether_type = u16::from_be_bytes(part(header, 12));
        // That of the packet before is the likeliest.
        let words = in_words(header);
        if !UNDERLAY && words == self.sources.last.0 {
            return Some(Located {
                way: self.sources.last.1,
                ether_type,
                offset: ethernet::HEADER_LENGTH,
                end: frame.len(),
            });
        }
        if UNDERLAY && ether_type != vlan::CUSTOMER {
            return self.locate_in_tunnel(frame, ether_type);
        }
        // A frame for another address may be for nobody here: that is not quickly told.
        if part(header, 0) != self.role.mac.0 {
            return None;
        }
        let located = self.locate_by_source(frame, part(header, 6), ether_type)?;
        if !UNDERLAY && located.offset == ethernet::HEADER_LENGTH {
            self.sources.last = (words, located.way);
        }
        Some(located)
    }

    #[inline]
    fn locate_by_source(&mut self, frame: &[u8], mac: [u8; 6], ether_type: u16) -> Option<Located> {
        let (vlan, ether_type, offset) = if ether_type != vlan::CUSTOMER {
            (0, ether_type, ethernet::HEADER_LENGTH)
        } else {
            let tag: &[u8; 4] = frame.get(ethernet::HEADER_LENGTH..)?.first_chunk()?;
            // A priority tag names no VLAN: what it is in front of goes with frames without one, and keeps their order.
            let identifier = u16::from_be_bytes([tag[0], tag[1]]) & 0x0fff;
            (identifier, u16::from_be_bytes([tag[2], tag[3]]), 18)
        };
        Some(Located {
            way: self.source(mac, vlan)?,
            ether_type,
            offset,
            end: frame.len(),
        })
    }

    #[inline(always)]
    fn source(&mut self, mac: [u8; 6], vlan: u16) -> Option<Way> {
        let [a, b, c, d, e, f] = mac;
        let [high, low] = vlan.to_be_bytes();
        let word = u64::from_be_bytes([a, b, c, d, e, f, high, low]);
        let (rules, role) = (self.rules, self.role);
        self.sources
            .ways
            .get(word, || source(rules, role, mac, vlan))
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
        let from = match peer {
            // An address of IPv6 does not fit in a word.
            IpAddr::V6(_) => *rules.peers.get(&peer)?,
            IpAddr::V4(address) => {
                let ask = || Some(Way(0).from(*rules.peers.get(&peer)?, 1));
                self.peers.get(address.to_bits().into(), ask)?.hop()
            }
        };
        let ask = || stage(rules, labels);
        let way = self.stages.get(labels & WITHOUT_GUARD, ask)?;
        let start = ethernet::HEADER_LENGTH + ip_length;
        let offset = start + CONTEXT;
        Some(Located {
            way: way.from(from, guard - 1),
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
fn source(rules: &Rules, role: &Port, mac: [u8; 6], vlan: u16) -> Option<Way> {
    if let Some(&hop) = role.edges.get(&vlan)
        && let Some(Hop::Edge(edge)) = rules.hop(hop)
    {
        let way = Way::new(edge.place, Direction::Forward);
        return Some(Way(way.from(hop, LOOP_GUARD).0 | Way::ENTERED));
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
    Some(way.from(hop, LOOP_GUARD))
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
        // Both headers in one piece, so that one comparison tells that they are there.
        const BOTH: usize = ipv4::HEADER_LENGTH + udp::HEADER_LENGTH;
        let headers = packet.first_chunk::<BOTH>()?;
        let start = Ipv4Start::of(headers.first_chunk()?, packet.len())?;
        let room = start.length.checked_sub(BOTH as u32)?;
        let tcp_flags = if start.protocol == udp::PROTOCOL {
            let datagram = u32::from(u16::from_be_bytes(part(headers, 24)));
            let right = datagram.wrapping_sub(udp::HEADER_LENGTH as u32) <= room;
            right.then_some(0)?
        } else {
            let segment = packet.get(ipv4::HEADER_LENGTH..start.length as usize)?;
            tcp_flags(segment, start.protocol)?
        };
        Some(Ip {
            addresses: start.addresses,
            ports: u32::from_be_bytes(part(headers, 20)),
            length: start.length,
            protocol: start.protocol,
            ttl: start.ttl,
            tcp_flags,
        })
    }

    /// The key of its connection at a place.
    #[inline(always)]
    pub(crate) fn key(&self, way: Way) -> Ipv4Key {
        let (addresses, ports) = match way.direction() {
            Direction::Forward => (self.addresses, self.ports),
            Direction::Reverse => (self.addresses.rotate_left(32), self.ports.rotate_left(16)),
        };
        let place = way.place().0;
        Ipv4Key::from_words(place, self.protocol, addresses, ports)
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
        let [a, b, c, d, high, low, ..] = *segment.first_chunk::<{ udp::HEADER_LENGTH }>()?;
        let tcp_flags = if start.protocol == udp::PROTOCOL {
            let datagram = usize::from(u16::from_be_bytes([high, low]));
            let right = (udp::HEADER_LENGTH..=segment.len()).contains(&datagram);
            right.then_some(0)?
        } else {
            tcp_flags(segment, start.protocol)?
        };
        Some(Ip {
            addresses: start.addresses,
            ports: u32::from_be_bytes([a, b, c, d]),
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
        Self::of(header, packet.len())
    }

    /// The same of a header that is there, of a packet whose frame has room for so many bytes of it.
    #[inline(always)]
    fn of(header: &[u8; ipv4::HEADER_LENGTH], room: usize) -> Option<Ipv4Start> {
        // Version and header length; more fragments and fragment offset.
        const READ: u64 = u64::from_ne_bytes([0xff, 0, 0, 0, 0, 0, 0x3f, 0xff]);
        const PLAIN: u64 = u64::from_ne_bytes([0x45, 0, 0, 0, 0, 0, 0, 0]);
        let front = u64::from_ne_bytes(part(header, 0));
        let middle = u64::from_ne_bytes(part(header, 8));
        let last = u32::from_ne_bytes(part(header, 16));
        // The sum in the processor's own order has the sum's bytes in that order (RFC 1071, section 2 B), and carries of
        // 64 bits may be added as those of 16 are.
        let (sum, carry) = front.overflowing_add(middle);
        let (sum, more) = sum.overflowing_add(u64::from(last));
        let right = checksum::fold_words(sum, u64::from(carry) + u64::from(more)) == 0xffff;
        let length = u16::from_be_bytes(part(header, 2));
        let plain = front & READ == PLAIN && usize::from(length) <= room;
        (plain && right).then_some(Ipv4Start {
            addresses: u64::from_be_bytes(part(header, 12)),
            length: u32::from(length),
            ttl: header[8],
            protocol: header[9],
        })
    }
}

/// Some bytes of a header in one piece. Both numbers are constants, so that the check that they lie inside is made once.
#[inline(always)]
fn part<const N: usize, const LENGTH: usize>(header: &[u8; LENGTH], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&header[at..at + N]);
    part
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

/// The flags of a right TCP header at the start of a packet's payload; nothing for other protocols.
#[inline(always)]
fn tcp_flags(segment: &[u8], protocol: u8) -> Option<u8> {
    let header = segment.first_chunk::<{ tcp::HEADER_LENGTH }>()?;
    let length = usize::from(header[12] >> 4) * 4;
    let right = (tcp::HEADER_LENGTH..=segment.len()).contains(&length);
    (right && protocol == tcp::PROTOCOL).then_some(header[13])
}
