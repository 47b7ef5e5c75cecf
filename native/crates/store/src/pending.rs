//! The pending container updates of a device: objects whose newest state may be missing in a container's listing.
//!
//! A record names the container replicas that its update is for, so an update is as durable as its write. An
//! acknowledgement is not written at once: after a crash some updates are pending again, and sending a row twice does
//! no harm. `docs/design/2026-11-21-rows.md` has the reasons, `docs/volumes.md` the file.
//!
//! Fault model: the process may die at any instruction, therefore the file is replaced as a whole. If it is lost or
//! damaged, the updates that were pending before the last checkpoint are lost here; the other replicas of the object
//! have them, too.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::error::Result;
use crate::model::{Key, Timestamp};
use crate::record::{DeviceId, Header, Kind, u32_at, u64_at};

/// The file.
const FILE: &str = "pending";
const MAGIC: [u8; 8] = *b"SWLTPEND";
const VERSION: u16 = 1;
const HEAD: usize = 48;
const ENTRY: usize = 34;
/// When so many updates are pending, writes with another one are refused.
const MAX_PENDING: usize = 100_000;
/// The largest number of updates that a start reads: the pending ones, and those between two writes of the file.
const MAX_HELD: usize = 4 * MAX_PENDING;
/// After so many acknowledged updates the file is written again.
const ACKNOWLEDGED_STEP: u64 = 10_000;
/// For how long an update that nobody else delivers is left alone: until then its write has its quorum, mostly.
const SOON: Duration = Duration::from_millis(500);

#[derive(Clone, Copy)]
struct Update {
    timestamp: Timestamp,
    row: u32,
    since: Instant,
    /// Whether the newest version is a POST, or may be one.
    post: bool,
    /// Whether nobody but this device delivers the newest version's update.
    alone: bool,
}

/// The kind of the version that an update is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    /// Data or a deletion: its row replaces all older ones.
    Data,
    /// Its row changes some fields of older ones, so those stay pending with it.
    Post,
    /// A version that was already here, or was read from the file: its kind is unknown.
    Known,
}

impl Update {
    /// Add another version.
    ///
    /// The sender of a POST's row has asked some devices what they hold, and this one may hold more: older data that
    /// only it has, or another POST's content type. So where a POST is the newest of several versions, the update's
    /// timestamp is one above it, which no write has: only this device acknowledges it, after sending its own row.
    fn add(&mut self, timestamp: Timestamp, row: u32, version: Version) {
        let apart = match version {
            Version::Data => timestamp < self.timestamp && self.post,
            Version::Post => timestamp >= self.timestamp || self.post,
            Version::Known => timestamp > self.timestamp,
        };
        if timestamp > self.timestamp {
            self.post = version != Version::Data;
            self.alone = false;
        }
        self.timestamp = self.timestamp.max(timestamp) + u64::from(apart);
        self.row |= row;
    }
}

/// The pending update of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingUpdate {
    /// Which object.
    pub key: Key,
    /// The timestamp of the newest record with an update, or one above it; `Store::acknowledge` takes it.
    pub timestamp: Timestamp,
    /// Container replicas, as bits.
    pub row: u32,
}

/// The pending updates of a device, by object.
#[derive(Default)]
pub(crate) struct PendingUpdates {
    updates: Mutex<HashMap<Key, Update>>,
    acknowledged: AtomicU64,
}

