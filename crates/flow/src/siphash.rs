//! SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input PRF") of sequences of 64-bit words.

/// The function for one 128-bit key. Equal on every machine, so other forwarders can recompute its values.
#[derive(Clone, Copy)]
pub struct SipHash13 {
    state: [u64; 4],
}

impl SipHash13 {
    /// The function for `key`, two little-endian words.
    pub const fn new(key: [u8; 16]) -> Self {
        let key = u128::from_le_bytes(key);
        let (k0, k1) = (key as u64, (key >> 64) as u64);
        Self {
            state: [
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ],
        }
    }

    /// The hash of the words' little-endian bytes.
    #[inline(always)]
    pub fn hash_words(&self, words: impl IntoIterator<Item = u64>) -> u64 {
        let mut v = self.state;
        let mut length = 0u64;
        for word in words {
            v[3] ^= word;
            round(&mut v);
            v[0] ^= word;
            length += 8;
        }
        let last = length << 56;
        v[3] ^= last;
        round(&mut v);
        v[0] ^= last;
        v[2] ^= 0xff;
        round(&mut v);
        round(&mut v);
        round(&mut v);
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use super::*;

    #[test]
    fn agrees_with_the_standard_library() {
        // `DefaultHasher` is SipHash-1-3 with a zero key.
        let ours = SipHash13::new([0; 16]);
        let mut word = 1u64;
        for length in 0..9 {
            let words: Vec<u64> = (0..length)
                .map(|_| {
                    word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ length;
                    word
                })
                .collect();
            let mut theirs = std::collections::hash_map::DefaultHasher::new();
            for word in &words {
                theirs.write(&word.to_le_bytes());
            }
            assert_eq!(ours.hash_words(words), theirs.finish(), "{length} words");
        }
    }
}
