//! One end of a stage: who can be chosen, and the choice.
//!
//! A connection chooses a site first, then one of the site's forwarders, then one of its targets. A forwarder sees its own targets one
//! by one and those of others as these forwarders; since each is drawn by its name and its whole weight, all draw the same ones. The
//! site is where the connection's route leads ([`crate::routes`]); sites are drawn by their weights where no route is known.

use crate::prefix::{Prefix, longest};
use crate::registry::HopId;
use crate::routes::{Leg, RouteDraw};
use flow::consistent_hash::{Chooser, Member};
use flow::siphash::SipHash13;
use std::net::IpAddr;

/// A hop that can be chosen.
#[derive(Clone, Debug)]
pub struct Target {
    /// Which.
    pub hop: HopId,
    /// The forwarder that has it: `<site>/<forwarder>`.
    pub forwarder: String,
    /// Its lasting name, the same at every forwarder.
    pub identity: String,
    /// Share relative to the others; 0 is never chosen.
    pub weight: u16,
    /// Destinations behind it; empty for all.
    pub prefixes: Vec<Prefix>,
}

impl Target {
    /// The site that has it.
    pub(crate) fn site(&self) -> &str {
        self.forwarder.split('/').next().unwrap_or_default()
    }
}

/// Targets that a connection chooses from by weighted consistent hash.
pub struct Targets {
    targets: Vec<Target>,
    draw: Draw,
    seed: [u8; 16],
    by_prefix: bool,
    sole: Option<HopId>,
}

impl std::fmt::Debug for Targets {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(&self.targets).finish()
    }
}

impl Targets {
    /// Prepares the list of an element of a path. Nothing when it is longer than 65 536.
    pub fn new(selection_seed: [u8; 16], element: u32, targets: Vec<Target>) -> Option<Targets> {
        let seed = seed_for(selection_seed, element);
        let by_prefix = targets.iter().any(|target| !target.prefixes.is_empty());
        Some(Targets {
            draw: Draw::new(seed, targets.iter())?,
            by_prefix,
            sole: if by_prefix { None } else { sole(&targets) },
            targets,
            seed,
        })
    }

    /// Lets a path's routes choose the site.
    pub fn along(mut self, selection_seed: [u8; 16], leg: Leg<'_>) -> Targets {
        let by_site = grouped(self.targets.iter(), Target::site);
        let sites: Vec<_> = by_site
            .iter()
            .map(|(site, list)| (*site, whole(list) > 0))
            .collect();
        self.draw.routes = RouteDraw::new(selection_seed, leg, &sites);
        let leads_on = self.draw.routes.as_ref().is_none_or(RouteDraw::leads_on);
        self.sole = self.sole.filter(|_| leads_on);
        self
    }

    /// The hop of every connection, where there is but one that can be chosen.
    #[inline]
    pub fn sole(&self) -> Option<HopId> {
        self.sole
    }

    /// The hop for a connection, given its hash. `source` is its in forward direction; its packet goes to `destination`.
    #[inline]
    pub fn choose(
        &self,
        connection: u64,
        source: impl FnOnce() -> IpAddr,
        destination: impl FnOnce() -> IpAddr,
    ) -> Option<HopId> {
        if self.by_prefix {
            return self.choose_by_prefix(connection, destination(), None);
        }
        self.draw.choose(connection, source)
    }

    /// Another hop than one that is of no use, by weights. The packet goes to `destination`.
    #[cold]
    pub fn choose_other(&self, connection: u64, destination: IpAddr, than: HopId) -> Option<HopId> {
        self.choose_by_prefix(connection, destination, Some(than))
    }

    /// The longest prefix wins; among equals the hash decides.
    #[cold]
    fn choose_by_prefix(
        &self,
        connection: u64,
        destination: IpAddr,
        except: Option<HopId>,
    ) -> Option<HopId> {
        let length = |target: &Target| {
            if target.prefixes.is_empty() {
                Some(0)
            } else {
                longest(&target.prefixes, destination)
            }
        };
        let eligible = |target: &&Target| target.weight > 0 && Some(target.hop) != except;
        let best = self
            .targets
            .iter()
            .filter(eligible)
            .filter_map(length)
            .max()?;
        let mut matching = self
            .targets
            .iter()
            .filter(eligible)
            .filter(|target| length(target) == Some(best));
        let (first, second) = (matching.next()?, matching.next());
        let Some(second) = second else {
            return Some(first.hop);
        };
        let matching = [first, second].into_iter().chain(matching);
        Draw::new(self.seed, matching)?.choose_by_weight(connection)
    }

    /// Whether there is anyone to choose.
    pub fn is_empty(&self) -> bool {
        self.targets.iter().all(|target| target.weight == 0)
    }
}

