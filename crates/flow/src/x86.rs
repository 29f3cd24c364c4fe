//! What the processor's vector instructions do better: hashing with AES rounds, and comparing three keys at once.
//!
//! Unsafe code is in this module and in [`crate::memory`], nowhere else in the crate. Invariants: SSE2 is part of x86-64; an
//! [`Aes`], [`Avx2`] or [`Avx512`] exists only where its `detect` found the instructions, so code that holds one may execute them.

mod avx2;

pub(crate) use avx2::Avx2;

use std::arch::x86_64::{
    __m128i, __m512i, _mm_aesenc_si128, _mm_and_si128, _mm_cmpeq_epi32, _mm_cvtsi128_si64,
    _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set_epi64x,
    _mm_setzero_si128, _mm_xor_si128, _mm256_storeu_si256, _mm512_add_epi8, _mm512_aesenc_epi128,
    _mm512_and_si512, _mm512_andnot_si512, _mm512_broadcast_i32x4, _mm512_castsi512_si256,
    _mm512_cmpge_epu32_mask, _mm512_loadu_si512, _mm512_mask_and_epi32, _mm512_maskz_compress_epi8,
    _mm512_maskz_compress_epi64, _mm512_mullo_epi64, _mm512_or_si512, _mm512_permutex2var_epi64,
    _mm512_permutexvar_epi8, _mm512_set_epi64, _mm512_set1_epi8, _mm512_set1_epi32,
    _mm512_set1_epi64, _mm512_shuffle_epi32, _mm512_storeu_si512, _mm512_testn_epi64_mask,
    _mm512_xor_si512,
};

use crate::bucket::{ENTRY4, Line, Match};
use crate::engine::{Engine, Task};
use crate::entry::{Hit, MATCH_MASK};
use crate::key::{Ipv4Key, QUOTIENT_MASK};
use crate::lookup::BURST;
use crate::probe::{Hashes, Mixer, Wanted};
use crate::shape::Shape;
use crate::siphash::SipHash13;

/// AES instructions, and SSE2.
#[derive(Clone, Copy)]
pub(crate) struct Aes {
    rounds: [__m128i; 4],
}

/// AES instructions, and AVX-512 with byte permutation (Ice Lake, Zen 4, and later).
#[derive(Clone, Copy)]
pub(crate) struct Avx512 {
    aes: Aes,
}

impl Aes {
    /// The engine for `key`, or nothing where the instructions are missing. Round keys are drawn with SipHash.
    pub(crate) fn detect(key: [u8; 16]) -> Option<Self> {
        if cfg!(miri) || !std::is_x86_feature_detected!("aes") {
            return None;
        }
        let sip = SipHash13::new(key);
        let rounds = [0u64, 2, 4, 6].map(|word| {
            let words = [sip.hash_words([word]), sip.hash_words([word + 1])];
            // SAFETY: sixteen readable bytes.
            unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
        });
        Some(Self { rounds })
    }

    /// Runs a task compiled for this processor, so that the engine's methods are inlined into its loops.
    #[inline(always)]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        #[target_feature(enable = "aes")]
        fn compiled<T: Task>(engine: Aes, task: T) -> T::Output {
            task.run(engine)
        }
        // SAFETY: `self` exists.
        unsafe { compiled(self, task) }
    }
}

impl Engine for Aes {
    #[inline(always)]
    fn hash(&self, blocks: &[u128]) -> u64 {
        // SAFETY: `self` exists; loads read the sixteen bytes of a `u128`.
        unsafe {
            let mut state = _mm_setzero_si128();
            for block in blocks {
                state = _mm_xor_si128(state, _mm_loadu_si128(std::ptr::from_ref(block).cast()));
                state = _mm_xor_si128(state, self.rounds[0]);
                state = _mm_aesenc_si128(state, self.rounds[1]);
                state = _mm_aesenc_si128(state, self.rounds[2]);
                state = _mm_aesenc_si128(state, self.rounds[3]);
                state = _mm_aesenc_si128(state, self.rounds[0]);
            }
            _mm_cvtsi128_si64(state) as u64
        }
    }

    #[inline(always)]
    fn find4(&self, line: &Line, wanted: &Wanted<u64>, place: u64) -> Match {
        find4_sse2(line, wanted, place)
    }
}

