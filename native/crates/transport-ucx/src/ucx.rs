//! The calls of UCX that are used, and the one module that handles its pointers.
//!
//! Everything here stays on the thread that created it (nothing is `Send`), so UCX's own locks are off. The requested
//! feature is active messages, of which none is ever sent: it gives connections their lanes for RDMA READ. The feature
//! remote memory access is left out on purpose. It would install handlers that write, in software, wherever in this
//! process any peer's message says, and UCX has no authentication.

#![allow(unsafe_code, reason = "UCX is a C library; everything that is done with it is here")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use ucx_rs::{decode_status_ptr, status_string, sys};

use crate::registering;

thread_local! {
    /// Numbers and results of finished operations, until [`Library::completed`] takes them.
    static COMPLETED: RefCell<Vec<(u64, io::Result<()>)>> = const { RefCell::new(Vec::new()) };
}

fn check(status: sys::ucs_status_t) -> io::Result<()> {
    match status {
        sys::ucs_status_t_UCS_OK => Ok(()),
        status => Err(io::Error::other(format!("UCX: {}", status_string(status)))),
    }
}

/// Called by UCX in [`Library::progress`] and in calls that end operations, on this thread.
unsafe extern "C" fn over(request: *mut c_void, status: sys::ucs_status_t, number: *mut c_void) {
    COMPLETED.with_borrow_mut(|completed| completed.push((number.addr() as u64, check(status))));
    // SAFETY: UCX calls this once per request, which nobody has released.
    unsafe { sys::ucp_request_free(request) };
}

/// A connection has failed: its operations report that themselves, and later ones fail at once.
unsafe extern "C" fn failed(_: *mut c_void, _: sys::ucp_ep_h, _: sys::ucs_status_t) {}

/// The state of an operation after its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It is over, and will not be reported again.
    Over,
    /// Its number will be among those of [`Library::completed`].
    Pending,
}

fn begun(pointer: sys::ucs_status_ptr_t) -> io::Result<Begun> {
    match decode_status_ptr(pointer) {
        Ok(None) => Ok(Begun::Over),
        Ok(Some(_)) => Ok(Begun::Pending),
        Err(status) => check(status).map(|()| Begun::Over),
    }
}

