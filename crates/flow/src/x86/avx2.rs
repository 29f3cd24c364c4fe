//! The engine for processors with AVX2 and without AVX-512: two keys are prepared in one vector, two slots compared in one.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_aesenc_si128, _mm_and_si128, _mm_castsi128_pd, _mm_cmpeq_epi64,
    _mm_loadu_si128, _mm_movemask_pd, _mm_set_epi64x, _mm_setzero_si128, _mm_xor_si128,
    _mm256_add_epi64, _mm256_and_si256, _mm256_andnot_si256, _mm256_broadcastsi128_si256,
    _mm256_castsi128_si256, _mm256_castsi256_pd, _mm256_castsi256_si128, _mm256_cmpeq_epi32,
    _mm256_cmpeq_epi64, _mm256_extracti128_si256, _mm256_inserti128_si256, _mm256_loadu_si256,
    _mm256_max_epu32, _mm256_movemask_pd, _mm256_mul_epu32, _mm256_permute4x64_epi64,
    _mm256_set1_epi32, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi32,
    _mm256_slli_epi64, _mm256_storeu_si256, _mm256_sub_epi32, _mm256_unpacklo_epi64,
    _mm256_xor_si256,
};

use super::Aes;
use crate::bucket::{ENTRY4, Line, Match};
use crate::engine::{Engine, Task};
use crate::entry::MATCH_MASK;
use crate::key::{Ipv4Key, QUOTIENT_MASK};
use crate::probe::{Hashes, Mixer, Wanted};
use crate::shape::Shape;

/// AES instructions, and AVX2 with what came beside it (Haswell, Zen, and later).
#[derive(Clone, Copy)]
pub(crate) struct Avx2 {
    aes: Aes,
}

impl Avx2 {
    /// The engine for `key`, or nothing where the instructions are missing.
    pub(crate) fn detect(key: [u8; 16]) -> Option<Self> {
        let has = std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("lzcnt")
            && std::is_x86_feature_detected!("movbe")
            && std::is_x86_feature_detected!("popcnt");
        Aes::detect(key).filter(|_| has).map(|aes| Self { aes })
    }

    /// Runs a task compiled for this processor, so that the engine's methods are inlined into its loops.
    #[inline(always)]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        #[target_feature(enable = "aes,avx2,bmi1,bmi2,lzcnt,movbe,popcnt")]
        fn compiled<T: Task>(engine: Avx2, task: T) -> T::Output {
            task.run(engine)
        }
        // SAFETY: `self` exists.
        unsafe { compiled(self, task) }
    }

    /// [`Mixer::probe_each`] of four keys.
    #[inline(always)]
    fn probe_four(
        &self,
        mixer: Mixer,
        shape: Shape,
        keys: &[Ipv4Key; 4],
        wanted: &mut [Wanted<u64>; 4],
        buckets: &mut [Hashes; 4],
    ) {
        // SAFETY: `self` exists; loads and stores are of halves of arrays of 64 bytes, and of 32 for `buckets`.
        unsafe {
            let keys: *const __m256i = keys.as_ptr().cast();
            let wanted: *mut __m256i = wanted.as_mut_ptr().cast();
            let (first, quotient) = mixed(mixer, _mm256_loadu_si256(keys));
            let (second, other) = mixed(mixer, _mm256_loadu_si256(keys.add(1)));
            _mm256_storeu_si256(wanted, first);
            _mm256_storeu_si256(wanted.add(1), second);
            let states = self.rounds([
                _mm256_castsi256_si128(first),
                _mm256_extracti128_si256::<1>(first),
                _mm256_castsi256_si128(second),
                _mm256_extracti128_si256::<1>(second),
            ]);
            // Both hashes lie in the lower half of each state; so the quotient is needed twice there.
            let first = _mm256_xor_si256(pair(states[0], states[1]), twice(quotient));
            let second = _mm256_xor_si256(pair(states[2], states[3]), twice(other));
            let hashes = _mm256_unpacklo_epi64(first, second);
            let (buckets_in_use, mask) = (shape.buckets() as i32, shape.mask() as i32);
            let wide = _mm256_and_si256(hashes, _mm256_set1_epi32(mask << 1 | 1));
            let more = _mm256_max_epu32(wide, _mm256_set1_epi32(buckets_in_use));
            let too_wide = _mm256_cmpeq_epi32(more, wide);
            let excess = _mm256_and_si256(too_wide, _mm256_set1_epi32(mask + 1));
            let number = _mm256_sub_epi32(wide, excess);
            // Unpacking has left the second and the third key exchanged.
            let number = _mm256_permute4x64_epi64::<0b11_01_10_00>(number);
            _mm256_storeu_si256(buckets.as_mut_ptr().cast(), number);
        }
    }

    /// The rounds of [`Engine::hash`] for four blocks.
    #[inline(always)]
    fn rounds(&self, [a, b, c, d]: [__m128i; 4]) -> [__m128i; 4] {
        let rounds = &self.aes.rounds;
        // SAFETY: `self` exists.
        unsafe {
            let first = rounds[0];
            let (mut a, mut b) = (_mm_xor_si128(a, first), _mm_xor_si128(b, first));
            let (mut c, mut d) = (_mm_xor_si128(c, first), _mm_xor_si128(d, first));
            for round in [rounds[1], rounds[2], rounds[3], first] {
                (a, b) = (_mm_aesenc_si128(a, round), _mm_aesenc_si128(b, round));
                (c, d) = (_mm_aesenc_si128(c, round), _mm_aesenc_si128(d, round));
            }
            [a, b, c, d]
        }
    }
}

