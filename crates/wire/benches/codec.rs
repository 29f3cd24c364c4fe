//! Nanoseconds per packet of what a forwarder does with every packet: read it, take a tunnel packet apart, send one.
//!
//! ```text
//! cargo bench -p switchboard-wire
//! ```
//!
//! Each figure is the median of 4001 rounds over packets of 256 connections that lie in the cache. A round is so short that most
//! are not interrupted even on a busy machine; the tenth of them that was fastest is below the second figure.

use std::hint::black_box;
use std::time::Instant;
use wire::nsh::ServicePathIdentifier;
use wire::steering::{
    Direction, Encoding, ServicePath, ServicePathMap, SteeringContext, TunnelTemplate, decapsulate,
};
use wire::{IpPacket, Label, MacAddress, ServiceIndex, Vni, ethernet, ipv4, ipv6, udp};

const CONNECTIONS: usize = 256;
const ROUNDS: usize = 4001;

/// The bench's only service path.
struct Path;

const PATH: ServicePath = ServicePath {
    chain: Label::new(1000).unwrap(),
    direction: Direction::Forward,
    egress: Label::new(77).unwrap(),
};

impl ServicePathMap for Path {
    fn path(&self, _: ServicePathIdentifier) -> Option<ServicePath> {
        Some(PATH)
    }

    fn identifier(&self, _: &ServicePath) -> Option<ServicePathIdentifier> {
        ServicePathIdentifier::new(66)
    }
}

const CONTEXT: SteeringContext = SteeringContext {
    chain: PATH.chain,
    direction: PATH.direction,
    egress: PATH.egress,
    service_index: ServiceIndex::INITIAL,
    loop_guard: 63,
};

/// A 64-byte UDP packet.
fn inner(number: usize, v6: bool) -> Vec<u8> {
    let port = (number as u16).to_be_bytes();
    let header_length = if v6 { 40 } else { 20 };
    let length = 64 - header_length;
    let mut datagram = udp::Header {
        source_port: u16::from_be_bytes(port),
        destination_port: 80,
        length,
        checksum: 0,
    }
    .to_bytes()
    .to_vec();
    datagram.resize(length, 0);
    let header = if v6 {
        ipv6::write([0x20; 16], [0x21; 16], 17, 64, length).to_vec()
    } else {
        ipv4::write(&ipv4::Fields {
            source: [10, 0, port[0], port[1]],
            destination: [10, 1, 0, 1],
            protocol: 17,
            ttl: 64,
            payload_length: length,
            identification: 0,
            dont_fragment: true,
        })
        .to_vec()
    };
    [header, datagram].concat()
}

fn measure(name: &str, frames: &mut [Vec<u8>], mut work: impl FnMut(&mut [u8])) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for frame in frames.iter_mut() {
                work(black_box(frame));
            }
            start.elapsed().as_nanos() as f64 / frames.len() as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!(
        "{name:<24} {:>6.1} ns   tenth {:>6.1} ns",
        rounds[ROUNDS / 2],
        rounds[ROUNDS / 10]
    );
}

fn main() {
    for (family, v6) in [("IPv4", false), ("IPv6", true)] {
        let mut packets: Vec<_> = (0..CONNECTIONS).map(|i| inner(i, v6)).collect();
        measure(&format!("read {family} packet"), &mut packets, |packet| {
            if let Ok(parsed) = IpPacket::parse(packet) {
                black_box(&parsed);
            }
        });
    }
    for encoding in Encoding::ALL {
        let template = TunnelTemplate::with_encoding(
            encoding,
            (MacAddress([2; 6]), MacAddress([4; 6])),
            ([192, 0, 2, 1].into(), [192, 0, 2, 2].into()),
            Vni::default(),
        )
        .expect("one family");
        let mut frames: Vec<Vec<u8>> = (0..CONNECTIONS)
            .map(|i| [vec![0; template.length()], inner(i, false)].concat())
            .collect();
        measure(&format!("send {encoding:?}"), &mut frames, |frame| {
            black_box(template.encapsulate(frame, 50_000, &CONTEXT, &Path).ok());
        });
        measure(&format!("receive {encoding:?}"), &mut frames, |frame| {
            receive(frame);
        });
    }
}

/// All a forwarder reads of a tunnel packet, from the frame to the inner connection.
#[inline]
fn receive(frame: &[u8]) -> Option<()> {
    let header = ethernet::Header::parse(frame).ok()?;
    let packet = &frame[header.length..];
    let outer = IpPacket::parse(packet).ok()?;
    let read = decapsulate(Encoding::of(&outer)?, packet, &outer, &Path).ok()?;
    let inner = IpPacket::parse(packet.get(read.inner_offset..read.end)?).ok()?;
    black_box((&read, &inner));
    Some(())
}