impl PendingUpdates {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Update>> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, key: Key, timestamp: Timestamp, row: u32, version: Version) {
        let mut updates = self.lock();
        if row == 0 {
            return;
        }
        if let Some(update) = updates.get_mut(&key) {
            update.add(timestamp, row, version);
        } else if updates.len() < MAX_HELD {
            let post = version != Version::Data;
            updates.insert(key, Update { timestamp, row, since: Instant::now(), post, alone: false });
        }
    }

    /// Add the update of a record that has become durable.
    pub(crate) fn note(&self, header: &Header) {
        if header.kind == Kind::Forget {
            self.lock().remove(&header.key);
        } else {
            let post = matches!(header.kind, Kind::Post | Kind::CodedPost);
            let version = if post { Version::Post } else { Version::Data };
            self.add(header.key, header.timestamp, header.row, version);
        }
    }

    /// Add the update of a version that was already here.
    pub(crate) fn keep(&self, key: Key, timestamp: Timestamp, row: u32) {
        self.add(key, timestamp, row, Version::Known);
    }

    /// Note that nobody else delivers the update of this version, if it is still the newest.
    pub(crate) fn deliver_alone(&self, key: &Key, timestamp: Timestamp) {
        if let Some(update) = self.lock().get_mut(key)
            && update.timestamp == timestamp
        {
            update.alone = true;
        }
    }

    /// Whether an update of this object is pending.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    /// Remove these, unless a newer record was added.
    pub(crate) fn acknowledge(&self, versions: &[(Key, Timestamp)]) {
        let mut updates = self.lock();
        let before = updates.len();
        for (key, timestamp) in versions {
            // A newer record has an update of its own.
            if updates.get(key).is_some_and(|update| update.timestamp <= *timestamp) {
                updates.remove(key);
            }
        }
        self.acknowledged.fetch_add((before - updates.len()) as u64, Ordering::Relaxed);
    }

    /// The content of the file. If the update of a record below `sequence` is not in it, it was acknowledged.
    pub(crate) fn pack(&self, device: &DeviceId, sequence: u64) -> Vec<u8> {
        self.acknowledged.store(0, Ordering::Relaxed);
        let updates = self.lock();
        let mut raw = Vec::with_capacity(HEAD + updates.len() * ENTRY + 8);
        raw.extend_from_slice(&MAGIC);
        raw.extend_from_slice(&VERSION.to_be_bytes());
        raw.extend_from_slice(&[0; 6]);
        raw.extend_from_slice(device);
        raw.extend_from_slice(&sequence.to_be_bytes());
        raw.extend_from_slice(&(updates.len() as u64).to_be_bytes());
        for (key, update) in updates.iter() {
            raw.extend_from_slice(&key.policy.to_be_bytes());
            raw.extend_from_slice(&key.partition.to_be_bytes());
            raw.extend_from_slice(&key.digest);
            raw.extend_from_slice(&update.timestamp.to_be_bytes());
            raw.extend_from_slice(&update.row.to_be_bytes());
        }
        raw.extend_from_slice(&swiftlet_hash::xxh3_64(&raw).to_be_bytes());
        raw
    }

    /// Read the file: its updates, and the sequence number below which it has all of them; none if it is unsound.
    pub(crate) fn load(device: &Device) -> Result<(Self, u64)> {
        let file = match device.disk.open(FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Self::default(), 0)),
            other => device.io("open the pending updates", other)?,
        };
        let size = device.io("ask for a file's size", file.size())? as usize;
        if !(HEAD + 8..=HEAD + 8 + MAX_HELD * ENTRY).contains(&size) {
            return Ok((Self::default(), 0));
        }
        let mut raw = vec![0; size];
        let read = device.io("read the pending updates", file.read_at(&mut raw, 0))?;
        let body = size - 8;
        let sound = read == size
            && raw[..8] == MAGIC
            && raw[8..10] == VERSION.to_be_bytes()
            && raw[16..32] == device.id
            && u64_at(&raw, 40).checked_mul(ENTRY as u64) == Some((body - HEAD) as u64)
            && swiftlet_hash::xxh3_64(&raw[..body]) == u64_at(&raw, body);
        let pending = Self::default();
        if !sound {
            return Ok((pending, 0));
        }
        for entry in raw[HEAD..body].chunks_exact(ENTRY) {
            let mut digest = [0; 16];
            digest.copy_from_slice(&entry[6..22]);
            let key = Key { policy: u16::from_be_bytes([entry[0], entry[1]]), partition: u32_at(entry, 2), digest };
            pending.add(key, u64_at(entry, 22), u32_at(entry, 30), Version::Known);
        }
        Ok((pending, u64_at(&raw, 32)))
    }

    /// Whether so many are pending that no write should add another one.
    pub(crate) fn are_too_many(&self) -> bool {
        self.count() >= MAX_PENDING
    }

    /// Whether half of that is pending.
    pub(crate) fn are_many(&self) -> bool {
        self.count() >= MAX_PENDING / 2
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// For how long the oldest of them has been pending.
    pub(crate) fn pending_for(&self) -> Duration {
        let updates = self.lock();
        updates.values().map(|update| update.since.elapsed()).max().unwrap_or_default()
    }

    /// Up to `limit` updates that have been pending for `age`, the oldest first; of those that nobody else delivers, from
    /// a shorter age on. What `waits` is left alone.
    pub(crate) fn oldest(
        &self,
        limit: usize,
        age: Duration,
        waits: impl Fn(&Key, Timestamp) -> bool,
    ) -> Vec<PendingUpdate> {
        let updates = self.lock();
        let wait = |update: &Update| if update.alone { age.min(SOON) } else { age };
        let old = updates.iter().filter(|(_, update)| update.since.elapsed() >= wait(update));
        let old = old.filter(|(key, update)| !waits(key, update.timestamp));
        let mut old: Vec<(Instant, PendingUpdate)> = old
            .map(|(key, update)| {
                (update.since, PendingUpdate { key: *key, timestamp: update.timestamp, row: update.row })
            })
            .collect();
        drop(updates);
        old.sort_unstable();
        old.truncate(limit);
        old.into_iter().map(|(_, row)| row).collect()
    }

    /// Whether so many were acknowledged that the file should be written, so that they are not pending again after a
    /// crash.
    pub(crate) fn is_file_due(&self) -> bool {
        self.acknowledged.load(Ordering::Relaxed) >= ACKNOWLEDGED_STEP
    }
}

/// Replace the file with the packed content.
pub(crate) fn write(device: &Device, raw: &[u8]) -> Result<()> {
    let disk = &device.disk;
    let temporary = format!("{FILE}.tmp");
    match disk.unlink(&temporary) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => device.io("remove an old file of pending updates", other)?,
    }
    let file = device.io("create a file of pending updates", disk.create(&temporary))?;
    device.io("write the pending updates", file.write_at(&[IoSlice::new(raw)], 0))?;
    device.sync(&*file)?;
    disk.reach("pending-written");
    device.io("replace the pending updates", disk.rename(&temporary, FILE))?;
    device.sync_directory("")?;
    disk.reach("pending-placed");
    Ok(())
}
