//! Capturing packets that ports receive and send, all or those that a filter lets through, in the pcapng format.
//!
//! The worker copies the beginning of each packet that is wanted and hands it over a bounded channel; whoever reads the
//! capture writes it down. When the reader is too slow, packets are left out of the capture and counted, and traffic is not
//! held up. Blocks are those of the pcapng draft (draft-ietf-opsawg-pcapng, section 4):
//!
//! ```text
//! section header   | 0x0a0d0d0a | length | 0x1a2b3c4d | version 1.0 | section length -1 | length |
//! interface        | 1 | length | link type 2 | 0 | snap length | options: name, resolution | length |
//! enhanced packet  | 6 | length | interface | time high | time low | captured | original | bytes | flags | length |
//! ```

use crate::rules::{Hop, Rules, Stage};
use crate::trace;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::steering::{self, Encoding, SteeringContext};
use wire::{IpPacket, ethernet, ipv4, mpls, nsh, tcp, udp, vxlan};

/// Packets on their way to the reader at most.
const PENDING: usize = 4_096;
/// Bytes of a packet that are captured unless told otherwise, and at most.
pub const SNAP_LENGTH: usize = 128;
/// The most that can be asked for.
pub const LARGEST_SNAP_LENGTH: usize = 9_216;
const LINK_ETHERNET: u16 = 1;

/// What is captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this port, by its name.
    pub port: Option<String>,
    /// Only packets of this chain, by customer and chain: in tunnels, and to and from VNFs. What is outside at an edge is
    /// of no chain yet.
    pub chain: Option<(String, String)>,
    /// Only frames that hold packets of such connections, in a tunnel the inner one; also ICMP errors about them.
    pub connections: trace::Filter,
    /// Only frames that ports sent, or only those that they received.
    pub sent: Option<bool>,
}

impl Filter {
    /// Whether a frame is wanted that a port, not excluded, sent or received.
    fn wants(&self, rules: &Rules, port: usize, sent: bool, frame: &[u8]) -> bool {
        if self.connections.is_empty() && self.chain.is_none() {
            return true;
        }
        let Some(held) = held(rules, port, sent, frame) else {
            return false;
        };
        let of_chain = self.chain.as_ref().is_none_or(|(customer, chain)| {
            held.stage
                .is_some_and(|stage| stage.customer == *customer && stage.chain == *chain)
        });
        let about = held.packet.quoted.map(|quoted| quoted.reversed());
        let matches = |tuple| self.connections.matches(tuple);
        of_chain && (matches(&held.packet.tuple) || about.as_ref().is_some_and(matches))
    }
}

/// A packet that was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Nanoseconds since the Unix epoch.
    pub time: u64,
    /// The port.
    pub port: String,
    /// Whether it was sent rather than received.
    pub sent: bool,
    /// Bytes it had.
    pub length: usize,
    /// The beginning of it.
    pub bytes: Vec<u8>,
}

/// A worker's end of a capture; each worker has one.
#[derive(Clone, Debug)]
pub struct Capture {
    filter: Filter,
    /// The filter's, for a first look.
    sieve: trace::Sieve,
    snap_length: usize,
    sender: SyncSender<Captured>,
    lost: Arc<AtomicU64>,
    over: bool,
}

/// The reader's end of a capture; the capture is over when it goes.
#[derive(Debug)]
pub struct Captures {
    /// What was captured.
    pub packets: Receiver<Captured>,
    lost: Arc<AtomicU64>,
}

impl Captures {
    /// Packets left out because they were not read in time.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

impl Capture {
    /// Both ends of a capture. The snap length is cut to [`LARGEST_SNAP_LENGTH`].
    pub fn new(filter: Filter, snap_length: usize) -> (Capture, Captures) {
        let (sender, packets) = sync_channel(PENDING);
        let lost = Arc::new(AtomicU64::new(0));
        let capture = Capture {
            sieve: filter.connections.sieve(),
            filter,
            snap_length: snap_length.clamp(1, LARGEST_SNAP_LENGTH),
            sender,
            lost: lost.clone(),
            over: false,
        };
        (capture, Captures { packets, lost })
    }

