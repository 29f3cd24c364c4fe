//! Frames that tell what became of them.

use forwarder::frame::{Frame, HeapFrame};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The frames that exist.
#[derive(Clone, Debug, Default)]
pub struct Living(Rc<RefCell<BTreeSet<u64>>>);

impl Living {
    /// Whether a frame still exists.
    pub fn has(&self, number: u64) -> bool {
        self.0.borrow().contains(&number)
    }

    /// How many exist.
    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }
}

/// A frame with a number of its own.
#[derive(Debug)]
pub struct Tracked {
    frame: HeapFrame,
    number: u64,
    living: Living,
}

impl Tracked {
    /// A frame of these bytes.
    pub fn new(bytes: &[u8], number: u64, living: &Living) -> Tracked {
        assert!(living.0.borrow_mut().insert(number), "a number of its own");
        Tracked {
            frame: HeapFrame::new(bytes),
            number,
            living: living.clone(),
        }
    }

    /// The same frame, to be cut into segments of `size` bytes of payload.
    pub fn of_segments(mut self, size: u16) -> Tracked {
        self.frame = HeapFrame::of_segments(self.frame.data(), size);
        self
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.living.0.borrow_mut().remove(&self.number);
    }
}

impl Frame for Tracked {
    fn data(&self) -> &[u8] {
        self.frame.data()
    }
    fn data_mut(&mut self) -> &mut [u8] {
        self.frame.data_mut()
    }
    fn prepend(&mut self, count: usize) -> bool {
        self.frame.prepend(count)
    }
    fn trim_front(&mut self, count: usize) {
        self.frame.trim_front(count);
    }
    fn truncate(&mut self, length: usize) {
        self.frame.truncate(length);
    }
    fn take_stripped_vlan(&mut self) -> Option<u16> {
        self.frame.take_stripped_vlan()
    }
    fn is_ordinary(&self) -> bool {
        self.frame.is_ordinary()
    }
    fn segment_size(&self) -> u16 {
        self.frame.segment_size()
    }
}
