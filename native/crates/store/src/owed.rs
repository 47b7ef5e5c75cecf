//! Rows that the device owes to containers: which objects' newest state a listing may not have heard of.
//!
//! A record carries the container replicas that have to hear of it, so a row is as durable as its write. That a row was
//! settled is not written at once: after a crash some are owed again, and a row may be listed twice without
//! harm. `docs/design/2026-11-21-rows.md` has the reasons, `docs/volumes.md` the file.
//!
//! Fault model: the process may die at any instruction: the file is replaced whole. Lost or damaged it costs the rows
//! that were owed before the last checkpoint, which the other replicas of the object owe as well.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::commit::{Done, Op};
use crate::device::Device;
use crate::error::Result;
use crate::model::{Footer, Key, PostMeta, PutMeta, Timestamp};
use crate::read;
use crate::record::{DeviceId, Header, Kind, u32_at, u64_at};
use crate::store::{Inner, Store};

/// The file.
const FILE: &str = "owed";
const MAGIC: [u8; 8] = *b"SWLTOWED";
const VERSION: u16 = 1;
const HEAD: usize = 48;
const ENTRY: usize = 34;
/// From so many on, writes with a row are refused.
const MAX_OWED: usize = 100_000;
/// What a start takes in at most: what is owed, and what came between two writings of the file.
const MAX_HELD: usize = 4 * MAX_OWED;
/// After so many were settled the file is written anew.
const SETTLED_STEP: u64 = 10_000;

#[derive(Clone, Copy)]
struct Debt {
    timestamp: Timestamp,
    row: u32,
    since: Instant,
    /// Whether the newest version is a POST, or may be one.
    post: bool,
}

/// What a row is owed for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    /// Data or a deletion: its row takes the place of all older ones.
    Data,
    /// Its row changes what older ones say, so those are owed beside it.
    Post,
    /// A version that is here already, or one read from the file: nobody knows which.
    Known,
}

impl Debt {
    /// Owe the row of another version too.
    ///
    /// Whoever brings the row of a POST has asked some devices what they hold, and this one may hold more: older data
    /// that only it has, or another POST's content type. So where a POST is the newest of several versions the debt's
    /// timestamp is one above it, which no write has: only this device settles it, when it has brought its own row.
    fn add(&mut self, timestamp: Timestamp, row: u32, version: Version) {
        let apart = match version {
            Version::Data => timestamp < self.timestamp && self.post,
            Version::Post => timestamp >= self.timestamp || self.post,
            Version::Known => timestamp > self.timestamp,
        };
        if timestamp > self.timestamp {
            self.post = version != Version::Data;
        }
        self.timestamp = self.timestamp.max(timestamp) + u64::from(apart);
        self.row |= row;
    }
}

/// One object whose row is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwedRow {
    /// Which object.
    pub key: Key,
    /// Of the newest record with a row, or one above it; `settle` takes it.
    pub timestamp: Timestamp,
    /// Container replicas, as bits.
    pub row: u32,
}

/// All that are owed.
#[derive(Default)]
pub(crate) struct Owed {
    debts: Mutex<HashMap<Key, Debt>>,
    settled: AtomicU64,
}

impl Owed {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Debt>> {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, key: Key, timestamp: Timestamp, row: u32, version: Version) {
        let mut debts = self.lock();
        if row == 0 {
            return;
        }
        if let Some(debt) = debts.get_mut(&key) {
            debt.add(timestamp, row, version);
        } else if debts.len() < MAX_HELD {
            let post = version != Version::Data;
            debts.insert(key, Debt { timestamp, row, since: Instant::now(), post });
        }
    }

    /// A record has become durable.
    pub(crate) fn note(&self, header: &Header) {
        if header.kind == Kind::Forget {
            self.lock().remove(&header.key);
        } else {
            let version = if header.kind == Kind::Post { Version::Post } else { Version::Data };
            self.add(header.key, header.timestamp, header.row, version);
        }
    }

    /// Whether this object's row is owed.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    fn settle(&self, settled: &[(Key, Timestamp)]) {
        let mut debts = self.lock();
        let before = debts.len();
        for (key, timestamp) in settled {
            // A newer record's row is another one.
            if debts.get(key).is_some_and(|debt| debt.timestamp <= *timestamp) {
                debts.remove(key);
            }
        }
        self.settled.fetch_add((before - debts.len()) as u64, Ordering::Relaxed);
    }

    /// As the file has it; every row of a record below `sequence` that is not in it is settled.
    fn pack(&self, device: &DeviceId, sequence: u64) -> Vec<u8> {
        let debts = self.lock();
        let mut raw = Vec::with_capacity(HEAD + debts.len() * ENTRY + 8);
        raw.extend_from_slice(&MAGIC);
        raw.extend_from_slice(&VERSION.to_be_bytes());
        raw.extend_from_slice(&[0; 6]);
        raw.extend_from_slice(device);
        raw.extend_from_slice(&sequence.to_be_bytes());
        raw.extend_from_slice(&(debts.len() as u64).to_be_bytes());
        for (key, debt) in debts.iter() {
            raw.extend_from_slice(&key.policy.to_be_bytes());
            raw.extend_from_slice(&key.partition.to_be_bytes());
            raw.extend_from_slice(&key.digest);
            raw.extend_from_slice(&debt.timestamp.to_be_bytes());
            raw.extend_from_slice(&debt.row.to_be_bytes());
        }
        raw.extend_from_slice(&swiftlet_hash::xxh3_64(&raw).to_be_bytes());
        raw
    }

    /// What the file says, and the sequence number below which it knows of all; nothing, if it is not sound.
    pub(crate) fn load(device: &Device) -> Result<(Self, u64)> {
        let file = match device.disk.open(FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Self::default(), 0)),
            other => device.io("open the owed rows", other)?,
        };
        let size = device.io("ask for a file's size", file.size())? as usize;
        if !(HEAD + 8..=HEAD + 8 + MAX_HELD * ENTRY).contains(&size) {
            return Ok((Self::default(), 0));
        }
        let mut raw = vec![0; size];
        let read = device.io("read the owed rows", file.read_at(&mut raw, 0))?;
        let body = size - 8;
        let sound = read == size
            && raw[..8] == MAGIC
            && raw[8..10] == VERSION.to_be_bytes()
            && raw[16..32] == device.id
            && u64_at(&raw, 40).checked_mul(ENTRY as u64) == Some((body - HEAD) as u64)
            && swiftlet_hash::xxh3_64(&raw[..body]) == u64_at(&raw, body);
        let owed = Self::default();
        if !sound {
            return Ok((owed, 0));
        }
        for entry in raw[HEAD..body].chunks_exact(ENTRY) {
            let mut digest = [0; 16];
            digest.copy_from_slice(&entry[6..22]);
            let key = Key { policy: u16::from_be_bytes([entry[0], entry[1]]), partition: u32_at(entry, 2), digest };
            owed.add(key, u64_at(entry, 22), u32_at(entry, 30), Version::Known);
        }
        Ok((owed, u64_at(&raw, 32)))
    }
}

