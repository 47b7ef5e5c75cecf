//! A GET of a large object: read and checked piece by piece by the device's threads, sent by the I/O thread.
//!
//! Fault model: a piece may be damaged, the device may fail, the receiver may be slow or gone. Nothing is sent before
//! it was checked; an answer that can't be continued ends without its END. At most [`AHEAD`] pieces wait. On a
//! connection that lends they are read directly into the lent memory, as long as half of it is free; otherwise, if the
//! device is a real one, they are ranges of a file, not memory.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use swiftlet_hash::{Digests, Hasher};
use swiftlet_store::Object;
use swiftlet_transport::{Body, FileRange, Next, Pool, Source, Waker};

use crate::device::{Device, Permit};
use crate::reply::Reply;
use crate::status::Refusal;

/// Pieces that are checked ahead of the one that is sent.
const AHEAD: usize = 2;
/// Pieces end at multiples of this, as the store's checksums do.
const PIECE: u64 = 1 << 20;

struct State {
    ready: VecDeque<Next>,
    at: u64,
    running: bool,
    /// All pieces are in `ready` or sent, or there will be no more.
    over: bool,
    /// xxh3 of what is sent, unless it is known before.
    hasher: Option<Hasher>,
}

struct Download {
    object: Object,
    stop: u64,
    /// The object's file and the offset of its data, if it is a real file.
    file: Option<(Arc<File>, u64)>,
    state: Mutex<State>,
    waker: Waker,
    lends: Option<Pool>,
    device: Arc<Device>,
    _permit: Permit,
}

struct Sending(Arc<Download>);

/// Bytes `[start, stop)` of an object as a body.
pub(crate) fn body(object: Object, start: u64, stop: u64, mut permit: Permit, reply: &Reply) -> Result<Body, Refusal> {
    let file = object.range()?.map(|range| (Arc::new(File::from(range.file)), range.offset));
    if file.is_none() {
        permit.hold(AHEAD * PIECE as usize)?;
    }
    let whole = start == 0 && stop == object.info().size;
    let hasher = (!whole).then(|| Hasher::new(Digests { md5: false, xxh3: true }));
    let state = State { ready: VecDeque::new(), at: start, running: false, over: false, hasher };
    let device = Arc::clone(&permit.device);
    let (waker, lends) = (reply.waker(), reply.lends().cloned());
    let download = Download { object, stop, file, state: Mutex::new(state), waker, lends, device, _permit: permit };
    Ok(Body::Source(Box::new(Sending(Arc::new(download))), Some(stop - start)))
}

impl Download {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Check pieces until enough wait.
    fn work(&self) {
        loop {
            let (at, mut hasher) = {
                let mut state = self.lock();
                if state.over || state.ready.len() >= AHEAD {
                    state.running = false;
                    return;
                }
                (state.at, state.hasher.take())
            };
            let bytes = (PIECE - at % PIECE).min(self.stop - at);
            // What is damaged has been set aside; the cut end tells the receiver.
            let next = self.piece(at, bytes, &mut hasher).unwrap_or(Next::Failed);
            let mut state = self.lock();
            let failed = matches!(next, Next::Failed);
            state.at = at + bytes;
            if !state.over {
                state.ready.push_back(next);
            }
            if !failed && state.at == self.stop {
                let sum = hasher.as_ref().and_then(Hasher::xxh3_64).unwrap_or(self.object.info().xxh3);
                state.ready.push_back(Next::End(sum.to_be_bytes().to_vec()));
            }
            state.over |= failed || state.at == self.stop;
            state.hasher = hasher;
            drop(state);
            self.waker.wake();
        }
    }

    /// Read and check a piece.
    fn piece(&self, at: u64, bytes: u64, hasher: &mut Option<Hasher>) -> swiftlet_store::Result<Next> {
        if let Some(mut buffer) = self.lends.as_ref().and_then(|pool| pool.spare(bytes as usize))
            && self.object.read_into(at, buffer.as_mut_slice())?
        {
            hasher.iter_mut().for_each(|hasher| hasher.update(buffer.as_mut_slice()));
            return Ok(Next::Chunk(buffer.freeze(bytes as usize)));
        }
        let data = self.object.read(at, bytes)?;
        hasher.iter_mut().for_each(|hasher| hasher.update(&data));
        Ok(match &self.file {
            Some((file, start)) => Next::File(FileRange { file: Arc::clone(file), offset: start + at, bytes }),
            None => Next::Chunk(data.into()),
        })
    }
}

impl Source for Sending {
    fn next(&mut self) -> Next {
        let mut state = self.0.lock();
        let next = state.ready.pop_front().unwrap_or(Next::Later);
        if !state.over && !state.running && state.ready.len() < AHEAD {
            state.running = true;
            drop(state);
            let download = Arc::clone(&self.0);
            self.0.device.run(move || download.work());
        }
        next
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.over = true;
        state.ready.clear();
    }
}
