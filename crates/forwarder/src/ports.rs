//! Opening and closing ports as rule sets name them, and dealing their queues out to workers.
//!
//! A packet socket can have a sibling for each worker, and a device that spreads packets by itself a queue; any other device
//! has one queue, which belongs to one worker, a different one for each port in turn.

use crate::dealing;
use crate::dealing::card::{self, Arriving, Means};
use crate::handover::PortWorkers;
use crate::home::Homes;
use crate::native;
use crate::rules::{Rules, Underlay};
use contracts::forwarder::{self as contract, port::Device};
use dpdk::{Mbuf, Pool, Port};
use packet_socket::{Dealer, Socket, interface_index};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};
use wire::MacAddress;

/// Buffers in a port's rings.
const DESCRIPTORS: u16 = 512;

/// Drivers that receive what the kernel sends or passes on, and do not say where it leaves checksums to the device.
const CHECKSUMS_UNSAID: [&str; 3] = ["net_af_xdp", "net_af_packet", "net_pcap"];

/// Buffers that DPDK's AF_XDP takes for a ring of the kernel's when it opens.
const AF_XDP_BUFFERS: u32 = 2_048;

/// For so long a device that does not open is tried whenever there is an occasion...
const PATIENCE: Duration = Duration::from_secs(10);
/// ...and this often at least after that.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Where a worker receives and sends the packets of a port.
#[derive(Debug)]
pub enum Queue {
    /// A DPDK device.
    Device(dpdk::Queue),
    /// A Linux interface through a driver of DPDK that does not say where checksums are left to the device, as veth's are.
    ChecksumsUnsaid(dpdk::Queue),
    /// A Linux interface, through a packet socket that deals with its offloads.
    Socket(SocketQueue),
    /// An end of functions in this process.
    Native(native::End<Mbuf>),
}

/// A packet socket, and what it is expected to receive.
#[derive(Debug)]
pub struct SocketQueue {
    pub(crate) socket: Socket,
    /// Whether there were short frames alone, and many of them, when there last was something.
    pub(crate) is_short: bool,
}

impl SocketQueue {
    fn new(socket: Socket) -> SocketQueue {
        SocketQueue {
            socket,
            is_short: false,
        }
    }
}

impl Queue {
    /// Packets lost since the last call because the port's receive queue was full.
    pub fn overruns(&mut self) -> u64 {
        match self {
            Queue::Device(queue) | Queue::ChecksumsUnsaid(queue) => queue.overruns(),
            Queue::Socket(queue) => queue.socket.overruns(),
            Queue::Native(_) => 0,
        }
    }

    /// Frames lost since the last call because no buffer can hold them; those that a packet socket counts itself left out.
    pub fn too_long(&mut self) -> u64 {
        match self {
            Queue::Device(queue) | Queue::ChecksumsUnsaid(queue) => queue.too_long(),
            Queue::Socket(_) | Queue::Native(_) => 0,
        }
    }
}

/// The ports of a forwarder.
pub struct Ports {
    /// Of each worker.
    pools: Vec<Pool>,
    open: HashMap<String, OpenPort>,
    /// Numbers that ports have for ever, by name.
    numbers: HashMap<String, u32>,
    /// Numbers the virtual devices, which DPDK wants named apart.
    opened: u64,
}

/// What a port's packets are dealt out by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dealt {
    homes: Homes,
    /// Whether tunnels end there.
    has_tunnels: bool,
    /// What a card there receives.
    arriving: Arriving,
}

struct OpenPort {
    device: Device,
    /// What the system calls the interface now; another number is another interface.
    interface_index: Option<u32>,
    port: Option<Opened>,
    /// Workers that have a queue of it.
    workers: Vec<usize>,
    dealt: Option<Dealt>,
    error: String,
    trial: Trial,
}

/// When a device was tried that may not have opened.
#[derive(Clone, Copy)]
struct Trial {
    /// The first time.
    since: Instant,
    /// The last time.
    last: Instant,
}

impl Trial {
    /// A device that is tried now, after some trials or none.
    fn next(before: Option<Trial>) -> Trial {
        let last = Instant::now();
        let since = before.map_or(last, |before| before.since);
        Trial { since, last }
    }

    /// Whether it is time: always in the beginning, then after as long a time as it has been tried for. DPDK writes some lines of its
    /// own each time.
    fn is_due(&self) -> bool {
        let tried_for = self.last - self.since;
        tried_for < PATIENCE || self.last.elapsed() >= tried_for.min(LONGEST_WAIT)
    }
}

