//! Planning (paper sections 4.2 and 4.3): where to add compute, and where to deploy VNFs.

mod bound;
pub mod cloud;
mod hops;
pub mod placement;
mod relaxation;
mod repair;
mod search;
pub mod write;
