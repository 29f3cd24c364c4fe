#![no_main]
//! Fuzzes the whole pipeline: frames in, frames out, under rule sets of a corpus.

#[path = "../../crates/forwarder/tests/pipeline_checks/mod.rs"]
mod pipeline_checks;
#[path = "../../crates/forwarder/tests/promises/plan.rs"]
#[allow(dead_code, reason = "the simulation uses more of it")]
mod plan;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pipeline_checks::run(bytes));
