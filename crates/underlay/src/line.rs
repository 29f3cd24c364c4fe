//! One direction of a pair of sites: a queue with a rate and a latency.

use std::collections::VecDeque;

/// Nanoseconds on the monotonic clock.
pub type Nanoseconds = u64;

/// Frames on their way from one site to another, in order.
///
/// A frame is sent when the frames before it have been sent at the line's rate,
/// and arrives its latency later. So a frame's arrival is known when it is pushed.
#[derive(Debug)]
pub struct Line {
    latency: Nanoseconds,
    nanoseconds_per_byte: f64,
    queue_limit: Nanoseconds,
    largest_frame: usize,
    /// When the line has sent everything that was pushed.
    free_at: Nanoseconds,
    frames: VecDeque<Frame>,
    /// What happened so far.
    pub counters: Counters,
}

/// A frame and where it goes.
#[derive(Debug)]
pub struct Frame {
    /// When it arrives.
    pub arrives: Nanoseconds,
    /// Index of the port it leaves by.
    pub port: usize,
    /// Ethernet frame without checksum.
    pub bytes: Vec<u8>,
}

/// What a line did with its frames.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Counters {
    /// Frames that left the line.
    pub delivered_frames: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Frames that would have waited longer than the queue's limit.
    pub dropped_queue_full: u64,
    /// Frames larger than the line's MTU.
    pub dropped_too_large: u64,
}

/// Bytes of the Ethernet header and one VLAN tag.
const ETHERNET_OVERHEAD: usize = 18;

impl Line {
    /// A line with a one-way latency and a queue limit in milliseconds, a rate in Mbit/s and an
    /// MTU in bytes.
    pub fn new(latency_ms: f64, rate_mbps: f64, queue_ms: f64, mtu: usize) -> Line {
        Line {
            latency: (latency_ms * 1e6) as Nanoseconds,
            nanoseconds_per_byte: 8_000.0 / rate_mbps,
            queue_limit: (queue_ms * 1e6) as Nanoseconds,
            largest_frame: mtu + ETHERNET_OVERHEAD,
            free_at: 0,
            frames: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Takes a frame for a port, or gives its buffer back when it had to be dropped.
    pub fn push(&mut self, now: Nanoseconds, port: usize, bytes: Vec<u8>) -> Option<Vec<u8>> {
        if bytes.len() > self.largest_frame {
            self.counters.dropped_too_large += 1;
            return Some(bytes);
        }
        let begins = self.free_at.max(now);
        if begins - now > self.queue_limit {
            self.counters.dropped_queue_full += 1;
            return Some(bytes);
        }
        self.free_at = begins + (bytes.len() as f64 * self.nanoseconds_per_byte) as Nanoseconds;
        let arrives = self.free_at + self.latency;
        self.frames.push_back(Frame {
            arrives,
            port,
            bytes,
        });
        None
    }

    /// When the next frame arrives; `None` when there is none.
    pub fn next_arrival(&self) -> Option<Nanoseconds> {
        self.frames.front().map(|frame| frame.arrives)
    }

    /// The next frame that has arrived by now.
    pub fn pop(&mut self, now: Nanoseconds) -> Option<Frame> {
        if self.next_arrival()? > now {
            return None;
        }
        let frame = self.frames.pop_front()?;
        self.counters.delivered_frames += 1;
        self.counters.delivered_bytes += frame.bytes.len() as u64;
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanoseconds = 1_000_000;

    #[test]
    fn a_frame_arrives_after_its_own_time_and_the_latency() {
        let mut line = Line::new(5.0, 8.0, 50.0, 1500);
        assert!(line.push(0, 3, vec![0; 1000]).is_none());
        assert_eq!(line.next_arrival(), Some(6 * MS));
        assert!(line.pop(6 * MS - 1).is_none());
        assert_eq!(line.pop(6 * MS).unwrap().port, 3);
    }

    #[test]
    fn frames_are_spaced_by_the_rate() {
        let mut line = Line::new(0.0, 8.0, 50.0, 1500);
        for _ in 0..3 {
            assert!(line.push(0, 0, vec![0; 1000]).is_none());
        }
        let arrivals: Vec<_> = std::iter::from_fn(|| line.pop(u64::MAX))
            .map(|frame| frame.arrives)
            .collect();
        assert_eq!(arrivals, [MS, 2 * MS, 3 * MS]);
    }

    #[test]
    fn an_idle_line_saves_no_rate() {
        let mut line = Line::new(0.0, 8.0, 50.0, 1500);
        line.push(0, 0, vec![0; 1000]);
        line.push(100 * MS, 0, vec![0; 1000]);
        line.pop(MS);
        assert_eq!(line.next_arrival(), Some(101 * MS));
    }

    #[test]
    fn a_full_queue_and_a_large_frame_are_counted() {
        let mut line = Line::new(0.0, 8.0, 2.0, 1500);
        let returned = (0..10)
            .filter(|_| line.push(0, 0, vec![0; 1000]).is_some())
            .count();
        assert_eq!((returned, line.counters.dropped_queue_full), (7, 7));
        assert!(line.push(0, 0, vec![0; 1519]).is_some());
        assert_eq!(line.counters.dropped_too_large, 1);
    }
}
