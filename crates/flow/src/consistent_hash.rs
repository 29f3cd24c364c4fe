//! Weighted consistent hashing: a connection's choice as a pure function of its 5-tuple, the members' identities and
//! weights, and a seed. Whoever has the same four things makes the same choice: another forwarder, the same one after
//! a restart, or one whose flow table is full.
//!
//! Connections fall into 65 536 cells by their hash. In each cell every member draws an exponential variate *E* from
//! its identity and the cell, and the smallest *E* ∕ weight wins (rendezvous hashing with the logarithmic method: a
//! member wins a share of cells proportional to its weight). A member's score depends on nothing but itself, so that
//!
//! - a member that leaves, or whose weight falls, loses cells to the others, and nothing else moves;
//! - a member that comes, or whose weight rises, takes cells from the others, and nothing else moves.
//!
//! Arithmetic is in integers, hence equal on every machine. A share *p* of the weights gets *p* of the cells within
//! a relative standard deviation of √((1 − p) ∕ (65 536 *p*)): 0.4 % for one of two, 1.2 % for one of ten.

use crate::key::FlowKey;
use crate::siphash::SipHash13;

/// Cells that connections fall into.
pub const CELLS: usize = 1 << 16;

/// Up to this many members are compared one by one; more get a table of all cells, 128 KB.
const COMPARED: usize = 8;

/// Something that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Hash of the member's lasting identity: not of its place in a list.
    pub id: u64,
    /// Its share relative to the other members' weights; 0 is never chosen.
    pub weight: u16,
}

/// Hashes connections for [`Chooser::choose`]. Path and stage do not count: they are interned differently elsewhere.
#[derive(Clone, Copy)]
pub struct ConnectionHash(SipHash13);

impl ConnectionHash {
    /// The function for a seed, which must be the same wherever choices are to agree, and secret.
    pub const fn new(seed: [u8; 16]) -> Self {
        Self(SipHash13::new(seed))
    }

    /// The hash of a connection's 5-tuple in forward orientation.
    #[inline]
    pub fn of<K: FlowKey>(&self, key: &K) -> u64 {
        const PROTOCOL_AND_PORTS: u64 = (1 << 40) - 1;
        let blocks = K::blocks(key.head() & PROTOCOL_AND_PORTS, key.addresses());
        let words = blocks
            .as_ref()
            .iter()
            .flat_map(|block| [*block as u64, (*block >> 64) as u64]);
        self.0.hash_words(words)
    }
}

/// A member that can win.
#[derive(Clone, Copy)]
struct Candidate {
    /// What its draws depend on: its identity under the seed.
    key: u64,
    id: u64,
    weight: u64,
    index: u16,
}

/// A list of members, ready to be chosen from.
#[derive(Clone)]
pub struct Chooser {
    candidates: Box<[Candidate]>,
    /// Winner of each cell; empty if there are few candidates.
    winners: Box<[u16]>,
}

/// More members than a [`Chooser`] can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyMembers {
    /// Members given; at most 65 536 may be.
    pub given: usize,
}

impl std::fmt::Display for TooManyMembers {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{} members to choose from; at most {} can be",
            self.given,
            usize::from(u16::MAX) + 1
        )
    }
}

impl std::error::Error for TooManyMembers {}

impl Chooser {
    /// Prepares a list. With more than eight members that takes some 0.2 ms each.
    ///
    /// # Errors
    /// There are more than 65 536 members.
    pub fn new(seed: [u8; 16], members: &[Member]) -> Result<Self, TooManyMembers> {
        let mut chooser = Self::compared(seed, members)?;
        if chooser.candidates.len() > COMPARED {
            chooser.winners = (0..CELLS as u64)
                .filter_map(|cell| chooser.winner(cell, |_| true))
                .collect();
        }
        Ok(chooser)
    }

