//! Shared memory: the one module that handles pointers.
//!
//! A [`Region`] is a mapped memfd. Our own is written by us and lent to peers on the same machine read-only; a
//! [foreign](Region::foreign) one is a peer's. Fault model of a foreign one: the peer may pass any descriptor, and
//! change bytes at any time. So seals, file system and size are checked before it is mapped, all offsets are checked
//! against the size, and no decision depends on bytes that are read from it more than once.
//!
//! A guest's memory is not mapped at all: [`Shown`] copies from it. What a guest was given to read stays in use until
//! the guest has let go of it, which it need not tell: [`Region::is_held_by_others`] asks the system.

#![allow(unsafe_code, reason = "maps are pointers; everything that is done with them is here")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// `TMPFS_MAGIC`, which `fstatfs` returns for a memfd. A memfd on huge pages could run short of them and then raise
/// SIGBUS.
const TMPFS: i64 = 0x0102_1994;
/// More than any pool has: a peer can't make us map all of our address space.
const MAX_FOREIGN_BYTES: u64 = 1 << 40;

// Leases are not in rustix.
const F_SETLEASE: c_int = 1024;
const F_WRLCK: c_int = 1;
unsafe extern "C" {
    fn fcntl(descriptor: c_int, command: c_int, ...) -> c_int;
}

/// Mapped shared memory of a fixed size.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: a region is a fixed piece of memory without thread affinity. Who may write which part of it is
// decided by the arena of its pool: exactly the one `Block` that covers it.
unsafe impl Send for Region {}
// SAFETY: as above; through a shared reference only `slice` reads.
unsafe impl Sync for Region {}

impl Region {
    /// New memory, all zero; the system provides each page when it is first used.
    ///
    /// # Errors
    /// The system has no descriptor or address space left.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let file = rustix::fs::memfd_create("swiftlet-pool", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        let region = Self::map(file, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        // After our own map: from now on nobody, ourselves included, gets another writable one.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&region.file, seals)?;
        Ok(region)
    }

    /// A peer's memory, for reading.
    ///
    /// # Errors
    /// It is not a sealed memfd of the size that was announced.
    pub fn foreign(file: OwnedFd, bytes: u64) -> io::Result<Self> {
        check_foreign(&file, bytes)?;
        Self::map(file, bytes as usize, ProtFlags::READ)
    }

    fn map(file: OwnedFd, bytes: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new map at an address that the kernel chooses overlaps nothing. It stays until `drop`; the
        // file's size is sealed (or about to be, by its only owner), so no page of it can vanish.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file.as_fd(), 0)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes, file })
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its first address, for transports that pass it to devices. Who may write what is decided by its pool.
    #[must_use]
    pub fn address(&self) -> NonNull<u8> {
        self.base
    }

    /// A descriptor for a peer, which permits reading but not writing.
    ///
    /// # Errors
    /// The system has no descriptor left, or no /proc.
    pub fn for_reading(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.file));
        Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Whether another process still has it, or may have: then its pages are in use, whatever was agreed.
    pub(crate) fn is_held_by_others(&self) -> bool {
        // The system grants a write lease only on a file that nobody else has open or mapped for reading. Closing the
        // descriptor ends the lease.
        let Ok(own) = self.for_reading() else { return true };
        // SAFETY: the descriptor is open, and this command of fcntl takes an integer.
        let granted = unsafe { fcntl(std::os::fd::AsRawFd::as_raw_fd(&own), F_SETLEASE, F_WRLCK) };
        granted != 0
    }

    /// Bytes of it.
    ///
    /// # Panics
    /// They are not in it: callers have checked.
    pub(crate) fn slice(&self, offset: usize, length: usize) -> &[u8] {
        assert!(offset <= self.bytes && length <= self.bytes - offset, "outside of the region");
        // SAFETY: within the map, which lives as long as `self`. In our own region nobody writes to what a
        // frozen block covers. In a foreign one the peer may, at any time; we only move, hash and write such
        // bytes, and any value of them is valid: what the peer can spoil is what it sent itself.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), length) }
    }

    /// Bytes of it, to be written.
    ///
    /// # Safety
    /// The region is ours, and nobody else uses these bytes while the slice lives.
    ///
    /// # Panics
    /// They are not in it.
    #[allow(clippy::mut_from_ref, reason = "the caller, a block, is the only one that covers these bytes")]
    unsafe fn slice_mut(&self, offset: usize, length: usize) -> &mut [u8] {
        assert!(offset <= self.bytes && length <= self.bytes - offset, "outside of the region");
        // SAFETY: within the map; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(offset), length) }
    }
}

