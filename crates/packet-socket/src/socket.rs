//! The socket: the only unsafe code of this crate besides [`crate::interface`], all of it system calls on buffers that
//! outlive them.

use crate::interface::Interface;
use crate::offload::{DESCRIPTION_LENGTH, Description, Segments};
use crate::overruns::take_overruns;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use wire::ethernet::HEADER_LENGTH;
use wire::vlan::TAG_LENGTH;

/// Frames received or sent in one system call at most.
pub const BATCH: usize = 64;
/// Bytes of a frame: the longest IP packet and an Ethernet header with two tags.
const FRAME_LIMIT: usize = 65_535 + HEADER_LENGTH + 2 * TAG_LENGTH;
/// Bytes between two buffers of a [`Scratch`]; a page more than needed, so that they do not share cache sets.
const STRIDE: usize = (DESCRIPTION_LENGTH + FRAME_LIMIT).next_multiple_of(4096) + 4096 + 64;
/// Bytes the kernel may hold for a socket in either direction: some milliseconds of ten gigabit a second.
const KERNEL_BUFFER: libc::c_int = 4 << 20;
/// Where the two addresses of an Ethernet header end and a tag goes.
const TAG_AT: usize = 12;

/// A packet socket bound to one interface.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    interface: Interface,
}

/// Why a socket did not open.
#[derive(Debug)]
pub struct OpenError {
    /// Name of the interface.
    pub interface: String,
    /// What was being done.
    pub step: &'static str,
    /// What the kernel said.
    pub source: io::Error,
}

impl fmt::Display for OpenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "interface {:?}: {}: {}",
            self.interface, self.step, self.source
        )
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A frame received.
#[derive(Debug)]
pub struct Frame<'a> {
    /// From the destination's address on, tags included.
    pub bytes: &'a mut [u8],
    /// How it is to be cut, if it is of several segments.
    pub segments: Option<Segments>,
}

/// A frame to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// From the destination's address on, tags included.
    pub bytes: &'a [u8],
    /// How it is to be cut, if it is of several segments.
    pub segments: Option<Segments>,
}

/// What one [`Socket::receive`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames given out.
    pub frames: usize,
    /// Frames whose offloads make no sense here, such as segments of a tunnel.
    pub refused: usize,
}

/// What one [`Socket::send`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames the kernel took.
    pub frames: usize,
    /// Frames it did not: too long for the interface, its queue full, or the interface down.
    pub refused: usize,
}

/// Buffers to receive into; any number of sockets can take turns with it. Pages are used as long frames come.
pub struct Scratch {
    buffers: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            buffers: vec![0; BATCH * STRIDE],
        }
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Scratch")
    }
}

/// Room for one auxiliary message, aligned as the kernel wants it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 64]);

impl Socket {
    /// Opens a socket on an interface, which must be there; frames for others are received too.
    ///
    /// # Errors
    /// There is no such interface, or the process may not (it needs `CAP_NET_RAW`).
    pub fn open(name: &str) -> Result<Socket, OpenError> {
        let socket = Socket::unbound(name)?;
        socket
            .bind()
            .map_err(failed(name, "bind the packet socket"))?;
        Ok(socket)
    }

    /// Opens several sockets on an interface among which the kernel deals frames out (`PACKET_FANOUT_HASH`): those of both
    /// directions of a connection, as the outer headers show it, go to the same.
    ///
    /// # Errors
    /// As for [`Socket::open`].
    pub fn open_group(name: &str, count: usize) -> Result<Vec<Socket>, OpenError> {
        if count <= 1 {
            return Ok(vec![Socket::open(name)?]);
        }
        let mut group = Vec::with_capacity(count);
        let mut number = None;
        for _ in 0..count {
            let socket = Socket::unbound(name)?;
            // Bound and not in the group yet, it would get every frame once more.
            socket.refuse_all().map_err(failed(name, "refuse frames"))?;
            socket
                .bind()
                .map_err(failed(name, "bind the packet socket"))?;
            number = Some(
                socket
                    .join_group(number)
                    .map_err(failed(name, "share the interface (PACKET_FANOUT)"))?,
            );
            group.push(socket);
        }
        for socket in &group {
            socket.accept_all().map_err(failed(name, "accept frames"))?;
        }
        Ok(group)
    }

