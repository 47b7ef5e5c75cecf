//! Runs for Python: bytes of many objects, which it takes chunk by chunk.
//!
//! In the turn in which bytes are taken the sender gets its window back and is asked for more.
//!
//! Fault model: that of `swiftlet_node::Run`, and of `crate::inbox`.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_node::{Ahead, Marks, Part, Run, RunOptions};
use swiftlet_transport::Sink;

use crate::inbox::Inbox;
use crate::peers::TransportPeer;
use crate::store::{Place, key};
use crate::values::{FailedParts, RefusedParts, failure_parts};

/// Small chunks are joined up to this size.
const JOINED_BYTES: usize = 256 << 10;

/// Peer, device, place, start, stop, size, ETag, whether it must have none of the marks.
pub(crate) type RunPart<'py> = (Bound<'py, TransportPeer>, String, Place, u64, u64, Option<u64>, Option<Vec<u8>>, bool);

/// Seconds of each request, the requests' id, bytes to request ahead, marks in metadata and system metadata.
pub(crate) type Options = (Duration, String, u64, (Vec<Vec<u8>>, Vec<Vec<u8>>));

/// A run in progress; it is stopped when nothing refers to it any more.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportRun {
    run: Arc<Run>,
    inbox: Arc<Inbox>,
}

impl TransportRun {
    pub(crate) fn start(
        parts: Vec<RunPart<'_>>,
        (timeout, trace, ahead_bytes, (metadata, sysmeta)): Options,
        ahead: Arc<Ahead>,
        events: Arc<dyn Sink>,
        token: u64,
    ) -> PyResult<Self> {
        let inbox = Inbox::new(events, token, true, JOINED_BYTES);
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
        let options = RunOptions { timeout, trace, ahead_bytes, ahead, marks: Marks { metadata, sysmeta } };
        let sink = Arc::clone(&inbox) as Arc<dyn Sink>;
        let run = Run::start(parts.into_iter().map(part).collect(), options, sink, token);
        Ok(Self { run: run.map_err(PyValueError::new_err)?, inbox })
    }
}

/// Parts that are done, bytes of the next one, the header of its answer, why the transport failed, the refusal.
type Ended<'py> = (usize, u64, Bound<'py, PyBytes>, FailedParts, RefusedParts<'py>);

#[pymethods]
impl TransportRun {
    /// The next bytes, small chunks joined; None when there are none yet, and never twice without an event between.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let Some((bytes, pieces)) = self.inbox.take(py)? else { return Ok(None) };
        let count = bytes.as_bytes().len() as u64;
        // One behind the other, so that the transport's thread is woken once for both.
        drop(pieces);
        self.run.taken(count);
        Ok(Some(bytes))
    }

    /// Copy waiting bytes and release their memory, as the reader may not come for a while.
    fn copy(&self, py: Python<'_>) {
        self.inbox.copy(py);
    }

    /// Stop the run; received bytes can still be taken.
    fn stop(&self) {
        self.run.stop();
    }

    /// Stop the run and drop its bytes.
    fn close(&self) {
        self.run.stop();
        drop(self.inbox.all());
    }

    /// How it has ended, and why.
    fn ended<'py>(&self, py: Python<'py>) -> Option<Ended<'py>> {
        let end = self.run.end()?;
        let (failed, refused) = match end.failure {
            None => (None, None),
            Some(failure) => failure_parts(py, &failure),
        };
        Some((end.done, end.sent, PyBytes::new(py, &end.found), failed, refused))
    }
}

impl Drop for TransportRun {
    fn drop(&mut self) {
        self.close();
    }
}
