//! Digests for Python: functions for a whole buffer, `Hasher` for a stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;
use swiftlet_hash::Digests;

use crate::buffer::Bytes;

/// From how many bytes on other Python threads may run meanwhile, with MD5 and with xxh3 alone.
///
/// Releasing the interpreter costs 50 ns where no other thread wants it. Where one does, and computes, the interpreter
/// returns only after the switch interval, 5 ms: an event loop that released it for each 64 KiB piece of a body would
/// then store 13 MB/s instead of 800. Keeping it, on the other hand, makes the others wait for as long as the digest
/// takes. So it is kept for up to about 0.1 ms: pieces as they come from a socket are digested at once, chunks for the
/// transport are not.
const MD5_DETACH_BYTES: usize = 128 * 1024;
const XXH3_DETACH_BYTES: usize = 4 * 1024 * 1024;

/// Digest, with other Python threads running if the buffer is large enough.
fn digest<T: Send>(py: Python<'_>, data: &Bytes, detach_bytes: usize, with: fn(&[u8]) -> T) -> T {
    let data = data.as_slice();
    if data.len() < detach_bytes { with(data) } else { py.detach(|| with(data)) }
}

/// MD5 of a buffer.
#[pyfunction]
#[pyo3(signature = (data, /))]
pub(crate) fn md5<'py>(py: Python<'py>, data: Bytes) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &digest(py, &data, MD5_DETACH_BYTES, swiftlet_hash::md5))
}

/// MD5 of each of several buffers, computed side by side.
#[pyfunction]
#[pyo3(signature = (all, /))]
pub(crate) fn md5_of_each<'py>(py: Python<'py>, all: Vec<Bytes>) -> Vec<Bound<'py, PyBytes>> {
    let slices: Vec<&[u8]> = all.iter().map(Bytes::as_slice).collect();
    let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
    let digests = if bytes < MD5_DETACH_BYTES {
        swiftlet_hash::md5_of_each(&slices)
    } else {
        py.detach(|| swiftlet_hash::md5_of_each(&slices))
    };
    digests.iter().map(|digest| PyBytes::new(py, digest)).collect()
}

/// xxh3 of a buffer in 64 bits.
#[pyfunction]
#[pyo3(signature = (data, /))]
pub(crate) fn xxh3_64(py: Python<'_>, data: Bytes) -> u64 {
    digest(py, &data, XXH3_DETACH_BYTES, swiftlet_hash::xxh3_64)
}

/// xxh3 of a buffer in 128 bits, as 16 big-endian bytes.
#[pyfunction]
#[pyo3(signature = (data, /))]
pub(crate) fn xxh3_128<'py>(py: Python<'py>, data: Bytes) -> Bound<'py, PyBytes> {
    let digest = digest(py, &data, XXH3_DETACH_BYTES, swiftlet_hash::xxh3_128);
    PyBytes::new(py, &digest.to_be_bytes())
}

/// MD5 and xxh3 of a stream, in one pass over it.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct Hasher {
    // Who waits for the lock has let go of the interpreter (`lock_py_attached` does so by itself), and
    // who holds it never waits for the interpreter: so the two cannot wait for each other.
    state: Arc<Mutex<swiftlet_hash::Hasher>>,
    detach_bytes: usize,
}

impl Hasher {
    /// The same stream, for threads without an interpreter.
    pub(crate) fn shared(&self) -> Arc<Mutex<swiftlet_hash::Hasher>> {
        Arc::clone(&self.state)
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, swiftlet_hash::Hasher> {
        self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_kept(name: &str) -> PyErr {
    PyValueError::new_err(format!("this Hasher does not compute {name}: it was created with {name}=False"))
}

#[pymethods]
impl Hasher {
    #[new]
    #[pyo3(signature = (*, md5 = true, xxh3 = true))]
    fn new(md5: bool, xxh3: bool) -> Self {
        Self {
            state: Arc::new(Mutex::new(swiftlet_hash::Hasher::new(Digests { md5, xxh3 }))),
            detach_bytes: if md5 { MD5_DETACH_BYTES } else { XXH3_DETACH_BYTES },
        }
    }

    /// Digest the next bytes of the stream.
    #[pyo3(signature = (data, /))]
    fn update(&self, py: Python<'_>, data: Bytes) {
        let data = data.as_slice();
        if data.len() < self.detach_bytes {
            self.lock(py).update(data);
        } else {
            py.detach(|| self.state.lock().unwrap_or_else(PoisonError::into_inner).update(data));
        }
    }

    /// Digest the next bytes of each of several streams, side by side.
    #[staticmethod]
    #[pyo3(signature = (pieces, /))]
    fn update_each(py: Python<'_>, pieces: Vec<(PyRef<'_, Self>, Bytes)>) -> PyResult<()> {
        let mut all: Vec<(&Mutex<swiftlet_hash::Hasher>, &[u8])> =
            pieces.iter().map(|(hasher, data)| (&*hasher.state, data.as_slice())).collect();
        // Two calls take the locks of streams that they share in the same order.
        all.sort_by_key(|(state, _)| std::ptr::from_ref(*state));
        if all.windows(2).any(|two| std::ptr::eq(two[0].0, two[1].0)) {
            return Err(PyValueError::new_err("a Hasher is named twice"));
        }
        py.detach(|| {
            let mut held: Vec<MutexGuard<'_, swiftlet_hash::Hasher>> =
                all.iter().map(|(state, _)| state.lock().unwrap_or_else(PoisonError::into_inner)).collect();
            let inputs: Vec<&[u8]> = all.iter().map(|(_, data)| *data).collect();
            swiftlet_hash::Hasher::update_each(&mut held.iter_mut().map(|one| &mut **one).collect::<Vec<_>>(), &inputs);
        });
        Ok(())
    }

    /// How many bytes were digested.
    #[getter]
    fn size(&self, py: Python<'_>) -> u64 {
        self.lock(py).size()
    }

    /// MD5 of the bytes so far.
    fn md5_digest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let digest = self.lock(py).md5().ok_or_else(|| not_kept("md5"))?;
        Ok(PyBytes::new(py, &digest))
    }

    /// MD5 of the bytes so far in lower-case hexadecimal digits, as in an ETag.
    fn md5_hexdigest(&self, py: Python<'_>) -> PyResult<String> {
        let digest = self.lock(py).md5().ok_or_else(|| not_kept("md5"))?;
        Ok(format!("{:032x}", u128::from_be_bytes(digest)))
    }

    /// xxh3 of the bytes so far in 64 bits.
    fn xxh3_64(&self, py: Python<'_>) -> PyResult<u64> {
        self.lock(py).xxh3_64().ok_or_else(|| not_kept("xxh3"))
    }

    /// xxh3 of the bytes so far in 128 bits, in lower-case hexadecimal digits.
    fn xxh3_128_hexdigest(&self, py: Python<'_>) -> PyResult<String> {
        let digest = self.lock(py).xxh3_128().ok_or_else(|| not_kept("xxh3"))?;
        Ok(format!("{digest:032x}"))
    }

    /// A hasher with the same state, which continues independently.
    fn copy(&self, py: Python<'_>) -> Self {
        Self { state: Arc::new(Mutex::new(self.lock(py).clone())), detach_bytes: self.detach_bytes }
    }
}