    /// Prepares a list whose members are compared one by one, however many they are: it costs no table, and each choice
    /// some nanoseconds for each member.
    ///
    /// # Errors
    /// There are more than 65 536 members.
    pub fn compared(seed: [u8; 16], members: &[Member]) -> Result<Self, TooManyMembers> {
        let sip = SipHash13::new(seed);
        let candidate = |(index, member): (usize, &Member)| {
            let index = u16::try_from(index).map_err(|_| TooManyMembers {
                given: members.len(),
            })?;
            let key = sip.hash_words([member.id]);
            Ok(Candidate {
                key,
                id: member.id,
                weight: u64::from(member.weight),
                index,
            })
        };
        let candidates: Box<[Candidate]> = members
            .iter()
            .enumerate()
            .filter(|(_, member)| member.weight > 0)
            .map(candidate)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            candidates,
            winners: Box::default(),
        })
    }

    /// Index, in the list that was given, of the member for a connection; nothing if no member has a weight.
    #[inline]
    pub fn choose(&self, connection: u64) -> Option<usize> {
        let cell = connection >> 48;
        match self.winners.get(cell as usize) {
            Some(&winner) => Some(usize::from(winner)),
            None => self.winner(cell, |_| true).map(usize::from),
        }
    }

    /// The same among the members that are `eligible` alone. Whoever wins among more of them and is eligible wins here.
    pub fn choose_among(&self, connection: u64, eligible: impl Fn(usize) -> bool) -> Option<usize> {
        self.winner(connection >> 48, eligible).map(usize::from)
    }

    #[inline]
    fn winner(&self, cell: u64, eligible: impl Fn(usize) -> bool) -> Option<u16> {
        let mut candidates = self.candidates.iter();
        let first = candidates.find(|candidate| eligible(usize::from(candidate.index)))?;
        if candidates.as_slice().is_empty() {
            return Some(first.index);
        }
        let mut best = (first, draw(first.key, cell));
        for candidate in candidates.filter(|candidate| eligible(usize::from(candidate.index))) {
            let drawn = draw(candidate.key, cell);
            // E ∕ weight, compared without dividing: 38 bits by 16.
            let (mine, its) = (drawn * best.0.weight, best.1 * candidate.weight);
            if mine < its || (mine == its && candidate.id < best.0.id) {
                best = (candidate, drawn);
            }
        }
        Some(best.0.index)
    }
}

/// An exponential variate, in units of 2^-32 (times the logarithm of 2): −log2 of a uniform number.
#[inline]
fn draw(key: u64, cell: u64) -> u64 {
    let mut word = key ^ cell.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^= word >> 31;
    // Never zero, so that there is a leading one.
    let word = word | 1;
    let zeros = word.leading_zeros();
    let mantissa = word << zeros << 1;
    u64::from(zeros + 1) * (1 << 32) - log2_fraction(mantissa)
}

/// log2(1 + `fraction` ∕ 2^64) × 2^32, within 2^-18: by a table of 256 steps, straight in between.
#[inline]
fn log2_fraction(fraction: u64) -> u64 {
    let step = (fraction >> 56) as usize;
    let within = fraction >> 24 & 0xffff_ffff;
    let (low, high) = (LOG2[step], LOG2[step + 1]);
    low + (((high - low) * within) >> 32)
}

/// log2(1 + *i* ∕ 256) × 2^32.
static LOG2: [u64; 257] = {
    let mut table = [0; 257];
    let mut i = 0;
    while i < 256 {
        table[i] = log2_bits(256 + i as u128);
        i += 1;
    }
    table[256] = 1 << 32;
    table
};

