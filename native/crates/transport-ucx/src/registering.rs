//! Registers memory for others to read, but not to write.
//!
//! UCX 1.22 registers all memory with all rights: it ignores `ucp_mem_map_params_t.prot`, and the device's rights are
//! a constant (`UCT_IB_MEM_ACCESS_FLAGS` in `ib_md.h`). With them, whoever has the key of a pool could write to that
//! pool. So this module replaces the one call of libibverbs by which UCX registers memory, which is possible because
//! UCX is linked statically: it removes the rights that nobody needs, and passes the call on. The device then refuses
//! writes from outside, and closes the connection that they came by.
//!
//! Fault model: a peer with the cluster key that is malicious. Attacks that the device does not check are not
//! prevented: see `docs/design/2026-11-21-rdma.md`.

#![allow(unsafe_code, reason = "a function of a C library, answered and passed on")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem;
use std::ptr;
use std::sync::OnceLock;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Of `enum ibv_access_flags`.
const REMOTE_WRITE: c_uint = 1 << 1;
const REMOTE_ATOMIC: c_uint = 1 << 3;
/// Of `dlfcn.h`: bind all now; only what is loaded already.
const NOW: c_int = 2;
const LOADED: c_int = 4;

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Arguments: protection domain, address, bytes, address by which others know it, rights.
type Register = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, u64, c_uint) -> *mut c_void;

/// Whether others may write after all: with it the test shows that this module is what prevents writes.
#[cfg(test)]
pub(crate) static WRITABLE: AtomicBool = AtomicBool::new(false);

/// The function of the library itself.
fn own() -> Option<Register> {
    static OWN: OnceLock<Option<Register>> = OnceLock::new();
    *OWN.get_or_init(|| {
        // SAFETY: strings that end with 0. The library is one that this program is linked with, so it is there, and stays.
        let found = unsafe { dlsym(dlopen(c"libibverbs.so.1".as_ptr(), NOW | LOADED), c"ibv_reg_mr_iova2".as_ptr()) };
        // SAFETY: a function of this type by libibverbs' header, or null, which is none.
        unsafe { mem::transmute::<*mut c_void, Option<Register>>(found) }
    })
}

/// Replaces UCX's `ibv_reg_mr_iova2`.
///
/// # Safety
/// As libibverbs' own.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    domain: *mut c_void,
    address: *mut c_void,
    bytes: usize,
    known_as: u64,
    rights: c_uint,
) -> *mut c_void {
    let taken = REMOTE_WRITE | REMOTE_ATOMIC;
    #[cfg(test)]
    let taken = if WRITABLE.load(Relaxed) { 0 } else { taken };
    match own() {
        // SAFETY: by the caller's promise.
        Some(register) => unsafe { register(domain, address, bytes, known_as, rights & !taken) },
        None => ptr::null_mut(),
    }
}

/// Called where UCX is opened, so that this function is linked before the linker looks for it in libibverbs.
pub(crate) fn is_linked() -> bool {
    let ours: Register = ibv_reg_mr_iova2;
    std::hint::black_box(ours) as usize != 0 && own().is_some()
}
