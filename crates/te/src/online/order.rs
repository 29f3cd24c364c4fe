//! The order of moves, such that every first part of a plan fits.
//!
//! A chain is moved make-before-break: while it moves, its traffic is on its old routes, its new ones, or some on each.
//! So a move fits where the rows that it loads more have room for the larger of the two beside everything else. Of the
//! moves that fit, the one that gains most comes next. What one of them leaves may make room for another that gains more.
//! Where nothing that gains fits any more, chains that gain nothing but leave a full row are moved for those that wait
//! for it. Moves that then still do not fit come last and say what is full: they wait for each other, or for chains that
//! the plan cannot move.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use crate::instance::Instance;
use crate::solution::Flow;

/// Load above a capacity that counts as rounding, relatively.
const ROUNDING: f64 = 1e-9;

/// Changes below this share of a capacity are rounding.
const TINY: f64 = 1e-12;

/// What a row has beyond its capacity, as a share of it, before it is overloaded.
const OVERLOAD: f64 = 1e-6;

/// What a move does to a row's load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    row: usize,
    /// What is there more while the chain moves, at most.
    during: f64,
    /// What is there more afterwards, or less.
    after: f64,
}

/// A chain that could go over to other routes.
#[derive(Debug)]
pub(super) struct Candidate {
    /// What moving it saves.
    pub gain: f64,
    /// Whether that is worth a move. Otherwise it is moved only to make room.
    pub worth: bool,
    /// The rows that its move changes.
    pub changes: Vec<Change>,
}

impl Candidate {
    /// Whether its move takes load off a row that has more than its capacity.
    pub(super) fn relieves(&self, instance: &Instance, load: &[f64]) -> bool {
        let over = |row: usize| load[row] > instance.capacity[row] * (1.0 + OVERLOAD);
        self.changes.iter().any(|c| c.after < 0.0 && over(c.row))
    }
}

/// A move in its place.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    /// Which candidate.
    pub candidate: usize,
    /// Rows without room for it, at the loads after all moves that fit; none for those.
    pub full: Vec<usize>,
}

/// Finds what moves do to rows.
pub(super) struct Rows<'a> {
    instance: &'a Instance,
    /// For each VNF at a site, by row from the first of them, the row of its site.
    site_row: Vec<usize>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(instance: &'a Instance) -> Rows<'a> {
        let first = instance.links + instance.sites;
        let mut site_row = vec![0; instance.rows() - first];
        for (site, row) in instance.vnfs.iter().flat_map(|v| &v.deployments) {
            site_row[*row as usize - first] = instance.links + *site as usize;
        }
        Rows { instance, site_row }
    }

    /// What going from some flows to others does to the rows that it changes.
    pub(super) fn changes(&self, now: &[Flow], then: &[&Flow]) -> Vec<Change> {
        let instance = self.instance;
        let mut change: BTreeMap<usize, f64> = BTreeMap::new();
        let mut add = |flow: &Flow, sign: f64| {
            let commodity = &instance.commodities[flow.commodity];
            instance.loads(commodity, &flow.route, |row, load| {
                *change.entry(row).or_default() += sign * flow.fraction * load;
            });
        };
        then.iter().for_each(|flow| add(flow, 1.0));
        now.iter().for_each(|flow| add(flow, -1.0));
        change.retain(|&row, after| after.abs() > TINY * instance.capacity[row]);
        // Each VNF at a site holds the larger of its old and new loads while its chain moves, and the site their sum.
        let first = instance.links + instance.sites;
        let mut at_site: BTreeMap<usize, f64> = BTreeMap::new();
        for (&row, &after) in change.range(first..) {
            *at_site.entry(self.site_row[row - first]).or_default() += after.max(0.0);
        }
        for &site in at_site.keys() {
            change.entry(site).or_default();
        }
        let during = |row: usize, after: f64| at_site.get(&row).copied().unwrap_or(after.max(0.0));
        let changes = change.into_iter().map(|(row, after)| Change {
            row,
            during: during(row, after),
            after,
        });
        changes.collect()
    }
}

