//! Buffers from a fixed amount of memory, shared by reference, and never copied to be sent twice.
//!
//! Requests for a chunk that find none wait in one queue, first come first served, until their deadlines. Chunks for
//! uploads from clients wait in a second queue, after the first, and never use more than half: answers are received
//! into the same memory, and should not wait for slow servers. Small bodies have an arena of their own and never wait:
//! see `docs/design/2026-11-21-transport.md`.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use swiftlet_wire::limits::{CHUNK_BYTES, INLINE_BYTES};

use crate::arena::Arena;
use crate::key::Key;
use crate::memory::{Block, Region};

/// Called when there is memory, or with nothing when the deadline is over. It must not block.
pub type Then = Box<dyn FnOnce(Option<Buffer>) + Send>;

struct Waiter {
    bytes: usize,
    deadline: Instant,
    then: Then,
}

struct State {
    small: Arena,
    chunks: Arena,
    waiting: VecDeque<Waiter>,
    /// Waiting for memory for uploads.
    uploads: VecDeque<Waiter>,
    /// An upload may have memory only while no more than this is in use.
    uploads_bytes: usize,
    peak: usize,
}

impl State {
    /// Whether an upload may have so many bytes: then at most half of the chunks' memory is in use.
    fn has_room_for_upload(&self, bytes: usize) -> bool {
        self.waiting.is_empty() && self.chunks.used() + bytes <= self.uploads_bytes
    }

    /// The queue whose first one is next to get memory, if there is any.
    fn next(&mut self) -> Option<&mut VecDeque<Waiter>> {
        if !self.waiting.is_empty() {
            return Some(&mut self.waiting);
        }
        let bytes = self.uploads.front()?.bytes;
        if self.has_room_for_upload(bytes) { Some(&mut self.uploads) } else { None }
    }
}

struct Inner {
    region: Arc<Region>,
    small_bytes: usize,
    state: Mutex<State>,
}

/// A fixed amount of memory.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

