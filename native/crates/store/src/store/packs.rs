//! References to packs: small objects of which the bytes are in a coded object of their partition.
//!
//! `docs/design/2026-11-29-packs.md` has the protocol. The device keeps references and says what it has; that a pack has
//! been proved, and that its fragment is here, is for the caller to know, who compares the copies' bytes with the
//! pack's before they are replaced.
//!
//! Fault model: that of the store. A table is one record, so all of its references become durable, or none. Each block of
//! one is proved by itself: where one is damaged, its objects are forgotten, and all others go on.

use std::collections::BinaryHeap;

use swiftlet_fragments::Version;
use swiftlet_fragments::packs::table::Table;
use swiftlet_fragments::packs::{Digest, Pack, is_pack};

use super::{RECLAIMED_AT_ONCE, Store};
use crate::COPIES;
use crate::commit;
use crate::deciding::not_of_a_pack;
use crate::error::{Error, Result};
use crate::index::{Held, HeldTable, PartitionId, Taking, WholeObject};
use crate::model::{Key, PostMeta, Timestamp};
use crate::queue::{Done, Op};
use crate::read::{self, Fetched, Referred};
use crate::record::Kind;
use crate::versions::OfPack;

/// How much of a pack is referred to here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackUse {
    /// The pack.
    pub pack: Pack,
    /// Tables that have them.
    pub tables: u32,
    /// References that count.
    pub references: u64,
    /// Bytes of their members.
    pub bytes: u64,
}

/// The metadata that a retired pack has.
const RETIRED: &[u8] = b"retired";

/// A copy that a pack may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cold {
    /// The object.
    pub digest: Digest,
    /// Its version.
    pub timestamp: Timestamp,
    /// Bytes of its record.
    pub bytes: u64,
}

/// A pack of which a place has the fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackHere {
    /// The pack.
    pub pack: Pack,
    /// What there is of it.
    pub state: PackState,
    /// References to it that are here.
    pub references: u64,
    /// Bytes of their members.
    pub live: u64,
    /// Bytes of the pack; 0 if its fragment can't be read.
    pub size: u64,
}

/// What there is at a place of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackState {
    /// Its fragment, settled.
    Kept,
    /// Nothing, or something that isn't settled.
    Missing,
    /// It was retired, or deleted: no reference to it is taken.
    Retired,
}

impl From<OfPack> for PackState {
    fn from(found: OfPack) -> Self {
        match found {
            OfPack::Kept(_) => Self::Kept,
            OfPack::Missing => Self::Missing,
            OfPack::Retired(_) => Self::Retired,
        }
    }
}

/// The oldest of what is held that may be in a pack.
fn oldest(all: impl Iterator<Item = Held>, before: Timestamp, most: usize) -> Vec<Cold> {
    let may_be = |held: &Held| held.slot.kind == Kind::Put && held.slot.timestamp < before && held.extra.delete_at == 0;
    let mut found = BinaryHeap::new();
    for held in all.filter(may_be) {
        found.push((held.slot.timestamp, held.slot.digest(), held.slot.bytes()));
        if found.len() > most {
            found.pop();
        }
    }
    found.into_iter().map(|(timestamp, digest, bytes)| Cold { digest, timestamp, bytes }).collect()
}

/// The store's partition with the small objects of a ring's partition, by that of any of its fragments.
fn small_of(fragment: u32) -> u32 {
    fragment | 31
}

impl Store {
    /// Replace copies by references, where the copy is of this version, nobody waits for its container update, and it
    /// does not expire; and references to earlier packs. `done` is called with whether there were any, when they are
    /// durable.
    pub fn submit_adopt(&self, id: PartitionId, table: Table, done: Done) {
        self.submit_references(id, (Taking::Adopt, None), table, done);
    }

    /// `submit_adopt`, and wait.
    pub fn adopt(&self, id: PartitionId, table: Table) -> Result<bool> {
        commit::wait(&self.inner, |done| self.submit_adopt(id, table, done))
    }

    /// Take references to versions that are missing here; `done` is called with whether there were any, when they are
    /// durable.
    pub fn submit_learn_references(&self, id: PartitionId, table: Table, done: Done) {
        self.submit_references(id, (Taking::Learn, None), table, done);
    }

    /// `submit_learn_references`, and wait.
    pub fn learn_references(&self, id: PartitionId, table: Table) -> Result<bool> {
        commit::wait(&self.inner, |done| self.submit_learn_references(id, table, done))
    }

    /// `submit_adopt` where this device is a place of the pack whose fragment has the partition `own`: `NotFound` if that
    /// is not here or not settled, `Superseded` if the pack is retired.
    pub fn submit_adopt_of(&self, policy: u16, own: u32, table: Table, done: Done) {
        self.submit_own(Taking::Adopt, (policy, own), table, done);
    }

