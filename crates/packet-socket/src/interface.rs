//! What the kernel says about an interface.

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use wire::MacAddress;

/// An interface of this network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number for it; another interface of the same name has another.
    pub index: u32,
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// Largest IP packet it takes, in bytes.
    pub mtu: u32,
}

/// The kernel's number of an interface; nothing when there is none of that name.
pub fn interface_index(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: `name` is a terminated string that outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => None,
        index => Some(index),
    }
}

impl Interface {
    /// Asks the kernel about the interface of a name, through any socket.
    pub(crate) fn query(socket: BorrowedFd<'_>, name: &str) -> io::Result<Interface> {
        let index =
            interface_index(name).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let hardware = ask(socket, name, libc::SIOCGIFHWADDR)?;
        let mtu = ask(socket, name, libc::SIOCGIFMTU)?;
        // SAFETY: the kernel filled in the member that each request is about.
        let (data, mtu) = unsafe { (hardware.ifr_ifru.ifru_hwaddr.sa_data, mtu.ifr_ifru.ifru_mtu) };
        Ok(Interface {
            index,
            mac: MacAddress(std::array::from_fn(|i| data[i] as u8)),
            mtu: u32::try_from(mtu).unwrap_or(0),
        })
    }
}

fn ask(socket: BorrowedFd<'_>, name: &str, request: libc::c_ulong) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros is a valid ifreq.
    let mut query: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= query.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (to, from) in query.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request reads the name and writes its answer into `query`.
    match unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw mut query) } {
        0 => Ok(query),
        _ => Err(io::Error::last_os_error()),
    }
}
