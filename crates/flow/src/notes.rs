//! What a packet makes of its connection's state and age, worked out once a second for every case.
//!
//! ```text
//!   8     7 6       4 3               1     0
//!  +-------+---------+-----------------+-----------+
//!  | class |  state  | RST, SYN, FIN   |   side    |
//!  +-------+---------+-----------------+-----------+
//! ```
//! is a case's number. The flags count for TCP alone.

use crate::entry::{AGE_SHIFT, PLACE_MASK, STATE_SHIFT};
use crate::state::{Class, Side, State};
use crate::timers::Ages;

const CASES: usize = 4 * 8 * 8 * 2;
const CLASS_SHIFT: u32 = 7;
const STATE_AT: u32 = 4;
/// A protocol of each class, in the classes' order.
const PROTOCOLS: [u8; 4] = [6, 17, 1, 255];

/// State and age, where a head has them, after a packet of this second.
pub(crate) struct Notes {
    now: u32,
    after: [u16; CASES],
}

impl Notes {
    /// Those of a second.
    pub(crate) fn new(ages: &Ages, now: u32) -> Notes {
        let mut after = [0; CASES];
        for (class, protocol) in PROTOCOLS.into_iter().enumerate() {
            for state in State::ALL {
                for case in 0..16u8 {
                    let side = match case & 1 {
                        0 => Side::Opener,
                        _ => Side::Answerer,
                    };
                    let next = state.next(protocol, case >> 1, side);
                    let age = ages.stamp(protocol, next, now) as u16;
                    let index = class << CLASS_SHIFT | (state as usize) << STATE_AT;
                    after[index | usize::from(case)] =
                        (next as u16) << STATE_SHIFT | age << AGE_SHIFT;
                }
            }
        }
        Notes { now, after }
    }

    /// Whether they are of a second.
    #[inline(always)]
    pub(crate) fn is_of(&self, now: u32) -> bool {
        self.now == now
    }

    /// The lowest 16 bits of an entry's head after a packet, which were `low`, and the state they hold.
    #[inline(always)]
    pub(crate) fn after(&self, protocol: u8, low: u16, tcp_flags: u8, side: Side) -> (u16, State) {
        let class = Class::of(protocol) as usize;
        let state = usize::from(low >> STATE_SHIFT) & 7;
        let event = (tcp_flags as usize & 7) << 1 | side as usize;
        let index = class << CLASS_SHIFT | state << STATE_AT | event;
        let after = self.after[index % CASES];
        let keep = 0xf000 | PLACE_MASK as u16;
        let state = State::from_bits((after >> STATE_SHIFT) as u8);
        (low & keep | after, state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{low_with, state_of};
    use crate::timers::Timeouts;

    #[test]
    fn notes_say_what_state_and_timers_say() {
        let ages = Ages::new(&Timeouts::default()).unwrap();
        for now in [0, 1, 12_345, u32::MAX] {
            let notes = Notes::new(&ages, now);
            for protocol in [6u8, 17, 1, 58, 0, 47, 255] {
                for low in 0..0x400u64 {
                    let head = 0x0012_0000_3456_a000 | low;
                    for flags in [0, 1, 2, 3, 4, 5, 6, 7, 0x10, 0x12, 0xff] {
                        for side in [Side::Opener, Side::Answerer] {
                            let next = state_of(head).next(protocol, flags, side);
                            let age = ages.stamp(protocol, next, now);
                            assert_eq!(
                                notes.after(protocol, head as u16, flags, side),
                                (low_with(head, next, age), next)
                            );
                        }
                    }
                }
            }
        }
    }
}
