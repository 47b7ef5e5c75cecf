//! Sync sessions for Python: answers from a store's index, and what two answers differ in.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use swiftlet_store::answers::{self, Answer};
use swiftlet_store::differences::{self, Many};

use crate::buffer::Bytes;
use crate::store::{EntryParts, Store, entry_parts, raise};

/// The answer to a question, None for one that is not answered here.
#[pyfunction]
#[pyo3(signature = (store, question, ring_version, is_primary, /))]
pub(crate) fn sync_answer<'py>(
    py: Python<'py>,
    store: PyRef<'py, Store>,
    question: Bytes,
    ring_version: u32,
    is_primary: Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let (store, question) = (store.shared(), question.as_slice());
    let found = py.detach(|| answers::answer(&store, question, ring_version)).map_err(raise)?;
    let Some(Answer { mut message, flags }) = found else { return Ok(None) };
    for (partition, at) in flags {
        message[at] = u8::from(is_primary.call1((partition,))?.is_truthy()?);
    }
    Ok(Some(PyBytes::new(py, &message)))
}

/// Of each partition its number, whether the answerer is a primary, how many items there are, and these.
type Parts<'py> = Vec<(u32, bool, usize, Bound<'py, PyBytes>)>;

fn parts<'py>(py: Python<'py>, many: Option<Many<'_>>) -> Option<(u32, u32, Parts<'py>)> {
    let Many { policy, ring_version, found } = many?;
    let parts = found.iter().map(|part| (part.partition, part.primary, part.count, PyBytes::new(py, part.bytes)));
    Some((policy, ring_version, parts.collect()))
}

/// An answer with suffix hashes, taken apart; None for anything else.
#[pyfunction]
#[pyo3(signature = (answer, /))]
pub(crate) fn sync_suffixes<'py>(py: Python<'py>, answer: &[u8]) -> Option<(u32, u32, Parts<'py>)> {
    parts(py, differences::suffix_hashes(answer))
}

/// An answer with entries, taken apart; None for anything else.
#[pyfunction]
#[pyo3(signature = (answer, /))]
pub(crate) fn sync_listings<'py>(py: Python<'py>, answer: &[u8]) -> Option<(u32, u32, Parts<'py>)> {
    parts(py, differences::listings(answer))
}

/// Suffixes that differ.
#[pyfunction]
#[pyo3(signature = (mine, theirs, both, /))]
pub(crate) fn sync_differing(mine: &[u8], theirs: &[u8], both: bool) -> Vec<u16> {
    differences::differing(mine, theirs, both)
}

/// Whether entries are in order, and of these suffixes.
#[pyfunction]
#[pyo3(signature = (entries, suffixes, /))]
pub(crate) fn sync_in_order(entries: &[u8], suffixes: Vec<u16>) -> bool {
    differences::in_order(entries, &suffixes)
}

/// All entries.
#[pyfunction]
#[pyo3(signature = (entries, /))]
pub(crate) fn sync_entries(entries: &[u8]) -> Vec<EntryParts> {
    differences::entries(entries).map(entry_parts).collect()
}

/// What of mine they lack: the entry, what of it, and whether they have nothing of the object.
#[pyfunction]
#[pyo3(signature = (mine, theirs, /))]
pub(crate) fn sync_newer<'py>(
    py: Python<'py>,
    mine: &[u8],
    theirs: &[u8],
) -> PyResult<Option<Vec<Bound<'py, PyTuple>>>> {
    let Some(found) = differences::newer(mine, theirs) else { return Ok(None) };
    let parts = |(entry, need, fresh)| (entry_parts(entry), need as u8, fresh).into_pyobject(py);
    found.into_iter().map(parts).collect::<PyResult<_>>().map(Some)
}
