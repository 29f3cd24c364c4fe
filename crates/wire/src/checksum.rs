//! The Internet checksum (RFC 1071) and its update (RFC 1624).

/// The ones' complement sum of bytes, not folded: sums of parts may be added, each part but
/// the last of even length.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    let mut total = 0u64;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        total += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    match *words.remainder() {
        [] => total,
        [a] => total + (u64::from(a) << 24),
        [a, b] => total + (u64::from(a) << 24) + (u64::from(b) << 16),
        [a, b, c] => total + (u64::from(a) << 24) + (u64::from(b) << 16) + (u64::from(c) << 8),
        _ => total,
    }
}

/// Folds a sum to 16 bits.
#[inline(always)]
pub const fn fold(total: u64) -> u16 {
    // A word added to itself with its halves exchanged has in its upper half their sum, carry included.
    let words = (total.wrapping_add(total.rotate_left(32)) >> 32) as u32;
    (words.wrapping_add(words.rotate_left(16)) >> 16) as u16
}

/// [`fold`] of a sum of 64-bit words: what fits in 64 bits, and how many carries did not.
#[inline(always)]
pub const fn fold_words(sum: u64, carries: u64) -> u16 {
    let (total, carry) = sum.overflowing_add(carries);
    fold(total.wrapping_add(carry as u64))
}

/// Whether an IPv4 header without options has the right checksum.
///
/// The bytes are summed in the processor's own order, which only exchanges the bytes of the sum (RFC 1071, section 2 B).
#[inline(always)]
pub(crate) fn is_right(header: &[u8; 20]) -> bool {
    let total = header
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    fold(total) == 0xffff
}

/// The checksum to store for a sum of the bytes it covers, its own field taken as 0.
#[inline]
pub fn finish(total: u64) -> u16 {
    !fold(total)
}

/// The checksum after a 16-bit word it covers changed (RFC 1624, equation 3).
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    finish(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// The sum of the pseudo-header of TCP, UDP and ICMPv6 (RFC 9293 section 3.1, RFC 8200 section 8.1).
/// `addresses` are source and destination, one behind the other; `length` is that of header and data.
#[inline]
pub fn pseudo_header(addresses: &[u8], protocol: u8, length: usize) -> u64 {
    sum(addresses) + u64::from(protocol) + length as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071, section 4.1, byte by byte.
    fn reference(bytes: &[u8]) -> u16 {
        let mut total = 0u32;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            total = (total & 0xffff) + (total >> 16);
        }
        !(total as u16)
    }

    #[test]
    fn agrees_with_the_reference_at_every_length() {
        let bytes: Vec<u8> = (0..300u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        for length in 0..bytes.len() {
            assert_eq!(finish(sum(&bytes[..length])), reference(&bytes[..length]));
        }
    }

    #[test]
    fn folding_equals_adding_16_bits_at_a_time() {
        let mut total = 1u64;
        for step in 0..10_000u64 {
            let mut expected = total;
            while expected > 0xffff {
                expected = (expected >> 16) + (expected & 0xffff);
            }
            assert_eq!(u64::from(fold(total)), expected, "{total:#x}");
            total = total.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(step) >> (step % 33);
        }
        assert_eq!((fold(0), fold(0xffff), fold(u64::MAX)), (0, 0xffff, 0xffff));
    }

    #[test]
    fn a_header_is_right_when_its_sum_is() {
        for seed in 0..2000u32 {
            let mut header: [u8; 20] =
                std::array::from_fn(|i| (seed.wrapping_mul(i as u32 * 7919 + 1) >> 5) as u8);
            header[10..12].fill(0);
            let sum = finish(sum(&header));
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            assert!(is_right(&header));
            header[(seed % 20) as usize] ^= 1 << (seed % 8);
            assert!(!is_right(&header), "{seed}");
        }
    }

    #[test]
    fn an_update_equals_a_new_sum() {
        let mut bytes = [0x45u8, 0, 1, 2, 3, 4, 5, 6];
        let before = finish(sum(&bytes));
        for new in [0u16, 1, 0x1234, 0xffff] {
            let old = u16::from_be_bytes([bytes[4], bytes[5]]);
            let mut changed = bytes;
            changed[4..6].copy_from_slice(&new.to_be_bytes());
            assert_eq!(update(before, old, new), finish(sum(&changed)));
        }
        bytes[0] = 0;
        assert_ne!(before, finish(sum(&bytes)));
    }
}
