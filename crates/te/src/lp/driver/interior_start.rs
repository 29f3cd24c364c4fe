//! Finding a first point that keeps every limit, or the limit that shows there is none.

use super::*;

impl Solver<'_> {
    /// For objectives with fixed demands: a routing that fits, or the proof that there is none; then a start from it. Says whether that is
    /// one by counting, which another may be better than.
    pub(super) fn find_interior(&mut self, model: &Model) -> Result<bool, Infeasible> {
        if self.should_stop() {
            return Ok(false);
        }
        let needed: Vec<usize> = (0..self.instance.commodities.len())
            .filter(|&c| self.instance.commodities[c].mandatory)
            .collect();
        let mut shares: Vec<f64> = Vec::new();
        if !needed.is_empty() {
            let part = fit::mandatory(self.instance);
            // What is known of the objective meanwhile; how full the search for room is means nothing to the user.
            let known = self.progress();
            let outer = *self.monitor;
            let report = |progress: &Progress| {
                if let Some(report) = outer.report {
                    report(&Progress {
                        elapsed: progress.elapsed,
                        ..known
                    });
                }
            };
            let monitor = Monitor {
                report: Some(&report),
                ..outer
            };
            let scale = fit::room(model, &part, self.options, &monitor, self.clock)?;
            if scale.value > 1.0 + ROUNDING {
                // Not known to be too much: SB-DP's answer is what there is.
                return Ok(false);
            }
            for flow in outcome::flows(&part, &scale.columns, &scale.best) {
                let commodity = needed[flow.commodity];
                let (column, _) =
                    self.columns
                        .add(self.instance, &self.costing, commodity, &flow.route);
                shares.resize(self.columns.len(), 0.0);
                shares[column] = flow.fraction;
            }
        }
        for commodity in 0..self.instance.commodities.len() {
            if self
                .costing
                .may_be_left(&self.instance.commodities[commodity])
            {
                let column = self.columns.uncarried(commodity);
                shares.resize(self.columns.len(), 0.0);
                shares[column] = 1.0;
            }
        }
        let utilization = self.utilization(&shares);
        let room = utilization.iter().copied().fold(0.0, f64::max);
        self.interior = Some((shares.clone(), room));
        self.offer(&shares, &utilization);
        self.report();
        let counted = self.ration();
        if !counted {
            self.walk_with_barrier();
        }
        Ok(counted)
    }

    pub(super) fn walk_with_barrier(&mut self) {
        let mut walk = FrankWolfe::new(self.instance, self.costing, self.clock);
        let mut potential = Potential {
            steepness: 15.0,
            limit: 1.0,
            slope: 0.05,
        };
        self.stuck = walk.start(&mut self.columns, &potential);
        if self.stuck.is_some() || self.should_stop() {
            return;
        }
        for _ in 0..WALK {
            walk.sweep(&mut self.columns, &potential);
            potential.steepness = (potential.steepness * 1.4).min(150.0);
            if self.should_stop() {
                break;
            }
        }
        walk.x.resize(self.columns.len(), 0.0);
        self.offer(&walk.x, &walk.utilization);
        let none = vec![f64::NEG_INFINITY; self.instance.commodities.len()];
        let price = walk.price.clone();
        self.price_out(&price, &none, 0.0);
        self.report();
        self.adopt_rows(&walk.utilization, &price);
        // The bound of every chain's fastest route may be better, and its prices of nothing are no start.
        self.first_price = Some(price);
    }
}
