//! Sites with two forwarders each, whose instances die, come back, are taken away and move between the forwarders while connections go on.
//!
//! What is promised: a connection whose instances live keeps them, whatever becomes of others. One that lost an instance gets another that takes
//! new connections, with its first packet after the rules name one. That packet passes the instances that the connection has in front of the one that it
//! lost; those behind it are chosen anew, where no forwarder on its way knows them, by today's rules. Both directions pass the same ones. Until there
//! is somebody packets are dropped for want of one. None goes round and round, and every one that is dropped is so by that name.

use crate::changes::{connection as host, exchange, open};
use crate::frames::packet;
use crate::network::{Network, names};
use crate::plan::{Instance, Plan, Role, SIBLING, chain, instance};
use crate::random::{Draw, change, connection, platform, routes};
use crate::siblings::{drawn_instance, relocate, spread};
use contracts::forwarder::AttachmentState;
use std::collections::HashMap;
use wire::steering::Direction;
use wire::{FiveTuple, tcp};

/// Seconds between steps. Ages of entries tell those that a connection uses from those that it has left, but for the last two minutes.
const PAUSE: u32 = 300;

/// Drops of packets for whom there is nobody, or that came to where nobody is any more.
const NOBODY: [&str; 5] = [
    "no_target",
    "hop_gone",
    "stage_unknown",
    "path_unknown",
    "nsh_unknown_path",
];

/// An instance in one of its lives.
type Life = (String, usize);

/// A connection, and for each VNF whom its packets passed last; nothing where that is not known.
struct Connection {
    tuple: FiveTuple,
    passed: Vec<Option<Life>>,
    is_open: bool,
}

/// A platform under changes, and its connections.
struct Drama {
    network: Network,
    draw: Draw,
    seed: u64,
    /// How often an instance has died.
    deaths: HashMap<String, usize>,
    connections: Vec<Connection>,
    /// How often a connection got another instance for one that died.
    replaced: usize,
    /// How often a packet found nobody.
    lost: usize,
}

impl Drama {
    fn new(seed: u64, workers: usize) -> Drama {
        let mut draw = Draw(seed);
        let plan = spread(platform(&mut draw), &mut draw);
        Drama {
            network: Network::with_workers(plan, workers, seed),
            draw,
            seed,
            deaths: HashMap::new(),
            connections: Vec::new(),
            replaced: 0,
            lost: 0,
        }
    }

    fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.network.plan.chains[0].vnfs.iter().flatten()
    }

    /// The life that an instance is in, if it lives.
    fn life(&self, name: &str) -> Option<Life> {
        let found = self.instances().find(|one| one.name == name)?;
        let lives = found.state != AttachmentState::Dead;
        lives.then(|| {
            (
                name.to_string(),
                self.deaths.get(name).copied().unwrap_or(0),
            )
        })
    }

    /// Whether each VNF has an instance that takes new connections.
    fn can_open(&self) -> bool {
        let takes = |one: &Instance| one.state == AttachmentState::Active;
        let mut vnfs = self.network.plan.chains[0].vnfs.iter();
        vnfs.all(|instances| instances.iter().any(takes))
    }

    /// Lets an instance die, come back or go.
    fn strike(&mut self) {
        let Some([vnf, index]) = drawn_instance(&self.network.plan, &mut self.draw) else {
            return;
        };
        let fate = self.draw.below(4);
        let mut died = None;
        self.network.change(|plan| {
            let instances = &mut plan.chains[0].vnfs[vnf];
            let several = instances.len() > 1;
            let one = &mut instances[index];
            let name = one.name.clone();
            match (fate, one.state) {
                (0, _) if several => {
                    instances.remove(index);
                    died = Some(name);
                }
                (_, AttachmentState::Dead) => one.state = AttachmentState::Active,
                _ => {
                    one.state = AttachmentState::Dead;
                    died = Some(name);
                }
            }
        });
        if let Some(name) = died {
            *self.deaths.entry(name).or_default() += 1;
        }
        if self.draw.below(2) == 0 {
            self.route();
        }
    }

    /// Has routes lead to those that take new connections.
    fn route(&mut self) {
        let draw = &mut self.draw;
        self.network
            .change(|plan| plan.chains[0].routes = routes(&plan.chains[0], draw));
    }

    /// Sends a packet of each direction through each connection, and through new ones.
    fn look(&mut self, settled: bool) {
        if settled {
            for _ in 0..4 {
                let tuple = connection(self.connections.len());
                let passed = vec![None; self.network.plan.chains[0].vnfs.len()];
                self.connections.push(Connection {
                    tuple,
                    passed,
                    is_open: false,
                });
            }
        }
        for mut connection in std::mem::take(&mut self.connections) {
            self.pass(&mut connection, settled);
            self.connections.push(connection);
        }
        let drops = self.network.drops();
        let mut names = drops.keys();
        let are_named = names.all(|name| NOBODY.contains(name));
        assert!(are_named, "{}: {drops:?}", self.seed);
    }

    /// Sends a packet of either direction first, and one of the other if that arrives.
    fn pass(&mut self, connection: &mut Connection, settled: bool) {
        let (tuple, seed) = (connection.tuple, self.seed);
        let is_new = !connection.is_open;
        let flags = if is_new { tcp::SYN } else { tcp::ACK };
        let mut directions = [Direction::Forward, Direction::Reverse];
        if !is_new && self.draw.below(2) == 0 {
            directions.reverse();
        }
        let expected = self.expected(connection, directions[0]);
        let mut lives = Vec::new();
        let has_lost = expected != connection.passed && !is_new;
        for direction in directions {
            let Some(passed) = self.send(&tuple, direction, flags) else {
                let drops = self.network.drops();
                let is_due = lives.is_empty() && !(settled && self.can_open());
                assert!(is_due, "seed {seed}, {tuple}, {direction:?}: {drops:?}");
                self.lost += 1;
                return;
            };
            let now: Vec<Option<Life>> = passed.iter().map(|name| self.life(name)).collect();
            assert!(now.iter().all(Option::is_some), "seed {seed}: {passed:?}");
            if !lives.is_empty() && lives != now && has_lost && self.is_passed(&lives) {
                // Its new instance is moving, and the home does not know the connection yet.
                connection.passed.fill(None);
                return;
            }
            for (expected, now) in expected.iter().zip(&now) {
                let kept = expected.is_none() || expected == now;
                assert!(
                    kept,
                    "seed {seed}, {tuple}, {direction:?}: {expected:?}, {passed:?}"
                );
            }
            if lives.is_empty() {
                lives = now;
            } else {
                assert_eq!(lives, now, "seed {seed}: symmetric return of {tuple}");
            }
        }
        let changed = connection.passed.iter().zip(&lives);
        let changed = changed.filter(|(before, now)| before.is_some() && before != now);
        self.replaced += changed.count();
        connection.passed = lives;
        connection.is_open = true;
    }

    /// Whether one of some instances has a new home whose sibling still gives it packets.
    fn is_passed(&self, lives: &[Option<Life>]) -> bool {
        let named = |one: &Instance| lives.iter().flatten().any(|(name, _)| *name == one.name);
        let mut passed = self
            .instances()
            .filter(|one| one.sibling == Some(Role::Passing));
        passed.any(named)
    }

    /// The instances that a packet must pass: all where all live, those in front of the first that does not live otherwise.
    fn expected(&self, connection: &Connection, direction: Direction) -> Vec<Option<Life>> {
        let mut expected = connection.passed.clone();
        let mut stays = true;
        let mut look = |passed: &mut Option<Life>| {
            let now = passed.as_ref().and_then(|(name, _)| self.life(name));
            stays &= now.is_some() && now == *passed;
            *passed = now.filter(|_| stays);
        };
        match direction {
            Direction::Forward => expected.iter_mut().for_each(&mut look),
            Direction::Reverse => expected.iter_mut().rev().for_each(&mut look),
        }
        expected
    }

    /// The instances that a packet passes, in the order of the chain; nothing where it is dropped.
    fn send(&mut self, tuple: &FiveTuple, direction: Direction, flags: u8) -> Option<Vec<String>> {
        let chain = self.network.plan.chains[0].clone();
        let delivered = match direction {
            Direction::Forward => self.network.send(&chain.ingress, &packet(tuple, flags, 10)),
            Direction::Reverse => {
                let answer = packet(&tuple.reversed(), tcp::ACK, 10);
                self.network.send(&chain.egress, &answer)
            }
        };
        let visits = &delivered.first()?.visits;
        let mut passed: Vec<String> = names(visits).into_iter().map(String::from).collect();
        if direction == Direction::Reverse {
            passed.reverse();
        }
        Some(passed)
    }

    /// Takes a step: something dies or not, before, in and after a move; something changes.
    fn act(&mut self, step: usize) {
        self.network.now += PAUSE;
        if self.draw.below(2) == 0 {
            self.strike();
            self.look(false);
        }
        if let Some([vnf, index]) = drawn_instance(&self.network.plan, &mut self.draw) {
            let name = self.network.plan.chains[0].vnfs[vnf][index].name.clone();
            relocate(
                self,
                &name,
                |drama| &mut drama.network,
                |drama| {
                    if drama.draw.below(2) == 0 {
                        drama.strike();
                    }
                    drama.look(false);
                },
            );
        }
        if self.draw.below(2) == 0 {
            self.strike();
            self.look(false);
        }
        let draw = &mut self.draw;
        self.network.change(|plan| change(plan, draw, step));
        self.route();
        // Withdrawn forwarders leave entries in a walk.
        self.network.tick();
        self.network.tick();
        self.look(true);
    }
}