/// Puts candidates in order; `load` by row is what is there now. Those that are not worth a move and make no room that
/// is needed are left out.
pub(super) fn order(instance: &Instance, load: Vec<f64>, candidates: &[Candidate]) -> Vec<Step> {
    let mut by_gain: Vec<usize> = (0..candidates.len())
        .filter(|&c| candidates[c].worth)
        .collect();
    by_gain.sort_by(|&a, &b| {
        candidates[b]
            .gain
            .total_cmp(&candidates[a].gain)
            .then(a.cmp(&b))
    });
    let mut relief: HashMap<usize, Vec<usize>> = HashMap::new();
    for (c, candidate) in candidates.iter().enumerate().filter(|(_, c)| !c.worth) {
        for change in candidate.changes.iter().filter(|c| c.after < 0.0) {
            relief.entry(change.row).or_default().push(c);
        }
    }
    let mut plan = Plan {
        instance,
        candidates,
        load,
        taken: vec![false; candidates.len()],
        relief,
        steps: Vec::new(),
    };
    let mut queue: BinaryHeap<Reverse<usize>> = (0..by_gain.len()).map(Reverse).collect();
    let mut waiting: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut next_for_help = 0;
    loop {
        while let Some(Reverse(rank)) = queue.pop() {
            if plan.taken[by_gain[rank]] {
                continue;
            }
            match plan.first_full(by_gain[rank]) {
                Some(row) => waiting.entry(row).or_default().push(rank),
                None => {
                    plan.take(by_gain[rank]);
                    wake(&candidates[by_gain[rank]], &mut waiting, &mut queue);
                }
            }
        }
        let untaken = |rank: &usize| !plan.taken[by_gain[*rank]];
        let Some(rank) = (next_for_help..by_gain.len()).find(untaken) else {
            break;
        };
        next_for_help = rank + 1;
        let before = plan.steps.len();
        if plan.make_room(by_gain[rank]) {
            plan.take(by_gain[rank]);
        }
        for step in &plan.steps[before..] {
            wake(&candidates[step.candidate], &mut waiting, &mut queue);
        }
    }
    plan.finish(&by_gain)
}

/// Lets those who wait for rows that a move has relieved try again.
fn wake(
    moved: &Candidate,
    waiting: &mut HashMap<usize, Vec<usize>>,
    queue: &mut BinaryHeap<Reverse<usize>>,
) {
    for change in moved.changes.iter().filter(|c| c.after < 0.0) {
        queue.extend(
            waiting
                .remove(&change.row)
                .into_iter()
                .flatten()
                .map(Reverse),
        );
    }
}

/// A plan that is being made.
struct Plan<'a> {
    instance: &'a Instance,
    candidates: &'a [Candidate],
    /// Loads after the moves so far.
    load: Vec<f64>,
    taken: Vec<bool>,
    /// For each row the candidates not worth a move that would leave it.
    relief: HashMap<usize, Vec<usize>>,
    steps: Vec<Step>,
}

impl Plan<'_> {
    fn is_full(&self, change: &Change) -> bool {
        let most = self.instance.capacity[change.row] * (1.0 + ROUNDING);
        change.during > 0.0 && self.load[change.row] + change.during > most
    }

    fn first_full(&self, candidate: usize) -> Option<usize> {
        let changes = &self.candidates[candidate].changes;
        changes.iter().find(|c| self.is_full(c)).map(|c| c.row)
    }

    fn take(&mut self, candidate: usize) {
        for change in &self.candidates[candidate].changes {
            self.load[change.row] += change.after;
        }
        self.taken[candidate] = true;
        self.steps.push(Step {
            candidate,
            full: Vec::new(),
        });
    }

    /// Moves chains that leave full rows until the candidate fits, if that is a gain all in all; else nobody.
    fn make_room(&mut self, candidate: usize) -> bool {
        let start = self.steps.len();
        let mut undo: Vec<(usize, f64)> = Vec::new();
        let mut gain = self.candidates[candidate].gain;
        while let Some(row) = self.first_full(candidate) {
            let helper = self.who_leaves(row);
            gain += helper.map_or(f64::NEG_INFINITY, |h| self.candidates[h].gain);
            let Some(helper) = helper.filter(|_| gain > 0.0) else {
                for step in self.steps.drain(start..) {
                    self.taken[step.candidate] = false;
                }
                for (row, load) in undo.into_iter().rev() {
                    self.load[row] = load;
                }
                return false;
            };
            let changes = &self.candidates[helper].changes;
            undo.extend(changes.iter().map(|c| (c.row, self.load[c.row])));
            self.take(helper);
        }
        true
    }

    /// Of those that are not worth a move by themselves and fit, the one that would take most off a row.
    fn who_leaves(&self, row: usize) -> Option<usize> {
        let relief = |c: &usize| {
            let change = self.candidates[*c].changes.iter().find(|x| x.row == row);
            change.map_or(0.0, |x| -x.after)
        };
        let all = self.relief.get(&row).into_iter().flatten().copied();
        all.filter(|&c| !self.taken[c] && self.first_full(c).is_none())
            .max_by(|a, b| relief(a).total_cmp(&relief(b)).then(b.cmp(a)))
    }

    /// Adds the moves that do not fit.
    fn finish(mut self, by_gain: &[usize]) -> Vec<Step> {
        for &candidate in by_gain.iter().filter(|&&c| !self.taken[c]) {
            let changes = &self.candidates[candidate].changes;
            let full = changes.iter().filter(|c| self.is_full(c)).map(|c| c.row);
            self.steps.push(Step {
                candidate,
                full: full.collect(),
            });
        }
        self.steps
    }
}
