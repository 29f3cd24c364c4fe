//! One end of a stage: who can be chosen, and the choice.

use crate::prefix::{Prefix, longest};
use crate::registry::HopId;
use flow::consistent_hash::{Chooser, Member};
use flow::siphash::SipHash13;
use std::net::IpAddr;

/// A hop that can be chosen.
#[derive(Clone, Debug)]
pub struct Target {
    /// Which.
    pub hop: HopId,
    /// Its lasting name, the same at every forwarder.
    pub identity: String,
    /// Share relative to the others; 0 is never chosen.
    pub weight: u16,
    /// Destinations behind it; empty for all.
    pub prefixes: Vec<Prefix>,
}

/// Targets that a connection chooses from by weighted consistent hash.
pub struct Targets {
    targets: Vec<Target>,
    chooser: Chooser,
    seed: [u8; 16],
    by_prefix: bool,
}

impl std::fmt::Debug for Targets {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(&self.targets).finish()
    }
}

impl Targets {
    /// Prepares a list. Nothing when it is longer than 65 536.
    pub fn new(seed: [u8; 16], targets: Vec<Target>) -> Option<Targets> {
        Some(Targets {
            chooser: chooser(seed, &targets)?,
            by_prefix: targets.iter().any(|target| !target.prefixes.is_empty()),
            targets,
            seed,
        })
    }

    /// The hop for a connection whose packet goes to `destination`, given its hash.
    #[inline]
    pub fn choose(&self, connection: u64, destination: impl FnOnce() -> IpAddr) -> Option<HopId> {
        if self.by_prefix {
            return self.choose_by_prefix(connection, destination());
        }
        let index = self.chooser.choose(connection)?;
        Some(self.targets[index].hop)
    }

    /// The longest prefix wins; among equals the hash decides.
    #[cold]
    fn choose_by_prefix(&self, connection: u64, destination: IpAddr) -> Option<HopId> {
        let length = |target: &Target| {
            if target.prefixes.is_empty() {
                Some(0)
            } else {
                longest(&target.prefixes, destination)
            }
        };
        let eligible = |target: &&Target| target.weight > 0;
        let best = self
            .targets
            .iter()
            .filter(eligible)
            .filter_map(length)
            .max()?;
        let matching: Vec<Target> = self
            .targets
            .iter()
            .filter(eligible)
            .filter(|target| length(target) == Some(best))
            .cloned()
            .collect();
        let index = chooser(self.seed, &matching)?.choose(connection)?;
        Some(matching[index].hop)
    }

    /// Whether there is anyone to choose.
    pub fn is_empty(&self) -> bool {
        self.targets.iter().all(|target| target.weight == 0)
    }
}

fn chooser(seed: [u8; 16], targets: &[Target]) -> Option<Chooser> {
    let members: Vec<Member> = targets
        .iter()
        .map(|target| Member {
            id: identity_hash(seed, &target.identity),
            weight: target.weight,
        })
        .collect();
    Chooser::new(seed, &members).ok()
}

fn identity_hash(seed: [u8; 16], identity: &str) -> u64 {
    let words = identity.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    SipHash13::new(seed).hash_words(words.chain([identity.len() as u64]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(hop: u16, weight: u16, prefixes: &[&str]) -> Target {
        Target {
            hop: HopId(hop),
            identity: format!("instance-{hop}"),
            weight,
            prefixes: prefixes
                .iter()
                .map(|prefix| prefix.parse().unwrap())
                .collect(),
        }
    }

    fn shares(targets: &Targets, destination: &str) -> Vec<usize> {
        let mut shares = vec![0; 4];
        for connection in 0..10_000u64 {
            let hash = connection.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if let Some(hop) = targets.choose(hash, || destination.parse().unwrap()) {
                shares[hop.index()] += 1;
            }
        }
        shares
    }

    #[test]
    fn connections_spread_by_weight() {
        let list = vec![target(0, 300, &[]), target(1, 100, &[]), target(2, 0, &[])];
        let shares = shares(&Targets::new([7; 16], list).unwrap(), "192.0.2.1");
        assert!((7200..7800).contains(&shares[0]), "{shares:?}");
        assert_eq!(shares[2], 0);
    }

    #[test]
    fn the_longest_prefix_wins() {
        let list = vec![
            target(0, 100, &["10.0.0.0/8"]),
            target(1, 100, &["10.1.0.0/16"]),
            target(2, 100, &[]),
        ];
        let targets = Targets::new([7; 16], list).unwrap();
        assert_eq!(shares(&targets, "10.1.2.3"), [0, 10_000, 0, 0]);
        assert_eq!(shares(&targets, "10.2.2.3"), [10_000, 0, 0, 0]);
        assert_eq!(shares(&targets, "192.0.2.1"), [0, 0, 10_000, 0]);
    }

    #[test]
    fn nobody_can_be_chosen_from_an_empty_list() {
        let targets = Targets::new([7; 16], vec![target(0, 0, &[])]).unwrap();
        assert!(targets.is_empty());
        assert_eq!(targets.choose(1, || "192.0.2.1".parse().unwrap()), None);
    }
}
