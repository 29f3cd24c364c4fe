//! Frames made with the writers, from numbers that are the same in every run.

use wire::arp::{Arp, Operation};
use wire::fragment::fragment_v4;
use wire::icmp::{self, Error};
use wire::nsh::{self, ServicePathIdentifier};
use wire::steering::{
    Direction, Encoding, ServicePath, ServicePathMap, SteeringContext, TunnelTemplate,
};
use wire::{
    Label, MacAddress, ServiceIndex, Vni, checksum, ethernet, icmpv6, ipv4, ipv6,
    neighbour_discovery, udp, vlan,
};

/// Numbers that look random (xorshift64*), from a seed.
pub struct Numbers(u64);

impl Numbers {
    pub fn from_seed(seed: u64) -> Numbers {
        Numbers(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    pub fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.below(256) as u8)
    }

    fn some_bytes(&mut self, limit: u64) -> Vec<u8> {
        (0..self.below(limit))
            .map(|_| self.below(256) as u8)
            .collect()
    }

    fn mac(&mut self) -> MacAddress {
        let mut bytes = self.bytes();
        bytes[0] &= 0xfe;
        MacAddress(bytes)
    }

    fn v4(&mut self) -> [u8; 4] {
        [
            10,
            self.below(256) as u8,
            self.below(256) as u8,
            self.below(254) as u8 + 1,
        ]
    }

    fn v6(&mut self) -> [u8; 16] {
        let mut address = self.bytes();
        address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        address
    }

    /// A port that no tunnel has.
    fn port(&mut self) -> u16 {
        loop {
            let port = self.below(65_535) as u16 + 1;
            if Encoding::ALL.iter().all(|encoding| encoding.port() != port) {
                return port;
            }
        }
    }
}

/// One service path has an identifier, which says which one.
pub struct OnePath(pub ServicePathIdentifier, pub ServicePath);

impl ServicePathMap for OnePath {
    fn path(&self, identifier: ServicePathIdentifier) -> Option<ServicePath> {
        (identifier == self.0).then_some(self.1)
    }

    fn identifier(&self, path: &ServicePath) -> Option<ServicePathIdentifier> {
        (*path == self.1).then_some(self.0)
    }
}

/// Frames of one kind after the other.
pub fn frames(numbers: &mut Numbers, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while frames.len() < count {
        let inner = ip_packet(numbers);
        match frames.len() % 8 {
            0 => frames.push(ethernet_frame(numbers, &inner)),
            1..=3 => frames.push(tunnelled(numbers, &inner)),
            4 => frames.push(resolution(numbers)),
            5 => frames.extend(error_about(numbers, &inner)),
            6 => frames.push(with_service_header(numbers, &inner)),
            _ => frames.extend(fragments(numbers)),
        }
    }
    frames.truncate(count);
    frames
}

/// A TCP segment, UDP datagram or echo in IPv4 or IPv6, with options or extension headers.
pub fn ip_packet(numbers: &mut Numbers) -> Vec<u8> {
    let v6 = numbers.flag();
    let (protocol, mut transport) = match numbers.below(3) {
        0 => (6, tcp_segment(numbers)),
        1 => (17, udp_datagram(numbers)),
        _ => (if v6 { 58 } else { 1 }, echo(numbers, v6)),
    };
    if v6 {
        let (source, destination) = (numbers.v6(), numbers.v6());
        let pseudo =
            checksum::pseudo_header(&[source, destination].concat(), protocol, transport.len());
        fill_checksum(protocol, &mut transport, pseudo);
        packet_v6(numbers, source, destination, protocol, &transport)
    } else {
        let (source, destination) = (numbers.v4(), numbers.v4());
        let pseudo =
            checksum::pseudo_header(&[source, destination].concat(), protocol, transport.len());
        fill_checksum(
            protocol,
            &mut transport,
            if protocol == 1 { 0 } else { pseudo },
        );
        packet_v4(numbers, source, destination, protocol, &transport)
    }
}

fn tcp_segment(numbers: &mut Numbers) -> Vec<u8> {
    let mut segment = numbers.bytes::<20>().to_vec();
    segment[0..2].copy_from_slice(&numbers.port().to_be_bytes());
    segment[2..4].copy_from_slice(&numbers.port().to_be_bytes());
    let options: &[u8] = match numbers.below(4) {
        0 => &[],
        1 => &[2, 4, 0x05, 0xb4],
        2 => &[1, 2, 4, 0x23, 0x28, 1, 1, 0],
        _ => &[3, 3, 7, 2, 4, 0x05, 0xa0, 0],
    };
    segment[12] = (5 + options.len() as u8 / 4) << 4;
    segment.extend(options);
    segment.extend(numbers.some_bytes(60));
    segment
}

fn udp_datagram(numbers: &mut Numbers) -> Vec<u8> {
    let data = numbers.some_bytes(120);
    let header = udp::Header {
        source_port: numbers.port(),
        destination_port: numbers.port(),
        length: udp::HEADER_LENGTH + data.len(),
        checksum: 0,
    };
    [&header.to_bytes()[..], &data].concat()
}

