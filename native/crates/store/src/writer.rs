//! A new version of an object that is being written.

mod fragments;

use std::sync::Arc;

use crate::body::Body;
use crate::commit;
use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::model::{Footer, Key, PutMeta};
use crate::queue::{Done, Op};
use crate::record::{self, CHUNK, Header, Kind};

pub use fragments::{FragmentWriter, Shape};

/// A new version being written; nothing is visible before `commit`. When it is dropped, nothing is left of it.
pub struct Writer {
    inner: Arc<Inner>,
    key: Key,
    body: Body,
    row: u32,
}

impl Writer {
    pub(crate) fn new(inner: Arc<Inner>, key: Key, size: Option<u64>, limit: u64) -> Self {
        let body = Body::new(Arc::clone(&inner), size, limit, CHUNK);
        Self { inner, key, body, row: 0 }
    }

    /// Set the container replicas (bits) that the container update of the version is for.
    pub fn set_row(&mut self, row: u32) {
        self.row = row;
    }

    /// Append bytes; an error ends the writer.
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        self.body.write(data)
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
            Ok(op) => self.inner.queue.push(self.key, op, done),
            Err(error) => {
                self.abort();
                done(Err(error));
            }
        }
    }

    fn finish(&mut self, meta: &PutMeta, footer: &Footer) -> Result<Op> {
        let received = self.body.finish(|received| check_footer(footer, received.size, received.xxh3))?;
        if received.large == 0 {
            return Ok(put_op(self.key, meta, footer, received.data, self.row));
        }
        let header = Header {
            size: footer.size,
            large: received.large,
            delete_at: meta.delete_at,
            data_xxh3: footer.xxh3,
            row: self.row,
            ..Header::new(Kind::Large, self.key, meta.timestamp)
        };
        let mut metadata = record::pack_put(meta, &footer.etag);
        metadata.extend(received.pieces.iter().flat_map(|piece| piece.to_be_bytes()));
        Ok(Op::Put { header, metadata, data: Vec::new() })
    }

    /// Drop everything written; harmless a second time.
    pub fn abort(&mut self) {
        self.body.abort();
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
