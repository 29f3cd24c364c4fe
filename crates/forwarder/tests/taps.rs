//! A port on a tap carries TCP with all offloads of whoever is behind it, as of a virtual machine: unfilled checksums, and packets of many segments.
//!
//! Needs root (network namespaces); says so and passes where that is missing.

mod hosts;

use contracts::forwarder::port::Device;
use hosts::{Bench, ip, port, straight};
use nix::libc;
use nix::sched::{CloneFlags, setns};
use prost::Message;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

/// What the kernel says of a frame (`virtio_net_hdr`), and a frame of a network without large ones.
const DESCRIPTION: usize = 10;
const FRAME: usize = 1514;

/// A tap in a namespace, there as long as the file is open. Its other side takes frames of any size and without checksums.
fn tap(namespace: String, name: &'static str) -> File {
    let make = move || -> io::Result<File> {
        setns(
            File::open(format!("/run/netns/{namespace}"))?,
            CloneFlags::CLONE_NEWNET,
        )?;
        let tap = File::options()
            .read(true)
            .write(true)
            .open("/dev/net/tun")?;
        // `struct ifreq`: a name and flags.
        let mut request = [0u8; 40];
        request[..name.len()].copy_from_slice(name.as_bytes());
        let flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as u16;
        request[16..18].copy_from_slice(&flags.to_ne_bytes());
        let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        // SAFETY: the first takes a `struct ifreq`, of 40 bytes, the second a number.
        let done = unsafe {
            libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF as _, request.as_mut_ptr())
                | libc::ioctl(
                    tap.as_raw_fd(),
                    libc::TUNSETOFFLOAD as _,
                    libc::c_ulong::from(offloads),
                )
        };
        match done {
            0 => Ok(tap),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // A thread of its own: it stays in the namespace.
    thread::spawn(move || make().expect("a tap"))
        .join()
        .expect("a tap")
}

/// What has passed between two taps in one direction.
#[derive(Default)]
struct Passed {
    large: AtomicU64,
    unfilled: AtomicU64,
}

/// Carries frames from one tap to another with what the kernel says of them, as a hypervisor does, until one is gone.
fn carry(from: &File, to: &File) -> Arc<Passed> {
    let passed = Arc::new(Passed::default());
    let noted = Arc::clone(&passed);
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 17];
        while let Ok(length) = from.read(&mut bytes) {
            noted
                .large
                .fetch_add(u64::from(length > DESCRIPTION + FRAME), Relaxed);
            noted.unfilled.fetch_add(u64::from(bytes[0] & 1), Relaxed);
            // While the other side is down it takes none, which loses them as a cable does.
            let _ = to.write(&bytes[..length]);
        }
    });
    passed
}

#[test]
fn a_tap_carries_unfilled_checksums_and_large_packets_both_ways() {
    let Some(mut bench) = Bench::new("sbtap") else {
        return;
    };
    let (office, forwarder) = (bench.namespace("office"), bench.namespace("forwarder"));
    ip(&["netns", "add", &forwarder]);
    ip(&["netns", "add", &office]);
    bench.host("server", "203.0.113.2/24", "203.0.113.1");
    let (host, ours) = (
        tap(office.clone(), "eth0"),
        tap(forwarder.clone(), "office"),
    );
    let (sent, received) = (carry(&host, &ours), carry(&ours, &host));
    ip(&["-n", &forwarder, "link", "set", "office", "up"]);
    bench.address("office", "10.1.0.2/24", "10.1.0.1");
    let rules = straight(vec![
        port("office", Device::AfPacket("office".into())),
        port("server", Device::AfPacket("server".into())),
    ]);
    std::fs::write(bench.directory.join("rules"), rules.encode_to_vec()).unwrap();
    bench.start_forwarder();
    bench.start("server", "iperf3", &["-s"]);
    bench.wait_for_answers("through a tap");
    bench.transfers("16M", &[]);
    for (way, passed) in [("from", sent), ("to", received)] {
        let (large, unfilled) = (passed.large.load(Relaxed), passed.unfilled.load(Relaxed));
        assert!(
            large > 20 && unfilled > 20,
            "{way} the host: {large} large, {unfilled} without checksum"
        );
    }
}
