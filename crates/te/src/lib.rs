//! Traffic engineering for wide-area service chains (Switchboard paper, section 4).
//!
//! A [`model::Model`] is compiled to an [`instance::Instance`]; the heuristics and the exact solver share one
//! dynamic program ([`kernel`]) and return a [`solution::Solution`], which [`check`] verifies by a path of its own.
//! Nothing here does I/O beyond the readers it is given, and nothing is async.

mod aligned;
pub mod arc;
pub mod check;
mod clock;
pub mod constrained;
pub mod error;
pub mod generate;
pub mod heuristic;
#[cfg(feature = "highs")]
pub mod highs;
pub mod import;
pub mod infeasible;
pub mod instance;
pub mod json;
pub mod kernel;
pub mod lp;
pub mod model;
pub mod network;
pub mod online;
mod parallel;
pub mod plan;
pub mod random;
pub mod result;
pub mod series;
pub mod solution;
pub mod survive;
pub mod tables;
pub mod utilization;
