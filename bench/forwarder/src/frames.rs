//! Frames of 64 bytes out of a VNF's interface, each of some connection.

use wire::{MacAddress, ethernet, ipv4, udp};

/// Bytes of a frame.
pub const LENGTH: usize = 64;
const PACKET: usize = LENGTH - ethernet::HEADER_LENGTH;

/// Writes frames by the number of their connection.
#[derive(Clone)]
pub struct Writer {
    template: [u8; LENGTH],
    sum: u64,
}

impl Writer {
    /// For frames between two interfaces.
    pub fn new(source: MacAddress, destination: MacAddress) -> Writer {
        let mut template = [0; LENGTH];
        ethernet::Header::write(&mut template, destination, source, 0, ethernet::IPV4);
        let header = ipv4::write(&ipv4::Fields {
            source: [10, 0, 0, 0],
            destination: [203, 0, 113, 9],
            protocol: udp::PROTOCOL,
            ttl: 64,
            payload_length: PACKET - ipv4::HEADER_LENGTH,
            identification: 0,
            dont_fragment: true,
        });
        template[14..34].copy_from_slice(&header);
        let datagram = udp::Header {
            source_port: 4000,
            destination_port: 53,
            length: PACKET - ipv4::HEADER_LENGTH,
            checksum: 0,
        };
        template[34..42].copy_from_slice(&datagram.to_bytes());
        template[24..26].fill(0);
        Writer {
            sum: wire::checksum::sum(&template[14..34]),
            template,
        }
    }

    /// The frame of a connection: the lower 24 bits of its number are in the source address, the others in the port.
    #[inline]
    pub fn frame(&self, connection: u32) -> [u8; LENGTH] {
        let mut bytes = self.template;
        bytes[27..30].copy_from_slice(&connection.to_be_bytes()[1..]);
        bytes[34..36].copy_from_slice(&(4000 + (connection >> 24) as u16).to_be_bytes());
        let sum = self.sum + u64::from(connection & 0xffff) + u64::from(connection >> 16 & 0xff);
        bytes[24..26].copy_from_slice(&wire::checksum::finish(sum).to_be_bytes());
        bytes
    }
}

/// Draws numbers of connections, uniformly.
#[derive(Clone)]
pub struct Draw(u64);

impl Draw {
    /// The sequence number `seed`.
    pub fn new(seed: u64) -> Draw {
        Draw((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number below `bound`.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(bound)) >> 32) as u32
    }
}
