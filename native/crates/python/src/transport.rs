//! The client's side of the transport for Python: one call per request, events in batches with one descriptor.
//!
//! Python's immutable bytes are sent without a copy. The I/O threads never wait for the interpreter: what they release
//! is returned when a Python thread calls next.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use swiftlet_node::message::Request;
use swiftlet_node::{Ahead, Terms};
use swiftlet_transport::{
    Address, Carrier, Chunk, Completions, Config, Event, Fabric, Key, Node, Pool, SameNodeAcceptor, SameNodeFabric,
    Sink, TcpAcceptor, What, guest,
};

use crate::bodies::{Bodies, TransportBuffer, TransportDigester};
use crate::buffer::Bytes;
use crate::chunks::{TransportWindow, payload};
use crate::coded::{
    CodedDeleting, CodedPosting, CodedReading, CodedSmallWriting, CodedWriting, PlacesParts, PostParts, ReadWaits,
    StepWaits, WriteWaits,
};
use crate::coded_repair::{self, ChosenParts, CodedRebuilding, CodedRecovering};
use crate::encryption::Encryption;
use crate::group::{Groups, TransportGroup};
use crate::hash::Hasher;
use crate::many::{self, TransportMany};
use crate::object_wire::{FooterParts, VersionParts, footer_of, meta_of};
use crate::peers::TransportPeer;
use crate::rdma::Rdma;
use crate::run::{RunPart, TransportRun};
use crate::store::{Place, key};
use crate::uploads::Uploads;
use crate::values::{Parts, kind, os_error, seconds};
use crate::writes::{self, Target};

fn chunk_size(size: usize) -> PyResult<usize> {
    let fits = (1..=swiftlet_transport::limits::CHUNK_BYTES).contains(&size);
    fits.then_some(size).ok_or_else(|| PyValueError::new_err("a chunk must have 1 byte to 1 MiB"))
}

/// All runs together may use this part of the memory for objects whose turn has not come: a quarter, as uploads may
/// use half.
const AHEAD_SHARE: u64 = 4;
/// How long a peer may be silent: longer than it takes until a PING is sent and answered.
const SILENCE_S: std::ops::RangeInclusive<f64> = 1.0..=60.0;

/// A node's configuration.
pub(crate) fn config(
    name: &str,
    machine: &str,
    keys: &[Vec<u8>],
    pool_bytes: usize,
    threads: usize,
    silence_s: f64,
) -> PyResult<Config> {
    let keys = keys.iter().map(|key| Key::new(key)).collect();
    let mut config = Config::new(name, machine, keys, Pool::new(pool_bytes).map_err(os_error)?);
    config.threads = threads;
    if !SILENCE_S.contains(&silence_s) {
        return Err(PyValueError::new_err(format!("silence_s is {silence_s}, but must be within {SILENCE_S:?}")));
    }
    config.silence = seconds(silence_s)?;
    Ok(config)
}

/// Accept connections by TCP and, with a directory, on the same node, where guests may be other users. Returns the TCP
/// port.
pub(crate) fn listen(
    node: &Node,
    (rdma, encryption): (&Rdma, &Encryption),
    name: &str,
    (directory, for_guests): (Option<&Path>, bool),
    host: &str,
    port: u16,
) -> PyResult<u16> {
    let host = host.parse().map_err(|_| PyValueError::new_err("the host is not an IP address"))?;
    let acceptor = TcpAcceptor::bind(std::net::SocketAddr::new(host, port)).map_err(os_error)?;
    let port = acceptor.address().map_err(os_error)?.port();
    if let Some(directory) = directory {
        let acceptor = SameNodeAcceptor::bind(directory, name).map_err(os_error)?;
        if for_guests {
            acceptor.let_all_users_in().map_err(os_error)?;
        }
        node.listen(Box::new(acceptor));
    }
    node.listen(encryption.acceptor(rdma.acceptor(acceptor)));
    Ok(port)
}

/// Counters of each peer.
pub(crate) fn report<'py>(py: Python<'py>, node: &Node) -> PyResult<Vec<Bound<'py, PyDict>>> {
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
        dict.set_item("fetched_bytes", counters.fetched_bytes)?;
        dict.set_item("connects", counters.connects)?;
        dict.set_item("connect_failures", counters.connect_failures)?;
        dict.set_item("fallbacks", counters.fallbacks)?;
        dict.set_item("latency_us", counters.latency_us)?;
        dict.set_item("latency_buckets", counters.latency.to_vec())?;
        Ok(dict)
    };
    node.report().into_iter().map(of).collect()
}

/// This process's end.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct TransportNode {
    node: Node,
    events: Arc<Completions>,
    bodies: Bodies,
    groups: Groups,
    directory: Option<PathBuf>,
    name: String,
    rdma: Rdma,
    encryption: Encryption,
    uploads: Option<Arc<Uploads>>,
    ahead: Arc<Ahead>,
}

