//! Many forwarders, VNFs and hosts in memory: what the pipeline promises, whatever the rules and however they change.

mod bursts;
mod chains;
mod changes;
mod conformance;
mod equal;
mod frames;
mod hostile;
mod limits;
mod network;
mod plan;
mod random;
mod refusals;
mod team;
mod workers;
