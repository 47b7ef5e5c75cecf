//! The client's side of the transport for Python: one call per request, events in batches through one descriptor.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyBufferError, PyOSError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use swiftlet_transport::{
    Address, Body, Buffer, Call, Chunk, Completions, Config, Event, Fabric, Key, Node, Peer, Pool, SameNodeAcceptor,
    SameNodeFabric, Sink, TcpAcceptor, TcpFabric, Ticket, Upload, What,
};

use crate::buffer::Bytes;

fn os_error(error: std::io::Error) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), error.to_string()))
}

fn invalid(error: swiftlet_transport::Error) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn seconds(timeout_s: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(timeout_s).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Bytes in the transport's memory; a buffer for Python.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportChunk(Chunk);

#[pymethods]
impl TransportChunk {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[allow(unsafe_code, reason = "the buffer protocol asks for a pointer and a length")]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: std::ffi::c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
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

/// Memory for a chunk, to be filled once.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportBuffer(Mutex<Option<Buffer>>);

#[pymethods]
impl TransportBuffer {
    /// Copy bytes in at an offset.
    #[pyo3(signature = (offset, data, /))]
    fn write(&self, offset: usize, data: Bytes) -> PyResult<()> {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let data = data.as_slice();
        let to = buffer.as_mut().and_then(|buffer| {
            let end = offset.checked_add(data.len())?;
            buffer.as_mut_slice().get_mut(offset..end)
        });
        to.ok_or_else(|| PyValueError::new_err("outside of the buffer, or frozen already"))?.copy_from_slice(data);
        Ok(())
    }

    /// Share the first bytes.
    #[pyo3(signature = (length, /))]
    fn freeze(&self, length: usize) -> PyResult<TransportChunk> {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match buffer.take_if(|buffer| length <= buffer.len()) {
            Some(buffer) => Ok(TransportChunk(buffer.freeze(length))),
            None => Err(PyValueError::new_err("more than the buffer has, or frozen already")),
        }
    }
}

/// A call that was made.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportTicket(Ticket);

#[pymethods]
impl TransportTicket {
    /// End it, unless it is over.
    fn cancel(&self) {
        self.0.cancel();
    }
}

/// A call whose body is sent piece by piece.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportUpload(Mutex<Option<Upload>>);

#[pymethods]
impl TransportUpload {
    /// Send a chunk. False: too much waits already.
    #[pyo3(signature = (chunk, /))]
    fn send(&self, chunk: &TransportChunk) -> bool {
        let upload = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        upload.as_ref().is_some_and(|upload| upload.send(chunk.0.clone()).is_ok())
    }

    /// The body is complete.
    #[pyo3(signature = (footer, /))]
    fn end(&self, footer: Bytes) -> PyResult<()> {
        let upload = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let upload = upload.ok_or_else(|| PyValueError::new_err("it has ended"))?;
        upload.end(footer.as_slice().to_vec()).map_err(invalid)
    }

    /// End it without committing, unless it has ended.
    fn cancel(&self) {
        if let Some(upload) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            upload.ticket().cancel();
        }
    }
}

/// Somebody to call.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportPeer {
    peer: Peer,
    sink: Arc<dyn Sink>,
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
        body: Bytes,
    ) -> PyResult<TransportTicket> {
        let body = match body.as_slice() {
            [] => Body::Empty,
            bytes => Body::Chunk(bytes.to_vec().into()),
        };
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
        Ok(TransportUpload(Mutex::new(Some(upload))))
    }
}

/// Memory that was waited for, by token.
type Reserved = Vec<(u64, Option<Buffer>)>;

/// This process's end.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportNode {
    node: Node,
    events: Arc<Completions>,
    memory: Arc<Mutex<Reserved>>,
    directory: Option<PathBuf>,
    name: String,
}

type Parts<'py> = (u64, &'static str, Bound<'py, PyAny>);

fn parts<'py>(py: Python<'py>, event: Event) -> PyResult<Parts<'py>> {
    let (kind, value) = match event.what {
        What::Sent(bytes) => ("sent", bytes.into_pyobject(py)?.into_any()),
        What::Reply { status, header, body_bytes, body, whole } => {
            let body = body.map(|body| Py::new(py, TransportChunk(body))).transpose()?;
            let reply = (status, PyBytes::new(py, &header), body_bytes, body, whole);
            ("reply", reply.into_pyobject(py)?.into_any())
        }
        What::Chunk(chunk) => ("chunk", Bound::new(py, TransportChunk(chunk))?.into_any()),
        What::End(footer) => ("end", PyBytes::new(py, &footer).into_any()),
        What::Failed(error) => {
            let name = match &error {
                swiftlet_transport::Error::Unreachable(_) => "unreachable",
                swiftlet_transport::Error::Lost(_) => "lost",
                swiftlet_transport::Error::Deadline => "deadline",
                swiftlet_transport::Error::Cancelled => "cancelled",
                swiftlet_transport::Error::Overloaded => "overloaded",
                swiftlet_transport::Error::NoMemory => "no-memory",
                swiftlet_transport::Error::Remote(..) => "remote",
                swiftlet_transport::Error::Invalid(_) => "invalid",
            };
            ("failed", (name, error.to_string()).into_pyobject(py)?.into_any())
        }
    };
    Ok((event.token, kind, value))
}

