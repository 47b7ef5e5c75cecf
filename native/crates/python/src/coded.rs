//! Objects with erasure coding for Python: a body is given piece by piece, a range is taken chunk by chunk.
//!
//! Fault model: that of `swiftlet_node::coded`. A writer that is dropped before its body's end leaves nothing; a reader
//! that does not come holds what was passed on, which has a limit of its own.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_erasure::Scheme;
use swiftlet_fragments::deletion::Deleted;
use swiftlet_fragments::posting::Posted;
use swiftlet_fragments::write::Verdict;
use swiftlet_node::Failure;
use swiftlet_node::coded::{
    Deleting, Devices, HEDGE, Owed, Places, Posting, ReadEnd, ReadOptions, Reading, Room, SmallWriting, StepOptions,
    WriteOptions, Writing,
};
use swiftlet_store::model::{Footer, Pairs, PostMeta, PutMeta};
use swiftlet_transport::{Chunk, Sink};

use crate::buffer::Bytes;
use crate::inbox::Inbox;
use crate::peers::TransportPeer;
use crate::store::{InfoParts, Place, key, parts};
use crate::values::{FailedParts, RefusedParts, failure_parts, seconds};

/// Cells are joined up to this size: Python has as much to do for each piece, however small.
const JOINED_BYTES: usize = 1 << 20;

/// The devices of a ring, and what they have said of themselves.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct CodedDevices(Arc<Devices>);

impl CodedDevices {
    pub(crate) fn devices(&self) -> Arc<Devices> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl CodedDevices {
    #[new]
    #[pyo3(signature = (targets, /))]
    fn new(targets: Vec<Option<(PyRef<'_, TransportPeer>, String)>>) -> Self {
        let target = |(peer, device): (PyRef<'_, TransportPeer>, String)| (peer.peer(), device);
        Self(Devices::new(targets.into_iter().map(|one| one.map(target)).collect()))
    }
}

/// The ring's devices, the object's place in the ring, k, m and bytes of a cell, the device at each place, spares.
pub(crate) type PlacesParts<'py> = (PyRef<'py, CodedDevices>, Place, (usize, usize, usize), Vec<u32>, Vec<u32>);

pub(crate) fn places_of((devices, place, (data, parity, cell_bytes), at, spares): PlacesParts<'_>) -> PyResult<Places> {
    let scheme = Scheme::new(data, parity).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Places::new(Arc::clone(&devices.0), key(place), (scheme, cell_bytes), at, spares).map_err(PyValueError::new_err)
}

/// Seconds: of each request, of the body, until a spare is asked, that a device may stand still.
pub(crate) type WriteWaits = (f64, f64, f64, f64);

/// Seconds: of each request, and for which the others are waited for once it counts.
pub(crate) type StepWaits = (f64, f64);

/// Seconds of each request, the number of places that may stand in for those that are late, bytes that may wait for the
/// reader, and whether small objects of the policy are copies.
pub(crate) type ReadWaits = (f64, usize, u64, bool);

/// A device by its number, and why it had no good answer.
pub(crate) type Refused<'py> = (u32, FailedParts, RefusedParts<'py>);

pub(crate) fn refused<'py>(py: Python<'py>, all: &[(u32, Failure)]) -> Vec<Refused<'py>> {
    let one = |(device, failure): &(u32, Failure)| {
        let (failed, refusal) = failure_parts(py, failure);
        (*device, failed, refusal)
    };
    all.iter().map(one).collect()
}

/// An operation until it is dropped.
type Held<T> = Mutex<Option<T>>;

fn lock<T>(held: &Held<T>) -> MutexGuard<'_, Option<T>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A write on its way; before its body's end it is cancelled when nothing refers to it any more.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct CodedWriting(Held<Writing>);

