//! `make bench-te-figures`: the paper's Figures 12a–c and 13a–c on two backbones, as SVG with the numbers beside them.
//!
//! Usage: bench-te-figures RESULTS-DIRECTORY. Backbones come from the directory in `SWITCHBOARD_DATA`, else
//! `../shared/data` beside the repository. Seeds are fixed and nothing depends on time, so that a second run writes the
//! same bytes.

mod chart;
mod experiments;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use te::import::{Defaults, graphml};

use chart::Figure;
use experiments::Setup;

/// The backbones: file, name in figures, chains, seeds.
const SETUPS: [(&str, &str, usize, u64); 2] = [
    ("AttMpls", "attmpls", 10_000, 3),
    ("Cogentco", "cogentco", 1_000, 1),
];

type Experiment = fn(&Setup) -> Figure;

const EXPERIMENTS: [Experiment; 6] = [
    experiments::throughput_by_coverage,
    experiments::throughput_by_cpu,
    experiments::latency_by_load,
    experiments::variants_of_dp,
    experiments::cloud_planning,
    experiments::placement,
];

/// Experiments at a time.
const THREADS: usize = 2;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let results = std::env::args()
        .nth(1)
        .map_or_else(|| root.join("bench/results"), PathBuf::from);
    let data = std::env::var("SWITCHBOARD_DATA")
        .map_or_else(|_| root.join("../shared/data"), PathBuf::from);
    let setups: Vec<Setup> = SETUPS
        .iter()
        .map(|&(file, name, chains, seeds)| {
            let path = data.join(format!("topologyzoo/{file}.graphml"));
            let Ok(text) = std::fs::read_to_string(&path) else {
                eprintln!(
                    "bench-te-figures: {} is absent; set SWITCHBOARD_DATA to the data directory",
                    path.display()
                );
                std::process::exit(2);
            };
            let defaults = Defaults {
                bandwidth_mbps: Some(10_000.0),
                latency_ms: Some(1.0),
            };
            let backbone = graphml(&text, &defaults).expect("a backbone of the Topology Zoo");
            Setup {
                backbone,
                name,
                title: file,
                chains,
                seeds,
            }
        })
        .collect();
    let figures = all_figures(&setups, &results);
    let path = results.join("te-figures.json");
    std::fs::write(&path, report::json(&root, &figures))
        .unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
}

/// Every experiment on every backbone, two at a time; each is drawn as soon as it is done.
fn all_figures(setups: &[Setup], results: &Path) -> Vec<Figure> {
    let tasks: Vec<(&Setup, Experiment)> = setups
        .iter()
        .flat_map(|setup| EXPERIMENTS.iter().map(move |e| (setup, *e)))
        .collect();
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, Figure>> = Mutex::new(BTreeMap::new());
    let work = || loop {
        let task = next.fetch_add(1, Ordering::Relaxed);
        let Some((setup, experiment)) = tasks.get(task) else {
            return;
        };
        let start = std::time::Instant::now();
        let figure = experiment(setup);
        eprintln!(
            "{} on {}: {:.0} s",
            figure.name,
            setup.title,
            start.elapsed().as_secs_f64()
        );
        figure.print();
        let path = results.join(format!("te-figure-{}-{}.svg", figure.name, figure.backbone));
        chart::draw(&figure, &path)
            .unwrap_or_else(|e| panic!("cannot draw {}: {e}", path.display()));
        done.lock()
            .expect("no experiment panicked")
            .insert(task, figure);
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    done.into_inner()
        .expect("no experiment panicked")
        .into_values()
        .collect()
}
