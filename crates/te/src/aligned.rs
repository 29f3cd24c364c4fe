//! Numbers whose vectors begin where the processor's cache lines do.

use std::ops::{Deref, DerefMut};

use crate::instance::LANES;

/// A vector of the processor at a whole multiple of its size.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Vector([f64; LANES]);

/// A table of numbers in whole vectors. Reading a vector that lies across two lines of the cache takes twice as long.
#[derive(Debug, Clone, Default)]
pub struct Aligned {
    vectors: Vec<Vector>,
}

impl Aligned {
    /// Makes it so many times the same number; `count` is rounded up to whole vectors.
    pub fn set_all(&mut self, count: usize, number: f64) {
        self.vectors.clear();
        self.resize(count, number);
    }

    /// Makes it so many numbers, the new ones this; `count` is rounded up to whole vectors.
    pub fn resize(&mut self, count: usize, number: f64) {
        let vectors = count.div_ceil(LANES);
        self.vectors.resize(vectors, Vector([number; LANES]));
    }
}

impl Deref for Aligned {
    type Target = [f64];

    fn deref(&self) -> &[f64] {
        let count = self.vectors.len() * LANES;
        // SAFETY: a vector is `LANES` numbers and nothing else, as its size is a multiple of its alignment.
        unsafe { std::slice::from_raw_parts(self.vectors.as_ptr().cast(), count) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f64] {
        let count = self.vectors.len() * LANES;
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.vectors.as_mut_ptr().cast(), count) }
    }
}

const _: () = assert!(size_of::<Vector>() == LANES * size_of::<f64>());
