//! Captured packets in the pcapng format. Blocks are those of its draft (draft-ietf-opsawg-pcapng, section 4):
//!
//! ```text
//! section header   | 0x0a0d0d0a | length | 0x1a2b3c4d | version 1.0 | section length -1 | length |
//! interface        | 1 | length | link type 2 | 0 | snap length | options: name, resolution | length |
//! enhanced packet  | 6 | length | interface | time high | time low | captured | original | bytes | flags | length |
//! ```

use super::{Captured, LARGEST_SNAP_LENGTH};

const LINK_ETHERNET: u16 = 1;

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
            bytes = self.describe(captured.port);
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
        body.extend(captured.bytes);
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

    fn captured(port: &str, length: usize) -> Captured<'_> {
        Captured {
            time: 0x0102_0304_0506_0708,
            port,
            sent: true,
            length,
            bytes: &[0xaa; 5],
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
}
