//! The table's memory: address space for the whole bound is reserved once, pages come as buckets are first written.
//!
//! It is the process's own, or a file's ([`Memory::map`]): then the first [`HUGE`] bytes are the table's description
//! ([`crate::description`]), and the file grows ahead of the buckets, so that a file system without room shows as an error here
//! and not as a signal.
//!
//! Unsafe code is in this file and in [`crate::x86`], nowhere else in the crate. Invariants: `base` points to `capacity` buckets of zeroed
//! or since written memory that this value alone owns, aligned to 64 bytes, until it is dropped; every bit pattern
//! is a valid bucket ([`Plain`]).

use std::fmt;
use std::fs::File;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::ahead::Front;
use crate::bucket::{Bucket4, Bucket6};
use crate::description::BUCKETS_AT;

/// Which pages to ask the kernel for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// Transparent huge pages where the kernel grants them (`madvise`), else small ones.
    #[default]
    Transparent,
    /// 2 MB pages from the pool set aside at boot or through `vm.nr_hugepages`; fails if it is too small.
    Reserved,
    /// The kernel's default.
    Small,
}

/// Memory could not be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveError {
    /// Bytes asked for.
    pub bytes: usize,
    /// The kernel's error number.
    pub os_error: i32,
}

impl fmt::Display for ReserveError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = std::io::Error::from_raw_os_error(self.os_error);
        write!(
            out,
            "cannot reserve {} bytes for the flow table: {reason}",
            self.bytes
        )
    }
}

impl std::error::Error for ReserveError {}

/// 2 MB: the size of a huge page, and what large regions are aligned to.
pub(crate) const HUGE: usize = 2 << 20;
/// Size of a small page.
pub(crate) const PAGE: usize = 4096;

pub(crate) use backend::Mapping;

/// Types that mapped memory may be viewed as.
///
/// # Safety
/// Implementors are valid for every bit pattern, have no padding, and are aligned to at most [`PAGE`].
pub unsafe trait Plain: Copy + 'static {}

// SAFETY: an array of 64 bytes aligned to 64.
unsafe impl Plain for Bucket4 {}
// SAFETY: an array of 192 bytes aligned to 64.
unsafe impl Plain for Bucket6 {}

/// An array of buckets, all empty at first.
pub(crate) struct Memory<B: Plain> {
    base: NonNull<B>,
    capacity: usize,
    mapping: Arc<Mapping>,
    /// Bytes of buckets that are there for certain; all of them in the process's own memory.
    ensured: usize,
    /// What asks for pages ahead, if anything does.
    front: Option<Front>,
    /// Bytes of buckets that can be written before anything is to be seen to.
    mark: usize,
    owned: PhantomData<B>,
}

// SAFETY: the memory is owned, and buckets are plain bytes.
unsafe impl<B: Plain> Send for Memory<B> {}
// SAFETY: shared references only read.
unsafe impl<B: Plain> Sync for Memory<B> {}

impl<B: Plain> Memory<B> {
    /// Reserves `bytes`, a multiple of [`PAGE`] (of [`HUGE`] for reserved pages).
    pub(crate) fn reserve(bytes: usize, pages: Pages) -> Result<Self, ReserveError> {
        let mapping = Mapping::new(bytes, pages)?;
        Ok(Self {
            base: mapping.base().cast(),
            capacity: bytes / size_of::<B>(),
            mapping: Arc::new(mapping),
            ensured: bytes,
            front: None,
            mark: bytes,
            owned: PhantomData,
        })
    }

    /// Maps `bytes` of buckets, a multiple of [`HUGE`], behind the description in a file, which is not cut. The caller
    /// sees to it that nobody else has the file mapped.
    pub(crate) fn map(file: File, bytes: usize) -> Result<Self, ReserveError> {
        let mapping = Mapping::of_file(file, bytes)?;
        Ok(Self {
            base: mapping.base().cast(),
            capacity: bytes / size_of::<B>(),
            mapping: Arc::new(mapping),
            ensured: 0,
            front: None,
            mark: 0,
            owned: PhantomData,
        })
    }

    /// The first page of the description, if the memory is a file's.
    pub(crate) fn description(&mut self) -> Option<&mut [u8; PAGE]> {
        let page = self.mapping.description()?;
        // SAFETY: `of_file` made room for it, before the buckets, and `self` is borrowed exclusively.
        Some(unsafe { page.cast::<[u8; PAGE]>().as_mut() })
    }

    /// Sees to it that the first `buckets` can be written. False: the file system has no room.
    #[inline(always)]
    pub(crate) fn ensure(&mut self, buckets: u32) -> bool {
        let bytes = buckets as usize * size_of::<B>();
        bytes <= self.mark || self.pass_mark(bytes)
    }

