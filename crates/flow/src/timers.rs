//! Idle times per state, and the coarse clock.
//!
//! The clock counts seconds in 32 bits and may wrap. An entry keeps only seven bits of the time of its last
//! packet, in units of a power of two seconds chosen per state so that the idle time is at most 62 units:
//!
//! ```text
//!  units since the last packet, modulo 128
//!  0                     limit (≤ 63)                    120      127
//!  |------ alive ----------|-------- may be removed -------|- alive -|
//! ```
//! The last eight mean that the packet's clock was ahead of the sweep's. So an entry is never removed early, whatever
//! the sweep's pace; a sweep slower than 57 units (57 s for idle times up to a minute) only removes late. Entries
//! are rewritten at most once per unit.

use std::fmt;

use crate::entry::AGE_MASK;
use crate::state::{Class, State};

/// An idle time may be this long, in seconds (about 388 days).
pub const MAX_IDLE: u32 = 1 << 25;

const LONGEST_IN_UNITS: u32 = 62;
const AHEAD: u32 = 120;

/// How long a connection may stay idle before its entry is removed, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP: a SYN without an answer.
    pub tcp_unanswered: u32,
    /// TCP: both SYNs seen, the handshake's last ACK not yet.
    pub tcp_handshake: u32,
    /// TCP: open. RFC 5382 REQ-5 asks for at least 2 hours 4 minutes.
    pub tcp_established: u32,
    /// TCP: one side sent its FIN.
    pub tcp_half_closed: u32,
    /// TCP: both sides sent their FIN.
    pub tcp_closed: u32,
    /// TCP: after a RST, which may be somebody else's. RFC 7857 section 2.2 asks for 4 minutes.
    pub tcp_reset: u32,
    /// TCP: first seen in the middle of the connection, and not answered yet.
    pub tcp_picked_up: u32,
    /// UDP: one side spoke.
    pub udp_unanswered: u32,
    /// UDP: both sides spoke. RFC 4787 REQ-5 asks for at least 2 minutes.
    pub udp_answered: u32,
    /// ICMP and ICMPv6.
    pub icmp: u32,
    /// Any other protocol.
    pub other: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            tcp_unanswered: 30,
            tcp_handshake: 60,
            tcp_established: 7440,
            tcp_half_closed: 60,
            tcp_closed: 60,
            tcp_reset: 240,
            tcp_picked_up: 300,
            udp_unanswered: 30,
            udp_answered: 180,
            icmp: 30,
            other: 600,
        }
    }
}

/// An idle time that is zero or longer than [`MAX_IDLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTimeout {
    /// Name of the field of [`Timeouts`].
    pub field: &'static str,
    /// Its value, in seconds.
    pub seconds: u32,
}

impl fmt::Display for InvalidTimeout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "timeout {} is {} s; it must be between 1 and {MAX_IDLE} s",
            self.field, self.seconds
        )
    }
}

impl std::error::Error for InvalidTimeout {}

impl Timeouts {
    /// The idle time of a protocol's state, in seconds.
    pub fn idle(&self, protocol: u8, state: State) -> u32 {
        self.idle_of(Class::of(protocol), state)
    }

    fn idle_of(&self, class: Class, state: State) -> u32 {
        match (class, state) {
            (Class::Tcp, State::New) => self.tcp_unanswered,
            (Class::Tcp, State::Handshake) => self.tcp_handshake,
            (Class::Tcp, State::Established) => self.tcp_established,
            (Class::Tcp, State::OpenerClosed | State::AnswererClosed) => self.tcp_half_closed,
            (Class::Tcp, State::Closed) => self.tcp_closed,
            (Class::Tcp, State::Reset) => self.tcp_reset,
            (Class::Tcp, State::PickedUp) => self.tcp_picked_up,
            (Class::Udp, State::New | State::PickedUp) => self.udp_unanswered,
            (Class::Udp, _) => self.udp_answered,
            (Class::Icmp, _) => self.icmp,
            (Class::Other, _) => self.other,
        }
    }

    /// Every idle time, in the order of [`FIELDS`].
    pub(crate) fn each_mut(&mut self) -> [&mut u32; 11] {
        [
            &mut self.tcp_unanswered,
            &mut self.tcp_handshake,
            &mut self.tcp_established,
            &mut self.tcp_half_closed,
            &mut self.tcp_closed,
            &mut self.tcp_reset,
            &mut self.tcp_picked_up,
            &mut self.udp_unanswered,
            &mut self.udp_answered,
            &mut self.icmp,
            &mut self.other,
        ]
    }

    fn check(mut self) -> Result<(), InvalidTimeout> {
        for (field, &mut seconds) in FIELDS.into_iter().zip(self.each_mut()) {
            if seconds == 0 || seconds > MAX_IDLE {
                return Err(InvalidTimeout { field, seconds });
            }
        }
        Ok(())
    }
}

