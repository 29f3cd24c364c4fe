//! Which routes chains keep that may have only so many: branch and bound over small programs.
//!
//! A node of the tree has routes that must be among a chain's, and routes that may not be used. Its linear program, in which
//! the others are free, bounds every choice below it. Where no chain uses more routes than it may, that is an answer;
//! else the chain that is furthest from it decides about the route that it uses most: kept first, then without it. The
//! tree is walked depth first and by work instead of time, so that the same model gets the same answer.

use super::simplex::{Aim, End, Program, solve};

/// Shares below this are no use of a route.
const UNUSED: f64 = 1e-9;

/// A chain that may have only so many routes.
#[derive(Debug, Clone, Default)]
pub struct Limited {
    /// How many.
    pub most: usize,
    /// Columns of each of its routes, one for each part of the chain.
    pub routes: Vec<Vec<usize>>,
}

/// A program, and the chains whose routes are counted.
#[derive(Debug, Clone)]
pub struct Choice {
    /// The program without the limit.
    pub program: Program,
    /// Those chains.
    pub chains: Vec<Limited>,
    /// What is made small.
    pub aim: Aim,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chosen {
    /// The best value and its shares of columns, where one better than the known was found.
    pub best: Option<(f64, Vec<f64>)>,
    /// No choice of these columns is below this. None where rounding leaves that open.
    pub bound: Option<f64>,
}

/// What is known of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Free,
    Kept,
    Barred,
}

/// A node that waits: what is known of each chain's routes, and the bound of the node above.
struct Node {
    uses: Vec<Vec<Use>>,
    bound: f64,
    start: Vec<usize>,
}

/// Searches for a choice that is better than `known` by more than the share `gap`, with at most so much `work`, until
/// `stop`.
pub fn search(choice: &Choice, known: f64, gap: f64, work: u64, stop: impl Fn() -> bool) -> Chosen {
    let mut search = Search {
        choice,
        value: known,
        found: Chosen::default(),
        least: f64::INFINITY,
        lost: false,
        gap,
    };
    let free = |chain: &Limited| vec![Use::Free; chain.routes.len()];
    let mut waiting = vec![Node {
        uses: choice.chains.iter().map(free).collect(),
        bound: f64::NEG_INFINITY,
        start: choice
            .program
            .blocks
            .iter()
            .map(|b| b.first().copied().unwrap_or(0))
            .collect(),
    }];
    let mut done = 0;
    while done < work && !stop() {
        let Some(node) = waiting.pop() else {
            break;
        };
        if search.is_cut(node.bound) {
            continue;
        }
        done += search.visit(node, &mut waiting);
    }
    let open = waiting
        .iter()
        .map(|node| node.bound)
        .fold(f64::INFINITY, f64::min);
    let bound = search.least.min(open).min(search.value);
    search.found.bound = (!search.lost && bound.is_finite()).then_some(bound);
    search.found
}

struct Search<'a> {
    choice: &'a Choice,
    /// Of the best answer known.
    value: f64,
    found: Chosen,
    /// Least bound of what was cut off.
    least: f64,
    /// Whether a node could not be solved.
    lost: bool,
    gap: f64,
}

