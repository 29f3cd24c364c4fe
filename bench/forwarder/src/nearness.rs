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
/// How long after its beginning a row still waits for that, and leaves rounds out.
const PATIENCE: Duration = Duration::from_secs(120);
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
    /// From then on every round counts, so that a row ends.
    until: Instant,
    rounds: usize,
    near: usize,
    /// Rounds that count although the processors were not near.
    apart: usize,
}

impl Nearness {
    /// For rounds that need both processors.
    pub fn new(core: usize, other_core: usize) -> Nearness {
        Nearness {
            cores: [core, other_core],
            until: Instant::now() + PATIENCE,
            rounds: 0,
            near: 0,
            apart: 0,
        }
    }

    /// Waits until the processors are near, or patience is at its end. Nobody else may use them meanwhile.
    pub fn wait(&self) {
        while Instant::now() < self.until && !self.are_near() {
            thread::sleep(PAUSE);
        }
    }

    /// To be called after each round: whether it counts.
    pub fn counts(&mut self) -> bool {
        self.rounds += 1;
        let near = self.are_near();
        let counts = near || Instant::now() >= self.until;
        self.near += usize::from(near);
        self.apart += usize::from(counts && !near);
        counts
    }

    /// Whether they were near in some round.
    pub fn was_near(&self) -> bool {
        self.near > 0
    }

    /// What is to be said of the rounds.
    pub fn note(&self) -> String {
        let Nearness {
            rounds,
            near,
            apart,
            ..
        } = self;
        match apart {
            0 => format!(
                "the {near} of {rounds} rounds count after which both processors shared a cache"
            ),
            _ => format!(
                "only after {near} of {rounds} rounds both processors shared a cache, so that {apart} others count too: the generator may be what limits"
            ),
        }
    }

    fn are_near(&self) -> bool {
        let looks = (0..LOOKS).map(|_| line_time(self.cores).as_secs_f64());
        median(looks.collect()) < NEAR.as_secs_f64()
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
