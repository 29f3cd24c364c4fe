//! What a worker does besides packets: ages and counts flow entries, takes withdrawn hops out of them, asks for neighbours.
//!
//! Walks over the flow tables go in steps between bursts, so that no packet ever waits for a whole table.

use crate::counters::{Drop, Event};
use crate::frame::Frame;
use crate::neighbours::question;
use crate::pipeline::{Output, Pipeline, Settings};
use crate::registry::{HopId, PlaceId};
use crate::rules::{End, Rules, Stage};
use flow::{FlowKey, FlowTable, InvalidTimeout, Scan, Timeouts, Verdict};
use std::collections::HashMap;
use std::hash::Hash;

/// Buckets that a walk may look at in a second: 1 % of a core or so.
const BUCKETS_PER_SECOND: usize = 1 << 20;
/// Buckets looked at between two bursts: some microseconds.
const STEP: usize = 256;
/// The same while there is nothing else to do.
const IDLE_STEP: usize = 1 << 14;

/// How far the walks are.
#[derive(Debug, Default)]
pub(crate) struct Housekeeping {
    second: u32,
    /// Buckets still to be looked at this second: for ageing, IPv4 and IPv6, and for counting.
    age_v4: usize,
    age_v6: usize,
    count: usize,
    counting: Option<Counting>,
}

/// A count of the entries of each hop and place, under way.
#[derive(Debug)]
struct Counting {
    /// Generation of the rules in force when it began.
    generation: u64,
    v4: Option<Scan>,
    v6: Option<Scan>,
    hops: Tally,
    places: Tally,
}

/// How often small numbers came, by number: adding is all that is done for each of millions of entries.
#[derive(Debug, Default)]
struct Tally(Vec<u64>);

impl Tally {
    #[inline]
    fn add(&mut self, number: usize) {
        if number >= self.0.len() {
            self.0.resize(number + 1, 0);
        }
        self.0[number] += 1;
    }

    /// Those that came, by what they are the numbers of.
    fn by<T: Eq + Hash>(self, name: impl Fn(u16) -> T) -> HashMap<T, u64> {
        let came = (0..).zip(self.0).filter(|(_, count)| *count > 0);
        came.map(|(number, count)| (name(number), count)).collect()
    }
}

impl Housekeeping {
    fn owes(&self) -> bool {
        self.age_v4 + self.age_v6 + self.count > 0
    }
}

impl<F: Frame> Pipeline<F> {
    /// To be called between bursts: a step of each walk, and once a second what is due then. `now` is in seconds;
    /// `idle` says that there was nothing to receive. Returns whether more steps of this second are left.
    #[inline]
    pub fn tick(&mut self, rules: &Rules, now: u32, idle: bool, out: &mut Output<F>) -> bool {
        if now != self.housekeeping.second {
            self.begin_second(rules, now, out);
        }
        if self.housekeeping.owes() {
            self.walk(rules, now, if idle { IDLE_STEP } else { STEP });
        }
        self.housekeeping.owes()
    }

    #[cold]
    fn begin_second(&mut self, rules: &Rules, now: u32, out: &mut Output<F>) {
        self.end_abandoned_export(now);
        self.fragments.forget_old(now);
        let mut pushed_out = self.fragments.take_pushed_out();
        if let Some(sharing) = &mut self.sharing {
            pushed_out += sharing.forget_old(now);
        }
        self.counters
            .events_add(Event::FragmentForgotten, pushed_out);
        let (questions, given_up) = self.neighbours.tick(now);
        for (key, own, known) in questions {
            if let Some(port) = rules.ports.get(key.0) {
                out.make(key.0, question(key, own, port.mac, known));
                self.counters.event(Event::NeighbourAsked);
            }
        }
        for lost in given_up {
            let reason = Drop::NeighbourUnresolved.into();
            self.counters.drop_at(reason, lost.at);
        }
        self.housekeeping.second = now;
        self.housekeeping.age_v4 = self.v4.stats().buckets.min(BUCKETS_PER_SECOND);
        self.housekeeping.age_v6 = self.v6.stats().buckets.min(BUCKETS_PER_SECOND);
        self.housekeeping.count = BUCKETS_PER_SECOND;
    }

