//! Data of an object or a fragment that is coming in.
//!
//! Up to a limit they wait in memory and become one record. Larger ones go directly to a file of their own, which counts
//! only when a record refers to it.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use swiftlet_hash::{Digests, Hasher};

use crate::disk::{File, Stream};
use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::large;
use crate::record;

/// After each so many bytes of a large upload the reserve is checked and, if its data are in the page cache, they are
/// synced in the background.
const STEP_BYTES: u64 = 256 * 1024 * 1024;
/// So much of an announced size is allocated ahead: uploads that never end should not fill the device.
const AHEAD_BYTES: u64 = 64 * 1024 * 1024;

/// So much is given to one checksum before the other one gets the same bytes, which it finds in a first-level cache then.
const SLICE_BYTES: usize = 16 * 1024;

fn xxh3_only() -> Hasher {
    Hasher::new(Digests { md5: false, xxh3: true })
}

fn digest(hasher: &Hasher) -> u64 {
    hasher.xxh3_64().unwrap_or(record::EMPTY_XXH3)
}

/// Checksums of a stream's pieces, and of the stream.
struct Checks {
    whole: Hasher,
    piece: Hasher,
    piece_bytes: u64,
    pieces: Vec<u64>,
}

impl Checks {
    fn of(piece_bytes: u64) -> Self {
        Self { whole: xxh3_only(), piece: xxh3_only(), piece_bytes, pieces: Vec::new() }
    }

    fn update(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let piece_lacks = (self.piece_bytes - self.piece.size()) as usize;
            let (head, rest) = data.split_at(data.len().min(piece_lacks).min(SLICE_BYTES));
            self.whole.update(head);
            self.piece.update(head);
            data = rest;
            if self.piece.size() == self.piece_bytes {
                self.end_piece();
            }
        }
    }

    fn end_piece(&mut self) {
        self.pieces.push(digest(&self.piece));
        self.piece = xxh3_only();
    }
}