/// Names of the fields of [`Timeouts`].
const FIELDS: [&str; 11] = [
    "tcp_unanswered",
    "tcp_handshake",
    "tcp_established",
    "tcp_half_closed",
    "tcp_closed",
    "tcp_reset",
    "tcp_picked_up",
    "udp_unanswered",
    "udp_answered",
    "icmp",
    "other",
];

#[derive(Clone, Copy, Debug)]
struct Unit {
    /// A unit is 2 to this power seconds.
    shift: u8,
    /// Removed from this many units on.
    limit: u8,
}

/// [`Timeouts`] in units.
#[derive(Clone, Debug)]
pub(crate) struct Ages {
    units: [[Unit; 8]; 4],
}

/// Some of the classes' states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units([[bool; 8]; 4]);

impl Units {
    /// All of them.
    pub(crate) const ALL: Units = Units([[true; 8]; 4]);

    /// Whether there is none.
    pub(crate) fn none(&self) -> bool {
        !self.0.as_flattened().contains(&true)
    }

    /// Whether that of an entry is among them.
    pub(crate) fn has(&self, protocol: u8, state: State) -> bool {
        self.0[Class::of(protocol) as usize][state as usize]
    }

    /// Adds others.
    pub(crate) fn join(&mut self, other: &Units) {
        for (own, other) in self
            .0
            .as_flattened_mut()
            .iter_mut()
            .zip(other.0.as_flattened())
        {
            *own |= other;
        }
    }
}

impl Ages {
    /// Which units are not the same as before.
    pub(crate) fn other_units(&self, before: &Ages) -> Units {
        let mut other = Units([[false; 8]; 4]);
        for (class, states) in other.0.iter_mut().enumerate() {
            for (state, other) in states.iter_mut().enumerate() {
                *other = self.units[class][state].shift != before.units[class][state].shift;
            }
        }
        other
    }

    pub(crate) fn new(timeouts: &Timeouts) -> Result<Self, InvalidTimeout> {
        timeouts.check()?;
        let units = Class::ALL
            .map(|class| State::ALL.map(|state| Unit::of(timeouts.idle_of(class, state))));
        Ok(Self { units })
    }

    #[inline(always)]
    fn unit(&self, protocol: u8, state: State) -> Unit {
        self.units[Class::of(protocol) as usize][state as usize]
    }

    /// The age to store for a packet seen `now`.
    #[inline(always)]
    pub(crate) fn stamp(&self, protocol: u8, state: State, now: u32) -> u32 {
        (now >> self.unit(protocol, state).shift) & AGE_MASK
    }

    /// Whether an entry stamped `age` has been idle for at least its state's idle time.
    #[inline(always)]
    pub(crate) fn is_expired(&self, protocol: u8, state: State, age: u32, now: u32) -> bool {
        let unit = self.unit(protocol, state);
        let elapsed = (now >> unit.shift).wrapping_sub(age) & AGE_MASK;
        elapsed >= u32::from(unit.limit) && elapsed < AHEAD
    }

    /// Whether an entry stamped `age` has been idle for at least so many seconds. Not known to the second: it may have been
    /// idle for up to one unit longer when it first is.
    #[inline]
    pub(crate) fn is_silent(
        &self,
        protocol: u8,
        state: State,
        age: u32,
        now: u32,
        seconds: u32,
    ) -> bool {
        let unit = 1 << self.unit(protocol, state).shift;
        self.idle(protocol, state, age, now) >= seconds + unit - 1
    }

    /// When an entry was last seen that elsewhere had been idle for `idle` seconds: not so long ago that the stamp
    /// would look young again.
    pub(crate) fn seen(&self, protocol: u8, state: State, idle: u32, now: u32) -> u32 {
        let unit = self.unit(protocol, state);
        now.wrapping_sub(idle.min(u32::from(unit.limit) << unit.shift))
    }

    /// Seconds since the packet that stamped `age`, at least.
    pub(crate) fn idle(&self, protocol: u8, state: State, age: u32, now: u32) -> u32 {
        let unit = self.unit(protocol, state);
        let elapsed = (now >> unit.shift).wrapping_sub(age) & AGE_MASK;
        if elapsed >= AHEAD {
            0
        } else {
            elapsed << unit.shift
        }
    }
}

