//! Types of the contracts in `proto/`, generated and committed.
//!
//! `make gen` writes them again; `make lint` checks that they are current. Their documentation is that
//! of the protocol buffer files.
#![allow(missing_docs, clippy::all)]

/// Contract between a site's Local Switchboard and its forwarders.
pub mod forwarder {
    include!("gen/switchboard.forwarder.v1.rs");
}
