//! The socket: the only unsafe code of this crate besides [`crate::interface`], all of it system calls on buffers that
//! outlive them.

use crate::interface::Interface;
use crate::offload::{Contents, DESCRIPTION_LENGTH, Description};
use crate::overruns::take_overruns;
use crate::program::Program;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use wire::ethernet::HEADER_LENGTH;
use wire::segments::Segments;
use wire::vlan::TAG_LENGTH;

/// Frames received or sent in one system call at most.
pub const BATCH: usize = 64;
/// Bytes of a frame at most: the longest IP packet and an Ethernet header with two tags.
pub const FRAME_LIMIT: usize = 65_535 + HEADER_LENGTH + 2 * TAG_LENGTH;
/// A description and the pieces of a place.
const PIECES: usize = 4;
/// Bytes the kernel may hold for a socket in either direction: some milliseconds of ten gigabit a second.
const KERNEL_BUFFER: libc::c_int = 4 << 20;
/// The option that gives a group its program (`linux/if_packet.h`).
const PACKET_FANOUT_DATA: libc::c_int = 22;
/// Where the two addresses of an Ethernet header end and a tag goes.
const TAG_AT: usize = 12;

/// A packet socket bound to one interface.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    interface: Interface,
}

/// What tells the kernel by which program it deals frames out among a group of sockets. It keeps the first of them open: drop it
/// with the group.
#[derive(Debug)]
pub struct Dealer {
    /// Of the group's first socket.
    descriptor: OwnedFd,
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

/// Memory for one frame as it arrives: its bytes go to the pieces in their order, without tags that the kernel took out.
/// Together they should have room for [`FRAME_LIMIT`] bytes.
#[derive(Debug, Default)]
pub struct Place<'a> {
    /// The pieces; any may be empty.
    pub pieces: [&'a mut [u8]; 3],
}

/// A frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its place, counted from 0.
    pub place: usize,
    /// Bytes in the place.
    pub length: usize,
    tag: Option<[u8; TAG_LENGTH]>,
    description: Description,
}

/// A frame to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing<'a> {
    /// From the destination's address on, tags included.
    pub bytes: &'a [u8],
    /// Bytes of payload in each of the segments it is to be cut into; 0 when it is one frame.
    pub segment_size: u16,
}

/// What one [`Socket::send`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames the kernel took.
    pub frames: usize,
    /// Frames it did not: too long for the interface, its queue full, or the interface down.
    pub refused: usize,
}

impl Arrived {
    /// A frame of `length` bytes, with the kernel's description (`struct virtio_net_hdr`) and the tag that it took out.
    pub fn new(
        place: usize,
        length: usize,
        description: &[u8; DESCRIPTION_LENGTH],
        tag: Option<[u8; TAG_LENGTH]>,
    ) -> Arrived {
        Arrived {
            place,
            length,
            tag,
            description: Description::from_bytes(description),
        }
    }

    /// Bytes that the frame lacks in front: of a tag that the kernel took out.
    pub fn room(&self) -> usize {
        self.tag.map_or(0, |tag| tag.len())
    }

