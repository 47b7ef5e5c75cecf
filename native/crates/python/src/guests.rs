//! Sessions and grants of guests, made where the cluster's key is.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_node::message::guests::{Told, encode};
use swiftlet_transport::Key;
use swiftlet_transport::guest::{Grant, Operations, Scope, Session};

use crate::buffer::Bytes;

/// A session and its secret.
type SessionParts<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Make a session of this number and end, by a cluster key.
#[pyfunction]
#[pyo3(signature = (key, id, ends_s, /))]
pub(crate) fn guest_session<'py>(
    py: Python<'py>,
    key: Bytes,
    id: [u8; 16],
    ends_s: u64,
) -> PyResult<SessionParts<'py>> {
    let key = Key::new(key.as_slice());
    let session = Session { key_id: key.id(), id, ends_s };
    Ok((PyBytes::new(py, &session.encode()), PyBytes::new(py, session.secret(&key).secret())))
}

/// Read a session: the id of its cluster key, its number, its end.
#[pyfunction]
#[pyo3(signature = (session, /))]
pub(crate) fn read_guest_session(session: Bytes) -> PyResult<([u8; 4], [u8; 16], u64)> {
    let session =
        Session::decode(session.as_slice()).map_err(|violation| PyValueError::new_err(violation.to_string()))?;
    Ok((session.key_id, session.id, session.ends_s))
}

/// The id of a cluster key.
#[pyfunction]
#[pyo3(signature = (key, /))]
pub(crate) fn cluster_key_id(key: Bytes) -> [u8; 4] {
    Key::new(key.as_slice()).id()
}

/// Sign a grant.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a grant")]
#[pyo3(signature = (key, session, times_ms, place, operations, rows, sizes, account, container, prefix, object, /))]
pub(crate) fn sign_grant<'py>(
    py: Python<'py>,
    key: Bytes,
    session: [u8; 16],
    times_ms: (u64, u64),
    place: (u16, u8),
    operations: u8,
    rows: u32,
    sizes: (u64, u64, u64),
    account: String,
    container: String,
    prefix: Option<String>,
    object: Option<String>,
) -> PyResult<Bound<'py, PyBytes>> {
    let operations = Operations::of(operations).ok_or_else(|| PyValueError::new_err("unknown operations"))?;
    let scope = match (prefix, object) {
        (_, Some(object)) => Scope::Object(object),
        (Some(prefix), None) => Scope::Prefix(prefix),
        (None, None) => Scope::Container,
    };
    let grant = Grant {
        session,
        issued_ms: times_ms.0,
        ends_ms: times_ms.1,
        policy: place.0,
        part_power: place.1,
        operations,
        rows,
        object_bytes: sizes.0,
        slice_objects: sizes.1,
        slice_bytes: sizes.2,
        account,
        container,
        scope,
    };
    let signed = grant.sign(&Key::new(key.as_slice()));
    signed.map(|bytes| PyBytes::new(py, &bytes)).map_err(|violation| PyValueError::new_err(violation.to_string()))
}

/// Put before the header of a request what a guest has there.
#[pyfunction]
#[pyo3(signature = (grant, name, header, /))]
pub(crate) fn guest_header<'py>(
    py: Python<'py>,
    grant: Bytes,
    name: Bytes,
    header: Bytes,
) -> PyResult<Bound<'py, PyBytes>> {
    let whole = encode(grant.as_slice(), name.as_slice(), header.as_slice());
    whole.map(|bytes| PyBytes::new(py, &bytes)).map_err(|malformed| PyValueError::new_err(malformed.0))
}

/// Take off the header of an answer what a guest is told there: the ring's version, the server's clock in milliseconds,
/// and the rest.
#[pyfunction]
#[pyo3(signature = (header, /))]
pub(crate) fn guest_answer<'py>(py: Python<'py>, header: Bytes) -> PyResult<(u64, u64, Bound<'py, PyBytes>)> {
    let (told, rest) = Told::decode(header.as_slice()).map_err(|malformed| PyValueError::new_err(malformed.0))?;
    Ok((told.ring, told.now_ms, PyBytes::new(py, rest)))
}