fn parts<'py>(py: Python<'py>, event: Event) -> PyResult<Parts<'py>> {
    let (kind, value) = match event.what {
        What::Sent(bytes) => ("sent", bytes.into_pyobject(py)?.into_any()),
        What::Reply { status, header, body_bytes, body, whole } => {
            let body = body.map(|body| PyBytes::new(py, &body));
            let reply = (status, PyBytes::new(py, &header), body_bytes, body, whole);
            ("reply", reply.into_pyobject(py)?.into_any())
        }
        What::Chunk(chunk) => {
            let bytes = PyBytes::new(py, &chunk);
            let window = Py::new(py, TransportWindow::new(chunk.into_window()))?;
            ("chunk", (bytes, window).into_pyobject(py)?.into_any())
        }
        What::End(footer) => ("end", PyBytes::new(py, &footer).into_any()),
        What::Failed(error) => ("failed", (kind(&error), error.to_string()).into_pyobject(py)?.into_any()),
    };
    Ok((event.token, kind, value))
}

#[pymethods]
impl TransportNode {
    #[new]
    #[pyo3(signature = (name, machine, keys, *, pool_bytes, threads = 1, socket_directory = None, rdma = false,
                        silence_s = 1.5, encryption = "none", authorities = None))]
    #[allow(clippy::too_many_arguments, reason = "settings, by name")]
    fn new(
        py: Python<'_>,
        name: String,
        machine: &str,
        keys: Vec<Vec<u8>>,
        pool_bytes: usize,
        threads: usize,
        socket_directory: Option<PathBuf>,
        rdma: bool,
        silence_s: f64,
        encryption: &str,
        authorities: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let config = config(&name, machine, &keys, pool_bytes, threads, silence_s)?;
        let encryption = match authorities {
            Some(authorities) => Encryption::of_guest(&authorities)?,
            None => Encryption::start(encryption, rdma, &keys, false)?,
        };
        // Without a key it is a guest, which shows servers on its machine its memory; members send them what they upload.
        let shows = keys.is_empty() && socket_directory.is_some();
        let by = if rdma { Some(Carrier::Rdma) } else { shows.then_some(Carrier::SameNode) };
        let uploads = by.map(|carrier| Arc::new(Uploads::new(&config.pool, carrier)));
        let rdma = py.detach(|| Rdma::start(rdma, &config)).map_err(os_error)?;
        let mut fabrics: Vec<Arc<dyn Fabric>> = Vec::new();
        if let Some(directory) = &socket_directory {
            fabrics.push(Arc::new(SameNodeFabric::new(directory)));
        }
        fabrics.push(encryption.fabric(rdma.fabric()));
        let node = Node::start(config, &fabrics, None).map_err(os_error)?;
        let events = Completions::new().map_err(os_error)?;
        let (bodies, groups) = (Bodies::new(&events), Groups::new(&events));
        let ahead = Ahead::new(pool_bytes as u64 / AHEAD_SHARE);
        Ok(Self { node, events, bodies, groups, directory: socket_directory, name, rdma, encryption, uploads, ahead })
    }

    /// Accept connections by TCP and, with a directory, on the same node. Returns the TCP port.
    #[pyo3(signature = (host, port, /))]
    fn listen(&self, host: &str, port: u16) -> PyResult<u16> {
        listen(&self.node, (&self.rdma, &self.encryption), &self.name, (self.directory.as_deref(), false), host, port)
    }

    /// Connect as a guest from now on, by this session and its secret.
    #[pyo3(signature = (session, secret, /))]
    fn set_session(&self, session: Bytes, secret: Bytes) -> PyResult<()> {
        let session = guest::Session::decode(session.as_slice());
        let session = session.map_err(|violation| PyValueError::new_err(violation.to_string()))?;
        self.node.set_session(session, Key::new(secret.as_slice()));
        Ok(())
    }

    /// Readable while there are events.
    fn fileno(&self) -> i32 {
        self.events.as_fd().as_raw_fd()
    }

    /// All events since the last call.
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Vec<Parts<'py>>> {
        let events = self.events.drain();
        let mut all = self.bodies.events(py)?;
        all.reserve(events.len());
        for event in events {
            all.push(parts(py, event)?);
        }
        all.extend(self.groups.told().into_iter().map(|token| (token, "answered", py.None().into_bound(py))));
        Ok(all)
    }

    /// A peer to make calls to; kept for the life of the node.
    #[pyo3(signature = (name, host, port, /))]
    fn peer(&self, name: String, host: Option<&str>, port: u16) -> PyResult<TransportPeer> {
        let host =
            host.map(str::parse).transpose().map_err(|_| PyValueError::new_err("the host is not an IP address"))?;
        let tcp = host.map(|host| std::net::SocketAddr::new(host, port));
        let sink = Arc::clone(&self.events) as Arc<dyn Sink>;
        let peer = self.node.peer(Address { name, tcp });
        Ok(TransportPeer::new(peer, sink, self.uploads.clone()))
    }

    /// Store a small object at all of these devices; an "answered" event tells that there is something to take.
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a version")]
    #[pyo3(signature = (token, targets, guest, place, version, footer, body, timeout_s, trace, /))]
    fn put(
        &self,
        token: u64,
        targets: Vec<Target<'_>>,
        guest: Option<(Vec<u8>, Vec<u8>)>,
        place: Place,
        version: VersionParts,
        footer: FooterParts,
        body: &Bound<'_, PyAny>,
        timeout_s: f64,
        trace: String,
    ) -> PyResult<TransportGroup> {
        let request = Request::Put { key: key(place), meta: meta_of(version), footer: Some(footer_of(footer)), row: 0 };
        let terms = Terms { timeout: seconds(timeout_s)?, trace, guest };
        writes::send(&self.groups, token, &targets, request, &payload(body)?, &terms)
    }

    /// Delete an object at all of these devices; an "answered" event tells that there is something to take.
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a deletion")]
    #[pyo3(signature = (token, targets, guest, place, timestamp, name, timeout_s, trace, /))]
    fn delete(
        &self,
        token: u64,
        targets: Vec<Target<'_>>,
        guest: Option<(Vec<u8>, Vec<u8>)>,
        place: Place,
        timestamp: u64,
        name: Vec<u8>,
        timeout_s: f64,
        trace: String,
    ) -> PyResult<TransportGroup> {
        let request = Request::Delete { key: key(place), timestamp, name, row: 0 };
        let terms = Terms { timeout: seconds(timeout_s)?, trace, guest };
        writes::send(&self.groups, token, &targets, request, &Chunk::from(Vec::new()), &terms)
    }

    /// Send messages with many requests each; an "answered" event tells that there is something to take.
    #[pyo3(signature = (token, messages, timeout_s, trace, /))]
    fn send_many(
        &self,
        token: u64,
        messages: Vec<(PyRef<'_, TransportPeer>, PyRef<'_, TransportMany>)>,
        timeout_s: f64,
        trace: &str,
    ) -> PyResult<TransportGroup> {
        many::send(&self.groups, token, &messages, timeout_s, trace)
    }

    /// Begin a run; a "sent" event tells a reader that found nothing that there are bytes, an "end" that it is over.
    #[pyo3(signature = (token, parts, timeout_s, trace, ahead_bytes, marks, /))]
    fn run(
        &self,
        token: u64,
        parts: Vec<RunPart<'_>>,
        timeout_s: f64,
        trace: String,
        ahead_bytes: u64,
        marks: (Vec<Vec<u8>>, Vec<Vec<u8>>),
    ) -> PyResult<TransportRun> {
        let sink = Arc::clone(&self.events) as Arc<dyn Sink>;
        let options = (seconds(timeout_s)?, trace, ahead_bytes, marks);
        TransportRun::start(parts, options, Arc::clone(&self.ahead), sink, token)
    }

    /// Write an object in a policy with erasure coding; "sent" when there may be room, "end" when the outcome is known.
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a version")]
    #[pyo3(signature = (token, places, version, generation, size, rows, waits, trace, /))]
    fn write_coded(
        &self,
        token: u64,
        places: PlacesParts<'_>,
        version: VersionParts,
        generation: u64,
        size: Option<u64>,
        rows: Vec<u32>,
        waits: WriteWaits,
        trace: String,
    ) -> PyResult<CodedWriting> {
        let sink = Arc::clone(&self.events) as Arc<dyn Sink>;
        CodedWriting::start(places, (meta_of(version), generation), size, (rows, waits, trace), (sink, token))
    }

    /// Write a small object as copies in a policy with erasure coding; "sent" when it counts, "end" when the outcome is
    /// known.
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a version")]
    #[pyo3(signature = (token, places, version, footer, body, rows, waits, trace, /))]
    fn write_small(
        &self,
        token: u64,
        places: PlacesParts<'_>,
        version: VersionParts,
        footer: FooterParts,
        body: &Bound<'_, PyAny>,
        rows: Vec<u32>,
        waits: StepWaits,
        trace: String,
    ) -> PyResult<CodedSmallWriting> {
        let sink = Arc::clone(&self.events) as Arc<dyn Sink>;
        let about = (meta_of(version), footer_of(footer), payload(body)?);
        CodedSmallWriting::start(places, about, (rows, waits, trace), (sink, token))
    }

    /// Delete an object in a policy with erasure coding; "sent" when it counts, "end" when the outcome is known.
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a deletion")]
    #[pyo3(signature = (token, places, timestamp, name, rows, waits, trace, /))]
    fn delete_coded(
        &self,
        token: u64,
        places: PlacesParts<'_>,
        timestamp: u64,
        name: Vec<u8>,
        rows: Vec<u32>,
        waits: StepWaits,
        trace: String,
    ) -> PyResult<CodedDeleting> {
        let sink = Arc::clone(&self.events) as Arc<dyn Sink>;
        CodedDeleting::start(places, (timestamp, name), (rows, waits, trace), (sink, token))
    }

    /// Post metadata to an object in a policy with erasure coding; "sent" when they count, "end" when the outcome is known.
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a POST")]
    #[pyo3(signature = (token, places, of, post, rows, waits, trace, /))]
    fn post_coded(
        &self,
        token: u64,
        places: PlacesParts<'_>,
        of: Option<u64>,
        post: PostParts,
        rows: Vec<u32>,
        waits: StepWaits,
        trace: String,
    ) -> PyResult<CodedPosting> {
        let sink = Arc::clone(&self.events) as Arc<dyn Sink>;
        CodedPosting::start(places, (of, post), (rows, waits, trace), (sink, token))
    }

    /// Read a range of an object in a policy with erasure coding; "sent" when there is news, "end" when it is over.
    #[allow(clippy::too_many_arguments, reason = "one crossing of the border for everything about a read")]
    #[pyo3(signature = (token, places, first, start, stop, waits, trace, /))]
    fn read_coded(
        &self,
        token: u64,
        places: PlacesParts<'_>,
        first: Vec<usize>,
        start: u64,
        stop: u64,
        waits: ReadWaits,
        trace: String,
    ) -> PyResult<CodedReading> {
        let sink = Arc::clone(&self.events) as Arc<dyn Sink>;
        CodedReading::start(places, &first, start..stop.max(start), (waits, trace), (sink, token))
    }

    /// Make the fragment that a place lacks; "end" when the outcome is known.
    #[pyo3(signature = (token, places, lack, waits, trace, /))]
    fn rebuild_coded(
        &self,
        token: u64,
        places: PlacesParts<'_>,
        lack: (usize, coded_repair::VersionParts, Vec<u8>),
        waits: (f64, f64),
        trace: &str,
    ) -> PyResult<CodedRebuilding> {
        let sink = Arc::clone(&self.events) as Arc<dyn Sink>;
        CodedRebuilding::start(places, lack, (waits, trace), (sink, token))
    }

    /// Have the chosen devices decide about a write, by a ballot; "end" when the outcome is known.
    #[pyo3(signature = (token, places, write, ballot, timeout_s, trace, /))]
    fn recover_coded(
        &self,
        token: u64,
        places: PlacesParts<'_>,
        write: (coded_repair::VersionParts, ChosenParts),
        ballot: (u32, u64),
        timeout_s: f64,
        trace: &str,
    ) -> PyResult<CodedRecovering> {
        let sink = Arc::clone(&self.events) as Arc<dyn Sink>;
        CodedRecovering::start(places, write, ballot, (timeout_s, trace), (sink, token))
    }

    /// Wait for memory: an event with the token follows, with nothing when the time is over.
    #[pyo3(signature = (token, size, timeout_s, /))]
    fn reserve(&self, token: u64, size: usize, timeout_s: f64) -> PyResult<()> {
        let (size, until) = (chunk_size(size)?, Instant::now() + seconds(timeout_s)?);
        self.node.pool().chunk_later(size, until, self.bodies.memory(token));
        Ok(())
    }

    /// Memory for an upload, if there is some.
    #[pyo3(signature = (size, /))]
    fn upload_buffer(&self, size: usize) -> Option<TransportBuffer> {
        self.node.pool().spare(size.max(1)).map(TransportBuffer::new)
    }

    /// Wait for memory for an upload.
    #[pyo3(signature = (token, size, timeout_s, /))]
    fn reserve_upload(&self, token: u64, size: usize, timeout_s: f64) -> PyResult<()> {
        let (size, until) = (chunk_size(size)?, Instant::now() + seconds(timeout_s)?);
        self.node.pool().upload_later(size, until, self.bodies.memory(token));
        Ok(())
    }

    /// Digest the rest of a stream on another thread.
    #[pyo3(signature = (token, hasher, /))]
    fn digester(&self, token: u64, hasher: PyRef<'_, Hasher>) -> PyResult<TransportDigester> {
        self.bodies.digester(token, &hasher)
    }

    /// Use these keys for handshakes from now on.
    #[pyo3(signature = (keys, /))]
    fn set_keys(&self, keys: Vec<Vec<u8>>) -> PyResult<()> {
        self.encryption.set_keys(&keys)?;
        self.node.set_keys(keys.iter().map(|key| Key::new(key)).collect());
        Ok(())
    }

    /// Counters of each peer.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        report(py, &self.node)
    }
}
