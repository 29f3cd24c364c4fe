//! One end of a stage: who can be chosen, and the choice.
//!
//! A connection chooses a site first, and then one of the site's targets. A forwarder sees the targets of its own site one by one and
//! those of another as that site's forwarders; since the site is drawn by its name and its whole weight, both draw the same one.

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
    /// Where it is.
    pub site: String,
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
    draw: Draw,
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
            draw: Draw::new(seed, targets.iter())?,
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
        self.draw.choose(connection)
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
        let matching = self
            .targets
            .iter()
            .filter(eligible)
            .filter(|target| length(target) == Some(best));
        Draw::new(self.seed, matching)?.choose(connection)
    }

    /// Whether there is anyone to choose.
    pub fn is_empty(&self) -> bool {
        self.targets.iter().all(|target| target.weight == 0)
    }
}

/// The seed of the draws for one element of a path: the ingress edge (0), a VNF, or the egress edge. With one seed for all, a site that
/// won at one VNF would be likelier to win at the next, and shares would not be what routes say.
pub fn seed_for(seed: [u8; 16], element: u32) -> [u8; 16] {
    let hash = SipHash13::new(seed);
    let mut own = [0; 16];
    own[..8].copy_from_slice(&hash.hash_words([element.into(), 0]).to_le_bytes());
    own[8..].copy_from_slice(&hash.hash_words([element.into(), 1]).to_le_bytes());
    own
}

/// The two draws of a connection.
struct Draw {
    sites: Chooser,
    /// Of each site, its targets.
    within: Vec<(Chooser, Vec<HopId>)>,
}

impl Draw {
    fn new<'a>(seed: [u8; 16], targets: impl Iterator<Item = &'a Target>) -> Option<Draw> {
        let mut by_site: Vec<(&str, Vec<&Target>)> = Vec::new();
        for target in targets {
            match by_site.iter_mut().find(|(site, _)| *site == target.site) {
                Some((_, list)) => list.push(target),
                None => by_site.push((&target.site, vec![target])),
            }
        }
        let member = |identity: &str, weight| Member {
            id: identity_hash(seed, identity),
            weight,
        };
        let whole = |list: &[&Target]| list.iter().map(|t| u32::from(t.weight)).sum::<u32>();
        let heaviest = by_site.iter().map(|(_, list)| whole(list)).max();
        let weights = scale(heaviest.unwrap_or(0));
        let sites: Vec<Member> = by_site
            .iter()
            .map(|(site, list)| member(site, weights(whole(list))))
            .collect();
        let within = |(_, list): &(&str, Vec<&Target>)| {
            let members: Vec<Member> = list.iter().map(|t| member(&t.identity, t.weight)).collect();
            let hops = list.iter().map(|target| target.hop).collect();
            Some((Chooser::new(seed, &members).ok()?, hops))
        };
        Some(Draw {
            sites: Chooser::new(seed, &sites).ok()?,
            within: by_site.iter().map(within).collect::<Option<_>>()?,
        })
    }

    #[inline]
    fn choose(&self, connection: u64) -> Option<HopId> {
        let (targets, hops) = &self.within[self.sites.choose(connection)?];
        Some(hops[targets.choose(connection)?])
    }
}

/// Makes weights up to `heaviest` ones of 16 bits; what has a weight keeps one.
fn scale(heaviest: u32) -> impl Fn(u32) -> u16 {
    let surplus = (u32::BITS - heaviest.leading_zeros()).saturating_sub(u16::BITS);
    move |weight| (weight >> surplus).max(weight.min(1)) as u16
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
            site: "here".to_string(),
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

    /// What a forwarder of the site sees, and what one elsewhere sees: both choose the same site, by its whole weight.
    #[test]
    fn a_site_is_the_same_choice_whether_its_targets_are_seen_or_its_forwarders() {
        let at = |hop, site: &str, weight| Target {
            site: site.to_string(),
            ..target(hop, weight, &[])
        };
        let inside = [
            at(0, "here", 30_000),
            at(1, "here", 60_000),
            at(2, "there", 45_000),
        ];
        let outside = [at(3, "here", 30_000), at(4, "there", 15_000)];
        let [inside, outside] =
            [inside.to_vec(), outside.to_vec()].map(|list| Targets::new([7; 16], list).unwrap());
        let mut here = 0;
        for connection in 0..10_000u64 {
            let hash = connection.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let destination = || "192.0.2.1".parse().unwrap();
            let chosen = [&inside, &outside].map(|list| list.choose(hash, destination).unwrap());
            assert_eq!(chosen[0] == HopId(2), chosen[1] == HopId(4));
            here += usize::from(chosen[1] == HopId(3));
        }
        assert!((6400..6900).contains(&here), "{here}");
    }

    #[test]
    fn nobody_can_be_chosen_from_an_empty_list() {
        let targets = Targets::new([7; 16], vec![target(0, 0, &[])]).unwrap();
        assert!(targets.is_empty());
        assert_eq!(targets.choose(1, || "192.0.2.1".parse().unwrap()), None);
    }
}
