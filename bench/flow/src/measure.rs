//! How it is measured: in turns, several times, medians; by this thread's processor time, so that programs which
//! take turns on the processor do not count (what they do to caches and memory does).

use std::hint::black_box;
use std::time::Duration;

use flow::Ipv4Key;

use crate::subject::{BURST, Subject};

const REPETITIONS: usize = 9;
const PER_REPETITION: Duration = Duration::from_millis(150);
/// Keys drawn before the clock starts.
const DRAWN: usize = 4096;
/// New connections per repetition of the insertion test.
const NEW: u32 = 400_000;

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the result.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The `index`-th connection: a bijection, so that connections are distinct and look random.
pub fn connection(index: u32) -> Ipv4Key {
    let mut word = u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^= word >> 29;
    word = word.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^= word >> 32;
    let source = 0x0a00_0000 | index >> 8;
    Ipv4Key::new(
        7,
        source,
        word as u32,
        6,
        1024 + (index & 0xff) as u16,
        (word >> 40) as u16,
    )
}

/// A xorshift generator: cheap, and good enough to pick connections.
pub struct Random(u64);

impl Random {
    /// The generator's sequence number `seed`.
    pub fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(bound)) >> 32) as u32
    }
}

/// Adds connections 0 to `flows`; returns how many per second.
pub fn fill(subject: &mut dyn Subject, flows: u32) -> f64 {
    let indices: Vec<u32> = (0..flows).collect();
    insert_timed(subject, &indices)
}

fn insert_timed(subject: &mut dyn Subject, indices: &[u32]) -> f64 {
    let mut spent = Duration::ZERO;
    for indices in indices.chunks(DRAWN) {
        let keys: Vec<Ipv4Key> = indices.iter().map(|&index| connection(index)).collect();
        let start = processor_time();
        for burst in keys.chunks(BURST) {
            black_box(subject.lookup(burst));
            subject.insert(burst);
        }
        spent += processor_time() - start;
    }
    indices.len() as f64 / spent.as_secs_f64()
}

/// Nanoseconds per look-up of random connections among the first `flows`: the median over some thousand look-ups each.
pub fn lookup_ns(subject: &mut dyn Subject, flows: u32, seed: u64) -> f64 {
    let mut random = Random::new(seed);
    let mut spent = Duration::ZERO;
    let mut each = Vec::new();
    while spent < PER_REPETITION {
        let keys: Vec<Ipv4Key> = (0..DRAWN)
            .map(|_| connection(random.below(flows)))
            .collect();
        let start = processor_time();
        for burst in keys.chunks(BURST) {
            black_box(subject.lookup(burst));
        }
        let took = processor_time() - start;
        spent += took;
        each.push(took.as_secs_f64() * 1e9 / DRAWN as f64);
    }
    median(each)
}

/// New connections per second in a table that holds `flows`; each burst is looked up first, and found missing. They
/// are removed again afterwards.
pub fn insert_rate(subject: &mut dyn Subject, flows: u32, seed: u64) -> f64 {
    let first = flows + 1_000_000 + seed as u32 * NEW;
    let indices: Vec<u32> = (first..first + NEW).collect();
    let rate = insert_timed(subject, &indices);
    for &index in &indices {
        subject.remove(&connection(index));
    }
    rate
}

/// Measurements of several subjects, made in turns.
pub struct Repetitions(Vec<Vec<f64>>);

impl Repetitions {
    /// Calls `measure` with every subject and a number that differs per repetition, over and over.
    pub fn in_turns(
        subjects: &mut [Box<dyn Subject>],
        mut measure: impl FnMut(&mut dyn Subject, u64) -> f64,
    ) -> Self {
        let mut values = vec![Vec::new(); subjects.len()];
        for repetition in 0..REPETITIONS {
            for (subject, values) in subjects.iter_mut().zip(&mut values) {
                values.push(measure(subject.as_mut(), repetition as u64));
            }
        }
        Self(values)
    }

    /// The median of a subject's measurements.
    pub fn median(&self, subject: usize) -> f64 {
        median(self.0[subject].clone())
    }
}

/// Memory of this process that is backed by pages.
pub fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok())
        .expect("pages")
        * 4096
}
