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

    /// Whether no tag was taken out of it and it is one segment.
    #[inline]
    fn is_ordinary(&self) -> bool {
        true
    }

    /// Bytes of payload in each of the TCP or UDP segments that it is to be cut into; 0 when it is one. Its checksum is not
    /// finished where it is several.
    #[inline]
    fn segment_size(&self) -> u16 {
        0
    }

    /// Asks the cache for what describes the frame, its first bytes, and room in front of them, where these mostly lie.
    #[inline]
    fn prefetch(&self) {}

    /// The same for a frame that another processor had last, to change it.
    #[inline]
    fn prefetch_handed(&self) {}

    /// Leaves the `length` bytes behind the first `skip`, and adds `header` bytes of any value in front of them; false when
    /// there is no room for these.
    #[inline]
    fn reframe(&mut self, skip: usize, length: usize, header: usize) -> bool {
        self.trim_front(skip);
        self.truncate(length);
        self.prepend(header)
    }

    /// [`Frame::reframe`] that returns the bytes that were added; nothing when there is no room for them.
    #[inline]
    fn reframe_with<const N: usize>(&mut self, skip: usize, length: usize) -> Option<&mut [u8; N]> {
        match self.reframe(skip, length, N) {
            true => self.data_mut().first_chunk_mut(),
            false => None,
        }
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
    fn is_ordinary(&self) -> bool {
        dpdk::Mbuf::is_ordinary(self)
    }
    #[inline]
    fn segment_size(&self) -> u16 {
        dpdk::Mbuf::segment_size(self)
    }
    #[inline]
    fn prefetch(&self) {
        dpdk::Mbuf::prefetch(self);
    }
    #[inline]
    fn prefetch_handed(&self) {
        dpdk::Mbuf::prefetch_to_write(self);
    }
    #[inline]
    fn reframe(&mut self, skip: usize, length: usize, header: usize) -> bool {
        dpdk::Mbuf::reframe(self, skip, length, header)
    }
    #[inline]
    fn reframe_with<const N: usize>(&mut self, skip: usize, length: usize) -> Option<&mut [u8; N]> {
        dpdk::Mbuf::reframe_with(self, skip, length)
    }
}

/// A frame in ordinary memory, with headroom: for tests, fuzzers and simulations.
#[derive(Clone, Debug)]
pub struct HeapFrame {
    bytes: Vec<u8>,
    start: usize,
    segment_size: u16,
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
            segment_size: 0,
        }
    }

    /// The same, to be cut into segments of `size` bytes of payload.
    pub fn of_segments(bytes: &[u8], size: u16) -> HeapFrame {
        HeapFrame {
            segment_size: size,
            ..HeapFrame::new(bytes)
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
    fn is_ordinary(&self) -> bool {
        self.segment_size == 0
    }
    fn segment_size(&self) -> u16 {
        self.segment_size
    }
}