    /// `submit_learn_references` with the rules of [`submit_adopt_of`](Self::submit_adopt_of).
    pub fn submit_learn_of(&self, policy: u16, own: u32, table: Table, done: Done) {
        self.submit_own(Taking::Learn, (policy, own), table, done);
    }

    fn submit_own(&self, taking: Taking, (policy, own): PartitionId, table: Table, done: Done) {
        let fragment = Key { policy, partition: own, digest: table.pack.digest };
        self.submit_references((policy, small_of(own)), (taking, Some(fragment)), table, done);
    }

    fn submit_references(&self, id: PartitionId, how: (Taking, Option<Key>), table: Table, done: Done) {
        match self.check_table(&table) {
            Ok(()) => {
                let key = Key { policy: id.0, partition: id.1, digest: table.pack.digest };
                self.inner.queue.push(key, Op::References(how.0, table, how.1), done);
            }
            Err(error) => done(Err(error)),
        }
    }

    /// Forget references to packs that are known here to be deleted, but for those whose objects have an update to be
    /// delivered; returns how many.
    ///
    /// A place has none: a pack is deleted when all have said so. A device may that was no place then, and is one again.
    /// Its set hashes are those of places that have the objects, and what it refers to is gone. Once forgotten they are
    /// missing, and sync brings them.
    pub(super) fn forget_dangling(&self) -> Result<u64> {
        let mut gone = 0;
        for id in self.inner.index.ids().into_iter().filter(|(_, partition)| small_of(*partition) == *partition) {
            for one in self.packs(id)? {
                gone += self.forget_if_deleted(id, one.pack)?;
            }
        }
        Ok(gone)
    }

    /// The same of one pack, by the key of a fragment of it: whoever has just been told that it is deleted need not wait
    /// for the next upkeep until its lack is seen.
    pub fn forget_references_to(&self, key: &Key) -> Result<u64> {
        let id = (key.policy, small_of(key.partition));
        let mut gone = 0;
        for one in self.packs(id)?.into_iter().filter(|one| one.pack.digest == key.digest) {
            gone += self.forget_if_deleted(id, one.pack)?;
        }
        Ok(gone)
    }

    fn forget_if_deleted(&self, id: PartitionId, pack: Pack) -> Result<u64> {
        if self.is_deleted(id, pack)? { self.forget_references(id, pack) } else { Ok(0) }
    }

