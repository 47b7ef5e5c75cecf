//! Bytes that belong to a Python object, read where they are.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// The memory of a bytes-like object: bytes, bytearray, memoryview, mmap and the like.
///
/// The object can neither free nor resize its memory while this lives.
pub(crate) struct Bytes(PyUntypedBuffer);

impl<'a, 'py> FromPyObject<'a, 'py> for Bytes {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(&object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyTypeError::new_err(
                "a C-contiguous buffer is required: its bytes must follow one another in memory",
            ));
        }
        Ok(Self(buffer))
    }
}

impl Bytes {
    /// The bytes themselves.
    pub(crate) fn as_slice(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[]; // of which the pointer may be null
        }
        // SAFETY: a C-contiguous buffer is `len_bytes` bytes in one piece, and the export that `self`
        // holds keeps them in place. What it cannot prevent is that another thread writes into a
        // mutable buffer meanwhile. We only read bytes, each value of which is valid, so the digest
        // is then of something between the old and the new content, as it is with hashlib.
        #[allow(unsafe_code, reason = "the buffer protocol hands out a pointer and a length")]
        unsafe {
            std::slice::from_raw_parts(self.0.buf_ptr().cast::<u8>(), self.0.len_bytes())
        }
    }
}
