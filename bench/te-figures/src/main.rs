//! `make bench-te-figures`: the paper's Figures 12a–c and 13a–c on two backbones, as SVG with the numbers beside them.
//!
//! Usage: bench-te-figures RESULTS-DIRECTORY [NAME...], a NAME being a figure's or with its backbone: `12a`,
//! `13b-attmpls`; without any, all are drawn. Backbones come from the directory in `SWITCHBOARD_DATA`, else
//! `../shared/data` beside the repository. Seeds are fixed and nothing depends on time, so that a second run writes the
//! same bytes.

mod chart;
mod experiments;
mod planning;
mod report;
mod workload;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use te::import::{Defaults, Notes, graphml};

use chart::Figure;
use workload::Setup;

/// The backbones: file, name in figures, chains, seeds.
const SETUPS: [(&str, &str, usize, u64); 2] = [
    ("AttMpls", "attmpls", 10_000, 3),
    ("Geant2012", "geant2012", 10_000, 3),
];

type Experiment = fn(&Setup) -> Figure;

const EXPERIMENTS: [(&str, Experiment); 6] = [
    ("12a", experiments::throughput_by_coverage),
    ("12b", experiments::throughput_by_cpu),
    ("12c", experiments::latency_by_load),
    ("13a", experiments::variants_of_dp),
    ("13b", planning::cloud),
    ("13c", planning::placement),
];

/// Experiments at a time.
const THREADS: usize = 2;

/// One figure to draw.
struct Task<'a> {
    name: String,
    setup: &'a Setup,
    experiment: Experiment,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench-te-figures: {e}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut words = std::env::args().skip(1);
    let results = words
        .next()
        .map_or_else(|| root.join("bench/results"), PathBuf::from);
    let wanted: Vec<String> = words.collect();
    let data = std::env::var("SWITCHBOARD_DATA")
        .map_or_else(|_| root.join("../shared/data"), PathBuf::from);
    let setups = SETUPS
        .iter()
        .map(|&(file, name, chains, seeds)| {
            let path = data.join(format!("topologyzoo/{file}.graphml"));
            let text = std::fs::read_to_string(&path).map_err(|e| {
                format!(
                    "{}: {e}; set SWITCHBOARD_DATA to the data directory",
                    path.display()
                )
            })?;
            let defaults = Defaults {
                bandwidth_mbps: Some(10_000.0),
                latency_ms: Some(1.0),
            };
            Ok(Setup {
                backbone: graphml(&text, &defaults, &mut Notes::default())?,
                name,
                title: file,
                chains,
                seeds,
            })
        })
        .collect::<Result<Vec<Setup>, Box<dyn Error>>>()?;
    let tasks = tasks(&setups, &wanted)?;
    draw_all(&tasks, &results)
}

/// The figures that are wanted; all where none is named.
fn tasks<'a>(setups: &'a [Setup], wanted: &[String]) -> Result<Vec<Task<'a>>, String> {
    let mut tasks = Vec::new();
    for setup in setups {
        for (figure, experiment) in EXPERIMENTS {
            let name = format!("{figure}-{}", setup.name);
            tasks.push(Task {
                name,
                setup,
                experiment,
            });
        }
    }
    let is = |task: &Task<'_>, word: &str| {
        task.name == word || task.name.split('-').next() == Some(word)
    };
    if let Some(unknown) = wanted.iter().find(|w| !tasks.iter().any(|t| is(t, w))) {
        let known: Vec<&str> = tasks.iter().map(|t| t.name.as_str()).collect();
        return Err(format!(
            "'{unknown}' is no figure; known: {}",
            known.join(", ")
        ));
    }
    tasks.retain(|t| wanted.is_empty() || wanted.iter().any(|w| is(t, w)));
    Ok(tasks)
}

/// Every task, two at a time; each figure is written as soon as it is done.
fn draw_all(tasks: &[Task<'_>], results: &Path) -> Result<(), Box<dyn Error>> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = std::time::Instant::now();
            let figure = (task.experiment)(task.setup);
            eprintln!("{}: {:.0} s", task.name, start.elapsed().as_secs_f64());
            let path = results.join(format!("te-figure-{}", task.name));
            if let Err(e) = write(&figure, &path) {
                eprintln!("bench-te-figures: {}: {e}", path.display());
                failed.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    if failed.into_inner() {
        return Err("not all figures were written".into());
    }
    Ok(())
}

fn write(figure: &Figure, path: &Path) -> Result<(), Box<dyn Error>> {
    chart::draw(figure, &path.with_extension("svg"))?;
    std::fs::write(path.with_extension("csv"), report::csv(figure))?;
    Ok(())
}