    /// Whether any place's fragment of a pack is known here to be deleted.
    fn is_deleted(&self, (policy, partition): PartitionId, pack: Pack) -> Result<bool> {
        for fragment in partition - COPIES..partition {
            let key = Key { policy, partition: fragment, digest: pack.digest };
            let shown = self.shown_fragment(&key)?.map(|shown| shown.version);
            if shown.is_some_and(|shown| shown.is_deletion() && shown.timestamp >= pack.version.timestamp) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn forget_references(&self, id: PartitionId, pack: Pack) -> Result<u64> {
        let (policy, partition) = id;
        let of_pack = |(_, table): &(_, HeldTable)| table.pack == pack;
        let tables = self.inner.index.partition(id, |held| {
            let places = held.tables().filter(of_pack).map(|(place, _)| place);
            places.map(|place| (place, held.pointing_to(place))).collect::<Vec<_>>()
        });
        let mut gone = 0;
        for (place, references) in tables.unwrap_or_default() {
            let keys = references.iter().map(|(digest, _)| Key { policy, partition, digest: *digest });
            let keys: Vec<Key> = keys.filter(|key| !self.inner.pending.has(key)).collect();
            for some in keys.chunks(RECLAIMED_AT_ONCE) {
                gone += commit::ask_all(&self.inner, some.iter().map(|key| (*key, Op::Forget { place })))?;
            }
        }
        Ok(gone)
    }

    fn check_table(&self, table: &Table) -> Result<()> {
        self.inner.device.check()?;
        let bytes = table.encode().ok_or_else(not_of_a_pack)?;
        self.inner.device.check_room(bytes.len() as u64)
    }

    /// The reference to an object, checked; None if it is not in a pack, or not here.
    pub fn reference(&self, key: &Key) -> Result<Option<Referred>> {
        read::tables::reference(&self.inner, key)
    }

    /// The oldest copies of a partition that a pack may have, in the order of their digests: of before this time, so many
    /// at most, and with so many bytes of records at most. The partition is that of a place's fragments.
    pub fn cold_copies(&self, key: &Key, before: Timestamp, most: usize, most_bytes: u64) -> Result<Vec<Cold>> {
        self.inner.device.check()?;
        let id = (key.policy, small_of(key.partition));
        let found = self.inner.index.partition(id, |partition| oldest(partition.iter(), before, most));
        let mut found = found.unwrap_or_default();
        found.retain(|cold| !self.inner.pending.has(&Key { partition: id.1, digest: cold.digest, ..*key }));
        found.sort_unstable_by_key(|cold| (cold.timestamp, cold.digest));
        let mut bytes = 0;
        let fits = found.iter().take_while(|cold| {
            bytes += cold.bytes;
            bytes <= most_bytes
        });
        found.truncate(fits.count());
        found.sort_unstable_by_key(|cold| cold.digest);
        Ok(found)
    }

    /// The packs of which there is a settled fragment in the partition of this key, by digest.
    pub fn packs_at(&self, key: &Key) -> Result<Vec<PackHere>> {
        let id = (key.policy, key.partition);
        let digests = self.inner.index.partition(id, |partition| {
            let all = partition.iter().map(|held| held.slot.digest());
            all.filter(is_pack).collect::<Vec<_>>()
        });
        let used = self.packs((key.policy, small_of(key.partition)))?;
        let mut found = Vec::new();
        for digest in digests.unwrap_or_default() {
            let of_pack = Key { digest, ..*key };
            let Some(shown) = self.shown_fragment(&of_pack)?.filter(|shown| !shown.version.is_deletion()) else {
                continue;
            };
            let pack = Pack { version: shown.version, digest };
            let (references, live) = used
                .iter()
                .filter(|one| one.pack == pack)
                .fold((0, 0), |(references, live), one| (references + one.references, live + one.bytes));
            let state = self.pack_state(&of_pack, pack.version)?;
            found.push(PackHere { pack, state, references, live, size: self.size_of_pack(&of_pack, pack.version)? });
        }
        found.sort_unstable_by_key(|one| one.pack.digest);
        Ok(found)
    }

    fn size_of_pack(&self, key: &Key, pack: Version) -> Result<u64> {
        Ok(match self.fragment(key, pack)? {
            Fetched::Fragment(fragment) => fragment.info().block.geometry.object_bytes(),
            Fetched::Not(_) => 0,
        })
    }

    /// The bytes that a copy has as a member of a pack; None if it is none that a pack may have.
    pub fn member(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        read::tables::member(&self.inner, key)
    }

    /// Whether metadata lie beside an object that count in place of its own, be it a copy or a reference.
    #[must_use]
    pub fn is_posted(&self, key: &Key) -> bool {
        self.inner.index.post(key).is_some()
    }

    /// Read the fragment of a pack back from the device, past the page cache, and compare each cell with its digest. One
    /// that is unsound is put aside, and is missing from then on.
    pub fn prove_pack(&self, key: &Key, pack: Version) -> Result<PackState> {
        Ok(read::fragments::prove(&self.inner, key, pack)?.into())
    }

    /// What there is here of a pack, by the key of its fragment.
    pub fn pack_state(&self, key: &Key, pack: Version) -> Result<PackState> {
        self.inner.device.check()?;
        let state = self.inner.index.look_at_fragment(key, |versions| versions.of_pack(pack));
        Ok(state.map_err(WholeObject::into_error)?.into())
    }

    /// Take no reference to a pack any more, by the key of its fragment, which need not be here. It is one POST wherever
    /// and however often it is done. `done` is called when it is durable: from then on references only get fewer.
    pub fn submit_retire(&self, key: Key, pack: Version, done: Done) {
        let meta = PostMeta {
            timestamp: pack.timestamp.saturating_add(1),
            metadata: vec![(RETIRED.to_vec(), b"1".to_vec())],
            ..PostMeta::default()
        };
        let done: Done = Box::new(|outcome| {
            done(match outcome {
                // It was deleted: nobody takes a reference to it.
                Err(Error::NotFound(Some(_)) | Error::Superseded(_)) => Ok(false),
                other => other,
            });
        });
        self.submit_coded_post(key, pack.timestamp, meta, 0, done);
    }

    /// How many references to a pack are here, by the key of its fragment.
    pub fn references_to(&self, key: &Key, pack: Version) -> Result<u64> {
        let pack = Pack { version: pack, digest: key.digest };
        let all = self.packs((key.policy, small_of(key.partition)))?;
        Ok(all.iter().filter(|one| one.pack == pack).map(|one| one.references).sum())
    }

    /// How much of each pack is referred to in a partition, by pack.
    pub fn packs(&self, id: PartitionId) -> Result<Vec<PackUse>> {
        self.inner.device.check()?;
        let mut tables: Vec<_> = self
            .inner
            .index
            .partition(id, |partition| partition.tables().map(|(_, table)| table).collect())
            .unwrap_or_default();
        tables.sort_unstable_by_key(|table| table.pack);
        let mut found: Vec<PackUse> = Vec::new();
        for table in tables {
            let new = PackUse { pack: table.pack, tables: 0, references: 0, bytes: 0 };
            if found.last().is_none_or(|last| last.pack != table.pack) {
                found.push(new);
            }
            let Some(last) = found.last_mut() else { continue };
            last.tables += 1;
            last.references += u64::from(table.references);
            last.bytes += table.bytes;
        }
        Ok(found)
    }
}
