//! Copies of many objects at a time, for Python: bytes in, bytes out.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_store::copies::{self, Limits};

use crate::buffer::Bytes;
use crate::store::Store;

/// Copies of what is wanted, as many as fit.
#[pyfunction]
#[pyo3(signature = (store, wanted, /, *, objects, size, alone))]
pub(crate) fn read_copies<'py>(
    py: Python<'py>,
    store: PyRef<'py, Store>,
    wanted: Bytes,
    objects: usize,
    size: usize,
    alone: u64,
) -> PyResult<Bound<'py, PyBytes>> {
    let (store, wanted) = (store.shared(), wanted.as_slice());
    let limits = Limits { objects, bytes: size, alone };
    let found = py.detach(|| copies::read(&store, wanted, limits)).map_err(PyValueError::new_err)?;
    Ok(PyBytes::new(py, &found))
}

/// Store copies; returns the outcome of each.
#[pyfunction]
#[pyo3(signature = (store, taken, /, *, objects))]
pub(crate) fn take_copies<'py>(
    py: Python<'py>,
    store: PyRef<'py, Store>,
    taken: Bytes,
    objects: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let (store, taken) = (store.shared(), taken.as_slice());
    let outcomes = py.detach(|| copies::take(&store, taken, objects)).map_err(PyValueError::new_err)?;
    Ok(PyBytes::new(py, &outcomes))
}