    /// Whether the reader has gone.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Takes what a port received or sent.
    #[inline(never)]
    pub fn take<'a>(
        &mut self,
        rules: &Rules,
        port: usize,
        sent: bool,
        frames: impl Iterator<Item = &'a [u8]>,
    ) {
        let Some(role) = rules.ports.get(port) else {
            return;
        };
        let filter = &self.filter;
        let other_port = filter
            .port
            .as_ref()
            .is_some_and(|wanted| *wanted != role.name);
        if other_port || filter.sent.is_some_and(|wanted| wanted != sent) {
            return;
        }
        let tunnel = rules.underlay.as_ref().is_some_and(|one| one.port == port);
        let sieve = self.sieve;
        // Those of one burst passed together.
        let mut time = None;
        for frame in frames {
            if plain_addresses(frame, tunnel).is_some_and(|word| !sieve.lets_both_through(word)) {
                continue;
            }
            if self.filter.wants(rules, port, sent, frame) {
                let time = *time.get_or_insert_with(now);
                self.hand_over(time, &role.name, sent, frame);
            }
        }
    }

    fn hand_over(&mut self, time: u64, port: &str, sent: bool, frame: &[u8]) {
        let captured = Captured {
            time,
            port: port.to_string(),
            sent,
            length: frame.len(),
            bytes: frame[..frame.len().min(self.snap_length)].to_vec(),
        };
        match self.sender.try_send(captured) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.lost.fetch_add(1, Relaxed);
            }
            Err(TrySendError::Disconnected(_)) => self.over = true,
        }
    }
}

/// What a frame holds.
struct Held<'a> {
    /// The packet, in a tunnel the inner one.
    packet: IpPacket,
    /// A stage of the service path it is on, as its labels or its VNF's interface tell; what is outside at an edge is on
    /// none yet.
    stage: Option<&'a Stage>,
}

fn held<'a>(rules: &'a Rules, port: usize, sent: bool, frame: &[u8]) -> Option<Held<'a>> {
    let header = ethernet::Header::parse(frame).ok()?;
    let payload = frame.get(header.length..)?;
    let role = rules.ports.get(port)?;
    let on_path = |context: &SteeringContext, inner: &[u8]| {
        let path = rules.paths.get(&(context.chain, context.egress));
        let mut stages = path.iter().flat_map(|path| path.stages.iter().flatten());
        Some(Held {
            packet: IpPacket::parse(inner).ok()?,
            stage: stages.find_map(|&place| rules.stage(place)),
        })
    };
    let underlay = rules.underlay.as_ref();
    if underlay.is_some_and(|underlay| underlay.port == port) && header.vlan == 0 {
        let packet = IpPacket::parse(payload).ok()?;
        let taken = Encoding::of(&packet)
            .and_then(|encoding| steering::decapsulate(encoding, payload, &packet, rules).ok());
        return match taken {
            Some(taken) => on_path(&taken.context, payload.get(taken.inner_offset..taken.end)?),
            None => Some(Held {
                packet,
                stage: None,
            }),
        };
    }
    match header.ether_type {
        ethernet::MPLS => {
            let context = SteeringContext::from_labels(payload).ok()?;
            return on_path(&context, payload.get(2 * mpls::ENTRY_LENGTH..)?);
        }
        ethernet::NSH => {
            let service = nsh::Header::parse(payload).ok()?;
            let context = SteeringContext::from_nsh(&service, rules).ok()?;
            return on_path(&context, payload.get(service.length..)?);
        }
        _ => {}
    }
    let vnf = if sent {
        header.destination
    } else {
        header.source
    };
    let known = role.gateways.get(&(header.vlan, vnf));
    let hop = known.or_else(|| role.transparent.get(&header.vlan));
    let stage = match hop.and_then(|(id, _)| rules.hop(*id)) {
        Some(Hop::Attachment(attachment)) => rules.stage(attachment.stage_before),
        _ => None,
    };
    Some(Held {
        packet: IpPacket::parse(payload).ok()?,
        stage,
    })
}

