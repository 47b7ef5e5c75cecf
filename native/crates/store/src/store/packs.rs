//! References to packs: small objects of which the bytes are in a coded object of their partition.
//!
//! `docs/design/2026-11-29-packs.md` has the protocol. The device keeps references and says what it has; that a pack has
//! been proved, and that its fragment is here, is for the caller to know, who compares the copies' bytes with the
//! pack's before they are replaced.
//!
//! Fault model: that of the store. A table is one record, so all of its references become durable, or none. Each block of
//! one is proved by itself: where one is damaged, its objects are forgotten, and all others go on.

use swiftlet_fragments::packs::Pack;
use swiftlet_fragments::packs::table::Table;

use super::Store;
use crate::commit;
use crate::deciding::not_of_a_pack;
use crate::error::Result;
use crate::index::{PartitionId, Taking};
use crate::model::Key;
use crate::queue::{Done, Op};
use crate::read::{self, Referred};

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

impl Store {
    /// Replace copies by references, where the copy is of this version, nobody waits for its container update, and it
    /// does not expire; and references to earlier packs. `done` is called with whether there were any, when they are
    /// durable.
    pub fn submit_adopt(&self, id: PartitionId, table: Table, done: Done) {
        self.submit_references(id, Taking::Adopt, table, done);
    }

    /// `submit_adopt`, and wait.
    pub fn adopt(&self, id: PartitionId, table: Table) -> Result<bool> {
        commit::wait(&self.inner, |done| self.submit_adopt(id, table, done))
    }

    /// Take references to versions that are missing here; `done` is called with whether there were any, when they are
    /// durable.
    pub fn submit_learn_references(&self, id: PartitionId, table: Table, done: Done) {
        self.submit_references(id, Taking::Learn, table, done);
    }

    /// `submit_learn_references`, and wait.
    pub fn learn_references(&self, id: PartitionId, table: Table) -> Result<bool> {
        commit::wait(&self.inner, |done| self.submit_learn_references(id, table, done))
    }

    fn submit_references(&self, id: PartitionId, taking: Taking, table: Table, done: Done) {
        match self.check_table(&table) {
            Ok(()) => {
                let key = Key { policy: id.0, partition: id.1, digest: table.pack.digest };
                self.inner.queue.push(key, Op::References(taking, table), done);
            }
            Err(error) => done(Err(error)),
        }
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