    fn unbound(name: &str) -> Result<Socket, OpenError> {
        let at = |step: &'static str| failed(name, step);
        // Protocol 0: nothing is received before the socket is bound.
        // SAFETY: no memory is involved.
        let raw = unsafe {
            libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                0,
            )
        };
        let raw = check(raw).map_err(at("open a packet socket"))?;
        // SAFETY: the descriptor is new and nobody else's.
        let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
        let interface =
            Interface::query(descriptor.as_fd(), name).map_err(at("look the interface up"))?;
        let socket = Socket {
            descriptor,
            interface,
        };
        for (option, step) in [
            (libc::PACKET_VNET_HDR, "ask for offloads (PACKET_VNET_HDR)"),
            (libc::PACKET_AUXDATA, "ask for VLAN tags (PACKET_AUXDATA)"),
            (
                libc::PACKET_IGNORE_OUTGOING,
                "ignore what the machine itself sends",
            ),
        ] {
            socket
                .set(libc::SOL_PACKET, option, &1i32)
                .map_err(at(step))?;
        }
        for (privileged, ordinary) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
        ] {
            socket
                .set(libc::SOL_SOCKET, privileged, &KERNEL_BUFFER)
                .or_else(|_| socket.set(libc::SOL_SOCKET, ordinary, &KERNEL_BUFFER))
                .map_err(at("set the socket's buffers"))?;
        }
        socket
            .join_everything()
            .map_err(at("receive frames for others"))?;
        Ok(socket)
    }

    /// Joins the group of sockets with a number, or begins one; returns its number.
    fn join_group(&self, number: Option<u16>) -> io::Result<u16> {
        let kind = libc::PACKET_FANOUT_HASH
            | match number {
                None => libc::PACKET_FANOUT_FLAG_UNIQUEID,
                Some(_) => 0,
            };
        let argument = kind << 16 | u32::from(number.unwrap_or(0));
        self.set(libc::SOL_PACKET, libc::PACKET_FANOUT, &argument)?;
        if let Some(number) = number {
            return Ok(number);
        }
        let mut joined = 0u32;
        let mut length = mem::size_of::<u32>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, which `joined` has.
        check(unsafe {
            libc::getsockopt(
                self.descriptor.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_FANOUT,
                ptr::from_mut(&mut joined).cast(),
                &raw mut length,
            )
        })?;
        Ok(joined as u16)
    }

    /// Has the kernel drop all frames for this socket.
    fn refuse_all(&self) -> io::Result<()> {
        let mut nothing = libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: 0,
        };
        let program = libc::sock_fprog {
            len: 1,
            filter: &raw mut nothing,
        };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// Undoes [`Socket::refuse_all`].
    fn accept_all(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0i32)
    }

    /// The interface as it was when the socket opened.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: the kernel reads as many bytes of `value` as it has.
        check(unsafe {
            libc::setsockopt(
                self.descriptor.as_raw_fd(),
                level,
                option,
                ptr::from_ref(value).cast(),
                mem::size_of::<T>() as libc::socklen_t,
            )
        })
        .map(|_| ())
    }

    fn join_everything(&self) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: self.interface.index as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
    }

    fn bind(&self) -> io::Result<()> {
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as libc::c_ushort;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = self.interface.index as libc::c_int;
        let length = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` has the length given and outlives the call.
        check(unsafe {
            libc::bind(
                self.descriptor.as_raw_fd(),
                ptr::from_ref(&address).cast(),
                length,
            )
        })
        .map(|_| ())
    }

    /// Frames that the kernel has dropped since the last call because the socket's queue was full.
    pub fn overruns(&mut self) -> u64 {
        take_overruns(self.descriptor.as_fd())
    }

    /// Receives what is there, up to [`BATCH`] frames, and gives each out. Does not wait.
    ///
    /// # Errors
    /// The interface is down or gone. Nothing to receive is no error.
    pub fn receive(
        &mut self,
        scratch: &mut Scratch,
        mut sink: impl FnMut(Frame<'_>),
    ) -> io::Result<Received> {
        let mut controls = [Control([0; 64]); BATCH];
        let base = scratch.buffers.as_mut_ptr();
        let mut vectors: [libc::iovec; BATCH] = std::array::from_fn(|i| libc::iovec {
            // SAFETY: the buffers hold BATCH strides.
            iov_base: unsafe { base.add(i * STRIDE) }.cast(),
            iov_len: DESCRIPTION_LENGTH + FRAME_LIMIT,
        });
        // SAFETY: all zeros is a valid mmsghdr.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        for ((message, vector), control) in messages.iter_mut().zip(&mut vectors).zip(&mut controls)
        {
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = mem::size_of::<Control>();
        }
        // SAFETY: the messages point to buffers and control areas that outlive the call, with their lengths.
        let count = unsafe {
            libc::recvmmsg(
                self.descriptor.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let count = match check(count) {
            Ok(count) => count as usize,
            Err(error) if is_transient(&error) => return Ok(Received::default()),
            // A packet that the kernel's header cannot describe; it has been taken off the queue.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                return Ok(Received {
                    frames: 0,
                    refused: 1,
                });
            }
            Err(error) => return Err(error),
        };
        let mut received = Received::default();
        for (message, buffer) in messages[..count]
            .iter()
            .zip(scratch.buffers.chunks_exact_mut(STRIDE))
        {
            let tag = stripped_tag(&message.msg_hdr);
            match frame(&mut buffer[..message.msg_len as usize], tag) {
                Some(frame) => {
                    received.frames += 1;
                    sink(frame);
                }
                None => received.refused += 1,
            }
        }
        Ok(received)
    }

    /// Sends frames, up to [`BATCH`]; others are refused. Does not wait.
    pub fn send(&mut self, frames: &[Outgoing<'_>]) -> Sent {
        let count = frames.len().min(BATCH);
        let mut descriptions = [[0u8; DESCRIPTION_LENGTH]; BATCH];
        let nothing = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        let mut vectors = [[nothing; 2]; BATCH];
        // SAFETY: all zeros is a valid mmsghdr.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        for (i, frame) in frames[..count].iter().enumerate() {
            if let Some(segments) = &frame.segments {
                descriptions[i] = segments.describe().to_bytes();
            }
            vectors[i] = [
                libc::iovec {
                    iov_base: descriptions[i].as_mut_ptr().cast(),
                    iov_len: DESCRIPTION_LENGTH,
                },
                libc::iovec {
                    iov_base: frame.bytes.as_ptr().cast_mut().cast(),
                    iov_len: frame.bytes.len(),
                },
            ];
            messages[i].msg_hdr.msg_iov = vectors[i].as_mut_ptr();
            messages[i].msg_hdr.msg_iovlen = 2;
        }
        let mut sent = Sent {
            frames: 0,
            refused: frames.len() - count,
        };
        let mut done = 0;
        while done < count {
            // SAFETY: the messages point to descriptions and frames that outlive the call, which only reads them.
            let result = unsafe {
                libc::sendmmsg(
                    self.descriptor.as_raw_fd(),
                    messages[done..].as_mut_ptr(),
                    (count - done) as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            match check(result) {
                Ok(taken) => {
                    sent.frames += taken as usize;
                    done += taken as usize;
                }
                // The first of the rest was refused: the others may pass.
                Err(_) => {
                    sent.refused += 1;
                    done += 1;
                }
            }
        }
        sent
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn failed(interface: &str, step: &'static str) -> impl FnOnce(io::Error) -> OpenError + use<> {
    let interface = interface.to_string();
    move |source| OpenError {
        interface,
        step,
        source,
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// The tag that the kernel took out of a frame: protocol identifier and control information, as in the frame.
fn stripped_tag(message: &libc::msghdr) -> Option<[u8; TAG_LENGTH]> {
    // SAFETY: the kernel filled the control area and its length in; the macros stay within it.
    let data = unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        let auxiliary = header.as_ref().filter(|header| {
            header.cmsg_level == libc::SOL_PACKET
                && header.cmsg_type == libc::PACKET_AUXDATA
                && header.cmsg_len
                    >= libc::CMSG_LEN(mem::size_of::<libc::tpacket_auxdata>() as u32) as usize
        })?;
        libc::CMSG_DATA(auxiliary)
            .cast::<libc::tpacket_auxdata>()
            .read_unaligned()
    };
    if data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let identifier = match data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
        0 => wire::vlan::CUSTOMER,
        _ => data.tp_vlan_tpid,
    };
    let [a, b] = identifier.to_be_bytes();
    let [c, d] = data.tp_vlan_tci.to_be_bytes();
    Some([a, b, c, d])
}

/// Makes a frame of what was received: description, then bytes.
fn frame(buffer: &mut [u8], tag: Option<[u8; TAG_LENGTH]>) -> Option<Frame<'_>> {
    let description = Description::from_bytes(buffer.first_chunk()?);
    let mut start = DESCRIPTION_LENGTH;
    if let Some(tag) = tag {
        if buffer.len() < start + HEADER_LENGTH {
            return None;
        }
        // The addresses move into the place of the description, which has been read.
        buffer.copy_within(start..start + TAG_AT, start - TAG_LENGTH);
        start -= TAG_LENGTH;
        buffer[start + TAG_AT..start + TAG_AT + TAG_LENGTH].copy_from_slice(&tag);
    }
    let bytes = &mut buffer[start..];
    let segments = description.complete(bytes, DESCRIPTION_LENGTH - start)?;
    Some(Frame { bytes, segments })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripped_tag_returns_to_its_place() {
        let mut buffer = vec![0u8; DESCRIPTION_LENGTH];
        buffer.extend([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x08, 0x00, 0x45]);
        let frame = frame(&mut buffer, Some([0x81, 0, 0, 7])).unwrap();
        let expected = [
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0, 0, 7, 0x08, 0x00, 0x45,
        ];
        assert_eq!(frame.bytes, expected);
    }

    #[test]
    fn what_is_too_short_for_a_description_or_a_tag_is_refused() {
        assert!(frame(&mut [0; 9], None).is_none());
        assert!(frame(&mut [0; 10 + 13], Some([0x81, 0, 0, 7])).is_none());
    }
}
