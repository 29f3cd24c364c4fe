//! Forwarder.