/// The one that has a weight, if there is one and no more.
fn sole(targets: &[Target]) -> Option<HopId> {
    let mut eligible = targets.iter().filter(|target| target.weight > 0);
    match (eligible.next(), eligible.next()) {
        (Some(target), None) => Some(target.hop),
        _ => None,
    }
}

/// The seed of the draws for one element of a path, the ingress edge (0), a VNF or the egress edge, or for its routes. With one seed for all, a site that
/// won at one VNF would be likelier to win at the next, and shares would not be what routes say.
pub fn seed_for(seed: [u8; 16], element: u32) -> [u8; 16] {
    let hash = SipHash13::new(seed);
    let mut own = [0; 16];
    own[..8].copy_from_slice(&hash.hash_words([element.into(), 0]).to_le_bytes());
    own[8..].copy_from_slice(&hash.hash_words([element.into(), 1]).to_le_bytes());
    own
}

/// The draws of a connection, one inside the other.
struct Draw {
    sites: Chooser,
    /// Nothing where no route leads on from here.
    routes: Option<RouteDraw>,
    within: Vec<Site>,
}

/// The draws inside a site.
struct Site {
    forwarders: Chooser,
    /// Of each forwarder, its targets.
    within: Vec<(Chooser, Vec<HopId>)>,
}

impl Draw {
    fn new<'a>(seed: [u8; 16], targets: impl Iterator<Item = &'a Target>) -> Option<Draw> {
        let by_site = grouped(targets, Target::site);
        let site = |(_, list): &Group<'_>| Site::new(seed, list);
        Some(Draw {
            sites: among(seed, &by_site)?,
            routes: None,
            within: by_site.iter().map(site).collect::<Option<_>>()?,
        })
    }

    #[inline]
    fn choose(&self, connection: u64, source: impl FnOnce() -> IpAddr) -> Option<HopId> {
        match &self.routes {
            Some(routes) => self.within[routes.choose(connection, source)?].choose(connection),
            None => self.choose_by_weight(connection),
        }
    }

    #[inline]
    fn choose_by_weight(&self, connection: u64) -> Option<HopId> {
        self.within[self.sites.choose(connection)?].choose(connection)
    }
}

impl Site {
    fn new(seed: [u8; 16], targets: &[&Target]) -> Option<Site> {
        let by_forwarder = grouped(targets.iter().copied(), |target| &target.forwarder);
        let within = |(_, list): &Group<'_>| {
            let each: Vec<_> = list.iter().map(|t| (&*t.identity, vec![*t])).collect();
            let hops = list.iter().map(|target| target.hop).collect();
            Some((among(seed, &each)?, hops))
        };
        Some(Site {
            forwarders: among(seed, &by_forwarder)?,
            within: by_forwarder.iter().map(within).collect::<Option<_>>()?,
        })
    }

    #[inline]
    fn choose(&self, connection: u64) -> Option<HopId> {
        let (targets, hops) = &self.within[self.forwarders.choose(connection)?];
        Some(hops[targets.choose(connection)?])
    }
}

/// Targets that have a name in common.
type Group<'a> = (&'a str, Vec<&'a Target>);

fn grouped<'a>(
    targets: impl Iterator<Item = &'a Target>,
    name: impl Fn(&'a Target) -> &'a str,
) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for target in targets {
        let own = name(target);
        match groups.iter_mut().find(|(name, _)| *name == own) {
            Some((_, list)) => list.push(target),
            None => groups.push((own, vec![target])),
        }
    }
    groups
}

/// A choice among groups by their names and whole weights.
fn among(seed: [u8; 16], groups: &[Group<'_>]) -> Option<Chooser> {
    let weights = scale(groups.iter().map(|(_, list)| whole(list)).max());
    let member = |(name, list): &Group<'_>| Member {
        id: identity_hash(seed, name),
        weight: weights(whole(list)),
    };
    Chooser::new(seed, &groups.iter().map(member).collect::<Vec<_>>()).ok()
}

fn whole(targets: &[&Target]) -> u32 {
    targets.iter().map(|target| u32::from(target.weight)).sum()
}

/// Makes weights up to `heaviest` ones of 16 bits; what has a weight keeps one.
fn scale(heaviest: Option<u32>) -> impl Fn(u32) -> u16 {
    let surplus = (u32::BITS - heaviest.unwrap_or(0).leading_zeros()).saturating_sub(u16::BITS);
    move |weight| (weight >> surplus).max(weight.min(1)) as u16
}

