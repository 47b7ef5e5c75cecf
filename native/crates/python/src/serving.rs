//! The node of a server: it accepts clients of the native transport until it is stopped.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use swiftlet_transport::{Config, Handler, Key, Node};

use crate::encryption::Encryption;
use crate::rdma::Rdma;
use crate::transport::{listen, report};

/// The node, and how it meets clients.
pub(crate) struct ServingNode {
    /// None after it was stopped. RDMA's thread ends when both are dropped.
    node: Mutex<Option<(Node, Rdma)>>,
    encryption: Encryption,
    directory: Option<PathBuf>,
    lets_guests_in: bool,
    name: String,
}

impl ServingNode {
    /// Start the node; nobody is let in before `listen`. With a `directory` clients on the same node find its socket
    /// there.
    pub(crate) fn start(
        config: Config,
        rdma: bool,
        handler: Arc<dyn Handler>,
        encryption: Encryption,
        directory: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        let (name, lets_guests_in) = (config.name.clone(), config.guests.is_some());
        let rdma = Rdma::start(rdma, &config)?;
        let node = Node::start(config, &[], Some(handler))?;
        Ok(Self { node: Mutex::new(Some((node, rdma))), encryption, directory, lets_guests_in, name })
    }

    fn with<T>(&self, work: impl FnOnce(&Node, &Rdma) -> PyResult<T>) -> PyResult<T> {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let (node, rdma) = node.as_ref().ok_or_else(|| PyValueError::new_err("the server has been stopped"))?;
        work(node, rdma)
    }

    /// Accept connections by TCP and, with a directory, on the same node. Returns the TCP port.
    pub(crate) fn listen(&self, host: &str, port: u16) -> PyResult<u16> {
        self.with(|node, rdma| {
            let directory = (self.directory.as_deref(), self.lets_guests_in);
            listen(node, (rdma, &self.encryption), &self.name, directory, host, port)
        })
    }

    /// Use these keys for handshakes from now on.
    pub(crate) fn set_keys(&self, keys: &[Vec<u8>]) -> PyResult<()> {
        self.encryption.set_keys(keys)?;
        self.with(|node, _| {
            node.set_keys(keys.iter().map(|key| Key::new(key)).collect());
            Ok(())
        })
    }

    /// How many connections guests have; 0 after it was stopped.
    pub(crate) fn guests(&self) -> usize {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        node.as_ref().map_or(0, |(node, _)| node.guests())
    }

    /// Counters of each client.
    pub(crate) fn report<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.with(|node, _| report(py, node))
    }

    /// Accept no more connections, and ask clients to send no more requests; those under way are answered.
    pub(crate) fn leave(&self) -> PyResult<()> {
        self.with(|node, _| {
            node.leave();
            Ok(())
        })
    }

    /// End connections and threads; requests under way are dropped.
    pub(crate) fn stop(&self) {
        let node = self.node.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(node); // without the lock, for that takes a while
    }
}
