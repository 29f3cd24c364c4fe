//! What the kernel dropped because nobody came for it.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Frames that the kernel has dropped since the last call because a packet socket's queue was full. It counts anew after
/// each call; 0 of any other descriptor.
pub fn take_overruns(socket: BorrowedFd<'_>) -> u64 {
    // SAFETY: all zeros is a valid tpacket_stats.
    let mut statistics: libc::tpacket_stats = unsafe { mem::zeroed() };
    let mut length = mem::size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `statistics`, which outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            ptr::from_mut(&mut statistics).cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return 0;
    }
    u64::from(statistics.tp_drops)
}
