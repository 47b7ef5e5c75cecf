//! Sync sessions for Python: answers from a store's index, and the differences of two answers.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use swiftlet_store::answers::{self, Answer};
use swiftlet_store::differences::batches::{self, Differing, Moment};
use swiftlet_store::differences::{self, Many};

use crate::buffer::Bytes;
use crate::store::{EntryParts, Store, entry_parts, raise};

/// The answer to a question, None for one that is not answered here.
#[pyfunction]
#[pyo3(signature = (store, question, ring_version, belongs, /))]
pub(crate) fn sync_answer<'py>(
    py: Python<'py>,
    store: PyRef<'py, Store>,
    question: Bytes,
    ring_version: u32,
    belongs: Bytes,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let (store, question, belongs) = (store.shared(), question.as_slice(), belongs.as_slice());
    let found = py.detach(|| answers::answer(&store, question, ring_version)).map_err(raise)?;
    let Some(Answer { mut message, flags }) = found else { return Ok(None) };
    for (partition, at) in flags {
        message[at] = u8::from(belongs.get(partition as usize).is_some_and(|here| *here != 0));
    }
    Ok(Some(PyBytes::new(py, &message)))
}

/// For each partition its number, whether the answerer is a primary, the number of items, and the items.
type Parts<'py> = Vec<(u32, bool, usize, Bound<'py, PyBytes>)>;

fn parts<'py>(py: Python<'py>, many: Option<Many<'_>>) -> Option<(u32, u32, Parts<'py>)> {
    let Many { policy, ring_version, found } = many?;
    let parts = found.iter().map(|part| (part.partition, part.primary, part.count, PyBytes::new(py, part.bytes)));
    Some((policy, ring_version, parts.collect()))
}

/// Parse an answer with suffix hashes; None for anything else.
#[pyfunction]
#[pyo3(signature = (answer, /))]
pub(crate) fn sync_suffixes<'py>(py: Python<'py>, answer: &[u8]) -> Option<(u32, u32, Parts<'py>)> {
    parts(py, differences::suffix_hashes(answer))
}

/// Parse an answer with entries; None for anything else.
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

/// What they lack of mine: the entry, what of it, and whether they have nothing of the object.
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

/// The head of an answer about many partitions: policy, version of the ring, partitions, whether the answerer is a
/// primary of all, and partitions without items.
type Heads = (u32, u32, Vec<u32>, bool, Vec<u32>);

fn heads(many: Many<'_>) -> Heads {
    let primary = many.found.iter().all(|part| part.primary);
    let partitions = many.found.iter().map(|part| part.partition).collect();
    let empty = many.found.iter().filter(|part| part.count == 0).map(|part| part.partition).collect();
    (many.policy, many.ring_version, partitions, primary, empty)
}

/// The head of an answer with suffix hashes; None for anything else.
#[pyfunction]
#[pyo3(signature = (answer, /))]
pub(crate) fn sync_suffix_heads(answer: &[u8]) -> Option<Heads> {
    differences::suffix_hashes(answer).map(heads)
}

/// The head of an answer with entries; None for anything else.
#[pyfunction]
#[pyo3(signature = (answer, /))]
pub(crate) fn sync_listing_heads(answer: &[u8]) -> Option<Heads> {
    differences::listings(answer).map(heads)
}

/// The fields of `Differing`, in order.
type Suffixes<'py> = (Vec<u32>, Vec<u32>, Vec<u32>, Vec<usize>, Bound<'py, PyBytes>);

/// The suffixes that differ in many partitions.
#[pyfunction]
#[pyo3(signature = (mine, theirs, both, /))]
pub(crate) fn sync_differing_many<'py>(
    py: Python<'py>,
    mine: &[u8],
    theirs: &[u8],
    both: bool,
) -> Option<Suffixes<'py>> {
    let Differing { same, partitions, counts, ends, suffixes } = batches::suffixes(mine, theirs, both)?;
    Some((same, partitions, counts, ends, PyBytes::new(py, &suffixes)))
}

/// Whether the entries of many partitions are in order, and only those asked for.
#[pyfunction]
#[pyo3(signature = (answer, partitions, asked, /))]
pub(crate) fn sync_fits(answer: &[u8], partitions: Vec<u32>, asked: &[u8]) -> bool {
    batches::fits(answer, &partitions, asked)
}

/// What they lack of mine now in many partitions.
#[pyfunction]
#[pyo3(signature = (mine, theirs, since_s, until_s, forgotten_s, /))]
pub(crate) fn sync_lacked<'py>(
    py: Python<'py>,
    mine: &[u8],
    theirs: &[u8],
    since_s: f64,
    until_s: f64,
    forgotten_s: f64,
) -> Option<Bound<'py, PyBytes>> {
    let found = batches::lacked(mine, theirs, Moment { since_s, until_s, forgotten_s })?;
    Some(PyBytes::new(py, &found))
}

/// Ascending numbers, as messages encode them; None for others.
#[pyfunction]
#[pyo3(signature = (numbers, /))]
pub(crate) fn sync_ascending<'py>(py: Python<'py>, numbers: Vec<i64>) -> Option<Bound<'py, PyBytes>> {
    Some(PyBytes::new(py, &answers::ascending_bytes(numbers)?))
}

/// The question for copies, and the tombstones, of what is lacked.
#[pyfunction]
#[pyo3(signature = (policy, lacked, /))]
pub(crate) fn sync_copies<'py>(
    py: Python<'py>,
    policy: u16,
    lacked: &[u8],
) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
    (PyBytes::new(py, &batches::wanted(policy, lacked)), PyBytes::new(py, &batches::tombstones(lacked)))
}
