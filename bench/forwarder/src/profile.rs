//! The pipeline alone for some seconds, for a profiler and for quick comparisons:
//!
//! ```text
//! bench-forwarder profile FLOWS SECONDS [new]
//! perf record -e cpu-clock bench-forwarder profile 512000 5
//! ```
//! With `new` every packet opens a connection beside those there are.

use crate::rows::{Bench, MEMORY_LIMIT};
use crate::subject::{BURST, Load, Subject, nanoseconds};
use std::time::Duration;

/// The role's name on the command line.
pub const ROLE: &str = "profile";
/// Connections opened between two looks at the clock.
const STEP: u32 = 100_000;

/// Measures, and prints nanoseconds per packet.
pub fn run(bench: &Bench, words: &[&str]) -> Result<(), String> {
    let number = |index: usize| -> Result<u32, String> {
        let word = words.get(index).ok_or("profile FLOWS SECONDS [new]")?;
        word.parse()
            .map_err(|error| format!("profile: {word:?}: {error}"))
    };
    let (flows, time) = (number(0)?, Duration::from_secs(number(1)?.into()));
    let mut load = Load::new(&bench.pool);
    let mut subject = Subject::new(&bench.pool, MEMORY_LIMIT);
    subject.open(&mut load, 0, flows.max(BURST as u32));
    if words.get(2) == Some(&"new") {
        let (mut next, mut spent, mut opened) = (flows + load.len() as u32, Duration::ZERO, 0);
        while spent < time {
            spent += subject.open(&mut load, next, STEP);
            next += STEP + load.len() as u32;
            opened += STEP;
        }
        let nanoseconds = spent.as_secs_f64() * 1e9 / f64::from(opened);
        println!("{nanoseconds:.2} ns per new connection, {opened} opened beside {flows}");
        return Ok(());
    }
    let rounds = (0..5).map(|seed| {
        nanoseconds(&mut load, flows, seed, time / 5, |burst| {
            subject.take(burst)
        })
    });
    let rounds: Vec<String> = rounds.map(|ns| format!("{ns:.2}")).collect();
    println!("{} ns per packet of {flows} connections", rounds.join(" "));
    Ok(())
}
