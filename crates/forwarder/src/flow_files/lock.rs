//! Who owns a flow directory.
//!
//! It is a lock of the process (fcntl(2), `F_SETLK`), not one of the open file (flock(2)): the kernel gives up the former when it
//! begins to close what a process that ended had open, the latter when it is done with that. In between it takes leave of
//! packet sockets, some ten milliseconds for each. By then no thread of the process runs any more, and its memory is gone.
//!
//! Such a lock goes with the first descriptor of its file that the process closes: nothing else opens the file.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::File;
use std::io;

/// A lock that is held until it is released or dropped, or the process ends.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Locks a file; `waits` says to wait until another process gives it up.
    ///
    /// # Errors
    /// Another process has it, or files of its kind cannot be locked.
    pub fn take(file: File, waits: bool) -> io::Result<Lock> {
        let whole = of_whole_file(libc::F_WRLCK);
        let taken = loop {
            let taken = match waits {
                true => fcntl(&file, FcntlArg::F_SETLKW(&whole)),
                false => fcntl(&file, FcntlArg::F_SETLK(&whole)),
            };
            if taken != Err(Errno::EINTR) {
                break taken;
            }
        };
        match taken {
            Ok(_) => Ok(Lock(file)),
            Err(Errno::EAGAIN | Errno::EACCES) => Err(io::Error::other(
                "another forwarder uses the flow directory",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives it up.
    pub fn release(&self) {
        // A lock that is held can be given up.
        let _ = fcntl(&self.0, FcntlArg::F_SETLK(&of_whole_file(libc::F_UNLCK)));
    }
}

fn of_whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}
