//! Every frame ends in one place: it is sent, kept, read or answered, cut, or in exactly one drop counter.

use forwarder::counters::Counters;
use std::ops::Sub;

/// Events that end a frame: it is read, or read and answered, or another forwarder's to take.
const ENDS: [&str; 4] = [
    "neighbour_answered",
    "neighbour_heard",
    "echo_answered",
    "taken_elsewhere",
];
/// Events with which a frame is made here that is no part of a received one.
const ANSWERS: [&str; 2] = ["neighbour_asked", "icmp_error_sent"];

/// What the counters say.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    pub drops: u64,
    pub ends: u64,
    answers: u64,
    fragmented: u64,
    segmented: u64,
    kept: u64,
    too_long: u64,
}

impl Account {
    pub fn of(counters: &Counters) -> Account {
        let event = |wanted: &str| {
            let found = counters.events().find(|(name, _)| *name == wanted);
            found.map_or(0, |(_, count)| count)
        };
        let events = |names: &[&str]| names.iter().map(|name| event(name)).sum();
        let too_long = counters
            .drops()
            .filter(|(name, ..)| *name == "mtu_exceeded");
        Account {
            drops: counters.drop_total(),
            ends: events(&ENDS),
            answers: events(&ANSWERS),
            fragmented: event("fragmented"),
            segmented: event("segmented"),
            kept: event("neighbour_wait"),
            too_long: too_long.map(|(.., count)| count).sum(),
        }
    }

    /// A frame that is neither sent nor kept was consumed, cut into fragments, or is in one drop counter. This is what happened while a
    /// burst arrived in which nothing was cut into segments.
    pub fn check_frames(&self, destroyed: u64) {
        assert_eq!(
            self.segmented, 0,
            "a frame of one segment is not cut into some: {self:?}"
        );
        let ends = self.ends + self.fragmented + self.drops;
        // Of a frame that was cut, a fragment may find no place to wait; it is a packet and a drop of its own.
        let parts = self.fragmented.min(self.drops);
        assert!(
            destroyed <= ends && ends <= destroyed + parts,
            "{destroyed} frames are gone: {self:?}"
        );
    }

    /// The same while one frame of so many segments arrived, and `made` frames were made: each segment left, was kept, was cut once more, or
    /// is in one drop counter.
    pub fn check_segments(&self, destroyed: u64, segments: Option<usize>, made: usize) {
        if self.segmented == 0 {
            return self.check_frames(destroyed);
        }
        let segments = segments.expect("only what is of several segments is cut") as u64;
        assert_eq!(
            (self.segmented, destroyed, self.ends),
            (1, 1, 0),
            "{self:?}"
        );
        // Answers wait for neighbours, too.
        let left = made as u64 + self.kept - self.answers;
        match self.fragmented {
            // The first is too long for its way, and so are the others: they are answered, and dropped, as one.
            0 if self.too_long > 0 => assert_eq!((left, self.drops), (0, 1), "{self:?}"),
            0 => assert_eq!(left + self.drops, segments, "{made} made: {self:?}"),
            cut => {
                // All but the last, which may be shorter; none behind one that finds no place.
                let all = (cut..=cut + 1).contains(&segments) || cut <= segments && self.drops > 0;
                let pieces = left + 2 * self.drops >= 2 * cut;
                assert!(all && pieces, "{segments} segments, {made} made: {self:?}");
            }
        }
    }
}

impl Sub for Account {
    type Output = Account;

    fn sub(self, before: Account) -> Account {
        Account {
            drops: self.drops - before.drops,
            ends: self.ends - before.ends,
            answers: self.answers - before.answers,
            fragmented: self.fragmented - before.fragmented,
            segmented: self.segmented - before.segmented,
            kept: self.kept - before.kept,
            too_long: self.too_long - before.too_long,
        }
    }
}
