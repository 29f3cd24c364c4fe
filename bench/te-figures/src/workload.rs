//! Workloads on a backbone, and what solves them.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use te::error::Infeasible;
use te::generate::{Options, generate, widen_access};
use te::heuristic::{self, Heuristic};
use te::instance::Instance;
use te::lp::{self, Monitor, Progress};
use te::model::Model;
use te::solution::{Objective, Solution};

use crate::chart::{Figure, Series};

/// A backbone and the size of the workloads on it.
pub struct Setup {
    /// Nodes and links.
    pub backbone: Model,
    /// Its name in names of figures.
    pub name: &'static str,
    /// Its name in titles.
    pub title: &'static str,
    /// Chains of each workload.
    pub chains: usize,
    /// Seeds 1 to this; the median is drawn.
    pub seeds: u64,
}

/// Gap of the exact solver; below what a figure can show.
pub const GAP: f64 = 1e-3;

/// Share of an access link that its own node's chains fill at most.
const ACCESS_FILL: f64 = 0.3;

/// Time after which a solve says how far it is, and between two such lines.
const SAY_EVERY: Duration = Duration::from_secs(10);

impl Setup {
    /// A workload on the backbone.
    pub fn workload(&self, seed: u64, change: impl FnOnce(&mut Options)) -> Model {
        let mut options = Options {
            chains: self.chains,
            seed,
            ..Options::default()
        };
        change(&mut options);
        let mut model =
            generate(&self.backbone, &options).expect("options in range on a connected backbone");
        widen_access(&mut model, ACCESS_FILL);
        model
    }

    /// The median over seeds.
    pub fn median(&self, of: impl Fn(u64) -> f64) -> f64 {
        let mut values: Vec<f64> = (1..=self.seeds).map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    /// A figure without lines yet.
    pub fn figure(&self, name: &'static str, title: &str, axes: [&'static str; 2]) -> Figure {
        Figure {
            title: format!("{name}: {title} ({})", self.title),
            x: axes[0],
            y: axes[1],
            log_x: false,
            log_y: false,
            near: false,
            series: Vec::new(),
        }
    }

    /// A line's points, each printed when it is measured. Where `of` gives none the line has no point.
    pub fn series(
        &self,
        name: &'static str,
        at: &[f64],
        of: impl Fn(f64) -> Option<f64>,
    ) -> Series {
        let mut points = Vec::new();
        for &x in at {
            let start = Instant::now();
            let y = of(x);
            let seconds = start.elapsed().as_secs_f64();
            match y {
                Some(y) => {
                    eprintln!("  {}: {name} at {x}: {y:.5} ({seconds:.1} s)", self.title);
                    points.push((x, y));
                }
                None => eprintln!("  {}: {name} at {x}: not carried", self.title),
            }
        }
        Series { name, points }
    }

    /// Calls `solve` with a monitor that says how far it is.
    pub fn watched<T>(&self, what: &str, solve: impl FnOnce(&Monitor<'_>) -> T) -> T {
        let said = Mutex::new(Duration::ZERO);
        let report = |p: &Progress| {
            let mut said = said.lock().expect("nothing panics here");
            if p.elapsed.abs_diff(*said) >= SAY_EVERY {
                *said = p.elapsed;
                let (seconds, gap) = (p.elapsed.as_secs_f64(), p.gap);
                eprintln!("    {}, {what}: {seconds:.0} s, gap {gap:.1e}", self.title);
            }
        };
        solve(&Monitor {
            report: Some(&report),
            interrupt: None,
        })
    }
}

/// Options of a solver. No solve comes near the limit of time, so that nothing depends on it.
pub fn options(gap: f64) -> lp::Options {
    lp::Options {
        gap,
        time_limit: Duration::from_secs(3600),
        threads: 1,
        ..lp::Options::default()
    }
}

/// Routes by a heuristic, which no limit of time stops.
pub fn route(
    model: &Model,
    instance: &Instance,
    heuristic: Heuristic,
    objective: Objective,
) -> Result<Solution, Infeasible> {
    let monitor = Monitor::default();
    heuristic::solve(
        model,
        instance,
        heuristic,
        objective,
        &options(GAP),
        &monitor,
    )
}
