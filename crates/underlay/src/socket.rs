//! Packet sockets: the only unsafe code of this crate, all of it system calls on buffers
//! that outlive the call.

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Frames read or written in one system call.
const BATCH: usize = 64;
/// Largest frame read.
const FRAME_SIZE: usize = 9_216 + 64;
const SOCKET_BUFFER: libc::c_int = 16 << 20;

/// A socket that sends and receives every frame of one interface.
#[derive(Debug)]
pub struct PacketSocket {
    descriptor: OwnedFd,
    buffers: Vec<u8>,
    /// Frames the kernel did not take.
    pub send_failures: u64,
    overruns: u64,
}

impl PacketSocket {
    /// Opens an interface of this network namespace.
    ///
    /// # Errors
    /// The system's, for example when the interface does not exist or rights are missing.
    pub fn open(interface: &str) -> io::Result<PacketSocket> {
        let name = CString::new(interface).map_err(io::Error::other)?;
        // SAFETY: `name` is a terminated string that outlives the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: no memory is passed.
        let raw = check(unsafe {
            libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
                0,
            )
        })?;
        // SAFETY: `raw` was just opened and is owned by nobody else.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        let socket = PacketSocket {
            descriptor,
            buffers: vec![0; BATCH * FRAME_SIZE],
            send_failures: 0,
            overruns: 0,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        socket.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, SOCKET_BUFFER)?;
        socket.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BUFFER)?;
        socket.join_promiscuous(index)?;
        // SAFETY: sockaddr_ll is plain data for which zeroes are valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        // SAFETY: `address` outlives the call and its size is given.
        check(unsafe {
            libc::bind(
                raw,
                (&raw const address).cast(),
                mem::size_of_val(&address) as u32,
            )
        })?;
        Ok(socket)
    }

    fn set(&self, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: `value` outlives the call and its size is given.
        check(unsafe {
            libc::setsockopt(
                self.descriptor.as_raw_fd(),
                level,
                option,
                (&raw const value).cast(),
                mem::size_of_val(&value) as u32,
            )
        })
        .map(drop)
    }

    fn join_promiscuous(&self, index: u32) -> io::Result<()> {
        // SAFETY: packet_mreq is plain data for which zeroes are valid.
        let mut membership: libc::packet_mreq = unsafe { mem::zeroed() };
        membership.mr_ifindex = index as i32;
        membership.mr_type = libc::PACKET_MR_PROMISC as u16;
        // SAFETY: `membership` outlives the call and its size is given.
        check(unsafe {
            libc::setsockopt(
                self.descriptor.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                (&raw const membership).cast(),
                mem::size_of_val(&membership) as u32,
            )
        })
        .map(drop)
    }

    /// Frames that the kernel has dropped because the socket's queue was full.
    pub fn overruns(&mut self) -> u64 {
        self.overruns += packet_socket::take_overruns(self.descriptor.as_fd());
        self.overruns
    }

    /// Hands up to a batch of waiting frames to `receive`; returns their number.
    ///
    /// # Errors
    /// The system's; no waiting frame is no error.
    pub fn receive(&mut self, mut receive: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut vectors = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; BATCH];
        // SAFETY: mmsghdr is plain data for which zeroes are valid.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        for (index, buffer) in self.buffers.chunks_exact_mut(FRAME_SIZE).enumerate() {
            vectors[index].iov_base = buffer.as_mut_ptr().cast();
            vectors[index].iov_len = buffer.len();
            messages[index].msg_hdr.msg_iov = &raw mut vectors[index];
            messages[index].msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: messages, vectors and buffers outlive the call; sizes are those of the buffers.
        let count = unsafe {
            libc::recvmmsg(
                self.descriptor.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            return not_ready(io::Error::last_os_error()).map(|()| 0);
        }
        for (message, buffer) in messages
            .iter()
            .zip(self.buffers.chunks_exact(FRAME_SIZE))
            .take(count as usize)
        {
            receive(&buffer[..(message.msg_len as usize).min(FRAME_SIZE)]);
        }
        Ok(count as usize)
    }

    /// Sends frames; what the kernel does not take is counted as a send failure.
    pub fn send(&mut self, frames: &[Vec<u8>]) {
        for batch in frames.chunks(BATCH) {
            let mut sent = 0;
            while sent < batch.len() {
                match self.send_batch(&batch[sent..]) {
                    Ok(count) if count > 0 => sent += count,
                    _ => {
                        self.send_failures += 1;
                        sent += 1;
                    }
                }
            }
        }
    }

    fn send_batch(&self, frames: &[Vec<u8>]) -> io::Result<usize> {
        let mut vectors = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; BATCH];
        // SAFETY: mmsghdr is plain data for which zeroes are valid.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        for (index, frame) in frames.iter().enumerate() {
            vectors[index].iov_base = frame.as_ptr().cast_mut().cast();
            vectors[index].iov_len = frame.len();
            messages[index].msg_hdr.msg_iov = &raw mut vectors[index];
            messages[index].msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: messages, vectors and frames outlive the call, which only reads the frames.
        let count = unsafe {
            libc::sendmmsg(
                self.descriptor.as_raw_fd(),
                messages.as_mut_ptr(),
                frames.len() as u32,
                libc::MSG_DONTWAIT,
            )
        };
        check(count).map(|count| count as usize)
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

/// Waits until a socket is readable or the time is over; `None` waits for ever.
/// A signal ends the wait.
///
/// # Errors
/// The system's.
pub fn wait(sockets: &[PacketSocket], nanoseconds: Option<u64>) -> io::Result<()> {
    let mut descriptors: Vec<libc::pollfd> = sockets
        .iter()
        .map(|socket| libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let timeout = nanoseconds.map(|total| libc::timespec {
        tv_sec: (total / 1_000_000_000) as i64,
        tv_nsec: (total % 1_000_000_000) as i64,
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: descriptors and timeout outlive the call.
    let result = unsafe {
        libc::ppoll(
            descriptors.as_mut_ptr(),
            descriptors.len() as libc::nfds_t,
            timeout,
            std::ptr::null(),
        )
    };
    if result < 0 {
        return not_ready(io::Error::last_os_error());
    }
    Ok(())
}

/// Nanoseconds on the monotonic clock.
pub fn monotonic_now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

static HUNG_UP: AtomicBool = AtomicBool::new(false);

extern "C" fn hang_up(_: libc::c_int) {
    HUNG_UP.store(true, Ordering::Relaxed);
}

/// Has SIGHUP noted from now on, instead of ending the process; it also ends a wait.
pub fn notice_hang_up() {
    let handler = hang_up as extern "C" fn(libc::c_int);
    // SAFETY: the handler does nothing but store an atomic value.
    unsafe { libc::signal(libc::SIGHUP, handler as libc::sighandler_t) };
}

/// Whether SIGHUP came since the last call.
pub fn hung_up() -> bool {
    HUNG_UP.load(Ordering::Relaxed) && HUNG_UP.swap(false, Ordering::Relaxed)
}

/// Asks the kernel to wake this thread on time rather than in company.
pub fn wake_precisely() {
    // SAFETY: no memory is passed.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn not_ready(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        // An interface that went down is readable again when it returns.
        _ if error.raw_os_error() == Some(libc::ENETDOWN) => Ok(()),
        _ => Err(error),
    }
}