impl CodedWriting {
    pub(crate) fn start(
        places: PlacesParts<'_>,
        version: (PutMeta, u64),
        size: Option<u64>,
        (rows, (timeout, body_timeout, choose, lag), trace): (Vec<u32>, WriteWaits, String),
        sink: (Arc<dyn Sink>, u64),
    ) -> PyResult<Self> {
        let options = WriteOptions {
            timeout: seconds(timeout)?,
            body_timeout: seconds(body_timeout)?,
            choose: seconds(choose)?,
            lag: seconds(lag)?,
            rows,
            trace,
        };
        let writing = Writing::start(places_of(places)?, version, size, options, sink);
        Ok(Self(Mutex::new(Some(writing.map_err(PyValueError::new_err)?))))
    }
}

/// The number of a place, and the number of the device that has a container update pending for it.
type Pending = (usize, u32);

fn pending(all: &[Owed]) -> Vec<Pending> {
    all.iter().map(|owed| (owed.place, owed.device)).collect()
}

/// Its verdict, the timestamp of something newer, how many devices have it, its size, whether it is too large, and why
/// devices don't have it.
type WriteEnded<'py> = (&'static str, Option<u64>, usize, u64, bool, Vec<Refused<'py>>);

#[pymethods]
impl CodedWriting {
    /// Seconds to wait before the next bytes: 0 for none; None when the write has ended.
    fn turn(&self) -> Option<f64> {
        match lock(&self.0).as_ref()?.turn() {
            Room::Now => Some(0.0),
            // Never none: that would be room.
            Room::Later(wait) => Some(wait.max(Duration::from_millis(1)).as_secs_f64()),
            Room::Over => None,
        }
    }

    /// Give up to 1 MiB. False: there is no room for them.
    #[pyo3(signature = (data, /))]
    fn push(&self, data: Bytes) -> bool {
        lock(&self.0).as_ref().is_some_and(|writing| writing.push(data.as_slice()).is_ok())
    }

    /// The body is complete. False: there is no room yet.
    #[pyo3(signature = (etag, /))]
    fn finish(&self, etag: Bytes) -> bool {
        lock(&self.0).as_ref().is_some_and(|writing| writing.finish(etag.as_slice()).is_ok())
    }

    /// How it has ended.
    fn ended<'py>(&self, py: Python<'py>) -> Option<WriteEnded<'py>> {
        let end = lock(&self.0).as_ref()?.end()?;
        let past = end.past.map(|version| version.timestamp);
        Some((named(end.verdict), past, end.prepared, end.object_bytes, end.too_large, refused(py, &end.refused)))
    }

    /// The container updates that devices have pending by now, also after its end.
    fn pending(&self) -> Vec<Pending> {
        lock(&self.0).as_ref().map_or_else(Vec::new, |writing| pending(&writing.owed()))
    }

    /// Wait for nothing any more; before the body's end nothing remains of it.
    fn close(&self) {
        drop(lock(&self.0).take());
    }
}

/// A small object on its way; its copies stay when nothing refers to it any more.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct CodedSmallWriting(Held<SmallWriting>);

impl CodedSmallWriting {
    pub(crate) fn start(
        places: PlacesParts<'_>,
        about: (PutMeta, Footer, Chunk),
        (rows, (timeout, after_quorum), trace): (Vec<u32>, StepWaits, String),
        sink: (Arc<dyn Sink>, u64),
    ) -> PyResult<Self> {
        let (timeout, after_quorum) = (seconds(timeout)?, seconds(after_quorum)?);
        let options = StepOptions { timeout, after_quorum, rows, trace };
        Ok(Self(Mutex::new(Some(SmallWriting::start(places_of(places)?, about, options, sink)))))
    }
}

/// Its verdict, the timestamp of something newer, how many copies there are, which container updates are pending, and why
/// devices don't have it.
type SmallEnded<'py> = (&'static str, Option<u64>, usize, Vec<Pending>, Vec<Refused<'py>>);

#[pymethods]
impl CodedSmallWriting {
    /// Time has passed. Seconds after which to call again.
    fn turn(&self) -> Option<f64> {
        Some(lock(&self.0).as_ref()?.turn().as_secs_f64())
    }

