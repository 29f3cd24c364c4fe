//! From a key to what is looked for, and where.

use crate::engine::Engine;
use crate::key::{Layout, QUOTIENT_MASK};
use crate::shape::Shape;

/// What of a key is stored, and hence looked for: everything but the quotient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Wanted<A> {
    /// The addresses, mixed with the quotient.
    pub addresses: A,
    /// The head, its quotient bits zero.
    pub head: u64,
}

/// A key's two hashes: which bucket is its first choice, and which its second.
///
/// The lowest twelve bits have the quotient added, so that [`Shape::bucket`] leaves it in the bucket's number.
pub type Hashes = [u32; 2];

/// What turns keys into hashes: the table's second secret and nothing else.
#[derive(Clone, Copy)]
pub struct Mixer {
    /// Odd; times the quotient it is added to the addresses.
    pub multiplier: u64,
}

impl Mixer {
    /// What to look for, and the hashes of where.
    #[inline(always)]
    pub fn probe<K: Layout, E: Engine>(self, engine: E, key: &K) -> (Wanted<K::Addresses>, Hashes) {
        let quotient = key.head() & QUOTIENT_MASK;
        let wanted = Wanted {
            addresses: self.mix::<K>(key.addresses(), quotient),
            head: key.head() & !QUOTIENT_MASK,
        };
        (wanted, hashes::<K, E>(engine, &wanted, quotient))
    }

    /// Adds what a quotient adds to addresses, or takes it away again.
    #[inline(always)]
    pub fn mix<K: Layout>(self, addresses: K::Addresses, quotient: u64) -> K::Addresses {
        K::mix(addresses, quotient.wrapping_mul(self.multiplier))
    }

    /// [`Mixer::probe`] of several keys, with bucket numbers instead of hashes. The slices are equally long.
    #[inline(always)]
    pub fn probe_each<K: Layout, E: Engine>(
        self,
        engine: E,
        shape: Shape,
        keys: &[K],
        wanted: &mut [Wanted<K::Addresses>],
        buckets: &mut [Hashes],
    ) {
        for ((key, wanted), buckets) in keys.iter().zip(wanted).zip(buckets) {
            let hashes;
            (*wanted, hashes) = self.probe(engine, key);
            *buckets = hashes.map(|hash| shape.bucket(hash));
        }
    }
}

/// The hashes of a key without its quotient, with it added.
#[inline(always)]
pub fn hashes<K: Layout, E: Engine>(
    engine: E,
    wanted: &Wanted<K::Addresses>,
    quotient: u64,
) -> Hashes {
    let hash = engine.hash(K::blocks(wanted.head, wanted.addresses).as_ref());
    [
        hash as u32 ^ quotient as u32,
        (hash >> 32) as u32 ^ quotient as u32,
    ]
}