/// Write the file, before a checkpoint that lets older records be skipped.
pub(crate) fn write(inner: &Inner) -> Result<()> {
    let raw = {
        // While this is held nothing is committed: records below the number are all in the set, or settled.
        let log = inner.log.lock().unwrap_or_else(PoisonError::into_inner);
        inner.owed.settled.store(0, Ordering::Relaxed);
        inner.owed.pack(&inner.device.id, log.sequence)
    };
    let (device, disk) = (&inner.device, &inner.device.disk);
    let temporary = format!("{FILE}.tmp");
    match disk.unlink(&temporary) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => device.io("remove an old file of owed rows", other)?,
    }
    let file = device.io("make a file of owed rows", disk.create(&temporary))?;
    device.io("write the owed rows", file.write_at(&[IoSlice::new(&raw)], 0))?;
    device.sync(&*file)?;
    disk.reach("owed-written");
    device.io("place the owed rows", disk.rename(&temporary, FILE))?;
    device.sync_directory("")?;
    disk.reach("owed-placed");
    Ok(())
}

/// Write the file if many were settled, so that a start after a crash does not owe them again.
pub(crate) fn write_if_due(inner: &Inner) -> Result<()> {
    if inner.owed.settled.load(Ordering::Relaxed) >= SETTLED_STEP { write(inner) } else { Ok(()) }
}

impl Store {
    /// As `submit_put`; these container replicas (bits) have to hear of it.
    pub fn submit_put_owing(&self, key: Key, meta: &PutMeta, footer: &Footer, data: Vec<u8>, row: u32, done: Done) {
        self.check_and_push_put(key, meta, footer, data, row, done);
    }

    /// As `submit_post`; these container replicas (bits) have to hear of it.
    pub fn submit_post_owing(&self, key: Key, meta: PostMeta, row: u32, done: Done) {
        match self.inner.device.check_room(0) {
            Ok(()) => self.inner.queue.push(key, Op::Post { meta, row }, done),
            Err(error) => done(Err(error)),
        }
    }

    /// As `submit_delete`; these container replicas (bits) have to hear of it.
    pub fn submit_delete_owing(&self, key: Key, timestamp: Timestamp, name: Vec<u8>, row: u32, done: Done) {
        self.inner.queue.push(key, Op::Delete { timestamp, name, row }, done);
    }

    /// Owe the row of a version that was here already: until the next start, and longer if it was owed before.
    pub fn owe(&self, key: Key, timestamp: Timestamp, row: u32) {
        self.inner.owed.add(key, timestamp, row, Version::Known);
    }

    /// Whether so many rows are owed that no write should add another.
    #[must_use]
    pub fn owes_too_much(&self) -> bool {
        self.owed_count() >= MAX_OWED
    }

    /// How many rows are owed.
    #[must_use]
    pub fn owed_count(&self) -> usize {
        self.inner.owed.lock().len()
    }

    /// How long the oldest of them has been owed.
    #[must_use]
    pub fn owed_for(&self) -> Duration {
        let debts = self.inner.owed.lock();
        debts.values().map(|debt| debt.since.elapsed()).max().unwrap_or_default()
    }

    /// `/account/container/object` of what is held under a key, a tombstone too; None when nothing is.
    pub fn name(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        read::name(&self.inner, key)
    }

    /// Rows that have been owed for so long, up to `limit` of them, the oldest first.
    #[must_use]
    pub fn owed(&self, limit: usize, age: Duration) -> Vec<OwedRow> {
        let debts = self.inner.owed.lock();
        let old = debts.iter().filter(|(_, debt)| debt.since.elapsed() >= age);
        let mut old: Vec<(Instant, OwedRow)> = old
            .map(|(key, debt)| (debt.since, OwedRow { key: *key, timestamp: debt.timestamp, row: debt.row }))
            .collect();
        drop(debts);
        old.sort_unstable();
        old.truncate(limit);
        old.into_iter().map(|(_, row)| row).collect()
    }

    /// These rows are listed, or will never be: nobody is owed them any more, unless a newer record came.
    pub fn settle(&self, settled: &[(Key, Timestamp)]) {
        self.inner.owed.settle(settled);
    }
}