/// All zero, as UCX's parameter structures are before their fields are set.
fn zeroed<T>() -> T {
    // SAFETY: only used for UCX's structures of numbers and pointers that may be null.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// Registered memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory(sys::ucp_mem_h);

/// A peer's memory, as a key that fits one connection.
#[derive(Debug)]
pub(crate) struct Remote(sys::ucp_rkey_h);

impl Drop for Remote {
    fn drop(&mut self) {
        // SAFETY: made by `Endpoint::unpack`, and the engine drops it after all operations that use it.
        unsafe { sys::ucp_rkey_destroy(self.0) };
    }
}

/// A connection to a peer's worker.
#[derive(Debug)]
pub(crate) struct Endpoint(sys::ucp_ep_h);

/// UCX with one worker.
#[derive(Debug)]
pub(crate) struct Library {
    context: sys::ucp_context_h,
    worker: sys::ucp_worker_h,
    memories: Vec<Memory>,
}

impl Library {
    /// Open UCX with `settings`, named as in its environment without the prefix `UCX_`. They take precedence over the
    /// environment. `software`: with emulated remote memory access, see above.
    pub(crate) fn open(settings: &[(&str, &str)], software: bool) -> io::Result<Self> {
        if !registering::is_linked() {
            return Err(io::Error::other("libibverbs has no ibv_reg_mr_iova2: it is older than rdma-core 28"));
        }
        let mut config = ptr::null_mut();
        // SAFETY: no prefix and no file are allowed; `config` is where the result goes.
        check(unsafe { sys::ucp_config_read(ptr::null(), ptr::null(), &mut config) })?;
        let mut context = ptr::null_mut();
        let result = settings
            .iter()
            .try_for_each(|(name, value)| {
                let (name, value) = (CString::new(*name)?, CString::new(*value)?);
                // SAFETY: both are strings that live longer than the call.
                check(unsafe { sys::ucp_config_modify(config, name.as_ptr(), value.as_ptr()) })
            })
            .and_then(|()| {
                let mut params: sys::ucp_params_t = zeroed();
                params.field_mask = u64::from(sys::ucp_params_field_UCP_PARAM_FIELD_FEATURES);
                params.features = u64::from(sys::ucp_feature_UCP_FEATURE_AM | sys::ucp_feature_UCP_FEATURE_WAKEUP);
                if software {
                    params.features |= u64::from(sys::ucp_feature_UCP_FEATURE_RMA);
                }
                let (major, minor) = (sys::UCP_API_MAJOR, sys::UCP_API_MINOR);
                // SAFETY: all pointers are to things that live longer than the call.
                check(unsafe { sys::ucp_init_version(major, minor, &params, config, &mut context) })
            });
        // SAFETY: read above, and used no more.
        unsafe { sys::ucp_config_release(config) };
        result?;
        let mut params: sys::ucp_worker_params_t = zeroed();
        params.field_mask = u64::from(sys::ucp_worker_params_field_UCP_WORKER_PARAM_FIELD_THREAD_MODE);
        params.thread_mode = sys::ucs_thread_mode_t_UCS_THREAD_MODE_SINGLE;
        let mut worker = ptr::null_mut();
        // SAFETY: the context is open; `worker` is where the result goes.
        let result = check(unsafe { sys::ucp_worker_create(context, &params, &mut worker) });
        if result.is_err() {
            // SAFETY: opened above, without anything in it.
            unsafe { sys::ucp_cleanup(context) };
        }
        result.map(|()| Self { context, worker, memories: Vec::new() })
    }

    /// Readable when there is something to [`progress`](Self::progress), after [`arm`](Self::arm).
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        let mut descriptor = -1;
        // SAFETY: the worker is open.
        check(unsafe { sys::ucp_worker_get_efd(self.worker, &mut descriptor) })?;
        // SAFETY: the worker keeps it open as long as it lives, and the borrow is of it.
        Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// Do what is due. Returns whether there was anything.
    pub(crate) fn progress(&self) -> bool {
        // SAFETY: the worker is open, and this is its thread.
        unsafe { sys::ucp_worker_progress(self.worker) != 0 }
    }

    /// To be called before waiting. `false`: there is something to do first.
    pub(crate) fn arm(&self) -> io::Result<bool> {
        // SAFETY: as above.
        match unsafe { sys::ucp_worker_arm(self.worker) } {
            sys::ucs_status_t_UCS_ERR_BUSY => Ok(false),
            status => check(status).map(|()| true),
        }
    }

    /// Operations that have finished since the last call.
    pub(crate) fn completed(&self) -> Vec<(u64, io::Result<()>)> {
        COMPLETED.take()
    }

    /// Our worker's address, for peers.
    pub(crate) fn address(&self) -> io::Result<Vec<u8>> {
        let (mut address, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: the worker is open; UCX allocates the address.
        check(unsafe { sys::ucp_worker_get_address(self.worker, &mut address, &mut bytes) })?;
        // SAFETY: UCX says that so many bytes are there; they are copied before they are released.
        let copy = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), bytes) }.to_vec();
        // SAFETY: got above, used no more.
        unsafe { sys::ucp_worker_release_address(self.worker, address) };
        Ok(copy)
    }

    /// Register memory for peers to read and for ourselves to fetch into; see [`registering`]. It has to live longer than the library.
    pub(crate) fn register(&mut self, address: NonNull<u8>, bytes: usize) -> io::Result<Memory> {
        let mut params: sys::ucp_mem_map_params_t = zeroed();
        params.field_mask = u64::from(
            sys::ucp_mem_map_params_field_UCP_MEM_MAP_PARAM_FIELD_ADDRESS
                | sys::ucp_mem_map_params_field_UCP_MEM_MAP_PARAM_FIELD_LENGTH
                | sys::ucp_mem_map_params_field_UCP_MEM_MAP_PARAM_FIELD_PROT,
        );
        params.address = address.as_ptr().cast();
        params.length = bytes;
        params.prot =
            sys::UCP_MEM_MAP_PROT_LOCAL_READ | sys::UCP_MEM_MAP_PROT_LOCAL_WRITE | sys::UCP_MEM_MAP_PROT_REMOTE_READ;
        let mut memory = ptr::null_mut();
        // SAFETY: a mapped region that the caller keeps; `memory` is where the result goes.
        check(unsafe { sys::ucp_mem_map(self.context, &params, &mut memory) })?;
        self.memories.push(Memory(memory));
        Ok(Memory(memory))
    }

    /// The key of registered memory, for peers.
    pub(crate) fn pack(&self, memory: Memory) -> io::Result<Vec<u8>> {
        let (mut key, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: registered with this context; UCX allocates the key.
        check(unsafe { sys::ucp_rkey_pack(self.context, memory.0, &mut key, &mut bytes) })?;
        // SAFETY: UCX says that so many bytes are there; they are copied before they are released.
        let copy = unsafe { std::slice::from_raw_parts(key.cast::<u8>(), bytes) }.to_vec();
        // SAFETY: got above, used no more.
        unsafe { sys::ucp_rkey_buffer_release(key) };
        Ok(copy)
    }

    /// Begin to connect to a peer's worker, by an address that a peer with the cluster key has sent.
    pub(crate) fn connect(&self, address: &[u8]) -> io::Result<Endpoint> {
        let mut params: sys::ucp_ep_params_t = zeroed();
        params.field_mask = u64::from(
            sys::ucp_ep_params_field_UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
                | sys::ucp_ep_params_field_UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE
                | sys::ucp_ep_params_field_UCP_EP_PARAM_FIELD_ERR_HANDLER,
        );
        params.address = address.as_ptr().cast();
        params.err_mode = sys::ucp_err_handling_mode_t_UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler = sys::ucp_err_handler_t { cb: Some(failed), arg: ptr::null_mut() };
        let mut endpoint = ptr::null_mut();
        // SAFETY: the worker is open; the address lives longer than the call, and is one that UCX made on a peer
        // that is trusted with the cluster key: UCX does not check it.
        check(unsafe { sys::ucp_ep_create(self.worker, &params, &mut endpoint) })?;
        Ok(Endpoint(endpoint))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the engine has closed all connections, and dropped their keys. Memory is used by the worker
        // only, and by nobody after it; the context goes last.
        unsafe {
            sys::ucp_worker_destroy(self.worker);
            for memory in self.memories.drain(..) {
                sys::ucp_mem_unmap(self.context, memory.0);
            }
            sys::ucp_cleanup(self.context);
        }
    }
}