    #[cold]
    fn pass_mark(&mut self, bytes: usize) -> bool {
        if bytes > self.ensured {
            let bytes = bytes.next_multiple_of(HUGE);
            if self.mapping.extend(self.ensured, bytes).is_err() {
                return false;
            }
            self.ensured = bytes;
        }
        self.mark = self.ensured;
        if let Some(front) = &mut self.front {
            let usable = self.capacity * size_of::<B>();
            let next = front.ask(&self.mapping, bytes, usable);
            self.mark = self.mark.min(next.max(bytes));
        }
        true
    }

    /// Has pages brought in ahead from now on.
    pub(crate) fn bring_ahead(&mut self, front: Front) {
        self.front = Some(front);
        self.mark = 0;
    }

    /// Notes the number of buckets in the description, for whoever opens the file next.
    #[inline(always)]
    pub(crate) fn note_buckets(&mut self, buckets: u32) {
        if let Some(page) = self.mapping.description() {
            // SAFETY: as in `description`; the field is four bytes, aligned.
            unsafe {
                page.add(BUCKETS_AT)
                    .cast::<u32>()
                    .write_volatile(buckets.to_le())
            };
        }
    }

    /// Every bucket there can be; pages behind the unused ones are not touched by making the slice.
    #[inline(always)]
    pub(crate) fn buckets(&self) -> &[B] {
        // SAFETY: the invariants of this file.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.capacity) }
    }

    /// Every bucket there can be, for writing.
    #[inline(always)]
    pub(crate) fn buckets_mut(&mut self) -> &mut [B] {
        // SAFETY: the invariants of this file, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.capacity) }
    }

    /// Asks the cache for a bucket that will be needed. Any number is allowed.
    #[inline(always)]
    pub(crate) fn prefetch(&self, bucket: u32) {
        let at = self
            .base
            .as_ptr()
            .wrapping_add(bucket as usize)
            .cast::<i8>();
        for line in 0..size_of::<B>() / 64 {
            prefetch_line(at.wrapping_add(line * 64));
        }
    }

    /// Brings in the pages of the first `bytes`, so that growing up to there never waits for the kernel.
    pub(crate) fn populate(&mut self, bytes: usize) -> Result<(), ReserveError> {
        if bytes > self.ensured {
            self.mapping.extend(self.ensured, bytes)?;
        }
        self.mapping.populate(0, bytes)
    }
}

#[inline(always)]
fn prefetch_line(address: *const i8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address);
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = address;
}

#[cfg(all(target_os = "linux", not(miri)))]
mod backend {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::ptr::NonNull;

    use super::{HUGE, PAGE, Pages, ReserveError};

    /// Anonymous private memory of this process, or a file.
    pub(crate) struct Mapping {
        start: NonNull<libc::c_void>,
        length: usize,
        base: NonNull<u8>,
        usable: usize,
        file: Option<File>,
    }

    // SAFETY: an address range, which can be unmapped, and pages brought in, by any thread.
    unsafe impl Send for Mapping {}
    // SAFETY: what a shared one does are system calls that change no contents.
    unsafe impl Sync for Mapping {}

    fn last_error() -> i32 {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    }