/// An open port, as the control thread keeps it.
enum Opened {
    Device(Port),
    /// Nothing deals packets out to a worker alone.
    Socket(MacAddress, Option<Dealer>),
    Native(MacAddress),
}

impl Opened {
    fn mac(&self) -> MacAddress {
        match self {
            Opened::Device(port) => MacAddress(port.mac()),
            Opened::Socket(mac, _) | Opened::Native(mac) => *mac,
        }
    }
}

/// What a change of ports comes to.
#[derive(Default)]
pub struct Change {
    /// Queues that were opened, by port name, and the workers that get them.
    pub opened: Vec<(String, usize, Queue)>,
    /// Ports whose queues must come back, and the devices to close then.
    pub closing: Vec<(String, Option<Port>)>,
}

impl Change {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.opened.is_empty() && self.closing.is_empty()
    }
}

impl Ports {
    /// No ports yet; each worker will receive into buffers of its own pool.
    pub fn new(pools: Vec<Pool>) -> Ports {
        Ports {
            pools,
            open: HashMap::new(),
            numbers: HashMap::new(),
            opened: 0,
        }
    }

    /// Opens what is listed and not open, and gives up what is open and not listed, or whose interface is another one
    /// now. A port that does not open stays listed as down; calling this again tries again once it is due.
    pub fn follow(&mut self, wanted: &[contract::Port]) -> Change {
        let mut change = Change::default();
        let names: Vec<String> = self.open.keys().cloned().collect();
        for name in names {
            let keep = wanted
                .iter()
                .any(|port| port.name == name && self.open[&name].is_still(port.device.as_ref()));
            if !keep && let Some(old) = self.open.remove(&name) {
                change.closing.extend(old.port.map(|port| match port {
                    Opened::Device(port) => (name, Some(port)),
                    Opened::Socket(..) | Opened::Native(_) => (name, None),
                }));
            }
        }
        for port in wanted {
            let Some(device) = &port.device else { continue };
            if self.open.get(&port.name).is_none_or(OpenPort::may_open) {
                let opened = self.open_one(&port.name, device);
                change.opened.extend(opened);
            }
        }
        change
    }

    fn open_one(&mut self, name: &str, device: &Device) -> Vec<(String, usize, Queue)> {
        self.opened += 1;
        let before = self.open.get(name).map(|open| open.trial);
        // Before it is opened: one that comes, or is replaced, meanwhile is noticed then.
        let interface_index = index(device);
        let (port, queues, error) = match self.open_device(device, interface_index) {
            Ok((port, queues)) => (Some(port), queues, String::new()),
            Err(error) => (None, Vec::new(), error),
        };
        let workers = match queues.len() {
            1 => vec![self.next_alone()],
            count => (0..count).collect(),
        };
        let open = OpenPort {
            device: device.clone(),
            interface_index,
            port,
            workers: workers.clone(),
            dealt: None,
            error,
            trial: Trial::next(before),
        };
        self.open.insert(name.to_string(), open);
        let dealt = workers.into_iter().zip(queues);
        dealt
            .map(|(worker, queue)| (name.to_string(), worker, queue))
            .collect()
    }

    /// The worker that gets a port which has just one queue: another one for each.
    fn next_alone(&self) -> usize {
        self.opened as usize % self.pools.len()
    }

    fn open_device(
        &self,
        device: &Device,
        interface_index: Option<u32>,
    ) -> Result<(Opened, Vec<Queue>), String> {
        check(device, interface_index)?;
        let alone = self.next_alone();
        if matches!(device, Device::AfXdp(_)) {
            check_af_xdp_buffers(self.pools[alone].common())?;
        }
        let devargs = match device {
            Device::AfXdp(interface) => format!("net_af_xdp{},iface={interface}", self.opened),
            Device::VhostUser(path) => format!("net_vhost{},iface={path},client=1", self.opened),
            Device::Devargs(devargs) => devargs.clone(),
            Device::Native(_) => {
                let queues = self
                    .pools
                    .iter()
                    .map(|_| Queue::Native(native::End::default()));
                return Ok((Opened::Native(native_mac(self.opened)), queues.collect()));
            }
            Device::AfPacket(interface) => return self.open_sockets(interface),
        };
        let (port, queues) =
            Port::open_spread(&devargs, &self.pools, alone, DESCRIPTORS).map_err(|error| {
                match error.is_absent() {
                    true => format!("{error}{}", hint(device)),
                    false => error.to_string(),
                }
            })?;
        let kind = match CHECKSUMS_UNSAID.contains(&port.driver()) {
            true => Queue::ChecksumsUnsaid,
            false => Queue::Device,
        };
        let queues = queues.into_iter().map(kind).collect();
        Ok((Opened::Device(port), queues))
    }

