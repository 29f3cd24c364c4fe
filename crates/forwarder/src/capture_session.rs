//! Captures that are asked for over the bus: each request takes what came since the one before.

use crate::capture::{Capture, Captures, Filter, PENDING, SNAP_LENGTH};
use crate::trace;
use contracts::forwarder as contract;
use std::collections::VecDeque;
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
/// Sessions that another ended whose askers are told so.
const REPLACED_LIMIT: usize = 64;
/// What they are told.
const REPLACED: &str = "another capture has begun";

/// The capture session of a forwarder, if there is one, and the last ones that it and others before it ended.
#[derive(Debug, Default)]
pub struct Sessions {
    current: Option<Session>,
    replaced: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
struct Session {
    name: Vec<u8>,
    captures: Captures,
    asked: Instant,
    /// Frames left out that the asker knows of.
    told: u64,
}

impl Sessions {
    /// Answers a request; begins its session if there is none of its name, with `capture`, which gives a capture to all workers. `ports` are
    /// the forwarder's: where none has the name asked for the answer tells them, and no session begins.
    ///
    /// # Errors
    /// Names the field that is wrong, or says that another capture has begun.
    pub fn answer(
        &mut self,
        capture: impl FnOnce(&Capture) -> Result<(), String>,
        ports: &[contract::Port],
        request: &contract::CaptureRequest,
        now: Instant,
    ) -> Result<contract::CaptureReply, String> {
        if !(1..=NAME_LIMIT).contains(&request.session.len()) {
            return Err(format!("session: give 1 to {NAME_LIMIT} bytes"));
        }
        let is_current = |session: &Session| session.name == request.session;
        let known = self.current.as_ref().is_some_and(is_current);
        if !known && self.replaced.contains(&request.session) {
            return Err(REPLACED.to_string());
        }
        if !known && request.end {
            return Ok(contract::CaptureReply::default());
        }
        let is_it = |port: &contract::Port| port.name == request.port;
        if !known && !request.port.is_empty() && !ports.iter().any(is_it) {
            return Ok(contract::CaptureReply {
                no_such_port: true,
                ports: ports.iter().map(|port| port.name.clone()).collect(),
                ..Default::default()
            });
        }
        if !known {
            let begun = Session::begin(capture, request, now)?;
            if let Some(before) = self.current.replace(begun) {
                self.replaced.truncate(REPLACED_LIMIT - 1);
                self.replaced.push_front(before.name);
            }
        }
        let Some(session) = &mut self.current else {
            return Ok(contract::CaptureReply::default());
        };
        session.asked = now;
        let mut reply = session.reply();
        if let (true, Ok(last)) = (request.end, &mut reply) {
            // Nobody asks again for what did not fit; more is not kept.
            let left = (0..PENDING).take_while(|_| session.captures.try_next().is_ok());
            last.lost += left.count() as u64;
            last.more = false;
        }
        if request.end || reply.is_err() {
            self.current = None;
        }
        reply
    }

