//! Seeds for the fuzz targets: each layer of each packet of some captures, and of some frames made with the writers, becomes
//! a file in its target's directory.
//!
//! ```text
//! fuzz_seeds DIRECTORY_OF_CORPORA [DIRECTORY_OF_CAPTURES]
//! ```

#[path = "../tests/support/mod.rs"]
mod support;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs, io, process};
use support::capture::Capture;
use support::generate::{self, Numbers};
use support::layers::Layers;

/// Packets of one capture, and bytes of one seed, at most.
const PACKETS: usize = 40;
const LENGTH: usize = 600;

/// Which targets read a layer.
fn targets(layer: &str) -> &'static [&'static str] {
    match layer {
        "ethernet" => &["wire_ethernet", "wire_steering"],
        "arp" => &["wire_arp"],
        "ipv4" => &["wire_ipv4", "wire_ip", "wire_fragment", "wire_icmp"],
        "ipv6" => &[
            "wire_ipv6",
            "wire_ip",
            "wire_icmp",
            "wire_neighbour_discovery",
        ],
        "ip" => &["wire_ip", "wire_icmp"],
        "tcp" => &["wire_tcp"],
        "udp" => &["wire_udp"],
        "icmp" | "icmpv6" => &["wire_icmp"],
        "mpls" => &["wire_mpls"],
        "nsh" => &["wire_nsh"],
        "vxlan" => &["wire_vxlan"],
        "vxlan_gpe" => &["wire_vxlan_gpe"],
        _ => &[],
    }
}

/// What comes before a frame in the inputs of targets that read more than frames: the size of segments; and what the kernel says of a frame, nothing
/// and that it is TCP over IPv4 to be cut (`virtio_net_hdr`), without a tag.
const BEFORE_FRAMES: [(&str, &[u8]); 3] = [
    ("wire_segments", &[0, 200]),
    ("packet_socket_offload", &[0; 15]),
    (
        "packet_socket_offload",
        &[0, 0, 0, 0, 0, 1, 1, 54, 0, 200, 0, 34, 0, 16, 0],
    ),
];

/// Writes a seed of a target: what comes before the bytes of a packet, and these.
fn write_seed(corpora: &Path, target: &str, before: &[u8], bytes: &[u8]) -> io::Result<()> {
    let seed = [before, bytes].concat();
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    let directory = corpora.join(target);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(format!("{:016x}", hasher.finish())), seed)
}

fn write_seeds(capture: &Capture, corpora: &Path) -> io::Result<()> {
    for packet in capture.packets.iter().take(PACKETS) {
        for (target, before) in BEFORE_FRAMES {
            let frame = &packet[..packet.len().min(LENGTH)];
            write_seed(corpora, target, before, frame)?;
        }
        for (layer, bytes) in Layers::of(capture.link, packet).found {
            let bytes = &bytes[..bytes.len().min(LENGTH)];
            for target in targets(layer) {
                write_seed(corpora, target, &[], bytes)?;
            }
            if layer == "ethernet" && bytes.len() > 18 && bytes[12] == 0x81 {
                write_seed(corpora, "wire_vlan", &[], &bytes[14..18])?;
            }
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<_> = env::args_os().skip(1).map(PathBuf::from).collect();
    let (corpora, captures) = match &arguments[..] {
        [corpora] => (corpora, None),
        [corpora, captures] => (corpora, Some(captures)),
        _ => {
            eprintln!("usage: fuzz_seeds DIRECTORY_OF_CORPORA [DIRECTORY_OF_CAPTURES]");
            process::exit(2);
        }
    };
    let made = Capture {
        link: support::capture::ETHERNET,
        packets: generate::frames(&mut Numbers::from_seed(1), PACKETS),
    };
    write_seeds(&made, corpora)?;
    let Some(captures) = captures else {
        return Ok(());
    };
    for source in fs::read_dir(captures)? {
        for file in fs::read_dir(source?.path())? {
            let path = file?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "pcap")
            {
                write_seeds(&Capture::read(&path), corpora)?;
            }
        }
    }
    Ok(())
}
