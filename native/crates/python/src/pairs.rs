//! The roots of the partitions that two devices share, for Python.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_store::pairs::{self, Step};

use crate::buffer::Bytes;
use crate::store::{Store, raise};

fn step_of(start: u32, end: u32) -> PyResult<Step> {
    Step::new(start, end).ok_or_else(|| PyValueError::new_err(format!("there is no step from {start} to {end}")))
}

/// Partitions with their roots.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct PairRoots {
    roots: Mutex<pairs::PairRoots>,
    /// How far a list of changes in Python was read.
    position: Mutex<Option<u64>>,
}

impl PairRoots {
    fn lock(&self) -> MutexGuard<'_, pairs::PairRoots> {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PairRoots {
    #[new]
    #[pyo3(signature = (members, /))]
    fn new(members: Vec<u32>) -> PyResult<Self> {
        let found = pairs::PairRoots::new(members);
        let found = found.ok_or_else(|| PyValueError::new_err("the partitions do not ascend"))?;
        Ok(Self { roots: Mutex::new(found), position: Mutex::default() })
    }

    fn __len__(&self) -> usize {
        self.lock().members().len()
    }

    #[getter]
    fn members(&self) -> Vec<u32> {
        self.lock().members().to_vec()
    }

    /// One hash over the numbers of all partitions.
    fn members_hash(&self) -> [u8; 16] {
        pairs::members_hash(self.lock().members()).to_be_bytes()
    }

    #[getter]
    fn position(&self) -> Option<u64> {
        *self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[setter]
    fn set_position(&self, position: Option<u64>) {
        *self.position.lock().unwrap_or_else(PoisonError::into_inner) = position;
    }

    /// Set the root of a partition.
    #[pyo3(signature = (partition, root, /))]
    fn put(&self, partition: u32, root: [u8; 16]) {
        self.lock().put(partition, u128::from_be_bytes(root));
    }

    /// Read the roots that have changed in a store.
    #[pyo3(signature = (store, policy, /))]
    fn refresh(&self, py: Python<'_>, store: PyRef<'_, Store>, policy: u16) -> PyResult<()> {
        let store = store.shared();
        py.detach(|| self.lock().refresh(&store, policy)).map_err(raise)
    }

    /// One hash over all but these.
    #[pyo3(signature = (without, /))]
    fn hash(&self, py: Python<'_>, without: Vec<u32>) -> [u8; 16] {
        py.detach(|| self.lock().hash(&without)).to_be_bytes()
    }

    /// The branches of the first of these nodes.
    #[pyo3(signature = (start, end, nodes, without, limit, /))]
    fn branches<'py>(
        &self,
        py: Python<'py>,
        start: u32,
        end: u32,
        nodes: Vec<u32>,
        without: Vec<u32>,
        limit: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let step = step_of(start, end)?;
        Ok(PyBytes::new(py, &py.detach(|| self.lock().branches(step, &nodes, &without, limit))))
    }
}

/// The partitions that two devices of a ring share.
#[pyfunction]
#[pyo3(signature = (rows, asker, answerer, skipped, clockwise, /))]
pub(crate) fn sync_shared(
    py: Python<'_>,
    rows: Vec<Bytes>,
    asker: u16,
    answerer: u16,
    skipped: Vec<u16>,
    clockwise: bool,
) -> Vec<u32> {
    let rows: Vec<_> = rows.iter().map(Bytes::as_slice).collect();
    py.detach(|| pairs::shared(&rows, asker, answerer, &skipped, clockwise))
}

/// One hash over the numbers of partitions.
#[pyfunction]
#[pyo3(signature = (partitions, /))]
pub(crate) fn sync_members(partitions: Vec<u32>) -> [u8; 16] {
    pairs::members_hash(&partitions).to_be_bytes()
}

/// How many nodes' branches these are.
#[pyfunction]
#[pyo3(signature = (branches, /))]
pub(crate) fn sync_branches(branches: &[u8]) -> Option<u64> {
    pairs::count(branches)
}

/// The branches that two devices do not have in common.
#[pyfunction]
#[pyo3(signature = (mine, theirs, start, end, nodes, /))]
pub(crate) fn sync_differing_branches(
    mine: &[u8],
    theirs: &[u8],
    start: u32,
    end: u32,
    nodes: Vec<u32>,
) -> PyResult<Option<(usize, Vec<u32>)>> {
    Ok(pairs::differing(mine, theirs, step_of(start, end)?, &nodes))
}
