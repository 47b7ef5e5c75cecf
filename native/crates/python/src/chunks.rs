//! Python's bytes that are sent without a copy, and the transport's bytes that Python reads without a copy.

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use swiftlet_transport::{Chunk, Window};

use crate::buffer::Bytes;

/// A Python `bytes`, which nobody can change.
struct Immutable {
    _owner: Py<PyBytes>,
    bytes: &'static [u8],
}

impl AsRef<[u8]> for Immutable {
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}

fn immutable(owner: &Bound<'_, PyBytes>) -> Chunk {
    let bytes = owner.as_bytes();
    // SAFETY: the bytes of a Python `bytes` neither move nor change as long as a reference to it is held, and
    // this one is let go of after the slice.
    #[allow(unsafe_code, reason = "the lifetime of what a reference count keeps alive")]
    let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
    Chunk::from_owner(Box::new(Immutable { _owner: owner.clone().unbind(), bytes }))
}

/// The position of a part in the whole, if it is one.
fn within(part: &[u8], whole: &[u8]) -> Option<std::ops::Range<usize>> {
    let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
    (start <= whole.len() && part.len() <= whole.len() - start).then(|| start..start + part.len())
}

/// Bytes to be sent: in place if they are immutable, else a copy.
pub(crate) fn payload(data: &Bound<'_, PyAny>) -> PyResult<Chunk> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(immutable(bytes));
    }
    if let Ok(chunk) = data.cast::<TransportChunk>() {
        return Ok(chunk.get().0.clone());
    }
    let buffer: Bytes = data.extract()?;
    let slice = buffer.as_slice();
    if data.cast::<PyMemoryView>().is_ok() {
        let whole = data.getattr("obj")?;
        if let Ok(bytes) = whole.cast::<PyBytes>()
            && let Some(range) = within(slice, bytes.as_bytes())
        {
            return Ok(immutable(bytes).part(range));
        }
        if let Ok(chunk) = whole.cast::<TransportChunk>()
            && let Some(range) = within(slice, &chunk.get().0)
        {
            return Ok(chunk.get().0.part(range));
        }
    }
    Ok(slice.to_vec().into())
}

/// Bytes in the transport's memory; a buffer for Python.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportChunk(pub(crate) Chunk);

#[pymethods]
impl TransportChunk {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[allow(unsafe_code, reason = "the buffer protocol asks for a pointer and a length")]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: std::ffi::c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the buffer protocol was called without a view"));
        }
        let bytes: &[u8] = &slf.get().0;
        let start = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the view is Python's to fill. The bytes stay where they are as long as the chunk does, of which
        // the view keeps a reference; and it is read-only.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes.len() as ffi::Py_ssize_t, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// A part of a sender's window, which the sender gets back when this is dropped.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportWindow {
    _window: Window,
}

impl TransportWindow {
    pub(crate) fn new(window: Window) -> Self {
        Self { _window: window }
    }
}
