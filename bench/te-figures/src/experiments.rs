//! Figures 12a–c and 13a: throughput and latency of the algorithms.

use te::generate::Options;
use te::heuristic::Heuristic;
use te::instance::{Demand, Instance};
use te::lp;
use te::model::Model;
use te::result::figures;
use te::solution::{Objective, Status};

use crate::chart::{Figure, Series};
use crate::workload::{GAP, Setup, options, route};

/// What routes a workload.
#[derive(Clone, Copy)]
enum Scheme {
    Exact,
    Heuristic(Heuristic),
}

const COVERAGES: [f64; 4] = [0.25, 0.5, 0.75, 1.0];
const CPU: [f64; 6] = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0];
const LOADS: [f64; 8] = [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95];

const LP: (&str, Scheme) = ("SB-LP", Scheme::Exact);
const DP: (&str, Scheme) = ("SB-DP", Scheme::Heuristic(Heuristic::Dp));
const ANYCAST: (&str, Scheme) = ("Anycast", Scheme::Heuristic(Heuristic::Anycast));
const ONE_HOP: (&str, Scheme) = ("OneHop", Scheme::Heuristic(Heuristic::OneHop));
const DP_LATENCY: (&str, Scheme) = ("DP-Latency", Scheme::Heuristic(Heuristic::DpLatency));

/// The largest factor on the demands that a scheme carries.
fn factor(setup: &Setup, model: &Model, scheme: Scheme) -> f64 {
    let instance = Instance::new(model, Demand::Full).expect("background fits");
    let solved = match scheme {
        Scheme::Exact => setup.watched("SB-LP", |monitor| {
            lp::solve(model, &instance, Objective::Scale, &options(GAP), monitor)
        }),
        Scheme::Heuristic(h) => route(model, &instance, h, Objective::Scale),
    };
    solved.expect("every chain has a route").value
}

/// The demand that a scheme sustains when all chains grow alike, Gbit/s.
fn throughput(setup: &Setup, model: &Model, scheme: Scheme) -> f64 {
    let offered: f64 = model.chains.iter().map(|c| c.demand_mbps()).sum();
    factor(setup, model, scheme) * offered / 1000.0
}

fn throughputs(
    setup: &Setup,
    schemes: &[(&'static str, Scheme)],
    at: &[f64],
    change: impl Fn(&mut Options, f64),
) -> Vec<Series> {
    let one = |&(name, scheme): &(&'static str, Scheme)| {
        setup.series(name, at, |x| {
            let value = |seed| throughput(setup, &setup.workload(seed, |o| change(o, x)), scheme);
            Some(setup.median(value))
        })
    };
    schemes.iter().map(one).collect()
}

/// Figure 12a.
pub fn throughput_by_coverage(setup: &Setup) -> Figure {
    Figure {
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
    let most = factor(setup, &base, Scheme::Exact);
    let one = |(name, scheme): (&'static str, Scheme)| {
        setup.series(name, &LOADS, |load| {
            mean_latency(setup, &loaded(&base, load * most), scheme)
        })
    };
    Figure {
        near: true,
        series: [LP, DP, ANYCAST].into_iter().map(one).collect(),
        ..setup.figure(
            "12c",
            "Latency by load",
            ["load, share of SB-LP's largest", "mean latency, ms"],
        )
    }
}

/// A model with all traffic multiplied.
fn loaded(base: &Model, factor: f64) -> Model {
    let mut model = base.clone();
    for chain in &mut model.chains {
        let both = chain.forward_mbps.iter_mut().chain(&mut chain.reverse_mbps);
        both.for_each(|mbps| *mbps *= factor);
    }
    model
}

/// Mean latency of all demand, ms; none where a scheme does not carry it all.
fn mean_latency(setup: &Setup, model: &Model, scheme: Scheme) -> Option<f64> {
    let instance = Instance::new(model, Demand::Full).expect("background fits");
    let solved = match scheme {
        Scheme::Exact => setup.watched("SB-LP", |monitor| {
            lp::solve(model, &instance, Objective::Latency, &options(GAP), monitor)
        }),
        Scheme::Heuristic(h) => route(model, &instance, h, Objective::Latency),
    };
    let solution = solved.ok().filter(|s| s.status != Status::Partial)?;
    Some(figures(model, &instance, &solution).mean_latency_ms)
}