impl Search<'_> {
    /// Whether nothing below a node with this bound is worth looking at.
    fn is_cut(&mut self, bound: f64) -> bool {
        let cut = self.value.is_finite() && bound >= self.value - self.gap * self.value.abs();
        if cut {
            self.least = self.least.min(bound);
        }
        cut
    }

    /// Solves a node and puts what is below it on the stack. Returns the work that took.
    fn visit(&mut self, node: Node, waiting: &mut Vec<Node>) -> u64 {
        let allowed = self.allowed(&node.uses);
        let (end, work) = solve(&self.choice.program, &allowed, &node.start, self.choice.aim);
        let (value, shares) = match end {
            End::Optimal(value, shares) => (value.max(node.bound), shares),
            End::Infeasible => return work + 1,
            End::Lost => {
                self.lost = true;
                return work + 1;
            }
        };
        if self.is_cut(value) {
            return work + 1;
        }
        match self.undecided(&node.uses, &shares) {
            None => {
                self.value = value;
                self.found.best = Some((value, shares));
            }
            Some((chain, route)) => {
                let heaviest = |block: &Vec<usize>| {
                    let most = block
                        .iter()
                        .copied()
                        .max_by(|&a, &b| shares[a].total_cmp(&shares[b]));
                    most.unwrap_or(0)
                };
                let start: Vec<usize> = self.choice.program.blocks.iter().map(heaviest).collect();
                for known in [Use::Barred, Use::Kept] {
                    let mut uses = node.uses.clone();
                    uses[chain][route] = known;
                    waiting.push(Node {
                        uses,
                        bound: value,
                        start: start.clone(),
                    });
                }
            }
        }
        work + 1
    }

    /// The columns that a node may use: a chain that keeps as many routes as it may have has no others.
    fn allowed(&self, uses: &[Vec<Use>]) -> Vec<bool> {
        let mut allowed = vec![true; self.choice.program.cost.len()];
        for (chain, uses) in self.choice.chains.iter().zip(uses) {
            let kept = uses.iter().filter(|u| **u == Use::Kept).count();
            for (columns, known) in chain.routes.iter().zip(uses) {
                if *known == Use::Barred || *known == Use::Free && kept >= chain.most {
                    columns.iter().for_each(|&c| allowed[c] = false);
                }
            }
        }
        allowed
    }

    /// The chain with most of its shares on routes beyond its number, and of its routes the heaviest that is undecided; none
    /// where all keep the limit.
    fn undecided(&self, uses: &[Vec<Use>], shares: &[f64]) -> Option<(usize, usize)> {
        let mut worst: Option<(f64, usize, usize)> = None;
        for (index, (chain, uses)) in self.choice.chains.iter().zip(uses).enumerate() {
            let weight = |columns: &Vec<usize>| columns.iter().map(|&c| shares[c]).sum::<f64>();
            let mut used: Vec<(f64, usize)> = chain
                .routes
                .iter()
                .enumerate()
                .map(|(route, columns)| (weight(columns), route))
                .filter(|(weight, _)| *weight > UNUSED)
                .collect();
            if used.len() <= chain.most {
                continue;
            }
            used.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let beyond: f64 = used[chain.most..].iter().map(|(weight, _)| weight).sum();
            let free = used.iter().find(|(_, route)| uses[*route] == Use::Free);
            if let Some(&(_, route)) = free
                && worst.is_none_or(|(most, _, _)| beyond > most)
            {
                worst = Some((beyond, index, route));
            }
        }
        worst.map(|(_, chain, route)| (chain, route))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const WORK: u64 = 1 << 32;

    /// Chains of one part each with random routes over shared rows; a chain may have one or two routes.
    fn random_choice(random: &mut Random) -> Choice {
        let mut choice = Choice {
            program: Program {
                base: vec![0.0; 3],
                ..Program::default()
            },
            chains: Vec::new(),
            aim: [Aim::Utilization, Aim::Cost][random.below(2)],
        };
        for _ in 0..2 + random.below(3) {
            let first = choice.program.cost.len();
            let block: Vec<usize> = (first..first + 2 + random.below(3)).collect();
            for _ in &block {
                choice.program.cost.push(random.between(0.5, 2.0));
                let mut loads: Vec<(usize, f64)> = Vec::new();
                let count = 1 + random.below(2);
                for row in random.sample(3, count) {
                    loads.push((row, random.between(0.1, 0.9)));
                }
                choice.program.loads.push(loads);
            }
            choice.chains.push(Limited {
                most: 1 + random.below(2),
                routes: block.iter().map(|&c| vec![c]).collect(),
            });
            choice.program.blocks.push(block);
        }
        choice
    }

    /// The best of all choices, one linear program for each.
    fn brute_force(choice: &Choice) -> Option<f64> {
        let mut best: Option<f64> = None;
        let columns = choice.program.cost.len();
        let start: Vec<usize> = choice.program.blocks.iter().map(|b| b[0]).collect();
        for set in 0u32..1 << columns {
            let allowed: Vec<bool> = (0..columns).map(|c| set >> c & 1 == 1).collect();
            let kept = |chain: &Limited| chain.routes.iter().filter(|r| allowed[r[0]]).count();
            if choice
                .chains
                .iter()
                .any(|c| kept(c) != c.most.min(c.routes.len()))
            {
                continue;
            }
            if let (End::Optimal(value, _), _) =
                solve(&choice.program, &allowed, &start, choice.aim)
            {
                best = Some(best.map_or(value, |b: f64| b.min(value)));
            }
        }
        best
    }

    #[test]
    fn the_best_of_all_choices_is_found_and_proved() {
        let mut random = Random::new(7);
        let (mut found, mut none) = (0, 0);
        for number in 0..150 {
            let choice = random_choice(&mut random);
            let chosen = search(&choice, f64::INFINITY, 1e-9, WORK, || false);
            let Some(expected) = brute_force(&choice) else {
                assert_eq!(chosen, Chosen::default(), "{number}");
                none += 1;
                continue;
            };
            let (value, shares) = chosen.best.expect("there is one");
            let bound = chosen.bound.expect("searched");
            assert!(
                (value - expected).abs() < 1e-7 * expected,
                "{number}: {value} {expected}"
            );
            assert!(
                (bound - expected).abs() < 1e-7 * expected,
                "{number}: {bound} {expected}"
            );
            for chain in &choice.chains {
                let used = chain
                    .routes
                    .iter()
                    .filter(|r| shares[r[0]] > UNUSED)
                    .count();
                assert!(used <= chain.most, "{number}: {used} routes");
            }
            found += 1;
            // Nothing better than the best is known to be there, and nothing is claimed that was not looked at.
            let again = search(&choice, expected, 1e-6, WORK, || false);
            assert_eq!(again.best, None, "{number}");
            let cut_short = search(&choice, expected, 1e-6, 1, || false);
            assert!(
                cut_short.bound.expect("a node") <= expected * (1.0 + 1e-9),
                "{number}"
            );
            assert_eq!(search(&choice, expected, 1e-6, WORK, || true).bound, None);
        }
        assert!(found > 100 && none > 2, "{found} {none}");
    }
}
