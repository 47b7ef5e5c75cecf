//! The body of a PUT that is too long for the connection's own memory: it is received into the transport's memory, from
//! which it is sent to all devices. Its xxh3 is computed while it comes.
//!
//! A body of several MiB has memory in pieces of 1 MiB, all of it from its beginning on, so that it never waits for more
//! in the middle. If its MD5 is needed, other threads compute it piece by piece: the thread of all connections would be
//! busy with it for too long.
//!
//! Fault model: memory may be short: then others receive the body, as they do when it takes too long.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use swiftlet_hash::beside::{Stream, Threads};
use swiftlet_hash::{Digests, Hasher, md5, xxh3_64, xxh3_128};
use swiftlet_transport::{Buffer, Chunk, Pool};

use crate::head::PIECE;
use crate::shared::lock;

/// How long a body may hold memory before it is complete.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// After so long it is known how fast a client sends.
const PACE_KNOWN: Duration = Duration::from_millis(500);

/// MD5 of a body, computed beside the thread.
struct Digesting {
    stream: Stream,
    hasher: Arc<Mutex<Hasher>>,
    is_done: Arc<AtomicBool>,
    /// Called once all is digested.
    tell: Option<Box<dyn FnOnce() + Send>>,
}

impl Digesting {
    fn update(&mut self, piece: &Chunk, is_last: bool) {
        let (done, tell) = (Arc::clone(&self.is_done), if is_last { self.tell.take() } else { None });
        let then = move || {
            if let Some(tell) = tell {
                done.store(true, Ordering::Release);
                tell();
            }
        };
        self.stream.update(Box::new(piece.clone()), Box::new(then));
    }
}

/// A long body, or its beginning.
pub(crate) struct Body {
    /// Bytes of the head before it.
    pub(crate) head: usize,
    /// Bytes of all of it.
    bytes: usize,
    /// What has come, in pieces that are full.
    pieces: Vec<Chunk>,
    /// Memory for the rest, of which the first piece is being filled.
    filling: VecDeque<Buffer>,
    /// Of the bytes that have come.
    hasher: Hasher,
    digesting: Option<Digesting>,
    begun: Instant,
}

impl Body {
    /// Memory for the body of so many bytes behind a head of `head` bytes; None if there is none now.
    pub(crate) fn begin(pool: &Pool, head: usize, bytes: usize, now: Instant) -> Option<Self> {
        let sizes = (0..bytes).step_by(PIECE).map(|start| PIECE.min(bytes - start));
        let filling = sizes.map(|size| pool.spare(size)).collect::<Option<VecDeque<_>>>()?;
        let hasher = Hasher::new(Digests { md5: false, xxh3: true });
        Some(Self { head, bytes, pieces: Vec::new(), filling, hasher, digesting: None, begun: now })
    }

    /// Have these threads compute its MD5, and call `tell` once they have.
    pub(crate) fn digested_by(self, threads: &Threads, tell: Box<dyn FnOnce() + Send>) -> Self {
        let hasher = Arc::new(Mutex::new(Hasher::new(Digests { md5: true, xxh3: false })));
        let stream = threads.stream(Arc::clone(&hasher));
        let digesting = Digesting { stream, hasher, is_done: Arc::default(), tell: Some(tell) };
        Self { digesting: Some(digesting), ..self }
    }