/// log2(`numerator` ∕ 256) × 2^32 for 1 ≤ `numerator` ∕ 256 < 2, bit by bit: squaring doubles the logarithm.
const fn log2_bits(numerator: u128) -> u64 {
    let mut x = numerator << 54;
    let mut result = 0;
    let mut bit = 0;
    while bit < 32 {
        x = (x * x) >> 62;
        result <<= 1;
        if x >= 2 << 62 {
            x >>= 1;
            result |= 1;
        }
        bit += 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Ipv4Key, Ipv6Key};

    const SEED: [u8; 16] = *b"a seed for tests";

    fn members(weights: &[u16]) -> Vec<Member> {
        weights
            .iter()
            .enumerate()
            .map(|(i, &weight)| Member {
                id: 0xabc0 + i as u64 * 7919,
                weight,
            })
            .collect()
    }

    /// The winner's identity in each cell.
    fn winners(members: &[Member]) -> Vec<Option<u64>> {
        let chooser = Chooser::new(SEED, members).unwrap();
        (0..CELLS as u64)
            .map(|cell| {
                chooser
                    .choose(cell << 48 | 12345)
                    .map(|index| members[index].id)
            })
            .collect()
    }

    #[test]
    fn logarithms_are_those_of_the_mathematics_library() {
        for i in 0..10_000u64 {
            let fraction = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let exact = (1.0 + fraction as f64 / 2f64.powi(64)).log2();
            let ours = log2_fraction(fraction) as f64 / 2f64.powi(32);
            assert!(
                (exact - ours).abs() < 2f64.powi(-18),
                "{fraction}: {exact} {ours}"
            );
        }
    }

    #[test]
    fn members_win_in_proportion_to_their_weights() {
        let many: Vec<u16> = (1..=40).map(|i| i * 100).collect();
        let lists: [&[u16]; 7] = [
            &[1, 1],
            &[65535, 1],
            &[10, 20, 30, 40],
            &[1; 8],
            &[1; 9],
            &many,
            &[0, 5, 0, 0, 15, 0, 60],
        ];
        for weights in lists {
            let total: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
            let list = members(weights);
            let won = winners(&list);
            for member in &list {
                let share = f64::from(member.weight) / total;
                let count = won
                    .iter()
                    .filter(|&&winner| winner == Some(member.id))
                    .count() as f64;
                let (mean, deviation) = (
                    share * CELLS as f64,
                    (share * (1.0 - share) * CELLS as f64).sqrt(),
                );
                assert!(
                    (count - mean).abs() <= 4.5 * deviation,
                    "{weights:?} {member:?}: {count}, not {mean}"
                );
            }
        }
    }

    #[test]
    fn nothing_moves_but_to_or_from_the_member_that_changed() {
        for size in [2, 3, 8, 9, 20] {
            let weights: Vec<u16> = (0..size).map(|i| 10 + 13 * i % 29).collect();
            let list = members(&weights);
            let before = winners(&list);
            for changed in [0, size as usize / 2, size as usize - 1] {
                let id = list[changed].id;
                let mut without = list.clone();
                without.remove(changed);
                let mut halved = list.clone();
                halved[changed].weight /= 2;
                let (without, halved) = (winners(&without), winners(&halved));
                for cell in 0..CELLS {
                    if before[cell] != Some(id) {
                        // Those it had not won stay; read backwards: when it comes, it only takes.
                        assert_eq!(without[cell], before[cell]);
                        assert_eq!(halved[cell], before[cell]);
                    }
                    assert_ne!(without[cell], Some(id));
                }
                let kept = (0..CELLS).filter(|&cell| halved[cell] == Some(id)).count();
                let had = (0..CELLS).filter(|&cell| before[cell] == Some(id)).count();
                assert!(kept < had && kept > had / 4, "{kept} of {had}");
            }
        }
    }

    #[test]
    fn order_does_not_count_and_few_or_many_members_are_the_same_function() {
        let list = members(&[3, 1, 4, 1, 5, 9, 2, 6]);
        let mut reversed = list.clone();
        reversed.reverse();
        assert_eq!(winners(&list), winners(&reversed));
        // A ninth member brings the table of cells; a weight of zero must change nothing.
        let chooser = Chooser::new(SEED, &list).unwrap();
        let mut with_ninth = list.clone();
        with_ninth.push(Member { id: 99, weight: 1 });
        let tabled = Chooser::new(SEED, &with_ninth).unwrap();
        assert!(chooser.winners.is_empty() && tabled.winners.len() == CELLS);
        for cell in 0..CELLS as u64 {
            if tabled.choose(cell << 48) != Some(8) {
                assert_eq!(tabled.choose(cell << 48), chooser.choose(cell << 48));
            }
        }
    }

    #[test]
    fn a_choice_among_some_is_that_of_a_list_of_these() {
        let list = members(&[3, 1, 4, 0, 5, 9, 2, 6, 5, 3]);
        let odd: Vec<Member> = list.iter().skip(1).step_by(2).copied().collect();
        let every = Chooser::new(SEED, &list).unwrap();
        let compared = Chooser::compared(SEED, &list).unwrap();
        let of_odd = Chooser::new(SEED, &odd).unwrap();
        assert!(compared.winners.is_empty() && !every.winners.is_empty());
        for connection in (0..CELLS as u64).map(|cell| cell << 48) {
            assert_eq!(compared.choose(connection), every.choose(connection));
            let among = compared.choose_among(connection, |index| index % 2 == 1);
            assert_eq!(among, of_odd.choose(connection).map(|i| 2 * i + 1));
            assert_eq!(every.choose_among(connection, |_| false), None);
        }
    }

    #[test]
    fn without_weight_nobody_is_chosen() {
        assert_eq!(Chooser::new(SEED, &[]).unwrap().choose(1), None);
        assert_eq!(
            Chooser::new(SEED, &members(&[0, 0])).unwrap().choose(1),
            None
        );
        let most = vec![Member { id: 1, weight: 1 }; 65_537];
        assert_eq!(
            Chooser::new(SEED, &most).err(),
            Some(TooManyMembers { given: 65_537 })
        );
    }

    #[test]
    fn choices_are_the_same_in_every_build() {
        let hash = ConnectionHash::new(SEED);
        let key = Ipv4Key::new(1, 0x0a00_0001, 0x0a00_0002, 6, 1000, 80);
        let elsewhere = Ipv4Key::new(2, 0x0a00_0001, 0x0a00_0002, 6, 1000, 80);
        let other = Ipv4Key::new(1, 0x0a00_0001, 0x0a00_0002, 6, 1001, 80);
        assert_eq!(hash.of(&key), hash.of(&elsewhere));
        assert_ne!(hash.of(&key), hash.of(&other));
        assert_ne!(
            hash.of(&Ipv6Key::new(1, 1, 2, 6, 1000, 80)),
            hash.of(&Ipv6Key::new(1, 2, 1, 6, 1000, 80))
        );
        let chooser = Chooser::new(SEED, &members(&[1, 2, 3, 4])).unwrap();
        let chosen: Vec<_> = (0..16)
            .map(|cell| chooser.choose(cell << 60))
            .map(Option::unwrap)
            .collect();
        // Forwarders of different versions must agree: these numbers may never change.
        assert_eq!(hash.of(&key), 8184312479321722965);
        assert_eq!(chosen, [1, 3, 3, 2, 3, 0, 2, 1, 2, 3, 3, 1, 3, 3, 2, 3]);
    }
}
