//! A new version that is being written.
//!
//! Up to a limit its bytes wait in memory and become one record. Larger data go directly to a file of their own, which
//! counts only when a record refers to it.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use swiftlet_hash::{Digests, Hasher};

use crate::commit;
use crate::disk::{File, Stream};
use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::large;
use crate::model::{Footer, Key, PutMeta};
use crate::queue::{Done, Op};
use crate::record::{self, CHUNK, Header, Kind};

/// After each so many bytes of a large upload the reserve is checked and, if its data are in the page cache, they are
/// synced in the background.
const STEP_BYTES: u64 = 256 * 1024 * 1024;
/// So much of an announced size is allocated ahead: uploads that never end should not fill the device.
const AHEAD_BYTES: u64 = 64 * 1024 * 1024;

fn xxh3_only() -> Hasher {
    Hasher::new(Digests { md5: false, xxh3: true })
}

fn digest(hasher: &Hasher) -> u64 {
    hasher.xxh3_64().unwrap_or(record::EMPTY_XXH3)
}

/// Checksums of a stream's chunks, and of the stream.
struct Checks {
    whole: Hasher,
    chunk: Hasher,
    table: Vec<u8>,
}

impl Checks {
    fn update(&mut self, mut data: &[u8]) {
        self.whole.update(data);
        while !data.is_empty() {
            let (head, rest) = data.split_at(data.len().min((CHUNK - self.chunk.size()) as usize));
            self.chunk.update(head);
            data = rest;
            if self.chunk.size() == CHUNK {
                self.end_chunk();
            }
        }
    }

    fn end_chunk(&mut self) {
        self.table.extend_from_slice(&digest(&self.chunk).to_be_bytes());
        self.chunk = xxh3_only();
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

/// A new version being written; nothing is visible before `commit`. When it is dropped, nothing is left of it.
pub struct Writer {
    inner: Arc<Inner>,
    key: Key,
    limit: u64,
    size: Option<u64>,
    buffer: Vec<u8>,
    large: Option<LargeFile>,
    dead: bool,
    row: u32,
}

impl Writer {
    pub(crate) fn new(inner: Arc<Inner>, key: Key, size: Option<u64>, limit: u64) -> Self {
        let buffer = Vec::with_capacity(size.filter(|size| *size <= limit).unwrap_or(0) as usize);
        Self { inner, key, limit, size, buffer, large: None, dead: false, row: 0 }
    }

    /// Set the container replicas (bits) that the container update of the version is for.
    pub fn set_row(&mut self, row: u32) {
        self.row = row;
    }

    /// Append bytes; an error ends the writer.
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
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
        let checks = Checks { whole: xxh3_only(), chunk: xxh3_only(), table: Vec::new() };
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

    /// Make the version durable and visible; false when the same version was already here.
    pub fn commit(mut self, meta: &PutMeta, footer: &Footer) -> Result<bool> {
        let inner = Arc::clone(&self.inner);
        commit::wait(&inner, |done| self.submit(meta, footer, done))
    }

    /// Like `commit`; `done` is called when it is durable, or failed. The data of a large one are synced before this
    /// returns.
    pub fn submit_commit(mut self, meta: &PutMeta, footer: &Footer, done: Done) {
        self.submit(meta, footer, done);
    }

    fn submit(&mut self, meta: &PutMeta, footer: &Footer, done: Done) {
        match self.finish(meta, footer) {
            Ok(op) => {
                // From here on the record decides about the file.
                self.large = None;
                self.inner.queue.push(self.key, op, done);
            }
            Err(error) => {
                self.abort();
                done(Err(error));
            }
        }
    }

    fn finish(&mut self, meta: &PutMeta, footer: &Footer) -> Result<Op> {
        self.check_alive()?;
        let Some(large) = &mut self.large else {
            check_footer(footer, self.buffer.len() as u64, swiftlet_hash::xxh3_64(&self.buffer))?;
            return Ok(put_op(self.key, meta, footer, std::mem::take(&mut self.buffer), self.row));
        };
        let device = &self.inner.device;
        if large.checks.chunk.size() > 0 {
            large.checks.end_chunk();
        }
        check_footer(footer, large.written, digest(&large.checks.whole))?;
        device.io("write a large file", large.finish())?;
        device.disk.reach("large-written");
        if let Some(syncer) = &mut large.syncer {
            device.io("sync a large file", syncer.finish())?;
        }
        device.sync(&*large.file)?;
        device.disk.reach("large-synced");
        device.sync_directory(&large::directory_of(large.number))?;
        device.disk.reach("large-placed");
        let header = Header {
            size: footer.size,
            large: large.number,
            delete_at: meta.delete_at,
            data_xxh3: footer.xxh3,
            row: self.row,
            ..Header::new(Kind::Large, self.key, meta.timestamp)
        };
        let mut metadata = record::pack_put(meta, &footer.etag);
        metadata.append(&mut large.checks.table);
        Ok(Op::Put { header, metadata, data: Vec::new() })
    }

    /// Drop everything written; harmless a second time.
    pub fn abort(&mut self) {
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

impl Drop for Writer {
    fn drop(&mut self) {
        self.abort();
    }
}

/// The request for a small object's version.
pub(crate) fn put_op(key: Key, meta: &PutMeta, footer: &Footer, data: Vec<u8>, row: u32) -> Op {
    let header = Header {
        size: footer.size,
        delete_at: meta.delete_at,
        data_xxh3: footer.xxh3,
        row,
        ..Header::new(Kind::Put, key, meta.timestamp)
    };
    Op::Put { header, metadata: record::pack_put(meta, &footer.etag), data }
}

/// Whether the received data match the announced footer.
pub(crate) fn check_footer(footer: &Footer, size: u64, xxh3: u64) -> Result<()> {
    if size != footer.size {
        return Err(Error::SizeMismatch(format!("{size} bytes arrived, but {} were announced", footer.size)));
    }
    if xxh3 != footer.xxh3 {
        let text = "the bytes that arrived do not have the checksum of those that were sent";
        return Err(Error::ChecksumMismatch(text.into()));
    }
    Ok(())
}
