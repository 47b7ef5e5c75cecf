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

pub(crate) use partition::{Between, Extra, Held, HeldTable, Partition, Record, Taking, WholeObject, is_between};
pub(crate) use slot::{Member, Slot};

use swiftlet_fragments::Version;
use swiftlet_fragments::packs::Digest;
use swiftlet_fragments::packs::table::{BLOCK, Reference};
use swiftlet_fragments::slot::Change;

use self::changes::Changes;
use crate::model::{Entry, Key, Suffix, Timestamp};
use crate::post::Post;
use crate::record::{ALIGN, Header, Kind, Place, State};
use crate::versions::Versions;

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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Whether the index holds the record now.
    pub held: bool,
    /// Records that are no longer held, with their sizes in units.
    pub freed: Vec<(Place, u32)>,
    /// Large files without references.
    pub unlink: Vec<u64>,
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

/// References with the numbers of the blocks in which they are written.
pub(crate) fn numbered(references: &[Reference]) -> impl Iterator<Item = (usize, Reference)> {
    references.iter().enumerate().map(|(at, reference)| (at / BLOCK, *reference))
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
        self.change_partition((key.policy, key.partition), change)
    }

    /// The same for what may also end references.
    fn change_and_free(&self, id: PartitionId, change: impl FnOnce(&mut Partition) -> Applied) -> Applied {
        self.change_partition(id, |partition| {
            let mut applied = change(partition);
            applied.freed.extend(partition.take_dead_tables());
            applied
        })
    }

    fn change_partition<R>(&self, id: PartitionId, change: impl FnOnce(&mut Partition) -> R) -> R {
        let mut shard = self.write(id);
        let partition = shard.entry(id).or_default();
        let before = partition.len() as u64;
        let had_root = partition.has_root();
        let result = change(partition);
        let after = partition.len() as u64;
        // A partition whose root nobody has read since its last change is among the changes already.
        let unknown = before == 0 || (had_root && !partition.has_root());
        if partition.is_empty() {
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

    /// Merge a durable record, with the change that it makes if it is of a fragment. A POST without its object changes
    /// nothing, and neither does a whole object where there is a fragment. A table is merged by `apply_table`.
    pub(crate) fn apply(&self, header: &Header, change: Option<&Change>) -> Applied {
        self.change_and_free((header.key.policy, header.key.partition), |partition| {
            let deletion = Change::Settled(Version::deletion(header.timestamp));
            match (header.kind, partition.has_fragment(&header.key.digest)) {
                (Kind::Fragment | Kind::LargeFragment | Kind::Decision, _) => {
                    change.map(|change| partition.merge(header, change)).unwrap_or_default()
                }
                (Kind::CodedPost, _) => partition.merge_post(header),
                (Kind::Tombstone, true) => partition.merge(header, &deletion),
                (Kind::Forget, true) => partition.forget_fragment(&header.key.digest),
                (_, true) => Applied::default(),
                (Kind::Table, _) => Applied::default(),
                (Kind::Put | Kind::Large | Kind::Tombstone, false) => apply_version(partition, header),
                (Kind::Post, false) => apply_post(partition, header),
                (Kind::Forget, false) => forget(partition, header),
            }
        })
    }

    /// Record that a record was copied from `old` to `new`, with this state in it if it is a fragment's: it is not held
    /// if it was not held at `old` any more.
    pub(crate) fn relocate(&self, key: &Key, old: Place, new: Place, state: State) -> Applied {
        self.change_and_free((key.policy, key.partition), |partition| {
            if partition.has_fragment(&key.digest) {
                return partition.relocate_fragment(&key.digest, old, new, state);
            }
            let Some(held) = partition.get(&key.digest) else { return Applied::default() };
            let Slot { kind, timestamp, place, units, .. } = held.slot;
            let mut record = Record { kind, timestamp, place, units, extra: held.extra };
            let units = if held.slot.own_record() == Some((old, units)) {
                record.place = new;
                units
            } else if let Some(post) = record.extra.post.as_mut().filter(|post| post.place == old) {
                post.place = new;
                post.units
            } else {
                return Applied::default();
            };
            partition.set(&key.digest, Some(&record));
            Applied { held: true, freed: vec![(old, units)], unlink: Vec::new() }
        })
    }

    /// Merge the durable record of a table: those of its references, with the numbers of their blocks, that `counts` lets
    /// pass.
    pub(crate) fn apply_table(
        &self,
        header: &Header,
        references: impl Iterator<Item = (usize, Reference)>,
        counts: impl Fn(&Digest) -> bool,
    ) -> Applied {
        self.change_and_free((header.key.policy, header.key.partition), |partition| {
            partition.merge_table(header, references.filter(|(_, reference)| counts(&reference.digest)))
        })
    }

    /// Record that tables were copied with these references from old places to where the new header says.
    pub(crate) fn relocate_table(&self, olds: &[Place], new: &Header, references: &[(usize, Reference)]) -> Applied {
        self.change_and_free((new.key.policy, new.key.partition), |partition| {
            partition.relocate_table(olds, new, references)
        })
    }

    /// The table at a place of a partition, if it has references.
    #[must_use]
    pub(crate) fn table(&self, id: PartitionId, place: Place) -> Option<HeldTable> {
        self.partition(id, |partition| partition.table(place)).flatten()
    }

    /// Forget all objects with references in a table that is not there; false if there are none.
    pub(crate) fn drop_table(&self, id: PartitionId, place: Place) -> bool {
        let mut found = false;
        self.change_and_free(id, |partition| {
            found = partition.drop_table(place);
            Applied::default()
        });
        found
    }

    /// Forget all objects of a partition of which the digests are in a range.
    pub(crate) fn forget_between(&self, id: PartitionId, range: &Between) {
        self.change_and_free(id, |partition| partition.forget_between(range));
    }

    /// Whether any partition has references to packs.
    #[must_use]
    pub(crate) fn has_tables(&self) -> bool {
        let any = |shard: &Shard| shard.values().any(|partition| partition.tables().next().is_some());
        self.shards.iter().any(|shard| any(&shard.0.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Whether anything but a deletion is held of a fragment.
    #[must_use]
    pub(crate) fn has_fragment(&self, key: &Key) -> bool {
        let id = (key.policy, key.partition);
        self.read(id).get(&id).is_some_and(|partition| partition.has_fragment(&key.digest))
    }

    /// Whether a fragment is held of a version up to this timestamp of which nobody here knows what became of it.
    #[must_use]
    pub(crate) fn is_undecided(&self, key: &Key, timestamp: Timestamp) -> bool {
        let undecided = |versions: &Versions| {
            let mut old =
                versions.kept.iter().filter(|kept| kept.bytes.is_some() && kept.version.timestamp <= timestamp);
            old.any(|kept| versions.decided(kept).is_none())
        };
        self.has_fragment(key) && self.look_at_fragment(key, undecided).unwrap_or(false)
    }

    /// Whether any partition has fragments.
    #[must_use]
    pub(crate) fn has_fragments(&self) -> bool {
        let any = |shard: &Shard| shard.values().any(Partition::has_fragments);
        self.shards.iter().any(|shard| any(&shard.0.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Call a function with what is held of a fragment, which does not change meanwhile.
    pub(crate) fn look_at_fragment<R>(&self, key: &Key, look: impl FnOnce(&Versions) -> R) -> Result<R, WholeObject> {
        let id = (key.policy, key.partition);
        let shard = self.read(id);
        let held = shard.get(&id).map_or(Ok(Versions::default()), |partition| partition.versions(&key.digest))?;
        Ok(look(&held))
    }

    /// What is held of a fragment, a deletion alone as well.
    pub(crate) fn versions(&self, key: &Key) -> Result<Versions, WholeObject> {
        let id = (key.policy, key.partition);
        self.read(id).get(&id).map_or(Ok(Versions::default()), |partition| partition.versions(&key.digest))
    }

    /// Whether a record that counts is at a place.
    #[must_use]
    pub(crate) fn holds(&self, key: &Key, place: Place) -> bool {
        let id = (key.policy, key.partition);
        let shard = self.read(id);
        let Some(partition) = shard.get(&id) else { return false };
        if partition.table(place).is_some() {
            return true;
        }
        if partition.has_fragment(&key.digest) {
            return partition.versions(&key.digest).is_ok_and(|held| held.spots().any(|spot| spot.place == place));
        }
        partition
            .get(&key.digest)
            .is_some_and(|held| held.slot.place == place || held.extra.post.is_some_and(|post| post.place == place))
    }

    /// Call a function with everything that is held: object, place and units of each record. A table's key is that of
    /// its pack.
    pub(crate) fn for_each_place(&self, mut each: impl FnMut(&Key, Place, u32)) {
        for (policy, partition) in self.ids() {
            self.partition((policy, partition), |found| {
                found.for_each_place(|digest, place, units| {
                    each(&Key { policy, partition, digest: *digest }, place, units);
                });
            });
        }
    }

    /// Call a function with all fragments of which anything but a deletion is held.
    pub(crate) fn for_each_fragment(&self, mut each: impl FnMut(&Key, &Versions)) {
        for (policy, partition) in self.ids() {
            self.partition((policy, partition), |found| {
                found
                    .fragments()
                    .for_each(|(digest, versions)| each(&Key { policy, partition, digest: *digest }, versions));
            });
        }
    }

    /// The first objects of a policy of which anything but a deletion is held, at most so many, and whether each is whole.
    #[must_use]
    pub(crate) fn first_of(&self, policy: u16, limit: usize) -> Vec<(Key, bool)> {
        let mut found = Vec::new();
        for (_, partition) in self.ids().into_iter().filter(|id| id.0 == policy) {
            let room = limit - found.len();
            if room == 0 {
                break;
            }
            self.partition((policy, partition), |held| {
                let some = held.iter().filter_map(|held_one| {
                    let digest = held_one.slot.digest();
                    let is_fragment = held.has_fragment(&digest);
                    let is_there = is_fragment || held_one.slot.kind != Kind::Tombstone;
                    is_there.then_some((Key { policy, partition, digest }, !is_fragment))
                });
                found.extend(some.take(room));
            });
        }
        found
    }

    /// Call a function with the fragments of a policy that are not settled, in order, from the first one behind a partition
    /// and digest on, until it returns false.
    pub(crate) fn for_each_unsettled(
        &self,
        policy: u16,
        after: Option<(u32, [u8; 16])>,
        mut each: impl FnMut(&Key, &Versions) -> bool,
    ) {
        let ids = self.ids();
        let first = (policy, after.map_or(0, |(partition, _)| partition));
        for (policy, partition) in ids.into_iter().filter(|id| *id >= first).take_while(|id| id.0 == policy) {
            let behind = after.filter(|after| after.0 == partition).map(|after| after.1);
            let ended = self.partition((policy, partition), |found| {
                let mut unsettled = found.unsettled(behind);
                unsettled.any(|(digest, versions)| !each(&Key { policy, partition, digest: *digest }, versions))
            });
            if ended == Some(true) {
                return;
            }
        }
    }

    /// The POST that is held, whether it counts for a version that is here or not.
    #[must_use]
    pub(crate) fn post(&self, key: &Key) -> Option<Post> {
        if self.has_fragment(key) {
            return self.versions(key).ok().and_then(|versions| versions.post);
        }
        self.get(key).and_then(|held| held.extra.post)
    }

    /// Remove a POST; false when it is not at this place any more.
    pub(crate) fn drop_post(&self, key: &Key, place: Place) -> bool {
        self.change(key, |partition| {
            if partition.has_fragment(&key.digest) {
                return partition.drop_coded_post(&key.digest, place);
            }
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

fn apply_version(partition: &mut Partition, header: &Header) -> Applied {
    let digest = &header.key.digest;
    let before = partition.get(digest);
    let same_kind = |held: &Held| (held.slot.kind == Kind::Tombstone) == (header.kind == Kind::Tombstone);
    if let Some(held) = &before {
        if held.slot.timestamp == header.timestamp && held.slot.kind == Kind::Table && same_kind(held) {
            // The copy is dead, as its bytes are in a pack.
            return Applied::default();
        }
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
    let mut freed = held.freed(post.is_none());
    freed.retain(|(place, _)| *place != header.place);
    let unlink = held.large().filter(|large| *large != header.large);
    Applied { held: true, freed, unlink: unlink.into_iter().collect() }
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
    Applied { held: true, freed: old.map(|old| (old.place, old.units)).into_iter().collect(), unlink: Vec::new() }
}

fn forget(partition: &mut Partition, header: &Header) -> Applied {
    match partition.set(&header.key.digest, None) {
        Some(held) => Applied { held: false, freed: held.freed(true), unlink: held.large().into_iter().collect() },
        None => Applied::default(),
    }
}
