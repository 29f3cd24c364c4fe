//! The first routing, the first prices and the first rows of the master.

use super::*;

/// Most sweeps of Frank–Wolfe.
const LONGEST_WALK: usize = 64;

/// Walking goes on while that many sweeps leave at most this share of the value: they cost less than a round of a
/// master with thousands of rows.
const WORTHWHILE: f64 = 0.98;

/// Gap from which the master goes on.
const GOOD_START: f64 = 0.02;

/// Gap up to which the master starts from the prices of the proof instead of the walk's.
const CLOSE: f64 = 0.05;

/// Rows above this share of the limit take part in the first master.
const NEAR: f64 = 0.92;

/// So many rows make a master whose rounds are dear; then rows that may come to bind had better be there at once: a
/// few missing ones cost a whole round,
const MANY: usize = 500;

/// and they are those above this share of the limit.
const NEAR_OF_MANY: f64 = 0.4;

/// Steepest potential of Frank–Wolfe, relative to the largest utilisation.
const STEEPEST: f64 = 400.0;

impl Solver<'_> {
    /// Frank–Wolfe from nothing, under scale.
    pub(super) fn warm_start(&mut self) {
        let mut walk = FrankWolfe::new(self.instance, self.costing, self.clock);
        self.stuck = walk.start(
            &mut self.columns,
            &Potential {
                steepness: 15.0,
                limit: 1.0,
                slope: 1.0,
            },
        );
        if self.stuck.is_some() {
            return;
        }
        let none = vec![f64::NEG_INFINITY; self.instance.commodities.len()];
        if self.expansion.is_none()
            && let Some((price, bound)) = counting::prove(self.instance)
            && bound > self.bound
        {
            (self.bound, self.proof) = (bound, price);
        }
        let mut steepness = 30.0;
        let mut price = self.proof.clone();
        let mut before = f64::INFINITY;
        for sweep in 1..=LONGEST_WALK {
            if walk.utilization.iter().all(|u| *u <= 0.0) {
                (self.value, self.best) = (0.0, walk.x);
                return;
            }
            walk.sweep(
                &mut self.columns,
                &Potential {
                    steepness,
                    limit: 1.0,
                    slope: 1.0,
                },
            );
            steepness = (steepness * 1.5f64).min(STEEPEST);
            if sweep % WALK != 0 {
                continue;
            }
            let now = self.utilization(&walk.x);
            self.offer(&walk.x, &now);
            for flatter in [STEEPEST, 0.25 * STEEPEST] {
                price = walk.prices_at(flatter);
                self.price_out(&price, &none, 0.0);
            }
            self.report();
            if self.should_stop() || self.gap() < GOOD_START || self.value > WORTHWHILE * before {
                break;
            }
            before = self.value;
        }
        let now = self.utilization(&walk.x);
        // Proven prices that are nearly right are the better start. Others may price thousands of rows that do not bind.
        if self.gap() < CLOSE {
            price = self.proof.clone();
        }
        self.adopt_rows(&now, &price);
        self.first_price = Some(price);
    }

    /// Goes on from the optimum for capacity that is spread evenly, and from the prices of the rows that it left: they prove a
    /// bound here too, however short the time is.
    pub(super) fn take_up(&mut self, even: &Solution, price: &[f64]) {
        if even.leaves_demand(self.instance) {
            return;
        }
        let x = self.columns_of(even);
        let now = self.utilization(&x);
        self.offer(&x, &now);
        let mut price = price.to_vec();
        price.resize(self.instance.rows(), 0.0);
        let before: f64 = price.iter().sum();
        if let Some(expansion) = &self.expansion {
            expansion.relieve(&mut price);
            expansion.price_budget(&mut price);
        }
        // A unit of load costs what it did, and so does every chain: the certificate needs no sweep.
        let least = even
            .relaxed
            .or(even.bound)
            .map_or(0.0, |bound| before / bound);
        let bound = least / price.iter().sum::<f64>();
        if bound > self.bound {
            (self.bound, self.proof) = (bound, price.clone());
        }
        let none = vec![f64::NEG_INFINITY; self.instance.commodities.len()];
        self.price_out(&price, &none, 0.0);
        self.report();
        self.adopt_rows(&now, &price);
        self.first_price = Some(price);
    }

    /// Rows that are near the limit or priced take part in the master.
    pub(super) fn adopt_rows(&mut self, utilization: &[f64], price: &[f64]) {
        let limit = if self.is_scale() {
            utilization.iter().copied().fold(0.0, f64::max)
        } else {
            1.0
        };
        let dearest = price.iter().copied().fold(0.0, f64::max);
        let many = utilization.iter().filter(|&&u| u >= NEAR * limit).count() > MANY;
        let near = if many { NEAR_OF_MANY } else { NEAR };
        for row in 0..self.instance.rows() {
            if utilization[row] >= near * limit || price[row] > 1e-4 * dearest {
                self.restricted.add_row(row);
            }
        }
    }
}
