//! Capturing packets that ports receive and send, all or those that a filter lets through.
//!
//! The worker copies the beginning of each packet that is wanted and hands those of a burst over together ([`packets`]); whoever reads the
//! capture writes them down ([`pcapng`]). When the reader is too slow, packets are left out of the capture and counted, and traffic
//! is not held up.
//!
//! Few packets are wanted of most captures, so a burst is asked first whether any of its connections may be, all together, by what the
//! pipeline has read of them. What leaves is looked at in rounds alone in which something that may be wanted came in, was made here, or
//! came from elsewhere than a port: addresses do not change on the way through.

mod packets;
mod pcapng;

pub use packets::{Captured, Captures};
pub use pcapng::Writer;

use crate::frame::Frame;
use crate::pipeline::Pipeline;
use crate::rules::{Hop, Rules, Stage};
use crate::trace;
pub(crate) use packets::PENDING;
use packets::{Sender, packets};
use wire::steering::{self, Encoding, SteeringContext};
use wire::{IpPacket, ethernet, ipv4, mpls, nsh, tcp, udp, vxlan};

/// Bytes of a packet that are captured unless told otherwise, and at most.
pub const SNAP_LENGTH: usize = 128;
/// The most that can be asked for.
pub const LARGEST_SNAP_LENGTH: usize = 9_216;

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

/// A worker's end of a capture; each worker has one.
#[derive(Clone, Debug)]
pub struct Capture {
    filter: Filter,
    /// The filter's, for a first look.
    sieve: trace::Sieve,
    sender: Sender,
    /// Whether something of this round may be wanted that leaves.
    alert: bool,
}

impl Capture {
    /// Both ends of a capture. The snap length is cut to [`LARGEST_SNAP_LENGTH`].
    pub fn new(filter: Filter, snap_length: usize) -> (Capture, Captures) {
        let (sender, captures) = packets(snap_length.clamp(1, LARGEST_SNAP_LENGTH));
        let capture = Capture {
            sieve: filter.connections.sieve(),
            filter,
            sender,
            alert: false,
        };
        (capture, captures)
    }

    /// Whether the reader has gone.
    pub fn is_over(&self) -> bool {
        self.sender.is_over()
    }

    /// What TCP and UDP packets over IPv4 have in common that may be wanted.
    #[inline(always)]
    pub(crate) fn sieve(&self) -> trace::Sieve {
        self.sieve
    }

    /// Takes what is wanted of the frames that a port received or sent.
    #[inline(never)]
    fn take<'a>(
        &mut self,
        rules: &Rules,
        port: usize,
        sent: bool,
        frames: impl ExactSizeIterator<Item = &'a [u8]>,
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
        // Those of one burst passed together.
        let sender = &mut self.sender;
        if filter.connections.is_empty() && filter.chain.is_none() {
            sender.add_all(frames);
        } else {
            let tunnel = rules.underlay.as_ref().is_some_and(|one| one.port == port);
            let sieve = self.sieve;
            let may_be = |frame: &&[u8]| {
                plain_addresses(frame, tunnel).is_none_or(|word| sieve.lets_both_through(word))
            };
            let wanted = frames
                .filter(may_be)
                .filter(|frame| filter.wants(rules, port, sent, frame));
            wanted.for_each(|frame| sender.add(frame));
        }
        sender.send(&role.name, sent);
    }
}

impl<F: Frame> Pipeline<F> {
    /// Shows a capture a burst of frames, of which some may be wanted, before anything is done to them. Those that another worker handed
    /// over it saw when they arrived.
    #[inline(never)]
    pub(crate) fn show_arrived(&mut self, rules: &Rules, port: usize, frames: &[F], handed: bool) {
        self.alert_capture();
        if let Some(capture) = self.capture.as_mut().filter(|_| !handed) {
            capture.take(rules, port, false, frames.iter().map(F::data));
        }
    }

    /// Has a capture look at what leaves in this round, as that is not what ports received in it.
    #[inline]
    pub fn alert_capture(&mut self) {
        if let Some(capture) = &mut self.capture {
            capture.alert = true;
        }
    }

    /// Shows a capture what is about to leave by a port.
    #[inline]
    pub fn show_leaving(&mut self, rules: &Rules, port: usize, frames: &[F]) {
        if let Some(capture) = self.capture.as_mut().filter(|capture| capture.alert) {
            capture.take(rules, port, true, frames.iter().map(F::data));
        }
    }

    /// Says that all that leaves in this round was shown.
    #[inline]
    pub fn end_round(&mut self) {
        if let Some(capture) = &mut self.capture {
            capture.alert = false;
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

#[cfg(test)]
mod tests {
    use super::*;

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

    /// The bytes that are there to read.
    fn kept(captures: &mut Captures) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| Some(captures.try_next().ok()?.bytes.to_vec())).collect()
    }

    #[test]
    fn a_slow_reader_loses_packets_and_holds_nothing_up() {
        let rules = rules(["wan", "lan"]);
        let filter = Filter {
            port: Some("lan".into()),
            ..Filter::default()
        };
        let (mut capture, mut captures) = Capture::new(filter, 4);
        let bytes = [1u8, 2, 3, 4, 5, 6];
        let frames = [&bytes[..]; 64];
        let bursts = 4_096 / frames.len();
        for _ in 0..=bursts {
            capture.take(&rules, 0, false, frames.into_iter());
            capture.take(&rules, 1, true, frames.into_iter());
        }
        assert_eq!(captures.lost(), 64);
        let first = captures.try_next().unwrap();
        assert_eq!((first.port, first.sent), ("lan", true));
        assert_eq!((first.length, first.bytes), (6, &bytes[..4]));
        assert_eq!(kept(&mut captures), vec![&bytes[..4]; 4_095]);
        // There is room again once they were read.
        capture.take(&rules, 1, true, frames[..3].iter().copied());
        assert_eq!(kept(&mut captures).len(), 3);
        assert_eq!(captures.lost(), 64);
        assert!(!capture.is_over());
        drop(captures);
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

    /// What a router says of a datagram that it cannot deliver.
    fn unreachable(about: &[u8]) -> Vec<u8> {
        let fields = ipv4::Fields {
            source: [198, 51, 100, 1],
            destination: about[26..30].try_into().unwrap(),
            protocol: wire::ip::ICMP,
            ttl: 64,
            payload_length: 8 + about.len() - 14,
            identification: 1,
            dont_fragment: false,
        };
        let mut frame = about[..14].to_vec();
        frame.extend(ipv4::write(&fields));
        frame.extend([3, 1, 0, 0, 0, 0, 0, 0]);
        frame.extend(&about[14..]);
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
        let (mut capture, mut captures) = Capture::new(filter, 60);
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
        let error = unreachable(&wanted);
        let all = [&wanted, &answer, &error].into_iter().chain(&others);
        let frames: Vec<&[u8]> = all.map(Vec::as_slice).collect();
        capture.take(&rules, 1, false, frames.iter().copied());
        capture.take(&rules, 1, true, frames.iter().copied());
        assert_eq!(kept(&mut captures), [wanted, answer, error[..60].to_vec()]);
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
        let (mut capture, mut captures) = Capture::new(filter, 200);
        for (port, frames) in [
            (0, [&wanted, &other].map(|frame| tunnelled(&frame[14..]))),
            (1, [&wanted, &other].map(|frame| tagged(frame))),
        ] {
            let both = frames.iter().map(Vec::as_slice);
            capture.take(&rules, port, false, both);
            assert_eq!(kept(&mut captures), frames[..1], "port {port}");
        }
    }
}
