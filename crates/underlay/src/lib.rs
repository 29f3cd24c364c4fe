//! The laboratory's wide area: a layer-2 network between sites in which every
//! pair of sites has its own latency and rate.
//!
//! Frames arrive on one packet socket per port, wait in the queue of their pair of
//! sites ([`line::Line`]) and leave when the pair's rate and latency allow. Ports
//! of one site reach each other at once. Addresses are learned as a bridge does;
//! what is not known yet, and broadcast, goes to every other port.
//!
//! Deliberately absent: loss and reordering, which no test of the laboratory asks for.

pub mod config;
pub mod line;
pub mod network;
pub mod socket;