/// The use of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// All of it.
    pub limit_bytes: usize,
    /// In use, including rounding.
    pub used_bytes: usize,
    /// The most that was ever in use.
    pub peak_bytes: usize,
    /// How many wait for a chunk.
    pub waiting: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stat().fmt(to)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// A pool of `limit_bytes`, rounded down to whole MiB, at least 2: an eighth for small bodies, the rest for
    /// chunks.
    ///
    /// # Errors
    /// The system has no descriptor or address space left.
    pub fn new(limit_bytes: usize) -> io::Result<Self> {
        let limit = (limit_bytes / CHUNK_BYTES).max(2) * CHUNK_BYTES;
        let small_bytes = (limit / 8 / CHUNK_BYTES).max(1) * CHUNK_BYTES;
        Self::with(limit, small_bytes, (limit - small_bytes).div_ceil(2))
    }

    /// Memory of so many MiB from which answers are lent to one peer. Nothing is received into it, so that answers may
    /// have all of it.
    pub(crate) fn of_answers(mib: usize) -> io::Result<Self> {
        Self::with(mib * CHUNK_BYTES, 0, mib * CHUNK_BYTES)
    }

    fn with(limit: usize, small_bytes: usize, uploads_bytes: usize) -> io::Result<Self> {
        let state = State {
            small: Arena::new(0, small_bytes),
            chunks: Arena::new(small_bytes, limit - small_bytes),
            waiting: VecDeque::new(),
            uploads: VecDeque::new(),
            uploads_bytes,
            peak: 0,
        };
        Ok(Self(Arc::new(Inner { region: Arc::new(Region::new(limit)?), small_bytes, state: Mutex::new(state) })))
    }

    /// The memory itself, for transports that share it.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.0.region
    }

    /// Its current use.
    #[must_use]
    pub fn stat(&self) -> PoolUse {
        let state = self.0.lock();
        PoolUse {
            limit_bytes: self.0.region.bytes(),
            used_bytes: state.small.used() + state.chunks.used(),
            peak_bytes: state.peak,
            waiting: state.waiting.len() + state.uploads.len(),
        }
    }

    fn take(&self, state: &mut State, bytes: usize, small: bool) -> Option<Buffer> {
        let arena = if small { &mut state.small } else { &mut state.chunks };
        let offset = arena.take(bytes.max(1))?;
        state.peak = state.peak.max(state.small.used() + state.chunks.used());
        Some(Buffer { block: Some(Block { offset, bytes }), pool: self.clone() })
    }

    /// Memory for a small body, at once or not at all. There is never more than [`INLINE_BYTES`].
    #[must_use]
    pub fn small(&self, bytes: usize) -> Option<Buffer> {
        if bytes > INLINE_BYTES { None } else { self.take(&mut self.0.lock(), bytes, true) }
    }

    /// Memory for a chunk, at once or not at all; none while others wait. There is never more than [`CHUNK_BYTES`].
    #[must_use]
    pub fn chunk(&self, bytes: usize) -> Option<Buffer> {
        let mut state = self.0.lock();
        if bytes > CHUNK_BYTES || !state.waiting.is_empty() { None } else { self.take(&mut state, bytes, false) }
    }

    /// Memory for a chunk as soon as there is some: `then` is called at once, or by whoever returns memory, or with
    /// nothing by [`Pool::expire`].
    ///
    /// # Panics
    /// More than [`CHUNK_BYTES`] are asked for.
    pub fn chunk_later(&self, bytes: usize, deadline: Instant, then: Then) {
        assert!(bytes <= CHUNK_BYTES, "no chunk is so large");
        let mut state = self.0.lock();
        let got = if state.waiting.is_empty() { self.take(&mut state, bytes, false) } else { None };
        if got.is_none() {
            state.waiting.push_back(Waiter { bytes, deadline, then });
            return;
        }
        drop(state);
        then(got);
    }

    /// Memory for an upload, or for an answer that could be made without it, at once or not at all; none while others
    /// wait, nor beyond half of the memory: see [`Pool::upload_later`].
    #[must_use]
    pub fn spare(&self, bytes: usize) -> Option<Buffer> {
        let mut state = self.0.lock();
        let is_free = bytes <= CHUNK_BYTES && state.uploads.is_empty() && state.has_room_for_upload(bytes);
        if is_free { self.take(&mut state, bytes, false) } else { None }
    }

    /// The same for an upload, after all others and from half of the memory. How long it takes depends on how fast
    /// servers receive earlier uploads.
    ///
    /// # Panics
    /// As [`Pool::chunk_later`].
    pub fn upload_later(&self, bytes: usize, deadline: Instant, then: Then) {
        assert!(bytes <= CHUNK_BYTES, "no chunk is so large");
        let mut state = self.0.lock();
        let is_next = state.uploads.is_empty() && state.has_room_for_upload(bytes);
        let got = if is_next { self.take(&mut state, bytes, false) } else { None };
        if got.is_none() {
            state.uploads.push_back(Waiter { bytes, deadline, then });
            return;
        }
        drop(state);
        then(got);
    }

    /// Tell those whose deadline is over. I/O threads call this.
    pub fn expire(&self, now: Instant) {
        let mut over = Vec::new();
        let mut state = self.0.lock();
        if state.waiting.iter().chain(&state.uploads).all(|waiter| waiter.deadline > now) {
            return;
        }
        let State { waiting, uploads, .. } = &mut *state;
        for queue in [waiting, uploads] {
            for waiter in std::mem::take(queue) {
                if waiter.deadline <= now { over.push(waiter.then) } else { queue.push_back(waiter) }
            }
        }
        drop(state);
        over.into_iter().for_each(|then| then(None));
        self.serve();
    }

    fn give(&self, block: &Block) {
        let mut state = self.0.lock();
        let small = block.offset < self.0.small_bytes;
        let arena = if small { &mut state.small } else { &mut state.chunks };
        arena.give(block.offset, block.bytes.max(1));
        let awaited = !state.waiting.is_empty() || !state.uploads.is_empty();
        drop(state);
        if awaited && !small {
            self.serve();
        }
    }

    /// Give memory to those who wait, in their order, outside of the lock.
    fn serve(&self) {
        loop {
            let mut state = self.0.lock();
            let Some(bytes) = state.next().and_then(|queue| Some(queue.front()?.bytes)) else { return };
            let Some(buffer) = self.take(&mut state, bytes, false) else { return };
            // Who is next depends on what is in use: asked anew, it would count what was just taken.
            let queue = if state.waiting.is_empty() { &mut state.uploads } else { &mut state.waiting };
            let waiter = queue.pop_front();
            drop(state);
            if let Some(waiter) = waiter {
                (waiter.then)(Some(buffer));
            }
        }
    }
}

/// Memory that one owner writes to before it is shared as a [`Chunk`].
pub struct Buffer {
    /// Only `None` while it is being frozen.
    block: Option<Block>,
    pool: Pool,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Buffer({} bytes)", self.len())
    }
}

