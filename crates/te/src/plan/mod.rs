//! Planning (paper sections 4.2 and 4.3): where to add compute, and where to deploy VNFs.

pub mod cloud;
pub mod placement;
mod relaxation;
