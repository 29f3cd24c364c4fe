//! SB-DP's answer, for objectives with fixed capacities: there long before the solver has one of its own.

use super::*;
use crate::heuristic::{self, Heuristic};
use crate::solution::Status;

impl Solver<'_> {
    /// Runs SB-DP and takes its routing over where that carries all that it must.
    pub(super) fn start_quickly(&mut self, model: &Model) -> Result<(), Infeasible> {
        let objective = self.costing.objective;
        let rest = self.clock.share(self.options, 1);
        let bound = self.in_objective(self.bound);
        let since = self.clock.elapsed();
        let meaning = |progress: &Progress| Progress {
            phase: Phase::Heuristic,
            elapsed: since + progress.elapsed,
            bound,
            ..*progress
        };
        let (instance, dp) = (self.instance, Heuristic::Dp);
        let quick = self.monitor.told(meaning, |monitor| {
            heuristic::solve(model, instance, dp, objective, &rest, monitor)
        })?;
        if !quick.leaves_demand(self.instance) {
            let shares = self.columns_of(&quick);
            let utilization = self.utilization(&shares);
            self.offer(&shares, &utilization);
            self.held = self.value;
        }
        self.quick = Some(quick);
        self.report();
        Ok(())
    }

    /// A routing by columns, which are added where they are new; what it leaves goes uncarried.
    pub(super) fn columns_of(&mut self, solution: &Solution) -> Vec<f64> {
        let mut shares: Vec<f64> = Vec::new();
        let mut left = vec![1.0; self.instance.commodities.len()];
        for flow in &solution.flows {
            let (column, _) =
                self.columns
                    .add(self.instance, &self.costing, flow.commodity, &flow.route);
            shares.resize(self.columns.len().max(shares.len()), 0.0);
            shares[column] += flow.fraction;
            left[flow.commodity] -= flow.fraction;
        }
        for (commodity, left) in left.into_iter().enumerate() {
            if self
                .costing
                .may_be_left(&self.instance.commodities[commodity])
            {
                let column = self.columns.uncarried(commodity);
                shares.resize(self.columns.len().max(shares.len()), 0.0);
                shares[column] = left.max(0.0);
            }
        }
        shares
    }

    /// Whether SB-DP's answer is better than the solver's: because there was no time, or because chains may have few routes.
    pub(super) fn quick_is_better(&self) -> bool {
        let better = |quick: &Solution| {
            let own = self.in_objective(self.value);
            !quick.leaves_demand(self.instance)
                && if self.costing.objective.maximises() {
                    quick.value > own * (1.0 + ROUNDING)
                } else {
                    quick.value < own * (1.0 - ROUNDING)
                }
        };
        self.value.is_infinite() || self.quick.as_ref().is_some_and(better)
    }

    /// SB-DP's answer with the bound proved so far.
    pub(super) fn give_quick(self) -> (Solution, Vec<f64>) {
        let bound = self.in_objective(self.bound);
        let relaxed = self.relaxed.map(|b| self.in_objective(b));
        let mut solution = self.quick.expect("SB-DP ran for this objective");
        solution.bound = Some(bound);
        solution.relaxed = relaxed;
        solution.seconds = self.clock.elapsed().as_secs_f64();
        if !solution.leaves_demand(self.instance) {
            solution.status = self.clock.status(solution.gap(), self.options.gap);
        } else {
            solution.status = self.clock.ended(Status::Partial);
        }
        let unit = self.costing.unit;
        (solution, self.proof.iter().map(|p| p * unit).collect())
    }
}
