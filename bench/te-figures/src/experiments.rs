//! What each figure measures.

use te::generate::{Division, Options, generate};
use te::heuristic::{self, Heuristic};
use te::instance::{Demand, Instance};
use te::lp::{self, Monitor};
use te::model::{Deployment, Model};
use te::plan::{cloud, placement as placing};
use te::random::Random;
use te::result::figures;
use te::solution::{Objective, Solution, Status};

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

/// What routes a workload.
#[derive(Clone, Copy)]
enum Scheme {
    Exact,
    Heuristic(Heuristic),
}

const COVERAGES: [f64; 4] = [0.25, 0.5, 0.75, 1.0];
const CPU: [f64; 6] = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0];
const LOADS: [f64; 8] = [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95];
const ADDED: [f64; 4] = [0.25, 0.5, 1.0, 2.0];
const NEW_SITES: [usize; 3] = [1, 2, 4];

/// Plans take longer than routings, and are drawn for one seed.
const PLANNING_SEED: u64 = 1;

/// Random placements that a plan is compared with.
const DRAWS: u64 = 5;

/// Gap of the exact solver; below what a figure can show.
const GAP: f64 = 1e-3;

impl Setup {
    fn workload(&self, seed: u64, change: impl FnOnce(&mut Options)) -> Model {
        let mut options = Options {
            chains: self.chains,
            seed,
            ..Options::default()
        };
        change(&mut options);
        generate(&self.backbone, &options).expect("options in range on a connected backbone")
    }

    fn median(&self, of: impl Fn(u64) -> f64) -> f64 {
        let mut values: Vec<f64> = (1..=self.seeds).map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    fn figure(&self, name: &'static str, title: &str, axes: [&'static str; 2]) -> Figure {
        Figure {
            name,
            backbone: self.name,
            title: format!("{title} ({})", self.title),
            x: axes[0],
            y: axes[1],
            unit: "",
            log_x: false,
            log_y: false,
            series: Vec::new(),
        }
    }
}

fn options(gap: f64) -> lp::Options {
    lp::Options {
        gap,
        time_limit: std::time::Duration::from_secs(300),
        threads: 1,
    }
}

/// The largest factor on the demands that a scheme carries.
fn factor(model: &Model, scheme: Scheme) -> f64 {
    let instance = Instance::new(model, Demand::Full).expect("background fits");
    let solved = match scheme {
        Scheme::Exact => lp::solve(
            model,
            &instance,
            Objective::Scale,
            &options(GAP),
            &Monitor::default(),
        ),
        Scheme::Heuristic(h) => heuristic::solve(model, &instance, h, Objective::Scale),
    };
    solved.expect("every chain has a route").value
}

/// The demand that a scheme sustains when all chains grow alike, Gbit/s.
fn throughput(model: &Model, scheme: Scheme) -> f64 {
    let offered: f64 = model.chains.iter().map(|c| c.demand_mbps()).sum();
    factor(model, scheme) * offered / 1000.0
}

const LP: (&str, Scheme) = ("SB-LP", Scheme::Exact);
const DP: (&str, Scheme) = ("SB-DP", Scheme::Heuristic(Heuristic::Dp));
const ANYCAST: (&str, Scheme) = ("Anycast", Scheme::Heuristic(Heuristic::Anycast));
const ONE_HOP: (&str, Scheme) = ("OneHop", Scheme::Heuristic(Heuristic::OneHop));
const DP_LATENCY: (&str, Scheme) = ("DP-Latency", Scheme::Heuristic(Heuristic::DpLatency));