impl Buffer {
    /// Its size.
    #[must_use]
    pub fn len(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.bytes)
    }

    /// Whether there is nothing to write to.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes; at first those of the previous owner.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.block.as_mut().map_or(&mut [], |block| block.slice_mut(&self.pool.0.region))
    }

    /// Share the first `length` bytes; nobody writes to them any more.
    #[must_use]
    pub fn freeze(self, length: usize) -> Chunk {
        self.freeze_with(length, None)
    }

    pub(crate) fn freeze_with(mut self, length: usize, hook: Option<Hook>) -> Chunk {
        assert!(length <= self.len(), "more than there is");
        let memory = match self.block.take() {
            Some(block) => Memory::Pool(block, self.pool.clone()),
            None => Memory::Other(Box::new([0_u8; 0])),
        };
        Chunk { backing: Arc::new(Backing { memory, hook }), start: 0, end: length }
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.give(&block);
        }
    }
}

/// Told when the last reference to a chunk is dropped.
pub(crate) trait Released: Send + Sync {
    fn released(self: Arc<Self>, hook: HookOf);
}

/// Identifies the chunk: connection, stream, offset in the body, bytes, and whether it was lent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HookOf {
    pub(crate) connection: Key,
    pub(crate) stream: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) lent: bool,
}

pub(crate) struct Hook {
    pub(crate) whom: Arc<dyn Released>,
    pub(crate) of: HookOf,
}

enum Memory {
    Pool(Block, Pool),
    Foreign(Arc<Region>, usize, usize),
    Other(Box<dyn AsRef<[u8]> + Send + Sync>),
}

struct Backing {
    memory: Memory,
    hook: Option<Hook>,
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Memory::Pool(block, pool) = &self.memory {
            pool.give(block);
        }
        if let Some(hook) = self.hook.take() {
            hook.whom.released(hook.of);
        }
    }
}

/// A part of the sender's window: when it is dropped, as much may be sent again.
pub struct Window(Option<Hook>);

impl fmt::Debug for Window {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Window({} bytes)", self.0.as_ref().map_or(0, |hook| hook.of.bytes))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some(hook) = self.0.take() {
            hook.whom.released(hook.of);
        }
    }
}

/// Bytes that any number of owners read. A clone or a part shares the memory.
#[derive(Clone)]
pub struct Chunk {
    backing: Arc<Backing>,
    start: usize,
    end: usize,
}

impl fmt::Debug for Chunk {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Chunk({} bytes)", self.len())
    }
}

impl Chunk {
    /// Memory of another owner: it is sent from where it is, or, in an answer on a connection that lends, copied and
    /// lent.
    #[must_use]
    pub fn from_owner(owner: Box<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        let end = (*owner).as_ref().len();
        Self { backing: Arc::new(Backing { memory: Memory::Other(owner), hook: None }), start: 0, end }
    }

    pub(crate) fn foreign(region: Arc<Region>, offset: usize, bytes: usize, hook: Hook) -> Self {
        let memory = Memory::Foreign(region, offset, bytes);
        Self { backing: Arc::new(Backing { memory, hook: Some(hook) }), start: 0, end: bytes }
    }

    /// A part of it, without a copy.
    ///
    /// # Panics
    /// The range is not within it.
    #[must_use]
    pub fn part(&self, range: std::ops::Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "outside of the chunk");
        Self { backing: Arc::clone(&self.backing), start: self.start + range.start, end: self.start + range.end }
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the memory now, and keep the window that it was granted by: for an owner that has copied the bytes but
    /// is not ready for more. While others share the chunk, nothing is returned: then it is theirs.
    #[must_use]
    pub fn into_window(self) -> Window {
        Window(Arc::into_inner(self.backing).and_then(|mut backing| backing.hook.take()))
    }

    /// Whether it is in a pool's memory, so that it can be lent without a copy.
    #[must_use]
    pub fn is_in(&self, pool: &Pool) -> bool {
        self.address_in(pool.region()).is_some()
    }

    /// Whether it is in memory that transfers need: a pool's, of this process or of one that lends it.
    #[must_use]
    pub fn is_in_any_pool(&self) -> bool {
        !matches!(self.backing.memory, Memory::Other(_))
    }

    /// Its address in this region, if it is there.
    pub(crate) fn address_in(&self, region: &Arc<Region>) -> Option<u64> {
        match &self.backing.memory {
            Memory::Pool(block, pool) if Arc::ptr_eq(&pool.0.region, region) => {
                Some((block.offset + self.start) as u64)
            }
            _ => None,
        }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        let all = match &self.backing.memory {
            Memory::Pool(block, pool) => block.slice(&pool.0.region),
            Memory::Foreign(region, offset, bytes) => region.slice(*offset, *bytes),
            Memory::Other(owner) => (**owner).as_ref(),
        };
        &all[self.start..self.end]
    }
}