fn echo(numbers: &mut Numbers, v6: bool) -> Vec<u8> {
    let kind = match (v6, numbers.flag()) {
        (false, false) => 8,
        (false, true) => 0,
        (true, false) => 128,
        (true, true) => 129,
    };
    let mut message = vec![kind, 0, 0, 0];
    message.extend(numbers.bytes::<4>());
    message.extend(numbers.some_bytes(60));
    message
}

fn fill_checksum(protocol: u8, transport: &mut [u8], pseudo_header: u64) {
    let at = match protocol {
        6 => 16,
        17 => 6,
        _ => 2,
    };
    transport[at..at + 2].fill(0);
    let sum = match checksum::finish(pseudo_header + checksum::sum(transport)) {
        // UDP has no other way to say 0 (RFC 768).
        0 if protocol == 17 => 0xffff,
        sum => sum,
    };
    transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

fn packet_v4(
    numbers: &mut Numbers,
    source: [u8; 4],
    destination: [u8; 4],
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let options: &[u8] = match numbers.below(4) {
        0 => &[0x94, 4, 0, 0],
        1 => &[1, 7, 7, 4, 0, 0, 0, 0, 0x94, 4, 0, 0],
        _ => &[],
    };
    let header = ipv4::write(&ipv4::Fields {
        source,
        destination,
        protocol,
        ttl: numbers.below(255) as u8 + 1,
        payload_length: options.len() + payload.len(),
        identification: numbers.next() as u16,
        dont_fragment: numbers.flag(),
    });
    let mut packet = [&header[..], options, payload].concat();
    packet[0] = 0x45 + options.len() as u8 / 4;
    ipv4::set_checksum(&mut packet[..20 + options.len()]);
    packet
}

fn packet_v6(
    numbers: &mut Numbers,
    source: [u8; 16],
    destination: [u8; 16],
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let hop_limit = numbers.below(255) as u8 + 1;
    let padding = [1, 4, 0, 0, 0, 0];
    let (next, extensions) = match numbers.below(7) {
        0 => (60, [&[protocol, 0][..], &padding].concat()),
        1 => (
            0,
            [&[60, 0][..], &padding, &[protocol, 0], &padding].concat(),
        ),
        // An atomic fragment (RFC 6946).
        2 => (
            44,
            [&[protocol, 0, 0, 0][..], &numbers.bytes::<4>()].concat(),
        ),
        // Routing of an experimental type (RFC 4727) that is at its end.
        3 => (43, [&[protocol, 0, 253, 0][..], &[0; 4]].concat()),
        // Authentication (RFC 4302), its length in words of 4 bytes.
        4 => (
            51,
            [&[protocol, 2, 0, 0][..], &numbers.bytes::<12>()].concat(),
        ),
        _ => (protocol, Vec::new()),
    };
    let length = extensions.len() + payload.len();
    let header = ipv6::write(source, destination, next, hop_limit, length);
    [&header[..], &extensions, payload].concat()
}

fn ether_type(packet: &[u8]) -> u16 {
    match packet[0] >> 4 {
        4 => ethernet::IPV4,
        _ => ethernet::IPV6,
    }
}

/// A frame with no tag, one or two.
fn ethernet_frame(numbers: &mut Numbers, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 18];
    let tags = numbers.below(3);
    let identifier = if tags == 0 {
        0
    } else {
        numbers.below(4094) as u16 + 1
    };
    let ether_type = ether_type(packet);
    let (to, from) = (numbers.mac(), numbers.mac());
    let length = ethernet::Header::write(&mut frame, to, from, identifier, ether_type);
    frame.truncate(length);
    if tags == 2 {
        let tag = vlan::Tag {
            priority: numbers.below(8) as u8,
            drop_eligible: numbers.flag(),
            identifier: numbers.below(4094) as u16 + 1,
        };
        let outer = [vlan::PROVIDER.to_be_bytes(), tag.to_bytes()].concat();
        frame.splice(12..12, outer);
    }
    frame.extend(packet);
    frame
}

/// A packet on its way between forwarders, in any encoding over any underlay.
pub fn tunnelled(numbers: &mut Numbers, inner: &[u8]) -> Vec<u8> {
    let path = ServicePath {
        chain: Label::new(16 + (numbers.below((1 << 20) - 16) as u32 & !1)).unwrap(),
        direction: if numbers.flag() {
            Direction::Forward
        } else {
            Direction::Reverse
        },
        egress: Label::new(16 + numbers.below((1 << 20) - 16) as u32).unwrap(),
    };
    let identifier = ServicePathIdentifier::new(numbers.below(1 << 24) as u32).unwrap();
    let context = SteeringContext {
        chain: path.chain,
        direction: path.direction,
        egress: path.egress,
        service_index: ServiceIndex::new(numbers.next() as u8),
        loop_guard: numbers.below(64) as u8,
    };
    let encoding = Encoding::ALL[numbers.below(3) as usize];
    let addresses = if numbers.flag() {
        (numbers.v6().into(), numbers.v6().into())
    } else {
        (numbers.v4().into(), numbers.v4().into())
    };
    let macs = (numbers.mac(), numbers.mac());
    let network = Vni::new(numbers.below(1 << 24) as u32).unwrap();
    let template = TunnelTemplate::with_encoding(encoding, macs, addresses, network).unwrap();
    let mut frame = vec![0; template.length()];
    frame.extend(inner);
    let port = 0xc000 | numbers.below(1 << 14) as u16;
    template
        .encapsulate(&mut frame, port, &context, &OnePath(identifier, path))
        .unwrap();
    frame
}