    fn open_sockets(&self, interface: &str) -> Result<(Opened, Vec<Queue>), String> {
        let opened = match self.pools.len() {
            1 => Socket::open(interface).map(|socket| (vec![socket], None)),
            several => {
                Socket::open_group(interface, several).map(|(group, dealer)| (group, Some(dealer)))
            }
        };
        let (sockets, dealer) = opened.map_err(|error| error.to_string())?;
        let mac = sockets.first().map(|socket| socket.interface().mac);
        let queues = sockets
            .into_iter()
            .map(|socket| Queue::Socket(SocketQueue::new(socket)))
            .collect();
        Ok((Opened::Socket(mac.unwrap_or_default(), dealer), queues))
    }

    /// Has the ports deal packets out so that they arrive at their homes, as far as each can.
    pub fn deal(&mut self, homes: &Homes, rules: &Rules) {
        for (index, port) in rules.ports.iter().enumerate() {
            let underlay = rules.underlay.as_ref();
            let underlay = underlay.filter(|underlay| underlay.port == index);
            let has_others = port.has_attachments || !port.edges.is_empty();
            let arriving = match underlay.map(Underlay::families) {
                // From others nothing may be known of the source port: a server's is always the same.
                Some([v4, v6]) if !has_others => Arriving::Tunnels { v4, v6 },
                _ => Arriving::Anything,
            };
            let Some(open) = self.open.get_mut(&port.name) else {
                continue;
            };
            let wanted = Dealt {
                homes: *homes,
                has_tunnels: underlay.is_some(),
                arriving,
            };
            if open.workers.len() < 2 || open.dealt == Some(wanted) {
                continue;
            }
            let before = open.dealt.replace(wanted);
            if let Err(problem) = open.deal(&wanted, before) {
                eprintln!(
                    "switchboard-forwarder: port {:?}: workers hand its packets over, as it does not deal them out: {problem}",
                    port.name
                );
            }
        }
    }

    /// Who has a queue of each listed port.
    pub fn workers(&mut self, wanted: &[contract::Port]) -> Vec<PortWorkers> {
        let mut all = Vec::with_capacity(wanted.len());
        for port in wanted {
            let next = self.numbers.len() as u32;
            let number = *self.numbers.entry(port.name.clone()).or_insert(next);
            let open = self.open.get(&port.name);
            all.push(PortWorkers {
                number,
                workers: open.map(|open| open.workers.clone()).unwrap_or_default(),
            });
        }
        all
    }

    /// Ethernet addresses of the listed ports; zero for those that are down.
    pub fn macs(&self, wanted: &[contract::Port]) -> Vec<MacAddress> {
        let mac = |port: &contract::Port| {
            let open = self.open.get(&port.name)?.port.as_ref()?;
            Some(open.mac())
        };
        wanted
            .iter()
            .map(|port| mac(port).unwrap_or_default())
            .collect()
    }

    /// Whether packets pass a port, and why not. Of interfaces that the kernel has, it tells the carrier itself.
    pub fn state(&self, name: &str) -> (bool, String) {
        let Some(open) = self.open.get(name) else {
            return (false, "not in the rules".to_string());
        };
        match (&open.device, &open.port) {
            (Device::Devargs(_), Some(Opened::Device(port))) if !port.has_carrier() => {
                (false, "no carrier".to_string())
            }
            (_, port) => (port.is_some(), open.error.clone()),
        }
    }

    /// Whether some listed port is down and to be tried, or its interface is another one now.
    pub fn need_attention(&self) -> bool {
        self.open
            .values()
            .any(|open| open.may_open() || index(&open.device) != open.interface_index)
    }
}

impl OpenPort {
    /// Whether it is not open, and to be tried.
    fn may_open(&self) -> bool {
        self.port.is_none() && self.trial.is_due()
    }

