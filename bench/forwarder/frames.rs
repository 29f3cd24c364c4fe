//! Frames in memory that never come or go: as a port's buffers are.

use forwarder::frame::Frame;
use wire::{ethernet, ipv4, udp};

const HEADROOM: usize = 128;
const SIZE: usize = 256;
/// Bytes of the IP packet: 64 less an Ethernet header.
const PACKET: usize = 50;

/// A buffer.
pub struct BenchFrame {
    bytes: Box<[u8; SIZE]>,
    start: usize,
    end: usize,
}

impl BenchFrame {
    /// A frame of some bytes.
    pub fn new(frame: &[u8]) -> BenchFrame {
        let mut bytes = Box::new([0; SIZE]);
        bytes[HEADROOM..HEADROOM + frame.len()].copy_from_slice(frame);
        BenchFrame {
            bytes,
            start: HEADROOM,
            end: HEADROOM + frame.len(),
        }
    }
}

impl Frame for BenchFrame {
    #[inline]
    fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
    #[inline]
    fn data_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }
    #[inline]
    fn prepend(&mut self, count: usize) -> bool {
        match self.start.checked_sub(count) {
            Some(start) => {
                self.start = start;
                true
            }
            None => false,
        }
    }
    #[inline]
    fn trim_front(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }
    #[inline]
    fn truncate(&mut self, length: usize) {
        self.end = self.end.min(self.start + length);
    }
    #[inline]
    fn take_stripped_vlan(&mut self) -> Option<u16> {
        None
    }
}

/// Empty buffers.
pub fn pool(count: usize) -> Vec<BenchFrame> {
    (0..count).map(|_| BenchFrame::new(&[])).collect()
}

fn template() -> [u8; ethernet::HEADER_LENGTH + PACKET] {
    let mut bytes = [0; ethernet::HEADER_LENGTH + PACKET];
    let source = crate::rules::VNF_EGRESS_MAC;
    ethernet::Header::write(
        &mut bytes,
        wire::MacAddress([2, 0, 0, 0, 0, 1]),
        source,
        0,
        ethernet::IPV4,
    );
    let header = ipv4::write(&ipv4::Fields {
        source: [10, 0, 0, 0],
        destination: [203, 0, 113, 9],
        protocol: udp::PROTOCOL,
        ttl: 64,
        payload_length: PACKET - ipv4::HEADER_LENGTH,
        identification: 0,
        dont_fragment: true,
    });
    bytes[14..34].copy_from_slice(&header);
    let datagram = udp::Header {
        source_port: 4000,
        destination_port: 53,
        length: PACKET - ipv4::HEADER_LENGTH,
        checksum: 0,
    };
    bytes[34..42].copy_from_slice(&datagram.to_bytes());
    bytes
}

/// Writes a packet of a connection by its number.
pub fn write(frame: &mut BenchFrame, connection: u32) {
    Generator::new(1).write(frame, connection);
}

/// Draws connections.
pub struct Generator {
    template: [u8; ethernet::HEADER_LENGTH + PACKET],
    sum: u64,
    flows: u32,
    state: u64,
}

impl Generator {
    /// One that draws from so many connections.
    pub fn new(flows: u32) -> Generator {
        let mut template = template();
        template[24..26].fill(0);
        Generator {
            sum: wire::checksum::sum(&template[14..34]),
            template,
            flows,
            state: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Writes a packet of a drawn connection.
    #[inline]
    pub fn next(&mut self, frame: &mut BenchFrame) {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let drawn = ((self.state >> 32) * u64::from(self.flows)) >> 32;
        self.write(frame, drawn as u32);
    }

    #[inline]
    fn write(&self, frame: &mut BenchFrame, connection: u32) {
        let length = self.template.len();
        frame.start = HEADROOM;
        frame.end = HEADROOM + length;
        let bytes = &mut frame.bytes[HEADROOM..HEADROOM + length];
        bytes.copy_from_slice(&self.template);
        // The lower 24 bits are in the address, the rest in the port.
        bytes[27..30].copy_from_slice(&connection.to_be_bytes()[1..]);
        bytes[34..36].copy_from_slice(&(4000 + (connection >> 24) as u16).to_be_bytes());
        let sum = self.sum + u64::from(connection & 0xffff) + u64::from(connection >> 16 & 0xff);
        bytes[24..26].copy_from_slice(&wire::checksum::finish(sum).to_be_bytes());
    }
}
