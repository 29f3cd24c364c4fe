//! What the loop guard tells of a packet between two VNFs.
//!
//! It falls by one at each forwarder and label-aware VNF, and few of these follow each other without a VNF between that knows no labels. So how much is left
//! also tells what became of the packet on its way: whether it was given back, and sent elsewhere then, and whether the forwarder that it was sent to passed it
//! on to who has taken its target over.
//!
//! ```text
//!        straight   passed on
//! first    64…49      48…33
//! again    32…25      24…17     after it came back once
//!          16…13      12…9      after it came back twice
//! back      7…4        3…1      for the first and the second time
//! ```

/// What is left at most.
const PASSED_ON: u8 = 48;
const AGAIN: u8 = 32;
const AGAIN_PASSED_ON: u8 = 24;
const TWICE: u8 = 16;
const TWICE_PASSED_ON: u8 = 12;
/// What a packet has that is given back: one less when it arrives.
const BACK: u8 = 8;
const BACK_TWICE: u8 = 4;

/// What is left of a packet's guard that is passed on to who has taken its target over.
#[inline]
pub(crate) const fn passed_on(guard: u8) -> u8 {
    match guard {
        guard if guard <= BACK => guard,
        guard if guard <= TWICE => min(guard, TWICE_PASSED_ON),
        guard if guard <= AGAIN => min(guard, AGAIN_PASSED_ON),
        _ => min(guard, PASSED_ON),
    }
}

/// Whether a packet that arrives was passed on: it does not come straight from where its connection's packets come from.
pub(crate) const fn was_passed_on(guard: u8) -> bool {
    matches!(guard, BACK..TWICE_PASSED_ON)
        || (guard > TWICE && guard < AGAIN_PASSED_ON)
        || (guard > AGAIN && guard < PASSED_ON)
}

/// Whether a packet that arrives is on its way back.
pub(crate) const fn is_back(guard: u8) -> bool {
    guard < BACK
}

/// What is left of a packet's guard that is given back; nothing where that has happened too often.
pub(crate) const fn back(guard: u8) -> Option<u8> {
    match guard {
        guard if guard < BACK => Some(guard),
        guard if guard <= TWICE => None,
        guard if guard <= AGAIN => Some(BACK_TWICE),
        _ => Some(BACK),
    }
}

/// What a packet's guard becomes that has come back and is sent elsewhere.
pub(crate) const fn again(guard: u8) -> u8 {
    match guard {
        ..BACK_TWICE => TWICE,
        _ => AGAIN,
    }
}

const fn min(one: u8, other: u8) -> u8 {
    if one < other { one } else { other }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::steering::LOOP_GUARD;

    /// As it arrives at the next forwarder.
    fn sent(guard: u8) -> u8 {
        guard - 1
    }

    #[test]
    fn a_packet_goes_back_twice_and_no_more() {
        let mut guard = sent(LOOP_GUARD);
        for _ in 0..2 {
            assert!(!is_back(guard) && !was_passed_on(guard));
            for times in 0..4 {
                let mut back = sent(back(guard).unwrap());
                // As far back as it was passed on.
                for _ in 0..2 {
                    assert!(is_back(back), "{guard}, passed on {times} times");
                    back = sent(super::back(back).unwrap());
                }
                guard = sent(passed_on(guard));
                assert!(was_passed_on(guard) && !is_back(guard));
            }
            guard = sent(again(sent(back(guard).unwrap())));
        }
        assert!(!is_back(guard) && !was_passed_on(guard));
        assert_eq!(back(guard), None);
    }

    #[test]
    fn nothing_but_another_try_gives_a_packet_more() {
        for guard in 1..=LOOP_GUARD {
            assert!(passed_on(guard) <= guard);
            assert!(back(guard).is_none_or(|back| back <= guard));
            // By the time it is tried again it has come back once more than before.
            let tried = back(guard).map(|back| again(sent(back.max(2))));
            assert!(
                is_back(guard) || tried.is_none_or(|tried| tried < guard),
                "{guard}"
            );
        }
    }
}
