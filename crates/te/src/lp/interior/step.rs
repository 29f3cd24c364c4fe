//! The step of one iteration: Mehrotra's direction, then Gondzio's corrections toward balanced products.
//!
//! A step is short where a few products of a variable and its dual are far from the others. Each correction aims at
//! those alone: it looks where a longer step would lead, and asks for products within bounds of the target there. As in
//! Colombo and Gondzio ("Further development of multiple centrality correctors", 2008) a correction is taken in the part
//! that makes the step longest, for primal and dual apart, since their equations share no variable; none makes it shorter.

use std::ops::Range;

use super::equations::Equations;
use super::{Master, Point, Slopes};
use crate::clock::Clock;
use crate::parallel::in_parts;

/// Fraction of the way to the boundary that a step goes.
const STEP: f64 = 0.99;

/// Most corrections after Mehrotra's.
const CORRECTIONS: usize = 4;

/// How much further a correction looks, and the part of it that must be gained for the next.
const FURTHER: f64 = 0.3;
const GAIN: f64 = 0.02;

/// A product is left alone within these multiples of the target.
const BALANCED: (f64, f64) = (0.1, 10.0);

/// Parts of a correction that are tried.
const PARTS: usize = 8;

/// Values from which threads look for the part.
const MANY: usize = 20_000;

/// A change of a point and of its slopes.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub x: Vec<f64>,
    pub slack: Vec<f64>,
    pub t: f64,
    pub price: Vec<f64>,
    pub reduced: Vec<f64>,
    pub marginal: Vec<f64>,
}

/// What the products are to change by: of columns, and of rows.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub x: Vec<f64>,
    pub slack: Vec<f64>,
}

impl Step {
    /// Adds the parts of a correction to the primal and to the dual side.
    fn add(&mut self, other: &Step, primal: f64, dual: f64) {
        let add = |to: &mut [f64], from: &[f64], part: f64| {
            to.iter_mut().zip(from).for_each(|(a, b)| *a += part * b);
        };
        add(&mut self.x, &other.x, primal);
        add(&mut self.slack, &other.slack, primal);
        self.t += primal * other.t;
        add(&mut self.price, &other.price, dual);
        add(&mut self.reduced, &other.reduced, dual);
        add(&mut self.marginal, &other.marginal, dual);
    }
}

impl Master {
    /// The step from a point, and how far to go on the primal and on the dual side.
    pub(super) fn step(
        &self,
        equations: &mut Equations,
        point: &Point,
        slopes: &Slopes,
        mu: f64,
        clock: &Clock<'_>,
    ) -> (Step, f64, f64) {
        let target = Target {
            x: less_product(&point.x, &slopes.reduced, 0.0),
            slack: less_product(&slopes.slack, &point.price, 0.0),
        };
        let mut step = equations.direction(self, point, slopes, &target);
        let (mut primal, mut dual) = lengths(point, slopes, &step);
        let left = products_after(point, slopes, &step, primal, dual);
        let gap = mu * (self.columns() + self.rows) as f64;
        let after: f64 = left.x.iter().sum::<f64>() + left.slack.iter().sum::<f64>();
        let aim = (after / gap).powi(3).min(1.0) * mu;
        // Mehrotra's correction, whole: centre, and make up for the second order. A part of it may lack the centring that
        // leads away from a boundary, and then no later step is longer.
        let target = Target {
            x: less_product(&step.x, &step.reduced, aim),
            slack: less_product(&step.slack, &step.price, aim),
        };
        let correction = equations.direction(self, point, slopes, &target);
        (primal, dual) = take(point, slopes, &mut step, &correction, 1.0, self.threads);
        for _ in 0..CORRECTIONS {
            if primal.min(dual) > 0.9 || clock.is_over() {
                break;
            }
            let (p, d) = ((primal + FURTHER).min(1.0), (dual + FURTHER).min(1.0));
            let mut target = products_after(point, slopes, &step, p, d);
            let balance = |v: &mut f64| {
                let wanted = v.clamp(BALANCED.0 * aim, BALANCED.1 * aim);
                *v = (wanted - *v).max(-BALANCED.1 * aim);
            };
            target.x.iter_mut().for_each(balance);
            target.slack.iter_mut().for_each(balance);
            let correction = equations.direction(self, point, slopes, &target);
            let before = (primal, dual);
            (primal, dual) = take(point, slopes, &mut step, &correction, 0.0, self.threads);
            if primal + dual < before.0 + before.1 + 2.0 * GAIN * FURTHER {
                break;
            }
        }
        (step, (STEP * primal).min(1.0), (STEP * dual).min(1.0))
    }
}

