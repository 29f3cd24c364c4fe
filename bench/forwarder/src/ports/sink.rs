//! A port that drops what is sent by it at no cost, and says who the tunnel's peer is: what a measured program has towards the wide area, so
//! that no other processor has to take its packets.

use crate::peers::run;
use crate::rules;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, sendto, socket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use wire::MacAddress;

/// The address that DPDK's driver gives its first port in a process.
const MAC: MacAddress = MacAddress([0x02, 0x70, 0x63, 0x61, 0x70, 0x00]);
/// Between two answers; it need not be asked for them.
const PAUSE: Duration = Duration::from_millis(20);

/// A pair of interfaces; the program reads one of them, and the other says the peer's address.
#[derive(Debug)]
pub struct Sink {
    name: String,
    ends: Arc<AtomicBool>,
    speaker: Option<JoinHandle<()>>,
}

impl Sink {
    /// Makes one, in the benchmark's own network namespace.
    pub fn new(name: &str) -> Result<Sink, String> {
        let other = format!("{name}0");
        run(
            "ip",
            &["link", "add", name, "type", "veth", "peer", "name", &other],
        )?;
        for one in [name, &other] {
            run("ip", &["link", "set", one, "up"])?;
        }
        let failed = |error: nix::Error| format!("{other}: {error}");
        let socket = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::empty(),
            None,
        );
        let socket = socket.map_err(failed)?;
        let to: LinkAddr = getifaddrs()
            .map_err(failed)?
            .filter(|one| one.interface_name == other)
            .find_map(|one| one.address.as_ref()?.as_link_addr().copied())
            .ok_or_else(|| format!("{other} has no address"))?;
        let ends = Arc::new(AtomicBool::new(false));
        let over = ends.clone();
        let speaker = std::thread::spawn(move || {
            let answer = rules::answer(MAC);
            while !over.load(Relaxed) {
                // Whoever does not hear it says that nothing comes through.
                let _ = sendto(socket.as_raw_fd(), &answer, &to, MsgFlags::empty());
                std::thread::sleep(PAUSE);
            }
        });
        Ok(Sink {
            name: name.into(),
            ends,
            speaker: Some(speaker),
        })
    }

    /// How DPDK opens it.
    pub fn devargs(&self) -> String {
        format!("net_pcap0,rx_iface={}", self.name)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        // It ends at its next look; the interfaces end with the namespace.
        let _ = self.speaker.take().map(JoinHandle::join);
    }
}
