#![no_main]
//! Fuzzes the check `wire_segments`.

#[path = "../../crates/wire/tests/codec_checks/mod.rs"]
mod codec_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| codec_checks::run("wire_segments", bytes));
