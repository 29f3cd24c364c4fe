//! Ports: devices that receive and send.

use crate::mbuf::{Mbuf, Pool, RawMbuf};
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::ptr::{self, NonNull};

/// Buffers that a device is asked for, or given, in one call at most.
const BURST_LIMIT: usize = 64;
/// Packets that [`Queue::receive`] receives at most.
pub const RECEIVE_LIMIT: usize = 4 * BURST_LIMIT;

/// Linux's numbers of errors.
const EFAULT: i32 = 14;
const ENODEV: i32 = 19;

unsafe extern "C" {
    fn sb_port_open(
        devargs: *const c_char,
        pools: *const Pool,
        alone: u16,
        spreading: c_int,
        queues: *mut u16,
        descriptors: u16,
        port: *mut u16,
    ) -> c_int;
    fn sb_port_close(port: u16) -> c_int;
    fn sb_port_spreading(port: u16, key_length: *mut u16, entries: *mut u16, udp: *mut u8)
    -> c_int;
    fn sb_port_spread_by(port: u16, key: *mut u8, queues: *const u16) -> c_int;
    fn sb_port_missed(port: u16) -> u64;
    fn sb_port_carrier(port: u16) -> c_int;
    fn sb_port_mac(port: u16, mac: *mut u8) -> c_int;
    fn sb_port_driver(port: u16) -> *const c_char;
    fn sb_receive(port: u16, queue: u16, mbufs: *mut *mut RawMbuf, count: u16) -> u16;
    fn sb_send(port: u16, queue: u16, mbufs: *mut *mut RawMbuf, count: u16) -> u16;
}

/// An open device.
#[derive(Debug)]
pub struct Port {
    number: u16,
    mac: [u8; 6],
}

/// How a device spreads packets over its queues (receive side scaling).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spreading {
    /// Bytes of its hash's key.
    pub key_length: usize,
    /// Entries of its indirection table, which the lowest bits of the hash choose from.
    pub entries: usize,
    /// Whether it reads UDP's ports over IPv4.
    pub udp_v4: bool,
    /// The same over IPv6.
    pub udp_v6: bool,
}

/// Why a port did not open, or does not do as it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortError {
    /// The device's arguments.
    pub devargs: String,
    /// The system's error number.
    pub number: i32,
}

impl PortError {
    /// Whether there is no such device: buses say so of one that none of their drivers knows.
    pub fn is_absent(&self) -> bool {
        matches!(self.number, EFAULT | ENODEV)
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "device {:?} did not open: ", self.devargs)?;
        match self.is_absent() {
            true => write!(out, "no such device, or no driver for it"),
            false => write!(out, "{}", std::io::Error::from_raw_os_error(self.number)),
        }
    }
}

impl std::error::Error for PortError {}

impl Port {
    /// Probes a device by its devargs and starts it with a pair of queues for each of the pools, whose buffers are of one size, and
    /// rings of about `descriptors` buffers each.
    ///
    /// # Errors
    /// There is no such device, it cannot be configured, or there is no pool.
    pub fn open(
        devargs: &str,
        pools: &[Pool],
        descriptors: u16,
    ) -> Result<(Port, Vec<Queue>), PortError> {
        Port::open_as(devargs, pools, 0, false, descriptors)
    }

    /// The same with a pair of queues for each of the first pools, at least one: just one, unless the device can spread packets over several by their
    /// addresses and ports, both directions of a connection to the same (symmetric receive side scaling, of the outer headers). A queue that is
    /// the only one receives into the pool with the number `alone`.
    ///
    /// # Errors
    /// As for [`Port::open`], or there are not so many pools as `alone` says.
    pub fn open_spread(
        devargs: &str,
        pools: &[Pool],
        alone: usize,
        descriptors: u16,
    ) -> Result<(Port, Vec<Queue>), PortError> {
        Port::open_as(devargs, pools, alone, true, descriptors)
    }

    fn open_as(
        devargs: &str,
        pools: &[Pool],
        alone: usize,
        spreading: bool,
        descriptors: u16,
    ) -> Result<(Port, Vec<Queue>), PortError> {
        let failed = |number| PortError {
            devargs: devargs.to_string(),
            number,
        };
        let arguments = CString::new(devargs).map_err(|_| failed(22))?;
        let (mut number, mut queues) = (0, pools.len() as u16);
        if alone >= pools.len() || pools.len() > usize::from(u16::MAX) {
            return Err(failed(22));
        }
        // SAFETY: the string, the pools and the numbers outlive the call; there are as many pools as queues at most; no pool is ever freed.
        let result = unsafe {
            sb_port_open(
                arguments.as_ptr(),
                pools.as_ptr(),
                alone as u16,
                spreading.into(),
                &raw mut queues,
                descriptors,
                &raw mut number,
            )
        };
        if result != 0 {
            return Err(failed(-result));
        }
        let mut mac = [0; 6];
        // SAFETY: `mac` has the six bytes that are written.
        unsafe { sb_port_mac(number, mac.as_mut_ptr()) };
        let queues = (0..queues)
            .map(|queue| Queue {
                port: number,
                queue,
                missed: 0,
                too_long: 0,
            })
            .collect();
        Ok((Port { number, mac }, queues))
    }

    /// The device's Ethernet address.
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// The name of the device's driver, such as `net_tap`; empty where it has none.
    pub fn driver(&self) -> &str {
        // SAFETY: the port is open.
        let name = unsafe { sb_port_driver(self.number) };
        if name.is_null() {
            return "";
        }
        // SAFETY: a C string that the driver never changes.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_str().unwrap_or_default()
    }

