//! Whether the page cache has bytes of a file.
//!
//! A read that finds something missing begins to read it from the device, even if it was told not to wait: then it may
//! wait for a place in the device's queue, or for the file system's own blocks. Whoever must not wait asks before.
//!
//! Fault model: kernels before 6.5 have no such question, and rules for containers may refuse it. Then nobody asks any
//! more, and nothing counts as cached.

#![allow(unsafe_code, reason = "a system call that rustix does not have")]

use std::ffi::{c_int, c_long, c_uint};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// The call's number, which is the same on all kinds of machines that Linux runs on today.
const CACHESTAT: c_long = 451;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// `struct cachestat_range`.
#[repr(C)]
struct Range {
    offset: u64,
    bytes: u64,
}

/// `struct cachestat`, in pages.
#[repr(C)]
#[derive(Default)]
struct Counts {
    cached: u64,
    dirty: u64,
    being_written: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether the system has refused to answer.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether the page cache has all of these bytes; some may still be on their way into it.
pub(super) fn has(file: &File, offset: u64, bytes: u64) -> bool {
    if bytes == 0 || REFUSED.load(Ordering::Relaxed) {
        return false;
    }
    let (range, mut counts) = (Range { offset, bytes }, Counts::default());
    let descriptor: c_int = file.as_raw_fd();
    let flags: c_uint = 0;
    // SAFETY: both pointers are to memory of the kernel's form, which lives until the call has returned.
    let outcome = unsafe { syscall(CACHESTAT, descriptor, &raw const range, &raw mut counts, flags) };
    if outcome != 0 {
        REFUSED.store(true, Ordering::Relaxed);
        return false;
    }
    let page = rustix::param::page_size() as u64;
    counts.cached > (offset + bytes - 1) / page - offset / page
}