    /// How it has ended.
    fn ended<'py>(&self, py: Python<'py>) -> Option<SmallEnded<'py>> {
        let writing = lock(&self.0);
        let writing = writing.as_ref()?;
        let end = writing.end()?;
        let refused = refused(py, &writing.refused());
        Some((named(end.verdict), end.past, end.copies, pending(&writing.owed()), refused))
    }

    /// Wait for nothing any more.
    fn close(&self) {
        drop(lock(&self.0).take());
    }
}

fn named(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Acknowledged => "acknowledged",
        Verdict::Failed => "failed",
        Verdict::Unknown => "unknown",
    }
}

/// A deletion on its way; its tombstones stay when nothing refers to it any more.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct CodedDeleting(Held<Deleting>);

impl CodedDeleting {
    pub(crate) fn start(
        places: PlacesParts<'_>,
        about: (u64, Vec<u8>),
        (rows, (timeout, after_quorum), trace): (Vec<u32>, StepWaits, String),
        sink: (Arc<dyn Sink>, u64),
    ) -> PyResult<Self> {
        let (timeout, after_quorum) = (seconds(timeout)?, seconds(after_quorum)?);
        let options = StepOptions { timeout, after_quorum, rows, trace };
        Ok(Self(Mutex::new(Some(Deleting::start(places_of(places)?, about, options, sink)))))
    }
}

/// Its verdict, whether there was an object, the timestamp of a newer one, which container updates are pending, and why
/// devices don't have it.
type DeleteEnded<'py> = (&'static str, bool, Option<u64>, Vec<Pending>, Vec<Refused<'py>>);

#[pymethods]
impl CodedDeleting {
    /// Time has passed. Seconds after which to call again.
    fn turn(&self) -> Option<f64> {
        Some(lock(&self.0).as_ref()?.turn().as_secs_f64())
    }

    /// How it has ended.
    fn ended<'py>(&self, py: Python<'py>) -> Option<DeleteEnded<'py>> {
        let deleting = lock(&self.0);
        let deleting = deleting.as_ref()?;
        let (verdict, existed, newer) = match deleting.end()? {
            Deleted::Done { existed } => ("acknowledged", existed, None),
            Deleted::Superseded(timestamp) => ("superseded", true, Some(timestamp)),
            Deleted::Unknown => ("unknown", true, None),
        };
        Some((verdict, existed, newer, pending(&deleting.owed()), refused(py, &deleting.refused())))
    }

    /// Wait for nothing any more.
    fn close(&self) {
        drop(lock(&self.0).take());
    }
}

/// Metadata: their timestamp, when the object expires, pairs, the content type if they set it, and its timestamp.
pub(crate) type PostParts = (u64, u64, Pairs, Option<Vec<u8>>, u64);

/// Metadata on their way; where they are they stay when nothing refers to this any more.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct CodedPosting(Held<Posting>);

impl CodedPosting {
    pub(crate) fn start(
        places: PlacesParts<'_>,
        (of, post): (Option<u64>, PostParts),
        (rows, (timeout, after_quorum), trace): (Vec<u32>, StepWaits, String),
        sink: (Arc<dyn Sink>, u64),
    ) -> PyResult<Self> {
        let (timeout, after_quorum) = (seconds(timeout)?, seconds(after_quorum)?);
        let options = StepOptions { timeout, after_quorum, rows, trace };
        let (timestamp, delete_at, metadata, content_type, content_type_timestamp) = post;
        let meta = PostMeta { timestamp, metadata, content_type, content_type_timestamp, delete_at };
        let places = places_of(places)?;
        let posting = match of {
            Some(of) => Posting::start(places, (of, meta), options, sink),
            None => Posting::start_small(places, meta, options, sink),
        };
        Ok(Self(Mutex::new(Some(posting))))
    }
}

/// Their verdict, the timestamp of what is newer or of the deletion, the object since, which container updates are
/// pending, and why devices don't have them.
type PostEnded<'py> = (&'static str, Option<u64>, Option<InfoParts>, Vec<Pending>, Vec<Refused<'py>>);

#[pymethods]
impl CodedPosting {
    /// Time has passed. Seconds after which to call again.
    fn turn(&self) -> Option<f64> {
        Some(lock(&self.0).as_ref()?.turn().as_secs_f64())
    }

