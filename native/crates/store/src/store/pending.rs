//! Writes with a container update, and queries about the pending ones.

use std::time::Duration;

use super::Store;
use crate::error::Result;
use crate::model::{Footer, Key, PostMeta, PutMeta, Timestamp};
use crate::pending::PendingUpdate;
use crate::queue::{Asked, Done, Op};
use crate::read;

impl Store {
    /// `submit_put` with a pending update for these container replicas (bits).
    pub fn submit_put_with_row(&self, key: Key, meta: &PutMeta, footer: &Footer, data: Vec<u8>, row: u32, done: Done) {
        self.check_and_push_put(key, meta, footer, data, row, done);
    }

    /// `submit_post` with a pending update for these container replicas (bits).
    pub fn submit_post_with_row(&self, key: Key, meta: PostMeta, row: u32, done: Done) {
        match self.inner.device.check_room(0) {
            Ok(()) => self.inner.queue.push(key, Op::Post { meta, row }, done),
            Err(error) => done(Err(error)),
        }
    }

    /// Merge metadata into a coded object, with a pending update for these container replicas (bits) if a fragment is
    /// here. They count for every version that is older than they are, also for one that comes later. `of` is the time of
    /// the version on which they were posted: `NotFound` if the object was deleted at or after that. `Superseded` by newer
    /// metadata, or by a newer version that is settled.
    pub fn submit_coded_post(&self, key: Key, of: Timestamp, meta: PostMeta, row: u32, done: Done) {
        match self.inner.device.check_room(0) {
            Ok(()) => self.inner.queue.push(key, Op::Fragments(Asked::Post { of, meta, row }), done),
            Err(error) => done(Err(error)),
        }
    }

    /// `submit_delete` with a pending update for these container replicas (bits).
    pub fn submit_delete_with_row(&self, key: Key, timestamp: Timestamp, name: Vec<u8>, row: u32, done: Done) {
        self.inner.queue.push(key, Op::Delete { timestamp, name, row }, done);
    }

    /// Keep an update of a version that was already here: until the next start, and longer if it was pending before.
    pub fn keep_pending(&self, key: Key, timestamp: Timestamp, row: u32) {
        self.inner.pending.keep(key, timestamp, row);
    }

    /// Note that nobody else delivers the update of this version: `pending_updates` has it earlier than others.
    pub fn deliver_alone(&self, key: &Key, timestamp: Timestamp) {
        self.inner.pending.deliver_alone(key, timestamp);
    }

    /// Whether so many updates are pending that no write should add another one.
    #[must_use]
    pub fn has_too_many_pending(&self) -> bool {
        self.inner.pending.are_too_many()
    }

    /// Whether half as many are pending: the rest is kept for members of the cluster.
    #[must_use]
    pub fn has_many_pending(&self) -> bool {
        self.inner.pending.are_many()
    }

    /// The number of pending updates.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.inner.pending.count()
    }

    /// For how long the oldest of them has been pending.
    #[must_use]
    pub fn pending_for(&self) -> Duration {
        self.inner.pending.pending_for()
    }

    /// `/account/container/object` of what is held under a key, which may be a tombstone; None when nothing is, or when
    /// it is in a pack, which alone has the name.
    pub fn name(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        read::name(&self.inner, key)
    }

    /// Up to `limit` updates that have been pending for `age`, the oldest first; of those that nobody else delivers, from
    /// half a second on. An update of a fragment waits until it is known what became of its version.
    #[must_use]
    pub fn pending_updates(&self, limit: usize, age: Duration) -> Vec<PendingUpdate> {
        let waits = |key: &Key, timestamp| self.inner.index.is_undecided(key, timestamp);
        self.inner.pending.oldest(limit, age, waits)
    }

    /// Remove these updates, unless a newer record was added: their rows are listed, or never will be.
    pub fn acknowledge(&self, versions: &[(Key, Timestamp)]) {
        self.inner.pending.acknowledge(versions);
    }
}