/// Two keys as they are stored and hashed, and the quotient of each where the head is.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn mixed(mixer: Mixer, keys: __m256i) -> (__m256i, __m256i) {
    // SAFETY: as above.
    unsafe {
        let mask = _mm256_broadcastsi128_si256(_mm_set_epi64x(QUOTIENT_MASK as i64, 0));
        let quotient = _mm256_and_si256(keys, mask);
        // The quotient beside the addresses, where the product goes: of its halves, as it is small.
        let across = _mm256_shuffle_epi32::<0b01_00_11_10>(quotient);
        let low = _mm256_mul_epu32(across, _mm256_set1_epi64x(mixer.multiplier as i64));
        let high = _mm256_set1_epi64x((mixer.multiplier >> 32) as i64);
        let high = _mm256_slli_epi64::<32>(_mm256_mul_epu32(across, high));
        let mixed = _mm256_xor_si256(keys, _mm256_add_epi64(low, high));
        (_mm256_andnot_si256(mask, mixed), quotient)
    }
}

#[inline(always)]
unsafe fn pair(low: __m128i, high: __m128i) -> __m256i {
    // SAFETY: the caller's processor has AVX2.
    unsafe { _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), high) }
}

#[inline(always)]
unsafe fn twice(quotient: __m256i) -> __m256i {
    // SAFETY: the caller's processor has AVX2.
    unsafe { _mm256_shuffle_epi32::<0b00_00_10_10>(quotient) }
}

impl Engine for Avx2 {
    #[inline(always)]
    fn hash(&self, blocks: &[u128]) -> u64 {
        self.aes.hash(blocks)
    }

    #[inline(always)]
    fn probe4_each(
        &self,
        mixer: Mixer,
        shape: Shape,
        keys: &[Ipv4Key],
        wanted: &mut [Wanted<u64>],
        buckets: &mut [Hashes],
    ) {
        let (fours, rest) = keys.as_chunks::<4>();
        let (wanted_fours, wanted_rest) = wanted.split_at_mut(4 * fours.len());
        let (buckets_fours, buckets_rest) = buckets.split_at_mut(4 * fours.len());
        let parts = fours
            .iter()
            .zip(wanted_fours.as_chunks_mut().0)
            .zip(buckets_fours.as_chunks_mut().0);
        for ((keys, wanted), buckets) in parts {
            self.probe_four(mixer, shape, keys, wanted, buckets);
        }
        mixer.probe_each(*self, shape, rest, wanted_rest, buckets_rest);
    }

    #[inline(always)]
    fn find4(&self, line: &Line, wanted: &Wanted<u64>, place: u64) -> Match {
        let (addresses, head) = (wanted.addresses, wanted.head | place);
        // SAFETY: `self` exists; loads read 16 bytes from offsets 0, 21 and 42 of 64.
        let halves = unsafe {
            let start = line.as_ptr();
            let first = _mm_loadu_si128(start.cast());
            let second = _mm_loadu_si128(start.add(ENTRY4).cast());
            let third = _mm_loadu_si128(start.add(2 * ENTRY4).cast());
            let wanted = _mm_set_epi64x(head as i64, addresses as i64);
            let mask = _mm_set_epi64x(MATCH_MASK as i64, -1);
            let third = _mm_and_si128(_mm_xor_si128(third, wanted), mask);
            let third = _mm_cmpeq_epi64(third, _mm_setzero_si128());
            let (wanted, mask) = (
                _mm256_broadcastsi128_si256(wanted),
                _mm256_broadcastsi128_si256(mask),
            );
            let both = _mm256_and_si256(_mm256_xor_si256(pair(first, second), wanted), mask);
            let both = _mm256_cmpeq_epi64(both, _mm256_setzero_si256());
            let both = _mm256_movemask_pd(_mm256_castsi256_pd(both)) as u32;
            both | (_mm_movemask_pd(_mm_castsi128_pd(third)) as u32) << 4
        };
        // Two bits per slot.
        let found = halves & halves >> 1 & 0b01_01_01;
        let slot = (found | 0b1_00_00).trailing_zeros() as usize / 2;
        Match::of_if(found != 0, slot, ENTRY4)
    }
}