/// Refuse what is not a sealed memfd of the size that was announced.
fn check_foreign(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| wrong("a region that is no memfd"))?;
    if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
        return Err(wrong("a region that may change its size"));
    }
    if rustix::fs::fstatfs(file)?.f_type as i64 != TMPFS {
        return Err(wrong("a region on another file system than tmpfs"));
    }
    if rustix::fs::fstat(file)?.st_size as u64 != bytes || bytes == 0 || bytes > MAX_FOREIGN_BYTES {
        return Err(wrong("a region of another size than announced"));
    }
    Ok(())
}

/// Memory that a guest shows: only copied from, by the system, so that no page of it is ever ours. Reading where the
/// guest has written nothing yet gives zeros, and takes no memory.
#[derive(Debug)]
pub(crate) struct Shown(std::fs::File);

impl Shown {
    /// The same checks as of [`Region::foreign`].
    pub(crate) fn new(file: OwnedFd, bytes: u64) -> io::Result<Self> {
        check_foreign(&file, bytes)?;
        Ok(Self(file.into()))
    }

    /// Copy from this address on.
    pub(crate) fn copy(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, into, address)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size; all slices of it borrowed `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A piece of a pool's region that belongs to one owner. Only [`crate::pool`] creates it, from its arena.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

impl Block {
    /// All of its bytes.
    pub(crate) fn slice<'a>(&'a self, region: &'a Region) -> &'a [u8] {
        region.slice(self.offset, self.bytes)
    }

    /// All of its bytes, to be written.
    pub(crate) fn slice_mut<'a>(&'a mut self, region: &'a Region) -> &'a mut [u8] {
        // SAFETY: the arena gives out no byte twice, and `&mut self` is the only one that covers these.
        unsafe { region.slice_mut(self.offset, self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_sees_what_is_written_and_can_write_nothing() {
        let ours = Region::new(1 << 20).expect("memory");
        let lent = ours.for_reading().expect("a descriptor");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&lent));
        let again = std::fs::OpenOptions::new().write(true).open(path);
        if let Ok(writable) = again {
            use std::os::unix::fs::FileExt as _;
            assert!(writable.write_at(b"x", 0).is_err(), "written in spite of the seal");
        }
        let theirs = Region::foreign(lent, 1 << 20).expect("mapped");
        let mut block = Block { offset: 4096, bytes: 4096 };
        block.slice_mut(&ours)[0] = 7;
        assert_eq!(theirs.slice(4096, 1), [7]);
    }

    #[test]
    fn who_still_has_a_region_is_noticed() {
        let ours = Region::new(1 << 20).expect("memory");
        assert!(!ours.is_held_by_others());
        let lent = ours.for_reading().expect("a descriptor");
        assert!(ours.is_held_by_others(), "a descriptor is enough");
        let theirs = Region::foreign(lent, 1 << 20).expect("mapped");
        assert!(ours.is_held_by_others());
        drop(theirs);
        assert!(!ours.is_held_by_others());
    }

    #[test]
    fn what_is_shown_is_copied_and_only_from_within() {
        let theirs = Region::new(8192).expect("memory");
        let mut block = Block { offset: 4096, bytes: 4096 };
        block.slice_mut(&theirs)[0] = 7;
        let shown = Shown::new(theirs.for_reading().expect("a descriptor"), 8192).expect("shown");
        let mut copy = [1; 2];
        shown.copy(4095, &mut copy).expect("copied");
        assert_eq!(copy, [0, 7]);
        assert!(shown.copy(8191, &mut copy).is_err());
        assert!(Shown::new(theirs.for_reading().expect("a descriptor"), 4096).is_err());
    }

    #[test]
    fn what_is_not_a_sealed_memfd_of_that_size_is_refused() {
        let file = std::fs::File::open("/proc/self/exe").expect("our program");
        assert!(Region::foreign(file.into(), 4096).is_err());
        let unsealed = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memfd");
        rustix::fs::ftruncate(&unsealed, 4096).expect("size");
        assert!(Region::foreign(unsealed, 4096).is_err());
        let ours = Region::new(8192).expect("memory");
        assert!(Region::foreign(ours.for_reading().expect("a descriptor"), 4096).is_err());
    }
}
