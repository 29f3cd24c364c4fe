//! What the pipeline needs of a packet buffer.

/// A frame that can grow and shrink in front.
pub trait Frame: Sized {
    /// Its bytes.
    fn data(&self) -> &[u8];
    /// Its bytes, to change.
    fn data_mut(&mut self) -> &mut [u8];
    /// Adds bytes of any value in front; false, and nothing changed, when there is no room.
    fn prepend(&mut self, count: usize) -> bool;
    /// Removes bytes in front.
    fn trim_front(&mut self, count: usize);
    /// Shortens it to `length` bytes.
    fn truncate(&mut self, length: usize);
    /// Identifier of the tag that the device took out; it forgets it.
    fn take_stripped_vlan(&mut self) -> Option<u16>;

    /// The same, and it keeps it.
    #[inline]
    fn stripped_vlan(&self) -> Option<u16> {
        None
    }

    /// Whether the device took a tag out.
    #[inline]
    fn has_stripped_vlan(&self) -> bool {
        false
    }

    /// Asks the cache for the first bytes, and for room in front of them.
    #[inline]
    fn prefetch(&self) {}

    /// Asks the cache for the description of a frame that another processor had last.
    #[inline]
    fn fetch_description(&self) {}

    /// Asks the cache for its first bytes, and room in front of them, after [`Frame::fetch_description`].
    #[inline]
    fn fetch_start(&self) {}

    /// Asks the cache for what says where the bytes are; [`Frame::prefetch`] reads it.
    #[inline]
    fn prefetch_description(&self) {}

    /// Leaves the `length` bytes behind the first `skip`, and adds `header` bytes of any value in front of them; false when
    /// there is no room for these.
    #[inline]
    fn reframe(&mut self, skip: usize, length: usize, header: usize) -> bool {
        self.trim_front(skip);
        self.truncate(length);
        self.prepend(header)
    }
}

impl Frame for dpdk::Mbuf {
    #[inline]
    fn data(&self) -> &[u8] {
        dpdk::Mbuf::data(self)
    }
    #[inline]
    fn data_mut(&mut self) -> &mut [u8] {
        dpdk::Mbuf::data_mut(self)
    }
    #[inline]
    fn prepend(&mut self, count: usize) -> bool {
        dpdk::Mbuf::prepend(self, count)
    }
    #[inline]
    fn trim_front(&mut self, count: usize) {
        dpdk::Mbuf::trim_front(self, count);
    }
    #[inline]
    fn truncate(&mut self, length: usize) {
        dpdk::Mbuf::truncate(self, length);
    }
    #[inline]
    fn take_stripped_vlan(&mut self) -> Option<u16> {
        dpdk::Mbuf::take_stripped_vlan(self)
    }
    #[inline]
    fn stripped_vlan(&self) -> Option<u16> {
        dpdk::Mbuf::stripped_vlan(self)
    }
    #[inline]
    fn has_stripped_vlan(&self) -> bool {
        dpdk::Mbuf::has_stripped_vlan(self)
    }
    #[inline]
    fn prefetch(&self) {
        dpdk::Mbuf::prefetch(self);
    }
    #[inline]
    fn fetch_description(&self) {
        dpdk::Mbuf::fetch_description(self);
    }
    #[inline]
    fn fetch_start(&self) {
        dpdk::Mbuf::fetch_start(self);
    }
    #[inline]
    fn prefetch_description(&self) {
        dpdk::Mbuf::prefetch_description(self);
    }
    #[inline]
    fn reframe(&mut self, skip: usize, length: usize, header: usize) -> bool {
        dpdk::Mbuf::reframe(self, skip, length, header)
    }
}

/// A frame in ordinary memory, with headroom: for tests, fuzzers and simulations.
#[derive(Clone, Debug)]
pub struct HeapFrame {
    bytes: Vec<u8>,
    start: usize,
}

const HEADROOM: usize = 128;

impl HeapFrame {
    /// A frame of these bytes.
    pub fn new(bytes: &[u8]) -> HeapFrame {
        let mut all = vec![0; HEADROOM];
        all.extend_from_slice(bytes);
        HeapFrame {
            bytes: all,
            start: HEADROOM,
        }
    }
}

impl Frame for HeapFrame {
    fn data(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
    fn data_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
    fn prepend(&mut self, count: usize) -> bool {
        if count > self.start {
            return false;
        }
        self.start -= count;
        true
    }
    fn trim_front(&mut self, count: usize) {
        self.start = (self.start + count).min(self.bytes.len());
    }
    fn truncate(&mut self, length: usize) {
        self.bytes.truncate(self.start + length);
    }
    fn take_stripped_vlan(&mut self) -> Option<u16> {
        None
    }
}