impl Unit {
    fn of(seconds: u32) -> Self {
        let mut shift = 0;
        while seconds.div_ceil(1 << shift) > LONGEST_IN_UNITS {
            shift += 1;
        }
        // One more than the idle time: the stamp may have been taken at the end of its unit.
        Self {
            shift,
            limit: (seconds.div_ceil(1 << shift) + 1) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::TCP;

    /// Ages whose every idle time is `seconds`.
    fn all(seconds: u32) -> Ages {
        let timeouts = Timeouts {
            tcp_unanswered: seconds,
            tcp_handshake: seconds,
            tcp_established: seconds,
            tcp_half_closed: seconds,
            tcp_closed: seconds,
            tcp_reset: seconds,
            tcp_picked_up: seconds,
            udp_unanswered: seconds,
            udp_answered: seconds,
            icmp: seconds,
            other: seconds,
        };
        Ages::new(&timeouts).unwrap()
    }

    const LENGTHS: [u32; 14] = [
        1, 2, 10, 30, 60, 62, 63, 64, 180, 300, 7440, 86_400, 432_000, MAX_IDLE,
    ];

    #[test]
    fn nothing_expires_early_and_everything_soon_after_wherever_the_clock_is() {
        for seconds in LENGTHS {
            let ages = all(seconds);
            let grain = (seconds / 31).max(1);
            for seen in [
                0,
                1,
                12_345,
                0x7fff_ff80,
                u32::MAX - seconds,
                u32::MAX - 1,
                u32::MAX,
            ] {
                for offset in 0..2 * grain.min(70) {
                    let seen = seen.wrapping_add(offset);
                    let age = ages.stamp(TCP, State::New, seen);
                    let expired =
                        |idle: u32| ages.is_expired(TCP, State::New, age, seen.wrapping_add(idle));
                    for idle in [0, 1, seconds / 2, seconds - 1] {
                        assert!(
                            !expired(idle),
                            "{seconds} s, seen at {seen}, idle for {idle} s"
                        );
                    }
                    for idle in [seconds + 3 * grain, seconds + seconds / 4 + 3 * grain] {
                        assert!(
                            expired(idle),
                            "{seconds} s, seen at {seen}, idle for {idle} s"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn an_entry_seen_after_the_sweep_read_its_clock_is_alive() {
        for seconds in LENGTHS {
            let ages = all(seconds);
            for seen in [100_000_000, 3] {
                let age = ages.stamp(17, State::New, seen);
                for behind in 1..8 {
                    assert!(
                        !ages.is_expired(17, State::New, age, seen.wrapping_sub(behind)),
                        "{seconds} s"
                    );
                    assert_eq!(ages.idle(17, State::New, age, seen.wrapping_sub(behind)), 0);
                }
            }
        }
    }

    #[test]
    fn silence_is_never_told_early_and_soon_after() {
        for seconds in LENGTHS {
            let ages = all(seconds);
            let unit = 1 << ages.unit(TCP, State::Closed).shift;
            for seen in (0..200).chain(u32::MAX - 200..=u32::MAX) {
                let age = ages.stamp(TCP, State::Closed, seen);
                let silent =
                    |idle: u32| ages.is_silent(TCP, State::Closed, age, seen.wrapping_add(idle), 3);
                for idle in 0..3 {
                    assert!(!silent(idle), "{seconds} s: silent after {idle} s");
                }
                assert!(silent(3 + 2 * unit), "{seconds} s, seen at {seen}");
            }
        }
    }

    #[test]
    fn each_protocol_has_its_own_idle_times() {
        let ages = Ages::new(&Timeouts::default()).unwrap();
        let cases = [
            (TCP, State::New, 30),
            (TCP, State::Handshake, 60),
            (TCP, State::Established, 7440),
            (TCP, State::OpenerClosed, 60),
            (TCP, State::AnswererClosed, 60),
            (TCP, State::Closed, 60),
            (TCP, State::Reset, 240),
            (TCP, State::PickedUp, 300),
            (17, State::New, 30),
            (17, State::Established, 180),
            (1, State::New, 30),
            (58, State::Established, 30),
            (47, State::New, 600),
        ];
        for (protocol, state, seconds) in cases {
            assert_eq!(Timeouts::default().idle(protocol, state), seconds);
            let age = ages.stamp(protocol, state, 0);
            assert!(
                !ages.is_expired(protocol, state, age, seconds),
                "{protocol} {state:?}"
            );
            assert!(
                ages.is_expired(protocol, state, age, seconds + 2 * (seconds / 31).max(1)),
                "{protocol} {state:?}"
            );
        }
    }

    #[test]
    fn impossible_idle_times_are_named() {
        let timeouts = Timeouts {
            udp_answered: 0,
            ..Timeouts::default()
        };
        let error = Ages::new(&timeouts).unwrap_err();
        assert_eq!(
            error,
            InvalidTimeout {
                field: "udp_answered",
                seconds: 0
            }
        );
        assert_eq!(
            error.to_string(),
            "timeout udp_answered is 0 s; it must be between 1 and 33554432 s"
        );
        let timeouts = Timeouts {
            icmp: MAX_IDLE + 1,
            ..Timeouts::default()
        };
        assert_eq!(Ages::new(&timeouts).unwrap_err().field, "icmp");
    }
}
