//! How buckets are asked for before anything is looked for in them. It decides how long look-ups wait once a table is
//! larger than the caches, and processors differ: docs/adr/0060.

/// Keys that are asked for at once at most.
pub const FETCH: usize = 64;

/// How many prefetches go one right behind the other, and what goes between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fetching {
    /// As is best on this processor.
    #[default]
    Detect,
    /// First buckets 16 at a time, second ones at the turn of each key: what comes between gives the processor time to
    /// begin with all of them.
    Spread,
    /// First buckets 64 at a time, and second ones too, with nothing in between: where prefetches hold up whatever is behind
    /// them, they hold up each other.
    Dense,
}

impl Fetching {
    /// The same, decided.
    pub(crate) fn decided(self) -> Fetching {
        match self {
            Fetching::Detect if is_zen5_or_later() => Fetching::Dense,
            Fetching::Detect => Fetching::Spread,
            decided => decided,
        }
    }

    /// Keys to be hashed, and asked for, at once.
    #[inline(always)]
    pub(crate) fn at_once(self) -> usize {
        match self {
            Fetching::Dense => FETCH,
            Fetching::Spread | Fetching::Detect => 16,
        }
    }
}

/// Whether this is a processor of AMD of family 26 (Zen 5) or later.
fn is_zen5_or_later() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::__cpuid;
        let vendor = __cpuid(0);
        let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        // The extended family is added where the base family has reached its end, 15.
        let signature = __cpuid(1).eax;
        let (base, extended) = (signature >> 8 & 0xf, signature >> 20 & 0xff);
        name.as_flattened() == b"AuthenticAMD" && base == 15 && base + extended >= 26
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_detected_is_one_of_both_and_what_is_asked_for_stays() {
        assert_ne!(Fetching::Detect.decided(), Fetching::Detect);
        for asked_for in [Fetching::Spread, Fetching::Dense] {
            assert_eq!(asked_for.decided(), asked_for);
        }
    }
}