/// ARP or neighbour discovery.
fn resolution(numbers: &mut Numbers) -> Vec<u8> {
    let mac = numbers.mac();
    let packet = match numbers.below(4) {
        0 | 1 => {
            let request = Arp {
                operation: Operation::Request,
                sender_mac: numbers.mac(),
                sender: numbers.v4(),
                target_mac: MacAddress::default(),
                target: numbers.v4(),
            };
            let arp = if numbers.flag() {
                request
            } else {
                request.answered(mac)
            };
            let mut frame = vec![0; 18];
            ethernet::Header::write(&mut frame, numbers.mac(), mac, 0, ethernet::ARP);
            frame.truncate(14);
            frame.extend(arp.to_bytes());
            return frame;
        }
        2 => neighbour_discovery::solicitation(numbers.v6(), numbers.v6(), mac),
        _ => {
            let asked_by = if numbers.flag() {
                numbers.v6()
            } else {
                [0; 16]
            };
            neighbour_discovery::advertisement(asked_by, numbers.v6(), mac)
        }
    };
    ethernet_frame(numbers, &packet)
}

fn error_about(numbers: &mut Numbers, about: &[u8]) -> Option<Vec<u8>> {
    let error = if numbers.flag() {
        Error::TimeExceeded
    } else {
        Error::TooBig {
            mtu: numbers.below(8000) as u16 + 1280,
        }
    };
    let answer = match about[0] >> 4 {
        4 => icmp::error_v4(error, numbers.v4(), about),
        _ => icmp::error_v6(error, numbers.v6(), about),
    }?;
    assert!(answer.len() <= icmpv6::ERROR_LIMIT);
    Some(ethernet_frame(numbers, &answer))
}

/// A network service header with context of either type, straight on Ethernet.
fn with_service_header(numbers: &mut Numbers, inner: &[u8]) -> Vec<u8> {
    let fixed = numbers.flag();
    let context: Vec<u8> = match (fixed, numbers.below(3)) {
        (true, _) => numbers.bytes::<16>().to_vec(),
        (false, 0) => Vec::new(),
        (false, 1) => vec![1, 2, 3, 4, 5, 6, 7, 8],
        (false, _) => vec![1, 2, 3, 5, 1, 2, 3, 4, 5, 0, 0, 0, 0, 9, 8, 0],
    };
    let header = nsh::Header {
        oam: numbers.flag(),
        ttl: numbers.below(64) as u8,
        length: nsh::BASE_LENGTH + context.len(),
        metadata: if fixed {
            nsh::MetadataType::Fixed
        } else {
            nsh::MetadataType::Variable
        },
        next: match inner[0] >> 4 {
            4 => nsh::NextProtocol::Ipv4,
            _ => nsh::NextProtocol::Ipv6,
        },
        path: ServicePathIdentifier::new(numbers.below(1 << 24) as u32).unwrap(),
        index: ServiceIndex::new(numbers.next() as u8),
    };
    let mut frame = vec![0; 18];
    ethernet::Header::write(&mut frame, numbers.mac(), numbers.mac(), 0, ethernet::NSH);
    frame.truncate(14);
    frame.extend(header.to_bytes());
    frame.extend(context);
    frame.extend(inner);
    frame
}

/// The fragments of one IPv4 packet, or a later fragment of an IPv6 packet.
fn fragments(numbers: &mut Numbers) -> Vec<Vec<u8>> {
    if numbers.flag() {
        let payload_length = 8 * (numbers.below(10) as usize + 1);
        let offset = (numbers.below(1 << 13) as u16 / 2 + 1) << 3;
        let word = (offset | u16::from(numbers.flag())).to_be_bytes();
        let mut packet = vec![253, 0, word[0], word[1]];
        packet.extend(numbers.bytes::<4>());
        packet.resize(8 + payload_length, 0x5a);
        let (source, destination) = (numbers.v6(), numbers.v6());
        let header = ipv6::write(source, destination, 44, 64, packet.len());
        packet.splice(..0, header);
        return vec![ethernet_frame(numbers, &packet)];
    }
    let datagram = [&[0; 8][..], &numbers.bytes::<300>()].concat();
    let (source, destination) = (numbers.v4(), numbers.v4());
    let mut packet = packet_v4(numbers, source, destination, 253, &datagram);
    packet[6] = 0;
    let header_length = usize::from(packet[0] & 15) * 4;
    ipv4::set_checksum(&mut packet[..header_length]);
    let fragments = fragment_v4(&packet, 100 + numbers.below(100) as usize).unwrap();
    fragments
        .iter()
        .map(|fragment| ethernet_frame(numbers, fragment))
        .collect()
}
