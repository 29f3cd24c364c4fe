//! Figures 13b and 13c: what planning gains over adding capacity or sites without a plan.

use te::generate::Division;
use te::heuristic::Heuristic;
use te::instance::{Demand, Instance};
use te::model::{Deployment, Model};
use te::plan::{cloud as cloud_plan, placement as placing};
use te::random::Random;
use te::solution::Objective;

use crate::chart::{Figure, Series};
use crate::workload::{Setup, options, route};

const ADDED: [f64; 4] = [0.25, 0.5, 1.0, 2.0];
const NEW_SITES: [f64; 3] = [1.0, 2.0, 4.0];

/// Plans take longer than routings, and are drawn for one seed.
const SEED: u64 = 1;

/// Random placements that a plan is compared with.
const DRAWS: u64 = 5;

/// Gap of placements. The figure shows what a placement gains, not its bound; and the search goes its way to the end
/// whatever the gap.
const PLACEMENT_GAP: f64 = 0.5;

/// Gap of cloud plans, and of the uniform spread that they are compared with.
const CLOUD_GAP: f64 = 3e-3;

/// Chains and VNFs of a small provider, whose demand differs more from VNF to VNF than that of the paper's 10 000 chains.
const SMALL: (usize, usize) = (1_000, 50);

/// Figure 13b: how much more the demands can grow when capacity is added where the plan says.
pub fn cloud(setup: &Setup) -> Figure {
    let gain = |division: Division, size: Option<(usize, usize)>, added: f64| {
        let model = setup.workload(SEED, |o| {
            (o.cpu_per_byte, o.division) = (1.0, division);
            (o.chains, o.vnfs) = size.unwrap_or((o.chains, o.vnfs));
        });
        let total: f64 = model.sites.iter().map(|s| s.capacity).sum();
        let plan = setup
            .watched("cloud", |monitor| {
                cloud_plan::plan(&model, added * total, &options(CLOUD_GAP), monitor)
            })
            .expect("every chain has a route");
        100.0 * (plan.solution.value / plan.uniform - 1.0)
    };
    let lines = [
        ("equal shares", Division::Equal, None),
        ("equal shares, 1 000 chains", Division::Equal, Some(SMALL)),
        ("overbooked", Division::Overbooked, None),
        ("in proportion to demand", Division::Proportional, None),
    ];
    let one = |(name, division, size): (&'static str, Division, Option<(usize, usize)>)| {
        setup.series(name, &ADDED, |added| Some(gain(division, size, added)))
    };
    Figure {
        log_x: true,
        series: lines.into_iter().map(one).collect(),
        ..setup.figure(
            "13b",
            "Cloud planning, gain over uniform",
            ["added capacity, share of present", "gain in throughput, %"],
        )
    }
}

/// Figure 13c: how much less the chains travel than with new sites drawn at random.
pub fn placement(setup: &Setup) -> Figure {
    let gain = |model: &Model, count: usize| {
        let each = vec![count; model.vnfs.len()];
        let plan = setup
            .watched("placement", |monitor| {
                placing::plan(model, &each, false, &options(PLACEMENT_GAP), monitor)
            })
            .expect("enough sites");
        let random: f64 = (1..=DRAWS)
            .map(|draw| fastest(&at_random(model, count, 1000 * SEED + draw)))
            .sum::<f64>()
            / DRAWS as f64;
        100.0 * (1.0 - plan.solution.value / random)
    };
    let one = |(name, coverage): (&'static str, f64)| -> Series {
        let model = setup.workload(SEED, |o| o.coverage = coverage);
        setup.series(name, &NEW_SITES, |count| Some(gain(&model, count as usize)))
    };
    Figure {
        series: [("coverage 0.1", 0.1), ("coverage 0.25", 0.25)]
            .into_iter()
            .map(one)
            .collect(),
        ..setup.figure(
            "13c",
            "VNF placement, gain over random",
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
    route(model, &instance, Heuristic::DpLatency, Objective::Latency)
        .expect("every chain has a route")
        .value
}
