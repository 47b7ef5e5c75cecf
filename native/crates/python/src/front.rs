//! The clients' side for Python: grants and rings in, connections and records out. Nothing here is called per hot request.

use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_front::head::parse;
use swiftlet_front::name::split;
use swiftlet_front::{Device, Front as Inner, Policy, Served, Settings};

use crate::buffer::Bytes;
use crate::transport::{TransportPeer, os_error, seconds};

/// Its own descriptor of what Python has open.
fn duplicate(descriptor: RawFd) -> PyResult<OwnedFd> {
    if descriptor < 0 {
        return Err(PyValueError::new_err("not a descriptor"));
    }
    // SAFETY: the caller has it open as long as this call lasts, which is all that the borrow is used for.
    #[allow(unsafe_code, reason = "Python knows descriptors by their numbers")]
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(descriptor) };
    borrowed.try_clone_to_owned().map_err(os_error)
}

/// Method, path, bytes of the body, seconds, client, request's id.
type ServedParts = (&'static str, Vec<u8>, u64, f64, String, String);

fn served(served: Served) -> ServedParts {
    let Served { method, path, bytes, took, remote, id } = served;
    (method.name(), path, bytes, took.as_secs_f64(), remote.to_string(), id)
}

/// The thread that answers hot requests.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct Front(Inner);

#[pymethods]
impl Front {
    #[new]
    #[pyo3(signature = (secret, *, keepalive_s, client_timeout_s, answer_timeout_s, max_connections = 8192,
                        max_handed = 1024, max_served = 50000))]
    fn new(
        secret: (Vec<u8>, Vec<u8>),
        keepalive_s: f64,
        client_timeout_s: f64,
        answer_timeout_s: f64,
        max_connections: usize,
        max_handed: usize,
        max_served: usize,
    ) -> PyResult<Self> {
        let settings = Settings {
            secret,
            keepalive: seconds(keepalive_s)?,
            client_timeout: seconds(client_timeout_s)?,
            answer_timeout: seconds(answer_timeout_s)?,
            max_connections,
            max_handed,
            max_served,
        };
        Ok(Self(Inner::start(settings).map_err(os_error)?))
    }

    /// Accept connections from a listening socket.
    #[pyo3(signature = (descriptor, /))]
    fn listen(&self, descriptor: RawFd) -> PyResult<()> {
        self.0.listen(duplicate(descriptor)?);
        Ok(())
    }

    /// Take a connection back.
    #[pyo3(signature = (descriptor, bounces, /))]
    fn adopt(&self, descriptor: RawFd, bounces: u32) {
        // SAFETY: the caller gives the descriptor away, as the treaty says.
        #[allow(unsafe_code, reason = "Python knows descriptors by their numbers")]
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        self.0.adopt(socket, bounces);
    }

    /// Readable while something was handed over.
    fn fileno(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }

    /// What was handed over: descriptors, which are the caller's from now on, bytes, and bounces.
    fn handed<'py>(&self, py: Python<'py>) -> Vec<(RawFd, Bound<'py, PyBytes>, u32)> {
        let handed = self.0.handed().into_iter();
        handed.map(|one| (one.socket.into_raw_fd(), PyBytes::new(py, &one.bytes), one.bounces)).collect()
    }

    /// Token and prefix of a request that may be hot, and is all there is.
    #[staticmethod]
    #[pyo3(signature = (request, /))]
    fn asked<'py>(py: Python<'py>, request: Bytes) -> Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let request = request.as_slice();
        let asked = parse(request).filter(|asked| asked.bytes == request.len() && asked.keep_alive)?;
        let (prefix, _) = split(asked.target)?;
        Some((PyBytes::new(py, asked.token.unwrap_or_default()), PyBytes::new(py, prefix)))
    }

    /// What was answered.
    fn served(&self) -> Vec<ServedParts> {
        self.0.served().into_iter().map(served).collect()
    }

    /// A grant; whether there was room.
    #[pyo3(signature = (token, prefix, container, policy, valid_s, /))]
    fn grant(&self, token: Bytes, prefix: Bytes, container: Bytes, policy: u16, valid_s: f64) -> PyResult<bool> {
        let holder = (token.as_slice().to_vec(), prefix.as_slice().to_vec());
        Ok(self.0.grant(holder, container.as_slice(), policy, seconds(valid_s)?))
    }

    /// Whether there is such a grant.
    #[pyo3(signature = (token, prefix, /))]
    fn has(&self, token: Bytes, prefix: Bytes) -> bool {
        self.0.has(&(token.as_slice().to_vec(), prefix.as_slice().to_vec()))
    }

    /// End grants in an account, or all.
    #[pyo3(signature = (account, /))]
    fn withdraw(&self, account: Option<Bytes>) {
        self.0.withdraw(account.as_ref().map(Bytes::as_slice));
    }

    /// Token and prefix of grants that were used since they were given.
    fn used<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let used = self.0.used().into_iter();
        used.map(|(token, prefix)| (PyBytes::new(py, &token), PyBytes::new(py, &prefix))).collect()
    }

    /// Where a policy's objects are.
    #[pyo3(signature = (policy, part_power, rows, devices, /))]
    fn route(
        &self,
        policy: u16,
        part_power: u32,
        rows: Vec<Bytes>,
        devices: Vec<Option<(PyRef<'_, TransportPeer>, String)>>,
    ) -> PyResult<()> {
        let device = |one: (PyRef<'_, TransportPeer>, String)| Device::new(one.0.peer(), &one.1);
        let devices = devices.into_iter().map(|one| one.map(device)).collect();
        let row =
            |bytes: &Bytes| bytes.as_slice().chunks_exact(2).map(|two| u16::from_ne_bytes([two[0], two[1]])).collect();
        let ring = Policy::new(part_power, rows.iter().map(row).collect(), devices);
        self.0.route(policy, Some(ring.map_err(|_| PyValueError::new_err("the rows are no ring's"))?));
        Ok(())
    }

    /// Nobody knows where a policy's objects are.
    #[pyo3(signature = (policy, /))]
    fn unroute(&self, policy: u16) {
        self.0.route(policy, None);
    }

    /// Connections that are here.
    fn open(&self) -> usize {
        self.0.open()
    }

    /// Whether its thread runs.
    fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    /// Accept no more, and close what is idle.
    fn leave(&self) {
        self.0.leave();
    }

    /// Whether it has done so.
    fn has_left(&self) -> bool {
        self.0.has_left()
    }
}