    /// Whether it has taken too long, or, of several pieces, will at the client's pace.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        let taken = now.saturating_duration_since(self.begun);
        let will_be = || {
            let come = self.hasher.size() as f64 / self.bytes.max(1) as f64;
            self.bytes > PIECE && taken > PACE_KNOWN && taken.as_secs_f64() > come * PATIENCE.as_secs_f64()
        };
        !self.is_whole() && (taken > PATIENCE || will_be())
    }

    /// Whether all of it has come.
    pub(crate) fn is_whole(&self) -> bool {
        self.filling.is_empty()
    }

    /// Whether its MD5 is being computed beside the thread.
    pub(crate) fn is_being_digested(&self) -> bool {
        self.digesting.as_ref().is_some_and(|one| !one.is_done.load(Ordering::Acquire))
    }

    /// All of it, once it is complete, if it is one piece.
    pub(crate) fn only_piece(&self) -> Option<&Chunk> {
        self.pieces.first().filter(|_| self.is_whole() && self.pieces.len() == 1)
    }

    /// Where its next bytes belong.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let filled = self.filled_of_piece();
        self.filling.front_mut().map_or(&mut [], |buffer| &mut buffer.as_mut_slice()[filled..])
    }

    /// Note that so many more bytes are where they belong.
    pub(crate) fn filled(&mut self, bytes: usize) {
        let from = self.filled_of_piece();
        let Some(mut buffer) = self.filling.pop_front() else { return };
        self.hasher.update(&buffer.as_mut_slice()[from..from + bytes]);
        let length = buffer.len();
        if from + bytes < length {
            self.filling.push_front(buffer);
            return;
        }
        let piece = buffer.freeze(length);
        if let Some(digesting) = &mut self.digesting {
            digesting.update(&piece, self.filling.is_empty());
        }
        self.pieces.push(piece);
    }

    fn filled_of_piece(&self) -> usize {
        (self.hasher.size() as usize).saturating_sub(self.pieces.len() * PIECE)
    }

    /// How many bytes have come.
    #[cfg(test)]
    pub(crate) fn come_bytes(&self) -> u64 {
        self.hasher.size()
    }

    /// Append the bytes that have come.
    pub(crate) fn put_into(mut self, out: &mut Vec<u8>) {
        let filled = if self.is_whole() { 0 } else { self.filled_of_piece() };
        out.reserve(self.hasher.size() as usize);
        self.pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        if let Some(buffer) = self.filling.front_mut() {
            out.extend_from_slice(&buffer.as_mut_slice()[..filled]);
        }
    }

    fn md5(&self) -> [u8; 16] {
        if let Some(digesting) = &self.digesting {
            let hasher = lock(&digesting.hasher);
            if let Some(md5) = hasher.md5().filter(|_| hasher.size() == self.bytes as u64) {
                return md5;
            }
        }
        let mut hasher = Hasher::new(Digests { md5: true, xxh3: false });
        self.pieces.iter().for_each(|piece| hasher.update(piece));
        hasher.md5().unwrap_or_else(|| md5(&[]))
    }
}

/// A complete body: a short one as it was read, or a long one.
pub(crate) struct Content<'a> {
    /// A short one.
    bytes: &'a [u8],
    long: Option<&'a Body>,
    md5: Option<[u8; 16]>,
}

impl<'a> Content<'a> {
    /// The body behind a head of `head` bytes, of `bytes` in all; None if it is not complete. `md5` is its MD5, if
    /// somebody has computed it.
    pub(crate) fn of(
        read: &'a [u8],
        long: Option<&'a Body>,
        (head, bytes): (usize, usize),
        md5: Option<[u8; 16]>,
    ) -> Option<Self> {
        let bytes = match long {
            Some(long) if !long.is_whole() => return None,
            Some(_) => &[],
            None => read.get(head..head + bytes)?,
        };
        Some(Self { bytes, long, md5 })
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.long.map_or(self.bytes.len(), |long| long.bytes)
    }

    /// How many of them are among those that were read with the head.
    pub(crate) fn read_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn md5(&self) -> [u8; 16] {
        self.md5.unwrap_or_else(|| self.long.map_or_else(|| md5(self.bytes), Body::md5))
    }

    pub(crate) fn xxh3_64(&self) -> u64 {
        self.long.and_then(|long| long.hasher.xxh3_64()).unwrap_or_else(|| xxh3_64(self.bytes))
    }

    pub(crate) fn xxh3_128(&self) -> u128 {
        self.long.and_then(|long| long.hasher.xxh3_128()).unwrap_or_else(|| xxh3_128(self.bytes))
    }

    /// The bytes, to be sent: of a long body without a copy.
    pub(crate) fn pieces(&self) -> Vec<Chunk> {
        match self.long {
            Some(long) => long.pieces.clone(),
            None => vec![Chunk::from(self.bytes.to_vec())],
        }
    }
}
