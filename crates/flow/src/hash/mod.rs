//! Keyed hashing: where a key's two buckets are, for those who know the table's 128-bit key and nobody else.
//!
//! Two functions of equal standing: four AES rounds per block where the processor has them ([`aes`]), SipHash-1-3
//! elsewhere ([`siphash`]). A third, cheap one, only spreads connections that differ in nothing but their source port: the
//! quotient times a secret odd number is added to the addresses before they are hashed and stored.

#[cfg(target_arch = "x86_64")]
pub(crate) mod aes;
pub mod siphash;

use siphash::SipHash13;

/// A keyed pseudo-random function of whole blocks.
pub(crate) trait Prf: Copy {
    /// Sixty-four bits that depend on every bit of the blocks.
    fn hash(&self, blocks: &[u128]) -> u64;
}

impl Prf for SipHash13 {
    #[inline(always)]
    fn hash(&self, blocks: &[u128]) -> u64 {
        self.hash_words(
            blocks
                .iter()
                .flat_map(|block| [*block as u64, (*block >> 64) as u64]),
        )
    }
}

/// Which function to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashFunction {
    /// AES if this processor has it, else SipHash-1-3.
    #[default]
    Detect,
    /// SipHash-1-3 everywhere.
    Portable,
}

/// The function picked when the table was made.
#[derive(Clone, Copy)]
pub(crate) enum Hasher {
    #[cfg(target_arch = "x86_64")]
    Aes(aes::AesHash),
    Portable(SipHash13),
}

impl Hasher {
    pub(crate) fn new(key: [u8; 16], function: HashFunction) -> Self {
        #[cfg(target_arch = "x86_64")]
        if function == HashFunction::Detect
            && let Some(hash) = aes::AesHash::detect(key)
        {
            return Self::Aes(hash);
        }
        let _ = function;
        Self::Portable(SipHash13::new(key))
    }

    #[inline]
    pub(crate) fn hash(&self, blocks: &[u128]) -> u64 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Aes(hash) => hash.hash_blocks(blocks),
            Self::Portable(hash) => Prf::hash(hash, blocks),
        }
    }
}

/// The secret multiplier of the quotient.
pub(crate) fn multiplier(key: [u8; 16]) -> u64 {
    SipHash13::new(key).hash_words([0x7175_6f74_6965_6e74]) | 1
}
