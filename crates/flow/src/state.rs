//! What the packets of a connection have shown: the TCP state machine and its small siblings for other protocols.
//!
//! No sequence numbers are kept, so the machine never decides that a packet is invalid: it decides how long the
//! entry lives. A reset can be forged: it shortens the idle time, to the four minutes that RFC 7857 section 2.2 asks for,
//! and any packet of a connection that goes on takes it back. Ports of a connection that has ended may be used again
//! ([`State::opens_anew`]), once nothing has been heard of it for [`SETTLED`] seconds: a reset and a SYN that somebody else
//! sends meanwhile move nothing.

/// TCP's FIN flag (RFC 9293 §3.1).
pub const FIN: u8 = 0x01;
/// TCP's SYN flag.
pub const SYN: u8 = 0x02;
/// TCP's RST flag.
pub const RST: u8 = 0x04;
/// TCP's ACK flag.
pub const ACK: u8 = 0x10;

/// IP protocol number of TCP.
pub const TCP: u8 = 6;

/// Seconds without a packet after which a connection that seemed to end has ended.
pub const SETTLED: u32 = 3;

/// Which way a packet goes, relative to its connection's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the key's source to its destination.
    Forward = 0,
    /// From the key's destination to its source.
    Reverse = 1,
}

/// State of a connection. Protocols other than TCP know only [`State::New`] and [`State::Established`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Not answered yet; TCP: the forward side's SYN was seen.
    New = 0,
    /// TCP: the SYN was answered by a SYN.
    Handshake = 1,
    /// Both sides spoke; TCP: the three-way handshake is over.
    Established = 2,
    /// TCP: the forward side sent its FIN.
    ForwardClosed = 3,
    /// TCP: the reverse side sent its FIN.
    ReverseClosed = 4,
    /// TCP: both sides sent their FIN.
    Closed = 5,
    /// TCP: a RST was seen.
    Reset = 6,
    /// TCP: first seen in the middle of the connection, and not answered yet.
    PickedUp = 7,
}

impl State {
    /// Every state, in the order of its number.
    pub const ALL: [State; 8] = [
        State::New,
        State::Handshake,
        State::Established,
        State::ForwardClosed,
        State::ReverseClosed,
        State::Closed,
        State::Reset,
        State::PickedUp,
    ];

    /// The state whose number is the lowest three bits of `bits`.
    #[inline(always)]
    pub(crate) fn from_bits(bits: u8) -> Self {
        Self::ALL[bits as usize & 7]
    }

    /// Whether a packet with these flags is the first of a new connection where the one before, in this state, has been
    /// silent for [`SETTLED`] seconds: a SYN without an ACK after both FINs or a RST (RFC 9293, section 3.6.1).
    #[inline]
    pub const fn opens_anew(self, tcp_flags: u8) -> bool {
        let is_over = matches!(self, State::Closed | State::Reset);
        is_over && tcp_flags & (SYN | ACK | RST | FIN) == SYN
    }

    /// The state of a connection whose first packet is this one.
    pub fn first(protocol: u8, tcp_flags: u8, direction: Direction) -> Self {
        if protocol != TCP {
            return State::New;
        }
        match (signal(tcp_flags), direction) {
            (Signal::Syn, _) if tcp_flags & ACK == 0 => State::New,
            (Signal::Syn, _) => State::Handshake,
            (Signal::Rst, _) => State::Reset,
            (Signal::Fin, Direction::Forward) => State::ForwardClosed,
            (Signal::Fin, Direction::Reverse) => State::ReverseClosed,
            (Signal::Plain, _) => State::PickedUp,
        }
    }

    /// The state after one more packet. `tcp_flags` is read for TCP only.
    #[inline(always)]
    pub fn next(self, protocol: u8, tcp_flags: u8, direction: Direction) -> Self {
        NEXT[Class::of(protocol) as usize][self as usize]
            [(tcp_flags as usize & 7) << 1 | direction as usize]
    }
}

/// Protocols whose connections live for different times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Class {
    Tcp = 0,
    Udp = 1,
    Icmp = 2,
    Other = 3,
}

impl Class {
    pub(crate) const ALL: [Class; 4] = [Class::Tcp, Class::Udp, Class::Icmp, Class::Other];

    /// The class of an IP protocol number.
    #[inline(always)]
    pub(crate) fn of(protocol: u8) -> Self {
        CLASSES[protocol as usize]
    }
}

static CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    classes[TCP as usize] = Class::Tcp;
    classes[17] = Class::Udp;
    classes[1] = Class::Icmp;
    classes[58] = Class::Icmp;
    classes
};

/// The flag that decides, out of a combination: a RST ends, a SYN starts, a FIN half-closes.
#[derive(Clone, Copy)]
enum Signal {
    Plain,
    Syn,
    Fin,
    Rst,
}

const fn signal(tcp_flags: u8) -> Signal {
    if tcp_flags & RST != 0 {
        Signal::Rst
    } else if tcp_flags & SYN != 0 {
        Signal::Syn
    } else if tcp_flags & FIN != 0 {
        Signal::Fin
    } else {
        Signal::Plain
    }
}

