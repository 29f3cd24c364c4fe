//! The file that tells the counters. A thread of its own writes it: where the disk is busy a write may take long, and no
//! frame waits for it.

use serde::Serialize;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::{fs, io, thread};
use underlay::line::Counters;
use underlay::network::Network;
use underlay::socket::PacketSocket;

/// Nanoseconds between two writes.
const INTERVAL: u64 = 1_000_000_000;

#[derive(Serialize)]
struct LineStatus<'a> {
    from: &'a str,
    to: &'a str,
    #[serde(flatten)]
    counters: Counters,
}

#[derive(Serialize)]
struct Status<'a> {
    lines: Vec<LineStatus<'a>>,
    dropped_truncated: u64,
    dropped_no_link: u64,
    dropped_overrun: u64,
    send_failures: u64,
}

/// The file, written at most once a second while something changes.
pub struct StatusFile {
    writer: SyncSender<Vec<u8>>,
    written_at: u64,
    changed: bool,
}

impl StatusFile {
    /// Starts the thread that writes the file.
    pub fn open(path: String) -> StatusFile {
        let (writer, texts) = sync_channel::<Vec<u8>>(1);
        thread::spawn(move || {
            for text in texts {
                if let Err(error) = write(&path, &text) {
                    eprintln!("switchboard-underlay: --status {path}: {error}");
                    return;
                }
            }
        });
        StatusFile {
            writer,
            written_at: 0,
            changed: true,
        }
    }

    /// When it is to be written next, if it is.
    pub fn due(&self) -> Option<u64> {
        self.changed.then_some(self.written_at + INTERVAL)
    }

    /// Hands the counters over when it is time.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn follow(
        &mut self,
        now: u64,
        changed: bool,
        network: &Network,
        sockets: &mut [PacketSocket],
    ) -> io::Result<()> {
        self.changed |= changed;
        if self.due().is_none_or(|due| now < due) {
            return Ok(());
        }
        let status = Status {
            lines: network
                .counters()
                .map(|(from, to, counters)| LineStatus { from, to, counters })
                .collect(),
            dropped_truncated: network.dropped_truncated,
            dropped_no_link: network.dropped_no_link,
            dropped_overrun: sockets.iter_mut().map(PacketSocket::overruns).sum(),
            send_failures: sockets.iter().map(|socket| socket.send_failures).sum(),
        };
        self.written_at = now;
        match self.writer.try_send(serde_json::to_vec(&status)?) {
            // While the last one is still being written, this one is made again a second later.
            Err(TrySendError::Full(_)) => Ok(()),
            Err(TrySendError::Disconnected(_)) => {
                Err(io::Error::other("the status file cannot be written"))
            }
            Ok(()) => {
                self.changed = false;
                Ok(())
            }
        }
    }
}

fn write(path: &str, text: &[u8]) -> io::Result<()> {
    let unfinished = PathBuf::from(format!("{path}.new"));
    fs::write(&unfinished, text)?;
    fs::rename(unfinished, path)
}
