//! The native half of a container server, over update tables that Python has opened.
//!
//! Nothing here is called per request.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use swiftlet_transport::{Handler, Key, Node};

use crate::encryption::Encryption;
use crate::rdma::Rdma;
use crate::transport::{config, listen, report};
use crate::updates::UpdateTable;
use crate::values::os_error;

/// The update tables of this process, for clients of the native transport.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct ContainerServer {
    /// None after it was stopped.
    node: Mutex<Option<(Node, Rdma)>>,
    encryption: Encryption,
    directory: Option<PathBuf>,
    name: String,
}

impl ContainerServer {
    fn with<T>(&self, work: impl FnOnce(&Node, &Rdma) -> PyResult<T>) -> PyResult<T> {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let (node, rdma) = node.as_ref().ok_or_else(|| PyValueError::new_err("the server has been stopped"))?;
        work(node, rdma)
    }
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
        let encryption = Encryption::start(encryption, false, &keys)?;
        let node = py
            .detach(|| {
                // Rows are too small for it to pay.
                let rdma = Rdma::start(false, &config)?;
                let handler = Arc::new(swiftlet_node::ContainerServer::new(devices)) as Arc<dyn Handler>;
                Ok((Node::start(config, &[], Some(handler))?, rdma))
            })
            .map_err(os_error)?;
        Ok(Self { node: Mutex::new(Some(node)), encryption, directory: socket_directory, name })
    }

    /// Accept connections by TCP and, with a directory, on the same node. Returns the TCP port.
    #[pyo3(signature = (host, port, /))]
    fn listen(&self, host: &str, port: u16) -> PyResult<u16> {
        self.with(|node, rdma| {
            listen(node, (rdma, &self.encryption), &self.name, self.directory.as_deref(), host, port)
        })
    }

    /// Use these keys for handshakes from now on.
    #[pyo3(signature = (keys, /))]
    fn set_keys(&self, keys: Vec<Vec<u8>>) -> PyResult<()> {
        self.encryption.set_keys(&keys)?;
        self.with(|node, _| {
            node.set_keys(keys.iter().map(|key| Key::new(key)).collect());
            Ok(())
        })
    }

    /// Counters of each client.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.with(|node, _| report(py, node))
    }

    /// Accept no more connections, and ask clients to send no more requests; those under way are answered.
    fn leave(&self) -> PyResult<()> {
        self.with(|node, _| {
            node.leave();
            Ok(())
        })
    }

    /// End connections and threads; requests under way are dropped. The tables stay.
    fn stop(&self, py: Python<'_>) {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(node));
    }
}
