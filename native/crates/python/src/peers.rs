//! Peers for Python: one call per request, or one call and its body piece by piece.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use swiftlet_transport::limits::CHUNK_BYTES;
use swiftlet_transport::{Body, Call, Event, Peer, Sink, Ticket, Upload, What};

use crate::buffer::Bytes;
use crate::chunks::payload;
use crate::uploads::Uploads;
use crate::values::{invalid, seconds};

/// A call that was made.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportTicket(Ticket);

#[pymethods]
impl TransportTicket {
    /// Cancel it, unless it is over.
    fn cancel(&self) {
        self.0.cancel();
    }
}

/// Python is told of what was sent when no more than this is left: who waits for room has more to send then, and each
/// event wakes somebody.
const TOLD_BYTES: usize = 2 << 20;

/// Passes the events of an upload on, those of what was sent together.
struct Sparing {
    to: Arc<dyn Sink>,
    /// Bytes that wait to be sent.
    waiting: Arc<AtomicUsize>,
    /// Bytes that were sent, of which nobody was told.
    untold: AtomicUsize,
}

impl Sink for Sparing {
    fn events(&self, events: &mut Vec<Event>) {
        events.retain_mut(|event| {
            let What::Sent(bytes) = &mut event.what else { return true };
            let left = self.waiting.fetch_sub(*bytes, Ordering::AcqRel) - *bytes;
            *bytes += self.untold.swap(0, Ordering::AcqRel);
            if left > TOLD_BYTES {
                self.untold.store(*bytes, Ordering::Release);
            }
            left <= TOLD_BYTES
        });
        if !events.is_empty() {
            self.to.events(events);
        }
    }
}

/// A call whose body is sent piece by piece.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportUpload {
    upload: Mutex<Option<Upload>>,
    peer: Peer,
    uploads: Option<Arc<Uploads>>,
    waiting: Arc<AtomicUsize>,
}

#[pymethods]
impl TransportUpload {
    /// Send bytes. False: too much is already waiting, or it has ended; a part of them may have been sent then.
    #[pyo3(signature = (data, /))]
    fn send(&self, data: &Bound<'_, PyAny>) -> PyResult<bool> {
        let whole = payload(data)?;
        let upload = self.upload.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(upload) = upload.as_ref() else { return Ok(false) };
        for start in (0..whole.len()).step_by(CHUNK_BYTES) {
            let mut piece = whole.part(start..whole.len().min(start + CHUNK_BYTES));
            if let Some(uploads) = &self.uploads {
                piece = uploads.piece(data.py(), &self.peer, piece, false);
            }
            let bytes = piece.len();
            self.waiting.fetch_add(bytes, Ordering::AcqRel);
            if upload.send(piece).is_err() {
                self.waiting.fetch_sub(bytes, Ordering::AcqRel);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Bytes that wait to be sent.
    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// The body is complete.
    #[pyo3(signature = (footer, /))]
    fn end(&self, footer: Bytes) -> PyResult<()> {
        let upload = self.upload.lock().unwrap_or_else(PoisonError::into_inner).take();
        let upload = upload.ok_or_else(|| PyValueError::new_err("the upload has ended"))?;
        upload.end(footer.as_slice().to_vec()).map_err(invalid)
    }

    /// Cancel it without committing, unless it has ended.
    fn cancel(&self) {
        if let Some(upload) = self.upload.lock().unwrap_or_else(PoisonError::into_inner).take() {
            upload.ticket().cancel();
        }
    }
}

/// A peer to make calls to.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportPeer {
    peer: Peer,
    sink: Arc<dyn Sink>,
    uploads: Option<Arc<Uploads>>,
}

impl TransportPeer {
    pub(crate) fn new(peer: Peer, sink: Arc<dyn Sink>, uploads: Option<Arc<Uploads>>) -> Self {
        Self { peer, sink, uploads }
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer.clone()
    }
}

#[pymethods]
impl TransportPeer {
    /// Make a call with its whole body.
    #[pyo3(signature = (token, method, timeout_s, trace, header, body))]
    fn call(
        &self,
        token: u64,
        method: u16,
        timeout_s: f64,
        trace: String,
        header: Bytes,
        body: &Bound<'_, PyAny>,
    ) -> PyResult<TransportTicket> {
        let mut piece = payload(body)?;
        if let Some(uploads) = &self.uploads {
            piece = uploads.piece(body.py(), &self.peer, piece, true);
        }
        let body = if piece.is_empty() { Body::Empty } else { Body::Chunk(piece) };
        let header = header.as_slice().to_vec();
        let call = Call { method, timeout: seconds(timeout_s)?, trace, header, body, footer: Vec::new() };
        self.peer.call(call, &self.sink, token).map(TransportTicket).map_err(invalid)
    }

    /// Make a call whose body follows.
    #[pyo3(signature = (token, method, timeout_s, trace, header, size))]
    fn upload(
        &self,
        token: u64,
        method: u16,
        timeout_s: f64,
        trace: String,
        header: Bytes,
        size: Option<u64>,
    ) -> PyResult<TransportUpload> {
        let header = header.as_slice().to_vec();
        let call = Call { method, timeout: seconds(timeout_s)?, trace, header, ..Call::default() };
        let waiting = Arc::new(AtomicUsize::new(0));
        let sparing = Sparing { to: self.sink.clone(), waiting: waiting.clone(), untold: AtomicUsize::new(0) };
        let sink: Arc<dyn Sink> = Arc::new(sparing);
        let upload = self.peer.upload(call, size, &sink, token).map_err(invalid)?;
        let (peer, uploads) = (self.peer.clone(), self.uploads.clone());
        Ok(TransportUpload { upload: Mutex::new(Some(upload)), peer, uploads, waiting })
    }
}
