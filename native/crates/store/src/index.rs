//! The index: what is held of each object and where its records are. It is in memory; checkpoints write it to the
//! device.
//!
//! It holds only what is durable: records change it after their batch was synced. Applying records twice, or in
//! another order, leads to the same index.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) mod changes;
pub(crate) mod checkpoint;
mod partition;
mod room;
mod search;
mod slot;

pub(crate) use partition::{Extra, Held, Partition, Post, Record};
pub(crate) use slot::Slot;

use self::changes::Changes;
use crate::model::{Entry, Key, Suffix};
use crate::record::{ALIGN, Header, Kind, Place};

const SHARDS: usize = 256;

/// A partition's name: storage policy and number.
pub(crate) type PartitionId = (u16, u32);
type Shard = HashMap<PartitionId, Partition, BuildHasherDefault<PartitionHasher>>;

/// A hasher of partitions' names, which no client chooses: one multiplication.
#[derive(Default)]
struct PartitionHasher(u64);

impl Hasher for PartitionHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u32(u32::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0 << 32 ^ self.0 >> 32 ^ u64::from(value)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// A lock in cache lines of its own, so that it does not slow its neighbours down.
#[repr(align(64))]
#[derive(Default)]
struct Guarded(RwLock<Shard>);

/// What applying a record changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Whether the index holds the record now.
    pub held: bool,
    /// Records that are no longer held, with their sizes in units.
    pub freed: [Option<(Place, u32)>; 2],
    /// A large file without references.
    pub unlink: Option<u64>,
}

/// The index of a device.
pub(crate) struct Index {
    shards: Box<[Guarded]>,
    count: AtomicU64,
    changes: Mutex<Changes>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Guarded::default()).collect(),
            count: AtomicU64::new(0),
            changes: Mutex::default(),
        }
    }
}

fn shard_of((policy, partition): PartitionId) -> usize {
    let mixed = (u64::from(policy) << 32 | u64::from(partition)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize % SHARDS
}

fn units(header: &Header) -> u32 {
    (header.record_len() / ALIGN) as u32
}

impl Index {
    fn read(&self, id: PartitionId) -> RwLockReadGuard<'_, Shard> {
        self.shards[shard_of(id)].0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, id: PartitionId) -> RwLockWriteGuard<'_, Shard> {
        self.shards[shard_of(id)].0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Objects and tombstones.
    #[must_use]
    pub(crate) fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Call `look` with what is held of an object, which does not change meanwhile.
    pub(crate) fn look<R>(&self, key: &Key, look: impl FnOnce(Option<&Held>) -> R) -> R {
        let shard = self.read((key.policy, key.partition));
        let held = shard.get(&(key.policy, key.partition)).and_then(|partition| partition.get(&key.digest));
        look(held.as_ref())
    }

    /// What is held of an object.
    #[must_use]
    pub(crate) fn get(&self, key: &Key) -> Option<Held> {
        self.look(key, |held| held.copied())
    }

    /// Change what is held of an object.
    fn change<R>(&self, key: &Key, change: impl FnOnce(&mut Partition) -> R) -> R {
        let id = (key.policy, key.partition);
        let mut shard = self.write(id);
        let partition = shard.entry(id).or_default();
        let before = partition.len() as u64;
        let had_root = partition.has_root();
        let result = change(partition);
        let after = partition.len() as u64;
        // A partition whose root nobody has read since its last change is among the changes already.
        let unknown = before == 0 || (had_root && !partition.has_root());
        if after == 0 {
            shard.remove(&id);
        }
        if (after == 0 && before > 0) || (after > 0 && unknown) {
            self.changes.lock().unwrap_or_else(PoisonError::into_inner).add(id);
        }
        if after > before {
            self.count.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.count.fetch_sub(before - after, Ordering::Relaxed);
        }
        result
    }

    /// Merge a durable record. A POST without its object changes nothing.
    pub(crate) fn apply(&self, header: &Header) -> Applied {
        self.change(&header.key, |partition| match header.kind {
            Kind::Put | Kind::Large | Kind::Tombstone => apply_version(partition, header),
            Kind::Post => apply_post(partition, header),
            Kind::Forget => forget(partition, header),
        })
    }

    /// Record that a record was copied from `old` to `new`; false when it is not held at `old` any more.
    pub(crate) fn relocate(&self, key: &Key, old: Place, new: Place) -> bool {
        self.change(key, |partition| {
            let Some(held) = partition.get(&key.digest) else { return false };
            let Slot { kind, timestamp, place, units, .. } = held.slot;
            let mut record = Record { kind, timestamp, place, units, extra: held.extra };
            if place == old {
                record.place = new;
            } else if let Some(post) = record.extra.post.as_mut().filter(|post| post.place == old) {
                post.place = new;
            } else {
                return false;
            }
            partition.set(&key.digest, Some(&record));
            true
        })
    }

    /// Remove a POST; false when it is not at this place any more.
    pub(crate) fn drop_post(&self, key: &Key, place: Place) -> bool {
        self.change(key, |partition| {
            let Some(held) = partition.get(&key.digest) else { return false };
            if held.extra.post.is_none_or(|post| post.place != place) {
                return false;
            }
            let Slot { kind, timestamp, place, units, .. } = held.slot;
            let extra = Extra { post: None, ..held.extra };
            partition.set(&key.digest, Some(&Record { kind, timestamp, place, units, extra }));
            true
        })
    }

    /// Partitions that are not empty, in order.
    #[must_use]
    pub(crate) fn ids(&self) -> Vec<PartitionId> {
        let mut found = Vec::new();
        for shard in &*self.shards {
            found.extend(shard.0.read().unwrap_or_else(PoisonError::into_inner).keys());
        }
        found.sort_unstable();
        found
    }

    /// Call a function with one partition.
    pub(crate) fn partition<R>(&self, id: PartitionId, look: impl FnOnce(&Partition) -> R) -> Option<R> {
        self.read(id).get(&id).map(look)
    }

    /// One hash over a partition; None when it is empty.
    #[must_use]
    pub(crate) fn root(&self, id: PartitionId) -> Option<u128> {
        self.write(id).get_mut(&id).map(Partition::root)
    }

    /// Partitions whose roots have changed since a position, and the next position; None instead of the partitions when
    /// there are too many to know, or without a position. Who reads the roots of those that concern it, and of no
    /// others, and then asks from the next position on, misses no change.
    pub(crate) fn changed_roots(&self, since: Option<u64>) -> (u64, Option<Vec<PartitionId>>) {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).since(since)
    }

    /// What is held in a suffix, by digest.
    #[must_use]
    pub(crate) fn entries(&self, id: PartitionId, suffix: Suffix) -> Vec<Entry> {
        let held = self.partition(id, |partition| partition.in_suffix(suffix)).unwrap_or_default();
        held.iter().map(Partition::entry_of).collect()
    }

    /// Install a loaded partition.
    pub(crate) fn install(&self, id: PartitionId, partition: Partition) {
        self.count.fetch_add(partition.len() as u64, Ordering::Relaxed);
        self.write(id).insert(id, partition);
    }

    /// Everything that is held, partition by partition.
    pub(crate) fn for_each(&self, mut each: impl FnMut(PartitionId, &Held)) {
        for id in self.ids() {
            self.partition(id, |partition| partition.iter().for_each(|held| each(id, &held)));
        }
    }
}