/// Adds the part of a correction to a step that makes it longest, at least `least`; returns the lengths.
fn take(
    point: &Point,
    slopes: &Slopes,
    step: &mut Step,
    correction: &Step,
    least: f64,
    threads: usize,
) -> (f64, f64) {
    let (p, primal) = best_part(
        [
            (&point.x, &step.x, &correction.x),
            (&slopes.slack, &step.slack, &correction.slack),
        ],
        least,
        threads,
    );
    let (d, dual) = best_part(
        [
            (&slopes.reduced, &step.reduced, &correction.reduced),
            (&point.price, &step.price, &correction.price),
        ],
        least,
        threads,
    );
    step.add(correction, p, d);
    (primal, dual)
}

/// Values, their step and its correction.
type Side<'a> = (&'a [f64], &'a [f64], &'a [f64]);

/// The part of a correction, from `least` to 1, with which a step is longest, and that length, at most 1.
fn best_part(sides: [Side<'_>; 2], least: f64, threads: usize) -> (f64, f64) {
    let part = |k: usize| least + (1.0 - least) * k as f64 / PARTS as f64;
    let parts: [f64; PARTS + 1] = std::array::from_fn(part);
    // Largest share of a value that the whole step takes away, for each part.
    let mut most = [0.0f64; PARTS + 1];
    for (values, steps, corrections) in sides {
        let of_range = |range: Range<usize>| {
            let mut most = [0.0f64; PARTS + 1];
            let triples = values[range.clone()].iter().zip(&steps[range.clone()]);
            for ((v, d), c) in triples.zip(&corrections[range]) {
                let inverse = -1.0 / v;
                let (d, c) = (d * inverse, c * inverse);
                for (most, part) in most.iter_mut().zip(&parts) {
                    *most = most.max(d + part * c);
                }
            }
            most
        };
        for of_range in in_parts(values.len(), threads, MANY, of_range) {
            most.iter_mut()
                .zip(of_range)
                .for_each(|(most, one)| *most = most.max(one));
        }
    }
    // Of equals the greatest part.
    let best = (0..=PARTS).rev().fold(PARTS, |best, k| {
        if most[k].max(1.0) < most[best].max(1.0) {
            k
        } else {
            best
        }
    });
    (parts[best], 1.0 / most[best].max(1.0))
}

/// How far a step can go on the primal and on the dual side, at most 1.
fn lengths(point: &Point, slopes: &Slopes, step: &Step) -> (f64, f64) {
    let longest = |values: &[f64], steps: &[f64]| {
        let most = values
            .iter()
            .zip(steps)
            .fold(1.0, |most: f64, (v, d)| most.max(-d / v));
        1.0 / most
    };
    let primal = longest(&point.x, &step.x).min(longest(&slopes.slack, &step.slack));
    let dual = longest(&slopes.reduced, &step.reduced).min(longest(&point.price, &step.price));
    (primal, dual)
}

/// The products of variables and their duals after a step.
fn products_after(point: &Point, slopes: &Slopes, step: &Step, primal: f64, dual: f64) -> Target {
    let after = |x: &[f64], dx: &[f64], z: &[f64], dz: &[f64]| {
        let primal = x.iter().zip(dx).map(|(x, d)| x + primal * d);
        let dual = z.iter().zip(dz).map(|(z, d)| z + dual * d);
        primal.zip(dual).map(|(x, z)| x * z).collect()
    };
    Target {
        x: after(&point.x, &step.x, &slopes.reduced, &step.reduced),
        slack: after(&slopes.slack, &step.slack, &point.price, &step.price),
    }
}

fn less_product(primal: &[f64], dual: &[f64], aim: f64) -> Vec<f64> {
    primal.iter().zip(dual).map(|(a, b)| aim - a * b).collect()
}
