//! The native half of a container server, over update tables that Python has opened.
//!
//! Nothing here is called per request.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use swiftlet_transport::Handler;

use crate::encryption::Encryption;
use crate::serving::ServingNode;
use crate::transport::config;
use crate::updates::UpdateTable;
use crate::values::os_error;

/// The update tables of this process, for clients of the native transport.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct ContainerServer {
    node: ServingNode,
}

#[pymethods]
impl ContainerServer {
    #[new]
    #[pyo3(signature = (name, machine, keys, tables, unused, *, pool_bytes, threads = 1, socket_directory = None,
                        silence_s = 1.5, encryption = "none"))]
    #[allow(clippy::too_many_arguments, reason = "settings, by name")]
    fn new(
        py: Python<'_>,
        name: String,
        machine: &str,
        keys: Vec<Vec<u8>>,
        tables: HashMap<String, Py<UpdateTable>>,
        unused: HashMap<String, String>,
        pool_bytes: usize,
        threads: usize,
        socket_directory: Option<PathBuf>,
        silence_s: f64,
        encryption: &str,
    ) -> PyResult<Self> {
        let used = tables.into_iter().map(|(name, table)| (name, Ok(table.get().shared())));
        let devices = used.chain(unused.into_iter().map(|(name, why)| (name, Err(why)))).collect();
        let config = config(&name, machine, &keys, pool_bytes, threads, silence_s)?;
        let encryption = Encryption::start(encryption, false, &keys, false)?;
        let handler = Arc::new(swiftlet_node::ContainerServer::new(devices)) as Arc<dyn Handler>;
        // Rows are too small for RDMA to pay.
        let start = || ServingNode::start(config, false, handler, encryption, socket_directory);
        Ok(Self { node: py.detach(start).map_err(os_error)? })
    }

    /// Accept connections by TCP and, with a directory, on the same node. Returns the TCP port.
    #[pyo3(signature = (host, port, /))]
    fn listen(&self, host: &str, port: u16) -> PyResult<u16> {
        self.node.listen(host, port)
    }

    /// Use these keys for handshakes from now on.
    #[pyo3(signature = (keys, /))]
    fn set_keys(&self, keys: Vec<Vec<u8>>) -> PyResult<()> {
        self.node.set_keys(&keys)
    }

    /// Counters of each client.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.node.report(py)
    }

    /// Accept no more connections, and ask clients to send no more requests; those under way are answered.
    fn leave(&self) -> PyResult<()> {
        self.node.leave()
    }

    /// End connections and threads; requests under way are dropped. The tables stay.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.node.stop());
    }
}
