//! What depends on the processor: keyed hashing, and the comparison of a burst's keys.
//!
//! A key's two buckets are known to those who know the table's 128-bit key, and to nobody else. Two hash functions of
//! equal standing see to that: four AES rounds per block where the processor has them, SipHash-1-3 elsewhere. A
//! third, cheap one only spreads connections that differ in nothing but their source port: the quotient times a
//! secret odd number is added to the addresses before they are hashed and stored.

use crate::bucket::{ENTRY4, HEAD4, Line, Match, read_u64};
use crate::entry::{Hit, MATCH_MASK};
use crate::key::Ipv4Key;
use crate::lookup::BURST;
use crate::probe::{Hashes, Mixer, Wanted};
use crate::shape::Shape;
use crate::siphash::SipHash13;

/// What the table asks of a processor.
pub trait Engine: Copy {
    /// Sixty-four bits that depend on every bit of the blocks and of the secret key.
    fn hash(&self, blocks: &[u128]) -> u64;
    /// The slot of an IPv4 bucket whose key and place equal those given, found without a branch.
    fn find4(&self, line: &Line, wanted: &Wanted<u64>, place: u64) -> Match;
    /// [`Mixer::probe_each`] for IPv4 keys.
    #[inline(always)]
    fn probe4_each(
        &self,
        mixer: Mixer,
        shape: Shape,
        keys: &[Ipv4Key],
        wanted: &mut [Wanted<u64>],
        buckets: &mut [Hashes],
    ) {
        mixer.probe_each(*self, shape, keys, wanted, buckets);
    }
    /// Lists the positions of those that were not found; returns how many they are.
    #[inline(always)]
    fn missed(&self, hits: &[Hit], list: &mut [u8; BURST]) -> usize {
        // Which ones is a coin toss: the list grows without a branch.
        let mut count = 0;
        for (at, hit) in hits.iter().enumerate().take(BURST) {
            list[count % BURST] = at as u8;
            count += usize::from(!hit.is_found());
        }
        count
    }
}

impl Engine for SipHash13 {
    #[inline(always)]
    fn hash(&self, blocks: &[u128]) -> u64 {
        self.hash_words(
            blocks
                .iter()
                .flat_map(|block| [*block as u64, (*block >> 64) as u64]),
        )
    }

    #[inline(always)]
    fn find4(&self, line: &Line, wanted: &Wanted<u64>, place: u64) -> Match {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return crate::x86::find4_sse2(line, wanted, place);
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        find4(line, wanted, place)
    }
}

/// [`Engine::find4`] in plain arithmetic.
#[cfg_attr(
    all(target_arch = "x86_64", not(miri), not(test)),
    expect(dead_code, reason = "x86-64 has better")
)]
#[inline(always)]
fn find4(line: &Line, wanted: &Wanted<u64>, place: u64) -> Match {
    let (addresses, head) = (wanted.addresses, wanted.head | place);
    let equal = |slot: usize| {
        let at = slot * ENTRY4;
        let differs =
            (read_u64(line, at) ^ addresses) | ((read_u64(line, at + HEAD4) ^ head) & MATCH_MASK);
        u32::from(differs == 0) << slot
    };
    let found = equal(0) | equal(1) | equal(2);
    let slot = (found | 4).trailing_zeros() as usize;
    Match::of_if(found != 0, slot, ENTRY4)
}

/// Which hash function to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashFunction {
    /// AES if this processor has it, else SipHash-1-3.
    #[default]
    Detect,
    /// SipHash-1-3 everywhere.
    Portable,
}

/// The widest instructions of the processor that look-ups may use. Hashes are the same with all of them, and so are tables and
/// their files; a processor without them uses what it has, and SipHash-1-3 none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instructions {
    /// As wide as there are: AVX-512.
    #[default]
    Widest,
    /// AVX2: vectors of 32 bytes.
    Avx2,
    /// AES and SSE2: vectors of 16 bytes.
    Aes,
}

/// The engine picked when the table was made.
#[derive(Clone, Copy)]
pub(crate) enum Picked {
    #[cfg(target_arch = "x86_64")]
    Avx512(crate::x86::Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(crate::x86::Avx2),
    #[cfg(target_arch = "x86_64")]
    Aes(crate::x86::Aes),
    Portable(SipHash13),
}

impl Picked {
    pub(crate) fn new(key: [u8; 16], function: HashFunction, widest: Instructions) -> Self {
        #[cfg(target_arch = "x86_64")]
        if function == HashFunction::Detect {
            let avx512 = || crate::x86::Avx512::detect(key).map(Self::Avx512);
            let avx2 = || crate::x86::Avx2::detect(key).map(Self::Avx2);
            let aes = || crate::x86::Aes::detect(key).map(Self::Aes);
            let picked = match widest {
                Instructions::Widest => avx512().or_else(avx2).or_else(aes),
                Instructions::Avx2 => avx2().or_else(aes),
                Instructions::Aes => aes(),
            };
            if let Some(picked) = picked {
                return picked;
            }
        }
        let _ = (function, widest);
        Self::Portable(SipHash13::new(key))
    }
}

impl Picked {
    /// What it uses; nothing where hashes are SipHash's.
    pub(crate) fn instructions(&self) -> Option<Instructions> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Some(Instructions::Widest),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Some(Instructions::Avx2),
            #[cfg(target_arch = "x86_64")]
            Self::Aes(_) => Some(Instructions::Aes),
            Self::Portable(_) => None,
        }
    }

    /// Engines of one family compute the same hashes.
    pub(crate) fn family(&self) -> u32 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) | Self::Avx2(_) | Self::Aes(_) => 1,
            Self::Portable(_) => 2,
        }
    }
}

