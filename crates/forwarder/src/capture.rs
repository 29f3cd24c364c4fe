//! Capturing packets that ports receive and send, all or those of one chain, in the pcapng format.
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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::steering::{self, Encoding};
use wire::{IpPacket, ethernet};

/// Packets on their way to the reader at most.
const PENDING: usize = 1_024;
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
    #[cold]
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
        if self
            .filter
            .port
            .as_ref()
            .is_some_and(|wanted| *wanted != role.name)
        {
            return;
        }
        for frame in frames {
            let wanted = self.filter.chain.as_ref().is_none_or(|(customer, chain)| {
                stage_of(rules, port, sent, frame)
                    .is_some_and(|stage| stage.customer == *customer && stage.chain == *chain)
            });
            if wanted {
                self.hand_over(&role.name, sent, frame);
            }
        }
    }

    fn hand_over(&mut self, port: &str, sent: bool, frame: &[u8]) {
        let captured = Captured {
            time: now(),
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

/// A stage of the service path that a frame is on, as its labels or its VNF's interface tell.
fn stage_of<'a>(rules: &'a Rules, port: usize, sent: bool, frame: &[u8]) -> Option<&'a Stage> {
    let header = ethernet::Header::parse(frame).ok()?;
    let underlay = rules
        .underlay
        .as_ref()
        .filter(|underlay| underlay.port == port);
    if underlay.is_some() && header.vlan == 0 {
        let packet = &frame[header.length..];
        let ip = IpPacket::parse(packet).ok()?;
        let encoding = Encoding::of(&ip)?;
        let taken = steering::decapsulate(encoding, packet, &ip, rules).ok()?;
        let context = taken.context;
        let path = rules.paths.get(&(context.chain, context.egress))?;
        return path
            .stages
            .iter()
            .flatten()
            .find_map(|&place| rules.stage(place));
    }
    let role = rules.ports.get(port)?;
    let vnf = if sent {
        header.destination
    } else {
        header.source
    };
    let known = role.gateways.get(&(header.vlan, vnf));
    let (id, _) = known.or_else(|| role.transparent.get(&header.vlan))?;
    match rules.hop(*id)? {
        Hop::Attachment(attachment) => rules.stage(attachment.stage_before),
        _ => None,
    }
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
            chain: None,
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
}
