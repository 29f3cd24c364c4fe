//! Packet buffers.

use crate::Environment;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

/// What this crate reads of `struct rte_mbuf`; the shim asserts the offsets.
#[repr(C)]
pub(crate) struct RawMbuf {
    buf_addr: *mut u8,
    buf_iova: u64,
    data_off: u16,
    refcnt: u16,
    nb_segs: u16,
    port: u16,
    ol_flags: u64,
    packet_type: u32,
    pkt_len: u32,
    data_len: u16,
    vlan_tci: u16,
    hash: [u32; 2],
    vlan_tci_outer: u16,
    buf_len: u16,
}

const VLAN_STRIPPED: u64 = 1 << 6;
/// The packet is of several segments; `hash[0]`, which is the application's to use, says how long their payloads are.
const SEGMENTED: u64 = 1 << 50;
/// Bytes in front of a packet that is put into a buffer.
const HEADROOM: u16 = 128;
/// Bytes of a line of the cache.
const CACHE_LINE: usize = 64;
/// From the start of a buffer to the packet in it, as ports receive: `struct rte_mbuf` and the headroom.
const FIRST_BYTE: usize = 128 + 128;

#[inline]
fn fetch_to_write(address: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(address.cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

unsafe extern "C" {
    fn sb_pool_create(
        name: *const c_char,
        count: c_uint,
        data_room: u16,
        threads: c_uint,
    ) -> *mut c_void;
    fn sb_pool_available(pool: *const c_void) -> c_uint;
    fn sb_pool_common(pool: *const c_void) -> c_uint;
    fn sb_mbuf_alloc(pool: *mut c_void) -> *mut RawMbuf;
    fn sb_mbuf_free(mbuf: *mut RawMbuf);
    fn sb_mbuf_linearize(mbuf: *mut RawMbuf) -> c_int;
    fn rte_thread_register() -> c_int;
    fn rte_thread_unregister();
}

/// Buffers that ports receive into. It lives as long as the process.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)] // the shim is given arrays of them
pub struct Pool(NonNull<c_void>);

// SAFETY: DPDK's pools may be used by every thread.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// A pool of `count` buffers (up to 1/16 less with huge pages) with `data_room` bytes each, headroom (128 bytes) included. So many registered threads,
    /// and the main one, keep up to 3/8 of it for themselves, all together. Nothing when there is no memory for it in one piece or the name is taken.
    pub fn new(
        _: &Environment,
        name: &str,
        count: u32,
        data_room: u16,
        threads: usize,
    ) -> Option<Pool> {
        let name = CString::new(name).ok()?;
        // SAFETY: `name` outlives the call, which copies it.
        NonNull::new(unsafe { sb_pool_create(name.as_ptr(), count, data_room, threads as c_uint) })
            .map(Pool)
    }

    /// Buffers nobody holds.
    pub fn available(&self) -> u32 {
        // SAFETY: pools are never freed.
        unsafe { sb_pool_available(self.0.as_ptr()) }
    }

    /// The same without those that threads keep for themselves.
    pub fn common(&self) -> u32 {
        // SAFETY: pools are never freed.
        unsafe { sb_pool_common(self.0.as_ptr()) }
    }

    /// An empty buffer; nothing when all are in use.
    pub fn allocate(&self) -> Option<Mbuf> {
        // SAFETY: pools are never freed; an allocated mbuf is valid and ours.
        NonNull::new(unsafe { sb_mbuf_alloc(self.0.as_ptr()) }).map(Mbuf)
    }

    /// Gives the calling thread a small store of buffers of every pool, so that threads do not meet at the pools for each
    /// buffer. Nothing when DPDK has no place for another thread, or knows this one; it can do without.
    pub fn register_thread(&self) -> Option<KnownThread> {
        // SAFETY: DPDK has started, as there is a pool.
        let result = unsafe { rte_thread_register() };
        (result == 0).then_some(KnownThread(PhantomData))
    }
}

/// A thread with a store of buffers, until this is dropped, by the same thread.
#[derive(Debug)]
pub struct KnownThread(PhantomData<*const ()>);

impl Drop for KnownThread {
    fn drop(&mut self) {
        // SAFETY: this thread was registered, and is no longer afterwards.
        unsafe { rte_thread_unregister() }
    }
}

/// A packet buffer of one segment, owned.
#[repr(transparent)]
#[derive(Debug)]
pub struct Mbuf(NonNull<RawMbuf>);

// SAFETY: an mbuf has one owner; DPDK lets any thread free it.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// Takes over a received mbuf; one of several segments is made one if it fits, and dropped if not.
    ///
    /// # Safety
    /// `raw` is a valid mbuf that nobody else holds.
    pub(crate) unsafe fn from_raw(raw: NonNull<RawMbuf>) -> Option<Mbuf> {
        let mbuf = Mbuf(raw);
        if mbuf.raw().nb_segs > 1 {
            // SAFETY: the mbuf is valid and ours.
            let result = unsafe { sb_mbuf_linearize(raw.as_ptr()) };
            if result != 0 {
                return None;
            }
        }
        Some(mbuf)
    }

    pub(crate) fn into_raw(self) -> *mut RawMbuf {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }

    fn raw(&self) -> &RawMbuf {
        // SAFETY: an owned mbuf is valid.
        unsafe { self.0.as_ref() }
    }

    fn raw_mut(&mut self) -> &mut RawMbuf {
        // SAFETY: an owned mbuf is valid, and owned once.
        unsafe { self.0.as_mut() }
    }

    /// The packet's bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let raw = self.raw();
        // SAFETY: DPDK keeps data_off + data_len within the buffer, and so do this type's methods.
        unsafe {
            slice::from_raw_parts(
                raw.buf_addr.add(usize::from(raw.data_off)),
                usize::from(raw.data_len),
            )
        }
    }

    /// The packet's bytes, to change.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let raw = self.raw();
        // SAFETY: as for `data`; the buffer is not shared, as nothing here clones mbufs.
        unsafe {
            slice::from_raw_parts_mut(
                raw.buf_addr.add(usize::from(raw.data_off)),
                usize::from(raw.data_len),
            )
        }
    }

    /// Adds bytes of any value in front; false when the headroom is too small.
    #[inline]
    pub fn prepend(&mut self, count: usize) -> bool {
        let raw = self.raw_mut();
        if count > usize::from(raw.data_off) || count + usize::from(raw.data_len) > 0xffff {
            return false;
        }
        raw.data_off -= count as u16;
        raw.data_len += count as u16;
        raw.pkt_len += count as u32;
        true
    }

    /// Removes bytes in front; more than there are leaves none.
    #[inline]
    pub fn trim_front(&mut self, count: usize) {
        let raw = self.raw_mut();
        let count = count.min(usize::from(raw.data_len)) as u16;
        raw.data_off += count;
        raw.data_len -= count;
        raw.pkt_len -= u32::from(count);
    }

    /// Shortens the packet to `length` bytes; a shorter one stays as it is.
    #[inline]
    pub fn truncate(&mut self, length: usize) {
        let raw = self.raw_mut();
        if length < usize::from(raw.data_len) {
            raw.data_len = length as u16;
            raw.pkt_len = length as u32;
        }
    }

    /// Leaves the `length` bytes behind the first `skip` (fewer if there are fewer), and adds `header` bytes of any value in
    /// front of them; false, and nothing changed, when there is no room for these.
    #[inline]
    pub fn reframe(&mut self, skip: usize, length: usize, header: usize) -> bool {
        let raw = self.raw_mut();
        let skip = skip.min(usize::from(raw.data_len));
        let length = length.min(usize::from(raw.data_len) - skip);
        let start = usize::from(raw.data_off) + skip;
        if header > start || header + length > 0xffff {
            return false;
        }
        raw.data_off = (start - header) as u16;
        raw.data_len = (length + header) as u16;
        raw.pkt_len = (length + header) as u32;
        true
    }

    /// [`Mbuf::reframe`] that returns the `N` bytes that were added in front; nothing when there is no room for them.
    #[inline]
    pub fn reframe_with<const N: usize>(
        &mut self,
        skip: usize,
        length: usize,
    ) -> Option<&mut [u8; N]> {
        let raw = self.raw_mut();
        let inside = skip
            .checked_add(length)
            .is_some_and(|end| end <= usize::from(raw.data_len));
        if !inside {
            return match self.reframe(skip, length, N) {
                true => self.data_mut().first_chunk_mut(),
                false => None,
            };
        }
        let start = (usize::from(raw.data_off) + skip).checked_sub(N)?;
        if N + length > 0xffff {
            return None;
        }
        raw.data_off = start as u16;
        raw.data_len = (N + length) as u16;
        raw.pkt_len = (N + length) as u32;
        // SAFETY: these bytes lie in the buffer: DPDK keeps `data_off` + `data_len` within it, and they are as long as
        // the packet at least. They are not shared, as nothing here clones mbufs.
        Some(unsafe { &mut *raw.buf_addr.add(start).cast() })
    }

    /// Asks the cache for what describes the packet, for its first bytes, and for the line of headroom in front of them,
    /// where the bytes of a buffer of [`Pool`] lie that was just received: nothing is read for it.
    #[inline]
    pub fn prefetch(&self) {
        let description = self.0.as_ptr().cast::<u8>();
        prefetch_line(description);
        prefetch_line(description.wrapping_add(FIRST_BYTE));
        prefetch_line(description.wrapping_add(FIRST_BYTE - CACHE_LINE));
    }

    /// The same, to change it all: for packets that another processor had last.
    #[inline]
    pub fn prefetch_to_write(&self) {
        let description = self.0.as_ptr().cast::<u8>();
        fetch_to_write(description);
        fetch_to_write(description.wrapping_add(FIRST_BYTE));
        fetch_to_write(description.wrapping_add(FIRST_BYTE - CACHE_LINE));
    }

    /// Whether the packet is nothing out of the ordinary: no tag was taken out of it, and it is one segment.
    #[inline]
    pub fn is_ordinary(&self) -> bool {
        self.raw().ol_flags & (VLAN_STRIPPED | SEGMENTED) == 0
    }

    /// Bytes of payload in each of the segments that the packet is to be cut into; 0 when it is one.
    #[inline]
    pub fn segment_size(&self) -> u16 {
        let raw = self.raw();
        match raw.ol_flags & SEGMENTED {
            0 => 0,
            _ => raw.hash[0] as u16,
        }
    }

    /// Says that the packet is to be cut into segments of `size` bytes of payload; 0 when it is one.
    pub fn set_segment_size(&mut self, size: u16) {
        let raw = self.raw_mut();
        raw.ol_flags &= !SEGMENTED;
        if size > 0 {
            raw.ol_flags |= SEGMENTED;
            raw.hash[0] = size.into();
        }
    }

    /// The bytes a packet can have: what is there already, behind room for headers. [`Mbuf::fill`] makes a packet of the first.
    pub fn room(&mut self) -> &mut [u8] {
        let raw = self.raw();
        let headroom = HEADROOM.min(raw.buf_len);
        // SAFETY: the buffer has `buf_len` bytes, of memory that DPDK mapped with a value; it is not shared.
        unsafe {
            slice::from_raw_parts_mut(
                raw.buf_addr.add(usize::from(headroom)),
                usize::from(raw.buf_len - headroom),
            )
        }
    }

    /// Makes a packet of the first bytes of [`Mbuf::room`]; false, and nothing changed, when there are fewer.
    pub fn fill(&mut self, length: usize) -> bool {
        let raw = self.raw_mut();
        let headroom = HEADROOM.min(raw.buf_len);
        if length > usize::from(raw.buf_len - headroom) {
            return false;
        }
        raw.data_off = headroom;
        raw.data_len = length as u16;
        raw.pkt_len = length as u32;
        true
    }

    /// Replaces the packet; false, and nothing changed, when it does not fit behind the headroom.
    pub fn set(&mut self, bytes: &[u8]) -> bool {
        if !self.fill(bytes.len()) {
            return false;
        }
        self.data_mut().copy_from_slice(bytes);
        true
    }

    /// Identifier of the IEEE 802.1Q tag that the device took out of the frame, if it did.
    #[inline]
    pub fn stripped_vlan(&self) -> Option<u16> {
        let raw = self.raw();
        (raw.ol_flags & VLAN_STRIPPED != 0).then_some(raw.vlan_tci & 0x0fff)
    }

    /// Identifier of the IEEE 802.1Q tag that the device took out of the frame; it forgets it.
    #[inline]
    pub fn take_stripped_vlan(&mut self) -> Option<u16> {
        let raw = self.raw_mut();
        if raw.ol_flags & VLAN_STRIPPED == 0 {
            return None;
        }
        raw.ol_flags &= !VLAN_STRIPPED;
        Some(raw.vlan_tci & 0x0fff)
    }

    /// Forgets what the device said about the packet, so that it can be sent.
    #[inline]
    pub(crate) fn clear_flags(&mut self) {
        self.raw_mut().ol_flags = 0;
    }
}

#[inline(always)]
fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

impl Drop for Mbuf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the mbuf is owned and not used again.
        unsafe { sb_mbuf_free(self.0.as_ptr()) }
    }
}
