//! Four AES rounds per block with the processor's instructions.
//!
//! This is one of the crate's two files with unsafe code. Invariant: an [`AesHash`] exists only where
//! [`AesHash::detect`] found AES instructions, so code that holds one may execute them.

use std::arch::x86_64::{
    __m128i, _mm_aesenc_si128, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_setzero_si128, _mm_xor_si128,
};

use super::Prf;
use super::siphash::SipHash13;

/// The function for one key, on a processor that has AES.
#[derive(Clone, Copy)]
pub(crate) struct AesHash {
    rounds: [__m128i; 4],
}

impl AesHash {
    /// The function for `key`, or nothing where the instructions are missing. Round keys are drawn with SipHash.
    pub(crate) fn detect(key: [u8; 16]) -> Option<Self> {
        if !std::is_x86_feature_detected!("aes") || cfg!(miri) {
            return None;
        }
        let sip = SipHash13::new(key);
        let rounds = [0u64, 2, 4, 6].map(|word| {
            let words = [sip.hash_words([word]), sip.hash_words([word + 1])];
            // SAFETY: sixteen readable bytes; SSE2 is part of x86-64.
            unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
        });
        Some(Self { rounds })
    }

    /// [`Prf::hash`], as a call of its own.
    pub(crate) fn hash_blocks(&self, blocks: &[u128]) -> u64 {
        #[target_feature(enable = "aes")]
        fn with_aes(hash: &AesHash, blocks: &[u128]) -> u64 {
            hash.hash(blocks)
        }
        // SAFETY: `self` exists, so the processor has AES.
        unsafe { with_aes(self, blocks) }
    }

    /// Runs `work` compiled for this processor, so that [`Prf::hash`] is inlined into its loops.
    #[inline(always)]
    pub(crate) fn run<R>(self, work: impl FnOnce(Self) -> R) -> R {
        #[target_feature(enable = "aes")]
        fn with_aes<R>(hash: AesHash, work: impl FnOnce(AesHash) -> R) -> R {
            work(hash)
        }
        // SAFETY: `self` exists, so the processor has AES.
        unsafe { with_aes(self, work) }
    }
}

impl Prf for AesHash {
    #[inline(always)]
    fn hash(&self, blocks: &[u128]) -> u64 {
        // SAFETY: `self` exists, so the processor has AES; loads read the sixteen bytes of a `u128`.
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
}
