//! Captures in the classic pcap format, of either byte order and either resolution.
//!
//! ```text
//! file:   | magic 4 | version 2 + 2 | zone 4 | accuracy 4 | snap length 4 | link type 4 |
//! record: | seconds 4 | fraction 4 | captured length 4 | original length 4 | bytes … |
//! ```

use std::path::{Path, PathBuf};

/// Link type of Ethernet.
pub const ETHERNET: u32 = 1;
/// Link type of PPP.
pub const PPP: u32 = 9;

/// Link type of IP packets without a link layer.
pub const RAW_IP: u32 = 101;

/// A capture.
pub struct Capture {
    pub link: u32,
    pub packets: Vec<Vec<u8>>,
}

impl Capture {
    /// Reads a file.
    ///
    /// # Panics
    /// It cannot be read or is no whole pcap file.
    pub fn read(path: &Path) -> Capture {
        let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let big_endian = match bytes[..4] {
            [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => false,
            [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => true,
            ref magic => panic!("{path:?} is no pcap file: it begins with {magic:x?}"),
        };
        let word = |at: usize| {
            let word = bytes[at..at + 4].try_into().expect("four bytes");
            if big_endian {
                u32::from_be_bytes(word)
            } else {
                u32::from_le_bytes(word)
            }
        };
        let mut packets = Vec::new();
        let mut at = 24;
        while at < bytes.len() {
            let length = word(at + 8) as usize;
            packets.push(bytes[at + 16..at + 16 + length].to_vec());
            at += 16 + length;
        }
        Capture {
            // The upper half says how long frame check sequences are; none of these has any.
            link: word(20) & 0xffff,
            packets,
        }
    }

    /// Writes a file.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn write(&self, path: &Path) {
        let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        for word in [0, 0, 65_535, self.link] {
            bytes.extend(word.to_le_bytes());
        }
        for (second, packet) in self.packets.iter().enumerate() {
            let length = packet.len() as u32;
            for word in [second as u32, 0, length, length] {
                bytes.extend(word.to_le_bytes());
            }
            bytes.extend(packet);
        }
        std::fs::write(path, bytes).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    }
}

/// The directory of the captures: `pcap` in SWITCHBOARD_DATA, or in `../shared/data` beside the repository. Says why
/// when there is none.
pub fn directory() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let data = std::env::var_os("SWITCHBOARD_DATA")
        .map_or_else(|| root.join("../shared/data"), PathBuf::from);
    let captures = data.join("pcap");
    if captures.is_dir() {
        return Some(captures);
    }
    eprintln!(
        "SKIPPED: no captures in {}; set SWITCHBOARD_DATA to the directory that has pcap/",
        captures.display()
    );
    None
}