    impl Mapping {
        pub(super) fn new(bytes: usize, pages: Pages) -> Result<Self, ReserveError> {
            // Room to start at a huge page's boundary; address space costs nothing.
            let aligned = bytes >= HUGE && pages != Pages::Reserved;
            let length = if aligned { bytes + HUGE } else { bytes };
            let kind = if pages == Pages::Reserved {
                libc::MAP_HUGETLB
            } else {
                libc::MAP_NORESERVE
            };
            // SAFETY: a new anonymous mapping touches no memory that exists.
            let start = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    length,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | kind,
                    -1,
                    0,
                )
            };
            let start = match NonNull::new(start) {
                Some(start) if start.as_ptr() != libc::MAP_FAILED => start,
                _ => {
                    return Err(ReserveError {
                        bytes,
                        os_error: last_error(),
                    });
                }
            };
            let skip = if aligned {
                start.as_ptr().align_offset(HUGE)
            } else {
                0
            };
            // SAFETY: `skip` < HUGE, and `length` is `bytes` + HUGE when it is not zero.
            let base = unsafe { start.cast::<u8>().add(skip) };
            if aligned && pages == Pages::Transparent {
                // SAFETY: the range was mapped above. A kernel that refuses gives small pages: no error.
                unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
            }
            Ok(Self {
                start,
                length,
                base,
                usable: bytes,
                file: None,
            })
        }

        /// A description of [`HUGE`] bytes and `bytes` behind it, both of a file that may be longer.
        pub(super) fn of_file(file: File, bytes: usize) -> Result<Self, ReserveError> {
            let failed = || ReserveError {
                bytes,
                os_error: last_error(),
            };
            let whole = bytes + HUGE;
            if file.metadata().map_err(|_| failed())?.len() < whole as u64 {
                file.set_len(whole as u64).map_err(|_| failed())?;
            }
            // Its own address space first, so that the file can start at a huge page's boundary.
            let mut mapping = Self::new(whole, Pages::Small)?;
            // SAFETY: replaces a part of the mapping just made, which nobody has seen; the file is long enough.
            let base = unsafe {
                libc::mmap(
                    mapping.base.as_ptr().cast(),
                    whole,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_FIXED,
                    file.as_raw_fd(),
                    0,
                )
            };
            if base == libc::MAP_FAILED {
                return Err(failed());
            }
            // SAFETY: the range was mapped above. A kernel that refuses gives small pages: no error.
            unsafe { libc::madvise(base, whole, libc::MADV_HUGEPAGE) };
            // SAFETY: the mapping holds `HUGE` bytes before the buckets.
            mapping.base = unsafe { mapping.base.add(HUGE) };
            mapping.usable = bytes;
            mapping.file = Some(file);
            mapping.allocate(0, HUGE)?;
            Ok(mapping)
        }

        /// The bytes before the buckets, if this is a file.
        #[inline(always)]
        pub(super) fn description(&self) -> Option<NonNull<u8>> {
            // SAFETY: `of_file` moved the base up by as much.
            self.file.as_ref().map(|_| unsafe { self.base.sub(HUGE) })
        }

        /// Takes room in the file system for the buckets' bytes `from` to `to`.
        pub(super) fn extend(&self, from: usize, to: usize) -> Result<(), ReserveError> {
            self.allocate(HUGE + from, to.min(self.usable) - from)
        }

        fn allocate(&self, from: usize, bytes: usize) -> Result<(), ReserveError> {
            let Some(file) = &self.file else {
                return Ok(());
            };
            // SAFETY: a system call on a file this value owns.
            let failed = unsafe {
                libc::fallocate(
                    file.as_raw_fd(),
                    0,
                    from as libc::off_t,
                    bytes as libc::off_t,
                )
            };
            match failed {
                0 => Ok(()),
                _ => Err(ReserveError {
                    bytes,
                    os_error: last_error(),
                }),
            }
        }

        pub(super) fn base(&self) -> NonNull<u8> {
            self.base
        }

        /// Brings in the pages of the bytes `from`, a multiple of [`PAGE`], to `to`.
        pub(crate) fn populate(&self, from: usize, to: usize) -> Result<(), ReserveError> {
            let to = to.next_multiple_of(PAGE).min(self.usable);
            let bytes = to.saturating_sub(from);
            if bytes == 0 {
                return Ok(());
            }
            // SAFETY: the range lies in the mapping, and populating keeps its contents, whoever writes to them meanwhile.
            let failed = unsafe {
                let start = self.base.as_ptr().add(from);
                libc::madvise(start.cast(), bytes, libc::MADV_POPULATE_WRITE)
            };
            match failed {
                0 => Ok(()),
                _ => Err(ReserveError {
                    bytes,
                    os_error: last_error(),
                }),
            }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: exactly what `new` mapped; `Memory` hands out references bound to its own life only.
            unsafe { libc::munmap(self.start.as_ptr(), self.length) };
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod backend {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::fs::File;
    use std::ptr::NonNull;

    use super::{PAGE, Pages, ReserveError};

    /// Memory of the process's allocator.
    pub(crate) struct Mapping {
        base: NonNull<u8>,
        layout: Layout,
    }

    // SAFETY: an allocation that any thread may free.
    unsafe impl Send for Mapping {}
    // SAFETY: a shared one does nothing.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        pub(super) fn new(bytes: usize, _: Pages) -> Result<Self, ReserveError> {
            let no_memory = ReserveError {
                bytes,
                os_error: 12,
            };
            let layout = Layout::from_size_align(bytes.max(PAGE), PAGE).map_err(|_| no_memory)?;
            // SAFETY: the size is not zero.
            let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(no_memory)?;
            Ok(Self { base, layout })
        }

        pub(super) fn base(&self) -> NonNull<u8> {
            self.base
        }

        pub(super) fn of_file(_: File, bytes: usize) -> Result<Self, ReserveError> {
            Err(ReserveError {
                bytes,
                os_error: 38,
            })
        }

        pub(super) fn description(&self) -> Option<NonNull<u8>> {
            None
        }

        pub(super) fn extend(&self, _: usize, _: usize) -> Result<(), ReserveError> {
            Ok(())
        }

        pub(crate) fn populate(&self, _: usize, _: usize) -> Result<(), ReserveError> {
            Ok(())
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: exactly what `new` allocated.
            unsafe { dealloc(self.base.as_ptr(), self.layout) };
        }
    }
}