/// A thread that syncs a file while more is written to it.
struct Syncer {
    asked: Option<Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Syncer {
    fn start(file: Arc<dyn File>) -> io::Result<Self> {
        let (asked, steps) = mpsc::channel();
        let work = move || {
            while steps.recv().is_ok() {
                // What was asked for meanwhile is covered, too.
                while steps.try_recv().is_ok() {}
                file.sync()?;
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("store-sync".into()).spawn(work)?;
        Ok(Self { asked: Some(asked), thread: Some(thread) })
    }

    fn step(&self) {
        if let Some(asked) = &self.asked {
            // A thread that has ended has an error, which the end shows.
            let _ = asked.send(());
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.asked = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(io::Error::other("the thread that syncs files has ended unexpectedly")),
            None => Ok(()),
        }
    }
}

struct LargeFile {
    number: u64,
    file: Arc<dyn File>,
    written: u64,
    stepped: u64,
    checks: Checks,
    syncer: Option<Syncer>,
    /// None where everything is written through the page cache.
    direct: Option<Stream>,
    /// Up to here there is space for it.
    allocated: u64,
}

impl LargeFile {
    /// Append bytes; `size` is that of the whole, if it is announced.
    fn write(&mut self, data: &[u8], size: Option<u64>) -> io::Result<()> {
        let end = self.written + data.len() as u64;
        match &mut self.direct {
            Some(stream) => {
                if let Some(size) = size.filter(|size| end > self.allocated && end <= *size) {
                    self.allocated = size.min(end + AHEAD_BYTES);
                    self.file.allocate(self.allocated)?;
                }
                stream.push(&*self.file, data)?;
            }
            None => self.file.write_at(&[IoSlice::new(data)], self.written)?,
        }
        self.written = end;
        Ok(())
    }

    /// Write what was gathered; the file then has exactly what was appended.
    fn finish(&mut self) -> io::Result<()> {
        let Some(mut stream) = self.direct.take() else { return Ok(()) };
        let end = stream.finish(&*self.file)?.max(self.allocated);
        if end > self.written { self.file.truncate(self.written) } else { Ok(()) }
    }
}

/// All that has come, checked.
pub(crate) struct Received {
    /// Bytes.
    pub(crate) size: u64,
    /// Their xxh3.
    pub(crate) xxh3: u64,
    /// The data, if they are not in a file.
    pub(crate) data: Vec<u8>,
    /// Number of the file with the data, 0 for none.
    pub(crate) large: u64,
    /// xxh3 of each piece of a file's data; the last one may be shorter.
    pub(crate) pieces: Vec<u64>,
}

/// Data that are coming in. When this is dropped before they have all been received, nothing is left of them.
pub(crate) struct Body {
    inner: Arc<Inner>,
    limit: u64,
    size: Option<u64>,
    piece_bytes: u64,
    buffer: Vec<u8>,
    large: Option<LargeFile>,
    dead: bool,
}

impl Body {
    /// Data of this size, if it is known, which get a file above the limit.
    pub(crate) fn new(inner: Arc<Inner>, size: Option<u64>, limit: u64, piece_bytes: u64) -> Self {
        let buffer = Vec::with_capacity(size.filter(|size| *size <= limit).unwrap_or(0) as usize);
        Self { inner, limit, size, piece_bytes, buffer, large: None, dead: false }
    }

    /// Append bytes; an error ends it.
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<()> {
        let outcome = self.try_write(data);
        if outcome.is_err() {
            self.abort();
        }
        outcome
    }

    fn check_alive(&self) -> Result<()> {
        if self.dead {
            return Err(Error::DeviceFailed("this upload was aborted after an earlier error".into()));
        }
        self.inner.device.check()
    }

    fn try_write(&mut self, data: &[u8]) -> Result<()> {
        self.check_alive()?;
        if self.large.is_none() {
            if (self.buffer.len() + data.len()) as u64 <= self.limit {
                self.buffer.extend_from_slice(data);
                return Ok(());
            }
            self.begin_large()?;
            let buffered = std::mem::take(&mut self.buffer);
            self.append(&buffered)?;
        }
        self.append(data)
    }

    fn begin_large(&mut self) -> Result<()> {
        let device = &self.inner.device;
        let number = self.inner.large.take(device)?;
        let file = device.io("make a large file", device.disk.create(&large::path_of(number)))?;
        device.disk.reach("large-created");
        let checks = Checks::of(self.piece_bytes);
        let direct = file.is_direct().then(Stream::default);
        let (written, stepped, allocated) = (0, 0, 0);
        self.large = Some(LargeFile { number, file, written, stepped, checks, syncer: None, direct, allocated });
        Ok(())
    }

    fn append(&mut self, data: &[u8]) -> Result<()> {
        let device = &self.inner.device;
        let Some(large) = self.large.as_mut().filter(|_| !data.is_empty()) else { return Ok(()) };
        large.checks.update(data);
        device.io("write a large file", large.write(data, self.size))?;
        if large.written - large.stepped >= STEP_BYTES {
            large.stepped = large.written;
            device.check_room(0)?;
            if large.direct.is_some() {
                // It is on the disk but for what its cache holds.
            } else if self.inner.config.threads {
                if large.syncer.is_none() {
                    large.syncer = Some(device.io("start a thread", Syncer::start(Arc::clone(&large.file)))?);
                }
                large.syncer.iter().for_each(Syncer::step);
            } else {
                device.sync(&*large.file)?;
            }
        }
        Ok(())
    }

    /// The end, of which `check` is told before anything is synced. The data of a large one are synced when this
    /// returns, and from then on a record has to refer to its file, or the file to be removed.
    pub(crate) fn finish(&mut self, check: impl FnOnce(&Received) -> Result<()>) -> Result<Received> {
        self.check_alive()?;
        let Some(large) = &mut self.large else {
            let data = std::mem::take(&mut self.buffer);
            let (size, xxh3) = (data.len() as u64, swiftlet_hash::xxh3_64(&data));
            let received = Received { size, xxh3, data, large: 0, pieces: Vec::new() };
            check(&received)?;
            return Ok(received);
        };
        let device = &self.inner.device;
        if large.checks.piece.size() > 0 {
            large.checks.end_piece();
        }
        let (size, xxh3) = (large.written, digest(&large.checks.whole));
        let pieces = std::mem::take(&mut large.checks.pieces);
        let received = Received { size, xxh3, data: Vec::new(), large: large.number, pieces };
        check(&received)?;
        device.io("write a large file", large.finish())?;
        device.disk.reach("large-written");
        if let Some(syncer) = &mut large.syncer {
            device.io("sync a large file", syncer.finish())?;
        }
        device.sync(&*large.file)?;
        device.disk.reach("large-synced");
        device.sync_directory(&large::directory_of(large.number))?;
        device.disk.reach("large-placed");
        self.large = None;
        Ok(received)
    }

    /// Drop everything written; harmless a second time.
    pub(crate) fn abort(&mut self) {
        self.dead = true;
        self.buffer = Vec::new();
        if let Some(mut large) = self.large.take() {
            if let Some(syncer) = &mut large.syncer {
                // Nobody will read the file: how its sync ended does not matter.
                let _ = syncer.finish();
            }
            self.inner.remove_large(&[large.number]);
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.abort();
    }
}
