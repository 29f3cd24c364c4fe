//! Linux packet sockets that deal with offloads, so that nobody has to switch them off.
//!
//! Interfaces that never touch a wire (veth, tap, bridges) hand over packets whose checksums are not filled in, and TCP
//! or UDP packets of up to 64 KB that a device would have cut into segments. A [`Socket`] learns of both from the
//! kernel's `PACKET_VNET_HDR`, and of IEEE 802.1Q tags that the kernel took out from its auxiliary data. What it gives
//! out, once [`Arrived::complete`] has had it, are whole frames with their tags and right checksums, received straight into
//! the caller's buffers; one of several segments says so, and [`wire::segments::Segments`] cuts it, or the socket it is sent
//! on passes it on whole. One inside a tunnel is to be cut at once ([`Contents::Tunnelled`]): the description has no room for what
//! is in front of it.
//!
//! Several sockets can share an interface: the kernel deals frames out among them by a [`program`].
//!
//! Invariants:
//! - A frame given out is safe to forward as it is: its checksums are right, or, in one of several segments, will be made
//!   by whoever cuts it.
//! - What cannot be made right is refused and counted, never forwarded.
//!
//! Deliberately absent: rings shared with the kernel (the kernel has none with this header and lengths), threads.

mod interface;
mod offload;
mod overruns;
pub mod program;
mod socket;

pub use interface::{Interface, interface_index};
pub use offload::Contents;
pub use overruns::take_overruns;
pub use socket::{Arrived, BATCH, Dealer, FRAME_LIMIT, OpenError, Outgoing, Place, Sent, Socket};
