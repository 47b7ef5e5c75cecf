//! A fragment that is coming in, cell after cell.
//!
//! Up to a limit it waits in memory and becomes one record, as objects do; a larger one goes to a file of its own.
//! Cells are digested while they come, so that what the footer says of them can be compared when it is here.

use std::sync::Arc;

use swiftlet_fragments::Version;
use swiftlet_fragments::block::{Block, total};
use swiftlet_fragments::request::{Answer, Request};
use swiftlet_hash::xxh3_64;

use crate::body::{Body, Received};
use crate::commit;
use crate::error::{Error, Result};
use crate::inner::Inner;
use crate::model::{Key, PutMeta};
use crate::queue::{Asked, Told};
use crate::record::{EMPTY_XXH3, Header, Kind, is_place_of, pack_fragment};

/// What has to be known of a fragment before its first cell.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of each cell, but for the last one.
    pub cell_bytes: usize,
    /// Bytes of the fragment, if they are known.
    pub size: Option<u64>,
    /// The size up to which it is kept in a volume; None for the policy's.
    pub aggregate_below: Option<u64>,
}

/// A fragment being written; nothing of it counts before it is submitted. When it is dropped, nothing is left of it.
pub struct FragmentWriter {
    inner: Arc<Inner>,
    key: Key,
    cell_bytes: usize,
    row: u32,
    body: Body,
}

impl FragmentWriter {
    pub(crate) fn new(inner: Arc<Inner>, key: Key, shape: Shape, limit: u64) -> Self {
        let body = Body::new(Arc::clone(&inner), shape.size, limit, shape.cell_bytes as u64);
        Self { inner, key, cell_bytes: shape.cell_bytes, row: 0, body }
    }

    /// Make an update for these container replicas (bits) pending with the fragment.
    pub fn set_row(&mut self, row: u32) {
        self.row = row;
    }

    /// Append bytes; an error ends the writer.
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        self.body.write(data)
    }

    /// Make it durable as a prepared fragment, if the device takes it. `block` has no digests of cells: they are those
    /// of the cells that came. `told` is called with the answer. A large one is synced before this returns.
    pub fn submit_prepare(self, meta: &PutMeta, etag: &[u8], block: Block, told: Told) {
        let (version, chosen) = (version_of(meta, &block), block.chosen.clone());
        self.submit(meta, etag, block, Request::Prepare { version, chosen }, told);
    }

    /// The same for a fragment that was rebuilt, or handed back, of a version that is for certain.
    pub fn submit_keep(self, meta: &PutMeta, etag: &[u8], block: Block, told: Told) {
        let (version, chosen) = (version_of(meta, &block), block.chosen.clone());
        self.submit(meta, etag, block, Request::Keep { version, chosen }, told);
    }

    /// Like `submit_prepare`, and wait for the answer.
    pub fn prepare(self, meta: &PutMeta, etag: &[u8], block: Block) -> Result<Answer> {
        let inner = Arc::clone(&self.inner);
        commit::wait(&inner, |told| self.submit_prepare(meta, etag, block, told))
    }

    /// Like `submit_keep`, and wait for the answer.
    pub fn keep(self, meta: &PutMeta, etag: &[u8], block: Block) -> Result<Answer> {
        let inner = Arc::clone(&self.inner);
        commit::wait(&inner, |told| self.submit_keep(meta, etag, block, told))
    }

    fn submit(mut self, meta: &PutMeta, etag: &[u8], block: Block, request: Request, told: Told) {
        match self.finish(meta, etag, block, request) {
            Ok(asked) => self.inner.queue.push_asked(self.key, asked, told),
            Err(error) => {
                self.body.abort();
                told(Err(error));
            }
        }
    }

    fn finish(&mut self, meta: &PutMeta, etag: &[u8], mut block: Block, request: Request) -> Result<Asked> {
        if block.cell_bytes != self.cell_bytes || !is_place_of(&self.key, block.index) {
            return Err(Error::Format(
                "a fragment is of another shape, or of another place, than it was begun for".into(),
            ));
        }
        let bytes = block.fragment_bytes();
        let received = self.body.finish(|received| check(&mut block, received, bytes))?;
        let header = Header {
            size: bytes,
            large: received.large,
            delete_at: meta.delete_at,
            data_xxh3: received.xxh3,
            generation: block.generation,
            row: self.row,
            ..Header::new(kind_of(received.large), self.key, meta.timestamp)
        };
        Ok(Asked::Fragment { request, header, metadata: pack_fragment(meta, etag, &block), data: received.data })
    }

    /// Drop everything written; harmless a second time.
    pub fn abort(&mut self) {
        self.body.abort();
    }
}

fn kind_of(large: u64) -> Kind {
    if large == 0 { Kind::Fragment } else { Kind::LargeFragment }
}

fn version_of(meta: &PutMeta, block: &Block) -> Version {
    Version { timestamp: meta.timestamp, generation: block.generation }
}

/// Whether what came is what the footer says; the block then has the digests of its cells.
fn check(block: &mut Block, received: &Received, bytes: u64) -> Result<()> {
    if received.size != bytes {
        let text = format!("{} bytes of a fragment arrived, but it has {bytes}", received.size);
        return Err(Error::SizeMismatch(text));
    }
    block.cells = match received.large {
        0 => received.data.chunks(block.cell_bytes).map(xxh3_64).collect(),
        _ => received.pieces.clone(),
    };
    // The last cell of a small object may be empty.
    block.cells.resize(block.geometry.stripes() as usize, EMPTY_XXH3);
    if Some(&total(&block.cells)) != block.totals.get(block.index) {
        let text = "the cells that arrived do not have the digests of those that were sent";
        return Err(Error::ChecksumMismatch(text.into()));
    }
    block.check().map_err(|error| Error::Format(error.to_string()))
}
