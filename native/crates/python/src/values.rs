//! The transport's values for Python.

use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_node::Failure;
use swiftlet_transport::{Error, Reason};

/// An `OSError`.
pub(crate) fn os_error(error: std::io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), error.to_string()))
}

/// A `ValueError`.
pub(crate) fn invalid(error: Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A time that Python gives in seconds.
pub(crate) fn seconds(timeout_s: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(timeout_s).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The name of the error for Python.
pub(crate) fn kind(error: &Error) -> &'static str {
    match error {
        Error::Unreachable(_) => "unreachable",
        Error::Lost(_) => "lost",
        Error::Deadline | Error::Remote(Reason::Deadline, _) => "deadline",
        Error::Cancelled | Error::Remote(Reason::Cancelled, _) => "cancelled",
        Error::Overloaded | Error::Remote(Reason::Overloaded, _) => "overloaded",
        Error::NoMemory | Error::Remote(Reason::NoMemory, _) => "no-memory",
        Error::Remote(Reason::GoingAway, _) => "going-away",
        Error::Remote(Reason::Failed, _) => "remote",
        Error::Invalid(_) => "invalid",
    }
}

/// An event: its token, its name, and its data.
pub(crate) type Parts<'py> = (u64, &'static str, Bound<'py, PyAny>);

/// Kind and text of a failure of the transport.
pub(crate) type FailedParts = Option<(&'static str, String)>;

/// Status and header of a refusal.
pub(crate) type RefusedParts<'py> = Option<(u16, Bound<'py, PyBytes>)>;

/// Why a request had no good answer: one of both.
pub(crate) fn failure_parts<'py>(py: Python<'py>, failure: &Failure) -> (FailedParts, RefusedParts<'py>) {
    match failure {
        Failure::Lost(error) => (Some((kind(error), error.to_string())), None),
        Failure::Damaged(what) => (Some(("remote", (*what).to_owned())), None),
        Failure::Refused(refusal) => (None, Some((refusal.status as u16, PyBytes::new(py, &refusal.encode())))),
    }
}