/// Whoever died and whatever moved, connections keep those who live.
#[test]
fn connections_of_those_that_die_among_siblings_go_on_with_others() {
    let rounds = std::env::var("SWITCHBOARD_TEST_ROUNDS");
    let rounds: u64 = rounds.map_or(16, |text| text.parse().expect("a number of rounds"));
    let (mut replaced, mut lost) = (0, 0);
    for seed in 0..rounds {
        let mut drama = Drama::new(seed, 1 + seed as usize % 2);
        drama.route();
        drama.look(true);
        for step in 0..8 {
            drama.act(step);
        }
        replaced += drama.replaced;
        lost += drama.lost;
    }
    assert!(replaced > 10 * rounds as usize, "{replaced} were replaced");
    assert!(lost > rounds as usize, "{lost} found nobody");
}

/// A network of two sites with a chain from the first back to it, whose VNFs have their instances where they are told.
fn two_sites(vnfs: Vec<Vec<Instance>>) -> Network {
    Network::new(Plan::new(SIBLING + 2, chain(0, vnfs, 0)))
}

/// The instances that connections passed before, and do now.
fn replaced(network: &mut Network, change: impl FnOnce(&mut Network)) -> Vec<[Vec<String>; 2]> {
    let before = open(network, 0..60);
    change(network);
    let chain = network.plan.chains[0].clone();
    let now = |(number, before): (u32, Vec<String>)| {
        let now = exchange(network, &chain, &host(number), tcp::ACK);
        [before, now]
    };
    before.into_iter().map(now).collect()
}

#[test]
fn what_is_sent_for_an_instance_that_was_taken_away_goes_to_its_siblings() {
    let vnfs = vec![vec![instance(1, "a", 100), instance(SIBLING + 1, "b", 100)]];
    let mut network = two_sites(vnfs);
    let all = replaced(&mut network, |network| {
        network.change(|plan| drop(plan.chains[0].vnfs[0].remove(0)));
    });
    assert!(all.iter().all(|[_, now]| *now == ["b"]));
    let moved = all.iter().filter(|[before, _]| *before == ["a"]).count();
    assert!(moved > 10);
    assert_eq!(network.event("given_back"), moved as u64);
    network.assert_no_drops();
}

/// The forwarder in front has somebody who died behind its sibling, which thinks the same of it.
#[test]
fn packets_for_who_moved_and_died_stay_with_the_sibling_that_they_come_from() {
    let [here, there] = [1, SIBLING + 1];
    let vnfs = vec![
        vec![instance(there, "u", 100)],
        vec![instance(here, "a", 100), instance(here, "b", 100)],
    ];
    let mut network = two_sites(vnfs);
    let all = replaced(&mut network, |network| {
        relocate(network, "a", |network| network, |_| {});
        network.change(|plan| plan.chains[0].vnfs[1][0].state = AttachmentState::Dead);
    });
    assert!(all.iter().all(|[_, now]| *now == ["u", "b"]));
    assert!(all.iter().filter(|[before, _]| before[1] == "a").count() > 10);
    network.assert_no_drops();
}

#[test]
fn a_packet_for_whom_there_is_nobody_is_dropped_where_it_came_in() {
    let mut network = two_sites(vec![vec![instance(1, "a", 100)]]);
    open(&mut network, 0..1);
    network.change(|plan| plan.chains[0].vnfs[0][0].state = AttachmentState::Dead);
    let chain = network.plan.chains[0].clone();
    let sent = packet(&host(0), tcp::ACK, 10);
    for times in 1..4 {
        assert!(network.send(&chain.ingress, &sent).is_empty());
        assert_eq!(network.event("given_back"), times);
        assert_eq!(network.nodes[0].counters().drop_total(), times);
        assert_eq!(network.drops()["hop_gone"], times);
    }
    network.change(|plan| plan.chains[0].vnfs[0][0].state = AttachmentState::Active);
    assert_eq!(exchange(&mut network, &chain, &host(0), tcp::ACK), ["a"]);
}
