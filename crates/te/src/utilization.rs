//! The utilisation cost of Fortz and Thorup that the paper's dynamic program adds to latency.
//!
//! Piecewise linear and convex, its slope grows exponentially. The original has six pieces; with those, all rows
//! between 90 and 100 % look alike, and routes pile up on whichever comes first. This one keeps the shape with a
//! piece for every 1/64 of utilisation.

/// Pieces for each unit of utilisation.
pub const PIECES: f64 = 64.0;

/// Utilisation beyond which the slope grows no further.
const STEEPEST: f64 = 1.5;

/// Slope of the cost in a piece that begins at utilisation `u`: exp(growth · (u − 1)), so 1 where a row is full.
pub fn slope(piece: u32, growth: f64) -> f64 {
    (growth * (f64::from(piece) / PIECES - 1.0)).exp()
}

/// The piece that a utilisation falls into.
pub fn piece(u: f64) -> u32 {
    (u.clamp(0.0, STEEPEST) * PIECES) as u32
}