    /// Ends a session that nobody asks for any more.
    pub fn forget_old(&mut self, now: Instant) {
        self.current
            .take_if(|session| now.duration_since(session.asked) > PATIENCE);
    }
}

impl Session {
    fn begin(
        capture: impl FnOnce(&Capture) -> Result<(), String>,
        request: &contract::CaptureRequest,
        now: Instant,
    ) -> Result<Session, String> {
        let snap = match request.snap_length as usize {
            0 => SNAP_LENGTH,
            length => length,
        };
        let (for_workers, captures) = Capture::new(filter(request)?, snap);
        capture(&for_workers)?;
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
                    return Err(REPLACED.to_string());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn request(session: &[u8]) -> contract::CaptureRequest {
        contract::CaptureRequest {
            session: session.to_vec(),
            ..Default::default()
        }
    }

    /// Sessions, and the capture that the workers have.
    #[derive(Default)]
    struct Forwarder {
        sessions: Sessions,
        workers: Option<Capture>,
    }

    impl Forwarder {
        fn answer(&mut self, request: &contract::CaptureRequest) -> Result<(), String> {
            self.reply(request).map(drop)
        }

        fn reply(
            &mut self,
            request: &contract::CaptureRequest,
        ) -> Result<contract::CaptureReply, String> {
            let workers = &mut self.workers;
            let capture = |capture: &Capture| {
                *workers = Some(capture.clone());
                Ok(())
            };
            let ports = ["lan", "wan"].map(|name| contract::Port {
                name: name.into(),
                ..Default::default()
            });
            self.sessions
                .answer(capture, &ports, request, Instant::now())
        }
    }

    #[test]
    fn a_new_capture_ends_the_one_before_and_that_one_is_told() {
        let mut forwarder = Forwarder::default();
        for name in [[0; 16], [1; 16], [2; 16]] {
            assert_eq!(forwarder.answer(&request(&name)), Ok(()));
            assert_eq!(forwarder.answer(&request(&name)), Ok(()));
        }
        let told = Err("another capture has begun".to_string());
        for _ in 0..3 {
            assert_eq!(forwarder.answer(&request(&[0; 16])), told);
            assert_eq!(forwarder.answer(&request(&[1; 16])), told);
            assert_eq!(forwarder.answer(&request(&[2; 16])), Ok(()));
        }
        for number in 3..=255 {
            assert_eq!(forwarder.answer(&request(&[number; 16])), Ok(()));
        }
        assert_eq!(forwarder.sessions.replaced.len(), REPLACED_LIMIT);
        assert_eq!(forwarder.answer(&request(&[254; 16])), told);
    }

    #[test]
    fn a_capture_at_a_port_that_there_is_not_is_told_those_that_there_are_and_ends_none() {
        let mut forwarder = Forwarder::default();
        assert_eq!(forwarder.answer(&request(b"one")), Ok(()));
        let at = |port: &str| contract::CaptureRequest {
            port: port.into(),
            ..request(b"two")
        };
        let reply = forwarder.reply(&at("wlan")).expect("an answer");
        assert!(reply.no_such_port);
        assert_eq!(reply.ports, ["lan", "wan"]);
        assert_eq!(forwarder.answer(&request(b"one")), Ok(()));
        let reply = forwarder.reply(&at("wan")).expect("an answer");
        assert!(!reply.no_such_port && reply.ports.is_empty());
        assert!(forwarder.answer(&request(b"one")).is_err(), "it was ended");
    }

    #[test]
    fn a_capture_that_another_ended_is_told_also_when_it_ends() {
        let mut forwarder = Forwarder::default();
        assert_eq!(forwarder.answer(&request(b"one")), Ok(()));
        assert_eq!(forwarder.answer(&request(b"two")), Ok(()));
        let end = |session| contract::CaptureRequest {
            end: true,
            ..request(session)
        };
        let told = Err("another capture has begun".to_string());
        assert_eq!(forwarder.answer(&end(b"one")), told);
        assert_eq!(forwarder.answer(&end(b"two")), Ok(()));
        assert_eq!(forwarder.answer(&end(b"unknown")), Ok(()));
    }

    #[test]
    fn a_capture_that_is_wrong_ends_none() {
        let mut forwarder = Forwarder::default();
        assert_eq!(forwarder.answer(&request(b"one")), Ok(()));
        let mut wrong = request(b"two");
        wrong.chain = "web".into();
        let problem = "chain: give customer and chain, or neither".to_string();
        assert_eq!(forwarder.answer(&wrong), Err(problem));
        assert_eq!(forwarder.answer(&request(b"one")), Ok(()));
    }

    #[test]
    fn a_capture_at_the_socket_ends_it_and_it_is_told() {
        let mut forwarder = Forwarder::default();
        assert_eq!(forwarder.answer(&request(b"one")), Ok(()));
        forwarder.workers = None;
        let told = Err("another capture has begun".to_string());
        assert_eq!(forwarder.answer(&request(b"one")), told);
    }
}
