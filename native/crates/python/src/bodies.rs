//! Bodies of requests in a Python process: memory that a socket is read into, and digests on other threads.
//!
//! Their events come together with the transport's own, with tokens of the same kind.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use swiftlet_hash::beside::{Stream, Threads};
use swiftlet_transport::{Buffer, Completions, Then};

use crate::buffer::Bytes;
use crate::chunks::{TransportChunk, payload};
use crate::hash::Hasher;
use crate::values::{Parts, os_error};

enum Happened {
    /// Memory that was waited for.
    Memory(Option<Buffer>),
    /// So many bytes were digested.
    Digested(usize),
}

type Log = Arc<Mutex<Vec<(u64, Happened)>>>;

/// The bodies of one node.
pub(crate) struct Bodies {
    log: Log,
    events: Arc<Completions>,
    /// Started with the first body.
    threads: OnceLock<Threads>,
}

fn note(log: &Log, events: &Completions, token: u64, happened: Happened) {
    log.lock().unwrap_or_else(PoisonError::into_inner).push((token, happened));
    events.notify();
}

impl Bodies {
    pub(crate) fn new(events: &Arc<Completions>) -> Self {
        Self { log: Arc::default(), events: Arc::clone(events), threads: OnceLock::new() }
    }

    /// Returns what is called when there is memory.
    pub(crate) fn memory(&self, token: u64) -> Then {
        let (log, events) = (Arc::clone(&self.log), Arc::clone(&self.events));
        Box::new(move |buffer| note(&log, &events, token, Happened::Memory(buffer)))
    }

    pub(crate) fn digester(&self, token: u64, hasher: &Hasher) -> PyResult<TransportDigester> {
        let threads = match self.threads.get() {
            Some(threads) => threads.clone(),
            None => {
                let count = std::thread::available_parallelism().map_or(1, usize::from);
                let started = Threads::start(count).map_err(os_error)?;
                self.threads.get_or_init(|| started).clone()
            }
        };
        let (log, events) = (Arc::clone(&self.log), Arc::clone(&self.events));
        Ok(TransportDigester { stream: threads.stream(hasher.shared()), token, log, events })
    }

    /// All events since the last call.
    pub(crate) fn events<'py>(&self, py: Python<'py>) -> PyResult<Vec<Parts<'py>>> {
        let log = std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner));
        let event = |(token, happened)| match happened {
            Happened::Memory(buffer) => {
                let buffer = buffer.map(|buffer| Py::new(py, TransportBuffer::new(buffer))).transpose()?;
                Ok((token, "memory", buffer.into_pyobject(py)?.into_any()))
            }
            Happened::Digested(bytes) => Ok((token, "digested", bytes.into_pyobject(py)?.into_any())),
        };
        log.into_iter().map(event).collect()
    }
}

struct Filling {
    /// None: it was frozen.
    buffer: Option<Buffer>,
    filled: usize,
    /// How many views may be writing to the part that is not filled.
    views: usize,
}

/// Memory for a chunk, which is filled once.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportBuffer(Mutex<Filling>);

impl TransportBuffer {
    pub(crate) fn new(buffer: Buffer) -> Self {
        Self(Mutex::new(Filling { buffer: Some(buffer), filled: 0, views: 0 }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Filling> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl TransportBuffer {
    /// Copy bytes to an offset.
    #[pyo3(signature = (offset, data, /))]
    fn write(&self, offset: usize, data: Bytes) -> PyResult<()> {
        let mut filling = self.lock();
        let data = data.as_slice();
        let to = filling.buffer.as_mut().and_then(|buffer| {
            let end = offset.checked_add(data.len())?;
            buffer.as_mut_slice().get_mut(offset..end)
        });
        to.ok_or_else(|| PyValueError::new_err("the range is outside of the buffer, or the buffer is frozen"))?
            .copy_from_slice(data);
        Ok(())
    }

    /// Record that so many more bytes are filled; returns how many are not.
    #[pyo3(signature = (bytes, /))]
    fn advance(&self, bytes: usize) -> PyResult<usize> {
        let mut filling = self.lock();
        let left = filling.buffer.as_ref().map_or(0, Buffer::len) - filling.filled;
        if bytes > left {
            return Err(PyValueError::new_err("the range is outside of the buffer, or the buffer is frozen"));
        }
        filling.filled += bytes;
        Ok(left - bytes)
    }

    /// Share the first bytes as a chunk.
    #[pyo3(signature = (length, /))]
    fn freeze(&self, length: usize) -> PyResult<TransportChunk> {
        let mut filling = self.lock();
        if filling.views > 0 {
            return Err(PyBufferError::new_err("the buffer is not frozen, so its bytes may still change"));
        }
        match filling.buffer.take_if(|buffer| length <= buffer.len()) {
            Some(buffer) => {
                filling.filled = 0;
                Ok(TransportChunk(buffer.freeze(length)))
            }
            None => Err(PyValueError::new_err("the size is larger than the buffer, or the buffer is frozen")),
        }
    }

    #[allow(unsafe_code, reason = "the buffer protocol asks for a pointer and a length")]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: std::ffi::c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the buffer protocol was called without a view"));
        }
        let mut filling = slf.get().lock();
        let filled = filling.filled;
        let Some(buffer) = &mut filling.buffer else { return Err(PyBufferError::new_err("the buffer is frozen")) };
        let rest = &mut buffer.as_mut_slice()[filled..];
        let (start, bytes) = (rest.as_mut_ptr().cast(), rest.len() as ffi::Py_ssize_t);
        // SAFETY: the view is Python's to fill. The memory stays where it is, and nobody else's, as long as the
        // buffer is not frozen, which it is not while there are views; and the view keeps a reference to it.
        let outcome = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes, 0, flags) };
        if outcome != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        filling.views += 1;
        Ok(())
    }

    #[allow(unsafe_code, reason = "the buffer protocol's other half")]
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.lock().views -= 1;
    }
}

/// Digests one stream on another thread.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportDigester {
    stream: Stream,
    token: u64,
    log: Log,
    events: Arc<Completions>,
}

#[pymethods]
impl TransportDigester {
    /// Digest the next piece; a "digested" event follows.
    #[pyo3(signature = (data, /))]
    fn update(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let chunk = payload(data)?;
        let (log, events, token, bytes) = (Arc::clone(&self.log), Arc::clone(&self.events), self.token, chunk.len());
        let then = move || note(&log, &events, token, Happened::Digested(bytes));
        self.stream.update(Box::new(chunk), Box::new(then));
        Ok(())
    }
}