    #[cold]
    fn walk(&mut self, rules: &Rules, now: u32, step: usize) {
        let keeping = &mut self.housekeeping;
        let v4 = keeping.age_v4.min(step);
        keeping.age_v4 -= v4;
        self.v4.age_step(now, v4, |_| {});
        self.v4.settle_step(v4);
        let v6 = keeping.age_v6.min(step);
        keeping.age_v6 -= v6;
        self.v6.age_step(now, v6, |_| {});
        self.v6.settle_step(v6);
        if keeping.count > 0 {
            keeping.count = keeping.count.saturating_sub(step);
            self.count_step(rules, step);
        }
    }

    /// A step of counting the entries of each hop and place; the count's end is the second's.
    fn count_step(&mut self, rules: &Rules, step: usize) {
        let counting = self.housekeeping.counting.get_or_insert_with(|| Counting {
            generation: rules.generation,
            v4: Some(self.v4.begin_scan()),
            v6: Some(self.v6.begin_scan()),
            hops: Tally::default(),
            places: Tally::default(),
        });
        let Counting {
            v4,
            v6,
            hops,
            places,
            ..
        } = counting;
        let moves = &mut self.flow_moves;
        let mut visit = |place: PlaceId, found: flow::Hops| {
            let Some(stage) = rules.stage(place) else {
                return Verdict::Keep;
            };
            let kept = without_withdrawn(rules, stage, found);
            for hop in [kept.upstream, kept.downstream].map(HopId) {
                if hop != HopId::WITHDRAWN {
                    hops.add(hop.index());
                }
            }
            places.add(place.index());
            if kept == found {
                return Verdict::Keep;
            }
            *moves += 1;
            Verdict::Update(kept)
        };
        count_in(&mut self.v4, v4, step, &mut visit);
        if v4.is_none() {
            count_in(&mut self.v6, v6, step, &mut visit);
        }
        if counting.v4.is_none() && counting.v6.is_none() {
            self.housekeeping.count = 0;
            if let Some(done) = self.housekeeping.counting.take() {
                self.counted_generation = done.generation;
                self.hop_flows = done.hops.by(HopId);
                self.place_flows = done.places.by(PlaceId);
            }
        }
    }

    /// Gives the flow tables other idle times, in place; ages follow a step at a time ([`FlowTable::set_timeouts`]).
    ///
    /// # Errors
    /// An idle time is zero or too long; nothing has changed then.
    #[cold]
    pub(crate) fn change_timeouts(
        &mut self,
        timeouts: &Timeouts,
        now: u32,
    ) -> Result<(), InvalidTimeout> {
        self.v4.set_timeouts(timeouts, now)?;
        self.v6.set_timeouts(timeouts, now)?;
        self.timeouts = *timeouts;
        Ok(())
    }
}

impl Settings {
    /// What one of several workers gets, which share the memory evenly.
    #[must_use]
    pub fn of_one(&self, workers: usize) -> Settings {
        Settings {
            memory_v4: self.memory_v4 / workers,
            memory_v6: self.memory_v6 / workers,
            hash_key: self.hash_key,
        }
    }

    /// What IPv4 and IPv6 tables are made from.
    pub(crate) fn tables(&self, timeouts: flow::Timeouts) -> (flow::Config, flow::Config) {
        let config = |memory| flow::Config {
            timeouts,
            ..flow::Config::new(memory, self.hash_key)
        };
        (config(self.memory_v4), config(self.memory_v6))
    }
}

fn count_in<K: FlowKey>(
    table: &mut FlowTable<K>,
    scan: &mut Option<Scan>,
    step: usize,
    visit: &mut impl FnMut(PlaceId, flow::Hops) -> Verdict,
) {
    let Some(open) = scan else {
        return;
    };
    let more = table.scan_step(open, step, |entry| {
        visit(PlaceId(entry.path()), entry.hops())
    });
    if !more {
        *scan = None;
    }
}

/// An entry's hops, less those that serve nobody at its stage any more.
fn without_withdrawn(rules: &Rules, stage: &Stage, found: flow::Hops) -> flow::Hops {
    let keep = |end: &End, hop| {
        if end.withdraws(rules, HopId(hop)) {
            HopId::WITHDRAWN.0
        } else {
            hop
        }
    };
    flow::Hops {
        upstream: keep(&stage.upstream, found.upstream),
        downstream: keep(&stage.downstream, found.downstream),
        opener: found.opener,
    }
}
