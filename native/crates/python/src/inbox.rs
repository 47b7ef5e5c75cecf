//! Bytes between native code and a reader in Python, which takes them chunk by chunk.
//!
//! Received bytes stay where they are until they are taken: then they are copied, so they are in the cache when they
//! are written to the client's socket. Only a reader that waits is woken.
//!
//! Fault model: a reader that does not come would keep the memory from others, so its owner has the bytes copied after
//! a while ([`Inbox::copy`]); the sender's window stays in use.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swiftlet_transport::{Chunk, Event, Sink, What, Window};

use crate::chunks::TransportChunk;

/// Bytes that were not taken yet.
pub(crate) enum Piece {
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

/// What was not taken yet.
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    /// Small chunks are joined up to this size.
    joined_bytes: usize,
    events: Arc<dyn Sink>,
    token: u64,
}

impl Inbox {
    /// An empty one; other events than chunks go on to `events`, and a "sent" with the token if the reader waits.
    pub(crate) fn new(events: Arc<dyn Sink>, token: u64, is_awaited: bool, joined_bytes: usize) -> Arc<Self> {
        let waiting = Mutex::new(Waiting { is_awaited, ..Waiting::default() });
        Arc::new(Self { waiting, joined_bytes, events, token })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first piece, with further small ones after it; none: the reader waits.
    fn next(&self) -> Vec<Piece> {
        let mut waiting = self.lock();
        let mut bytes = 0;
        let fits = |piece: &&Piece| {
            bytes += piece.len();
            bytes <= self.joined_bytes
        };
        let count = waiting.pieces.iter().take_while(fits).count().max(1).min(waiting.pieces.len());
        waiting.is_awaited = count == 0;
        waiting.pieces.drain(..count).collect()
    }

    /// The next bytes, small chunks joined, and what has to be dropped for the sender's window, in this turn; None: the
    /// reader waits.
    pub(crate) fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyBytes>, Vec<Piece>)>> {
        let pieces = self.next();
        let bytes = match &pieces[..] {
            [] => return Ok(None),
            [Piece::Here(chunk)] => PyBytes::new(py, chunk),
            [Piece::Copied { bytes, .. }] => bytes.bind(py).clone(),
            pieces => joined(py, pieces)?,
        };
        Ok(Some((bytes, pieces)))
    }

    /// Copy waiting bytes and release their memory, as the reader may not come for a while.
    pub(crate) fn copy(&self, py: Python<'_>) {
        let copied = |piece| match piece {
            Piece::Here(chunk) => {
                let (bytes, size) = (PyBytes::new(py, &chunk).unbind(), chunk.len());
                Piece::Copied { bytes, size, _window: chunk.into_window() }
            }
            piece @ Piece::Copied { .. } => piece,
        };
        // The transport's thread does not wait as long.
        let pieces = self.all();
        self.put_back(pieces.into_iter().map(copied).collect());
    }

    /// All pieces, for a caller that puts them back or drops them.
    pub(crate) fn all(&self) -> VecDeque<Piece> {
        std::mem::take(&mut self.lock().pieces)
    }

    /// Put pieces back before those that have come since.
    fn put_back(&self, mut pieces: VecDeque<Piece>) {
        let mut waiting = self.lock();
        pieces.append(&mut waiting.pieces);
        waiting.pieces = pieces;
    }
}

/// The bytes of several pieces, joined by Python: memory that `PyBytes::new_with` gives would be filled with zeros first.
fn joined<'py>(py: Python<'py>, pieces: &[Piece]) -> PyResult<Bound<'py, PyBytes>> {
    let part = |piece: &Piece| match piece {
        Piece::Here(chunk) => Ok(TransportChunk(chunk.clone()).into_pyobject(py)?.into_any()),
        Piece::Copied { bytes, .. } => Ok(bytes.bind(py).clone().into_any()),
    };
    let parts = pieces.iter().map(part).collect::<PyResult<Vec<_>>>()?;
    Ok(PyBytes::new(py, b"").call_method1("join", (parts,))?.cast_into()?)
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