/// [`Engine::find4`] for any x86-64.
#[inline(always)]
pub(crate) fn find4_sse2(line: &Line, wanted: &Wanted<u64>, place: u64) -> Match {
    let (addresses, head) = (wanted.addresses, wanted.head | place);
    // SAFETY: SSE2 only; loads read 16 bytes from offsets 0, 21 and 42 of 64.
    let lanes = unsafe {
        let wanted = _mm_set_epi64x(head as i64, addresses as i64);
        let mask = _mm_set_epi64x(MATCH_MASK as i64, -1);
        let zero = _mm_setzero_si128();
        let [first, second, third] = [0, ENTRY4, 2 * ENTRY4].map(|at| {
            let stored = _mm_loadu_si128(line.as_ptr().add(at).cast());
            _mm_cmpeq_epi32(_mm_and_si128(_mm_xor_si128(stored, wanted), mask), zero)
        });
        // Four lanes per slot, narrowed to four bytes and then to four bits.
        let narrow = _mm_packs_epi16(_mm_packs_epi32(first, second), _mm_packs_epi32(third, zero));
        _mm_movemask_epi8(narrow) as u32
    };
    let halves = lanes & lanes >> 1;
    let found = halves & halves >> 2 & 0x111;
    let slot = (found | 0x800).trailing_zeros() as usize / 4;
    Match::of_if(found != 0, slot, ENTRY4)
}

impl Avx512 {
    /// The engine for `key`, or nothing where the instructions are missing.
    pub(crate) fn detect(key: [u8; 16]) -> Option<Self> {
        let has = std::is_x86_feature_detected!("vaes")
            && std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512dq")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512vbmi")
            && std::is_x86_feature_detected!("avx512vbmi2")
            && std::is_x86_feature_detected!("popcnt")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("movbe");
        Aes::detect(key).filter(|_| has).map(|aes| Self { aes })
    }

    /// Runs a task compiled for this processor, so that the engine's methods are inlined into its loops.
    #[inline(always)]
    pub(crate) fn run<T: Task>(self, task: T) -> T::Output {
        #[target_feature(
            enable = "aes,vaes,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt,bmi1,bmi2,movbe"
        )]
        fn compiled<T: Task>(engine: Avx512, task: T) -> T::Output {
            task.run(engine)
        }
        // SAFETY: `self` exists.
        unsafe { compiled(self, task) }
    }
}

// Positions of missed keys are stored 64 at a time: the last part of a burst has room for as many.
const _: () = assert!(BURST.is_multiple_of(64) && BURST <= 256);
// A vector that is compared has the addresses first.
const _: () = assert!(std::mem::offset_of!(Wanted<u64>, head) == 8);
// Four keys at once take a key for two words without padding, addresses first.
const _: () = assert!(size_of::<[Ipv4Key; 4]>() == 64 && size_of::<[Wanted<u64>; 4]>() == 64);

impl Avx512 {
    /// [`Mixer::probe_each`] of four keys, in the four lanes of one vector.
    #[inline(always)]
    fn probe_four(
        &self,
        mixer: Mixer,
        shape: Shape,
        keys: &[Ipv4Key; 4],
        wanted: &mut [Wanted<u64>; 4],
        buckets: &mut [Hashes; 4],
    ) {
        // SAFETY: `self` exists; loads and stores are of arrays of 64 bytes, and of 32 for `buckets`.
        unsafe {
            let quotient_mask = _mm512_broadcast_i32x4(_mm_set_epi64x(QUOTIENT_MASK as i64, 0));
            let key = _mm512_loadu_si512(keys.as_ptr().cast());
            let quotient = _mm512_and_si512(key, quotient_mask);
            // The quotient beside the addresses, where the product goes.
            let across = _mm512_shuffle_epi32::<0b01_00_11_10>(quotient);
            let product = _mm512_mullo_epi64(across, _mm512_set1_epi64(mixer.multiplier as i64));
            let mixed = _mm512_andnot_si512(quotient_mask, _mm512_xor_si512(key, product));
            _mm512_storeu_si512(wanted.as_mut_ptr().cast(), mixed);

            let round = |number: usize| _mm512_broadcast_i32x4(self.aes.rounds[number]);
            let state = _mm512_xor_si512(mixed, round(0));
            let state = _mm512_aesenc_epi128(state, round(1));
            let state = _mm512_aesenc_epi128(state, round(2));
            let state = _mm512_aesenc_epi128(state, round(3));
            let state = _mm512_aesenc_epi128(state, round(0));

            // Both hashes lie in the lower half of each lane; so the quotient is needed twice there.
            let twice = _mm512_shuffle_epi32::<0b00_00_10_10>(quotient);
            let (buckets_in_use, mask) = (shape.buckets() as i32, shape.mask() as i32);
            let wide = _mm512_and_si512(
                _mm512_xor_si512(state, twice),
                _mm512_set1_epi32(mask << 1 | 1),
            );
            let too_wide = _mm512_cmpge_epu32_mask(wide, _mm512_set1_epi32(buckets_in_use));
            let number = _mm512_mask_and_epi32(wide, too_wide, wide, _mm512_set1_epi32(mask));
            let even = _mm512_maskz_compress_epi64(0b0101_0101, number);
            _mm256_storeu_si256(buckets.as_mut_ptr().cast(), _mm512_castsi512_si256(even));
        }
    }
}

