//! The native object server over stores that Python has opened: the same open store serves both.
//!
//! Nothing here is called per request. Calls that may wait let other Python threads run.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use swiftlet_erasure::Scheme;
use swiftlet_node::message::method_name;
use swiftlet_node::{Coding, DeviceStats, Guests, Limits, Server, Status};
use swiftlet_transport::{Guests as GuestRoom, Handler, Key, Pool, Regions};

use crate::doubts::Doubts;
use crate::encryption::Encryption;
use crate::serving::ServingNode;
use crate::store::Store;
use crate::transport::config;
use crate::values::os_error;

/// The devices of this process, for clients of the native transport.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct ObjectServer {
    server: Arc<Server>,
    /// What is known of guests, where they are let in.
    guests: Option<Arc<Guests>>,
    node: ServingNode,
}

fn keys_of(keys: &[Vec<u8>]) -> Vec<Key> {
    keys.iter().map(|key| Key::new(key)).collect()
}

/// The room that guests have: bytes of memory, connections, bytes of memory that is shared with those on this machine.
type Room = (usize, usize, usize);

fn status_name(status: Status) -> &'static str {
    if status == Status::Ok { "ok" } else { status.name() }
}

fn fields<'py>(py: Python<'py>, device: &str, stats: &DeviceStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("device", device)?;
    dict.set_item("requests", stats.requests)?;
    dict.set_item("buffered_bytes", stats.buffered_bytes)?;
    dict.set_item("refused", stats.refused)?;
    dict.set_item("received_bytes", stats.received_bytes)?;
    dict.set_item("sent_bytes", stats.sent_bytes)?;
    let named = |&(method, status, count): &(u16, Status, u64)| {
        method_name(method).map(|operation| (operation, status_name(status), count))
    };
    dict.set_item("answered", stats.answered.iter().filter_map(named).collect::<Vec<_>>())?;
    Ok(dict)
}

#[pymethods]
impl ObjectServer {
    #[new]
    #[pyo3(signature = (name, machine, keys, stores, unused, *, pool_bytes, threads = 1, threads_per_device = 4,
                        max_requests_per_device = 512, buffer_bytes_per_device = 268435456,
                        socket_directory = None, rdma = false, silence_s = 1.5, doubts = None,
                        encryption = "none", guests = None, hash_path = (Vec::new(), Vec::new())))]
    #[allow(clippy::too_many_arguments, reason = "settings, by name")]
    fn new(
        py: Python<'_>,
        name: String,
        machine: &str,
        keys: Vec<Vec<u8>>,
        stores: HashMap<String, Py<Store>>,
        unused: HashMap<String, String>,
        pool_bytes: usize,
        threads: usize,
        threads_per_device: usize,
        max_requests_per_device: usize,
        buffer_bytes_per_device: usize,
        socket_directory: Option<PathBuf>,
        rdma: bool,
        silence_s: f64,
        doubts: Option<HashMap<String, Py<Doubts>>>,
        encryption: &str,
        guests: Option<Room>,
        hash_path: (Vec<u8>, Vec<u8>),
    ) -> PyResult<Self> {
        let limits = Limits {
            threads: threads_per_device,
            max_requests: max_requests_per_device,
            buffer_bytes: buffer_bytes_per_device,
        };
        let used = stores.into_iter().map(|(name, store)| (name, Ok(store.get().shared())));
        let devices: Vec<_> = used.chain(unused.into_iter().map(|(name, why)| (name, Err(why)))).collect();
        let doubts = doubts.unwrap_or_default().into_iter();
        let doubts: HashMap<_, _> = doubts.map(|(name, doubts)| (name, doubts.get().shared())).collect();
        let mut config = config(&name, machine, &keys, pool_bytes, threads, silence_s)?;
        if let Some((bytes, max_connections, shared_bytes)) = guests {
            let room = GuestRoom::new(Pool::new(bytes).map_err(os_error)?);
            config.guests = Some(GuestRoom { max_connections, shared: Regions::new(shared_bytes), ..room });
        }
        let guests = guests.map(|_| Arc::new(Guests::new(keys_of(&keys), hash_path)));
        let encryption = Encryption::start(encryption, rdma, &keys, guests.is_some())?;
        let (server, node) = py
            .detach(|| {
                let server = Server::start_with(devices, &doubts, limits)?;
                let server = Arc::new(match &guests {
                    Some(guests) => server.with_guests(Arc::clone(guests)),
                    None => server,
                });
                let handler = Arc::clone(&server) as Arc<dyn Handler>;
                Ok((server, ServingNode::start(config, rdma, handler, encryption, socket_directory)?))
            })
            .map_err(os_error)?;
        Ok(Self { server, guests, node })
    }

    /// Accept connections by TCP and, with a directory, on the same node. Returns the TCP port.
    #[pyo3(signature = (host, port, /))]
    fn listen(&self, host: &str, port: u16) -> PyResult<u16> {
        self.node.listen(host, port)
    }

    /// Use these keys for handshakes from now on.
    #[pyo3(signature = (keys, /))]
    fn set_keys(&self, keys: Vec<Vec<u8>>) -> PyResult<()> {
        if let Some(guests) = &self.guests {
            guests.set_keys(keys_of(&keys));
        }
        self.node.set_keys(&keys)
    }

    /// Tell guests of this version of a policy's ring.
    #[pyo3(signature = (policy, version, /))]
    fn set_ring(&self, policy: u16, version: u64) {
        if let Some(guests) = &self.guests {
            guests.set_ring(policy, version);
        }
    }

    /// Know these policies: the data and parity fragments and bytes of a cell of those with erasure coding.
    #[pyo3(signature = (codings, /))]
    fn set_codings(&self, codings: HashMap<u16, Option<(usize, usize, usize)>>) -> PyResult<()> {
        let coding = |(data, parity, cell_bytes)| -> PyResult<Coding> {
            let scheme = Scheme::new(data, parity).map_err(|error| PyValueError::new_err(error.to_string()))?;
            Ok(Coding { scheme, cell_bytes })
        };
        let one = |(policy, parts): (u16, Option<_>)| -> PyResult<_> { Ok((policy, parts.map(coding).transpose()?)) };
        self.server.set_codings(codings.into_iter().map(one).collect::<PyResult<_>>()?);
        Ok(())
    }

    /// How many connections guests have.
    fn guests(&self) -> usize {
        self.node.guests()
    }

    /// What each device does now, and counters of what it has done.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.server.stats().iter().map(|(device, stats)| fields(py, device, stats)).collect()
    }

    /// Counters of each client.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.node.report(py)
    }

    /// Accept no more connections, and ask clients to send no more requests; those under way are answered.
    fn leave(&self) -> PyResult<()> {
        self.node.leave()
    }

    /// End connections and threads; requests under way are dropped. The stores stay open.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| {
            self.node.stop();
            self.server.stop();
        });
    }
}
