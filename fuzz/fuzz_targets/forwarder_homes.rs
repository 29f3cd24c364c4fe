#![no_main]
//! Fuzzes several workers that hand frames over to each other, under rule sets of a corpus.

#[path = "../../crates/forwarder/tests/home_checks/mod.rs"]
mod home_checks;
#[path = "../../crates/forwarder/tests/pipeline_checks/mod.rs"]
#[allow(dead_code, reason = "only its rules and frames are used")]
mod pipeline_checks;
#[path = "../../crates/forwarder/tests/promises/plan.rs"]
#[allow(dead_code, reason = "the simulation uses more of it")]
mod plan;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| home_checks::run(bytes));