fn freed_by(held: &Held, post_goes: bool) -> [Option<(Place, u32)>; 2] {
    let post = held.extra.post.filter(|_| post_goes).map(|post| (post.place, post.units));
    [Some((held.slot.place, held.slot.units)), post]
}

fn large_of(held: &Held) -> Option<u64> {
    (held.extra.large != 0).then_some(held.extra.large)
}

fn apply_version(partition: &mut Partition, header: &Header) -> Applied {
    let digest = &header.key.digest;
    let before = partition.get(digest);
    let same_kind = |held: &Held| (held.slot.kind == Kind::Tombstone) == (header.kind == Kind::Tombstone);
    if let Some(held) = &before {
        let newer = held.slot.timestamp > header.timestamp;
        let tombstone_wins = held.slot.timestamp == header.timestamp && held.slot.kind == Kind::Tombstone;
        if newer || (tombstone_wins && !same_kind(held)) {
            return Applied::default();
        }
    }
    let post = before.and_then(|held| held.extra.post).filter(|post| post.timestamp > header.timestamp);
    let extra = Extra { large: header.large, delete_at: header.delete_at, post };
    let record =
        Record { kind: header.kind, timestamp: header.timestamp, place: header.place, units: units(header), extra };
    partition.set(digest, Some(&record));
    let Some(held) = before else { return Applied { held: true, ..Applied::default() } };
    let mut freed = freed_by(&held, post.is_none());
    if held.slot.place == header.place {
        freed[0] = None;
    }
    Applied { held: true, freed, unlink: large_of(&held).filter(|large| *large != header.large) }
}

fn apply_post(partition: &mut Partition, header: &Header) -> Applied {
    let Some(held) = partition.get(&header.key.digest) else { return Applied::default() };
    if held.slot.timestamp >= header.timestamp {
        return Applied::default();
    }
    let version = (header.timestamp, header.content_type_timestamp);
    if held.extra.post.is_some_and(|post| (post.timestamp, post.content_type_timestamp) > version) {
        return Applied::default();
    }
    let post = Post {
        timestamp: header.timestamp,
        content_type_timestamp: header.content_type_timestamp,
        place: header.place,
        units: units(header),
        delete_at: header.delete_at,
    };
    let Slot { kind, timestamp, place, units, .. } = held.slot;
    let extra = Extra { post: Some(post), ..held.extra };
    partition.set(&header.key.digest, Some(&Record { kind, timestamp, place, units, extra }));
    let old = held.extra.post.filter(|old| old.place != header.place);
    Applied { held: true, freed: [old.map(|old| (old.place, old.units)), None], unlink: None }
}

fn forget(partition: &mut Partition, header: &Header) -> Applied {
    match partition.set(&header.key.digest, None) {
        Some(held) => Applied { held: false, freed: freed_by(&held, true), unlink: large_of(&held) },
        None => Applied::default(),
    }
}
