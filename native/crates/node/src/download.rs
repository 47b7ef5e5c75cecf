//! A GET of a large object: checked piece by piece by the device's threads, sent by the I/O thread.
//!
//! Fault model: a piece may be damaged, the device may fail, the receiver may be slow or gone. Nothing leaves before it
//! was checked; what can't go on ends the answer without its end. At most [`AHEAD`] pieces wait, and where the
//! device is a real one they are ranges of a file, not memory.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use swiftlet_hash::{Digests, Hasher};
use swiftlet_store::Object;
use swiftlet_transport::{Body, FileRange, Next, Source, Waker};

use crate::device::{Device, Permit};
use crate::status::Refusal;

/// Pieces that are checked ahead of what was sent.
const AHEAD: usize = 2;
/// Pieces end at multiples of this, where the store's checksums do.
const PIECE: u64 = 1 << 20;

struct State {
    ready: VecDeque<Next>,
    at: u64,
    running: bool,
    /// All pieces are in `ready` or gone, or there will be no more.
    over: bool,
    /// xxh3 of what is sent, unless it is known beforehand.
    hasher: Option<Hasher>,
}

struct Download {
    object: Object,
    stop: u64,
    /// The object's file and where its data begins, if it is a real one.
    file: Option<(Arc<File>, u64)>,
    state: Mutex<State>,
    waker: Waker,
    device: Arc<Device>,
    _permit: Permit,
}

struct Sending(Arc<Download>);

/// Bytes `[start, stop)` of an object as a body.
pub(crate) fn body(object: Object, start: u64, stop: u64, mut permit: Permit, waker: Waker) -> Result<Body, Refusal> {
    let file = object.range()?.map(|range| (Arc::new(File::from(range.file)), range.offset));
    if file.is_none() {
        permit.hold(AHEAD * PIECE as usize)?;
    }
    let whole = start == 0 && stop == object.info().size;
    let hasher = (!whole).then(|| Hasher::new(Digests { md5: false, xxh3: true }));
    let state = State { ready: VecDeque::new(), at: start, running: false, over: false, hasher };
    let device = Arc::clone(&permit.device);
    let download = Download { object, stop, file, state: Mutex::new(state), waker, device, _permit: permit };
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
            let next = match self.object.read(at, bytes) {
                // It has been set aside; the cut end tells the receiver.
                Err(_) => Next::Failed,
                Ok(data) => {
                    hasher.iter_mut().for_each(|hasher| hasher.update(&data));
                    match &self.file {
                        Some((file, start)) => {
                            Next::File(FileRange { file: Arc::clone(file), offset: start + at, bytes })
                        }
                        None => Next::Chunk(data.into()),
                    }
                }
            };
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
