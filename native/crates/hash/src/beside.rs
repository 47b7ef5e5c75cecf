//! Digests streams on a few shared threads, beside the thread that brings their bytes.
//!
//! The pieces of one stream are digested one after the other, in order, by one thread at a time. The caller is told
//! when each piece is digested, and has to wait when too many are under way: nothing here limits how many wait. A
//! piece is dropped before its caller is told.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::Hasher;

/// Bytes of any owner.
pub type Piece = Box<dyn AsRef<[u8]> + Send>;
/// Called when a piece was digested and dropped. It must not block.
pub type Then = Box<dyn FnOnce() + Send>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Ready {
    streams: VecDeque<Arc<State>>,
    closed: bool,
}

#[derive(Default)]
struct Queue {
    ready: Mutex<Ready>,
    woken: Condvar,
}

impl Queue {
    fn push(&self, stream: Arc<State>) {
        lock(&self.ready).streams.push_back(stream);
        self.woken.notify_one();
    }

    fn work(&self) {
        loop {
            let mut ready = lock(&self.ready);
            while ready.streams.is_empty() && !ready.closed {
                ready = self.woken.wait(ready).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(stream) = ready.streams.pop_front() else { return };
            drop(ready);
            if stream.step() {
                // One piece at a time, so that many streams get on alike.
                self.push(stream);
            }
        }
    }
}

/// Threads that digest. They end when the last handle and the last stream are gone.
#[derive(Clone)]
pub struct Threads(Arc<Handle>);

struct Handle(Arc<Queue>);

impl Drop for Handle {
    fn drop(&mut self) {
        lock(&self.0.ready).closed = true;
        self.0.woken.notify_all();
    }
}

impl Threads {
    /// Start `count` threads.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn start(count: usize) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let handle = Handle(Arc::clone(&queue));
        for _ in 0..count.max(1) {
            let queue = Arc::clone(&queue);
            thread::Builder::new().name("digest".into()).spawn(move || queue.work())?;
        }
        Ok(Self(Arc::new(handle)))
    }

    /// A stream that continues with the state of `hasher`; nobody else should feed it meanwhile.
    #[must_use]
    pub fn stream(&self, hasher: Arc<Mutex<Hasher>>) -> Stream {
        Stream { state: Arc::new(State { hasher, pieces: Mutex::default() }), threads: self.clone() }
    }
}

#[derive(Default)]
struct Pieces {
    waiting: VecDeque<(Piece, Then)>,
    /// Whether it is in the queue of streams, or with a thread.
    running: bool,
}

struct State {
    hasher: Arc<Mutex<Hasher>>,
    pieces: Mutex<Pieces>,
}

impl State {
    /// Digest one piece. Returns whether there are more.
    fn step(&self) -> bool {
        let Some((piece, then)) = lock(&self.pieces).waiting.pop_front() else { return false };
        lock(&self.hasher).update((*piece).as_ref());
        drop(piece);
        let mut pieces = lock(&self.pieces);
        pieces.running = !pieces.waiting.is_empty();
        let more = pieces.running;
        drop(pieces);
        then();
        more
    }
}

/// One stream. When it is dropped, the pieces that wait are still digested.
pub struct Stream {
    state: Arc<State>,
    threads: Threads,
}

impl Stream {
    /// Digest the next piece, and call `then`.
    pub fn update(&self, piece: Piece, then: Then) {
        let mut pieces = lock(&self.state.pieces);
        pieces.waiting.push_back((piece, then));
        let begin = !std::mem::replace(&mut pieces.running, true);
        drop(pieces);
        if begin {
            self.threads.0.0.push(Arc::clone(&self.state));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::Digests;

    #[test]
    fn pieces_of_many_streams_are_digested_in_their_order() {
        let threads = Threads::start(3).expect("threads");
        let (tell, told) = mpsc::channel();
        let hashers: Vec<_> = (0..8).map(|_| Arc::new(Mutex::new(Hasher::new(Digests::ALL)))).collect();
        let streams: Vec<_> = hashers.iter().map(|hasher| threads.stream(Arc::clone(hasher))).collect();
        let mut expected: Vec<_> = hashers.iter().map(|_| Hasher::new(Digests::ALL)).collect();
        for turn in 0..50_u8 {
            for (number, stream) in streams.iter().enumerate() {
                let piece = vec![turn ^ number as u8; 1000 + 7 * usize::from(turn)];
                expected[number].update(&piece);
                let tell = tell.clone();
                stream.update(Box::new(piece), Box::new(move || tell.send(number).expect("told")));
            }
        }
        drop((streams, threads));
        for _ in 0..50 * 8 {
            told.recv_timeout(std::time::Duration::from_secs(60)).expect("every piece is told of");
        }
        for (hasher, expected) in hashers.iter().zip(&expected) {
            assert_eq!(lock(hasher).md5(), expected.md5());
            assert_eq!(lock(hasher).xxh3_64(), expected.xxh3_64());
        }
    }

    #[test]
    fn a_piece_is_let_go_of_before_that_is_said() {
        let threads = Threads::start(1).expect("threads");
        let stream = threads.stream(Arc::new(Mutex::new(Hasher::new(Digests::ALL))));
        let bytes: Arc<[u8]> = vec![1; 10].into();
        let (tell, told) = mpsc::channel();
        let weak = Arc::downgrade(&bytes);
        stream.update(Box::new(bytes), Box::new(move || tell.send(weak.upgrade().is_none()).expect("told")));
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(60)), Ok(true));
    }
}
