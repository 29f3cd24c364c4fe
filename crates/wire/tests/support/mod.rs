//! What several tests need: captures read and written, frames taken apart layer by layer, packets generated.
#![allow(dead_code, reason = "each test uses its part")]

pub mod capture;
pub mod fields;
pub mod generate;
pub mod layers;
pub mod tunnels;