#[pymethods]
impl TransportNode {
    #[new]
    #[pyo3(signature = (name, machine, keys, *, pool_bytes, threads = 1, socket_directory = None))]
    fn new(
        name: String,
        machine: &str,
        keys: Vec<Vec<u8>>,
        pool_bytes: usize,
        threads: usize,
        socket_directory: Option<PathBuf>,
    ) -> PyResult<Self> {
        let keys = keys.iter().map(|key| Key::new(key)).collect();
        let mut config = Config::new(&name, machine, keys, Pool::new(pool_bytes).map_err(os_error)?);
        config.threads = threads;
        let mut fabrics: Vec<Arc<dyn Fabric>> = Vec::new();
        if let Some(directory) = &socket_directory {
            fabrics.push(Arc::new(SameNodeFabric::new(directory)));
        }
        fabrics.push(Arc::new(TcpFabric));
        let node = Node::start(config, &fabrics, None).map_err(os_error)?;
        let events = Completions::new().map_err(os_error)?;
        Ok(Self { node, events, memory: Arc::default(), directory: socket_directory, name })
    }

    /// Take connections, by TCP and, with a directory, on the same node. Gives the TCP port.
    #[pyo3(signature = (host, port, /))]
    fn listen(&self, host: &str, port: u16) -> PyResult<u16> {
        let host = host.parse().map_err(|_| PyValueError::new_err("not an IP address"))?;
        let acceptor = TcpAcceptor::bind(std::net::SocketAddr::new(host, port)).map_err(os_error)?;
        let port = acceptor.address().map_err(os_error)?.port();
        if let Some(directory) = &self.directory {
            self.node.listen(Box::new(SameNodeAcceptor::bind(directory, &self.name).map_err(os_error)?));
        }
        self.node.listen(Box::new(acceptor));
        Ok(port)
    }

    /// Readable while there are events.
    fn fileno(&self) -> i32 {
        self.events.as_fd().as_raw_fd()
    }

    /// All events since the last time.
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Vec<Parts<'py>>> {
        let events = self.events.drain();
        let memory = std::mem::take(&mut *self.memory.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all = Vec::with_capacity(events.len() + memory.len());
        for (token, buffer) in memory {
            let buffer = buffer.map(|buffer| Py::new(py, TransportBuffer(Mutex::new(Some(buffer))))).transpose()?;
            all.push((token, "memory", buffer.into_pyobject(py)?.into_any()));
        }
        for event in events {
            all.push(parts(py, event)?);
        }
        Ok(all)
    }

    /// Somebody to call; kept for good.
    #[pyo3(signature = (name, host, port, /))]
    fn peer(&self, name: String, host: Option<&str>, port: u16) -> PyResult<TransportPeer> {
        let host = host.map(str::parse).transpose().map_err(|_| PyValueError::new_err("not an IP address"))?;
        let tcp = host.map(|host| std::net::SocketAddr::new(host, port));
        let sink = Arc::clone(&self.events) as Arc<dyn Sink>;
        Ok(TransportPeer { peer: self.node.peer(Address { name, tcp }), sink })
    }

    /// Wait for memory: an event under the token, with nothing when the time is over.
    #[pyo3(signature = (token, size, timeout_s, /))]
    fn reserve(&self, token: u64, size: usize, timeout_s: f64) -> PyResult<()> {
        if size == 0 || size > swiftlet_transport::limits::CHUNK_BYTES {
            return Err(PyValueError::new_err("a chunk has 1 byte to 1 MiB"));
        }
        let (memory, events) = (Arc::clone(&self.memory), Arc::clone(&self.events));
        let then = move |buffer| {
            memory.lock().unwrap_or_else(PoisonError::into_inner).push((token, buffer));
            events.notify();
        };
        self.node.pool().chunk_later(size, Instant::now() + seconds(timeout_s)?, Box::new(then));
        Ok(())
    }

    /// From now on handshakes use these keys.
    #[pyo3(signature = (keys, /))]
    fn set_keys(&self, keys: Vec<Vec<u8>>) {
        self.node.set_keys(keys.iter().map(|key| Key::new(key)).collect());
    }

    /// Counters of each peer.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let of = |peer: swiftlet_transport::PeerReport| {
            let counters = peer.counters;
            let dict = PyDict::new(py);
            dict.set_item("peer", peer.name)?;
            dict.set_item("is_client", peer.is_client)?;
            dict.set_item("transport", counters.carrier.map(|carrier| carrier.to_string()))?;
            dict.set_item("requests", counters.requests)?;
            dict.set_item("errors", counters.errors)?;
            dict.set_item("sent_bytes", counters.sent_bytes)?;
            dict.set_item("received_bytes", counters.received_bytes)?;
            dict.set_item("lent_bytes", counters.lent_bytes)?;
            dict.set_item("connects", counters.connects)?;
            dict.set_item("connect_failures", counters.connect_failures)?;
            dict.set_item("fallbacks", counters.fallbacks)?;
            dict.set_item("latency_us", counters.latency_us)?;
            dict.set_item("latency_buckets", counters.latency.to_vec())?;
            Ok(dict)
        };
        self.node.report().into_iter().map(of).collect()
    }
}
