#![no_main]
//! Fuzzes what the kernel says about a frame of several segments or with an unfinished checksum.

#[path = "../../crates/packet-socket/tests/offload_checks/mod.rs"]
mod offload_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| offload_checks::run(bytes));