/// Source and destination of the packet that a frame holds, where it is TCP or UDP over IPv4 in the plainest of frames. With
/// a tunnel it is that of VXLAN over IPv4, with labels. Any other frame needs a closer look.
#[inline(always)]
fn plain_addresses(frame: &[u8], tunnel: bool) -> Option<u64> {
    const ETHERNET: usize = ethernet::HEADER_LENGTH;
    const TAGGED: usize = ETHERNET + 4;
    /// Ethernet, IPv4, UDP, VXLAN, Ethernet, two labels.
    const TUNNEL: usize = 2 * ETHERNET + ipv4::HEADER_LENGTH + 8 + 8 + 8;
    let is_ipv4 = |type_at: usize| frame.get(type_at..type_at + 2) == Some(&[8, 0][..]);
    if tunnel {
        let outer = frame.get(..ETHERNET + ipv4::HEADER_LENGTH + 4)?;
        let port = [outer[36], outer[37]];
        let plain = is_ipv4(12) && outer[ETHERNET] == 0x45 && port == vxlan::PORT.to_be_bytes();
        return addresses_at(frame, TUNNEL).filter(|_| plain);
    }
    if is_ipv4(12) {
        return addresses_at(frame, ETHERNET);
    }
    addresses_at(frame, TAGGED).filter(|_| is_ipv4(16))
}

/// Source and destination of an IPv4 packet without options that is TCP or UDP.
#[inline(always)]
fn addresses_at(frame: &[u8], at: usize) -> Option<u64> {
    let header: &[u8; ipv4::HEADER_LENGTH] = frame.get(at..)?.first_chunk()?;
    let plain = header[0] == 0x45 && matches!(header[9], tcp::PROTOCOL | udp::PROTOCOL);
    let [.., a, b, c, d, e, f, g, h] = *header;
    plain.then(|| u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as u64)
}

/// Writes captured packets as pcapng; each call returns the bytes to append.
#[derive(Debug, Default)]
pub struct Writer {
    /// Ports described so far.
    ports: Vec<String>,
    snap_length: u32,
}

impl Writer {
    /// A writer for packets of a snap length.
    pub fn new(snap_length: usize) -> Writer {
        Writer {
            ports: Vec::new(),
            snap_length: snap_length.clamp(1, LARGEST_SNAP_LENGTH) as u32,
        }
    }

    /// What a file begins with.
    pub fn begin(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(0x1a2b_3c4du32.to_le_bytes());
        body.extend([1, 0, 0, 0]);
        body.extend((-1i64).to_le_bytes());
        block(0x0a0d_0d0a, &body)
    }

    /// A packet, after a description of its port if that is new.
    pub fn packet(&mut self, captured: &Captured) -> Vec<u8> {
        let known = self.ports.iter().position(|port| *port == captured.port);
        let mut bytes = Vec::new();
        let interface = known.unwrap_or_else(|| {
            bytes = self.describe(&captured.port);
            self.ports.len() - 1
        });
        let mut body = Vec::new();
        for word in [
            interface as u32,
            (captured.time >> 32) as u32,
            captured.time as u32,
            captured.bytes.len() as u32,
            captured.length as u32,
        ] {
            body.extend(word.to_le_bytes());
        }
        body.extend(&captured.bytes);
        pad(&mut body);
        // epb_flags: 1 is inbound, 2 is outbound.
        let direction = if captured.sent { 2u32 } else { 1 };
        option(&mut body, 2, &direction.to_le_bytes());
        option(&mut body, 0, &[]);
        bytes.extend(block(6, &body));
        bytes
    }