impl Endpoint {
    /// A peer's key, for this connection.
    pub(crate) fn unpack(&self, key: &[u8]) -> io::Result<Remote> {
        let mut remote = ptr::null_mut();
        // SAFETY: the connection is open; the key lives longer than the call, and is trusted as the address was.
        check(unsafe { sys::ucp_ep_rkey_unpack(self.0, key.as_ptr().cast(), &mut remote) })?;
        Ok(Remote(remote))
    }

    /// Fetch from a peer's memory into ours.
    ///
    /// # Safety
    /// `into` is all in `memory`; until the operation is over nobody else uses it, and `remote` is not dropped.
    pub(crate) unsafe fn get(
        &self,
        number: u64,
        (into, memory): (&mut [u8], Memory),
        (address, remote): (u64, &Remote),
    ) -> io::Result<Begun> {
        let mut params: sys::ucp_request_param_t = zeroed();
        params.op_attr_mask = sys::ucp_op_attr_t_UCP_OP_ATTR_FIELD_CALLBACK
            | sys::ucp_op_attr_t_UCP_OP_ATTR_FIELD_USER_DATA
            | sys::ucp_op_attr_t_UCP_OP_ATTR_FIELD_MEMH;
        params.cb.send = Some(over);
        params.user_data = ptr::without_provenance_mut(number as usize);
        params.memh = memory.0;
        // SAFETY: by the caller's promise.
        begun(unsafe { sys::ucp_get_nbx(self.0, into.as_mut_ptr().cast(), into.len(), address, remote.0, &params) })
    }

    /// Close it at once, whatever the peer does: its operations end, most of them with an error.
    pub(crate) fn close(self, number: u64) -> io::Result<Begun> {
        let mut params: sys::ucp_request_param_t = zeroed();
        params.op_attr_mask = sys::ucp_op_attr_t_UCP_OP_ATTR_FIELD_CALLBACK
            | sys::ucp_op_attr_t_UCP_OP_ATTR_FIELD_USER_DATA
            | sys::ucp_op_attr_t_UCP_OP_ATTR_FIELD_FLAGS;
        params.flags = sys::ucp_ep_close_flags_t_UCP_EP_CLOSE_FLAG_FORCE;
        params.cb.send = Some(over);
        params.user_data = ptr::without_provenance_mut(number as usize);
        // SAFETY: the connection is open, and used no more: `self` is consumed.
        begun(unsafe { sys::ucp_ep_close_nbx(self.0, &params) })
    }
}