fn throughputs(
    setup: &Setup,
    schemes: &[(&'static str, Scheme)],
    at: &[f64],
    change: impl Fn(&mut Options, f64),
) -> Vec<Series> {
    let one = |&(name, scheme): &(&'static str, Scheme)| Series {
        name,
        points: at
            .iter()
            .map(|&x| {
                let value = |seed| throughput(&setup.workload(seed, |o| change(o, x)), scheme);
                (x, setup.median(value))
            })
            .collect(),
    };
    schemes.iter().map(one).collect()
}

/// Figure 12a.
pub fn throughput_by_coverage(setup: &Setup) -> Figure {
    Figure {
        unit: "Gbit/s",
        log_y: true,
        series: throughputs(setup, &[LP, DP, ANYCAST], &COVERAGES, |o, x| o.coverage = x),
        ..setup.figure(
            "12a",
            "Throughput by VNF coverage",
            ["coverage", "throughput, Gbit/s"],
        )
    }
}

/// Figure 12b.
pub fn throughput_by_cpu(setup: &Setup) -> Figure {
    Figure {
        unit: "Gbit/s",
        log_x: true,
        log_y: true,
        series: throughputs(setup, &[LP, DP, ANYCAST], &CPU, |o, x| o.cpu_per_byte = x),
        ..setup.figure(
            "12b",
            "Throughput by CPU/byte",
            ["CPU/byte", "throughput, Gbit/s"],
        )
    }
}

/// Figure 13a.
pub fn variants_of_dp(setup: &Setup) -> Figure {
    Figure {
        unit: "Gbit/s",
        log_y: true,
        series: throughputs(setup, &[DP, ONE_HOP, DP_LATENCY], &COVERAGES, |o, x| {
            o.coverage = x
        }),
        ..setup.figure(
            "13a",
            "Throughput of SB-DP's variants",
            ["coverage", "throughput, Gbit/s"],
        )
    }
}

/// Figure 12c: mean latency while all demand is carried; a scheme's line ends where it no longer carries it.
pub fn latency_by_load(setup: &Setup) -> Figure {
    let base = setup.workload(1, |_| {});
    let most = factor(&base, Scheme::Exact);
    let at = |load: f64, scheme: Scheme| {
        let mut model = base.clone();
        for chain in &mut model.chains {
            let both = chain.forward_mbps.iter_mut().chain(&mut chain.reverse_mbps);
            both.for_each(|mbps| *mbps *= load * most);
        }
        let instance = Instance::new(&model, Demand::Full).expect("background fits");
        let solved = match scheme {
            Scheme::Exact => lp::solve(
                &model,
                &instance,
                Objective::Latency,
                &options(GAP),
                &Monitor::default(),
            ),
            Scheme::Heuristic(h) => heuristic::solve(&model, &instance, h, Objective::Latency),
        };
        solved
            .ok()
            .filter(|s| s.status != Status::Partial)
            .map(|s: Solution| (load, figures(&model, &instance, &s).mean_latency_ms))
    };
    let one = |(name, scheme): (&'static str, Scheme)| Series {
        name,
        points: LOADS.iter().filter_map(|&load| at(load, scheme)).collect(),
    };
    Figure {
        unit: "ms",
        series: [LP, DP, ANYCAST].into_iter().map(one).collect(),
        ..setup.figure(
            "12c",
            "Latency by load",
            ["load, share of SB-LP's largest", "mean latency, ms"],
        )
    }
}

/// Figure 13b: how much more the demands can grow when capacity is added where the plan says.
pub fn cloud_planning(setup: &Setup) -> Figure {
    let gain = |division: Division, added: f64, seed: u64| {
        let model = setup.workload(seed, |o| (o.cpu_per_byte, o.division) = (1.0, division));
        let total: f64 = model.sites.iter().map(|s| s.capacity).sum();
        let plan =
            cloud::plan(&model, added * total, &options(GAP), &Monitor::default()).expect("routes");
        100.0 * (plan.solution.value / plan.uniform - 1.0)
    };
    let one = |(name, division): (&'static str, Division)| Series {
        name,
        points: ADDED
            .iter()
            .map(|&a| (a, gain(division, a, PLANNING_SEED)))
            .collect(),
    };
    let divisions = [
        ("site capacity divided equally", Division::Equal),
        ("overbooked", Division::Overbooked),
        ("in proportion to demand", Division::Proportional),
    ];
    Figure {
        unit: "%",
        log_x: true,
        series: divisions.into_iter().map(one).collect(),
        ..setup.figure(
            "13b",
            "Cloud planning: gain over uniform",
            ["added capacity, share of present", "gain in throughput, %"],
        )
    }
}

/// Figure 13c: how much less the chains travel than with new sites drawn at random.
pub fn placement(setup: &Setup) -> Figure {
    let one = |(name, coverage): (&'static str, f64)| {
        let gain = |count: usize, seed: u64| {
            let model = setup.workload(seed, |o| o.coverage = coverage);
            let each = vec![count; model.vnfs.len()];
            let plan = placing::plan(&model, &each, false, &options(0.02), &Monitor::default())
                .expect("enough sites");
            let random: f64 = (1..=DRAWS)
                .map(|draw| fastest(&at_random(&model, count, 1000 * seed + draw)))
                .sum::<f64>()
                / DRAWS as f64;
            100.0 * (1.0 - plan.solution.value / random)
        };
        let at = |&count: &usize| (count as f64, gain(count, PLANNING_SEED));
        Series {
            name,
            points: NEW_SITES.iter().map(at).collect(),
        }
    };
    Figure {
        unit: "%",
        series: [("coverage 0.1", 0.1), ("coverage 0.25", 0.25)]
            .into_iter()
            .map(one)
            .collect(),
        ..setup.figure(
            "13c",
            "VNF placement: gain over random",
            ["new sites for each VNF", "gain in latency, %"],
        )
    }
}

/// A model with `count` further sites for each VNF, drawn at random.
fn at_random(model: &Model, count: usize, seed: u64) -> Model {
    let mut random = Random::new(seed);
    let mut changed = model.clone();
    for vnf in &mut changed.vnfs {
        let taken: Vec<usize> = vnf.deployments.iter().map(|d| d.site).collect();
        let free: Vec<usize> = (0..model.sites.len())
            .filter(|s| !taken.contains(s))
            .collect();
        let new = random.sample(free.len(), count);
        vnf.deployments.extend(new.iter().map(|&i| Deployment {
            site: free[i],
            capacity: 1.0,
        }));
    }
    changed
}

/// Equation 3 with every chain on its fastest route, capacities ignored.
fn fastest(model: &Model) -> f64 {
    let mut instance = Instance::new(model, Demand::Full).expect("background fits");
    instance
        .capacity
        .iter_mut()
        .for_each(|c| *c = f64::INFINITY);
    heuristic::solve(model, &instance, Heuristic::DpLatency, Objective::Latency)
        .expect("every chain has a route")
        .value
}