    /// How a device of several queues spreads packets; nothing where it cannot be told to do it otherwise.
    pub fn spreading(&self) -> Option<Spreading> {
        let (mut key_length, mut entries, mut udp) = (0, 0, 0);
        let numbers = (&raw mut key_length, &raw mut entries, &raw mut udp);
        // SAFETY: the port is open, and all numbers outlive the call.
        let result = unsafe { sb_port_spreading(self.number, numbers.0, numbers.1, numbers.2) };
        (result == 0).then(|| Spreading {
            key_length: key_length.into(),
            entries: entries.into(),
            udp_v4: udp & 1 != 0,
            udp_v6: udp & 2 != 0,
        })
    }

    /// Has the device spread packets by a Toeplitz hash of their outer addresses and ports with a key, to the queues that a table names by the
    /// lowest bits of the hash; both as long as [`Port::spreading`] says.
    ///
    /// # Errors
    /// They are of other lengths, or the device refuses; it may have the table then, and the old key.
    pub fn spread_by(&self, mut key: Vec<u8>, queues: &[u16]) -> Result<(), PortError> {
        let failed = |number| PortError {
            devargs: format!("port {}", self.number),
            number,
        };
        let lengths = |spreading: Spreading| (spreading.key_length, spreading.entries);
        if self.spreading().map(lengths) != Some((key.len(), queues.len())) {
            return Err(failed(22));
        }
        // SAFETY: the port is open, and key and table are as long as the device's.
        match unsafe { sb_port_spread_by(self.number, key.as_mut_ptr(), queues.as_ptr()) } {
            0 => Ok(()),
            result => Err(failed(-result)),
        }
    }

    /// Whether the device has a link, such as a cable with somebody at its other end; true where it cannot tell.
    pub fn has_carrier(&self) -> bool {
        // SAFETY: the port is open.
        unsafe { sb_port_carrier(self.number) != 0 }
    }

    /// Closes the device. Its queues, which must all be given back, are of no use afterwards.
    ///
    /// # Errors
    /// The device refuses.
    pub fn close(self, queues: Vec<Queue>) -> Result<(), PortError> {
        drop(queues);
        // SAFETY: the port is open, and no queue of it is in use.
        match unsafe { sb_port_close(self.number) } {
            0 => Ok(()),
            result => Err(PortError {
                devargs: format!("port {}", self.number),
                number: -result,
            }),
        }
    }
}

/// A receive and a send queue of a port; one thread uses it.
#[derive(Debug)]
pub struct Queue {
    port: u16,
    queue: u16,
    /// What the device had missed at the last look.
    missed: u64,
    /// Frames of several buffers received since the last look that do not fit one.
    too_long: u64,
}

impl Queue {
    /// Packets that the device has dropped since the last call because its ring was full; a port's first queue says so for
    /// all of them.
    pub fn overruns(&mut self) -> u64 {
        if self.queue != 0 {
            return 0;
        }
        // SAFETY: the port is open as long as its queues are.
        let missed = unsafe { sb_port_missed(self.port) };
        let before = std::mem::replace(&mut self.missed, missed);
        missed.saturating_sub(before)
    }

    /// Frames received since the last call that lay in several buffers and do not fit one: they are gone.
    pub fn too_long(&mut self) -> u64 {
        std::mem::take(&mut self.too_long)
    }

    /// Receives what has arrived behind what is in `packets`, up to [`RECEIVE_LIMIT`]; returns how many packets it was.
    #[inline]
    pub fn receive(&mut self, packets: &mut Vec<Mbuf>) -> usize {
        let mut total = 0;
        loop {
            let count = self.receive_burst(packets);
            total += count;
            // A device that gives less than it was asked for has no more.
            if count < BURST_LIMIT || total + BURST_LIMIT > RECEIVE_LIMIT {
                return total;
            }
        }
    }

    #[inline]
    fn receive_burst(&mut self, packets: &mut Vec<Mbuf>) -> usize {
        let mut raw = [ptr::null_mut::<RawMbuf>(); BURST_LIMIT];
        // SAFETY: `raw` has room for the count given; the port is open as long as its queues are.
        let count =
            unsafe { sb_receive(self.port, self.queue, raw.as_mut_ptr(), BURST_LIMIT as u16) };
        for &mbuf in &raw[..usize::from(count)] {
            // SAFETY: DPDK hands over valid mbufs that nobody else holds.
            match NonNull::new(mbuf).and_then(|mbuf| unsafe { Mbuf::from_raw(mbuf) }) {
                Some(packet) => packets.push(packet),
                None => self.too_long += 1,
            }
        }
        usize::from(count)
    }

    /// Sends packets and empties `packets`; returns how many the device took. The others are dropped.
    #[inline]
    pub fn send(&mut self, packets: &mut Vec<Mbuf>) -> usize {
        let mut sent = 0;
        let mut raw = [ptr::null_mut::<RawMbuf>(); BURST_LIMIT];
        while !packets.is_empty() {
            let count = packets.len().min(BURST_LIMIT);
            for (slot, mut mbuf) in raw.iter_mut().zip(packets.drain(..count)) {
                mbuf.clear_flags();
                *slot = mbuf.into_raw();
            }
            // SAFETY: `raw` holds `count` valid mbufs that are ours; the device takes over the first `taken`.
            let taken = unsafe { sb_send(self.port, self.queue, raw.as_mut_ptr(), count as u16) };
            sent += usize::from(taken);
            for &mbuf in &raw[usize::from(taken)..count] {
                // SAFETY: the device did not take these; they are ours and valid.
                drop(NonNull::new(mbuf).and_then(|mbuf| unsafe { Mbuf::from_raw(mbuf) }));
            }
        }
        sent
    }
}