    /// Makes a frame of what arrived, which is behind [`Arrived::room`] bytes of any value, and says what it holds; nothing
    /// when its offloads make no sense here, such as segments behind headers that are not known.
    pub fn complete(&self, frame: &mut [u8]) -> Option<Contents> {
        if let Some(tag) = self.tag {
            if frame.len() < TAG_LENGTH + HEADER_LENGTH {
                return None;
            }
            frame.copy_within(TAG_LENGTH..TAG_LENGTH + TAG_AT, 0);
            frame[TAG_AT..TAG_AT + TAG_LENGTH].copy_from_slice(&tag);
        }
        self.description.complete(frame, self.room())
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

    /// Opens several sockets, one at least, on an interface among which the kernel deals frames out by a program, and what tells it by which
    /// (`PACKET_FANOUT_CBPF`). Until then the first gets all.
    ///
    /// # Errors
    /// As for [`Socket::open`].
    pub fn open_group(name: &str, count: usize) -> Result<(Vec<Socket>, Dealer), OpenError> {
        let mut group = Vec::with_capacity(count);
        let mut number = None;
        for _ in 0..count.max(1) {
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
        let dealer = group.first().map(Socket::dealer).transpose();
        let dealer = dealer.map_err(failed(name, "keep the group"))?;
        for socket in &group {
            socket
                .accept_received()
                .map_err(failed(name, "accept frames"))?;
        }
        let dealer = dealer.expect("there is a socket");
        Ok((group, dealer))
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
        let kind = libc::PACKET_FANOUT_CBPF
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
        self.filter_by(&Program::refusal())
    }

    /// Undoes [`Socket::refuse_all`], but for what the machine itself sends: a group gets that whatever its sockets ignore.
    fn accept_received(&self) -> io::Result<()> {
        self.filter_by(&Program::refusal_of_outgoing())
    }

    fn filter_by(&self, program: &Program) -> io::Result<()> {
        let filter = libc::SO_ATTACH_FILTER;
        self.set(libc::SOL_SOCKET, filter, &program.as_kernel())
    }

    /// The interface as it was when the socket opened.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        set(&self.descriptor, level, option, value)
    }

    fn dealer(&self) -> io::Result<Dealer> {
        Ok(Dealer {
            descriptor: self.descriptor.try_clone()?,
        })
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

    /// Receives what is there into places, up to [`BATCH`], and says what arrived. Does not wait. Returns how many frames were
    /// lost because the kernel cannot describe them, or they found no room.
    ///
    /// # Errors
    /// The interface is down or gone. Nothing to receive is no error.
    pub fn receive(
        &mut self,
        places: &mut [Place<'_>],
        arrived: &mut Vec<Arrived>,
    ) -> io::Result<usize> {
        let limit = places.len().min(BATCH);
        let places = &mut places[..limit];
        let mut descriptions = [[0u8; DESCRIPTION_LENGTH]; BATCH];
        let mut controls = [Control([0; 64]); BATCH];
        let mut vectors = [[NOTHING; PIECES]; BATCH];
        // SAFETY: all zeros is a valid mmsghdr.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        for (i, place) in places.iter_mut().enumerate() {
            vectors[i][0] = vector(&mut descriptions[i]);
            for (vector_of, piece) in vectors[i][1..].iter_mut().zip(&mut place.pieces) {
                *vector_of = vector(piece);
            }
            let header = &mut messages[i].msg_hdr;
            header.msg_iov = vectors[i].as_mut_ptr();
            header.msg_iovlen = PIECES;
            header.msg_control = controls[i].0.as_mut_ptr().cast();
            header.msg_controllen = mem::size_of::<Control>();
        }
        // SAFETY: the messages point to descriptions, pieces and control areas that outlive the call, with their lengths.
        let count = unsafe {
            libc::recvmmsg(
                self.descriptor.as_raw_fd(),
                messages.as_mut_ptr(),
                places.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let count = match check(count) {
            Ok(count) => count as usize,
            Err(error) if is_transient(&error) => return Ok(0),
            // A packet that the kernel's header cannot describe; it has been taken off the queue.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(1),
            Err(error) => return Err(error),
        };
        let mut refused = 0;
        for (place, (message, description)) in
            messages[..count].iter().zip(&descriptions).enumerate()
        {
            let length = (message.msg_len as usize).checked_sub(DESCRIPTION_LENGTH);
            let whole = message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            match length.filter(|_| whole) {
                Some(length) => {
                    let tag = stripped_tag(&message.msg_hdr);
                    arrived.push(Arrived::new(place, length, description, tag));
                }
                None => refused += 1,
            }
        }
        Ok(refused)
    }

    /// Sends frames, up to [`BATCH`]; others are refused. Does not wait.
    pub fn send(&mut self, frames: &[Outgoing<'_>]) -> Sent {
        let count = frames.len().min(BATCH);
        let mut descriptions = [[0u8; DESCRIPTION_LENGTH]; BATCH];
        let mut vectors = [[NOTHING; 2]; BATCH];
        // SAFETY: all zeros is a valid mmsghdr.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        for (i, frame) in frames[..count].iter().enumerate() {
            // One that makes no sense goes as it is, and the kernel refuses it.
            if frame.segment_size > 0
                && let Some(segments) = Segments::of_frame(frame.bytes, frame.segment_size)
            {
                descriptions[i] = Description::of(&segments, frame.segment_size).to_bytes();
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

impl Dealer {
    /// Has the kernel deal out the frames of the group by a program from now on.
    ///
    /// # Errors
    /// The kernel does not take the program.
    pub fn deal_by(&self, program: &Program) -> io::Result<()> {
        let (level, data) = (libc::SOL_PACKET, PACKET_FANOUT_DATA);
        set(&self.descriptor, level, data, &program.as_kernel())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn set<T>(
    descriptor: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes of `value` as it has, and of a program what it points to, which is as long as it says.
    check(unsafe {
        libc::setsockopt(
            descriptor.as_raw_fd(),
            level,
            option,
            ptr::from_ref(value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    })
    .map(|_| ())
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

const NOTHING: libc::iovec = libc::iovec {
    iov_base: ptr::null_mut(),
    iov_len: 0,
};

fn vector(piece: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: piece.as_mut_ptr().cast(),
        iov_len: piece.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(length: usize) -> Arrived {
        Arrived::new(0, length, &[0; DESCRIPTION_LENGTH], Some([0x81, 0, 0, 7]))
    }

    #[test]
    fn a_stripped_tag_returns_to_its_place() {
        let mut frame = vec![0xee; TAG_LENGTH];
        frame.extend([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x08, 0x00, 0x45]);
        let arrived = tagged(frame.len() - TAG_LENGTH);
        assert_eq!(arrived.room(), TAG_LENGTH);
        assert_eq!(arrived.complete(&mut frame), Some(Contents::Frame));
        let expected = [
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0, 0, 7, 0x08, 0x00, 0x45,
        ];
        assert_eq!(frame, expected);
    }

    #[test]
    fn what_is_too_short_for_a_tag_is_refused() {
        assert_eq!(tagged(13).complete(&mut [0; TAG_LENGTH + 13]), None);
    }
}