/// What a name's draws depend on, besides the seed.
pub(crate) fn identity_hash(seed: [u8; 16], identity: &str) -> u64 {
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
    use crate::routes::{Route, Routes};
    use std::collections::HashMap;

    fn target(hop: u16, weight: u16, prefixes: &[&str]) -> Target {
        Target {
            hop: HopId(hop),
            forwarder: "here/f1".to_string(),
            identity: format!("instance-{hop}"),
            weight,
            prefixes: prefixes
                .iter()
                .map(|prefix| prefix.parse().unwrap())
                .collect(),
        }
    }

    fn source() -> IpAddr {
        "10.9.0.1".parse().unwrap()
    }

    fn shares(targets: &Targets, destination: &str) -> Vec<usize> {
        let mut shares = vec![0; 4];
        for connection in 0..10_000u64 {
            let hash = connection.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if let Some(hop) = targets.choose(hash, source, || destination.parse().unwrap()) {
                shares[hop.index()] += 1;
            }
        }
        shares
    }

    #[test]
    fn connections_spread_by_weight() {
        let list = vec![target(0, 300, &[]), target(1, 100, &[]), target(2, 0, &[])];
        let shares = shares(&Targets::new([7; 16], 1, list).unwrap(), "192.0.2.1");
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
        let targets = Targets::new([7; 16], 1, list).unwrap();
        assert_eq!(shares(&targets, "10.1.2.3"), [0, 10_000, 0, 0]);
        assert_eq!(shares(&targets, "10.2.2.3"), [10_000, 0, 0, 0]);
        assert_eq!(shares(&targets, "192.0.2.1"), [0, 0, 10_000, 0]);
    }

    /// What the forwarders of a site see, and what one elsewhere sees: all choose the same forwarder, by its whole weight.
    #[test]
    fn a_forwarder_is_the_same_choice_whether_its_targets_are_seen_or_itself() {
        let at = |hop, forwarder: &str, weight| Target {
            forwarder: forwarder.to_string(),
            ..target(hop, weight, &[])
        };
        let own = [at(0, "here/f1", 30_000), at(1, "here/f1", 60_000)];
        let (sibling, there) = (at(2, "here/f2", 30_000), at(3, "there/f1", 60_000));
        let inside = [own.to_vec(), vec![sibling, there]].concat();
        let beside = [
            at(0, "here/f1", 45_000),
            at(1, "here/f2", 5_000),
            at(2, "here/f2", 10_000),
            at(3, "there/f1", 30_000),
        ];
        let outside = [
            at(0, "here/f1", 15_000),
            at(2, "here/f2", 5_000),
            at(3, "there/f1", 10_000),
        ];
        let lists = [inside, beside.to_vec(), outside.to_vec()]
            .map(|list| (Targets::new([7; 16], 1, list.clone()).unwrap(), list));
        let mut chosen = HashMap::new();
        for connection in 0..10_000u64 {
            let hash = connection.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let [inside, beside, outside] = lists.each_ref().map(|(targets, list)| {
                let hop = targets.choose(hash, source, source).unwrap();
                let found = list.iter().find(|target| target.hop == hop).unwrap();
                found.forwarder.as_str()
            });
            assert_eq!((inside, beside), (outside, outside));
            *chosen.entry(outside).or_insert(0) += 1;
        }
        for (forwarder, due) in [("here/f1", 5000), ("here/f2", 1667), ("there/f1", 3333)] {
            let count: i32 = chosen[forwarder];
            assert!((count - due).abs() < 250, "{forwarder}: {count} of {due}");
        }
    }

    #[test]
    fn the_only_target_is_the_one_that_draws_choose() {
        let one = vec![target(0, 0, &[]), target(3, 7, &[])];
        let targets = Targets::new([7; 16], 1, one).unwrap();
        assert_eq!(targets.sole(), Some(HopId(3)));
        assert_eq!(shares(&targets, "192.0.2.1"), [0, 0, 0, 10_000]);
        for several in [
            vec![target(0, 1, &[]), target(3, 7, &[])],
            vec![target(3, 7, &["10.0.0.0/8"])],
            vec![target(0, 0, &[])],
        ] {
            assert_eq!(Targets::new([7; 16], 1, several).unwrap().sole(), None);
        }
    }

    /// A route without a weight leads nowhere, so nobody is chosen by it.
    #[test]
    fn the_only_target_counts_where_a_route_leads_to_it() {
        for (weight, sole) in [(5, Some(HopId(0))), (0, None)] {
            let routes = Routes {
                list: vec![Route {
                    weight,
                    sites: vec!["here".to_string(), "here".to_string()],
                    ingress: 0,
                }],
                ingresses: [Vec::new()].into(),
            };
            let leg = Leg {
                routes: &routes,
                here: "here",
                from: 0,
                to: 1,
            };
            let targets = Targets::new([7; 16], 1, vec![target(0, 1, &[])]).unwrap();
            let targets = targets.along([7; 16], leg);
            assert_eq!(targets.sole(), sole);
            assert_eq!(targets.choose(1, source, source), sole);
        }
    }

    #[test]
    fn nobody_can_be_chosen_from_an_empty_list() {
        let targets = Targets::new([7; 16], 1, vec![target(0, 0, &[])]).unwrap();
        assert!(targets.is_empty());
        assert_eq!(targets.choose(1, source, source), None);
    }
}