impl std::ops::Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        Chunk::from_owner(Box::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn two_chunks() -> (Pool, [Buffer; 2]) {
        let pool = Pool::new(3 << 20).expect("memory");
        let all = [pool.chunk(CHUNK_BYTES).expect("one"), pool.chunk(CHUNK_BYTES).expect("two")];
        (pool, all)
    }

    #[test]
    fn memory_is_given_to_those_who_wait_in_their_order_and_to_nobody_before_them() {
        let (pool, [one, two]) = two_chunks();
        let (tell, told) = mpsc::channel();
        let later = Instant::now() + Duration::from_secs(60);
        for who in 0..2 {
            let tell = tell.clone();
            pool.chunk_later(CHUNK_BYTES, later, Box::new(move |got| drop(tell.send((who, got)))));
        }
        assert!(told.try_recv().is_err());
        drop(one.freeze(10).part(2..5));
        let (who, first) = told.try_recv().expect("the first one's turn");
        assert!(who == 0 && first.is_some() && pool.chunk(1).is_none());
        drop(two);
        assert_eq!(told.try_recv().expect("the second one's turn").0, 1);
        assert_eq!(pool.stat().peak_bytes, 2 << 20);
    }

    struct Heard(mpsc::Sender<u64>);

    impl Released for Heard {
        fn released(self: Arc<Self>, hook: HookOf) {
            self.0.send(hook.offset).expect("heard");
        }
    }

    #[test]
    fn memory_goes_back_before_the_window_that_it_was_granted_by() {
        let (pool, [one, _two]) = two_chunks();
        let (tell, told) = mpsc::channel();
        let connection = Key { index: 0, generation: 0 };
        let of = HookOf { connection, stream: 1, offset: 7, bytes: 10, lent: false };
        let chunk = one.freeze_with(10, Some(Hook { whom: Arc::new(Heard(tell)), of }));
        let other = chunk.clone();
        drop(chunk.into_window());
        assert!(pool.chunk(CHUNK_BYTES).is_none() && told.try_recv().is_err(), "somebody reads it still");
        let window = other.into_window();
        assert!(pool.chunk(CHUNK_BYTES).is_some() && told.try_recv().is_err());
        drop(window);
        assert_eq!(told.try_recv(), Ok(7));
    }

    #[test]
    fn nobody_waits_beyond_the_deadline() {
        let (pool, _all) = two_chunks();
        let (tell, told) = mpsc::channel();
        let deadline = Instant::now() + Duration::from_secs(1);
        pool.chunk_later(1, deadline, Box::new(move |got| tell.send(got.is_none()).expect("heard")));
        pool.expire(deadline - Duration::from_millis(1));
        assert!(told.try_recv().is_err());
        pool.expire(deadline);
        assert_eq!((told.try_recv(), pool.stat().waiting), (Ok(true), 0));
    }

    #[test]
    fn uploads_wait_behind_all_others_and_leave_half_of_the_memory() {
        let pool = Pool::new(9 << 20).expect("memory");
        let (tell, told) = mpsc::channel();
        let later = Instant::now() + Duration::from_secs(60);
        let ask = |upload: bool, who: u32| {
            let tell = tell.clone();
            let then: Then = Box::new(move |got| drop(tell.send((who, got))));
            if upload {
                pool.upload_later(CHUNK_BYTES, later, then);
            } else {
                pool.chunk_later(CHUNK_BYTES, later, then);
            }
        };
        (0..6).for_each(|who| ask(true, who));
        let mut held: Vec<_> = told.try_iter().map(|(who, got)| (who, got.expect("memory"))).collect();
        assert_eq!(held.iter().map(|(who, _)| *who).collect::<Vec<_>>(), [0, 1, 2, 3], "half of eight");
        (10..15).for_each(|who| ask(false, who));
        held.extend(told.try_iter().map(|(who, got)| (who, got.expect("memory"))));
        assert_eq!(held.len(), 8, "others take all there is");
        held.remove(0);
        assert_eq!(told.try_recv().expect("somebody's turn").0, 14, "others come first");
        while held.len() > 3 {
            held.pop();
        }
        assert_eq!(told.try_recv().expect("below half again").0, 4);
        assert_eq!(told.try_recv().expect("and the memory of that one").0, 5);
    }

    #[test]
    fn small_bodies_and_chunks_do_not_take_each_others_memory() {
        let (pool, _all) = two_chunks();
        let small: Vec<Buffer> = std::iter::from_fn(|| pool.small(INLINE_BYTES)).collect();
        assert_eq!(small.len(), CHUNK_BYTES / INLINE_BYTES);
        assert_eq!(pool.stat().used_bytes, pool.stat().limit_bytes);
    }
}
