//! Counters in memory that a process shares with those that it forks: each process sees the changes that another one
//! has counted at its next look, without a message or a question.
//!
//! A counter is shared by all names that are hashed to it. A process that caches something notes the counter's value
//! before it requests it, and drops it when the counter has another value; a change of another name costs one more
//! request.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// The counters.
pub struct Changes {
    base: NonNull<AtomicU64>,
    slots: usize,
}

// SAFETY: the memory stays until `drop`, and is only ever used through atomics.
#[allow(unsafe_code, reason = "memory that processes share is known by its address")]
unsafe impl Send for Changes {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "memory that processes share is known by its address")]
unsafe impl Sync for Changes {}

impl fmt::Debug for Changes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Changes({} slots)", self.slots)
    }
}

impl Changes {
    /// So many counters, at least one, all zero; processes forked from now on share them.
    ///
    /// # Errors
    /// The system has no memory left.
    pub fn new(slots: usize) -> io::Result<Self> {
        let slots = slots.max(1);
        let bytes = slots.checked_mul(size_of::<AtomicU64>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new map at an address that the kernel chooses overlaps nothing. Its pages are zero.
        #[allow(unsafe_code, reason = "memory that processes share is mapped")]
        let base = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::SHARED)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, slots })
    }

    fn counter(&self, slot: usize) -> &AtomicU64 {
        // SAFETY: the index is below the number of counters that were mapped, which are aligned as pages are.
        #[allow(unsafe_code, reason = "memory that processes share is known by its address")]
        unsafe {
            self.base.add(slot % self.slots).as_ref()
        }
    }

    /// The value of a counter; slots beyond the last one wrap around.
    #[must_use]
    pub fn seen(&self, slot: usize) -> u64 {
        self.counter(slot).load(Ordering::Acquire)
    }

    /// Count a change.
    pub fn tell(&self, slot: usize) {
        self.counter(slot).fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // SAFETY: this is the map that `new` made, and nobody borrows of it any more. Other processes keep theirs.
        #[allow(unsafe_code, reason = "memory that processes share is mapped")]
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.slots * size_of::<AtomicU64>()) };
        debug_assert!(unmapped.is_ok(), "a map that was made can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_seen_in_its_slot_alone() {
        let changes = Changes::new(3).expect("memory");
        assert_eq!((0..3).map(|slot| changes.seen(slot)).collect::<Vec<_>>(), [0, 0, 0]);
        changes.tell(1);
        changes.tell(4);
        assert_eq!((0..3).map(|slot| changes.seen(slot)).collect::<Vec<_>>(), [0, 2, 0]);
    }

    #[test]
    fn none_is_lost_among_threads() {
        let changes = Changes::new(1).expect("memory");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| changes.tell(0)));
            }
        });
        assert_eq!(changes.seen(0), 4000);
    }
}
