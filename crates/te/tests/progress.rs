//! What is reported while a solve is at work: within a phase neither value nor bound gets worse, the answer is no worse than
//! the best value that was reported for it, and no bound is reported that the answer beats.

mod support;

use std::sync::Mutex;

use support::stopping::{patient, stopped_everywhere};
use support::{OBJECTIVES, demand, limited_model, placeable, random_model};
use te::instance::{Demand, Instance};
use te::lp::{self, Monitor, Phase, Progress};
use te::plan::{cloud, placement};
use te::series::{self, Matrix};
use te::solution::Objective;
use te::survive::{self, Against};

/// Rounding in figures that are worked out in different ways.
const ROUNDING: f64 = 1e-9;

/// Does some work and gives what it reported meanwhile.
fn watched<T>(work: impl FnOnce(&Monitor<'_>) -> T) -> (T, Vec<Progress>) {
    let told = Mutex::new(Vec::new());
    let report = |progress: &Progress| told.lock().expect("nothing panicked").push(*progress);
    let result = work(&Monitor {
        report: Some(&report),
        interrupt: None,
    });
    (result, told.into_inner().expect("nothing panicked"))
}

/// What answers may lose in the end, when small shares are left out: less than the gap that is asked for.
const GAP: f64 = 1e-6;

/// Whether a figure is worse than another, where larger ones are better or not.
fn is_worse(larger_is_better: bool, now: f64, before: f64, tolerance: f64) -> bool {
    let slack = tolerance * before.abs();
    if larger_is_better {
        now < before - slack
    } else {
        now > before + slack
    }
}

/// Checks reports of work that maximises or not; returns the phases in order.
fn assert_never_worse(told: &[Progress], maximises: bool, what: &str) -> Vec<Phase> {
    let mut phases: Vec<Phase> = told.iter().map(|p| p.phase).collect();
    phases.dedup();
    for phase in &phases {
        let of_phase = told.iter().filter(|p| p.phase == *phase);
        let figures: [(Vec<f64>, bool); 2] = [
            (of_phase.clone().map(|p| p.value).collect(), maximises),
            (of_phase.map(|p| p.bound).collect(), !maximises),
        ];
        for (figures, larger_is_better) in figures {
            let known = figures.iter().copied().filter(|f| f.is_finite());
            let first = figures.iter().take_while(|f| !f.is_finite()).count();
            assert_eq!(
                known.clone().count(),
                figures.len() - first,
                "{what}: {phase:?} {figures:?}"
            );
            let known: Vec<f64> = known.collect();
            let worse = |w: &&[f64]| is_worse(larger_is_better, w[1], w[0], ROUNDING);
            assert!(
                !known.windows(2).any(|w| worse(&w)),
                "{what}: {phase:?} {figures:?}"
            );
        }
    }
    assert!(
        told.windows(2).all(|w| w[0].elapsed <= w[1].elapsed),
        "{what}: {told:?}"
    );
    phases
}

/// Checks the value and the bound of an answer against what was reported of them.
fn assert_kept(told: &[Progress], maximises: bool, value: f64, what: &str) {
    for progress in told {
        let (best, bound) = (progress.value, progress.bound);
        let worse = best.is_finite() && is_worse(maximises, value, best, GAP);
        assert!(!worse, "{what}: {value} after {progress:?}");
        let beaten = bound.is_finite() && is_worse(maximises, bound, value, GAP);
        assert!(!beaten, "{what}: {value} beats {progress:?}");
    }
}

#[test]
fn an_exact_solve_never_reports_what_it_takes_back() {
    let mut reports = 0;
    for seed in 0..60 {
        let model = limited_model(seed);
        for objective in OBJECTIVES {
            let instance = Instance::new(&model, demand(objective)).expect("background fits");
            let (solved, told) =
                watched(|monitor| lp::solve(&model, &instance, objective, &patient(GAP), monitor));
            let Ok(solution) = solved else { continue };
            let what = format!("seed {seed} {objective:?}");
            assert_never_worse(&told, objective.maximises(), &what);
            let own: Vec<Progress> = told
                .into_iter()
                .filter(|p| p.phase == Phase::Whole)
                .collect();
            assert_kept(&own, objective.maximises(), solution.value, &what);
            reports += own.len();
        }
    }
    assert!(reports > 300, "{reports}");
}

#[test]
fn plans_for_failures_report_no_value_before_there_is_one() {
    let mut seen = 0;
    for seed in 0..40 {
        let model = limited_model(seed);
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        let (plan, told) = watched(|monitor| {
            survive::solve(&model, &instance, Against::Links, &patient(GAP), monitor)
        });
        let Ok(plan) = plan else { continue };
        let what = format!("seed {seed}");
        let phases = assert_never_worse(&told, true, &what);
        assert_eq!(phases, [Phase::NormalState, Phase::Failures], "{what}");
        let after: Vec<Progress> = told
            .into_iter()
            .filter(|p| p.phase == Phase::Failures)
            .collect();
        assert_kept(&after, true, plan.solution.value, &what);
        assert!(
            after.iter().all(|p| p.value.is_nan() && p.done.is_some()),
            "{what}"
        );
        seen += after.len();
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn a_series_reports_a_value_when_it_has_an_answer_for_all_matrices() {
    let mut seen = 0;
    for seed in 0..20 {
        let model = random_model(seed);
        let mut night = Matrix::of(&model, "night");
        night
            .forward
            .iter_mut()
            .skip(1)
            .flatten()
            .for_each(|mbps| *mbps *= 0.3);
        let matrices = [Matrix::of(&model, "day"), night];
        let (series, told) =
            watched(|monitor| series::solve(&model, &matrices, 0.0, &patient(GAP), monitor));
        let Ok(series) = series else { continue };
        let what = format!("seed {seed}");
        let phases = assert_never_worse(&told, true, &what);
        assert_eq!(phases, [Phase::EachMatrix, Phase::AllMatrices], "{what}");
        assert_kept(&told, true, series.value, &what);
        let valued = told.iter().filter(|p| p.value.is_finite());
        assert!(
            valued.clone().all(|p| p.phase == Phase::AllMatrices),
            "{what}"
        );
        seen += valued.count();
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn a_plan_of_capacity_reports_no_bound_that_it_beats() {
    let (mut even, mut best, mut better) = (0, 0, 0);
    for seed in 0..40 {
        let (model, _) = placeable(seed);
        let (plan, told) = watched(|monitor| cloud::plan(&model, 100.0, &patient(GAP), monitor));
        let Ok(plan) = plan else { continue };
        let what = format!("seed {seed}");
        let phases = assert_never_worse(&told, true, &what);
        assert_eq!(phases, [Phase::EvenSpread, Phase::BestSpread], "{what}");
        assert_kept(&told, true, plan.solution.value, &what);
        for progress in &told {
            let spread = progress.phase == Phase::EvenSpread;
            assert!(!spread || progress.bound.is_nan(), "{what}: {progress:?}");
            even += usize::from(spread && progress.value.is_finite());
            best += usize::from(!spread && progress.bound.is_finite());
        }
        better += usize::from(plan.solution.value > 1.01 * plan.uniform);
    }
    assert!(
        even > 20 && best > 20 && better > 5,
        "{even} {best} {better}"
    );
}

/// Also while the even spread is at work, whose prices bound every plan.
#[test]
fn a_plan_of_capacity_that_is_stopped_anywhere_has_a_bound() {
    let (mut plans, mut finite) = (0, 0);
    for seed in 0..16 {
        let (model, _) = placeable(seed);
        let solve = |monitor: &Monitor<'_>| cloud::plan(&model, 100.0, &patient(GAP), monitor);
        let Ok(whole) = solve(&Monitor::default()) else {
            continue;
        };
        let load = |v: &te::model::Vnf| v.load_per_mbps > 0.0;
        let visits = |c: &te::model::Chain| c.vnfs.iter().any(|v| load(&model.vnfs[*v]));
        let counts = model.chains.iter().any(visits);
        stopped_everywhere(seed, solve, |n, plan, _| {
            let Ok(plan) = plan else { return };
            let what = format!("seed {seed}, stopped at {n}");
            let bound = plan.solution.bound.expect("it is stated");
            assert!(
                bound >= whole.solution.value * (1.0 - 1e-6),
                "{what}: {bound}"
            );
            assert!(!counts || bound.is_finite(), "{what}");
            plans += 1;
            finite += usize::from(bound.is_finite());
        });
    }
    assert!(plans > 200 && finite > 150, "{plans} {finite}");
}

#[test]
fn a_placement_never_takes_back_what_it_has_found() {
    let (mut few, mut searched) = (0, 0);
    for seed in 0..40 {
        let (model, new) = placeable(seed);
        for capacitated in [true, false] {
            let (plan, told) = watched(|monitor| {
                placement::plan(&model, &new, capacitated, &patient(GAP), monitor)
            });
            let Ok(plan) = plan else { continue };
            let what = format!("seed {seed}, {capacitated}");
            assert_never_worse(&told, false, &what);
            assert_kept(&told, false, plan.solution.value, &what);
            // Once a plan is known it stays known, whatever is worked out next.
            let known = told.iter().skip_while(|p| !p.value.is_finite());
            assert!(
                known.clone().all(|p| p.value.is_finite()),
                "{what}: {told:?}"
            );
            let of = |phase: Phase| told.iter().filter(|p| p.phase == phase).count();
            few += of(Phase::EveryPlacement);
            searched += of(Phase::SearchedPlacements);
        }
    }
    assert!(few > 50 && searched > 50, "{few} {searched}");
}

#[test]
fn whether_all_fits_is_reported_without_figures_of_the_objective() {
    let mut reports = 0;
    for seed in 0..20 {
        let model = random_model(seed);
        let instance = Instance::new(&model, demand(Objective::Latency)).expect("background fits");
        let (_, told) = watched(|monitor| lp::fit(&model, &instance, &patient(GAP), monitor));
        assert!(
            told.iter()
                .all(|p| p.phase == Phase::Fit && p.value.is_nan() && p.bound.is_nan())
        );
        reports += told.len();
    }
    assert!(reports > 10, "{reports}");
}
