//! What is known while a solve is at work, and who wants to know it.

use std::time::Duration;

/// What a solve that has several parts is at. Within a part neither value nor bound gets worse; what they are of is said
/// here, and is the answer's own unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A solve that has one part only.
    Whole,
    /// SB-DP, whose answer is the exact solver's first.
    Heuristic,
    /// Whether all that must be carried fits; without any figure of the objective.
    Fit,
    /// The routing while nothing has failed; its value is that of the normal state.
    NormalState,
    /// Backup routes for one failure after the other; a bound only, as there is no plan before the last.
    Failures,
    /// Each demand matrix by itself; a bound only, as none of the routings serves the others.
    EachMatrix,
    /// One answer for all demand matrices.
    AllMatrices,
    /// Added capacity spread evenly, which is a plan; no bound on the best one.
    EvenSpread,
    /// Added capacity where it is best.
    BestSpread,
    /// All placements, one after the other, where they are few.
    EveryPlacement,
    /// The search among many placements.
    SearchedPlacements,
    /// What is compared with the finished plan: the latency without new sites.
    WithoutNewSites,
}

impl Phase {
    /// What it is called in progress; nothing where there is one only.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Whole => "",
            Phase::Heuristic => "SB-DP",
            Phase::Fit => "whether all demand fits",
            Phase::NormalState => "normal state",
            Phase::Failures => "failures",
            Phase::EachMatrix => "each matrix alone",
            Phase::AllMatrices => "all matrices",
            Phase::EvenSpread => "even spread",
            Phase::BestSpread => "best spread",
            Phase::EveryPlacement => "every placement",
            Phase::SearchedPlacements => "search",
            Phase::WithoutNewSites => "without new sites",
        }
    }
}

/// Progress of a solve, in the objective's own unit. What is not known yet is not finite.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// What it is at.
    pub phase: Phase,
    /// Time since the start.
    pub elapsed: Duration,
    /// Best value so far.
    pub value: f64,
    /// Best bound so far.
    pub bound: f64,
    /// Relative gap between the two.
    pub gap: f64,
    /// Share of the work that is done, where it can be told.
    pub done: Option<f64>,
}

impl Progress {
    /// Nothing but the time is known.
    pub fn at(elapsed: Duration) -> Progress {
        Progress {
            phase: Phase::Whole,
            elapsed,
            value: f64::NAN,
            bound: f64::NAN,
            gap: f64::NAN,
            done: None,
        }
    }
}

/// A question that is asked every few microseconds while a solve is at work: is the best answer so far wanted now? Once
/// it was answered with yes it must be for good.
pub type Interrupt<'a> = &'a (dyn Fn() -> bool + Sync);

/// What watches a solve: gets its progress and may stop it.
#[derive(Default, Clone, Copy)]
pub struct Monitor<'a> {
    /// Called after every round.
    pub report: Option<&'a (dyn Fn(&Progress) + Sync)>,
    /// Asked whether to stop at the best answer so far.
    pub interrupt: Option<Interrupt<'a>>,
}

impl Monitor<'_> {
    /// Does a part of some work, which begins `since` after the whole, under the part's name.
    pub fn during<T>(
        &self,
        phase: Phase,
        since: Duration,
        work: impl FnOnce(&Monitor<'_>) -> T,
    ) -> T {
        let meaning = |progress: &Progress| Progress {
            phase,
            elapsed: since + progress.elapsed,
            ..*progress
        };
        self.told(meaning, work)
    }

    /// Does a part of some work whose progress means something else for the whole.
    pub fn told<T>(
        &self,
        meaning: impl Fn(&Progress) -> Progress + Sync,
        work: impl FnOnce(&Monitor<'_>) -> T,
    ) -> T {
        let report = |progress: &Progress| {
            if let Some(report) = self.report {
                report(&meaning(progress));
            }
        };
        work(&Monitor {
            report: Some(&report),
            ..*self
        })
    }

    /// The same without reports.
    pub fn quiet(&self) -> Monitor<'_> {
        Monitor {
            report: None,
            ..*self
        }
    }
}