    /// How it has ended.
    fn ended<'py>(&self, py: Python<'py>) -> Option<PostEnded<'py>> {
        let posting = lock(&self.0);
        let posting = posting.as_ref()?;
        let (verdict, newer) = match posting.end()? {
            Posted::Done => ("acknowledged", None),
            Posted::Superseded(timestamp) => ("superseded", Some(timestamp)),
            Posted::Deleted(timestamp) => ("deleted", Some(timestamp)),
            Posted::Unknown => ("unknown", None),
        };
        let info = posting.info().map(parts);
        Some((verdict, newer, info, pending(&posting.owed()), refused(py, &posting.refused())))
    }

    /// Wait for nothing any more.
    fn close(&self) {
        drop(lock(&self.0).take());
    }
}

/// A read on its way; nothing more is asked for when nothing refers to it any more.
#[pyclass(frozen, module = "swiftlet_native")]
pub(crate) struct CodedReading {
    reading: Held<Reading>,
    inbox: Arc<Inbox>,
}

impl CodedReading {
    pub(crate) fn start(
        places: PlacesParts<'_>,
        first: &[usize],
        range: Range<u64>,
        ((timeout, sound, ahead_bytes, small), trace): (ReadWaits, String),
        (sink, token): (Arc<dyn Sink>, u64),
    ) -> PyResult<Self> {
        let options = ReadOptions { timeout: seconds(timeout)?, hedge: Some(HEDGE), sound, ahead_bytes, small, trace };
        let inbox = Inbox::new(sink, token, false, JOINED_BYTES);
        let to = Arc::clone(&inbox) as Arc<dyn Sink>;
        let reading = Reading::start(places_of(places)?, first, range, options, (to, token));
        Ok(Self { reading: Mutex::new(Some(reading)), inbox })
    }
}

#[pymethods]
impl CodedReading {
    /// The next bytes, small chunks joined; None when there are none yet, and never twice without an event between.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let Some((bytes, pieces)) = self.inbox.take(py)? else { return Ok(None) };
        drop(pieces);
        if let Some(reading) = &*lock(&self.reading) {
            reading.taken(bytes.as_bytes().len() as u64);
        }
        Ok(Some(bytes))
    }

    /// Copy waiting bytes and release their memory, as the reader may not come for a while.
    fn copy(&self, py: Python<'_>) {
        self.inbox.copy(py);
        if let Some(reading) = &*lock(&self.reading) {
            py.detach(|| reading.copy());
        }
    }

    /// Time has passed: ask others for what is late. Seconds after which it is to be called again.
    fn turn(&self) -> Option<f64> {
        Some(lock(&self.reading).as_ref()?.turn().as_secs_f64())
    }

    /// What the object is, once it is known, with the newest metadata; the xxh3 of its bytes is not known.
    fn info(&self) -> Option<InfoParts> {
        Some(parts(lock(&self.reading).as_ref()?.description()?))
    }

    /// Whether the object is a small one, which lies as copies; once it is known what it is.
    fn is_small(&self) -> bool {
        lock(&self.reading).as_ref().is_some_and(Reading::is_copy)
    }

    /// How often others were asked in the place of a device that was late.
    fn hedges(&self) -> u64 {
        lock(&self.reading).as_ref().map_or(0, Reading::hedges)
    }

    /// How it has ended, the timestamp of the deletion, and why devices gave no answer.
    fn ended<'py>(&self, py: Python<'py>) -> Option<(&'static str, Option<u64>, Vec<Refused<'py>>)> {
        let reading = lock(&self.reading);
        let reading = reading.as_ref()?;
        let (end, deleted) = match reading.end()? {
            ReadEnd::Whole => ("whole", None),
            ReadEnd::NotFound(deletion) => ("not-found", deletion.map(|version| version.timestamp)),
            ReadEnd::Unavailable => ("unavailable", None),
            ReadEnd::Cut => ("cut", None),
        };
        Some((end, deleted, refused(py, &reading.refused())))
    }

    /// Ask for nothing more, and drop what has come.
    fn close(&self) {
        drop(lock(&self.reading).take());
        drop(self.inbox.all());
    }
}
