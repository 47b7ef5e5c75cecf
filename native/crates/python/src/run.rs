//! Runs for Python: bytes of many objects as the events of one token.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_node::{Failure, Marks, Part, Run, RunOptions};
use swiftlet_transport::Sink;

use crate::store::{Place, key};
use crate::transport::{TransportPeer, kind};

/// Peer, device, place, start, stop, size, ETag, whether it must have none of the marks.
pub(crate) type RunPart<'py> = (Bound<'py, TransportPeer>, String, Place, u64, u64, Option<u64>, Option<Vec<u8>>, bool);

/// Seconds of each request, the id that it bears, bytes that are asked for ahead, marks in metadata and system metadata.
pub(crate) type Options = (Duration, String, u64, (Vec<Vec<u8>>, Vec<Vec<u8>>));

/// A run on its way; stopped when nobody refers to it any more.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportRun(Arc<Run>);

impl TransportRun {
    pub(crate) fn start(
        parts: Vec<RunPart<'_>>,
        (timeout, trace, ahead_bytes, (metadata, sysmeta)): Options,
        sink: Arc<dyn Sink>,
        token: u64,
    ) -> PyResult<Self> {
        let part = |(peer, device, place, start, stop, size, etag, unmarked): RunPart<'_>| Part {
            peer: peer.get().peer(),
            device,
            key: key(place),
            start,
            stop,
            size,
            etag,
            unmarked,
        };
        let options = RunOptions { timeout, trace, ahead_bytes, marks: Marks { metadata, sysmeta } };
        let run = Run::start(parts.into_iter().map(part).collect(), options, sink, token);
        run.map(Self).map_err(PyValueError::new_err)
    }
}

/// Parts that are done, bytes of the next one, the header of its answer, why the transport failed, the refusal.
type Ended<'py> = (usize, u64, Bound<'py, PyBytes>, Option<(&'static str, String)>, Option<(u16, Bound<'py, PyBytes>)>);

#[pymethods]
impl TransportRun {
    /// So many bytes are no longer held.
    #[pyo3(signature = (count, /))]
    fn taken(&self, count: u64) {
        self.0.taken(count);
    }

    /// Want no more of it.
    fn stop(&self) {
        self.0.stop();
    }

    /// Where it has ended, and why.
    fn ended<'py>(&self, py: Python<'py>) -> Option<Ended<'py>> {
        let end = self.0.end()?;
        let (failed, refused) = match end.failure {
            None => (None, None),
            Some(Failure::Lost(error)) => (Some((kind(&error), error.to_string())), None),
            Some(Failure::Damaged(what)) => (Some(("remote", what.to_owned())), None),
            Some(Failure::Refused(refusal)) => {
                (None, Some((refusal.status as u16, PyBytes::new(py, &refusal.encode()))))
            }
        };
        Some((end.done, end.sent, PyBytes::new(py, &end.found), failed, refused))
    }
}

impl Drop for TransportRun {
    fn drop(&mut self) {
        self.0.stop();
    }
}
