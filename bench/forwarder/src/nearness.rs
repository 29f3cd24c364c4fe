//! Whether two processors share a cache. Those of a virtual machine do for some seconds and then do not, as the host moves them;
//! a line of the cache then takes four times as long from one to the other (measured: 40 and 170 ns), and a generator cannot send by
//! shared memory what the program under measurement would take.

use crate::clock::median;
use crate::rows::stay_on;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::thread;
use std::time::{Duration, Instant};

/// A line takes less from one processor to the other when they share a cache.
const NEAR: Duration = Duration::from_nanos(100);
/// How long a row waits, all in all, for that.
const PATIENCE: Duration = Duration::from_secs(45);
const PAUSE: Duration = Duration::from_millis(50);
/// Times a line goes to and fro for one look, and looks of which the median counts.
const TURNS: u32 = 4_000;
const LOOKS: usize = 5;

/// A line of the cache that two threads write in turns.
#[repr(align(128))]
struct Line(AtomicU32);

/// Sorts out rounds in which the processors were not near.
pub struct Nearness {
    cores: [usize; 2],
    waited: Duration,
    rounds: usize,
    near: usize,
}

impl Nearness {
    /// For rounds that need both processors.
    pub fn new(core: usize, other_core: usize) -> Nearness {
        Nearness {
            cores: [core, other_core],
            waited: Duration::ZERO,
            rounds: 0,
            near: 0,
        }
    }

    /// Waits until the processors are near, or patience is at its end. Nobody else may use them meanwhile.
    pub fn wait(&mut self) {
        let start = Instant::now();
        while self.waited + start.elapsed() < PATIENCE && !self.is_near() {
            thread::sleep(PAUSE);
        }
        self.waited += start.elapsed();
    }

    /// To be called after each round: whether it counts. Once patience is at its end every round does.
    pub fn counts(&mut self) -> bool {
        self.rounds += 1;
        let near = self.is_near();
        self.near += usize::from(near);
        near || self.waited >= PATIENCE
    }

    /// What is to be said of the rounds.
    pub fn note(&self) -> String {
        let Nearness { rounds, near, .. } = self;
        match self.waited < PATIENCE {
            true => format!(
                "the {near} of {rounds} rounds count after which both processors shared a cache"
            ),
            false => format!(
                "only after {near} of {rounds} rounds both processors shared a cache, so that others count too: the generator may be what limits"
            ),
        }
    }

    fn is_near(&mut self) -> bool {
        let start = Instant::now();
        let looks = (0..LOOKS).map(|_| line_time(self.cores).as_secs_f64());
        let is_near = median(looks.collect()) < NEAR.as_secs_f64();
        if !is_near {
            self.waited += start.elapsed();
        }
        is_near
    }
}

/// What a line takes from one processor to the other.
fn line_time(cores: [usize; 2]) -> Duration {
    if cores[0] == cores[1] {
        return Duration::ZERO;
    }
    let line = &Line(AtomicU32::new(0));
    thread::scope(|scope| {
        let turns = cores.into_iter().zip([0, 1]).map(|(core, first)| {
            scope.spawn(move || {
                stay_on(core);
                take_turns(&line.0, first)
            })
        });
        let turns: Vec<_> = turns.collect();
        let times = turns
            .into_iter()
            .map(|thread| thread.join().expect("it takes its turns"));
        times.min().unwrap_or_default() / (2 * TURNS)
    })
}

/// Writes every other number; how long that takes from its first on. For whoever is there last both are.
fn take_turns(line: &AtomicU32, first: u32) -> Duration {
    let mut start = Instant::now();
    for turn in 0..=TURNS {
        // Without a hint, for which some hosts take the processor away.
        while line.load(Acquire) != 2 * turn + first {}
        if turn == 0 {
            start = Instant::now();
        }
        line.store(2 * turn + first + 1, Release);
    }
    start.elapsed()
}
