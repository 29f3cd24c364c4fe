//! How long packets stay in the forwarder: from a burst's being received to its being handed to its ports.
//!
//! Counted by the burst, with one reading of the processor's counter for each and one at the end of a round, in one round of
//! four in which something was received: a sample, so that a packet of a full burst costs a tenth of a nanosecond. Packets that are dropped count like those that leave; one that waits
//! for its next hop's address counts as if it did not, and one that is another worker's until it is handed over.
//!
//! Buckets grow by a quarter of a power of two from 64 ns on: a time is known to within 25 %.
//!
//! ```text
//! bucket   0      1      2      3      4      5      6      7      8     ...  91                92
//! below    64 ns  128    192    256    320    384    448    512    640   ...  1.07 s            anything
//! ```

/// Nanoseconds of the smallest buckets, as a power of two.
const UNIT: u32 = 6;
/// Buckets in each doubling, as a power of two.
const PARTS: u32 = 2;
/// Doublings above the smallest buckets.
const DOUBLINGS: u32 = 22;
/// Buckets, the last for all that is longer.
const BUCKETS: usize = (((DOUBLINGS + 1) << PARTS) + 1) as usize;

/// Packets by the time they stayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    packets: [u64; BUCKETS],
    nanoseconds: u64,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency {
            packets: [0; BUCKETS],
            nanoseconds: 0,
        }
    }
}

impl Latency {
    /// Counts packets that stayed so long.
    #[inline]
    pub fn add(&mut self, nanoseconds: u64, packets: u64) {
        self.packets[bucket(nanoseconds)] += packets;
        self.nanoseconds += nanoseconds * packets;
    }

    /// Counts what another one has counted.
    pub fn add_all(&mut self, other: &Latency) {
        for (own, other) in self.packets.iter_mut().zip(other.packets) {
            *own += other;
        }
        self.nanoseconds += other.nanoseconds;
    }

    /// Nanoseconds of all packets together.
    pub fn total(&self) -> u64 {
        self.nanoseconds
    }

    /// Buckets with packets in them: below how many nanoseconds (none: any), and how many packets.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let counted = self.packets.iter().enumerate();
        counted
            .filter(|&(_, packets)| *packets > 0)
            .map(|(bucket, packets)| (bound(bucket), *packets))
    }
}

#[inline(always)]
fn bucket(nanoseconds: u64) -> usize {
    let units = nanoseconds >> UNIT;
    if units < 1 << PARTS {
        return units as usize;
    }
    let doubling = units.ilog2() - PARTS;
    let part = (units >> doubling) as usize & ((1 << PARTS) - 1);
    ((((doubling as usize) + 1) << PARTS) + part).min(BUCKETS - 1)
}

/// The first nanosecond that is too long for a bucket; none for the last one.
fn bound(bucket: usize) -> Option<u64> {
    if bucket == BUCKETS - 1 {
        return None;
    }
    let (doubling, part) = (bucket as u32 >> PARTS, bucket as u64 & ((1 << PARTS) - 1));
    let units = match doubling {
        0 => part + 1,
        _ => ((1 << PARTS) + part + 1) << (doubling - 1),
    };
    Some(units << UNIT)
}

/// Of how many rounds in which something was received one is timed.
const ROUNDS: u32 = 4;

/// Takes the time of the bursts of a round, in one round of four.
#[derive(Debug)]
pub struct Timer {
    /// Rounds that are left out before the next one is timed.
    left_out: u32,
    /// Something was received in this round, which is left out.
    received_untimed: bool,
    /// Nanoseconds of a cycle, times 2^32.
    scale: u64,
    /// When each burst of this round was received, and its packets.
    received: Vec<(u64, u32)>,
}

impl Timer {
    /// A timer for this processor.
    pub fn new() -> Timer {
        Timer {
            left_out: 0,
            received_untimed: false,
            scale: (1_000_000_000u64 << 32) / dpdk::cycles_per_second(),
            received: Vec::with_capacity(64),
        }
    }

    /// A burst was received.
    #[inline]
    pub fn receive(&mut self, packets: usize) {
        if self.left_out > 0 {
            self.received_untimed = true;
            return;
        }
        self.received.push((dpdk::cycles(), packets as u32));
    }

    /// What was received in this round has been sent.
    #[inline]
    pub fn sent(&mut self, latency: &mut Latency) {
        if self.received.is_empty() {
            self.left_out -= u32::from(self.received_untimed);
            self.received_untimed = false;
            return;
        }
        self.left_out = ROUNDS - 1;
        let now = dpdk::cycles();
        for (received, packets) in self.received.drain(..) {
            // Longer than a second is as good as a second.
            let cycles = now.saturating_sub(received).min(u64::from(u32::MAX));
            latency.add((cycles * self.scale) >> 32, packets.into());
        }
    }
}

impl Default for Timer {
    fn default() -> Timer {
        Timer::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_below_its_buckets_bound_and_not_below_the_one_before() {
        let doublings = (0..64).map(|bit| 1u64 << bit);
        let times =
            doublings.flat_map(|time| [time - 1, time, time + 1, time / 4 * 5, time / 2 * 3]);
        for time in times.filter(|&time| time <= u64::MAX / 2) {
            let bucket = bucket(time);
            assert!(bound(bucket).is_none_or(|bound| time < bound), "{time}");
            if bucket > 0 {
                let before = bound(bucket - 1).expect("only the last has none");
                assert!(time >= before, "{time} is below {before}");
            }
        }
    }

    #[test]
    fn bounds_grow_by_a_quarter_at_most() {
        assert_eq!(bound(0), Some(64));
        assert_eq!(bound(3), Some(256));
        assert_eq!(bound(4), Some(320));
        assert_eq!(bound(BUCKETS - 2), Some(1 << 30));
        for bucket in 4..BUCKETS - 1 {
            let (before, bound) = (bound(bucket - 1).unwrap(), bound(bucket).unwrap());
            assert!(bound > before && bound <= before / 4 * 5, "{bucket}");
        }
    }

    #[test]
    fn what_was_counted_is_told_and_added_up() {
        let mut latency = Latency::default();
        latency.add(100, 3);
        latency.add(5_000_000_000, 1);
        let mut both = latency.clone();
        both.add_all(&latency);
        let buckets: Vec<_> = both.buckets().collect();
        assert_eq!(buckets, [(Some(128), 6), (None, 2)]);
        assert_eq!(both.total(), 10_000_000_600);
    }

    #[test]
    fn one_round_of_four_counts_every_packet_it_received_once() {
        let (mut timer, mut latency) = (Timer::new(), Latency::default());
        timer.sent(&mut latency);
        assert_eq!(latency, Latency::default());
        let counted = |latency: &Latency| latency.buckets().map(|(_, packets)| packets).sum();
        for (round, expected) in [66u64, 66, 66, 66, 132, 132].into_iter().enumerate() {
            timer.receive(64);
            timer.receive(2);
            timer.sent(&mut latency);
            // Rounds without packets do not count.
            timer.sent(&mut latency);
            let packets: u64 = counted(&latency);
            assert_eq!(packets, expected, "round {round}");
        }
    }
}