/// Work to be compiled once per engine. A closure would do, could one ask for it to be inlined.
pub(crate) trait Task {
    /// What the work results in.
    type Output;
    /// Does it. Implementations are `#[inline(always)]`: only then do they get the engine's instructions.
    fn run<E: Engine>(self, engine: E) -> Self::Output;
}

impl Picked {
    /// Does the work with the engine that was picked.
    #[inline(always)]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(engine) => engine.run(task),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(engine) => engine.run(task),
            #[cfg(target_arch = "x86_64")]
            Self::Aes(engine) => engine.run(task),
            Self::Portable(engine) => task.run(engine),
        }
    }
}

/// Work that is worth compiling once per kind of processor: loops over bursts.
pub trait Work {
    /// What the work results in.
    type Output;
    /// Does it. Implementations are `#[inline(always)]`, and so is what they call in their loops: only then are these compiled
    /// with the processor's instructions.
    fn run(self) -> Self::Output;
}

struct Untabled<W>(W);

impl<W: Work> Task for Untabled<W> {
    type Output = W::Output;

    #[inline(always)]
    fn run<E: Engine>(self, _: E) -> W::Output {
        self.0.run()
    }
}

/// The kind of processor there is, as a table has found out: work that surrounds look-ups can be compiled for it as they are.
#[derive(Clone, Copy)]
pub struct Processor(Picked);

impl Processor {
    pub(crate) fn new(picked: Picked) -> Processor {
        Processor(picked)
    }

    /// Does work as compiled for this processor.
    #[inline(always)]
    pub fn run<W: Work>(self, work: W) -> W::Output {
        self.0.run(Untabled(work))
    }
}