/// UCX's version.
#[must_use]
pub fn version() -> &'static str {
    // SAFETY: a constant string.
    let version = unsafe { CStr::from_ptr(sys::ucp_get_version_string()) };
    version.to_str().unwrap_or("?")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::{Duration, Instant};

    use swiftlet_transport::{Buffer, Pool};

    use super::*;

    const BYTES: usize = 1 << 20;

    /// One end: its memory is dropped after its library.
    struct End {
        library: Library,
        memory: Memory,
        buffer: Buffer,
        pool: Pool,
    }

    impl End {
        fn new(transports: &str, content: u8) -> Self {
            let of_ucx =
                [("TLS", transports), ("PROTO_EMULATION_ENABLE", "n"), ("RNDV_THRESH", "inf"), ("RCACHE_ENABLE", "n")];
            let mut library = Library::open(&of_ucx, false).unwrap();
            let pool = Pool::new(16 << 20).unwrap();
            let memory = library.register(pool.region().address(), pool.region().bytes()).unwrap();
            let mut buffer = pool.chunk(BYTES).unwrap();
            buffer.as_mut_slice().fill(content);
            Self { library, memory, buffer, pool }
        }

        /// Wait for an operation that was begun; returns its result.
        fn wait(&self, other: &Self, number: u64, begun: io::Result<Begun>) -> io::Result<()> {
            if begun? == Begun::Over {
                return Ok(());
            }
            let end = Instant::now() + Duration::from_secs(60);
            while Instant::now() < end {
                let _ = self.library.progress() | other.library.progress();
                if let Some((_, result)) = self.library.completed().into_iter().find(|(over, _)| *over == number) {
                    return result;
                }
            }
            Err(io::ErrorKind::TimedOut.into())
        }
    }

    /// Write to a peer's memory, and return the result.
    fn put(from: &mut End, to: &End, endpoint: &Endpoint, remote: &Remote, address: u64) -> io::Result<()> {
        let mut params: sys::ucp_request_param_t = zeroed();
        params.op_attr_mask =
            sys::ucp_op_attr_t_UCP_OP_ATTR_FIELD_CALLBACK | sys::ucp_op_attr_t_UCP_OP_ATTR_FIELD_USER_DATA;
        params.cb.send = Some(over);
        params.user_data = ptr::without_provenance_mut(2);
        let data = from.buffer.as_mut_slice().as_ptr().cast();
        // SAFETY: all of it outlives the operation, which is waited for.
        let written = begun(unsafe { sys::ucp_put_nbx(endpoint.0, data, BYTES, address, remote.0, &params) });
        from.wait(to, 2, written)?;
        params.user_data = ptr::without_provenance_mut(3);
        // SAFETY: the connection is open.
        let flushed = begun(unsafe { sys::ucp_ep_flush_nbx(endpoint.0, &params) });
        from.wait(to, 3, flushed)
    }

    /// Read from an end, and write to it; returns whether the write changed anything there.
    fn is_written(transports: &str) -> bool {
        let (mut to, mut from) = (End::new(transports, 1), End::new(transports, 2));
        let endpoint = from.library.connect(&to.library.address().unwrap()).unwrap();
        let remote = endpoint.unpack(&to.library.pack(to.memory).unwrap()).unwrap();
        let address = to.buffer.as_mut_slice().as_ptr().addr() as u64;
        let mut into = from.pool.chunk(BYTES).unwrap();
        // SAFETY: the buffer is of the memory, and the operation is waited for.
        let read = unsafe { endpoint.get(1, (into.as_mut_slice(), from.memory), (address, &remote)) };
        from.wait(&to, 1, read).unwrap();
        assert!(into.as_mut_slice().iter().all(|byte| *byte == 1));
        let result = put(&mut from, &to, &endpoint, &remote, address);
        let changed = to.buffer.as_mut_slice().iter().any(|byte| *byte != 1);
        assert_eq!(result.is_ok(), changed, "{result:?}");
        drop(remote);
        let closed = endpoint.close(4);
        from.wait(&to, 4, closed).unwrap();
        changed
    }

    /// Does nothing without a device. By itself `rc` brings datagrams along, which connect queue pairs and nothing else;
    /// with nothing but queue pairs UCX does not connect, so there is no doing without them.
    #[test]
    fn without_datagrams_ucx_does_not_connect() {
        if std::env::var("SWIFTLET_RDMA").is_err() {
            return;
        }
        let (mut to, from) = (End::new("rc_verbs", 1), End::new("rc_verbs", 2));
        let address = to.buffer.as_mut_slice().as_ptr().addr() as u64;
        let endpoint = match from.library.connect(&to.library.address().unwrap()) {
            Ok(endpoint) => endpoint,
            Err(error) => return println!("it says so at once: {error}"),
        };
        let remote = endpoint.unpack(&to.library.pack(to.memory).unwrap()).unwrap();
        let mut into = from.pool.chunk(BYTES).unwrap();
        // SAFETY: the buffer is of the memory; whatever becomes of the operation, both are there until the end.
        let read = unsafe { endpoint.get(1, (into.as_mut_slice(), from.memory), (address, &remote)) };
        println!("{:?}", from.wait(&to, 1, read).unwrap_err());
        drop(remote);
        let closed = endpoint.close(2);
        from.wait(&to, 2, closed).unwrap();
    }

    /// Does nothing without a device: only its driver checks rights.
    #[test]
    fn others_read_our_memory_and_can_not_write_it() {
        let Ok(transports) = std::env::var("SWIFTLET_RDMA") else { return };
        assert!(!is_written(&transports));
        // It is the rights that keep them from it.
        registering::WRITABLE.store(true, Relaxed);
        let changed = is_written(&transports);
        registering::WRITABLE.store(false, Relaxed);
        assert!(changed);
    }
}
