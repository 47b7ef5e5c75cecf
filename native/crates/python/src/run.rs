//! Runs for Python: bytes of many objects, which it takes chunk by chunk.
//!
//! Received bytes stay where they are until they are taken: then they are copied, so they are in the cache when they
//! are written to the client's socket, and in the same turn the sender gets its window back and is asked for more.
//! Only a reader that waits is woken.
//!
//! Fault model: that of `swiftlet_node::Run`. A reader that does not come would keep the memory from others, so its
//! owner has the bytes copied after a while ([`TransportRun::copy`]); the sender's window stays in use.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_node::{Ahead, Failure, Marks, Part, Run, RunOptions};
use swiftlet_transport::{Chunk, Event, Sink, What, Window};

use crate::peers::TransportPeer;
use crate::store::{Place, key};
use crate::values::kind;

/// Peer, device, place, start, stop, size, ETag, whether it must have none of the marks.
pub(crate) type RunPart<'py> = (Bound<'py, TransportPeer>, String, Place, u64, u64, Option<u64>, Option<Vec<u8>>, bool);

/// Seconds of each request, the requests' id, bytes to request ahead, marks in metadata and system metadata.
pub(crate) type Options = (Duration, String, u64, (Vec<Vec<u8>>, Vec<Vec<u8>>));

/// Small chunks are joined up to this size.
const JOINED_BYTES: usize = 256 << 10;

/// Bytes that were not taken yet.
enum Piece {
    Here(Chunk),
    Copied { bytes: Py<PyBytes>, size: usize, _window: Window },
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Here(chunk) => chunk.len(),
            Self::Copied { size, .. } => *size,
        }
    }
}

#[derive(Default)]
struct Waiting {
    pieces: VecDeque<Piece>,
    /// The reader has found nothing, and is told of the next piece.
    is_awaited: bool,
}

/// The bytes between the run and its reader.
struct Inbox {
    waiting: Mutex<Waiting>,
    events: Arc<dyn Sink>,
    token: u64,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first piece, with further small ones after it; none: the reader waits.
    fn next(&self) -> Vec<Piece> {
        let mut waiting = self.lock();
        let mut bytes = 0;
        let fits = |piece: &&Piece| {
            bytes += piece.len();
            bytes <= JOINED_BYTES
        };
        let count = waiting.pieces.iter().take_while(fits).count().max(1).min(waiting.pieces.len());
        waiting.is_awaited = count == 0;
        waiting.pieces.drain(..count).collect()
    }

    /// All pieces, for a caller that puts them back or drops them.
    fn all(&self) -> VecDeque<Piece> {
        std::mem::take(&mut self.lock().pieces)
    }

    /// Put pieces back before those that have come since.
    fn put_back(&self, mut pieces: VecDeque<Piece>) {
        let mut waiting = self.lock();
        pieces.append(&mut waiting.pieces);
        waiting.pieces = pieces;
    }
}

impl Sink for Inbox {
    fn events(&self, events: &mut Vec<Event>) {
        let mut told = Vec::new();
        let mut waiting = self.lock();
        for event in events.drain(..) {
            match event.what {
                What::Chunk(chunk) => waiting.pieces.push_back(Piece::Here(chunk)),
                _ => told.push(event),
            }
        }
        if waiting.is_awaited && !waiting.pieces.is_empty() {
            waiting.is_awaited = false;
            told.insert(0, Event { token: self.token, what: What::Sent(0) });
        }
        drop(waiting);
        if !told.is_empty() {
            self.events.events(&mut told);
        }
    }
}

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
        let waiting = Mutex::new(Waiting { is_awaited: true, ..Waiting::default() });
        let inbox = Arc::new(Inbox { waiting, events, token });
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
type Ended<'py> = (usize, u64, Bound<'py, PyBytes>, Option<(&'static str, String)>, Option<(u16, Bound<'py, PyBytes>)>);

#[pymethods]
impl TransportRun {
    /// The next bytes, small chunks joined; None when there are none yet, and never twice without an event between.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let pieces = self.inbox.next();
        let bytes = match &pieces[..] {
            [] => return Ok(None),
            [Piece::Here(chunk)] => PyBytes::new(py, chunk),
            [Piece::Copied { bytes, .. }] => bytes.bind(py).clone(),
            pieces => PyBytes::new_with(py, pieces.iter().map(Piece::len).sum(), |mut to| {
                for piece in pieces {
                    let bytes: &[u8] = match piece {
                        Piece::Here(chunk) => chunk,
                        Piece::Copied { bytes, .. } => bytes.as_bytes(py),
                    };
                    let (here, rest) = to.split_at_mut(bytes.len());
                    here.copy_from_slice(bytes);
                    to = rest;
                }
                Ok(())
            })?,
        };
        let count = pieces.iter().map(|piece| piece.len() as u64).sum();
        // One behind the other, so that the transport's thread is woken once for both.
        drop(pieces);
        self.run.taken(count);
        Ok(Some(bytes))
    }

    /// Copy waiting bytes and release their memory, as the reader may not come for a while.
    fn copy(&self, py: Python<'_>) {
        let copied = |piece| match piece {
            Piece::Here(chunk) => {
                let (bytes, size) = (PyBytes::new(py, &chunk).unbind(), chunk.len());
                Piece::Copied { bytes, size, _window: chunk.into_window() }
            }
            piece @ Piece::Copied { .. } => piece,
        };
        // The transport's thread does not wait as long.
        let pieces = self.inbox.all();
        self.inbox.put_back(pieces.into_iter().map(copied).collect());
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
            Some(Failure::Lost(error)) => (Some((kind(&error), error.to_string())), None),
            Some(Failure::Damaged(what)) => (Some(("remote", what.to_owned())), None),
            Some(Failure::Refused(refusal)) => {
                (None, Some((refusal.status as u16, PyBytes::new(py, &refusal.encode()))))
            }
        };
        Some((end.done, end.sent, PyBytes::new(py, &end.found), failed, refused))
    }
}

impl Drop for TransportRun {
    fn drop(&mut self) {
        self.close();
    }
}