/// Indexed by class, by state, and by FIN, SYN and RST with the direction's bit below them.
static NEXT: [[[State; 16]; 8]; 4] = {
    let mut table = [[[State::New; 16]; 8]; 4];
    let mut state = 0;
    while state < 8 {
        let mut event = 0;
        while event < 16 {
            let direction = if event & 1 == 0 {
                Direction::Forward
            } else {
                Direction::Reverse
            };
            table[Class::Tcp as usize][state][event] =
                after(State::ALL[state], signal(event as u8 >> 1), direction);
            let other = without_tcp(State::ALL[state], direction);
            table[Class::Udp as usize][state][event] = other;
            table[Class::Icmp as usize][state][event] = other;
            table[Class::Other as usize][state][event] = other;
            event += 1;
        }
        state += 1;
    }
    table
};

const fn without_tcp(state: State, direction: Direction) -> State {
    match (state, direction) {
        (State::New | State::PickedUp, Direction::Forward) => State::New,
        _ => State::Established,
    }
}

const fn after(state: State, signal: Signal, direction: Direction) -> State {
    use Direction::{Forward, Reverse};
    use State::{
        Closed, Established, ForwardClosed, Handshake, New, PickedUp, Reset, ReverseClosed,
    };
    match (state, signal, direction) {
        (_, Signal::Rst, _) => Reset,
        // A closed connection's ports are used again.
        (Closed, Signal::Syn, _) => New,
        // The RST was somebody else's: the connection goes on.
        (Reset, Signal::Plain, Forward) => PickedUp,
        (Reset, Signal::Plain, Reverse) => Established,
        (New, Signal::Syn, Reverse) => Handshake,
        (New, Signal::Syn, Forward) => New,
        // A repeated SYN, or a challenge: nothing new.
        (_, Signal::Syn, _) => state,
        (Closed, Signal::Fin, _) => state,
        (ReverseClosed, Signal::Fin, Forward) => Closed,
        (_, Signal::Fin, Forward) => ForwardClosed,
        (ForwardClosed, Signal::Fin, Reverse) => Closed,
        (_, Signal::Fin, Reverse) => ReverseClosed,
        (Handshake, Signal::Plain, Forward) => Established,
        (New | PickedUp, Signal::Plain, Reverse) => Established,
        (_, Signal::Plain, _) => state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter per state, in the order of its number.
    const LETTERS: &str = "NHEFRCXP";

    fn letter(state: State) -> char {
        LETTERS.as_bytes()[state as usize].into()
    }

    /// Every transition of TCP. N new, H handshake, E established, F forward closed, R reverse closed, C closed,
    /// X reset, P picked up.
    #[test]
    fn tcp_follows_the_table() {
        // Columns: ACK forward and reverse, SYN forward and reverse, FIN forward and reverse, RST forward and reverse.
        let table = [
            ("N", "NE NH FR XX"),
            ("H", "EH HH FR XX"),
            ("E", "EE EE FR XX"),
            ("F", "FF FF FC XX"),
            ("R", "RR RR CR XX"),
            ("C", "CC NN CC XX"),
            ("X", "PE XX FR XX"),
            ("P", "PE PP FR XX"),
        ];
        for (state, (name, row)) in State::ALL.into_iter().zip(table) {
            assert_eq!(letter(state).to_string(), name);
            let mut actual = String::new();
            for flags in [ACK, SYN, FIN | ACK, RST] {
                for direction in [Direction::Forward, Direction::Reverse] {
                    actual.push(letter(state.next(TCP, flags, direction)));
                }
                actual.push(' ');
            }
            assert_eq!(actual.trim_end(), row, "from {state:?}");
        }
    }

    #[test]
    fn of_several_flags_reset_comes_first_and_then_syn() {
        for state in State::ALL {
            for direction in [Direction::Forward, Direction::Reverse] {
                assert_eq!(
                    state.next(TCP, RST | SYN | FIN | ACK, direction),
                    State::Reset
                );
                assert_eq!(
                    state.next(TCP, SYN | FIN, direction),
                    state.next(TCP, SYN, direction)
                );
                // ACK, PSH, URG, ECE and CWR decide nothing.
                assert_eq!(
                    state.next(TCP, 0xf8, direction),
                    state.next(TCP, 0, direction)
                );
            }
        }
    }

    #[test]
    fn the_first_packet_tells_where_a_connection_starts() {
        use Direction::{Forward, Reverse};
        let cases = [
            (TCP, SYN, Forward, State::New),
            (TCP, SYN | ACK, Reverse, State::Handshake),
            (TCP, ACK, Forward, State::PickedUp),
            (TCP, ACK, Reverse, State::PickedUp),
            (TCP, FIN | ACK, Forward, State::ForwardClosed),
            (TCP, FIN | ACK, Reverse, State::ReverseClosed),
            (TCP, RST, Forward, State::Reset),
            (17, 0xff, Forward, State::New),
            (1, 0, Reverse, State::New),
        ];
        for (protocol, flags, direction, state) in cases {
            assert_eq!(
                State::first(protocol, flags, direction),
                state,
                "{protocol} {flags:#x} {direction:?}"
            );
        }
    }

    #[test]
    fn without_tcp_an_answer_establishes() {
        for protocol in [1, 17, 47, 58, 132] {
            let state = State::New;
            assert_eq!(state.next(protocol, RST, Direction::Forward), State::New);
            let state = state.next(protocol, RST, Direction::Reverse);
            assert_eq!(state, State::Established);
            assert_eq!(
                state.next(protocol, FIN, Direction::Forward),
                State::Established
            );
        }
    }
}