/// The secret multiplier of the quotient.
pub(crate) fn multiplier(key: [u8; 16]) -> u64 {
    SipHash13::new(key).hash_words([0x7175_6f74_6965_6e74]) | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::{Bucket, Bucket4, Stored};
    use crate::entry::{FIRST, Hops, SECOND, Said};

    /// A bucket whose slots hold keys that differ in one bit each.
    fn bucket(flip: [u32; 3]) -> Bucket4 {
        let mut bucket = Bucket4::default();
        for (slot, bit) in flip.into_iter().enumerate() {
            let (addresses, head) = (0x0123_4567_89ab_cdef, 0x00fe_dcba_9876_5000 | FIRST);
            let flipped = Stored {
                addresses: addresses ^ 1u64.checked_shl(bit).unwrap_or(0),
                head: head
                    ^ if (64..120).contains(&bit) {
                        1 << (bit - 64)
                    } else {
                        0
                    },
                hops: Hops {
                    upstream: 0xffff,
                    downstream: !bit as u16,
                    opener: 1,
                },
            };
            bucket.store(slot, &flipped);
        }
        bucket
    }

    struct Agree;

    impl Task for Agree {
        type Output = ();

        fn run<E: Engine>(self, engine: E) {
            agree(engine);
            agree_on_several(engine);
        }
    }

    /// Several keys at once come to the same as one by one.
    fn agree_on_several(engine: impl Engine) {
        let mixer = Mixer {
            multiplier: 0x9e37_79b9_7f4a_7c15,
        };
        for buckets in [4096, 5000, 8191] {
            let shape = Shape::new(buckets);
            let keys: [Ipv4Key; 11] = std::array::from_fn(|at| {
                let word = (at as u32 + buckets).wrapping_mul(0x85eb_ca6b);
                Ipv4Key::new(at as u16, word, !word, 17, word as u16, (word >> 16) as u16)
            });
            let none = mixer.probe(engine, &keys[0]).0;
            let (mut wanted, mut numbers) = ([none; 11], [[0; 2]; 11]);
            engine.probe4_each(mixer, shape, &keys, &mut wanted, &mut numbers);
            for (at, key) in keys.iter().enumerate() {
                let (one, hashes) = mixer.probe(engine, key);
                assert_eq!(wanted[at], one, "{key:?} of {buckets} buckets");
                assert_eq!(numbers[at], hashes.map(|hash| shape.bucket(hash)));
            }
        }
    }

    struct Avalanche;

    impl Task for Avalanche {
        type Output = ();

        fn run<E: Engine>(self, engine: E) {
            avalanche(engine);
        }
    }

    struct Hash<'a>(&'a [u128]);

    impl Task for Hash<'_> {
        type Output = u64;

        fn run<E: Engine>(self, engine: E) -> u64 {
            engine.hash(self.0)
        }
    }

    fn agree_on_misses(engine: impl Engine) {
        let found = Hit::new(7, Match::of(1, ENTRY4), Said { word: !0, low: !0 });
        // Another bucket's number and whatever lies there say nothing.
        let missed = Hit::new(!0, Match { mark: 0, start: 0 }, Said { word: 1, low: 1 });
        let mut random = 1u64;
        // Of 1024 as many are missed: none, some, all.
        let shares = [0, 1, 256, 512, 1024];
        for (count, share) in (0..=BURST).flat_map(|count| shares.map(|share| (count, share))) {
            let hits: Vec<Hit> = std::iter::repeat_with(|| {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                if random >> 33 & 1023 < share {
                    missed
                } else {
                    found
                }
            })
            .take(count)
            .collect();
            let expected: Vec<u8> = (0..=u8::MAX)
                .zip(&hits)
                .filter_map(|(at, hit)| hit.found().is_none().then_some(at))
                .collect();
            let mut list = [0; BURST];
            let listed = engine.missed(&hits, &mut list);
            assert_eq!(
                list[..listed],
                expected,
                "{count} hits, {share} of 1024 missed"
            );
        }
    }

    fn agree(engine: impl Engine) {
        agree_on_misses(engine);
        // Bits 66 to 75 are state and age, which do not count; from 120 on nothing is flipped.
        let is_equal = |bit: u32| (66..76).contains(&bit) || bit >= 120;
        for bit in 0..121 {
            for flip in [[bit, 3, 70 + bit % 2 * 30], [5, bit, 9], [11, 90, bit]] {
                let bucket = bucket(flip);
                let expected = flip.iter().position(|&bit| is_equal(bit));
                let wanted = Wanted {
                    addresses: 0x0123_4567_89ab_cdef,
                    head: 0x00fe_dcba_9876_5000,
                };
                let found = engine.find4(bucket.line(), &wanted, FIRST);
                let mark = expected.map_or(0, |slot| 2 * slot + 1);
                assert_eq!(usize::from(found.mark), mark, "{flip:?}");
                let start = usize::from(found.start);
                assert!(expected.is_none_or(|slot| start == slot * ENTRY4));
                assert!(start.is_multiple_of(ENTRY4) && start < 3 * ENTRY4);
                assert!(
                    !engine.find4(bucket.line(), &wanted, SECOND).is_found() || flip.contains(&64)
                );
            }
        }
    }

    #[derive(Clone, Copy)]
    struct Plain;

    impl Engine for Plain {
        fn hash(&self, _: &[u128]) -> u64 {
            0
        }

        fn find4(&self, line: &Line, wanted: &Wanted<u64>, place: u64) -> Match {
            find4(line, wanted, place)
        }
    }

    #[test]
    fn every_engine_finds_the_slot_that_equals_in_all_bits_that_count() {
        agree(Plain);
        agree(SipHash13::new([1; 16]));
        agree_on_several(SipHash13::new([1; 16]));
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(aes) = crate::x86::Aes::detect([1; 16]) {
                aes.run(Agree);
            }
            if let Some(avx2) = crate::x86::Avx2::detect([1; 16]) {
                avx2.run(Agree);
            }
            if let Some(avx512) = crate::x86::Avx512::detect([1; 16]) {
                avx512.run(Agree);
            }
        }
    }

    /// Every output bit flips with probability one half when an input bit does.
    fn avalanche(engine: impl Engine) {
        let trials: u32 = if cfg!(miri) { 20 } else { 400 };
        for bit in 0..128 {
            let mut flips = [0u32; 64];
            for trial in 0..trials {
                let block =
                    u128::from(trial).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
                let changed = engine.hash(&[block]) ^ engine.hash(&[block ^ 1 << bit]);
                for (output, count) in flips.iter_mut().enumerate() {
                    *count += (changed >> output & 1) as u32;
                }
            }
            // Six standard deviations of a fair coin.
            let spread = 3.0 * f64::from(trials).sqrt();
            for count in flips {
                assert!(
                    (f64::from(count) - f64::from(trials) / 2.0).abs() <= spread,
                    "bit {bit}: {count} of {trials}"
                );
            }
        }
    }

    #[test]
    fn both_hash_functions_avalanche_and_depend_on_their_key() {
        let (one, other) = (SipHash13::new([1; 16]), SipHash13::new([2; 16]));
        assert_ne!(Engine::hash(&one, &[7]), Engine::hash(&other, &[7]));
        avalanche(one);
        #[cfg(target_arch = "x86_64")]
        if let Some(aes) = crate::x86::Aes::detect([1; 16]) {
            let other = crate::x86::Aes::detect([2; 16]).expect("the same processor");
            assert_ne!(aes.run(Hash(&[7])), other.run(Hash(&[7])));
            assert_ne!(aes.run(Hash(&[7, 8])), aes.run(Hash(&[8, 7])));
            aes.run(Avalanche);
        }
    }
}
