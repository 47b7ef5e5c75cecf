//! The doubts of a device, for Python.

use std::sync::Arc;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Which partitions of a device may lack an acknowledged write.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct Doubts(Arc<swiftlet_node::Doubts>);

impl Doubts {
    pub(crate) fn shared(&self) -> Arc<swiftlet_node::Doubts> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl Doubts {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Notice from now on when the process is suspended.
    fn watch(&self) -> PyResult<()> {
        self.0.watch().map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// Put the whole device in doubt.
    fn doubt_all(&self) {
        self.0.doubt_all();
    }

    /// Put these partitions in doubt: policy and partition.
    #[pyo3(signature = (places, /))]
    fn doubt(&self, places: Vec<(u16, u32)>) {
        self.0.doubt(&places);
    }

    /// The epoch, and the age of the youngest doubt in seconds.
    fn pending(&self) -> Option<(u64, f64)> {
        self.0.pending().map(|(epoch, age)| (epoch, age.as_secs_f64()))
    }

    /// Record that these partitions lack nothing.
    #[pyo3(signature = (epoch, places, /))]
    fn prove(&self, epoch: u64, places: Vec<(u16, u32)>) {
        self.0.prove(epoch, &places);
    }

    /// Record that nothing that belongs on the device lacks anything.
    #[pyo3(signature = (epoch, /))]
    fn prove_all(&self, epoch: u64) {
        self.0.prove_all(epoch);
    }

    /// Whether a partition may lack a write.
    #[pyo3(signature = (policy, partition, /))]
    fn has(&self, policy: u16, partition: u32) -> bool {
        self.0.has(policy, partition)
    }

    /// Whether the whole device is in doubt, partitions proved since, and partitions in doubt by themselves.
    fn counts(&self) -> (bool, usize, usize) {
        self.0.counts()
    }
}
