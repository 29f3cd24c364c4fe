//! The pipeline alone for some seconds, for a profiler and for quick comparisons:
//!
//! ```text
//! bench-forwarder profile FLOWS SECONDS [new|shared|at_home|anywhere]
//! perf record -e cpu-clock bench-forwarder profile 512000 5
//! ```
//! With `new` every packet opens a connection beside those there are. With `shared` the pipeline is one of two workers', and all
//! packets are at home with it. With `at_home` and `anywhere` there are two workers, and frames arrive there.

use crate::clock::median;
use crate::frames::{Draw, Writer};
use crate::rows::{Bench, MEMORY_LIMIT, two_cores};
use crate::rules::{PORT_MAC, VNF_EGRESS_MAC};
use crate::subject::{BURST, Load, Subject, nanoseconds};
use forwarder::home::Homes;
use std::time::Duration;
use wire::IpPacket;

/// The role's name on the command line.
pub const ROLE: &str = "profile";
/// Connections opened between two looks at the clock.
const STEP: u32 = 100_000;

/// Measures, and prints nanoseconds per packet.
pub fn run(bench: &Bench, words: &[&str]) -> Result<(), String> {
    let number = |index: usize| -> Result<u32, String> {
        let word = words
            .get(index)
            .ok_or("profile FLOWS SECONDS [new|shared|at_home|anywhere]")?;
        word.parse()
            .map_err(|error| format!("profile: {word:?}: {error}"))
    };
    let (flows, time) = (number(0)?, Duration::from_secs(number(1)?.into()));
    if let Some(way @ ("at_home" | "anywhere")) = words.get(2).copied() {
        let rate = two_cores::profile(bench, flows, time / 5, way == "at_home");
        println!("{rate:.2} Mpps of two workers, {way}");
        return Ok(());
    }
    let mut load = Load::new(&bench.pool);
    let mut subject = Subject::new(bench, MEMORY_LIMIT);
    subject.open(&mut load, 0, flows.max(BURST as u32));
    subject.live(&mut load, flows.max(BURST as u32));
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
    if words.get(2) == Some(&"shared") {
        println!(
            "{:.2} ns per packet, shared",
            shared(&mut load, &mut subject, flows, time)
        );
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

/// Nanoseconds per packet of a worker that has another one beside it.
fn shared(load: &mut Load, subject: &mut Subject, flows: u32, time: Duration) -> f64 {
    let homes = Homes::new(*b"who is home here", 2);
    let writer = Writer::new(VNF_EGRESS_MAC, PORT_MAC);
    let is_own = |&connection: &u32| {
        let frame = writer.frame(connection);
        let packet = IpPacket::parse(&frame[14..]).expect("a packet of ours");
        homes.of(&packet.tuple) == 0
    };
    let own: Vec<u32> = (0..flows.max(BURST as u32)).filter(is_own).collect();
    subject.pipeline.share(homes, 0);
    let (mut draw, mut spent, mut each) = (Draw::new(0), Duration::ZERO, Vec::new());
    while spent < time {
        load.fill(|| own[draw.below(own.len() as u32) as usize]);
        let took = load.offer(|burst| subject.take(burst));
        spent += took;
        each.push(took.as_secs_f64() * 1e9 / load.len() as f64);
    }
    median(each)
}
