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

/// Who sent a packet. Only what both sides have sent says that there is a connection: whoever sends alone, whichever way, keeps an entry no
/// longer than something unanswered may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Who sent the first packet.
    Opener = 0,
    /// The other one.
    Answerer = 1,
}

impl Side {
    /// Whose packets go this way, where the opener's go that way ([`crate::Hops::opener`]).
    #[inline(always)]
    pub fn of(direction: Direction, opener: u16) -> Self {
        if direction as u16 ^ opener & 1 == 0 {
            Side::Opener
        } else {
            Side::Answerer
        }
    }
}

/// State of a connection. Protocols other than TCP know only [`State::New`] and [`State::Established`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Not answered yet; TCP: the opener's SYN was seen.
    New = 0,
    /// TCP: the SYN was answered by a SYN.
    Handshake = 1,
    /// Both sides spoke; TCP: the three-way handshake is over.
    Established = 2,
    /// TCP: the opener sent its FIN.
    OpenerClosed = 3,
    /// TCP: the answerer sent its FIN.
    AnswererClosed = 4,
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
        State::OpenerClosed,
        State::AnswererClosed,
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
    pub fn first(protocol: u8, tcp_flags: u8) -> Self {
        if protocol != TCP {
            return State::New;
        }
        match signal(tcp_flags) {
            Signal::Syn => State::New,
            Signal::Rst => State::Reset,
            Signal::Fin => State::OpenerClosed,
            Signal::Plain => State::PickedUp,
        }
    }

    /// The state after one more packet. `tcp_flags` is read for TCP only.
    #[inline(always)]
    pub fn next(self, protocol: u8, tcp_flags: u8, side: Side) -> Self {
        NEXT[Class::of(protocol) as usize][self as usize]
            [(tcp_flags as usize & 7) << 1 | side as usize]
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

/// Indexed by class, by state, and by FIN, SYN and RST with the side's bit below them.
static NEXT: [[[State; 16]; 8]; 4] = {
    let mut table = [[[State::New; 16]; 8]; 4];
    let mut state = 0;
    while state < 8 {
        let mut event = 0;
        while event < 16 {
            let side = if event & 1 == 0 {
                Side::Opener
            } else {
                Side::Answerer
            };
            table[Class::Tcp as usize][state][event] =
                after(State::ALL[state], signal(event as u8 >> 1), side);
            let other = without_tcp(State::ALL[state], side);
            table[Class::Udp as usize][state][event] = other;
            table[Class::Icmp as usize][state][event] = other;
            table[Class::Other as usize][state][event] = other;
            event += 1;
        }
        state += 1;
    }
    table
};

const fn without_tcp(state: State, side: Side) -> State {
    match (state, side) {
        (State::New | State::PickedUp, Side::Opener) => State::New,
        _ => State::Established,
    }
}

const fn after(state: State, signal: Signal, side: Side) -> State {
    use Side::{Answerer, Opener};
    use State::{
        AnswererClosed, Closed, Established, Handshake, New, OpenerClosed, PickedUp, Reset,
    };
    match (state, signal, side) {
        (_, Signal::Rst, _) => Reset,
        // A closed connection's ports are used again.
        (Closed, Signal::Syn, Opener) => New,
        (Closed, Signal::Syn, Answerer) => Handshake,
        // The RST was somebody else's: the connection goes on.
        (Reset, Signal::Plain, Opener) => PickedUp,
        (Reset, Signal::Plain, Answerer) => Established,
        (New, Signal::Syn, Answerer) => Handshake,
        (New, Signal::Syn, Opener) => New,
        // A repeated SYN, or a challenge: nothing new.
        (_, Signal::Syn, _) => state,
        (Closed, Signal::Fin, _) => state,
        (AnswererClosed, Signal::Fin, Opener) => Closed,
        (_, Signal::Fin, Opener) => OpenerClosed,
        (OpenerClosed, Signal::Fin, Answerer) => Closed,
        (_, Signal::Fin, Answerer) => AnswererClosed,
        (Handshake, Signal::Plain, Opener) => Established,
        (New | PickedUp, Signal::Plain, Answerer) => Established,
        (_, Signal::Plain, _) => state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter per state, in the order of its number.
    const LETTERS: &str = "NHEOACXP";

    fn letter(state: State) -> char {
        LETTERS.as_bytes()[state as usize].into()
    }

    /// Every transition of TCP. N new, H handshake, E established, O opener closed, A answerer closed, C closed,
    /// X reset, P picked up.
    #[test]
    fn tcp_follows_the_table() {
        // Columns: ACK of opener and answerer, SYN of both, FIN of both, RST of both.
        let table = [
            ("N", "NE NH OA XX"),
            ("H", "EH HH OA XX"),
            ("E", "EE EE OA XX"),
            ("O", "OO OO OC XX"),
            ("A", "AA AA CA XX"),
            ("C", "CC NH CC XX"),
            ("X", "PE XX OA XX"),
            ("P", "PE PP OA XX"),
        ];
        for (state, (name, row)) in State::ALL.into_iter().zip(table) {
            assert_eq!(letter(state).to_string(), name);
            let mut actual = String::new();
            for flags in [ACK, SYN, FIN | ACK, RST] {
                for side in [Side::Opener, Side::Answerer] {
                    actual.push(letter(state.next(TCP, flags, side)));
                }
                actual.push(' ');
            }
            assert_eq!(actual.trim_end(), row, "from {state:?}");
        }
    }

    #[test]
    fn of_several_flags_reset_comes_first_and_then_syn() {
        for state in State::ALL {
            for side in [Side::Opener, Side::Answerer] {
                assert_eq!(state.next(TCP, RST | SYN | FIN | ACK, side), State::Reset);
                assert_eq!(state.next(TCP, SYN | FIN, side), state.next(TCP, SYN, side));
                // ACK, PSH, URG, ECE and CWR decide nothing.
                assert_eq!(state.next(TCP, 0xf8, side), state.next(TCP, 0, side));
            }
        }
    }

    #[test]
    fn the_first_packet_tells_where_a_connection_starts() {
        let cases = [
            (TCP, SYN, State::New),
            (TCP, SYN | ACK, State::New),
            (TCP, ACK, State::PickedUp),
            (TCP, FIN | ACK, State::OpenerClosed),
            (TCP, RST, State::Reset),
            (17, 0xff, State::New),
            (1, 0, State::New),
        ];
        for (protocol, flags, state) in cases {
            assert_eq!(
                State::first(protocol, flags),
                state,
                "{protocol} {flags:#x}"
            );
        }
    }

    /// Whatever one side sends, and however much: nothing but an answer makes its entry live long.
    #[test]
    fn nobody_establishes_a_connection_alone() {
        for protocol in [TCP, 17, 1, 47] {
            let mut reached = vec![];
            let mut next: Vec<State> = (0..=255)
                .map(|flags| State::first(protocol, flags))
                .collect();
            while let Some(state) = next.pop() {
                if !reached.contains(&state) {
                    reached.push(state);
                    next.extend((0..=255).map(|flags| state.next(protocol, flags, Side::Opener)));
                }
            }
            assert!(
                !reached.contains(&State::Established),
                "{protocol}: {reached:?}"
            );
            assert!(
                !reached.contains(&State::Handshake),
                "{protocol}: {reached:?}"
            );
        }
    }

    #[test]
    fn without_tcp_an_answer_establishes() {
        for protocol in [1, 17, 47, 58, 132] {
            let state = State::New;
            assert_eq!(state.next(protocol, RST, Side::Opener), State::New);
            let state = state.next(protocol, RST, Side::Answerer);
            assert_eq!(state, State::Established);
            assert_eq!(state.next(protocol, FIN, Side::Opener), State::Established);
        }
    }
}
