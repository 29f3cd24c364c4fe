//! Captures that are asked for over the bus: each request takes what came since the one before.

use crate::capture::{Capture, Captures, Filter, SNAP_LENGTH};
use crate::trace;
use crate::workers::Workers;
use contracts::forwarder as contract;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

/// Bytes of frames in one reply, about; the bus takes some more.
const REPLY_LIMIT: usize = 256 << 10;
/// Bytes that a frame takes in a reply besides its own, about.
const OVERHEAD: usize = 48;
/// How long a session that nobody asks for lasts.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of a session's name at most.
const NAME_LIMIT: usize = 32;

/// The capture session of a forwarder, if there is one.
#[derive(Debug, Default)]
pub struct Sessions(Option<Session>);

#[derive(Debug)]
struct Session {
    name: Vec<u8>,
    captures: Captures,
    asked: Instant,
    /// Frames left out that the asker knows of.
    told: u64,
}

impl Sessions {
    /// Answers a request; begins its session if there is none of its name.
    ///
    /// # Errors
    /// Names the field that is wrong, or says that another capture has begun.
    pub fn answer(
        &mut self,
        workers: &Workers,
        request: &contract::CaptureRequest,
        now: Instant,
    ) -> Result<contract::CaptureReply, String> {
        if !(1..=NAME_LIMIT).contains(&request.session.len()) {
            return Err(format!("session: give 1 to {NAME_LIMIT} bytes"));
        }
        let known = self
            .0
            .as_ref()
            .is_some_and(|session| session.name == request.session);
        if !known && request.end {
            return Ok(contract::CaptureReply::default());
        }
        if !known {
            self.0 = Some(Session::begin(workers, request, now)?);
        }
        let Some(session) = &mut self.0 else {
            return Ok(contract::CaptureReply::default());
        };
        session.asked = now;
        let reply = session.reply();
        if request.end || reply.is_err() {
            self.0 = None;
        }
        reply
    }

    /// Ends a session that nobody asks for any more.
    pub fn forget_old(&mut self, now: Instant) {
        self.0
            .take_if(|session| now.duration_since(session.asked) > PATIENCE);
    }
}

impl Session {
    fn begin(
        workers: &Workers,
        request: &contract::CaptureRequest,
        now: Instant,
    ) -> Result<Session, String> {
        let snap = match request.snap_length as usize {
            0 => SNAP_LENGTH,
            length => length,
        };
        let (capture, captures) = Capture::new(filter(request)?, snap);
        workers
            .capture(&capture)
            .map_err(|_| "a worker has ended".to_string())?;
        Ok(Session {
            name: request.session.clone(),
            captures,
            asked: now,
            told: 0,
        })
    }

    fn reply(&mut self) -> Result<contract::CaptureReply, String> {
        let mut reply = contract::CaptureReply::default();
        let mut bytes = 0;
        while bytes < REPLY_LIMIT {
            match self.captures.try_next() {
                Ok(captured) => {
                    bytes += captured.bytes.len() + captured.port.len() + OVERHEAD;
                    reply.frames.push(contract::CapturedFrame {
                        time_unix_ns: captured.time as i64,
                        port: captured.port.to_string(),
                        sent: captured.sent,
                        length: captured.length as u32,
                        data: captured.bytes.to_vec(),
                    });
                }
                Err(TryRecvError::Disconnected) if reply.frames.is_empty() => {
                    return Err("another capture has begun".to_string());
                }
                Err(_) => break,
            }
        }
        reply.more = bytes >= REPLY_LIMIT;
        let lost = self.captures.lost();
        reply.lost = lost - std::mem::replace(&mut self.told, lost);
        Ok(reply)
    }
}

fn filter(request: &contract::CaptureRequest) -> Result<Filter, String> {
    let chain = match (request.customer.as_str(), request.chain.as_str()) {
        ("", "") => None,
        ("", _) | (_, "") => return Err("chain: give customer and chain, or neither".to_string()),
        (customer, chain) => Some((customer.to_string(), chain.to_string())),
    };
    Ok(Filter {
        port: Some(request.port.clone()).filter(|port| !port.is_empty()),
        chain,
        connections: trace::Filter::new(request.r#match.as_ref(), request.both_directions)?,
        sent: match request.direction() {
            contract::CaptureDirection::Unspecified => None,
            contract::CaptureDirection::Received => Some(false),
            contract::CaptureDirection::Sent => Some(true),
        },
    })
}
