//! Opening and closing ports as rule sets name them.

use contracts::forwarder::{self as contract, port::Device};
use dpdk::{Pool, Port};
use packet_socket::{Socket, interface_index};
use std::collections::HashMap;
use wire::MacAddress;

/// Buffers in a port's rings.
const DESCRIPTORS: u16 = 512;

/// Where a worker receives and sends the packets of a port.
#[derive(Debug)]
pub enum Queue {
    /// A DPDK device.
    Device(dpdk::Queue),
    /// A Linux interface, through a packet socket that deals with its offloads.
    Socket(Socket),
}

impl Queue {
    /// Packets lost since the last call because the port's receive queue was full.
    pub fn overruns(&mut self) -> u64 {
        match self {
            Queue::Device(queue) => queue.overruns(),
            Queue::Socket(socket) => socket.overruns(),
        }
    }
}

/// The ports of a forwarder.
pub struct Ports {
    pool: Pool,
    open: HashMap<String, OpenPort>,
    /// Numbers the virtual devices, which DPDK wants named apart.
    opened: u64,
}

struct OpenPort {
    device: Device,
    /// What the system calls the interface now; another number is another interface.
    interface_index: Option<u32>,
    port: Option<Opened>,
    error: String,
}

/// An open port, as the control thread keeps it.
enum Opened {
    Device(Port),
    Socket(MacAddress),
}

impl Opened {
    fn mac(&self) -> MacAddress {
        match self {
            Opened::Device(port) => MacAddress(port.mac()),
            Opened::Socket(mac) => *mac,
        }
    }
}

/// What a change of ports comes to.
#[derive(Default)]
pub struct Change {
    /// Queues that were opened, by port name.
    pub opened: Vec<(String, Queue)>,
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
    /// No ports yet; they will receive into buffers of this pool.
    pub fn new(pool: Pool) -> Ports {
        Ports {
            pool,
            open: HashMap::new(),
            opened: 0,
        }
    }

    /// Opens what is listed and not open, and gives up what is open and not listed, or whose interface is another one
    /// now. A port that does not open stays listed as down; calling this again tries again.
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
                    Opened::Socket(_) => (name, None),
                }));
            }
        }
        for port in wanted {
            let Some(device) = &port.device else { continue };
            if self
                .open
                .get(&port.name)
                .is_none_or(|open| open.port.is_none())
            {
                let queue = self.open_one(&port.name, device);
                change
                    .opened
                    .extend(queue.map(|queue| (port.name.clone(), queue)));
            }
        }
        change
    }

    fn open_one(&mut self, name: &str, device: &Device) -> Option<Queue> {
        self.opened += 1;
        let (port, queue, error) = match self.open_device(device) {
            Ok((port, queue)) => (Some(port), Some(queue), String::new()),
            Err(error) => (None, None, error),
        };
        let open = OpenPort {
            device: device.clone(),
            interface_index: index(device),
            port,
            error,
        };
        self.open.insert(name.to_string(), open);
        queue
    }

    fn open_device(&self, device: &Device) -> Result<(Opened, Queue), String> {
        if let Device::AfPacket(interface) = device {
            let socket = Socket::open(interface).map_err(|error| error.to_string())?;
            let mac = socket.interface().mac;
            return Ok((Opened::Socket(mac), Queue::Socket(socket)));
        }
        let (port, mut queues) =
            Port::open(&devargs(device, self.opened), &self.pool, 1, DESCRIPTORS)
                .map_err(|error| error.to_string())?;
        let queue = queues.pop().ok_or("the device has no queue")?;
        Ok((Opened::Device(port), Queue::Device(queue)))
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

    /// Whether a port is open, and why not.
    pub fn state(&self, name: &str) -> (bool, String) {
        match self.open.get(name) {
            Some(open) => (open.port.is_some(), open.error.clone()),
            None => (false, "not in the rules".to_string()),
        }
    }

    /// Whether some listed port is down, or its interface is another one now.
    pub fn need_attention(&self) -> bool {
        self.open
            .values()
            .any(|open| open.port.is_none() || index(&open.device) != open.interface_index)
    }
}

impl OpenPort {
    fn is_still(&self, device: Option<&Device>) -> bool {
        device == Some(&self.device) && index(&self.device) == self.interface_index
    }
}

fn interface(device: &Device) -> Option<&str> {
    match device {
        Device::AfPacket(interface) | Device::AfXdp(interface) => Some(interface),
        Device::Devargs(_) | Device::VhostUser(_) => None,
    }
}

fn index(device: &Device) -> Option<u32> {
    interface_index(interface(device)?)
}

fn devargs(device: &Device, number: u64) -> String {
    match device {
        Device::AfPacket(interface) => format!("net_af_packet{number},iface={interface}"),
        Device::AfXdp(interface) => format!("net_af_xdp{number},iface={interface}"),
        Device::VhostUser(path) => format!("net_vhost{number},iface={path},client=1"),
        Device::Devargs(devargs) => devargs.clone(),
    }
}
