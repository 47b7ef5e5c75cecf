//! Messages to object servers and their answers as bytes: the codec of `swiftlet_node` for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_node::message::{self, Found, Malformed, Posted, Request, Written, lists};
use swiftlet_node::{Refusal, Status};
use swiftlet_store::model::{Footer, Pairs, PostMeta, PutMeta};

use crate::buffer::Bytes;
use crate::store::{EntryParts, InfoParts, Place, entry_of, entry_parts, key, parts};

pub(crate) fn malformed(error: Malformed) -> PyErr {
    PyValueError::new_err(error.0)
}

/// A method's number and its header.
pub(crate) type Message<'py> = (u16, Bound<'py, PyBytes>);

pub(crate) fn message<'py>(py: Python<'py>, device: &str, request: &Request) -> PyResult<Message<'py>> {
    Ok((request.method(), PyBytes::new(py, &request.encode(device).map_err(malformed)?)))
}

/// Size, xxh3 and ETag.
pub(crate) type FooterParts = (u64, u64, Vec<u8>);

pub(crate) fn footer_of((size, xxh3, etag): FooterParts) -> Footer {
    Footer { size, etag, xxh3 }
}

/// Timestamp, delete at, name, content type, metadata, sysmeta.
pub(crate) type VersionParts = (u64, u64, Vec<u8>, Vec<u8>, Pairs, Pairs);

pub(crate) fn meta_of((timestamp, delete_at, name, content_type, metadata, sysmeta): VersionParts) -> PutMeta {
    PutMeta { name, timestamp, content_type, metadata, sysmeta, delete_at }
}

/// A namespace.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct ObjectWire;