    fn deal(&self, wanted: &Dealt, before: Option<Dealt>) -> Result<(), String> {
        match &self.port {
            Some(Opened::Socket(_, Some(dealer))) => {
                let program = dealing::program(&wanted.homes, wanted.has_tunnels);
                dealer.deal_by(&program).map_err(|error| error.to_string())
            }
            Some(Opened::Device(port)) => {
                let before = before.map_or(Arriving::Anything, |before| before.arriving);
                if (wanted.arriving, before) == (Arriving::Anything, Arriving::Anything) {
                    // It was opened so.
                    return Ok(());
                }
                let means = port.spreading().map(|spreading| Means {
                    key_length: spreading.key_length,
                    entries: spreading.entries,
                    udp_v4: spreading.udp_v4,
                    udp_v6: spreading.udp_v6,
                });
                let deal =
                    means.and_then(|means| card::deal(&wanted.homes, wanted.arriving, means));
                let deal = deal.ok_or("its hash cannot be made the outer UDP source port")?;
                // It may have fewer queues than there are workers.
                let queue = |worker: &u16| worker % self.workers.len() as u16;
                let queues: Vec<u16> = deal.workers.iter().map(queue).collect();
                port.spread_by(deal.key, &queues)
                    .map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }

    fn is_still(&self, device: Option<&Device>) -> bool {
        device == Some(&self.device) && index(&self.device) == self.interface_index
    }
}

fn interface(device: &Device) -> Option<&str> {
    match device {
        Device::AfPacket(interface) | Device::AfXdp(interface) => Some(interface),
        Device::Devargs(_) | Device::VhostUser(_) | Device::Native(_) => None,
    }
}

fn index(device: &Device) -> Option<u32> {
    interface_index(interface(device)?)
}

/// Sees whether there is what a device is to be opened on, so far as that can be told.
fn check(device: &Device, interface_index: Option<u32>) -> Result<(), String> {
    match device {
        Device::AfPacket(interface) if interface_index.is_none() => {
            Err(no_interface("af_packet", interface))
        }
        Device::AfXdp(interface) if interface_index.is_none() => {
            Err(no_interface("af_xdp", interface))
        }
        // Where there is nothing yet, DPDK connects as soon as there is.
        Device::VhostUser(path)
            if fs::metadata(path).is_ok_and(|file| !file.file_type().is_socket()) =>
        {
            Err(format!(
                "vhost_user: {path:?} is no socket; give the path of the one on which the hypervisor listens"
            ))
        }
        _ => Ok(()),
    }
}

fn check_af_xdp_buffers(available: u32) -> Result<(), String> {
    match available > AF_XDP_BUFFERS {
        true => Ok(()),
        false => Err(format!(
            "af_xdp: it takes {AF_XDP_BUFFERS} packet buffers, and its worker has {available} left; give the forwarder more (--buffers, and --memory-mb or huge pages for them)"
        )),
    }
}

fn no_interface(field: &str, interface: &str) -> String {
    format!(
        "{field}: no such interface: {interface:?}; the port opens as soon as there is one in the forwarder's network namespace"
    )
}

/// What to give, where there is no such device.
fn hint(device: &Device) -> &'static str {
    let Device::Devargs(devargs) = device else {
        return "";
    };
    let name = devargs.split(',').next().unwrap_or_default();
    let is_card = name.contains(':') && name.contains('.');
    if is_card {
        "; a network card is named in full, as 0000:03:00.0, and needs a forwarder with --huge-pages and a driver for user space (dpdk-devbind.py --bind=vfio-pci)"
    } else {
        "; give devargs as of DPDK's --vdev, a driver's name with a number and its arguments, such as \"net_tap0,iface=tap0\""
    }
}

/// A locally administered Ethernet address, its own for each port.
fn native_mac(number: u64) -> MacAddress {
    let [.., a, b, c, d] = number.to_be_bytes();
    MacAddress([2, 0, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_of_network_cards_is_said_what_they_need() {
        let hint = |devargs: &str| hint(&Device::Devargs(devargs.into()));
        for card in ["0000:03:00.0", "03:00.1,mode=fast", "pci:0000:03:00.0"] {
            assert!(hint(card).contains("--huge-pages"), "{card}");
        }
        for other in ["net_tap0,iface=a:b.c", "net_memif0,socket=/run/a.sock"] {
            assert!(!hint(other).contains("--huge-pages"), "{other}");
        }
    }

    #[test]
    fn a_device_that_does_not_open_is_tried_often_at_first_and_then_after_as_long_a_time_again() {
        let now = Instant::now();
        let is_due = |tried_for: u64, ago: u64| {
            let [since, last] =
                [tried_for + ago, ago].map(|seconds| now - Duration::from_secs(seconds));
            Trial { since, last }.is_due()
        };
        assert!(is_due(0, 0) && is_due(9, 0));
        assert!(!is_due(20, 10) && is_due(20, 21));
        assert!(!is_due(10_000, 50) && is_due(10_000, 61));
    }
}