    fn describe(&mut self, port: &str) -> Vec<u8> {
        self.ports.push(port.to_string());
        let mut body = Vec::new();
        body.extend(LINK_ETHERNET.to_le_bytes());
        body.extend([0, 0]);
        body.extend(self.snap_length.to_le_bytes());
        option(&mut body, 2, port.as_bytes());
        // if_tsresol: nanoseconds.
        option(&mut body, 9, &[9]);
        option(&mut body, 0, &[]);
        block(1, &body)
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32 + 12;
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(length.to_le_bytes());
    bytes.extend(body);
    bytes.extend(length.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(port: &str, length: usize) -> Captured {
        Captured {
            time: 0x0102_0304_0506_0708,
            port: port.into(),
            sent: true,
            length,
            bytes: vec![0xaa; length.min(5)],
        }
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    /// Kinds and lengths of the blocks, which frame themselves at both ends.
    fn blocks(bytes: &[u8]) -> Vec<u32> {
        let (mut at, mut kinds) = (0, Vec::new());
        while at < bytes.len() {
            let length = word(bytes, at + 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(bytes, at + length - 4) as usize, length);
            kinds.push(word(bytes, at));
            at += length;
        }
        kinds
    }

    #[test]
    fn an_interface_is_described_once_before_its_first_packet() {
        let mut writer = Writer::new(96);
        let mut file = writer.begin();
        file.extend(writer.packet(&captured("wan", 60)));
        file.extend(writer.packet(&captured("wan", 61)));
        file.extend(writer.packet(&captured("lan", 62)));
        assert_eq!(blocks(&file), [0x0a0d_0d0a, 1, 6, 6, 1, 6]);
    }

    #[test]
    fn a_packet_tells_its_time_its_length_and_what_was_kept_of_it() {
        let mut writer = Writer::new(5);
        writer.packet(&captured("wan", 60));
        let block = writer.packet(&captured("wan", 60));
        let words: Vec<u32> = (2..7).map(|index| word(&block, 4 * index)).collect();
        assert_eq!(words, [0, 0x0102_0304, 0x0506_0708, 5, 60]);
        assert_eq!(&block[28..33], &[0xaa; 5]);
    }

    fn rules(names: [&str; 2]) -> Rules {
        let mut rules = Rules::empty();
        let port = |name: &str| crate::rules::Port {
            name: name.into(),
            mac: Default::default(),
            edges: Default::default(),
            gateways: Default::default(),
            transparent: Default::default(),
            label_aware: Default::default(),
            passive_edges: Default::default(),
            has_passive: false,
            has_attachments: false,
        };
        rules.ports = names.map(port).into();
        rules
    }

    #[test]
    fn a_slow_reader_loses_packets_and_holds_nothing_up() {
        let rules = rules(["wan", "lan"]);
        let filter = Filter {
            port: Some("lan".into()),
            ..Filter::default()
        };
        let (mut capture, captures) = Capture::new(filter, 4);
        let frame = [1u8, 2, 3, 4, 5, 6];
        let frames = std::iter::repeat_n(&frame[..], PENDING + 3);
        capture.take(&rules, 0, false, frames.clone());
        capture.take(&rules, 1, true, frames);
        assert_eq!(captures.lost(), 3);
        let kept: Vec<Captured> = captures.packets.try_iter().collect();
        assert_eq!(kept.len(), PENDING);
        assert_eq!((kept[0].length, kept[0].bytes.as_slice()), (6, &frame[..4]));
        drop(captures);
        capture.take(&rules, 1, true, std::iter::once(&frame[..]));
        assert!(capture.is_over());
    }

    /// A UDP datagram over IPv4 in an Ethernet frame.
    fn datagram(source: [u8; 4], destination: [u8; 4], port: u16) -> Vec<u8> {
        let fields = ipv4::Fields {
            source,
            destination,
            protocol: udp::PROTOCOL,
            ttl: 64,
            payload_length: 12,
            identification: 1,
            dont_fragment: false,
        };
        let mut frame = vec![2; 12];
        frame.extend(ethernet::IPV4.to_be_bytes());
        frame.extend(ipv4::write(&fields));
        frame.extend(4_000u16.to_be_bytes());
        frame.extend(port.to_be_bytes());
        frame.extend([0, 12, 0, 0, 1, 2, 3, 4]);
        frame
    }

    #[test]
    fn a_filter_lets_both_directions_of_its_connections_through_and_nothing_else() {
        use contracts::forwarder as contract;
        let rules = rules(["wan", "lan"]);
        let matched = contract::Match {
            source_prefixes: vec!["10.1.0.0/24".into()],
            destination_ports: vec![contract::PortRange {
                first: 53,
                last: 53,
            }],
            ..Default::default()
        };
        let filter = Filter {
            connections: trace::Filter::new(Some(&matched), true).unwrap(),
            sent: Some(true),
            ..Filter::default()
        };
        let (mut capture, captures) = Capture::new(filter, 60);
        let (host, server) = ([10, 1, 0, 7], [192, 0, 2, 1]);
        let wanted = datagram(host, server, 53);
        let mut answer = datagram(server, host, 4_000);
        answer[34..36].copy_from_slice(&53u16.to_be_bytes());
        let others = [
            datagram(host, server, 54),
            datagram([10, 2, 0, 7], server, 53),
            vec![0xff; 60],
            wanted[..30].to_vec(),
        ];
        let all = [&wanted, &answer].into_iter().chain(&others);
        let frames: Vec<&[u8]> = all.map(Vec::as_slice).collect();
        capture.take(&rules, 1, false, frames.iter().copied());
        capture.take(&rules, 1, true, frames.iter().copied());
        let kept: Vec<Vec<u8>> = captures.packets.try_iter().map(|one| one.bytes).collect();
        assert_eq!(kept, [wanted, answer]);
    }

    /// A packet with the labels of a service path, in VXLAN.
    fn tunnelled(inner: &[u8]) -> Vec<u8> {
        let mut frame = datagram([203, 0, 113, 1], [203, 0, 113, 2], vxlan::PORT);
        frame.truncate(14 + 20 + 8);
        frame.extend([8, 0, 0, 0, 0, 0, 7, 0]);
        frame.extend([4; 12]);
        frame.extend(ethernet::MPLS.to_be_bytes());
        frame.extend([0, 6, 0x40, 64, 0, 3, 0x21, 255]);
        frame.extend(inner);
        let length = (frame.len() - 14) as u16;
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        frame[38..40].copy_from_slice(&(length - 20).to_be_bytes());
        ipv4::set_checksum(&mut frame[14..34]);
        frame
    }

    #[test]
    fn tags_and_tunnels_hide_no_packet_that_is_wanted() {
        let mut rules = rules(["wan", "lan"]);
        rules.underlay = Some(crate::rules::Underlay {
            port: 0,
            addresses: Vec::new(),
            mtu: 1600,
            network: wire::Vni::new(7).expect("a number"),
        });
        let matched = contracts::forwarder::Match {
            destination_prefixes: vec!["192.0.2.1/32".into()],
            ..Default::default()
        };
        let filter = Filter {
            connections: trace::Filter::new(Some(&matched), true).unwrap(),
            ..Filter::default()
        };
        let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
        let (host, server) = ([10, 1, 0, 7], [192, 0, 2, 1]);
        let (wanted, other) = (datagram(host, server, 53), datagram(host, [9; 4], 53));
        let (mut capture, captures) = Capture::new(filter, 200);
        for (port, frames) in [
            (0, [&wanted, &other].map(|frame| tunnelled(&frame[14..]))),
            (1, [&wanted, &other].map(|frame| tagged(frame))),
        ] {
            let both = frames.iter().map(Vec::as_slice);
            capture.take(&rules, port, false, both);
            let kept: Vec<Vec<u8>> = captures.packets.try_iter().map(|one| one.bytes).collect();
            assert_eq!(kept, frames[..1], "port {port}");
        }
    }
}