#[pymethods]
impl ObjectWire {
    /// Encode PUT.
    #[staticmethod]
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a version")]
    #[pyo3(signature = (device, place, row, timestamp, delete_at, name, content_type, metadata, sysmeta, footer, /))]
    fn put<'py>(
        py: Python<'py>,
        device: &str,
        place: Place,
        row: u32,
        timestamp: u64,
        delete_at: u64,
        name: Vec<u8>,
        content_type: Vec<u8>,
        metadata: Pairs,
        sysmeta: Pairs,
        footer: Option<FooterParts>,
    ) -> PyResult<Message<'py>> {
        let meta = PutMeta { name, timestamp, content_type, metadata, sysmeta, delete_at };
        let request = Request::Put { key: key(place), meta, footer: footer.map(footer_of), row };
        message(py, device, &request)
    }

    /// Encode the footer after a body.
    #[staticmethod]
    #[pyo3(signature = (footer, /))]
    fn footer(py: Python<'_>, footer: FooterParts) -> PyResult<Bound<'_, PyBytes>> {
        Ok(PyBytes::new(py, &message::encode_footer(&footer_of(footer)).map_err(malformed)?))
    }

    /// Encode PREPARE: whether a version would be accepted.
    #[staticmethod]
    #[pyo3(signature = (device, place, row, timestamp, size, /))]
    fn prepare<'py>(
        py: Python<'py>,
        device: &str,
        place: Place,
        row: u32,
        timestamp: u64,
        size: Option<u64>,
    ) -> PyResult<Message<'py>> {
        message(py, device, &Request::Prepare { key: key(place), timestamp, row, size })
    }

    /// Encode GET.
    #[staticmethod]
    #[pyo3(signature = (device, place, start, stop, proved, /))]
    fn get<'py>(
        py: Python<'py>,
        device: &str,
        place: Place,
        start: u64,
        stop: u64,
        proved: bool,
    ) -> PyResult<Message<'py>> {
        message(py, device, &Request::Get { key: key(place), start, stop, whole: 0, proved })
    }

    /// Encode HEAD.
    #[staticmethod]
    #[pyo3(signature = (device, place, proved, /))]
    fn head<'py>(py: Python<'py>, device: &str, place: Place, proved: bool) -> PyResult<Message<'py>> {
        message(py, device, &Request::Head { key: key(place), proved })
    }

    /// Encode POST.
    #[staticmethod]
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a POST")]
    #[pyo3(signature = (
        device, place, row, timestamp, delete_at, metadata, content_type, content_type_timestamp, proved, /
    ))]
    fn post<'py>(
        py: Python<'py>,
        device: &str,
        place: Place,
        row: u32,
        timestamp: u64,
        delete_at: u64,
        metadata: Pairs,
        content_type: Option<Vec<u8>>,
        content_type_timestamp: u64,
        proved: bool,
    ) -> PyResult<Message<'py>> {
        let meta = PostMeta { timestamp, metadata, content_type, content_type_timestamp, delete_at };
        message(py, device, &Request::Post { key: key(place), meta, row, proved })
    }

    /// Encode DELETE.
    #[staticmethod]
    #[pyo3(signature = (device, place, row, timestamp, name, /))]
    fn delete<'py>(
        py: Python<'py>,
        device: &str,
        place: Place,
        row: u32,
        timestamp: u64,
        name: Vec<u8>,
    ) -> PyResult<Message<'py>> {
        message(py, device, &Request::Delete { key: key(place), timestamp, name, row })
    }

    /// Encode REMOVE.
    #[staticmethod]
    #[pyo3(signature = (device, place, entry, /))]
    fn remove<'py>(py: Python<'py>, device: &str, place: Place, entry: EntryParts) -> PyResult<Message<'py>> {
        message(py, device, &Request::Remove { key: key(place), entry: entry_of(entry) })
    }

    /// Encode the request for policies.
    #[staticmethod]
    #[pyo3(signature = (device, /))]
    fn policies<'py>(py: Python<'py>, device: &str) -> PyResult<Message<'py>> {
        message(py, device, &Request::Policies)
    }

    /// Encode the request for partitions.
    #[staticmethod]
    #[pyo3(signature = (device, policy, /))]
    fn partitions<'py>(py: Python<'py>, device: &str, policy: u16) -> PyResult<Message<'py>> {
        message(py, device, &Request::Partitions(policy))
    }

    /// Encode the request for suffixes' set hashes.
    #[staticmethod]
    #[pyo3(signature = (device, policy, partition, /))]
    fn suffixes<'py>(py: Python<'py>, device: &str, policy: u16, partition: u32) -> PyResult<Message<'py>> {
        message(py, device, &Request::Suffixes(policy, partition))
    }

    /// Encode the request for the entries of a suffix.
    #[staticmethod]
    #[pyo3(signature = (device, policy, partition, suffix, /))]
    fn entries<'py>(py: Python<'py>, device: &str, policy: u16, partition: u32, suffix: u16) -> PyResult<Message<'py>> {
        message(py, device, &Request::Entries(policy, partition, suffix))
    }

    /// Encode ACKNOWLEDGE, for rows that were delivered.
    #[staticmethod]
    #[pyo3(signature = (device, versions, /))]
    fn acknowledge<'py>(py: Python<'py>, device: &str, versions: Vec<(Place, u64)>) -> PyResult<Message<'py>> {
        let versions = versions.into_iter().map(|(place, timestamp)| (key(place), timestamp)).collect();
        message(py, device, &Request::Acknowledge(versions))
    }

    /// Encode REVOKE: grants for the container (empty: all) that were issued before this time count no more.
    #[staticmethod]
    #[pyo3(signature = (device, account, container, before_ms, /))]
    fn revoke<'py>(
        py: Python<'py>,
        device: &str,
        account: Vec<u8>,
        container: Vec<u8>,
        before_ms: u64,
    ) -> PyResult<Message<'py>> {
        message(py, device, &Request::Revoke { account, container, before_ms })
    }

    /// Decode the answer to a write: whether its container update is pending, whether there was an object.
    #[staticmethod]
    #[pyo3(signature = (header, /))]
    fn written(header: Bytes) -> PyResult<(bool, bool)> {
        let written = Written::decode(header.as_slice()).map_err(malformed)?;
        Ok((written.pending, written.existed))
    }

    /// Decode the answer to POST: that to a write, and the object as it is since, if it has an update.
    #[staticmethod]
    #[pyo3(signature = (header, /))]
    fn posted(header: Bytes) -> PyResult<(bool, bool, Option<InfoParts>)> {
        let Posted { written, info } = Posted::decode(header.as_slice()).map_err(malformed)?;
        Ok((written.pending, written.existed, info.map(parts)))
    }

    /// Decode the answer to a read: the object, and the xxh3 of the body if it is known before its end.
    #[staticmethod]
    #[pyo3(signature = (header, /))]
    fn found(header: Bytes) -> PyResult<(InfoParts, Option<u64>)> {
        let Found { info, body_xxh3 } = Found::decode(header.as_slice()).map_err(malformed)?;
        Ok((parts(info), body_xxh3))
    }

    /// Decode an error: its name, its message, a timestamp.
    #[staticmethod]
    #[pyo3(signature = (status, header, /))]
    fn refusal(status: u16, header: Bytes) -> (&'static str, String, Option<u64>) {
        let Refusal { status, timestamp, text } = Refusal::decode(status, header.as_slice());
        let timed = matches!(status, Status::NotFound | Status::Superseded) && timestamp != 0;
        (status.name(), text, timed.then_some(timestamp))
    }

    /// Decode a list of policies or partitions.
    #[staticmethod]
    #[pyo3(signature = (raw, /))]
    fn numbers(raw: Bytes) -> PyResult<Vec<u32>> {
        lists::decode_numbers(raw.as_slice()).map_err(malformed)
    }

    /// Decode a list of suffixes with their set hashes.
    #[staticmethod]
    #[pyo3(signature = (raw, /))]
    fn suffix_hashes(raw: Bytes) -> PyResult<Vec<(u16, [u8; 16])>> {
        let suffixes = lists::decode_suffixes(raw.as_slice()).map_err(malformed)?;
        Ok(suffixes.into_iter().map(|(suffix, sum)| (suffix, sum.to_be_bytes())).collect())
    }

    /// Decode a list of entries.
    #[staticmethod]
    #[pyo3(signature = (raw, /))]
    fn entry_list(raw: Bytes) -> PyResult<Vec<EntryParts>> {
        let entries = lists::decode_entries(raw.as_slice()).map_err(malformed)?;
        Ok(entries.into_iter().map(entry_parts).collect())
    }
}
