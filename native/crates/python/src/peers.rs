//! Peers for Python: one call per request, or one call and its body piece by piece.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use swiftlet_transport::{Body, Call, Peer, Sink, Ticket, Upload};

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

/// A call whose body is sent piece by piece.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportUpload {
    upload: Mutex<Option<Upload>>,
    peer: Peer,
    uploads: Option<Arc<Uploads>>,
}

#[pymethods]
impl TransportUpload {
    /// Send up to 1 MiB. False: too much is already waiting.
    #[pyo3(signature = (data, /))]
    fn send(&self, data: &Bound<'_, PyAny>) -> PyResult<bool> {
        let mut chunk = payload(data)?;
        if let Some(uploads) = &self.uploads {
            chunk = uploads.piece(data.py(), &self.peer, chunk, false);
        }
        let upload = self.upload.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(upload.as_ref().is_some_and(|upload| upload.send(chunk).is_ok()))
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
        let upload = self.peer.upload(call, size, &self.sink, token).map_err(invalid)?;
        Ok(TransportUpload { upload: Mutex::new(Some(upload)), peer: self.peer.clone(), uploads: self.uploads.clone() })
    }
}