impl Avx512 {
    /// Which of eight were not found, a bit for each.
    #[inline(always)]
    fn missed_of_eight(&self, hits: &[Hit; 8]) -> u8 {
        let hits: *const __m512i = hits.as_ptr().cast();
        // SAFETY: `self` exists; loads are of the halves of an array of 128 bytes.
        unsafe {
            let second_words = _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1);
            let (first, last) = (_mm512_loadu_si512(hits), _mm512_loadu_si512(hits.add(1)));
            let positions = _mm512_permutex2var_epi64(first, second_words, last);
            // The last bit of a position is set.
            _mm512_testn_epi64_mask(positions, _mm512_set1_epi64(1))
        }
    }
}

/// The numbers from 0 to 63.
static COUNTED: [u8; 64] = {
    let mut numbers = [0; 64];
    let mut at = 0;
    while at < numbers.len() {
        numbers[at] = at as u8;
        at += 1;
    }
    numbers
};
/// For each byte of a vector, which byte of a line goes there: what is compared of each slot has a lane of its own.
static LANES: [u8; 64] = {
    let mut lanes = [0; 64];
    let mut at = 0;
    while at < 3 * 16 {
        lanes[at] = (at / 16 * ENTRY4 + at % 16) as u8;
        at += 1;
    }
    lanes
};
/// Which bits are compared there, addresses and head of each slot. Nothing is in the last lane, whose halves are always equal therefore.
static COMPARED: [u64; 8] = [!0, MATCH_MASK, !0, MATCH_MASK, !0, MATCH_MASK, 0, 0];
/// What comes of a comparison, by which halves of lanes are equal. The last two always are. (A constant: of a static every read in a loop began with
/// a load of its address.)
const MATCHES: &[Match; 256] = &{
    let none = Match { mark: 0, start: 0 };
    let mut matches = [none; 256];
    let mut halves = 0;
    while halves < matches.len() {
        let mut slot = 3;
        while slot > 0 {
            slot -= 1;
            if halves >> (2 * slot) & 3 == 3 {
                matches[halves] = Match::of(slot, ENTRY4);
            }
        }
        halves += 1;
    }
    matches
};

impl Engine for Avx512 {
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
        // SAFETY: `self` exists; loads read whole arrays of 64 bytes, and the 16 of `wanted`.
        let halves = unsafe {
            let line = _mm512_loadu_si512(line.as_ptr().cast());
            let lanes = _mm512_loadu_si512(LANES.as_ptr().cast());
            let stored = _mm512_permutexvar_epi8(lanes, line);
            let wanted = _mm_loadu_si128(std::ptr::from_ref(wanted).cast());
            let wanted = _mm512_broadcast_i32x4(wanted);
            let place = _mm512_broadcast_i32x4(_mm_set_epi64x(place as i64, 0));
            let differing = _mm512_xor_si512(stored, _mm512_or_si512(wanted, place));
            let compared = _mm512_loadu_si512(COMPARED.as_ptr().cast());
            _mm512_testn_epi64_mask(differing, compared)
        };
        let found = MATCHES[usize::from(halves)];
        // SAFETY: every start in the table is 0 or that of one of three entries, the last of which is 2 * ENTRY4.
        unsafe { std::hint::assert_unchecked(usize::from(found.start) <= 2 * ENTRY4) };
        found
    }

    #[inline(always)]
    fn missed(&self, hits: &[Hit], list: &mut [u8; BURST]) -> usize {
        let mut count = 0;
        let parts = hits[..hits.len().min(BURST)].chunks(64);
        for (part, hits) in parts.enumerate() {
            let (eights, rest) = hits.as_chunks::<8>();
            let mut missed = 0;
            for (at, hits) in eights.iter().enumerate() {
                missed |= u64::from(self.missed_of_eight(hits)) << (8 * at);
            }
            for (at, hit) in rest.iter().enumerate() {
                missed |= u64::from(!hit.is_found()) << (8 * eights.len() + at);
            }
            // SAFETY: `self` exists; `count` is 64 * `part` at most, as each part before has added 64 at most, and 64 * `part` + 64
            // is BURST at most.
            unsafe {
                let first = _mm512_set1_epi8((64 * part) as i8);
                let all = _mm512_add_epi8(_mm512_loadu_si512(COUNTED.as_ptr().cast()), first);
                let those = _mm512_maskz_compress_epi8(missed, all);
                _mm512_storeu_si512(list[count..].as_mut_ptr().cast(), those);
            }
            count += missed.count_ones() as usize;
        }
        count
    }
}
