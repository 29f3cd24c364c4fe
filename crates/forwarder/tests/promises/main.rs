//! Many forwarders, VNFs and hosts in memory: what the pipeline promises, whatever the rules and however they change.

mod bursts;
mod chains;
mod changes;
mod conformance;
mod counters;
mod ends;
mod equal;
mod frames;
mod full_table;
mod hostile;
mod limits;
mod links;
mod misleading;
mod network;
mod parts;
mod plan;
mod random;
mod refusals;
mod relayed;
mod restarts;
mod reuse;
mod routes;
mod segments;
mod silent;
mod team;
mod workers;
